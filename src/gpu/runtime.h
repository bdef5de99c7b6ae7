/* runtime.h - declares functions for CUDA files that use the GPU of an osh_device: stream, matrix
 * products, and inverses of triangular matrices. */
#ifndef OSH_CUDA_RUNTIME_H
#define OSH_CUDA_RUNTIME_H
#include "gpu/gpu.h"
extern "C" {
#include "tensor/scalar.h"
}
#include <cuda_runtime.h>

/* Checks a CUDA call. The function around it must have a variable `rc` and a label `done`. On
 * failure the error message contains the source text of `call`. */
#define OSH_CUDA(cx, call) OSH_TRY(osh_cuda_check((cx), (call), #call))
osh_status osh_cuda_check(osh_ctx *cx, cudaError_t e, const char *what);

/* Makes the GPU current in the calling thread and returns the compute stream, on which all kernels
 * run. put_ahead and the lanes (tensor/device.h) use other streams. */
cudaStream_t osh_cuda_stream(const osh_device *d);
int osh_cuda_multiprocessors(const osh_device *d);
/* Returns a view of OSH_GPU_WORKSPACE bytes of GPU scratch memory. The next matrix product
 * overwrites them. */
void *osh_cuda_scratch(const osh_device *d);
int osh_cuda_shared_bytes(const osh_device *d); // bytes of shared memory per multiprocessor

/* osh_cuda_gemm multiplies row-major matrices with cuBLASLt: C [m, n] = alpha op(A) op(B) + beta C,
 * for n_batch products. Sums are f32.
 *
 * Algorithm: cuBLASLt lists the algorithms for the shape that do not split sums and that need at
 * most OSH_GPU_WORKSPACE bytes of workspace. The first of this list is used. So equal shapes give
 * equal bytes on one GPU. The algorithm is chosen for a batch of n_like products; 0 means n_batch.
 * If that algorithm does not support a batch of 1, the algorithm for a batch of 1 is used. If the
 * batch size varies, the caller passes 1 or the usual size as n_like.
 *
 * tf32: if true, tensor cores multiply F32 values as TF32, which has 10 fraction bits. The tensor
 * cores may truncate the other bits. */
typedef struct osh_cuda_mat {
    void *data;
    int64_t ld;       // number of elements from one row to the next
    int64_t stride;   // number of elements from one matrix of a batch to the next
    osh_dtype dtype;  // F32, BF16, F16
    bool transposed;  // true: op(X) is X^T; false: op(X) is X
} osh_cuda_mat;
typedef struct osh_cuda_product {
    const osh_cuda_mat *c, *a, *b;
    int64_t m, n, k, n_batch;
    float alpha, beta;
    int64_t n_like;
    bool tf32;
} osh_cuda_product;
osh_status osh_cuda_gemm(osh_ctx *cx, osh_device *d, const osh_cuda_product &x);
/* The algorithm of the last matrix product, as cuBLASLt numbers it; -1: unknown. */
typedef struct osh_cuda_algo {
    int32_t id, tile, stages, split_k;
    size_t workspace;
    /* one_by_one: true if the product was counted as OSH_DETOUR_BATCH.
     * lenient: true if the product was counted as OSH_DETOUR_F32. */
    bool one_by_one, lenient;
} osh_cuda_algo;
void osh_cuda_gemm_algo(osh_device *d, osh_cuda_algo *out);
/* True if three matrix products of TF32 take less time than one of F32 on this GPU. */
bool osh_cuda_tf32_pays(const osh_device *d);

/* Arguments of osh_cuda_potrf, which calls cuSOLVER and waits for the GPU. osh_cuda_potrf replaces
 * `a` by its Cholesky factor. *ok becomes false if `a` is not positive definite. `a` is
 * column-major; `upper` selects the upper triangle. */
typedef struct osh_cuda_triangle {
    float *a;
    int64_t n, ld;
    bool upper;
    void *room; // scratch in GPU memory, at least as large as osh_cuda_potrf_bytes returns
    size_t room_bytes;
    int *verdict; // result code of cuSOLVER, in GPU memory
} osh_cuda_triangle;
osh_status osh_cuda_potrf_bytes(osh_ctx *cx, osh_device *d, size_t *out,
                                const osh_cuda_triangle *t);
osh_status osh_cuda_potrf(osh_ctx *cx, osh_device *d, const osh_cuda_triangle *t, bool *ok);

/* Replaces the lower triangle of `a` [n, n] (row-major) by the inverse of the Cholesky factor of
 * `a`. Does not read or write elements above the diagonal. Allocates osh_cuda_triangle_bytes(n) of
 * the arena, even if cuSOLVER needs less (triangle.cu). *ok becomes false if `a` is not positive
 * definite; in this case the contents of the lower triangle are lost. Waits for the GPU. */
osh_status osh_cuda_factor_inverse(osh_ctx *cx, osh_device *d, float *a, int64_t n, bool *ok);
/* Fails with OSH_E_UNSUPPORTED if osh_cuda_factor_inverse cannot work on this GPU: cuSOLVER needs
 * more scratch for the smallest blocks than osh_cuda_factor_inverse allocates. */
osh_status osh_cuda_factor_probe(osh_ctx *cx, osh_device *d);
#endif
