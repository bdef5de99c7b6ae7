/* stream_item.h - a tensor on its way through a stream (stream.c): what is known of it from its first band to its
 * last. */
#ifndef OSH_STREAM_ITEM_H
#define OSH_STREAM_ITEM_H
#include "output/emit_impl.h"

typedef struct osh_item { // a tensor on its way
    struct osh_item *next;
    int linear;           // -1: a copy
    int64_t stays;        // of a Linear: osh_stream_stays
    int64_t out;          // its bytes are those of this output tensor
    int64_t n_rows, band; // rows of a band
    size_t row_in, row_out;
    int64_t columns;      // of a copy that is changed or made: elements of a row
    int64_t taken, left;  // rows; bands that are not done
    XXH3_state_t *sum;    // own
    XXH3_state_t *source; // own: of a Linear, and of a copy that is changed: of what was read
    double err, ref;      // of a Linear: |w - dq|^2, |w|^2
    osh_qparams params;   // own: of a Linear
    size_t n_tail;        // bytes that the band before left
    uint8_t tail[OSH_BLOCK_BYTES];
} osh_item;

osh_status osh_item_new(osh_ctx *cx, osh_item **out, const osh_emitter *e, int64_t id);
void osh_item_free(osh_ctx *cx, osh_item *it);
/* All of its bands are written: what else a Linear has is, too, and both are recorded. */
osh_status osh_item_finish(osh_ctx *cx, osh_emitter *e, osh_item *it);
#endif
