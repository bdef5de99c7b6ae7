/* library.h - opens a shared library when it is first needed, and finds its functions. */
#ifndef OSH_LIBRARY_H
#define OSH_LIBRARY_H
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct osh_symbol {
    const char *name;
    size_t at; // offset of the function pointer in the caller's table
} osh_symbol;

typedef struct osh_library {
    const char *sonames[2];    // file names, tried in order; the second may be NULL
    /* Texts for messages. use: what needs the library, such as "matrix products". package: the
     * package that contains the library. */
    const char *use, *package;
    const osh_symbol *symbols;
    size_t n;
} osh_library;

typedef struct osh_once_state {
    pthread_mutex_t lock;
    atomic_bool done;
} osh_once_state;
#define OSH_ONCE {PTHREAD_MUTEX_INITIALIZER, false}
/* Calls fn, unless an earlier call with `o` has succeeded. Any thread may call this function. */
osh_status osh_once(osh_ctx *cx, osh_once_state *o, osh_status (*fn)(osh_ctx *cx));

/* Opens the library and fills the pointers of `table`. The library stays open. On failure returns
 * OSH_E_UNSUPPORTED with a message that names the library, the function or the package. */
osh_status osh_library_open(osh_ctx *cx, void **handle, void *table, const osh_library *library);
#endif
