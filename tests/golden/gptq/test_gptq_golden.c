/* test_gptq_golden.c - compares GPTQModifier with LLM Compressor's quantize_weight for the same
 * weight and Hessian, on the CPU and on a GPU, under each instruction set (cmake/tests.cmake).
 *
 * Scales and zero points must have the same bytes. A code may differ if rounding errors decide it:
 *
 *   kappa   condition number of the damped H
 *   u       2^-24, the rounding error of f32
 *
 * A Cholesky factorization in f32 is exact for some matrix H + E with |E| near u |H|. So the number
 * that is rounded to a code has an error of about kappa u, in units of the distance between two
 * codes. If the number is so close to a tie, the code may flip. The fraction of such codes
 * is 2 kappa u. A flip changes the later numbers of its row and causes about one more flip.
 * Therefore the fraction of different codes may be up to 4 kappa u + 0.001. For Hessians of many
 * tokens, 4 kappa u is almost 0. In the case one_token_int7, H has rank 1 before the damping, kappa
 * is 26,000, and 0.7 % of the codes may differ.
 *
 * GPTQ's objective is tr(dW (H + damping) dW^T), which is the sum of e^2 / U[i][i]^2 over the codes
 * (e: error of a code; U: the factor). At a tie both codes have the same loss. So if no code flips,
 * the objective must be at most 0.1 % above the objective of the reference. After a flip the errors
 * of the row are new random numbers. The sum of their I squares has a standard deviation of
 * 0.9 / sqrt(I) times its mean. If r of O rows have a flip, the relative difference is
 * 0.9 sqrt(2 r / I) / O; three times this difference is allowed. (This is true only with damping,
 * because without damping an H of rank 1 gives only one square per row.) Weights and Hessians are
 * those of gen.py. The test prints the differences. */
#include "torture.h"
#include "kernels/on_gpu.h"
#include "plain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "io/container.h"
#include "modifiers/recipe.h"
#include "quant/format.h"
#include "text/json.h"

static const uint64_t seed = 20261122;
static const char folder[] = OSH_SOURCE_DIR "/tests/golden/gptq";

typedef struct gptq_case {
    const char *name;
    int64_t O, I, tokens, samples, stream;
    bool dead;
    osh_dtype dtype;
    osh_recipe *recipe; // own
    osh_container *st;  // view: tensors of LLM Compressor
} gptq_case;

static int64_t whole(int64_t stream, int64_t i, uint64_t below)
{
    return (int64_t)(osh_rng_u64(seed, (uint64_t)stream, (uint64_t)i) % below);
}

static osh_tensor *make_weight(osh_ctx *cx, const gptq_case *c)
{
    osh_tensor *w = NULL;
    float *f = osh_alloc(cx, (size_t)(c->O * c->I) * sizeof *f);
    assert_ok(cx, osh_tensor_new(cx, &w, c->dtype, 2, (int64_t[]){c->O, c->I}));
    for (int64_t i = 0; i < c->O * c->I; i++) {
        float u = osh_rng_sym(seed, (uint64_t)c->stream, (uint64_t)i);
        float v = osh_rng_sym(seed, (uint64_t)c->stream + 1, (uint64_t)i);
        f[i] = u * v * 0.25f;
    }
    osh_from_f32(w->data, c->dtype, f, c->O * c->I);
    osh_free(cx, f);
    return w;
}

/* Returns the symmetric matrix H = X^T X, which the caller must free. Computes the rows of X one by
 * one, and adds the product of each row to H. Then changes the diagonal, except in dead channels:
 * rounds element i up to the next multiple of 256, and adds i. */
static osh_tensor *make_hessian(osh_ctx *cx, const gptq_case *c)
{
    osh_tensor *h = NULL;
    int64_t I = c->I, boost = (int64_t)sqrt(512.0 / (double)c->tokens);
    float *x = osh_alloc(cx, (size_t)I * sizeof *x);
    assert_ok(cx, osh_tensor_new(cx, &h, OSH_F32, 2, (int64_t[]){I, I}));
    float *p = h->data;
    memset(p, 0, osh_tensor_bytes(h));
    for (int64_t t = 0; t < c->tokens; t++) {
        int64_t common = whole(c->stream + 2, t, 31) - 15;
        for (int64_t i = 0; i < I; i++) {
            int64_t noise = whole(c->stream + 3, t * I + i, 31) - 15;
            int64_t gain = c->dead && i % 37 == 5 ? 0 : (whole(c->stream + 5, i, 2) + 1) * boost;
            x[i] = (float)((common * whole(c->stream + 4, i, 4) + noise) * gain);
        }
        plain_add_lower(p, x, x, I);
    }
    plain_mirror(p, I);
    for (int64_t i = 0; i < I; i++)
        if (!(c->dead && i % 37 == 5))
            p[i * I + i] = (float)(((int64_t)p[i * I + i] / 256 + 1) * 256 + i);
    osh_free(cx, x);
    return h;
}

/* Returns the tensor <case>.<leaf> of codes.safetensors (own), or NULL if there is none. */
static osh_tensor *load(osh_ctx *cx, const gptq_case *c, const char *leaf)
{
    char name[96];
    osh_tensor *t = NULL;
    snprintf(name, sizeof name, "%s.%s", c->name, leaf);
    for (int64_t i = 0; i < osh_container_count(c->st); i++) {
        const osh_entry *e = osh_container_at(c->st, i);
        if (strcmp(e->name, name)) continue;
        assert_ok(cx, osh_tensor_new(cx, &t, e->dtype, e->ndim, e->shape));
        assert_ok(cx, osh_container_read(cx, t->data, c->st, e));
    }
    return t;
}

/* Returns the codes of LLM Compressor, one byte each (own). */
static int8_t *load_codes(osh_ctx *cx, const gptq_case *c, const osh_q_args *q)
{
    int8_t *codes = osh_alloc(cx, (size_t)(c->O * c->I));
    osh_tensor *t = load(cx, c, "codes");
    assert_non_null(t);
    if (q->type == OSH_Q_FLOAT) {
        assert_int_equal(osh_tensor_bytes(t), c->O * c->I);
        memcpy(codes, t->data, (size_t)(c->O * c->I));
    } else {
        int64_t words = osh_pack_words(c->I, q->bits);
        assert_int_equal(osh_tensor_bytes(t), c->O * words * 4);
        for (int64_t o = 0; o < c->O; o++)
            osh_unpack_row(codes + o * c->I, 1, (const uint32_t *)t->data + o * words, 1, c->I,
                           q->bits);
    }
    osh_tensor_free(cx, t);
    return codes;
}

static void same_bytes(osh_ctx *cx, const gptq_case *c, const char *leaf, const osh_tensor *got)
{
    osh_tensor *want = load(cx, c, leaf);
    if (!want != !got) fail_msg("%s: %s is there for one only", c->name, leaf);
    if (want) {
        assert_int_equal(got->dtype, want->dtype);
        assert_int_equal(osh_tensor_bytes(got), osh_tensor_bytes(want));
        if (memcmp(got->data, want->data, osh_tensor_bytes(want)))
            fail_msg("%s: %s differs", c->name, leaf);
    }
    osh_tensor_free(cx, want);
}

/* Returns tr(dW H dW^T), where dW is the error of the dequantized codes. */
static double objective(osh_ctx *cx, const gptq_case *c, const osh_tensor *w, const float *h,
                        const void *codes, const osh_qparams *p, const osh_q_args *q)
{
    int64_t n = c->O * c->I;
    osh_tensor *dq = NULL;
    float *a = osh_alloc(cx, (size_t)n * sizeof *a), *b = osh_alloc(cx, (size_t)n * sizeof *b);
    assert_ok(cx, osh_tensor_new(cx, &dq, c->dtype, 2, w->shape));
    assert_ok(cx, osh_q_decode(cx, dq, codes, p, q));
    osh_to_f32(a, w->data, c->dtype, n);
    osh_to_f32(b, dq->data, c->dtype, n);
    for (int64_t i = 0; i < n; i++) a[i] -= b[i];
    double sum = plain_objective(a, h, c->O, c->I);
    osh_tensor_free(cx, dq);
    osh_free(cx, a);
    osh_free(cx, b);
    return sum;
}

/* Returns H with the modifier's damping (own). A dead column (all inputs are 0) is not damped, so
 * its errors have no loss. */
static osh_tensor *damp(osh_ctx *cx, const gptq_case *c, const osh_tensor *h)
{
    const osh_modifier *m = &c->recipe->modifiers[0];
    const osh_field *f = osh_field_find(m->type->fields, "dampening_frac");
    osh_tensor *out = NULL;
    int64_t I = c->I;
    double mean = 0;
    assert_ok(cx, osh_tensor_new(cx, &out, OSH_F32, 2, h->shape));
    float *p = out->data;
    memcpy(p, h->data, osh_tensor_bytes(h));
    for (int64_t i = 0; i < I; i++)
        mean += (p[i * I + i] > 0 ? p[i * I + i] : (double)c->samples / 2) / (double)I;
    for (int64_t i = 0; i < I; i++)
        if (p[i * I + i] > 0)
            p[i * I + i] += (float)(mean * *(double *)((char *)m->args + f->offset));
    return out;
}

/* Returns the largest singular value of m by power iteration. The value is |m x| / |x| after some
 * steps of x := m^T m x. If m is symmetric, the steps are x := m x. */
PLAIN static double largest(const float *m, int64_t n, bool symmetric)
{
    double x[256], y[256], norm = 0;
    assert_true(n <= 256);
    for (int64_t i = 0; i < n; i++) x[i] = 1 + (double)(i % 7);
    for (int step = 0; step < 60; step++) {
        double old = 0;
        norm = 0;
        for (int64_t i = 0; i < n; i++) old += x[i] * x[i];
        for (int64_t i = 0; i < n; i++) {
            y[i] = 0;
            for (int64_t j = 0; j < n; j++) y[i] += m[i * n + j] * x[j];
            y[i] /= sqrt(old);
            norm += y[i] * y[i];
        }
        for (int64_t j = 0; j < n; j++) {
            x[j] = symmetric ? y[j] : 0;
            for (int64_t i = 0; !symmetric && i < n; i++) x[j] += m[i * n + j] * y[i];
        }
    }
    return sqrt(norm);
}

/* Returns the condition number of a damped H without its dead columns. */
static double condition(osh_ctx *cx, const osh_tensor *damped)
{
    const osh_op *factor = &osh_op_gptq_factor;
    osh_tensor *u = NULL;
    int64_t I = damped->shape[0];
    double top = largest(damped->data, I, true);
    assert_ok(cx, osh_tensor_new(cx, &u, OSH_F32, 2, damped->shape));
    float *p = u->data;
    memcpy(p, damped->data, osh_tensor_bytes(damped));
    for (int64_t i = 0; i < I; i++)
        if (p[i * I + i] == 0) p[i * I + i] = (float)top;
    assert_ok(cx, factor->run[OSH_REF](cx, &(osh_op_args){.out = {u}}));
    double least = 1 / largest(p, I, false);
    osh_tensor_free(cx, u);
    return top / (least * least);
}

/* Solves the job on a GPU. After that, the weight on the GPU must have the dequantized values of
 * the codes. */
static void compress_on(osh_ctx *cx, osh_device *d, const osh_modifier *m, osh_linear_job *job,
                        const osh_tensor *h, int64_t samples)
{
    osh_tensor *got = NULL, *dq = NULL;
    gpu_copy_of ch = gpu_put(cx, d, h), cw = gpu_put(cx, d, job->w);
    double all = 0, err = 0;
    job->device_w = &cw.t;
    assert_ok(cx, m->type->solver->compress(cx, m, job, 1, &ch.t, samples));
    assert_ok(cx, osh_tensor_new(cx, &got, job->w->dtype, 2, job->w->shape));
    assert_ok(cx, osh_tensor_new(cx, &dq, job->w->dtype, 2, job->w->shape));
    gpu_take(cx, NULL, &ch), gpu_take(cx, got, &cw);
    assert_ok(cx, osh_q_decode(cx, dq, job->codes, &job->params, &job->scheme->weights));
    for (int64_t i = 0; i < osh_tensor_numel(dq); i++) {
        double was = value_at(job->w, i), is = value_at(dq, i);
        assert_true(value_at(got, i) == is);
        err += (was - is) * (was - is), all += was * was;
    }
    assert_true(fabs(job->nmse - err / all) <= 1e-9 * job->nmse);
    osh_tensor_free(cx, got), osh_tensor_free(cx, dq);
    job->device_w = NULL;
}

/* Solves three weights with one input on a new device. One of the weights is packed. The used GPU
 * memory must be at most the bytes that `needs` predicts. The used host memory must be at most the
 * predicted bytes, and not much less. */
static void check_needs(const osh_modifier *m, const osh_q_scheme *scheme, const osh_tensor *w,
                        const osh_tensor *h, int64_t samples)
{
    enum { N = 3 };
    osh_ctx *cx = NULL;
    osh_linear_job jobs[N] = {{0}};
    gpu_copy_of cw[N];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    gpu_copy_of ch = gpu_put(cx, d, h);
    for (int k = 0; k < N; k++) {
        cw[k] = gpu_put(cx, d, w);
        jobs[k] = (osh_linear_job){.name = "a", .scheme = scheme, .w = (osh_tensor *)w,
                                   .device_w = &cw[k].t};
        jobs[k].pack = k == 1 && scheme->weights.type == OSH_Q_INT;
    }
    size_t used = osh_arena_used(d->arena), host = osh_mem_used(cx, OSH_MEM_HOST),
           on_gpu = osh_arena_room(d->arena);
    size_t said = m->type->solver->needs(m, jobs, N, 1, &on_gpu);
    assert_ok(cx, m->type->solver->compress(cx, m, jobs, N, &ch.t, samples));
    size_t took = osh_arena_peak(d->arena) - used,
           host_took = osh_mem_used_peak(cx, OSH_MEM_HOST) - host;
    print_message("     three of them: %zu of %zu bytes of the GPU, %zu of %zu of the host\n", took,
                  on_gpu, host_took, said);
    strict(took <= on_gpu, took <= on_gpu + (32 << 20), "a solve takes what the plan says at most",
           "A library got more of the arena than the plan counts: the smallest --device-memory "
           "ends in the middle.");
    strict(host_took <= said && host_took * 10 >= said * 7, host_took <= said + (64 << 10),
           "a solve takes of the host what the plan says",
           "Libraries allocate beside: the plan's reserve has to hold it.");
    for (int k = 0; k < N; k++) gpu_take(cx, NULL, &cw[k]), osh_linear_job_deinit(cx, &jobs[k]);
    gpu_take(cx, NULL, &ch);
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* Solves four inputs in one call. Each input has one weight. The Hessian of input BAD can be
 * factored only with more damping. The results must have the same bytes as separate calls. The call
 * must use at most the memory that `needs_groups` predicts. */
static void check_groups(const osh_modifier *m, const osh_q_scheme *scheme, const osh_tensor *w,
                         const osh_tensor *h, int64_t samples)
{
    enum { N = 4, BAD = 2 };
    osh_ctx *cx = NULL, *own = NULL; // the solver gets `own`, which counts the solver's memory
    osh_linear_job jobs[2][N] = {{{0}}};
    osh_job_group groups[N];
    gpu_copy_of cw[N], ch[N];
    int64_t I = w->shape[1];
    size_t bytes = (size_t)osh_tensor_numel(w);
    osh_tensor *mine = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_ctx_new(&own, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int together = 0; together < 2; together++) {
        for (int k = 0; k < N; k++) {
            assert_ok(cx, osh_tensor_new(cx, &mine, OSH_F32, 2, h->shape));
            assert_ok(cx, osh_tensor_copy(cx, mine, h));
            float *x = mine->data, most = 0;
            for (int64_t i = 0; i < I; i++)
                x[i * (I + 1)] *= 1 + 0.1f * (float)k, most = fmaxf(most, x[i * (I + 1)]);
            // makes a correlation above 1, so that H is indefinite
            if (k == BAD && I > 1) x[I] = 1.05f * sqrtf(x[0] * x[I + 1]) + 0.1f * most;
            cw[k] = gpu_put(cx, d, w), ch[k] = gpu_put(cx, d, mine);
            osh_tensor_free(cx, mine), mine = NULL;
            jobs[together][k] = (osh_linear_job){.name = "a", .scheme = scheme,
                                                 .w = (osh_tensor *)w,
                                                 .device_w = &cw[k].t};
            groups[k] = (osh_job_group){&jobs[together][k], 1, &ch[k].t};
        }
        size_t used = osh_arena_used(d->arena), room = osh_arena_room(d->arena);
        if (together) {
            size_t said = m->type->solver->needs_groups(m, groups, N, 1, &room);
            size_t one_room = osh_arena_room(d->arena),
                   one = m->type->solver->needs(m, groups->jobs, 1, 1, &one_room);
            assert_ok(own, m->type->solver->compress_groups(own, m, groups, N, samples));
            size_t took = osh_arena_peak(d->arena) - used,
                   host_took = osh_mem_used_peak(own, OSH_MEM_HOST);
            // while input BAD is damped again, the results of the three other inputs exist
            size_t kept = 3 * osh_job_result_bytes(groups->jobs);
            print_message("     four inputs: %zu of %zu bytes of the GPU, %zu of %zu of the host\n",
                          took, room, host_took, said);
            strict(took <= room, took <= room + (32 << 20),
                   "groups take what the plan says at most",
                   "A library got more of the arena than the plan counts.");
            assert_true(one_room <= room && host_took * 10 >= said * 7);
            assert_true(host_took <= (said > one + kept ? said : one + kept));
        }
        for (int k = 0; k < N && !together; k++)
            assert_ok(cx,
                      m->type->solver->compress(cx, m, groups[k].jobs, 1, groups[k].h, samples));
        for (int k = 0; k < N; k++) gpu_take(cx, NULL, &cw[k]), gpu_take(cx, NULL, &ch[k]);
    }
    for (int k = 0; k < N; k++) {
        assert_memory_equal(jobs[0][k].codes, jobs[1][k].codes, bytes);
        assert_true(jobs[0][k].objective == jobs[1][k].objective &&
                    jobs[0][k].nmse == jobs[1][k].nmse);
        assert_true(jobs[0][k].fallback == jobs[1][k].fallback &&
                    (k != BAD || I == 1) == !jobs[0][k].fallback);
        for (int i = 0; i < 2; i++) osh_linear_job_deinit(i ? own : cx, &jobs[i][k]);
    }
    osh_device_close(cx, d);
    assert_true(!osh_mem_live(cx) && !osh_mem_live(own));
    osh_ctx_free(cx), osh_ctx_free(own);
}

/* Runs a case on the GPU d, or on the CPU if d is NULL. */
static void run_case(osh_ctx *cx, osh_device *d, const gptq_case *c)
{
    osh_modifier *m = &c->recipe->modifiers[0];
    const osh_q_args *q = &m->schemes[0].weights;
    osh_tensor *w = make_weight(cx, c), *used = make_weight(cx, c), *h = make_hessian(cx, c),
               *h_used = NULL;
    int8_t *want = load_codes(cx, c, q);
    int64_t n = c->O * c->I, same = 0, rows = 0;

    assert_ok(cx, osh_tensor_new(cx, &h_used, OSH_F32, 2, h->shape));
    float *to = h_used->data;
    // the upper triangle is NaN, because the modifier must not read it
    for (int64_t i = 0; i < c->I; i++)
        for (int64_t j = 0; j < c->I; j++)
            to[i * c->I + j] = j <= i ? ((float *)h->data)[i * c->I + j] : NAN;
    osh_linear_job job = {.name = c->name, .scheme = &m->schemes[0], .w = used};
    if (d) check_needs(m, &m->schemes[0], used, h_used, c->samples);
    if (d && m->type->solver->gathers(m, &job, 1))
        check_groups(m, &m->schemes[0], used, h_used, c->samples);
    if (d) compress_on(cx, d, m, &job, h_used, c->samples);
    else assert_ok(cx, m->type->solver->compress(cx, m, &job, 1, h_used, c->samples));
    assert_null(job.fallback);
    same_bytes(cx, c, "scale", job.params.scale);
    same_bytes(cx, c, "zero", job.params.zero);
    osh_tensor global = osh_tensor_view(OSH_F32, 1, (int64_t[]){1}, &job.params.global);
    same_bytes(cx, c, "global", job.params.global ? &global : NULL);
    for (int64_t i = 0; i < n; i++) same += ((int8_t *)job.codes)[i] == want[i];
    for (int64_t o = 0; o < c->O; o++)
        rows += memcmp((int8_t *)job.codes + o * c->I, want + o * c->I, (size_t)c->I) != 0;
    osh_tensor *damped = damp(cx, c, h);
    double ours = objective(cx, c, w, damped->data, job.codes, &job.params, q);
    double theirs = objective(cx, c, w, damped->data, want, &job.params, q),
           kappa = condition(cx, damped);
    double most = (0.001 + 4 * kappa / (1 << 24)) * (double)n;
    double above = 0.001 + 3 * 0.9 * sqrt(2.0 * (double)rows / (double)c->I) / (double)c->O;
    void *rtn = osh_alloc(cx, (size_t)n);
    assert_ok(cx, osh_q_encode(cx, rtn, w, &job.params, q, OSH_ARITH_REFERENCE));
    double nearest = objective(cx, c, w, damped->data, rtn, &job.params, q);
    print_message("%s %-24s %2ld of %5ld codes differ (at most %.0f)  objective %.7g, reference "
                  "%.7g (ratio %.6f, at "
                  "most %.4f), RTN %.5g, condition %.3g\n",
                  d ? "GPU" : "CPU", c->name, (long)(n - same), (long)n, most, ours, theirs,
                  ours / theirs, 1 + above, nearest, kappa);
    assert_true((double)(n - same) <= most);
    assert_true(ours <= theirs * (1 + above));
    // the Hessian has an effect: the loss is less than that of rounding to nearest
    assert_true(theirs < nearest);
    osh_linear_job_deinit(cx, &job);
    osh_tensor_free(cx, w);
    osh_tensor_free(cx, used);
    osh_tensor_free(cx, h);
    osh_tensor_free(cx, damped);
    osh_tensor_free(cx, h_used);
    osh_free(cx, want);
    osh_free(cx, rtn);
}

static void test_cases(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    cJSON *cases = NULL;
    osh_container *st = NULL;
    char path[512];
    int n = 0;

    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    snprintf(path, sizeof path, "%s/codes.safetensors", folder);
    assert_ok(cx, osh_container_open(cx, &st, path));
    snprintf(path, sizeof path, "%s/cases.json", folder);
    assert_ok(cx, osh_json_read(cx, &cases, path, 1 << 20, 0));
    for (const cJSON *j = cases->child; j; j = j->next, n++) {
        gptq_case c = {.name = j->string, .st = st};
        const char *dtype = NULL, *recipe = NULL;
        assert_ok(cx, osh_json_int(cx, &c.O, j, "O", path));
        assert_ok(cx, osh_json_int(cx, &c.I, j, "I", path));
        assert_ok(cx, osh_json_int(cx, &c.tokens, j, "tokens", path));
        assert_ok(cx, osh_json_int(cx, &c.samples, j, "samples", path));
        assert_ok(cx, osh_json_int(cx, &c.stream, j, "stream", path));
        assert_ok(cx, osh_json_bool_or(cx, &c.dead, j, "dead", false, path));
        assert_ok(cx, osh_json_str_or(cx, &dtype, j, "dtype", NULL, path));
        assert_ok(cx, osh_json_str_or(cx, &recipe, j, "recipe", NULL, path));
        c.dtype = !strcmp(dtype, "BF16") ? OSH_BF16 : !strcmp(dtype, "F16") ? OSH_F16 : OSH_F32;
        assert_ok(cx, osh_recipe_parse(cx, &c.recipe, recipe, strlen(recipe), c.name));
        run_case(cx, NULL, &c);
        // scale_dtype is refused on a GPU
        if (d && !c.recipe->modifiers[0].schemes[0].weights.scale_dtype) run_case(cx, d, &c);
        osh_recipe_free(cx, c.recipe);
    }
    assert_int_equal(n, 22);
    cJSON_Delete(cases);
    osh_container_close(cx, st);
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
