/* share.h - divides an evaluation among ranks (ranks/ranks.h). The batches that one process would
 * have are assigned to the ranks in turn (osh_deal_owner). Rank 0 gets the scores of each token,
 * and adds them in the order of the tokens. So the results have the same bits as those of one
 * process. */
#ifndef OSH_EVAL_SHARE_H
#define OSH_EVAL_SHARE_H
#include "eval/eval_memory.h"

/* Divides the budget o->host_memory by the largest number of ranks on one machine. Fails if some
 * ranks use a GPU and others the host. Does nothing if o->ranks is NULL. */
osh_status osh_eval_divide(osh_ctx *cx, osh_eval_options *o);
/* Fails on each rank that has other models, other tokens or another instruction set than rank 0. */
osh_status osh_eval_agree(osh_ctx *cx, osh_ranks *ranks, const osh_eval_models *m);
/* osh_eval_batches returns the number of batches of all ranks. osh_eval_batch sets *first and *n to
 * the samples [*first, *first + *n) of batch b. */
int64_t osh_eval_batches(const osh_eval_models *m);
void osh_eval_batch(const osh_eval_models *m, int64_t b, int64_t *first, int64_t *n);
/* Passes the scores of a batch to rank 0. out [n_out][tokens]: scores, as in osh_eval_gpu_score.
 * Ranks other than 0 call osh_eval_send for their batches in order, and osh_eval_sent after the
 * last. Rank 0 calls osh_eval_recv for each batch of another rank. */
osh_status osh_eval_send(osh_ctx *cx, osh_ranks *ranks, osh_tensor *const *out, int n_out);
osh_status osh_eval_sent(osh_ctx *cx, osh_ranks *ranks);
osh_status osh_eval_recv(osh_ctx *cx, osh_ranks *ranks, osh_tensor *const *out, int n_out,
                         int from);
/* Returns the number of host bytes that MPI and the messages with scores need, if a batch has at
 * most n_tokens tokens. */
int64_t osh_eval_share_bytes(const osh_ranks *ranks, int64_t n_tokens);
#endif
