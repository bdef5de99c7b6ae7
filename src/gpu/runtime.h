/* runtime.h - the GPU behind an osh_device, for CUDA files. */
#ifndef OSH_CUDA_RUNTIME_H
#define OSH_CUDA_RUNTIME_H
#include "gpu/gpu.h"
extern "C" {
#include "tensor/scalar.h"
}
#include <cuda_runtime.h>

/* A CUDA call inside a function with rc and done: its failure is recorded with the call's text. */
#define OSH_CUDA(cx, call) OSH_TRY(osh_cuda_check((cx), (call), #call))
osh_status osh_cuda_check(osh_ctx *cx, cudaError_t e, const char *what);

cudaStream_t osh_cuda_stream(const osh_device *d); // of all work but put_ahead
int osh_cuda_multiprocessors(const osh_device *d);
int osh_cuda_shared_bytes(const osh_device *d); // of a multiprocessor

/* Products through cuBLASLt on row-major matrices: C [m, n] = alpha op(A) op(B) + beta C, batched with strides.
 * The algorithm is the first of cuBLASLt's list for the shape, without split sums and with a workspace of fixed size,
 * so that equal shapes give equal bytes on one card. Sums are f32. n_like: the algorithm is that of a batch of so many,
 * or of one where that algorithm does not take one alone; 0: of n_batch. A batch whose size depends on what happens to
 * be at hand says 1, or how many there are as a rule. F32 is multiplied as F32, or, with tf32, by tensor cores, which
 * take no more than TF32 of it: 10 bits behind the point, the others may be cut off. */
typedef struct osh_cuda_mat {
    void *data;
    int64_t ld;       // elements from row to row
    int64_t stride;   // elements from matrix to matrix of a batch
    osh_dtype dtype;  // F32, BF16, F16
    bool transposed;  // the product takes its transpose
} osh_cuda_mat;
typedef struct osh_cuda_product {
    const osh_cuda_mat *c, *a, *b;
    int64_t m, n, k, n_batch;
    float alpha, beta;
    int64_t n_like;
    bool tf32;
} osh_cuda_product;
osh_status osh_cuda_gemm(osh_ctx *cx, osh_device *d, const osh_cuda_product &x);
/* Of the latest product: cuBLASLt's own numbers, -1 where it does not tell. */
typedef struct osh_cuda_algo {
    int32_t id, tile, stages, split_k;
    size_t workspace;
    bool one_by_one, lenient; // OSH_DETOUR_BATCH, OSH_DETOUR_F32
} osh_cuda_algo;
void osh_cuda_gemm_algo(osh_device *d, osh_cuda_algo *out);
bool osh_cuda_tf32_pays(const osh_device *d); // three products of TF32 are faster than one of F32

/* Cholesky factor and inverse of a triangle by cuSOLVER, in place; *ok false: not positive definite, or singular.
 * Column-major as cuSOLVER has it: `upper` is the triangle of the column-major matrix. Both wait. */
typedef struct osh_cuda_triangle {
    float *a;
    int64_t n, ld;
    bool upper;
    void *room; // of the card, room_bytes: as much as osh_cuda_solver_wish says
    size_t room_bytes;
    int *verdict; // of the card
} osh_cuda_triangle;
typedef struct osh_cuda_wish { size_t potrf, trtri, trtri_host; } osh_cuda_wish; // bytes
osh_status osh_cuda_solver_wish(osh_ctx *cx, osh_device *d, osh_cuda_wish *out, const osh_cuda_triangle *t);
osh_status osh_cuda_potrf(osh_ctx *cx, osh_device *d, const osh_cuda_triangle *t, bool *ok);
osh_status osh_cuda_trtri(osh_ctx *cx, osh_device *d, const osh_cuda_triangle *t, bool *ok);

/* The inverse of the Cholesky factor of the lower triangle of a [n, n] (row-major), in place; above the diagonal
 * nothing is read or written. Takes osh_cuda_triangle_bytes(n) of the arena whatever cuSOLVER wants (triangle.cu). *ok
 * false: not positive definite, and the lower triangle is lost. Waits. */
osh_status osh_cuda_factor_inverse(osh_ctx *cx, osh_device *d, float *a, int64_t n, bool *ok);
osh_status osh_cuda_factor_probe(osh_ctx *cx, osh_device *d); // OSH_E_UNSUPPORTED: small triangles have none
#endif
