/* decode.h - runs a model on one sample in pieces: the prompt, then each new token. Ops whose
 * output depends on earlier tokens keep a state (osh_op.state), so no token is computed twice. */
#ifndef OSH_EVAL_DECODE_H
#define OSH_EVAL_DECODE_H
#include "eval/forward.h"

typedef struct osh_decode osh_decode;
typedef struct osh_decode_want {
    /* n_prompt: number of tokens of the prompt.
     * room: largest number of tokens, including the prompt. */
    int64_t n_prompt, room;
    int64_t host_memory;    // budget in bytes; 0: most of the available memory of the machine
    int64_t load;           // peak of host bytes while the model and the prompt were read
    bool round;             // true if activations are rounded by the scheme of the checkpoint
    /* If `least` is not NULL, osh_decode_open sets *least to the smallest possible budget in bytes,
     * and opens nothing. */
    int64_t *least;
    /* True if each osh_decode_run runs all tokens from the first on, and no op keeps a state. */
    bool again;
} osh_decode_want;
/* Allocates the states, and decides which weights stay in memory; all other weights are read again
 * in each osh_decode_run. Sets the memory limit of the context to the budget. Fails with
 * OSH_E_USAGE if the budget is too small; the message has the smallest possible budget. *out is
 * own, or NULL if want->least is set. f must outlive *out. */
osh_status osh_decode_open(osh_ctx *cx, osh_decode **out, const osh_forward *f,
                           const osh_decode_want *want);
void osh_decode_close(osh_ctx *cx, osh_decode *d); // accepts NULL
int64_t osh_decode_width(const osh_forward *f);    // returns the number of logits of a token
/* Runs the next n tokens. Sets logits [osh_decode_width] to the logits of the last of these tokens.
 * Shows the progress `pr` after each subgraph, unless `pr` is NULL. */
osh_status osh_decode_run(osh_ctx *cx, osh_decode *d, float *logits, const int32_t *ids, int64_t n,
                          osh_progress *pr);
/* Returns the number of bytes of weights that the last osh_decode_run read from files. Each run
 * reads the weights that do not stay in memory. */
int64_t osh_decode_read_bytes(const osh_decode *d);
#endif
