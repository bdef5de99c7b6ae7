/* prune.h - which weights become 0, and what the others make up for (sgpt_sparsify.py, wanda_sparsify.py and
 * mask_unstructured of LLM Compressor). */
#ifndef OSH_PRUNE_H
#define OSH_PRUNE_H
#include "ops/op.h"

typedef struct osh_prune_solve_args { // SparseGPT
    float *w;          // [O, I] in: the weight; out: with zeros
    const float *u;    // [I, I] upper factor of H^-1, row-major; NULL: the identity
    int64_t O, I, block_size;
    double sparsity;   // of each block of columns, where n is 0
    int64_t n, m;      // so many of each m columns; I and block_size are multiples of m
    bool keep;         // what is 0 stays 0
    double *loss;      // [O] out: sum over columns of err^2 / 2
} osh_prune_solve_args;
/* Of each block of columns the least w^2 / u^2 become 0: where n is 0 those of all rows up to the one with index
 * O cols sparsity among the sorted; else n of each m of a row, chosen when the loop comes to the first of them. Errors
 * are pushed on to later columns as GPTQ's are. */
osh_status osh_prune_solve(osh_ctx *cx, const osh_prune_solve_args *a);
osh_status osh_prune_solve_ref(osh_ctx *cx, const osh_prune_solve_args *a); // plain loops
size_t osh_prune_solve_bytes(const osh_prune_solve_args *a, int n_threads); // scratch; sizes and keep are read

typedef struct osh_prune_share { // what goes of a row
    double sparsity; // the least I sparsity, where n is 0
    int64_t n, m;    // n of each m
} osh_prune_share;
/* In place, by |w| sqrt(weight). Of equal ones the first. weight [I]; NULL: 1. */
osh_status osh_prune_rows(osh_ctx *cx, float *w, const float *weight, int64_t O, int64_t I, osh_prune_share share);
size_t osh_prune_rows_bytes(int64_t I, int n_threads); // scratch
/* In place: all whose magnitude is not above the k-th smallest of the whole weight, k = O I sparsity cut to a whole
 * number. */
osh_status osh_prune_all(osh_ctx *cx, float *w, int64_t O, int64_t I, double sparsity);

/* The k-th smallest magnitude (from 0) of n numbers; *less: how many are smaller. */
float osh_kth(const float *x, int64_t n, int64_t k, int64_t *less);
#endif
