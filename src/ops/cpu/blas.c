/* blas.c - see blas.h. */
#include "ops/cpu/blas.h"
#include "ops/cpu/library.h"
#include "ops/isa.h"

#include <stddef.h>

#define SYMBOL(prefix, name) {prefix #name, offsetof(osh_blas_table, name)}
static const osh_symbol symbols[] = {
    SYMBOL("cblas_", sgemm), SYMBOL("cblas_", ssyrk), SYMBOL("cblas_", strsm), SYMBOL("cblas_", strmm),
    {"spotrf_", offsetof(osh_blas_table, spotrf)}, {"strtri_", offsetof(osh_blas_table, strtri)},
    SYMBOL("openblas_", get_config), SYMBOL("openblas_", get_corename), SYMBOL("openblas_", set_num_threads),
};

static osh_blas_table used; // of the process, as the library's own state is
static osh_once_state once = OSH_ONCE;

const osh_blas_table *osh_blas(void) { return &used; }

static osh_status open_blas(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    void *handle;
    OSH_TRY(osh_library_open(cx, &handle, &used, "libopenblas.so.0", "libopenblas0", symbols,
                             sizeof symbols / sizeof *symbols));
    used.set_num_threads(1);
done:
    return rc;
}

osh_status osh_blas_open(osh_ctx *cx)
{
    osh_status rc = osh_once(cx, &once, open_blas);
    return rc ? rc : osh_isa_check_core(cx, used.get_corename()); // a set may be named later
}
