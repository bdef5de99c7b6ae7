/* fuzz.h - what the fuzz targets share: the entry point, and a check that aborts where a fuzzer sees it. */
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

/* A silent context: a warning for each input would be most of the work. */
static inline osh_ctx *fuzz_ctx(void)
{
    osh_ctx *cx = NULL;
    CHECK(osh_ctx_new(&cx, 1) == OSH_OK);
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    return cx;
}

/* Nothing may be left of an input. */
static inline void fuzz_ctx_free(osh_ctx *cx)
{
    CHECK(osh_mem_live(cx) == 0);
    osh_ctx_free(cx);
}
#endif
