/* decode.h - runs a model on one sample in pieces: the prompt, then each new token. Ops that look
 * at earlier tokens keep what they need of them (osh_op.state), so no token is computed twice. */
#ifndef OSH_EVAL_DECODE_H
#define OSH_EVAL_DECODE_H
#include "eval/forward.h"

typedef struct osh_decode osh_decode;
typedef struct osh_decode_want {
    int64_t n_prompt, room; // tokens of the first piece, and of all pieces at most
    int64_t host_memory;    // budget in bytes; 0: what the machine has
    int64_t load;           // the most host bytes that reading took so far
    bool round;             // activations are rounded as the scheme says
    bool again;             // each piece runs all tokens from the first on, and no op has a state
} osh_decode_want;
/* Allocates the states, and decides which weights stay in memory; the others are read again for
 * each piece. Sets the limit of the context to the budget. Fails with OSH_E_USAGE if the budget is
 * too small, and names the smallest that would do. f must outlive *out (own). */
osh_status osh_decode_open(osh_ctx *cx, osh_decode **out, const osh_forward *f,
                           const osh_decode_want *want);
void osh_decode_close(osh_ctx *cx, osh_decode *d); // accepts NULL
int64_t osh_decode_width(const osh_forward *f);    // logits of a token
/* Runs the next n tokens. logits [width]: of the token after the last one. pr: shown after each
 * subgraph; NULL: not shown. */
osh_status osh_decode_run(osh_ctx *cx, osh_decode *d, float *logits, const int32_t *ids, int64_t n,
                          osh_progress *pr);
/* Returns the bytes of the checkpoint that the last piece read because they do not stay. */
int64_t osh_decode_read_bytes(const osh_decode *d);
#endif
