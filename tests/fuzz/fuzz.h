/* fuzz.h - declares the entry point of the fuzz targets, and a check that aborts the process. A
 * fuzzer reports the abort. */
#ifndef OSH_FUZZ_H
#define OSH_FUZZ_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Returns a context that prints no warnings, because printing would take most of the time. */
static inline osh_ctx *fuzz_ctx(void)
{
    osh_ctx *cx = NULL;
    CHECK(osh_ctx_new(&cx, 1) == OSH_OK);
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    return cx;
}

/* Frees the context. Fails if memory is still allocated. */
static inline void fuzz_ctx_free(osh_ctx *cx)
{
    CHECK(osh_mem_live(cx) == 0);
    osh_ctx_free(cx);
}
#endif
