/* stream.h - rounds and copies tensors in bands of rows.
 *
 * Several threads read, compute and write, each with a band of its own. They use direct I/O, so
 * that the disk has several requests at a time. A copied tensor is never in memory as a whole. A
 * Linear is in memory as a whole only if its modifier cannot round bands of it. For other tensors,
 * memory does not grow with their size. Bands are added to checksums and to sums of errors in the
 * order of the rows. So the results do not depend on the number of threads. */
#ifndef OSH_STREAM_H
#define OSH_STREAM_H
#include "output/emit.h"
#include "budget/bands.h"

typedef struct osh_stream_job {
    const int *linears; // view: [n] Linears of the plan
    int n;
    bool copies; // true if the stream also does the work of osh_stream_copies
    /* Called on the caller's thread for each finished Linear, in the order of `linears`. May be
     * NULL. */
    osh_status (*finished)(osh_ctx *cx, void *user, int linear, double nmse);
    void *user;
} osh_stream_job;
/* Rounds and emits Linears. */
osh_status osh_stream_linears(osh_ctx *cx, osh_emitter *e, const osh_stream_job *job);
/* Writes the copied tensors that are not written yet. which [n_out of the plan] is true for the
 * tensors to write. If it is NULL, writes all copied tensors. */
osh_status osh_stream_copies(osh_ctx *cx, osh_emitter *e, const bool *which);
#endif
