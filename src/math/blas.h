/* blas.h - declares the functions of OpenBLAS that the program calls: matrix products and LAPACK.
 * The first matrix product opens OpenBLAS, so a job without matrix products does not load the
 * library's 35 MB of code. OpenBLAS reads the environment variable OPENBLAS_CORETYPE when it is
 * opened. */
#ifndef OSH_BLAS_H
#define OSH_BLAS_H
#include "base/base.h"

#include <cblas.h>
#undef I // cblas.h includes complex.h, which defines I; here, I means in_features

typedef struct osh_blas_table {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(cblas_ssyrk) *ssyrk;
    __typeof__(cblas_strsm) *strsm;
    __typeof__(cblas_strmm) *strmm;
    /* LAPACK functions. Their matrices are column-major. The size_t arguments at the end are the
     * lengths of the strings `uplo` and `diag`. */
    void (*spotrf)(const char *uplo, const blasint *n, float *a, const blasint *lda, blasint *info,
                   size_t);
    void (*strtri)(const char *uplo, const char *diag, const blasint *n, float *a,
                   const blasint *lda, blasint *info, size_t, size_t);
    __typeof__(openblas_get_config) *get_config;
    __typeof__(openblas_get_corename) *get_corename;
    __typeof__(openblas_set_num_threads) *set_num_threads;
} osh_blas_table;

/* Opens OpenBLAS on the first call, and makes it compute only on the calling thread. Fails with
 * OSH_E_UNSUPPORTED if the library or one of its functions is missing. Also fails if
 * osh_isa_check_core fails. */
osh_status osh_blas_open(osh_ctx *cx);
/* Returns the functions of OpenBLAS; osh_blas_open must be called first. */
const osh_blas_table *osh_blas(void);
#endif
