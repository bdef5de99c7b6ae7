/* prune.h - sets weights to 0 by SparseGPT, Wanda or magnitude (sgpt_sparsify.py, wanda_sparsify.py
 * and mask_unstructured of LLM Compressor). */
#ifndef OSH_PRUNE_H
#define OSH_PRUNE_H
#ifdef __cplusplus
extern "C" {
#endif
#include "ops/op.h"

typedef struct osh_prune_solve_args { // arguments of SparseGPT
    float *w;          // input: the weight; output: the pruned weight; [O, I]
    /* Upper triangular U with U^T U = H^-1, row-major, [I, I]; NULL: the identity matrix. */
    const float *u;
    int64_t O, I, block_size;
    /* Fraction of each block of columns that becomes 0; not read if n > 0. */
    double sparsity;
    /* In each row, n of each m consecutive weights become 0. block_size and I are multiples of m.
     * If n is 0, there is no such pattern and `sparsity` decides. */
    int64_t n, m;
    bool keep; // true: weights that are 0 remain 0; false: errors of other columns may change them
    double *loss;      // output for each row, [O]: sum over the columns of err^2 / 2
} osh_prune_solve_args;
/* Prunes a weight by SparseGPT. The cost of a weight is w^2 / u_ii^2. Errors are added to later
 * columns, as in GPTQ.
 * Without a pattern (n = 0): the weights of all rows in a block of columns are sorted by cost. If
 * the block has `cols` columns, the weights with sorted indices 0 to O * cols * sparsity
 * (inclusive) become 0. Other weights with the same cost as the last of these become 0, too. But if
 * u is NULL, the rule of osh_prune_all decides about these other weights.
 * With a pattern: n of each m weights of a row become 0. They are chosen when the loop over columns
 * reaches the first of the m weights. */
osh_status osh_prune_solve(osh_ctx *cx, const osh_prune_solve_args *a);
/* Works like osh_prune_solve, in plain loops (the reference version). */
osh_status osh_prune_solve_ref(osh_ctx *cx, const osh_prune_solve_args *a);
/* Returns the number of bytes of scratch of osh_prune_solve. Reads only the sizes and `keep` of the
 * arguments. */
size_t osh_prune_solve_bytes(const osh_prune_solve_args *a, int n_threads);

/* ---- SparseGPT on a device ---- */
typedef struct osh_prune_there { // arguments of osh_gptq_column.prune (columns.h)
    /* The arguments of the solve. `u` is in device memory, and `loss` in host memory. The member w
     * is not read. */
    const osh_prune_solve_args *a;
    const osh_tensor *w; // the weight to prune, [O, I], in its stored dtype, in device memory
    osh_tensor *w_out;   // output: the pruned weight in device memory, may be w; NULL: not written
    void *out;           // output: the pruned weight in the dtype of w, in host memory, [O, I]
    /* For each column, [I], in host memory: true if its weights become 0 before the solve. */
    const bool *dead;
} osh_prune_there;
/* True if the function osh_gptq_column.prune of a device supports the arguments `a`. Reads only I,
 * block_size and `keep`. */
bool osh_prune_takes_device(const osh_prune_solve_args *a);
/* Returns the number of bytes that osh_gptq_column.prune allocates in the arena of a device. */
size_t osh_prune_solve_device_bytes(const osh_prune_solve_args *a);

typedef struct osh_prune_share { // how many weights of each row become 0
    double sparsity; // fraction of each row that becomes 0; not read if n > 0
    int64_t n, m;    // n of each m consecutive weights become 0; n = 0: `sparsity` decides
} osh_prune_share;
/* Sets the weights with the lowest costs of each row to 0, in place. The cost of a weight is `|w| *
 * sqrt(weight[column])`. If costs are equal, weights with smaller indices are chosen first.
 * `weight` [I]: NULL means 1 for all columns. */
osh_status osh_prune_rows(osh_ctx *cx, float *w, const float *weight, int64_t O, int64_t I,
                          osh_prune_share share);
/* Returns the number of bytes of scratch of osh_prune_rows. */
size_t osh_prune_rows_bytes(int64_t I, int n_threads);
/* Sets the `floor(O * I * sparsity)` weights with the smallest magnitudes to 0, in place. Other
 * weights whose magnitude equals the largest of these magnitudes become 0, too. But these other
 * weights stay if they are more than an eighth of all weights, or if no weight would remain. */
osh_status osh_prune_all(osh_ctx *cx, float *w, int64_t O, int64_t I, double sparsity);

/* Returns the largest of the k smallest costs (k from 1) of the n weights of a block. The weights
 * with at most this cost become 0. If `few` is true and osh_prune_all would not clear all weights
 * with this cost, sets the costs of the remaining weights with this cost to infinity. */
float osh_prune_most(float *cost, int64_t n, int64_t k, bool few);
/* Returns the k-th smallest magnitude (k from 0) of the n numbers x. Sets *less to the number of
 * magnitudes below the result. */
float osh_kth(const float *x, int64_t n, int64_t k, int64_t *less);

#ifdef __cplusplus
}
#endif
#endif
