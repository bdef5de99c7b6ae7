/* counted.h - selects the rows of a value that count in statistics, and copies them. */
#ifndef OSH_COUNTED_H
#define OSH_COUNTED_H
#include "graph/exec.h"

/* The selected rows of one value of a batch, in the memory of the value. */
typedef struct osh_counted {
    /* x: copies of the selected rows. original: copies of these rows of the value in the original
     * model, or NULL. */
    osh_tensor *x, *original; // own
    osh_batch part; // view: batch with seqs, n_tokens and first_sample of the selected rows
    int64_t *offsets;         // own
} osh_counted;
typedef struct osh_counting { // a rule that selects rows of a value
    const uint8_t *counted; // view [rows]: 1 for rows that count, else 0; NULL: all rows count
    /* True if rows in which all elements are 0 do not count. Allowed only in host memory. */
    bool routed;
} osh_counting;
/* Copies the rows of x that `which` selects. If `original` is not NULL, it is the value in the
 * original model, and its rows at the same positions are copied, too. */
osh_status osh_counted_new(osh_ctx *cx, osh_counted *out, const osh_tensor *x,
                           const osh_tensor *original, const osh_batch *b,
                           const osh_counting *which);
/* Frees the tensors of *c. */
void osh_counted_deinit(osh_ctx *cx, osh_counted *c);
/* Returns an upper bound of the host bytes of an osh_counted, with the allocator's overhead.
 * row_bytes: bytes of one row; 0: the rows are on a device. original: true if rows of the original
 * model are copied, too. */
size_t osh_counted_bytes(size_t row_bytes, int64_t n_tokens, int64_t n_samples, bool original);
/* Returns the bytes of an osh_counted in the arena of a device. n_rows: number of rows that
 * count. */
size_t osh_counted_device_bytes(size_t row_bytes, int64_t n_rows, bool original);

/* Rows of an expert's value that count, on a device. */
typedef struct osh_expert_counted {
    osh_op_rows rows;      // numbers of the rows in the value
    const int32_t *tokens; // view [rows.n], in device memory: the number of each row's token
    int64_t *offsets;      // own [samples + 1]: index in `rows` of the first row of each sample
    osh_tensor *lists;     // own: memory of rows.at and `tokens`; NULL: both are views of the batch
} osh_expert_counted;
/* Lists the rows of b->rows that count. counted: as in osh_counting. Waits for the device. */
osh_status osh_expert_counted_new(osh_ctx *cx, osh_expert_counted *out, const osh_batch *b,
                                  const uint8_t *counted);
void osh_expert_counted_deinit(osh_ctx *cx, osh_expert_counted *c);
/* Returns the bytes of the lists of an osh_expert_counted in the arena of a device. n_rows: number
 * of rows that count. */
size_t osh_expert_counted_device_bytes(int64_t n_rows);
#endif
