/* stream.h - rounds and copies tensors in bands of rows.
 *
 * Several threads read, compute and write, each with a band of its own. They use direct I/O, so
 * that the disk has several requests at a time. Memory does not grow with the size of a tensor,
 * with one exception: a Linear is in memory as a whole if its modifier cannot round it in bands.
 * Bands are added to checksums and to sums of errors in the order of the rows, so the results do
 * not depend on the number of threads. */
#ifndef OSH_STREAM_H
#define OSH_STREAM_H
#include "output/emit.h"
#include "budget/bands.h"

typedef struct osh_stream_job {
    const int *linears; // view [n]: indices of the Linears that are rounded
    int n;
    bool copies; // true: the stream also writes all copied tensors
    /* Called for each finished Linear, on the caller's thread and in the order of `linears`. May be
     * NULL. */
    osh_status (*finished)(osh_ctx *cx, void *user, int linear, double nmse);
    void *user;
} osh_stream_job;
/* Rounds the Linears of the job by bands, and emits them. */
osh_status osh_stream_linears(osh_ctx *cx, osh_emitter *e, const osh_stream_job *job);
/* Writes the copied tensors that are not written yet. `which` [n_out of the plan]: true for each
 * tensor to write; NULL: all of them. */
osh_status osh_stream_copies(osh_ctx *cx, osh_emitter *e, const bool *which);
#endif
