/* cusolver.cc - emulates libcusolver.so with LAPACK. */
#include <cusolverDn.h>

#include <lapacke.h>

#include "play.h"

struct cusolverDnContext { cudaStream_t stream; };

cusolverStatus_t cusolverGetVersion(int *version)
{
    return *version = 12000, CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t h)
{
    return delete h, CUSOLVER_STATUS_SUCCESS;
}

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

static size_t wish(int64_t n) // returns the number of bytes of GPU memory for a call; it is a
                              // multiple of the size of a float
{
    return (osh_play_solver_bytes + osh_play_solver_each * (size_t)(n * n) + 3) / 4 * 4;
}

struct triangle {
    char part;
    int n, ld;
    float *a;
    int *info;
};

static void solve(void *user)
{
    triangle *t = (triangle *)user;
    *t->info = LAPACKE_spotrf_work(LAPACK_COL_MAJOR, t->part, t->n, t->a, t->ld);
    delete t;
}

static char letter(cublasFillMode_t part) { return part == CUBLAS_FILL_MODE_UPPER ? 'U' : 'L'; }

cusolverStatus_t cusolverDnSpotrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int n, float *,
                                             int ld, int *n_work)
{
    if (n < 1 || ld < n) return CUSOLVER_STATUS_INVALID_VALUE;
    *n_work = (int)(wish(n) / sizeof(float));
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSpotrf(cusolverDnHandle_t h, cublasFillMode_t part, int n, float *a,
                                  int ld, float *work, int n_work, int *info)
{
    if (n < 1 || ld < n || !a || !work || (size_t)n_work * sizeof(float) < wish(n) || !info)
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (osh_play_fault("cusolverDnSpotrf")) return CUSOLVER_STATUS_INTERNAL_ERROR;
    osh_play_submit(h->stream, solve, new triangle{letter(part), n, ld, a, info});
    return CUSOLVER_STATUS_SUCCESS;
}
