/* eval_weights.h - loads the weights of an evaluation on a GPU, step by step. A step is a subgraph
 * of the reference model, a subgraph of the model, or the heads of both. The weights are in one
 * block of the GPU's memory. If the block has room for two steps, the weights of the next step are
 * read and copied while the GPU works on the current step.
 *
 *   | step 2 ──►      free      ◄── step 3 |    even steps from the front, odd steps from the end
 * */
#ifndef OSH_EVAL_WEIGHTS_H
#define OSH_EVAL_WEIGHTS_H
#include "eval/forward.h"

typedef struct osh_eval_weights osh_eval_weights;
/* Lists the steps that load the weights of the model `f` and of the reference model `ref`, which
 * may be NULL. `f` and `ref` must outlive *out (own). */
osh_status osh_eval_weights_new(osh_ctx *cx, osh_eval_weights **out, const osh_forward *f,
                                const osh_forward *ref);
/* Waits for the thread that prefetches weights, and frees e. Accepts NULL. */
void osh_eval_weights_free(osh_ctx *cx, osh_eval_weights *e);
/* Returns the size in bytes of the block for the weights. If `ahead` is false, this is the size of
 * the largest step. If `ahead` is true, it is the largest total size of two successive steps. */
int64_t osh_eval_weights_bytes(const osh_eval_weights *e, bool ahead);
/* Returns the largest number of host bytes for reading a weight, without the lists. */
int64_t osh_eval_weights_host_bytes(const osh_eval_weights *e);
/* Gives each weight an address in `block`, which has osh_eval_weights_bytes(e, ahead) bytes of
 * device d and belongs to the caller. */
void osh_eval_weights_place(osh_eval_weights *e, osh_device *d, char *block, bool ahead);
/* Lets cuFile read files directly to the GPU's memory. The cuFile buffer of the GPU must be open.
 * Must be called before the first step. */
void osh_eval_weights_direct(osh_eval_weights *e);
/* Turns off the prefetch; must be called before the first step. */
void osh_eval_weights_not_ahead(osh_eval_weights *e);
/* True if weights are prefetched. */
bool osh_eval_weights_ahead(const osh_eval_weights *e);
/* Begins the next step, whose weights overwrite the weights of the previous step. Work that is put
 * into the GPU's queue after the call finds the new weights. If the step is a subgraph, puts its
 * weights into *w, as views of the block. For the last step (the heads), w is NULL. */
osh_status osh_eval_weights_next(osh_ctx *cx, osh_eval_weights *e, osh_weights *w);
/* Returns the tensor (view) of weight `w` of the model f. `w` is the result of osh_graph_head or
 * osh_graph_head_bias; if it is NULL, returns NULL. The caller calls this function after the last
 * step. */
const osh_tensor *osh_eval_weights_head(const osh_eval_weights *e, const osh_forward *f,
                                        const osh_weight *w);
#endif
