/* stream_item.h - the state of a tensor in a stream (stream.c), from its first band to its last. */
#ifndef OSH_STREAM_ITEM_H
#define OSH_STREAM_ITEM_H
#include "output/emit_impl.h"

typedef struct osh_item { // state of a tensor
    struct osh_item *next;
    int linear;           // index of the Linear; -1: a copy
    /* For a Linear: number of bytes that stay in memory until it is finished (osh_stream_stays). */
    int64_t stays;
    int64_t out;          // index of the output tensor to which the bands are written
    int64_t n_rows, band; // n_rows: number of rows of the tensor; band: number of rows of a band
    size_t row_in, row_out; // number of bytes of a row in the source and in the output
    int64_t columns;      // for a copy that is changed or dequantized: number of elements of a row
    /* taken: number of rows taken so far.
     * left: number of bands that are not done. */
    int64_t taken, left;
    XXH3_state_t *sum;    // own: state of the output's checksum
    XXH3_state_t *source; // own: state of the source's checksum; NULL: the copy is unchanged
    double err, ref;      // for a Linear: sums of |w - dq|^2 and of |w|^2; dq: decoded codes
    osh_qparams params;   // own: scales and zero points of a Linear
    /* Number of bytes in `tail`, the end of the last band, which is written with the next band. */
    size_t n_tail;
    uint8_t tail[OSH_BLOCK_BYTES];
} osh_item;

osh_status osh_item_new(osh_ctx *cx, osh_item **out, const osh_emitter *e, int64_t id);
void osh_item_free(osh_ctx *cx, osh_item *it);
/* For a Linear, writes the tensors other than the codes. Records the tensor in the journal. Called
 * after all bands are written. */
osh_status osh_item_finish(osh_ctx *cx, osh_emitter *e, osh_item *it);
#endif
