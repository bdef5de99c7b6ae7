/* library.c - see library.h. */
#include "ops/cpu/library.h"

#include <dlfcn.h>
#include <string.h>

osh_status osh_library_open(osh_ctx *cx, void **handle, void *table, const char *soname, const char *package,
                            const osh_symbol *symbols, size_t n)
{
    osh_status rc = OSH_OK;
    void *lib = dlopen(soname, RTLD_NOW | RTLD_LOCAL); // never closed: its threads and their data live on
    if (!lib) {
        const char *why = dlerror();
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: matrix products want it: install the package %s", why ? why : soname,
                 package);
    }
    for (size_t i = 0; i < n; i++) {
        void *p = dlsym(lib, symbols[i].name);
        if (!p) OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s has no %s: want that of the package %s", soname, symbols[i].name,
                     package);
        memcpy((char *)table + symbols[i].at, &p, sizeof p); // ISO C has no cast to a function pointer
    }
    *handle = lib;
done:
    return rc;
}

osh_status osh_once(osh_ctx *cx, osh_once_state *o, osh_status (*fn)(osh_ctx *cx))
{
    osh_status rc = OSH_OK;
    if (atomic_load_explicit(&o->done, memory_order_acquire)) return OSH_OK;
    pthread_mutex_lock(&o->lock);
    if (!o->done && !(rc = fn(cx))) atomic_store_explicit(&o->done, true, memory_order_release);
    pthread_mutex_unlock(&o->lock);
    return rc;
}
