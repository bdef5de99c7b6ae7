/* counted.h - selects the rows of a value that count in statistics, and copies them. */
#ifndef OSH_COUNTED_H
#define OSH_COUNTED_H
#include "graph/exec.h"

/* The selected rows of one value of a batch. */
typedef struct osh_counted {
    /* x: copies of the selected rows. original: copies of these rows of the value in the original
     * model, or NULL. */
    osh_tensor *x, *original; // own
    osh_batch part; // view: batch with seqs, n_tokens and first_sample of the selected rows
    int64_t *offsets;         // own
} osh_counted;
typedef struct osh_counting { // a rule that selects rows of a value
    const uint8_t *counted; // view [rows]: 1 for rows that count, else 0; NULL: all rows count
    bool routed;            // true if rows in which all elements are 0 do not count
} osh_counting;
/* Copies the rows of x that `which` selects. If `original` is not NULL, it is the value in the
 * original model, and its rows at the same positions are copied, too. All tensors are in host
 * memory. */
osh_status osh_counted_new(osh_ctx *cx, osh_counted *out, const osh_tensor *x,
                           const osh_tensor *original, const osh_batch *b,
                           const osh_counting *which);
/* Frees the tensors of *c. */
void osh_counted_deinit(osh_ctx *cx, osh_counted *c);
/* Returns an upper bound of the host bytes of an osh_counted, with the allocator's overhead.
 * row_bytes: bytes of one row. original: true if rows of the original model are copied, too. */
size_t osh_counted_bytes(size_t row_bytes, int64_t n_tokens, int64_t n_samples, bool original);
#endif
