/* decode_memory.h - decides which weights stay in memory during a generation. */
#ifndef OSH_EVAL_DECODE_MEMORY_H
#define OSH_EVAL_DECODE_MEMORY_H
#include "eval/decode.h"

typedef struct osh_decode_sizes {
    const osh_forward *f;
    int64_t n_first; // largest number of tokens of one osh_decode_run
    /* Number of bytes of the states and lists that osh_decode_open allocates, with the allocator's
     * overhead. */
    int64_t states;
    /* True if each osh_decode_run after the prompt runs one token; false if it runs all tokens from
     * the first on. */
    bool pieces;
} osh_decode_sizes;
/* Sets the array `stays` [subgraphs + 1] to true for each subgraph whose weights stay in memory;
 * the last element is for the head. Sets the memory limit of the context. If want->least is not
 * NULL, only sets *want->least. */
osh_status osh_decode_fit(osh_ctx *cx, bool *stays, const osh_decode_sizes *s,
                          const osh_decode_want *want);
#endif
