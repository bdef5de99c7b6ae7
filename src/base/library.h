/* library.h - a shared library that is opened when it is first needed, and its functions. */
#ifndef OSH_LIBRARY_H
#define OSH_LIBRARY_H
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct osh_symbol {
    const char *name;
    size_t at; // of the pointer in the table of functions
} osh_symbol;

typedef struct osh_library {
    const char *sonames[2];    // the second where the first is not there; may be NULL
    const char *use, *package; // who wants it, and what to install where it is missing
    const osh_symbol *symbols;
    size_t n;
} osh_library;

typedef struct osh_once_state {
    pthread_mutex_t lock;
    atomic_bool done;
} osh_once_state;
#define OSH_ONCE {PTHREAD_MUTEX_INITIALIZER, false}
/* fn until it succeeds once in this process, from any thread. */
osh_status osh_once(osh_ctx *cx, osh_once_state *o, osh_status (*fn)(osh_ctx *cx));

/* Fills the pointers of a table from the library, which stays open. OSH_E_UNSUPPORTED naming the library, the function
 * or the package. */
osh_status osh_library_open(osh_ctx *cx, void **handle, void *table, const osh_library *library);
#endif
