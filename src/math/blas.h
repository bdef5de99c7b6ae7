/* blas.h - OpenBLAS and its LAPACK, opened when the first product wants them: a job that multiplies nothing does not
 * wait for 35 MB of code, and OPENBLAS_CORETYPE is read no sooner. */
#ifndef OSH_BLAS_H
#define OSH_BLAS_H
#include "base/base.h"

#include <cblas.h>
#undef I // complex.h, which cblas.h drags in; here I is in_features

typedef struct osh_blas_table {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(cblas_ssyrk) *ssyrk;
    __typeof__(cblas_strsm) *strsm;
    __typeof__(cblas_strmm) *strmm;
    /* LAPACK's own, column-major; the last argument of each is the number of characters of the ones before it. */
    void (*spotrf)(const char *uplo, const blasint *n, float *a, const blasint *lda, blasint *info, size_t);
    void (*strtri)(const char *uplo, const char *diag, const blasint *n, float *a, const blasint *lda, blasint *info,
                   size_t, size_t);
    __typeof__(openblas_get_config) *get_config;
    __typeof__(openblas_get_corename) *get_corename;
    __typeof__(openblas_set_num_threads) *set_num_threads;
} osh_blas_table;

/* Once, before the first call of osh_blas: each call of OpenBLAS stays on its own thread. OSH_E_UNSUPPORTED: it is not
 * there, lacks a function, or runs another core than a set that was pinned by name wants. */
osh_status osh_blas_open(osh_ctx *cx);
const osh_blas_table *osh_blas(void); // after osh_blas_open
#endif
