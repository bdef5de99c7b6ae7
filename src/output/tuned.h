/* tuned.h - output tensors that are replaced when all of them are written: what was learned (learn/tune.h).
 *
 * The new bytes of all of them go to a file of their own first, oneshot-tuned, and a record of the journal speaks of
 * it; then they take their places, and another record has their sums. A run that was killed in between does that again;
 * one that was killed before the first record learns again. The file goes when the output is sealed. */
#ifndef OSH_OUTPUT_TUNED_H
#define OSH_OUTPUT_TUNED_H
#include "output/emit.h"

#define OSH_TUNED_NAME "oneshot-tuned"

typedef struct osh_tuned {
    bool known, kept;     // known: learning is over; kept: its result is better than what was there
    double before, after; // KL divergence of a token of the rows that were held back
    uint64_t n_changed, n_codes;
} osh_tuned;
const osh_tuned *osh_emit_tuned(const osh_emitter *e); // view

/* The tensors of a Linear as they are in the output; own, also where this fails. */
osh_status osh_emit_read_linear(osh_ctx *cx, osh_emitter *e, int linear, osh_tensor **raw);

typedef struct osh_tuned_writer osh_tuned_writer;
/* Everything that was handed over is written and recorded then. */
osh_status osh_tuned_begin(osh_ctx *cx, osh_tuned_writer **out, osh_emitter *e);
osh_status osh_tuned_tensor(osh_ctx *cx, osh_tuned_writer *w, int64_t out, const void *data);
osh_status osh_tuned_error(osh_ctx *cx, osh_tuned_writer *w, int linear, double nmse); // of its new weight
/* Recorded, and what it says is true of results [linears]. kept false: nothing else changes. */
osh_status osh_tuned_end(osh_ctx *cx, osh_tuned_writer *w, const osh_tuned *t, osh_result *results);
void osh_tuned_free(osh_ctx *cx, osh_tuned_writer *w);
/* The tensors take their places, where that is not done yet. */
osh_status osh_tuned_apply(osh_ctx *cx, osh_emitter *e);
#endif
