/* stream.h - tensors that go through memory in bands of rows: read past the page cache, worked on and written by
 * several threads, each with a band of its own, so that several requests are with the disk. Memory does not grow with a
 * tensor.
 *
 * A Linear whose modifier works by rows never lies in memory as a whole, nor does what is copied. Bands are begun in
 * the order of the rows; checksums and sums of errors take them up in that order, so nothing depends on the number of
 * threads. */
#ifndef OSH_STREAM_H
#define OSH_STREAM_H
#include "output/emit.h"
#include "plan/bands.h"

typedef struct osh_stream_job {
    const int *linears; // view: of the plan, [n]
    int n;
    bool copies; // and does what osh_stream_copies does
    /* On the caller's thread, in the order in which they are finished; NULL: nobody is told. */
    osh_status (*finished)(osh_ctx *cx, void *user, int linear, double nmse);
    void *user;
} osh_stream_job;
/* Rounds and emits Linears. */
osh_status osh_stream_linears(osh_ctx *cx, osh_emitter *e, const osh_stream_job *job);
/* Every tensor that is copied bit for bit and is not yet; which [n_out of the plan], NULL: all: of these. */
osh_status osh_stream_copies(osh_ctx *cx, osh_emitter *e, const bool *which);
#endif
