/* sample.h - chooses the next token from logits. */
#ifndef OSH_EVAL_SAMPLE_H
#define OSH_EVAL_SAMPLE_H
#include "base/base.h"

typedef struct osh_sampler {
    /* 0: always chooses the most likely token. Else logits are divided by this number. */
    double temperature;
    int64_t top_k;      // number of most likely tokens that may be drawn; 0: all
    /* The most likely tokens that together have at least this probability may be drawn; 1: all
     * tokens. */
    double top_p;
    uint64_t seed;
} osh_sampler;
/* Returns the next token; -1 if a logit is not finite. The draw uses the random number with index
 * `step` of the seed's sequence. If logits are equal, the lower id counts as more likely. order
 * [n]: scratch. */
int64_t osh_sample(const osh_sampler *s, const float *logits, int64_t n, uint64_t step,
                   int32_t *order);
#endif
