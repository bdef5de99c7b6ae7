/* cusolverDn.h - declares the part of cuSOLVER that src/gpu/blas.cu uses. Constants have the values
 * of the real library. cusolver.cc has the functions. */
#ifndef OSH_PLAY_CUSOLVERDN_H
#define OSH_PLAY_CUSOLVERDN_H
#include <cublasLt.h>

typedef enum {
    CUSOLVER_STATUS_SUCCESS = 0, CUSOLVER_STATUS_NOT_INITIALIZED = 1,
    CUSOLVER_STATUS_INVALID_VALUE = 3,
    CUSOLVER_STATUS_INTERNAL_ERROR = 7
} cusolverStatus_t;
typedef struct cusolverDnContext *cusolverDnHandle_t;

extern "C" {
cusolverStatus_t cusolverGetVersion(int *version);
cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *out);
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t h);
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t h, cudaStream_t stream);
cusolverStatus_t cusolverDnSpotrf_bufferSize(cusolverDnHandle_t h, cublasFillMode_t part, int n,
                                             float *a, int ld, int *n_work);
cusolverStatus_t cusolverDnSpotrf(cusolverDnHandle_t h, cublasFillMode_t part, int n, float *a,
                                  int ld, float *work, int n_work, int *info);
}
#endif
