/* stream_item.h - declares the state of one tensor in a stream (stream.h), from its first band to
 * its last. */
#ifndef OSH_STREAM_ITEM_H
#define OSH_STREAM_ITEM_H
#include "output/emit_impl.h"

typedef struct osh_item { // a tensor whose bands are being written
    struct osh_item *next;
    int linear;           // index of the Linear; -1: the tensor is a copy
    /* For a Linear: number of bytes that it keeps in memory until it is finished
     * (osh_stream_stays). */
    int64_t stays;
    int64_t out;          // index of the output tensor to which the bands are written
    int64_t n_rows, band; // n_rows: number of rows of the tensor; band: number of rows of a band
    size_t row_in, row_out; // number of bytes of a row in the source and in the output
    int64_t columns;      // number of elements of a row, for a copy that is changed or dequantized
    /* taken: number of rows that workers have taken so far.
     * left: number of bands that are not done. */
    int64_t taken, left;
    XXH3_state_t *sum;    // own: checksum state of the output tensor
    /* own: checksum state of the source tensor; NULL: the tensor is an unchanged copy. */
    XXH3_state_t *source;
    /* For a Linear: sums of |w - dq|^2 and of |w|^2 over the rows; dq: dequantized weight. */
    double err, ref;
    osh_qparams params;   // own; for a Linear: scales and zero points
    /* Number of bytes in `tail`. These are the last bytes of the previous band, and are written
     * together with the next band. */
    size_t n_tail;
    uint8_t tail[OSH_BLOCK_BYTES];
} osh_item;

/* Makes the item of output tensor number `id`, of which no band is written yet. The caller frees
 * *out with osh_item_free. */
osh_status osh_item_new(osh_ctx *cx, osh_item **out, const osh_emitter *e, int64_t id);
void osh_item_free(osh_ctx *cx, osh_item *it);
/* Completes a tensor whose bands are all written: writes the other tensors of a Linear, and records
 * the tensor in the journal. */
osh_status osh_item_finish(osh_ctx *cx, osh_emitter *e, osh_item *it);
#endif
