/* runtime.h - gives CUDA files the GPU of an osh_device: its stream, products and triangles. */
#ifndef OSH_CUDA_RUNTIME_H
#define OSH_CUDA_RUNTIME_H
#include "gpu/gpu.h"
extern "C" {
#include "tensor/scalar.h"
}
#include <cuda_runtime.h>

/* Checks a CUDA call in a function that has `rc` and `done`. A failure is recorded with the text of
 * the call. */
#define OSH_CUDA(cx, call) OSH_TRY(osh_cuda_check((cx), (call), #call))
osh_status osh_cuda_check(osh_ctx *cx, cudaError_t e, const char *what);

/* Makes the GPU current in this thread and returns the stream of all work. put_ahead and the lanes
 * use other streams. */
cudaStream_t osh_cuda_stream(const osh_device *d);
int osh_cuda_multiprocessors(const osh_device *d);
/* Returns OSH_CUDA_WORKSPACE bytes of GPU memory, which each product overwrites: scratch for work
 * that is queued before the next product. View. */
void *osh_cuda_scratch(const osh_device *d);
int osh_cuda_shared_bytes(const osh_device *d); // bytes of shared memory per multiprocessor

/* Multiplies row-major matrices with cuBLASLt: C [m, n] = alpha op(A) op(B) + beta C, batched with
 * strides. Sums are f32. The algorithm is the first of cuBLASLt's list for the shape, without split
 * sums and with a workspace of fixed size, so equal shapes give equal bytes on one GPU. n_like is
 * the batch size for which the algorithm is chosen; 0 means n_batch. If that algorithm does not
 * support a batch of 1, the one for a batch of 1 is used. A caller whose batch size varies passes
 * 1, or the usual size. tf32: tensor cores multiply F32 as TF32, with 10 bits after the point; they
 * may cut off the other bits. */
typedef struct osh_cuda_mat {
    void *data;
    int64_t ld;       // elements from row to row
    int64_t stride;   // elements from one matrix of a batch to the next
    osh_dtype dtype;  // F32, BF16, F16
    bool transposed;  // op is the transpose
} osh_cuda_mat;
typedef struct osh_cuda_product {
    const osh_cuda_mat *c, *a, *b;
    int64_t m, n, k, n_batch;
    float alpha, beta;
    int64_t n_like;
    bool tf32;
} osh_cuda_product;
osh_status osh_cuda_gemm(osh_ctx *cx, osh_device *d, const osh_cuda_product &x);
/* The algorithm of the last product, in cuBLASLt's numbers; -1: unknown. */
typedef struct osh_cuda_algo {
    int32_t id, tile, stages, split_k;
    size_t workspace;
    bool one_by_one, lenient; // the product is a case of OSH_DETOUR_BATCH, of OSH_DETOUR_F32
} osh_cuda_algo;
void osh_cuda_gemm_algo(osh_device *d, osh_cuda_algo *out);
/* True if three products of TF32 take less time than one of F32. */
bool osh_cuda_tf32_pays(const osh_device *d);

/* Compute a Cholesky factor (potrf) or the inverse of a triangle (trtri) with cuSOLVER, in place.
 * *ok is false if the matrix is not positive definite, or singular. The matrix is column-major,
 * also for `upper`. Both functions wait for the GPU. */
typedef struct osh_cuda_triangle {
    float *a;
    int64_t n, ld;
    bool upper;
    void *room; // GPU memory; osh_cuda_solver_wish returns its least size
    size_t room_bytes;
    int *verdict; // GPU memory for the result code of cuSOLVER
} osh_cuda_triangle;
typedef struct osh_cuda_wish { size_t potrf, trtri, trtri_host; } osh_cuda_wish; // bytes
osh_status osh_cuda_solver_wish(osh_ctx *cx, osh_device *d, osh_cuda_wish *out,
                                const osh_cuda_triangle *t);
osh_status osh_cuda_potrf(osh_ctx *cx, osh_device *d, const osh_cuda_triangle *t, bool *ok);
osh_status osh_cuda_trtri(osh_ctx *cx, osh_device *d, const osh_cuda_triangle *t, bool *ok);

/* Replaces the lower triangle of a [n, n] (row-major) by the inverse of its Cholesky factor.
 * Elements above the diagonal are neither read nor written. Allocates osh_cuda_triangle_bytes(n) of
 * the arena, independent of cuSOLVER's needs (triangle.cu). *ok is false if the matrix is not
 * positive definite; its lower triangle is then destroyed. Waits for the GPU. */
osh_status osh_cuda_factor_inverse(osh_ctx *cx, osh_device *d, float *a, int64_t n, bool *ok);
/* Fails with OSH_E_UNSUPPORTED if cuSOLVER needs too much memory even for the smallest blocks. */
osh_status osh_cuda_factor_probe(osh_ctx *cx, osh_device *d);
#endif
