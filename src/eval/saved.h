/* saved.h - saves the logits of a model for all tokens of a data set. `eval --reference` reads the
 * directory with the saved logits instead of the model. A reference that takes hours then runs only
 * once.
 *
 * The directory is a checkpoint with a config.json (architecture OneshotLogits) and
 * model.safetensors. It has the inputs of the output head and the head itself. These take far fewer
 * bytes than the logits, and the logits that are computed from them have the same bits:
 *
 *   hidden.weight [N, D]     lm_head.weight [V, D]     lm_head.bias [V], if the head has one
 *
 * The graph of the checkpoint has two nodes: an embedding and the head. The embedding returns row t
 * of hidden.weight for token t. N: tokens of the data set; D: hidden_size; V: vocabulary size. */
#ifndef OSH_SAVED_H
#define OSH_SAVED_H
#include "eval/eval_memory.h"

/* Sets *yes to true if config.json of the directory says that it has saved logits. */
osh_status osh_saved_is(osh_ctx *cx, bool *yes, const char *dir);
/* Opens saved logits like osh_forward_open. Fails with OSH_E_USAGE if they belong to other tokens
 * than those of d. */
osh_status osh_forward_open_saved(osh_ctx *cx, osh_forward **out, const char *dir,
                                  const osh_dataset *d);
/* Makes the directory if it does not exist. Fails with OSH_E_USAGE if it has files that
 * osh_saved_write does not write, or if its config.json is not that of saved logits. */
osh_status osh_saved_make_dir(osh_ctx *cx, const char *dir);
/* Writes the logits of the model m->f, after its run over m->d. `model` is the model's name
 * for messages. */
osh_status osh_saved_write(osh_ctx *cx, const char *dir, const char *model,
                           const osh_eval_models *m);
/* Passes the rows of this rank to osh_saved_write of rank 0. */
osh_status osh_saved_send(osh_ctx *cx, const osh_eval_models *m);
/* Returns the number of host bytes that osh_saved_write allocates. */
int64_t osh_saved_bytes(const osh_eval_models *m);
/* Returns a checksum of the token ids and of the lengths of the samples. */
uint64_t osh_saved_sum(const osh_dataset *d);
#endif
