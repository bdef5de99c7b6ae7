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
    const float *u;    // upper factor of H^-1, row-major, [I, I]; NULL: the identity
    int64_t O, I, block_size;
    double sparsity;   // fraction of each block of columns that becomes 0, if n is 0
    /* In each row, n of each m columns become 0, and I and block_size are multiples of m. If n is
     * 0, `sparsity` applies. */
    int64_t n, m;
    bool keep;         // true: weights that are 0 remain 0; false: updates may change them
    double *loss;      // output: sum over columns of err^2 / 2, [O]
} osh_prune_solve_args;
/* Prunes by SparseGPT: in each block of columns the weights with the smallest w^2 / u_ii^2 become
 * 0. If n is 0, all weights of a block of `cols` columns are sorted by this cost, and the weights
 * with sorted indices 0 to O * cols * sparsity (inclusive) become 0. Otherwise n of each m weights
 * of a row become 0. They are chosen when the loop over columns reaches the first of the m weights.
 * Errors are added to later columns as in GPTQ. */
osh_status osh_prune_solve(osh_ctx *cx, const osh_prune_solve_args *a);
// works like osh_prune_solve, in plain loops (the reference version)
osh_status osh_prune_solve_ref(osh_ctx *cx, const osh_prune_solve_args *a);
/* Returns the number of bytes of scratch of osh_prune_solve. Reads only the sizes and `keep` of the
 * arguments. */
size_t osh_prune_solve_bytes(const osh_prune_solve_args *a, int n_threads);

/* ---- SparseGPT on a device ---- */
typedef struct osh_prune_there { // arguments of osh_gptq_column.prune (columns.h)
    /* The sizes, u (in device memory) and loss (in host memory). w is not read. */
    const osh_prune_solve_args *a;
    const osh_tensor *w; // the weight [O, I] in its stored dtype, in device memory
    osh_tensor *w_out;   // output: the pruned weight, in device memory; may be w; NULL: none
    void *out;           // output: the pruned weight in the dtype of w, in host memory, [O, I]
    const bool *dead;    // [I], in host memory: columns whose weights become 0 before the solve
} osh_prune_there;
/* True if a device can prune with these arguments. Reads only I, block_size and `keep`. */
bool osh_prune_takes_device(const osh_prune_solve_args *a);
/* Returns the bytes that a solve allocates in the arena of a device. */
size_t osh_prune_solve_device_bytes(const osh_prune_solve_args *a);

typedef struct osh_prune_share { // determines how many weights of a row become 0
    double sparsity; // fraction of the columns that becomes 0, if n is 0
    int64_t n, m;    // n of each m columns become 0; if n is 0, `sparsity` applies
} osh_prune_share;
/* Sets the weights with the smallest |w| sqrt(weight) of each row to 0, in place. If this measure
 * is equal for several weights, those with smaller indices become 0 first. `weight` [I]: factors of
 * the columns; NULL: 1. */
osh_status osh_prune_rows(osh_ctx *cx, float *w, const float *weight, int64_t O, int64_t I,
                          osh_prune_share share);
/* Returns the number of bytes of scratch of osh_prune_rows. */
size_t osh_prune_rows_bytes(int64_t I, int n_threads);
/* Sets to 0, in place, all weights whose magnitude is at most the k-th smallest magnitude of the
 * whole weight, where k = floor(O I sparsity). */
osh_status osh_prune_all(osh_ctx *cx, float *w, int64_t O, int64_t I, double sparsity);

/* Returns the k-th smallest magnitude (k from 0) of n numbers. Sets *less to the number of smaller
 * magnitudes. */
float osh_kth(const float *x, int64_t n, int64_t k, int64_t *less);

#ifdef __cplusplus
}
#endif
#endif
