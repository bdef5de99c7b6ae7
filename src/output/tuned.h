/* tuned.h - replaces output tensors by tuned ones (learn/tune.h), after the whole output is
 * written.
 *
 * The new bytes of all tuned tensors go to a file first, oneshot-tuned, and a record of the journal
 * names it. Then they are written into the shards, and a second record has their checksums. A run
 * that was killed between the records writes them into the shards again. A run that was killed
 * before the first record learns again. The file is removed when the output is sealed. */
#ifndef OSH_OUTPUT_TUNED_H
#define OSH_OUTPUT_TUNED_H
#include "output/emit.h"

#define OSH_TUNED_NAME "oneshot-tuned"

typedef struct osh_tuned {
    bool known, kept;     // known: learning is over; kept: the result is better than before
    double before, after; // KL divergence per token, over the rows that are held back
    uint64_t n_changed, n_codes;
} osh_tuned;
const osh_tuned *osh_emit_tuned(const osh_emitter *e); // view

/* Reads the tensors of a Linear from the output: raw [n_out of the Linear], own, also after a
 * failure. */
osh_status osh_emit_read_linear(osh_ctx *cx, osh_emitter *e, int linear, osh_tensor **raw);

typedef struct osh_tuned_writer osh_tuned_writer;
/* Creates the file, after everything that was handed to the emitter is written and recorded. */
osh_status osh_tuned_begin(osh_ctx *cx, osh_tuned_writer **out, osh_emitter *e);
/* Appends an output tensor. */
osh_status osh_tuned_tensor(osh_ctx *cx, osh_tuned_writer *w, int64_t out, const void *data);
/* Adds the error of a Linear's new weight. */
osh_status osh_tuned_error(osh_ctx *cx, osh_tuned_writer *w, int linear, double nmse);
/* Closes the file, writes the record, and puts the errors into results [linears]. If t->kept is
 * false, it removes the file, and nothing else changes. */
osh_status osh_tuned_end(osh_ctx *cx, osh_tuned_writer *w, const osh_tuned *t, osh_result *results);
void osh_tuned_free(osh_ctx *cx, osh_tuned_writer *w);
/* Writes the tuned tensors into the shards, if they are kept and not written there yet. */
osh_status osh_tuned_apply(osh_ctx *cx, osh_emitter *e);
#endif
