/* runtime.h - the GPU of an osh_device for CUDA files: its stream, products and triangles. */
#ifndef OSH_CUDA_RUNTIME_H
#define OSH_CUDA_RUNTIME_H
#include "gpu/gpu.h"
extern "C" {
#include "tensor/scalar.h"
}
#include <cuda_runtime.h>

/* Checks a CUDA call in a function with rc and done. A failure is recorded with the text of the
 * call. */
#define OSH_CUDA(cx, call) OSH_TRY(osh_cuda_check((cx), (call), #call))
osh_status osh_cuda_check(osh_ctx *cx, cudaError_t e, const char *what);

/* Makes the GPU current in this thread and returns the stream of all work; put_ahead and the lanes
 * have others. */
cudaStream_t osh_cuda_stream(const osh_device *d);
int osh_cuda_multiprocessors(const osh_device *d);
int osh_cuda_shared_bytes(const osh_device *d); // bytes of shared memory per multiprocessor

/* Products by cuBLASLt of row-major matrices: C [m, n] = alpha op(A) op(B) + beta C, batched with
 * strides. Sums are f32. The algorithm is the first of cuBLASLt's list for the shape, without split
 * sums and with a workspace of fixed size, so equal shapes give equal bytes on one GPU. n_like:
 * batch size for which the algorithm is chosen; 0: n_batch. If that algorithm does not take single
 * products, the one for a batch of 1 is used. A caller whose batch size varies passes 1, or the
 * usual size. tf32: tensor cores multiply F32 as TF32, with 10 bits after the point; they may cut
 * off the others. */
typedef struct osh_cuda_mat {
    void *data;
    int64_t ld;       // elements from row to row
    int64_t stride;   // elements from matrix to matrix of a batch
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
/* The algorithm of the latest product, in cuBLASLt's numbers; -1: unknown. */
typedef struct osh_cuda_algo {
    int32_t id, tile, stages, split_k;
    size_t workspace;
    bool one_by_one, lenient; // OSH_DETOUR_BATCH, OSH_DETOUR_F32
} osh_cuda_algo;
void osh_cuda_gemm_algo(osh_device *d, osh_cuda_algo *out);
/* True if three products of TF32 are faster than one of F32. */
bool osh_cuda_tf32_pays(const osh_device *d);

/* Cholesky factor (potrf) and inverse of a triangle (trtri) by cuSOLVER, in place. *ok false: not
 * positive definite, or singular. The matrix is column-major: `upper` means the upper triangle of
 * the column-major matrix. Both wait. */
typedef struct osh_cuda_triangle {
    float *a;
    int64_t n, ld;
    bool upper;
    void *room; // GPU memory; osh_cuda_solver_wish gives its least size
    size_t room_bytes;
    int *verdict; // in GPU memory
} osh_cuda_triangle;
typedef struct osh_cuda_wish { size_t potrf, trtri, trtri_host; } osh_cuda_wish; // bytes
osh_status osh_cuda_solver_wish(osh_ctx *cx, osh_device *d, osh_cuda_wish *out,
                                const osh_cuda_triangle *t);
osh_status osh_cuda_potrf(osh_ctx *cx, osh_device *d, const osh_cuda_triangle *t, bool *ok);
osh_status osh_cuda_trtri(osh_ctx *cx, osh_device *d, const osh_cuda_triangle *t, bool *ok);

/* Replaces the lower triangle of a [n, n] (row-major) by the inverse of its Cholesky factor.
 * Elements above the diagonal are neither read nor written. Takes osh_cuda_triangle_bytes(n) of the
 * arena, whatever cuSOLVER wants (triangle.cu). *ok false: not positive definite; the lower
 * triangle is lost. Waits. */
osh_status osh_cuda_factor_inverse(osh_ctx *cx, osh_device *d, float *a, int64_t n, bool *ok);
/* Fails with OSH_E_UNSUPPORTED if cuSOLVER wants too much room even for the smallest blocks. */
osh_status osh_cuda_factor_probe(osh_ctx *cx, osh_device *d);
#endif
