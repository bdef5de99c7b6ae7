/* attention_grad.h - declares functions that both CPU kernels for the gradients of attention use.
 * attention_grad.c has the formulas and computes them in F32. pairs_attention_grad.c multiplies
 * BF16 values. */
#ifndef OSH_ATTENTION_GRAD_H
#define OSH_ATTENTION_GRAD_H
#include "ops/kernel.h"

typedef struct osh_score_rule { // how one head turns products q k into scores
    float scale; // factor of a product q k
    float cap;   // limit of the scores; 0: no limit
    float sink;  // score of the head's sink; -INFINITY: the head has no sink
} osh_score_rule;

/* Returns the osh_score_rule of a head without a sink. */
osh_score_rule osh_score_rule_of(const osh_attention_attr *at);
/* On entry, s has the products of query i of the sample with n_keys keys. Replaces them by
 * probabilities. The query sees the keys [first, i]. Other keys get probability 0. For each seen
 * key j, computes slope[j]: the derivative of the score with respect to the product. Returns the
 * probability of the sink, or 0 if there is no sink. s and slope must have memory for n_keys
 * elements, padded to a multiple of 8. */
float osh_attention_grad_row(const osh_score_rule *rule, float *s, float *slope, int64_t i,
                             int64_t n_keys, int64_t first);
/* Computes `ds = p * (ds - mean) * slope` for n keys. On entry, ds has the gradients of the
 * probabilities p. mean: sum of p ds over the keys of the row. */
void osh_attention_grad_slopes(float *ds, const float *p, const float *slope, float mean,
                               int64_t n);
/* Writes x [n, Dh] to rows [row, row + n) and columns [at, at + Dh) of the gradient of in[k]. Adds
 * x instead if the gradient already has values (is not fresh). Does nothing if the caller does not
 * request this gradient. */
void osh_attention_grad_give(const osh_grad_args *a, int k, const float *x, int64_t row, int64_t n,
                             int64_t at);
/* Computes the gradients for the n_seqs samples in `seq`. Works like osh_attention_grad_cpu, but
 * with the products of math/pairs.h. q, k and v are BF16. longest: tokens of the longest sample. */
osh_status osh_pairs_attention_grad(osh_ctx *cx, const osh_grad_args *a, const osh_tile *seq,
                                    int64_t n_seqs, int64_t longest);
size_t osh_pairs_attention_grad_scratch(int64_t Dh, int64_t longest, int n_threads);
#endif
