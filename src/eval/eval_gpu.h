/* eval_gpu.h - runs an evaluation on a GPU, subgraph by subgraph like forward.h. All GPU memory is
 * one block (the arena), with this layout:
 *
 *   | workspace | weights (eval_weights.h) | rounded input | stored values |   ◄── batch, scores |
 *
 * The batch and the scores are allocated from the end of the block. osh_eval_gpu_open allocates all
 * other parts once, so the predicted bytes are exactly the allocated bytes. Batches are cut as for
 * a calibration on a GPU (schedule/batches.c). So the results depend on the data and the GPU, but
 * not on budgets or --batch-size. */
#ifndef OSH_EVAL_GPU_H
#define OSH_EVAL_GPU_H
#include "eval/forward.h"
#include "match/options.h"

typedef struct osh_eval_gpu osh_eval_gpu;
/* True if --device names a GPU, or leaves the choice to the program and this machine has a GPU. */
bool osh_eval_gpu_wanted(const osh_eval_options *o);
/* *out (own) is NULL if the evaluation runs on the host. Otherwise opens the GPU and allocates all
 * blocks. Fails with OSH_E_USAGE if --device-memory is too small; the message has the smallest
 * possible budget. o, f, ref (or NULL) and d must outlive *out. */
osh_status osh_eval_gpu_open(osh_ctx *cx, osh_eval_gpu **out, const osh_eval_options *o,
                             const osh_forward *f, const osh_forward *ref, const osh_dataset *d);
/* Returns the largest number of host bytes that the passes and the computation of scores need.
 * `ahead`: true if weights are prefetched. */
int64_t osh_eval_gpu_host_bytes(const osh_eval_gpu *c, bool ahead);
bool osh_eval_gpu_ahead(const osh_eval_gpu *c); // true if weights are prefetched
/* Turns off the prefetch of weights. Must be called before osh_eval_gpu_run. */
void osh_eval_gpu_not_ahead(osh_eval_gpu *c);
void osh_eval_gpu_close(osh_ctx *cx, osh_eval_gpu *c); // accepts NULL
/* Runs both models up to the inputs of the heads, then loads the heads. */
osh_status osh_eval_gpu_run(osh_ctx *cx, osh_eval_gpu *c, osh_progress *pr);
/* Returns the number of batches. */
int64_t osh_eval_gpu_batches(const osh_eval_gpu *c);
/* Sets *first and *n to the samples of batch b, which are [*first, *first + *n). */
void osh_eval_gpu_batch(const osh_eval_gpu *c, int64_t b, int64_t *first, int64_t *n);
/* Sets *out (own, in host memory) to the inputs of the model's head for the tokens of batch b. The
 * caller must have called osh_eval_gpu_run for the batch. */
osh_status osh_eval_gpu_hidden(osh_ctx *cx, osh_tensor **out, osh_eval_gpu *c, int64_t b);
/* Scores batch b. targets [tokens of the batch]: next tokens. out [4][tokens of the batch]:
 * allocated by the caller. out[0] gets the NLL. If there is a reference model, the other tensors
 * get the KL divergence, the top-1 agreement and the NLL of the reference. All tensors are in host
 * memory. */
osh_status osh_eval_gpu_score(osh_ctx *cx, osh_eval_gpu *c, int64_t b, const osh_tensor *targets,
                              osh_tensor *const out[4]);
#endif
