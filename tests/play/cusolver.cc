/* cusolver.cc - emulated libcusolver.so, which calls LAPACK. */
#include <cusolverDn.h>

#include <lapacke.h>

#include "play.h"

enum { HOST_WORK = 256 }; // number of bytes of host memory that trtri needs

struct cusolverDnContext { cudaStream_t stream; };

cusolverStatus_t cusolverGetVersion(int *version) { return *version = 12000, CUSOLVER_STATUS_SUCCESS; }
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t h) { return delete h, CUSOLVER_STATUS_SUCCESS; }

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *out)
{
    *out = new cusolverDnContext();
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t h, cudaStream_t stream)
{
    h->stream = stream;
    return CUSOLVER_STATUS_SUCCESS;
}

static size_t wish(bool inverse, int64_t n) // returns the number of bytes of GPU memory for a call,
                                            // a whole number of floats
{
    return (osh_play_solver_bytes + osh_play_solver_each[inverse] * (size_t)(n * n) + 3) / 4 * 4;
}

struct triangle {
    bool inverse;
    char part;
    int n, ld;
    float *a;
    int *info;
};

static void solve(void *user)
{
    triangle *t = (triangle *)user;
    *t->info = t->inverse ? LAPACKE_strtri_work(LAPACK_COL_MAJOR, t->part, 'N', t->n, t->a, t->ld)
                          : LAPACKE_spotrf_work(LAPACK_COL_MAJOR, t->part, t->n, t->a, t->ld);
    delete t;
}

static char letter(cublasFillMode_t part) { return part == CUBLAS_FILL_MODE_UPPER ? 'U' : 'L'; }

cusolverStatus_t cusolverDnSpotrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int n, float *, int ld, int *n_work)
{
    if (n < 1 || ld < n) return CUSOLVER_STATUS_INVALID_VALUE;
    *n_work = (int)(wish(false, n) / sizeof(float));
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSpotrf(cusolverDnHandle_t h, cublasFillMode_t part, int n, float *a, int ld, float *work,
                                  int n_work, int *info)
{
    if (n < 1 || ld < n || !a || !work || (size_t)n_work * sizeof(float) < wish(false, n) || !info)
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (osh_play_fault("cusolverDnSpotrf")) return CUSOLVER_STATUS_INTERNAL_ERROR;
    osh_play_submit(h->stream, solve, new triangle{false, letter(part), n, ld, a, info});
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnXtrtri_bufferSize(cusolverDnHandle_t, cublasFillMode_t, cublasDiagType_t diag, int64_t n,
                                             cudaDataType type, void *, int64_t ld, size_t *gpu_bytes,
                                             size_t *host_bytes)
{
    if (n < 1 || ld < n || type != CUDA_R_32F || diag != CUBLAS_DIAG_NON_UNIT) return CUSOLVER_STATUS_INVALID_VALUE;
    *gpu_bytes = wish(true, n), *host_bytes = HOST_WORK;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnXtrtri(cusolverDnHandle_t h, cublasFillMode_t part, cublasDiagType_t diag, int64_t n,
                                  cudaDataType type, void *a, int64_t ld, void *gpu_work, size_t gpu_bytes,
                                  void *host_work, size_t host_bytes, int *info)
{
    if (n < 1 || ld < n || type != CUDA_R_32F || diag != CUBLAS_DIAG_NON_UNIT) return CUSOLVER_STATUS_INVALID_VALUE;
    if (!a || !gpu_work || gpu_bytes < wish(true, n) || !host_work || host_bytes < HOST_WORK || !info)
        return CUSOLVER_STATUS_INVALID_VALUE;
    osh_play_submit(h->stream, solve, new triangle{true, letter(part), (int)n, (int)ld, (float *)a, info});
    return CUSOLVER_STATUS_SUCCESS;
}
