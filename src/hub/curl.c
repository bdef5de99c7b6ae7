/* curl.c - libcurl, opened when something is asked of a network: a run from a directory neither wants nor loads it. */
#include "hub/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    bool open;
    osh_curl table;
} curl = {.lock = PTHREAD_MUTEX_INITIALIZER};

static osh_status load(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    static const char *const sonames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
#define SYMBOL(name) {#name, offsetof(osh_curl, name)},
    static const struct { const char *name; size_t at; } symbols[] = {OSH_CURL_FUNCTIONS(SYMBOL)};
#undef SYMBOL
    void *lib = NULL; // never closed: its threads and their data live on
    for (size_t i = 0; !lib && i < sizeof sonames / sizeof *sonames; i++)
        lib = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
    const char *why = lib ? NULL : dlerror();
    if (!lib)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: what asks a network wants libcurl: install the package libcurl4",
                 why ? why : sonames[1]);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *p = dlsym(lib, symbols[i].name);
        if (!p) OSH_FAIL(cx, OSH_E_UNSUPPORTED, "libcurl has no %s: want version 7.66 or later", symbols[i].name);
        memcpy((char *)&curl.table + symbols[i].at, &p, sizeof p); // ISO C has no cast to a function pointer
    }
    if (curl.table.curl_global_init(CURL_GLOBAL_DEFAULT)) OSH_FAIL(cx, OSH_E_NOMEM, "libcurl does not start");
    const char *version = curl.table.curl_version(); // "libcurl/7.88.1 OpenSSL/..."
    snprintf(curl.table.version, sizeof curl.table.version, "%.*s", (int)strcspn(version, " "), version);
    curl.open = true;
done:
    return rc;
}

osh_status osh_curl_open(osh_ctx *cx, const osh_curl **out)
{
    pthread_mutex_lock(&curl.lock);
    osh_status rc = curl.open ? OSH_OK : load(cx);
    pthread_mutex_unlock(&curl.lock);
    *out = &curl.table;
    return rc;
}
