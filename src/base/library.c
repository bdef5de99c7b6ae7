/* library.c - opens shared libraries with dlopen(3). */
#include "base/library.h"

#include <dlfcn.h>
#include <string.h>

osh_status osh_library_open(osh_ctx *cx, void **handle, void *table, const osh_library *l)
{
    osh_status rc = OSH_OK;
    void *lib = NULL; // the library is never closed, because its threads and data remain
    for (size_t i = 0; !lib && i < 2 && l->sonames[i]; i++)
        lib = dlopen(l->sonames[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror();
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %s need it: install the package %s",
                 why ? why : l->sonames[0], l->use, l->package);
    }
    for (size_t i = 0; i < l->n; i++) {
        void *p = dlsym(lib, l->symbols[i].name);
        if (!p)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s has no %s: want the version of the package %s, or a later one",
                     l->sonames[0], l->symbols[i].name, l->package);
        /* memcpy is used, because ISO C has no cast from void * to a function pointer. */
        memcpy((char *)table + l->symbols[i].at, &p, sizeof p);
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
