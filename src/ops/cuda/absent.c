/* absent.c - cuda.h in a binary that was built without CUDA: nothing is there, and says so. */
#include "ops/cuda/cuda.h"
#ifndef OSH_CUDA_BUILT

#include <string.h>

static osh_status absent(osh_ctx *cx)
{
    return osh_fail(cx, OSH_E_UNSUPPORTED, "this program was built without CUDA: there is no device 'cuda'");
}

bool osh_cuda_built(void) { return false; }
bool osh_cuda_present(void) { return false; }

osh_status osh_cuda_open(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes)
{
    (void)out, (void)ordinal, (void)n_bytes;
    return absent(cx);
}

osh_status osh_cuda_free_bytes(osh_ctx *cx, size_t *n_bytes, int ordinal)
{
    (void)n_bytes, (void)ordinal;
    return absent(cx);
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
    return absent(cx);
}

osh_status osh_cuda_file_open(osh_ctx *cx, osh_cuda_file **out, osh_device *d, osh_file *f)
{
    (void)out, (void)d, (void)f;
    return absent(cx);
}

void osh_cuda_file_close(osh_ctx *cx, osh_cuda_file *f) { (void)cx, (void)f; }

osh_status osh_cuda_file_read(osh_ctx *cx, osh_cuda_file *f, void *to, size_t n_bytes, int64_t at, bool ahead)
{
    (void)f, (void)to, (void)n_bytes, (void)at, (void)ahead;
    return absent(cx);
}

void osh_cuda_file_distrust(osh_ctx *cx, osh_cuda_file *f, const char *why) { (void)cx, (void)f, (void)why; }

osh_status osh_cuda_wordsum(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p, size_t n_bytes)
{
    (void)d, (void)sum, (void)p, (void)n_bytes;
    return absent(cx);
}

uint64_t *osh_cuda_sums(const osh_device *d)
{
    (void)d;
    return NULL;
}

osh_status osh_cuda_all_finite(osh_ctx *cx, int *first, osh_device *d, const osh_tensor *const *tensors, int n)
{
    (void)first, (void)d, (void)tensors, (void)n;
    return absent(cx);
}

osh_status osh_cuda_mark_new(osh_ctx *cx, osh_device *d, osh_cuda_mark **out)
{
    (void)d, (void)out;
    return absent(cx);
}

osh_status osh_cuda_mark_between(osh_ctx *cx, double *seconds, osh_cuda_mark *from, osh_cuda_mark *to)
{
    (void)seconds, (void)from, (void)to;
    return absent(cx);
}

void osh_cuda_mark_free(osh_ctx *cx, osh_cuda_mark *m) { (void)cx, (void)m; }

osh_status osh_cuda_peak_product(osh_ctx *cx, double *flops_per_s, osh_device *d, osh_dtype dtype, int64_t side,
                                 double seconds)
{
    (void)flops_per_s, (void)d, (void)dtype, (void)side, (void)seconds;
    return absent(cx);
}

osh_status osh_cuda_peak_attention(osh_ctx *cx, double *flops_per_s, osh_device *d, int64_t n_samples,
                                   int64_t n_tokens, double seconds)
{
    (void)flops_per_s, (void)d, (void)n_samples, (void)n_tokens, (void)seconds;
    return absent(cx);
}

size_t osh_cuda_peak_attention_bytes(int64_t n_samples, int64_t n_tokens)
{
    (void)n_samples, (void)n_tokens;
    return 0;
}

osh_status osh_cuda_peak_copies(osh_ctx *cx, double *inside_per_s, double *put_per_s, osh_device *d, int64_t n_bytes,
                                double seconds)
{
    (void)inside_per_s, (void)put_per_s, (void)d, (void)n_bytes, (void)seconds;
    return absent(cx);
}

osh_status osh_cuda_host_alloc(osh_ctx *cx, osh_device *d, void **out, size_t n_bytes)
{
    (void)d, (void)out, (void)n_bytes;
    return absent(cx);
}

void osh_cuda_host_free(osh_ctx *cx, osh_device *d, void *p) { (void)cx, (void)d, (void)p; }

osh_status osh_cuda_host_lock(osh_ctx *cx, osh_device *d, const char **why, void *p, size_t n_bytes)
{
    (void)d, (void)why, (void)p, (void)n_bytes;
    return absent(cx);
}

void osh_cuda_host_unlock(osh_ctx *cx, osh_device *d, void *p) { (void)cx, (void)d, (void)p; }

osh_status osh_cuda_finite(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base)
{
    (void)first, (void)x, (void)base;
    return absent(cx);
}

osh_status osh_cuda_routes(osh_ctx *cx, int32_t *n, int32_t *lists, const osh_tensor *route)
{
    (void)n, (void)lists, (void)route;
    return absent(cx);
}

osh_status osh_cuda_finite_rows(osh_ctx *cx, int64_t *first, const osh_tensor *x, const osh_op_rows *rows)
{
    (void)first, (void)x, (void)rows;
    return absent(cx);
}

osh_status osh_cuda_mixture_run(osh_ctx *cx, const osh_cuda_mixture *m)
{
    (void)m;
    return absent(cx);
}

osh_status osh_cuda_minmax(osh_ctx *cx, float *minmax, const osh_tensor *x, int64_t row, int64_t n)
{
    (void)minmax, (void)x, (void)row, (void)n;
    return absent(cx);
}

osh_status osh_gptq_solve_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n)
{
    (void)d, (void)jobs, (void)n;
    return absent(cx);
}

osh_status osh_gptq_scales_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a)
{
    (void)d, (void)a;
    return absent(cx);
}

osh_status osh_gptq_refine_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a)
{
    (void)d, (void)a;
    return absent(cx);
}

osh_status osh_gptq_factors_cuda(osh_ctx *cx, osh_device *d, int *failed, const osh_gptq_hessians *x)
{
    (void)d, (void)failed, (void)x;
    return absent(cx);
}

osh_status osh_gptq_diags_cuda(osh_ctx *cx, osh_device *d, float *diag, const osh_gptq_hessians *x)
{
    (void)d, (void)diag, (void)x;
    return absent(cx);
}

osh_status osh_gptq_permute_cuda(osh_ctx *cx, osh_tensor *h, const int32_t *perm)
{
    (void)h, (void)perm;
    return absent(cx);
}
osh_status osh_gptq_restore_cuda(osh_ctx *cx, osh_tensor *h, const float *diag)
{
    (void)h, (void)diag;
    return absent(cx);
}
osh_status osh_gptq_diag_cuda(osh_ctx *cx, float *diag, const osh_tensor *h)
{
    (void)diag, (void)h;
    return absent(cx);
}
osh_status osh_gptq_set_diag_cuda(osh_ctx *cx, osh_tensor *h, const float *diag)
{
    (void)h, (void)diag;
    return absent(cx);
}
#endif
