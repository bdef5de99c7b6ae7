/* peak_shapes.c - measures the speed of matrix products with the shapes that a compression has, and
 * the highest speed of AMX. */
#include <time.h>

#include "base/isa.h"
#include "base/rng.h"
#include "ops/cpu/cpu.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "ops/gated.h"
#include "ops/kernel.h"
#include "ops/peak.h"
#include "tensor/device.h"

/* TOKENS: number of tokens of a sample.
 * SAMPLES: number of samples. The samples are used in turn, so that x is read from memory and not
 * from a cache. */
enum { TOKENS = 512, SAMPLES = 8 };

typedef struct worker {
    /* own: inputs; weights (gate and up, or one weight); output */
    osh_tensor *x[SAMPLES], *w[2], *out;
    /* done: number of floating-point operations that are finished.
     * seconds: CPU time of these operations. */
    double done, seconds;
} worker;

typedef struct job {
    const osh_peak_shape *s;
    worker *workers;
    double seconds;
} job;

/* Returns the CPU seconds of the calling thread. (CPU seconds depend less on other processes of the
 * machine than elapsed seconds do.) */
static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const osh_glu_attr silu = {.act = "silu"};

static double shape_flops(const osh_peak_shape *s)
{
    double rows = 2.0 * TOKENS * (double)s->I;
    if (s->kind == OSH_PEAK_HESSIAN) return rows / 2 * (double)(s->I + 1);
    return rows * (double)s->O * (s->kind == OSH_PEAK_GATED ? 2 : 1);
}

static osh_status shape_once(osh_ctx *cx, const worker *w, const osh_peak_shape *s, int64_t turn)
{
    const osh_tensor *x = w->x[turn % SAMPLES];
    bool finite;
    if (s->kind == OSH_PEAK_HESSIAN) return osh_pairs_hessian(cx, w->out, x, NULL, NULL);
    if (s->kind == OSH_PEAK_LINEAR)
        return osh_linear_cpu(cx, &(osh_op_args){.in = {x, w->w[0]}, .out = {w->out}});
    return osh_gated_run(cx, &finite,
                         &(osh_gated){x, {w->w[0], w->w[1]}, {NULL, NULL}, w->out, &silu});
}

static osh_status shape_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    osh_status rc = OSH_OK;
    const job *j = user;
    worker *w = &j->workers[chunk];
    int64_t n = 0;

    (void)self;
    OSH_TRY(shape_once(cx, w, j->s, 0)); // the first call is not measured
    double begin = thread_seconds();
    do {
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(shape_once(cx, w, j->s, ++n));
    } while (thread_seconds() - begin < j->seconds);
    w->seconds = thread_seconds() - begin, w->done = (double)n * shape_flops(j->s);
done:
    return rc;
}

static osh_status shape_fill(osh_ctx *cx, osh_tensor **out, osh_dtype dt, int64_t rows,
                             int64_t cols, uint64_t key)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_tensor_new(cx, out, dt, 2, (int64_t[]){rows, cols}));
    OSH_TRY(osh_tensor_zero(cx, *out));
    for (int64_t i = 0; dt == OSH_BF16 && i < rows * cols; i++)
        ((uint16_t *)(*out)->data)[i] = osh_bf16_of_f32(osh_rng_sym(1, key, (uint64_t)i));
done:
    return rc;
}

static osh_status shape_workers_new(osh_ctx *cx, worker **out, const osh_peak_shape *s)
{
    osh_status rc = OSH_OK;
    bool hessian = s->kind == OSH_PEAK_HESSIAN;
    OSH_NEW(cx, *out, osh_threads(cx));
    for (int i = 0; i < osh_threads(cx); i++) {
        worker *w = &(*out)[i];
        OSH_TRY(shape_fill(cx, &w->x[0], OSH_BF16, TOKENS, s->I, 0));
        for (int k = 1; k < SAMPLES; k++) {
            OSH_TRY(osh_tensor_new(cx, &w->x[k], OSH_BF16, 2, (int64_t[]){TOKENS, s->I}));
            OSH_TRY(osh_tensor_copy(cx, w->x[k], w->x[0]));
        }
        for (int k = 0; k < 2 && !hessian; k++)
            OSH_TRY(shape_fill(cx, &w->w[k], OSH_BF16, s->O, s->I, (uint64_t)k));
        if (hessian) OSH_TRY(shape_fill(cx, &w->out, OSH_F32, s->I, s->I, 0));
        else OSH_TRY(shape_fill(cx, &w->out, OSH_BF16, TOKENS, s->O, 0));
    }
done:
    return rc;
}

osh_status osh_peak_of_shape(osh_ctx *cx, double *flops_per_s, const osh_peak_shape *s,
                             double seconds)
{
    osh_status rc = OSH_OK;
    worker *w = NULL; // own
    job j = {.s = s, .seconds = seconds};

    if (!osh_pairs_used()) return OSH_E_UNSUPPORTED;
    OSH_TRY(shape_workers_new(cx, &w, s));
    j.workers = w;
    OSH_TRY(osh_parallel_for(cx, osh_threads(cx), shape_chunk, &j));
    *flops_per_s = 0;
    for (int i = 0; i < osh_threads(cx); i++) *flops_per_s += w[i].done / w[i].seconds;
done:
    for (int i = 0; w && i < osh_threads(cx); i++) {
        for (int k = 0; k < SAMPLES; k++) osh_tensor_free(cx, w[i].x[k]);
        for (int k = 0; k < 2; k++) osh_tensor_free(cx, w[i].w[k]);
        osh_tensor_free(cx, w[i].out);
    }
    osh_free(cx, w);
    return rc;
}

/* ---- AMX alone ---- */

/* `a` [BAND, DEPTH] has 16 KiB and fits in the L1 cache. b has PANELS panels of 1 MiB together. */
enum { BAND = OSH_PAIRS_BAND, DEPTH = 256, PANELS = 128 };

typedef struct tiles_job {
    double *rates; // own [threads]: operations per second of each thread
    double seconds;
} tiles_job;

/* Multiplies one band by panels. The band fits in the L1 cache, and the panels fit in the L2 cache.
 * Stores the speed in j->rates[chunk]. */
static osh_status peak_tiles_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    osh_status rc = OSH_OK;
    const tiles_job *j = user;
    osh_tensor *a = NULL, *b = NULL; // own: `a` [BAND, DEPTH]; b has PANELS packed panels
    _Alignas(64) float sums[BAND * 2 * OSH_PAIRS_SIDE];
    int64_t n = 0;

    (void)self;
    OSH_TRY(shape_fill(cx, &a, OSH_BF16, BAND, DEPTH, 0));
    OSH_TRY(shape_fill(cx, &b, OSH_BF16, PANELS * OSH_PAIRS_SIDE, DEPTH, 1));
    osh_pairs_a band = {a->data, DEPTH, OSH_PAIRS_STEP, OSH_PAIRS_SIDE * DEPTH};
    double begin = thread_seconds();
    osh_pairs_begin();
    do {
        for (int64_t p = 0; p < PANELS; p += 2, n++) {
            const uint32_t *panels = (const uint32_t *)b->data + p * osh_pairs_panel(DEPTH);
            osh_pairs_b by = {panels, 2, DEPTH, osh_pairs_panel(DEPTH), true};
            osh_pairs_product(sums, 2 * OSH_PAIRS_SIDE, band, BAND, by);
        }
    } while (thread_seconds() - begin < j->seconds);
    osh_pairs_end();
    j->rates[chunk] =
        2.0 * BAND * 2 * OSH_PAIRS_SIDE * DEPTH * (double)n / (thread_seconds() - begin);
done:
    osh_tensor_free(cx, a);
    osh_tensor_free(cx, b);
    return rc;
}

osh_status osh_peak_tiles(osh_ctx *cx, double *flops_per_s, double seconds)
{
    osh_status rc = OSH_OK;
    tiles_job j = {.seconds = seconds}; // own: j.rates

    if (osh_isa_used() < OSH_ISA_AMX) return OSH_E_UNSUPPORTED;
    OSH_NEW(cx, j.rates, osh_threads(cx));
    OSH_TRY(osh_parallel_for(cx, osh_threads(cx), peak_tiles_chunk, &j));
    *flops_per_s = 0;
    for (int i = 0; i < osh_threads(cx); i++) *flops_per_s += j.rates[i];
done:
    osh_free(cx, j.rates);
    return rc;
}
