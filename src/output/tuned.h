/* tuned.h - replaces output tensors by tuned ones (learn/tune.h), when the whole output is already
 * written.
 *
 * The new bytes of all tuned tensors are first written to the file oneshot-tuned, and a record of
 * the journal names this file. Then they are written to the shards, and a second record has their
 * checksums.
 * If the run is killed between the two records, the next run writes the shards again. If it is
 * killed before the first record, the next run tunes again. The file is removed when the output is
 * sealed. */
#ifndef OSH_OUTPUT_TUNED_H
#define OSH_OUTPUT_TUNED_H
#include "output/emit.h"

#define OSH_TUNED_NAME "oneshot-tuned"

typedef struct osh_tuned {
    /* known: tuning has ended.
     * kept: the tuned tensors are better and are used. */
    bool known, kept;
    double before, after; // KL divergence per token over held-out rows, before and after tuning
    uint64_t n_changed, n_codes;
} osh_tuned;
const osh_tuned *osh_emit_tuned(const osh_emitter *e); // view

/* Reads the output tensors of a Linear to `raw` [n_out of the Linear]. The caller owns the tensors,
 * also after a failure. */
osh_status osh_emit_read_linear(osh_ctx *cx, osh_emitter *e, int linear, osh_tensor **raw);

typedef struct osh_tuned_writer osh_tuned_writer;
/* Waits until the emitter has written and recorded all its jobs. Then creates the file of tuned
 * tensors. */
osh_status osh_tuned_begin(osh_ctx *cx, osh_tuned_writer **out, osh_emitter *e);
/* Appends the new bytes of output tensor `out` to the file of tuned tensors. */
osh_status osh_tuned_tensor(osh_ctx *cx, osh_tuned_writer *w, int64_t out, const void *data);
/* Adds the relative squared error of a Linear's tuned weight to the errors of the record. */
osh_status osh_tuned_error(osh_ctx *cx, osh_tuned_writer *w, int linear, double nmse);
/* Closes the file of tuned tensors, writes the record, and copies the errors to results [linears].
 * If t->kept is false, removes the file, and writes the record without errors. */
osh_status osh_tuned_end(osh_ctx *cx, osh_tuned_writer *w, const osh_tuned *t, osh_result *results);
/* Closes the file and frees w. Accepts NULL. */
void osh_tuned_free(osh_ctx *cx, osh_tuned_writer *w);
/* Writes the tuned tensors to the shards. Does nothing if tuning did not keep them, or if they are
 * already written. */
osh_status osh_tuned_apply(osh_ctx *cx, osh_emitter *e);
#endif
