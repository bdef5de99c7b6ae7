/* blas.c - see blas.h. */
#include "ops/cpu/blas.h"
#include "ops/cpu/library.h"
#include "ops/isa.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define SYMBOL(prefix, name) {prefix #name, offsetof(osh_blas_table, name)}
static const osh_symbol symbols[] = {
    SYMBOL("cblas_", sgemm), SYMBOL("cblas_", ssyrk), SYMBOL("cblas_", strsm), SYMBOL("cblas_", strmm),
    {"spotrf_", offsetof(osh_blas_table, spotrf)}, {"strtri_", offsetof(osh_blas_table, strtri)},
    SYMBOL("openblas_", get_config), SYMBOL("openblas_", get_corename), SYMBOL("openblas_", set_num_threads),
};

static osh_blas_table used; // of the process, as the library's own state is
static atomic_bool opened;

const osh_blas_table *osh_blas(void) { return &used; }

osh_status osh_blas_open(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    void *handle;
    if (atomic_load_explicit(&opened, memory_order_acquire)) return osh_isa_check_core(cx, used.get_corename());
    pthread_mutex_lock(&lock);
    if (opened) goto done;
    OSH_TRY(osh_library_open(cx, &handle, &used, "libopenblas.so.0", "libopenblas0", symbols,
                             sizeof symbols / sizeof *symbols));
    OSH_TRY(osh_isa_check_core(cx, used.get_corename()));
    used.set_num_threads(1);
    atomic_store_explicit(&opened, true, memory_order_release);
done:
    pthread_mutex_unlock(&lock);
    return rc;
}
