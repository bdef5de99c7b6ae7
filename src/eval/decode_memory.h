/* decode_memory.h - decides which weights stay in memory while a model generates. */
#ifndef OSH_EVAL_DECODE_MEMORY_H
#define OSH_EVAL_DECODE_MEMORY_H
#include "eval/decode.h"

typedef struct osh_decode_sizes {
    const osh_forward *f;
    int64_t n_first; // tokens of the longest piece that runs at once
    int64_t states;  // gross bytes of the states and lists that osh_decode_open allocates
    bool pieces;     // later pieces have one token; else each run has all tokens
} osh_decode_sizes;
/* stays [subgraphs + 1]: set to true for each subgraph, and at the end the head, whose weights stay
 * in memory. Sets the limit of the context. */
osh_status osh_decode_fit(osh_ctx *cx, bool *stays, const osh_decode_sizes *s,
                          const osh_decode_want *want);
#endif
