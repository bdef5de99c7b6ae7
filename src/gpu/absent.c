/* absent.c - defines the functions of gpu.h in a binary without CUDA. Functions that can fail
 * return OSH_E_UNSUPPORTED. */
#include "gpu/gpu.h"
#ifndef OSH_CUDA_BUILT

#include <string.h>

osh_status osh_cuda_absent(osh_ctx *cx)
{
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "this program was built without CUDA: there is no device 'cuda'");
}

bool osh_cuda_built(void) { return false; }

bool osh_cuda_present(void) { return false; }

osh_status osh_cuda_open(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes)
{
    (void)out, (void)ordinal, (void)n_bytes;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_follow(osh_ctx *cx, osh_device *d)
{
    (void)d;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_free_bytes(osh_ctx *cx, size_t *n_bytes, int ordinal)
{
    (void)n_bytes, (void)ordinal;
    return osh_cuda_absent(cx);
}

int64_t osh_cuda_driver_bytes(const osh_device *d)
{
    (void)d;
    return -1;
}

osh_status osh_cuda_count(osh_ctx *cx, osh_device *d, osh_cuda_counters *out)
{
    (void)cx, (void)d;
    memset(out, 0, sizeof *out);
    return OSH_OK;
}

bool osh_cuda_detour_add(osh_device *d, osh_cuda_detour which, int64_t n)
{
    (void)d, (void)which, (void)n;
    return false;
}

void osh_cuda_values_add(osh_device *d, size_t in_bytes, size_t out_bytes)
{
    (void)d, (void)in_bytes, (void)out_bytes;
}

bool osh_cuda_direct(osh_ctx *cx, int ordinal, const char *wish, bool room)
{
    (void)cx, (void)ordinal, (void)wish, (void)room;
    return false;
}

osh_status osh_cuda_stage_open(osh_ctx *cx, osh_device *d, const char *wish)
{
    (void)d, (void)wish;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_file_open(osh_ctx *cx, osh_cuda_file **out, osh_device *d, osh_file *f)
{
    (void)out, (void)d, (void)f;
    return osh_cuda_absent(cx);
}

void osh_cuda_file_close(osh_ctx *cx, osh_cuda_file *f) { (void)cx, (void)f; }

osh_status osh_cuda_file_read(osh_ctx *cx, osh_cuda_file *f, void *to, size_t n_bytes, int64_t at,
                              bool ahead)
{
    (void)f, (void)to, (void)n_bytes, (void)at, (void)ahead;
    return osh_cuda_absent(cx);
}

void osh_cuda_file_distrust(osh_ctx *cx, osh_cuda_file *f, const char *why)
{
    (void)cx, (void)f, (void)why;
}

uint64_t *osh_cuda_sums(const osh_device *d)
{
    (void)d;
    return NULL;
}

osh_status osh_cuda_mark_new(osh_ctx *cx, osh_device *d, osh_cuda_mark **out)
{
    (void)d, (void)out;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_mark_between(osh_ctx *cx, double *seconds, osh_cuda_mark *from,
                                 osh_cuda_mark *to)
{
    (void)seconds, (void)from, (void)to;
    return osh_cuda_absent(cx);
}

void osh_cuda_mark_free(osh_ctx *cx, osh_cuda_mark *m) { (void)cx, (void)m; }

osh_status osh_cuda_host_alloc(osh_ctx *cx, osh_device *d, void **out, size_t n_bytes)
{
    (void)d, (void)out, (void)n_bytes;
    return osh_cuda_absent(cx);
}

void osh_cuda_host_free(osh_ctx *cx, osh_device *d, void *p) { (void)cx, (void)d, (void)p; }

osh_status osh_cuda_host_lock(osh_ctx *cx, osh_device *d, const char **why, void *p, size_t n_bytes)
{
    (void)d, (void)why, (void)p, (void)n_bytes;
    return osh_cuda_absent(cx);
}

void osh_cuda_host_unlock(osh_ctx *cx, osh_device *d, void *p) { (void)cx, (void)d, (void)p; }
#endif
