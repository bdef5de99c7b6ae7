/* job.c - implements functions for the jobs of all solvers. They compute the error of a quantized
 * weight, and the sizes of results. */
#include "modifiers/job.h"
#include "quant/format.h"
#include "quant/observer.h"

#include <string.h>

osh_status osh_linear_job_done(osh_ctx *cx, osh_linear_job *j)
{
    return j->done ? j->done(cx, j) : OSH_OK;
}

void osh_linear_job_deinit(osh_ctx *cx, osh_linear_job *j)
{
    osh_free(cx, j->codes);
    osh_free(cx, j->cache);
    osh_free(cx, j->bias);
    osh_qparams_deinit(cx, &j->params);
    osh_tensor_free(cx, j->target);
    j->codes = j->cache = j->bias = NULL, j->target = NULL;
}

/* Largest number of weights of a small Linear, which one thread solves alone. */
enum { SMALL = 1 << 23 };

bool osh_jobs_are_alike(const osh_linear_job *a, const osh_linear_job *b, int n)
{
    for (int k = 0; k < n; k++)
        if (a[k].scheme != b[k].scheme || a[k].w->dtype != b[k].w->dtype ||
            a[k].w->shape[0] != b[k].w->shape[0] || a[k].w->shape[1] != b[k].w->shape[1] ||
            a[k].pack != b[k].pack || a[k].keep_w != b[k].keep_w)
            return false;
    return true;
}

bool osh_jobs_are_many(int64_t all, int64_t largest, int n_threads)
{
    return n_threads > 1 && largest <= SMALL && all >= 2 * n_threads * largest;
}

int osh_jobs_at_once(const osh_linear_job *jobs, int n, int n_threads)
{
    int64_t all = 0, largest = 0;
    for (int k = 0; k < n; k++) {
        int64_t one = osh_tensor_numel(jobs[k].w);
        all += one;
        if (one > largest) largest = one;
    }
    return n && jobs->apart && osh_jobs_are_many(all, largest, n_threads)
               ? osh_jobs_waiting(n_threads)
               : 1;
}

enum { FINISH_ROWS = 32 };
typedef struct finish {
    osh_linear_job *j;
    bool store;
    uint8_t *decoded; // own: [threads, I] a dequantized row in the dtype of w
    /* [O, 2]: |w - dq|^2 and |w|^2 of each row; dq: dequantized weight. View of j->sums; if j->sums
     * is NULL, own. */
    double *sum;
} finish;

static osh_status finish_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const finish *f = user;
    const osh_linear_job *j = f->j;
    int64_t O = j->w->shape[0], I = j->w->shape[1];
    size_t bytes = (size_t)I * osh_dtype_bytes(j->w->dtype);
    osh_q_coded coded = {j->room ? j->room : j->codes, &j->params, &j->scheme->weights, O, I};
    (void)cx;
    for (int64_t o = chunk * FINISH_ROWS; o < O && o < (chunk + 1) * FINISH_ROWS; o++) {
        uint8_t *row = (uint8_t *)j->w->data + (size_t)o * bytes,
                *dq = f->decoded + (size_t)worker * bytes;
        osh_q_decode_rows(dq, j->w->dtype, &coded, o, 1);
        osh_q_row_error(f->sum + 2 * o, row, dq, j->w->dtype, I);
        if (f->store) memcpy(row, dq, bytes);
    }
    return OSH_OK;
}

osh_status osh_job_finish(osh_ctx *cx, osh_linear_job *j, bool store)
{
    osh_status rc = OSH_OK;
    finish f = {.j = j, .store = store};
    int64_t O = j->w->shape[0], I = j->w->shape[1], n = osh_threads(cx);
    double err = 0, ref = 0;

    f.decoded = osh_alloc(cx, (size_t)(n * I) * osh_dtype_bytes(j->w->dtype));
    f.sum = j->sums ? j->sums : osh_alloc(cx, (size_t)(2 * O) * sizeof *f.sum);
    if (!f.decoded || !f.sum) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the error of %s", j->name);
    OSH_TRY(osh_parallel_for(cx, (O + FINISH_ROWS - 1) / FINISH_ROWS, finish_chunk, &f));
    for (int64_t o = 0; o < O; o++) err += f.sum[2 * o], ref += f.sum[2 * o + 1];
    j->nmse = ref > 0 ? err / ref : 0;
    if (store && j->device_w) OSH_TRY(osh_tensor_copy(cx, j->device_w, j->w));
done:
    osh_free(cx, f.decoded);
    if (f.sum != j->sums) osh_free(cx, f.sum);
    return rc;
}

size_t osh_job_finish_bytes(const osh_linear_job *j, int n_threads)
{
    size_t O = (size_t)j->w->shape[0], I = (size_t)j->w->shape[1], n = (size_t)n_threads;
    return osh_mem_gross(n * I * osh_dtype_bytes(j->w->dtype)) +
           (j->sums ? 0 : osh_mem_gross(2 * O * sizeof(double)));
}

static int64_t n_scales(const osh_linear_job *j)
{
    const osh_q_args *a = &j->scheme->weights;
    int64_t O = j->w->shape[0], I = j->w->shape[1];
    if (a->strategy == OSH_Q_TENSOR) return 1;
    if (osh_q_in_groups(a)) return O * (I / a->group_size);
    if (a->strategy == OSH_Q_BLOCK)
        return (O + a->block[0] - 1) / a->block[0] * ((I + a->block[1] - 1) / a->block[1]);
    return O;
}

size_t osh_job_codes_bytes(const osh_linear_job *j, bool packed)
{
    if (!packed) return (size_t)osh_tensor_numel(j->w);
    return (size_t)(j->w->shape[0] * osh_pack_words(j->w->shape[1], j->scheme->weights.bits)) *
           sizeof(uint32_t);
}

size_t osh_job_scales_bytes(const osh_linear_job *j)
{
    size_t n = (size_t)n_scales(j);
    return osh_tensor_gross(n * osh_dtype_bytes(j->w->dtype)) +
           (j->scheme->weights.symmetric ? 0 : osh_tensor_gross(n));
}

size_t osh_job_result_bytes(const osh_linear_job *j)
{
    // the result is dense if the weight is pruned but not quantized
    if (!j->scheme->weights.present) return osh_mem_gross(osh_tensor_bytes(j->w));
    size_t codes = osh_job_codes_bytes(j, false), packed = osh_job_codes_bytes(j, true);
    // it is not known yet if the codes will be packed, so the larger size is counted
    if (j->pack && packed > codes) codes = packed;
    return (j->room ? 0 : osh_mem_gross(codes)) + osh_job_scales_bytes(j);
}

osh_scale_rule osh_job_scale_rule(const osh_linear_job *j)
{
    static const osh_scale_kind kinds[] = {[OSH_Q_SCALE_PLAIN] = OSH_SCALE_PLAIN,
                                           [OSH_Q_SCALE_E4M3] = OSH_SCALE_E4M3,
                                           [OSH_Q_SCALE_E8M0] = OSH_SCALE_E8M0};
    const osh_q_args *q = &j->scheme->weights;
    osh_grid grid = osh_grid_of(q->bits, q->type == OSH_Q_FLOAT);
    osh_dtype dtype = j->params.scale->dtype;
    return (osh_scale_rule){.grid = grid, .symmetric = q->symmetric,
                            .dtype = dtype == OSH_FP8 ? OSH_F32 : dtype,
                            .kind = kinds[q->scale_dtype], .global = j->params.global};
}

size_t osh_job_params_bytes(const osh_linear_job *j)
{
    // with strategy tensor each chunk of rows has a range, so there are at most O ranges
    size_t n = (size_t)n_scales(j), O = (size_t)j->w->shape[0];
    return 2 * osh_mem_gross((n > O ? n : O) * sizeof(float));
}

size_t osh_job_search_bytes(const osh_linear_job *j)
{
    return osh_observer_bytes(&j->scheme->weights, j->w->shape[0], j->w->shape[1], j->w->dtype);
}

unsigned osh_scheme_wants(const osh_q_scheme *s)
{
    return (osh_observer_weighs(&s->weights) ? OSH_STAT_SQUARES : 0) |
           (s->inputs.present && s->inputs.dynamic != OSH_Q_DYNAMIC ? OSH_STAT_RANGE : 0) |
           (s->outputs.present && s->outputs.dynamic != OSH_Q_DYNAMIC ? OSH_STAT_CACHE : 0);
}
