/* stream_item.h - the state of a tensor in a stream (stream.c), from its first band to its last. */
#ifndef OSH_STREAM_ITEM_H
#define OSH_STREAM_ITEM_H
#include "output/emit_impl.h"

typedef struct osh_item { // state of a tensor
    struct osh_item *next;
    int linear;           // index of the Linear; -1: a copy
    int64_t stays;        // for a Linear: osh_stream_stays
    int64_t out;          // output tensor that gets its bytes
    int64_t n_rows, band; // rows of the tensor; rows of a band
    size_t row_in, row_out; // bytes
    int64_t columns;      // for a copy that is changed or dequantized: elements of a row
    int64_t taken, left;  // taken: rows taken so far; left: bands that are not done
    XXH3_state_t *sum;    // own: state of the output's checksum
    XXH3_state_t *source; // own: state of the source's checksum; NULL: the copy is unchanged
    double err, ref;      // for a Linear: |w - dq|^2, |w|^2
    osh_qparams params;   // own: for a Linear
    size_t n_tail;        // bytes in `tail`, which are not yet written
    uint8_t tail[OSH_BLOCK_BYTES];
} osh_item;

osh_status osh_item_new(osh_ctx *cx, osh_item **out, const osh_emitter *e, int64_t id);
void osh_item_free(osh_ctx *cx, osh_item *it);
/* Writes the other tensors of a Linear, and records the tensor. Called after all bands are
 * written. */
osh_status osh_item_finish(osh_ctx *cx, osh_emitter *e, osh_item *it);
#endif
