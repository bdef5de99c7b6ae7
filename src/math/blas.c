/* blas.c - opens OpenBLAS, and makes a packing buffer for each thread in advance.
 *
 * Each call of OpenBLAS uses a packing buffer: 128 MiB of address space, most of which it never
 * writes. If no buffer is free, OpenBLAS maps a new one and keeps it for later calls. If the system
 * refuses the memory (ulimit -v), OpenBLAS retries forever. So make_buffers lets OpenBLAS make the
 * buffers of all threads in advance. Before each buffer is made, make_buffers maps and unmaps
 * BUFFER_BYTES bytes, to test that the system grants them. */
#include "math/blas.h"
#include "base/library.h"
#include "math/isa.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define SYMBOL(prefix, name) {prefix #name, offsetof(osh_blas_table, name)}
static const osh_symbol symbols[] = {
    SYMBOL("cblas_", sgemm), SYMBOL("cblas_", ssyrk),
    SYMBOL("cblas_", strsm), SYMBOL("cblas_", strmm),
    {"spotrf_", offsetof(osh_blas_table, spotrf)}, {"strtri_", offsetof(osh_blas_table, strtri)},
    SYMBOL("openblas_", get_config), SYMBOL("openblas_", get_corename),
    SYMBOL("openblas_", set_num_threads),
};

/* Pointers to the functions of OpenBLAS. They are global because the state of OpenBLAS is
 * global. */
static osh_blas_table used;
static osh_once_state once = OSH_ONCE;

const osh_blas_table *osh_blas(void) { return &used; }

/* Largest number of buffers that OpenBLAS can make. If OpenBLAS needs more, it ends the process. */
enum { MOST_BUFFERS = 128 };
#define BUFFER_BYTES ((size_t)(128 + 1) << 20)

/* Functions of OpenBLAS: buffer_new returns a free buffer, and buffer_free releases it. Both are
 * NULL if this OpenBLAS does not export them. */
static void *(*buffer_new)(int unused);
static void (*buffer_free)(void *);
static pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int n_buffers; // lower bound of the number of buffers that OpenBLAS has allocated

static bool room_for_buffer(void)
{
    void *p = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    munmap(p, BUFFER_BYTES);
    return true;
}

/* Makes sure that OpenBLAS has a buffer for each thread. Takes all buffers before it releases
 * the first of them. Otherwise OpenBLAS would return a released buffer again, and not make a new
 * one. */
static osh_status make_buffers(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    void *buffers[MOST_BUFFERS];
    int n = 0, want = osh_threads(cx) < MOST_BUFFERS ? osh_threads(cx) : MOST_BUFFERS;

    if (atomic_load_explicit(&n_buffers, memory_order_acquire) >= want) return OSH_OK;
    pthread_mutex_lock(&buffers_lock);
    for (; n < want && n_buffers < want; n++) {
        if (!room_for_buffer())
            OSH_FAIL(cx, OSH_E_NOMEM,
                     "OpenBLAS wants %zu MiB of address space for each of %d threads, and the "
                     "system gives it to only %d of them (ulimit -v)", BUFFER_BYTES >> 20, want, n);
        if (!buffer_new) break;
        buffers[n] = buffer_new(0);
    }
    atomic_store_explicit(&n_buffers, want, memory_order_release);
done:
    while (buffer_new && n-- > 0) buffer_free(buffers[n]);
    pthread_mutex_unlock(&buffers_lock);
    return rc;
}

static osh_status open_blas(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    void *handle;
    static const osh_library library = {.sonames = {"libopenblas.so.0"}, .use = "matrix products",
                                        .package = "libopenblas0", .symbols = symbols,
                                        .n = sizeof symbols / sizeof *symbols};
    OSH_TRY(osh_library_open(cx, &handle, &used, &library));
    used.set_num_threads(1);
    void *make = dlsym(handle, "blas_memory_alloc"), *release = dlsym(handle, "blas_memory_free");
    // memcpy is used because ISO C does not allow a cast from void * to a function pointer
    if (make && release) {
        memcpy(&buffer_new, &make, sizeof make);
        memcpy(&buffer_free, &release, sizeof release);
    }
done:
    return rc;
}

osh_status osh_blas_open(osh_ctx *cx)
{
    osh_status rc = osh_once(cx, &once, open_blas);
    if (!rc) rc = make_buffers(cx);
    /* this check is in every call, because the user may pin the instruction set after OpenBLAS was
     * opened */
    return rc ? rc : osh_isa_check_core(cx, used.get_corename());
}
