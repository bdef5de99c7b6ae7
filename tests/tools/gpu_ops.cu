/* gpu_ops.cu - times each op of a run alone on a GPU, by CUDA events after a warm-up. The shapes
 * are those of Llama-3-8B and Qwen3-30B-A3B, and rates are relative to the GPU's sustained rates.
 * The program prints the algorithm that cuBLASLt chose. It prints the workspace and time of
 * cuSOLVER for whole triangles and for the blocks of a run. It also times three other things: a
 * mixture in which each expert computes its own rows, a call that solves 32 weights, and the
 * locking of pages.
 *
 *   gpu_ops [seconds=0.2] [scale=1] [device=0] [only=TEXT]
 *
 * scale: divides widths, rows and vocabularies. only: times only the ops that
 * have TEXT in their name. */
#include "base/rng.h"
#include "gpu/runtime.h"
#include "ops/cuda/cuda.h"
#include "ops/cuda/sizes.h"
#include "solver/cuda/solver.h"

#include <functional>
#include <initializer_list>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

enum { SEED = 3, FILL = 1 << 20, TOKENS = 16384, SAMPLES = 8, GROUP = 128, BLOCKS = 8,
       AT_ONCE = 32 };

static osh_ctx *cx;
static osh_device *d;
static double seconds = 0.2;
static const char *only = "";
static int64_t scale = 1, n_failed;
static struct { double bf16, f32, attention, memory, bus; } peak;

typedef struct model {
    const char *name;
    int64_t D, F, H, K, Dh, V, E, top_k;
} model;

/* ---- helpers of the measurements ---- */
static bool ok(osh_status rc, const char *what)
{
    if (!rc) return true;
    printf("FAILED %s: %s\n", what, osh_error_text(cx));
    osh_error_clear(cx);
    n_failed++;
    return false;
}

// Returns a tensor on the GPU (own), or NULL if the GPU has not enough memory.
static osh_tensor *tensor(osh_dtype dt, int64_t rows, int64_t cols, bool random = true)
{
    osh_tensor *t = NULL;
    int64_t shape[2] = {rows, cols}, n = rows * (cols ? cols : 1), have = osh_min64(n, FILL);
    size_t each = osh_dtype_bytes(dt);
    if (!ok(osh_tensor_new_on(cx, &t, osh_where{d, OSH_LIFE_LONG}, dt, cols ? 2 : 1, shape),
            "a tensor"))
        return NULL;
    if (!random) return ok(osh_tensor_zero(cx, t), "zeros") ? t : NULL;
    std::vector<char> block((size_t)have * each);
    for (int64_t i = 0; i < have; i++) {
        float f = (float)osh_rng_sym(SEED, (uint64_t)n, (uint64_t)i);
        osh_from_f32(&block[(size_t)i * each], dt, &f, 1);
    }
    ok(osh_tensor_put(cx, t, 0, block.data(), block.size()), "random values");
    for (int64_t more; have < n; have += more) { // each iteration doubles the part that is filled
        more = osh_min64(have, n - have);
        ok(d->type->copy(cx, d, osh_elem(t, have), t->data, (size_t)more * each), "random values");
    }
    return t;
}

/* Returns the seconds of one call, measured by CUDA events after a first call. Returns a negative
 * number if a call fails. */
static double time_of(const char *what, const std::function<osh_status()> &call)
{
    double took = 0;
    if (!strstr(what, only)) return (void)ok(call(), what), -1; // an op that is not timed runs
                                                                // once, because a later op may use
                                                                // its result
    if (!ok(call(), what) || !ok(d->type->sync(cx, d), what)) return -1;
    for (int n = 1;;) {
        osh_device_mark *from = NULL, *to = NULL; // own
        bool good = ok(d->type->mark_new(cx, d, &from), what);
        for (int i = 0; i < n && good; i++) good = ok(call(), what);
        good = good && ok(d->type->mark_new(cx, d, &to), what) &&
               ok(d->type->mark_between(cx, &took, from, to), what);
        d->type->mark_free(cx, from), d->type->mark_free(cx, to);
        if (!good) return -1;
        if (took >= seconds || n >= 1024) return took / n;
        n = took > 0 && seconds / took < 64 ? (int)(1.2 * n * seconds / took) + 1 : 16 * n;
    }
}

/* Prints one line with the time and the rate. The rate is in operations per second, or in bytes per
 * second if `flops` is 0. The line also has the rate in percent of the GPU's sustained rate,
 * `of`. */
static void row(const char *name, const char *shape, double s, double flops, double of,
                double bytes, bool algo)
{
    osh_cuda_algo a;
    if (s <= 0) return;
    printf("%-22s %-30s %10.4f ms", name, shape, 1e3 * s);
    if (flops > 0) printf(" %8.1f TFLOP/s %5.1f %%", flops / s / 1e12, 100 * flops / s / of);
    else if (bytes > 0) printf(" %8.1f GB/s    %5.1f %%", bytes / s / 1e9, 100 * bytes / s / of);
    if (algo) {
        osh_cuda_gemm_algo(d, &a);
        printf("  cuBLASLt %d tile %d stages %d split %d workspace %zu%s%s", a.id, a.tile, a.stages,
               a.split_k, a.workspace, a.one_by_one ? " ONE BY ONE" : "",
               a.lenient ? " NOT PEDANTIC" : "");
    }
    printf("\n");
    fflush(stdout);
}

static const char *shape_of(std::initializer_list<int64_t> dims)
{
    static char text[128];
    size_t at = 0;
    for (int64_t x : dims)
        at += (size_t)snprintf(text + at, sizeof text - at, at ? " x %lld" : "%lld", (long long)x);
    return text;
}

/* ---- ops ---- */
static std::vector<int64_t> offsets;
static osh_seqs seqs;

/* Times an op and prints a line. If `flops` is 0, the line counts the bytes of inputs and
 * output. */
static void op(const char *name, const void *attr, std::initializer_list<osh_tensor *> in,
               osh_tensor *out, double flops, double of, bool algo)
{
    const osh_op *o = osh_op_find(name);
    osh_op_args a = {};
    double bytes = (double)osh_tensor_bytes(out);
    int n = 0;
    for (osh_tensor *t : in) {
        a.in[n++] = t;
        if (t) bytes += (double)osh_tensor_bytes(t);
    }
    a.out[0] = out, a.attr = attr, a.seqs = &seqs;
    double s = time_of(name, [&] { return o->run[OSH_CUDA](cx, &a); });
    const osh_tensor *w = a.in[o->n_in]; // the weight, if the op is a matrix multiplication; else
                                         // NULL
    const char *shape = w ? shape_of({osh_rows(out), osh_width(out), osh_width(w)})
                          : shape_of({osh_rows(out), osh_width(out)});
    row(name, shape, s, flops, flops > 0 ? of : peak.memory, bytes, algo);
}

static void linear(int64_t N, int64_t I, int64_t O)
{
    osh_linear_attr at = {O, false};
    osh_tensor *x = tensor(OSH_BF16, N, I), *w = tensor(OSH_BF16, O, I),
               *y = tensor(OSH_BF16, N, O, false);
    if (x && w && y)
        op("linear", &at, {x, w}, y, 2.0 * (double)N * (double)I * (double)O, peak.bf16, true);
    osh_tensor_free(cx, x), osh_tensor_free(cx, w), osh_tensor_free(cx, y);
}

static void embedding(const model *m, int64_t N, osh_tensor *y)
{
    osh_embedding_attr at = {m->D, m->V};
    int64_t shape[1] = {N};
    std::vector<int32_t> ids((size_t)N);
    osh_tensor *t = NULL, *w = tensor(OSH_BF16, m->V, m->D); // own
    for (int64_t i = 0; i < N; i++)
        ids[(size_t)i] = (int32_t)(osh_rng_u64(SEED, 1, (uint64_t)i) % (uint64_t)m->V);
    if (w && ok(osh_tensor_new_on(cx, &t, osh_where{d, OSH_LIFE_LONG}, OSH_I32, 1, shape), "ids") &&
        ok(osh_tensor_put(cx, t, 0, ids.data(), ids.size() * sizeof ids[0]), "ids"))
        op("embedding", &at, {t, w}, y, 0, 0, false);
    osh_tensor_free(cx, t), osh_tensor_free(cx, w);
}

static void heads(const model *m, int64_t N)
{
    int64_t T = N / SAMPLES;
    static osh_rope_attr rope;
    osh_attention_attr at = {m->H, m->K, m->Dh, 0, 1 / sqrt((double)m->Dh)};
    osh_tensor *q = tensor(OSH_BF16, N, m->H * m->Dh), *k = tensor(OSH_BF16, N, m->K * m->Dh),
               *v = tensor(OSH_BF16, N, m->K * m->Dh),
               *y = tensor(OSH_BF16, N, m->H * m->Dh, false);
    rope.head_dim = rope.rotary_dim = m->Dh, rope.attention_scaling = 1;
    for (int64_t i = 0; i < m->Dh / 2; i++)
        rope.inv_freq[i] = pow(500000.0, -2.0 * (double)i / (double)m->Dh);
    if (q && k && v && y) {
        op("rope", &rope, {q}, y, 0, 0, false);
        op("attention", &at, {q, k, v}, y,
           2.0 * (double)(m->H * m->Dh * SAMPLES) * (double)T * (double)(T + 1), peak.attention,
           false);
    }
    osh_tensor_free(cx, q), osh_tensor_free(cx, k), osh_tensor_free(cx, v), osh_tensor_free(cx, y);
}

static void elementwise(const model *m, int64_t N)
{
    osh_rms_norm_attr norm = {1e-5, 0};
    char act[] = "silu";
    osh_glu_attr glu = {act};
    osh_tensor *a = tensor(OSH_BF16, N, m->D), *b = tensor(OSH_BF16, N, m->D),
               *w = tensor(OSH_BF16, m->D, 0), *y = tensor(OSH_BF16, N, m->D, false);
    if (a && b && w && y) {
        embedding(m, N, y);
        op("rms_norm", &norm, {a, w}, y, 0, 0, false);
        op("add", NULL, {a, b}, y, 0, 0, false);
        if (m->E) {
            osh_moe_router_attr router = {m->top_k, true};
            osh_moe_combine_attr combine = {0};
            osh_tensor *logits = tensor(OSH_BF16, N, m->E),
                       *route = tensor(OSH_BF16, N, m->E, false);
            if (logits && route) op("moe_router", &router, {logits}, route, 0, 0, false);
            if (logits && route) op("moe_combine", &combine, {a, b, route}, y, 0, 0, false);
            osh_tensor_free(cx, logits), osh_tensor_free(cx, route);
        }
    }
    osh_tensor_free(cx, a), osh_tensor_free(cx, b), osh_tensor_free(cx, w), osh_tensor_free(cx, y);
    a = tensor(OSH_BF16, N, m->F), b = tensor(OSH_BF16, N, m->F),
    y = tensor(OSH_BF16, N, m->F, false);
    if (a && b && y) op("glu", &glu, {a, b}, y, 0, 0, false);
    osh_tensor_free(cx, a), osh_tensor_free(cx, b), osh_tensor_free(cx, y);
}

/* Times an online rotation of D channels in vectors of n. */
static void rotate(int64_t N, int64_t D, int64_t n)
{
    osh_rotation r = {}; // own
    osh_rotate_attr at = {n, &r, false};
    osh_tensor *x = tensor(OSH_BF16, N, D), *y = tensor(OSH_BF16, N, D, false);
    bool good = x && y &&
                ok(osh_rotation_init(cx, &r, OSH_ROTATION_RANDOM_HADAMARD, n, SEED, "x"), "rotate");
    if (good) op("rotate", &at, {x}, y, 0, 0, false);
    osh_rotation_deinit(cx, &r);
    osh_tensor_free(cx, x), osh_tensor_free(cx, y);
}

/* ---- experts ---- */
/* Returns route [N, E] with top_k experts of each token, on the GPU (own). */
static osh_tensor *routes_of(const model *m, int64_t N)
{
    std::vector<uint16_t> host((size_t)(N * m->E));
    osh_tensor *t = tensor(OSH_BF16, N, m->E, false);
    for (int64_t i = 0; i < N; i++) { // no number of experts is a multiple of 37, so the top_k
                                      // experts of a token differ
        int64_t first = (int64_t)(osh_rng_u64(SEED, 2, (uint64_t)i) % (uint64_t)m->E);
        for (int64_t k = 0; k < m->top_k; k++)
            host[(size_t)(i * m->E + (first + 37 * k) % m->E)] =
                osh_bf16_of_f32(1 / (float)m->top_k);
    }
    if (t) ok(osh_tensor_put(cx, t, 0, host.data(), host.size() * sizeof host[0]), "routes");
    return t;
}

/* Times all experts of a mixture on the rows that the router sends to them. */
static void mixture(const model *m, int64_t N)
{
    char act[] = "silu";
    osh_glu_attr glu = {act};
    int64_t E = m->E, shape[1] = {osh_routes_n(E, N)};
    std::vector<osh_mixture_expert> experts((size_t)E);
    std::vector<osh_tensor *> w; // own
    std::vector<int32_t> n((size_t)E);
    osh_tensor *route = routes_of(m, N), *x = tensor(OSH_BF16, N, m->D),
               *sum = tensor(OSH_BF16, N, m->D), *out = tensor(OSH_BF16, N, m->D, false),
               *lists = NULL; // own
    bool good =
        route && x && sum && out &&
        ok(osh_tensor_new_on(cx, &lists, osh_where{d, OSH_LIFE_LONG}, OSH_I32, 1, shape), "lists");
    for (int64_t i = 0; i < 3 * E && good; i++) {
        w.push_back(tensor(OSH_BF16, i % 3 < 2 ? m->F : m->D, i % 3 < 2 ? m->D : m->F));
        good = w.back() != NULL;
    }
    if (good) {
        int32_t *list = static_cast<int32_t *>(lists->data);
        row("routes", shape_of({N, E}),
            time_of("routes", [&] { return osh_cuda_routes(cx, n.data(), list, route); }), 0,
            peak.memory, (double)osh_tensor_bytes(route), false);
        std::vector<int32_t> counts((size_t)E);
        row("count_routes", shape_of({N, E}),
            time_of("count_routes",
                    [&] { return osh_cuda_count_routes(cx, counts.data(), route); }),
            0, peak.memory, (double)osh_tensor_bytes(route), false);
        if (counts != n) printf("FAILED count_routes: other numbers than routes\n"), n_failed++;
        for (int64_t e = 0; e < E; e++)
            experts[(size_t)e] = {w[(size_t)(3 * e)],
                                  w[(size_t)(3 * e + 1)],
                                  w[(size_t)(3 * e + 2)],
                                  {list + E + e * N, n[(size_t)e]},
                                  (int32_t)e,
                                  NULL};
        osh_mixture all = {experts.data(), (int)E, x, route, sum, out, &glu, false};
        row("mixture", shape_of({N, m->D, m->F, E}),
            time_of("mixture", [&] { return osh_cuda_mixture_run(cx, &all); }),
            6.0 * (double)(N * m->top_k) * (double)m->D * (double)m->F, peak.bf16, 0, false);
    }
    for (osh_tensor *t : w) osh_tensor_free(cx, t);
    for (osh_tensor *t : {route, x, sum, out, lists}) osh_tensor_free(cx, t);
}

/* Times the router of DeepSeek-V3. */
static void gate(int64_t N, int64_t D, int64_t E)
{
    char method[] = "groups";
    osh_moe_gate_attr at = {};
    at.route = {scale > 1 ? 2 : 8, true}, at.experts = E, at.n_group = scale > 1 ? 2 : 8;
    at.topk_group = at.n_group / 2, at.scale = 2.5, at.sigmoid = true, at.method = method;
    osh_tensor *x = tensor(OSH_BF16, N, D), *w = tensor(OSH_F32, E, D),
               *y = tensor(OSH_BF16, N, E, false);
    if (x && w && y)
        op("moe_gate", &at, {x, w}, y, 2.0 * (double)N * (double)D * (double)E, peak.f32, false);
    osh_tensor_free(cx, x), osh_tensor_free(cx, w), osh_tensor_free(cx, y);
}

/* ---- statistics and solver ---- */
/* Returns a Hessian of N tokens on the GPU (own), damped so that its Cholesky factor exists. */
static osh_tensor *hessian(int64_t N, int64_t I)
{
    osh_tensor *x = tensor(OSH_BF16, N, I), *h = tensor(OSH_F32, I, I, false);
    std::vector<float> diag((size_t)I);
    if (x && h)
        op("hessian_accum", NULL, {x}, h, (double)N * (double)I * (double)(I + 1), peak.bf16, true);
    osh_tensor_free(cx, x);
    if (!h || !ok(osh_gptq_diag_cuda(cx, diag.data(), h), "diagonal")) return h;
    for (float &f : diag) f *= 1.5f;
    ok(osh_gptq_set_diag_cuda(cx, h, diag.data()), "diagonal");
    return h;
}

/* Times cuSOLVER on a whole triangle of n x n. */
static void whole_triangle(const osh_tensor *h, osh_tensor *work, int64_t n)
{
    osh_cuda_triangle t = {(float *)work->data, n, n, true, NULL, 0, NULL};
    bool fine = false;
    double cubed = (double)n * (double)n * (double)n / 3;
    if (!ok(osh_cuda_potrf_bytes(cx, d, &t.room_bytes, &t), "cuSOLVER's wish")) return;
    printf("triangle of %lld: potrf wants %zu bytes; a run has %zu\n", (long long)n, t.room_bytes,
           osh_cuda_triangle_bytes(n));
    t.room = osh_device_alloc(cx, d, t.room_bytes, OSH_LIFE_SHORT);
    t.verdict = (int *)osh_device_alloc(cx, d, sizeof(int), OSH_LIFE_SHORT);
    if (t.room && t.verdict) {
        auto fresh = [&] { return osh_tensor_copy(cx, work, h); };
        double copy = time_of("copy for potrf", fresh);
        double s = time_of("potrf", [&] {
            osh_status rc = fresh();
            return rc ? rc : osh_cuda_potrf(cx, d, &t, &fine);
        });
        row("potrf of cuSOLVER", shape_of({n, n}), s - copy, cubed, peak.f32, 0, false);
        if (!fine) printf("FAILED potrf: not positive definite\n"), n_failed++;
    } else {
        ok(OSH_E_NOMEM, "whole triangle");
    }
    osh_device_free(d, t.verdict);
    osh_device_free(d, t.room);
}

/* Times one call that solves n_jobs weights, each with its own U. */
static void solve(osh_tensor *u, int64_t O, int64_t I, int n_jobs)
{
    int64_t n_cols = osh_div_up(I, GROUP);
    osh_tensor *w = tensor(OSH_BF16, O, I);   // own
    std::vector<osh_tensor *> us((size_t)n_jobs, u); // own, except us[0], which is a view of u
    std::vector<std::vector<int8_t>> codes((size_t)n_jobs, std::vector<int8_t>((size_t)(O * I)));
    std::vector<std::vector<double>> loss((size_t)n_jobs, std::vector<double>((size_t)O));
    std::vector<float> scales((size_t)(O * n_cols), 0.1f);
    std::vector<int32_t> col((size_t)I);
    std::vector<osh_gptq_solve_args> jobs((size_t)n_jobs);
    bool good = w != NULL;
    for (int64_t i = 0; i < I; i++) col[(size_t)i] = (int32_t)(i / GROUP);
    for (size_t k = 0; k < jobs.size() && good; k++) {
        osh_gptq_solve_args &a = jobs[k];
        if (k)
            us[k] = tensor(OSH_F32, I, I, false),
            good = us[k] && ok(osh_tensor_copy(cx, us[k], u), "U");
        if (!good) break;
        a.w = w, a.codes = codes[k].data(), a.u = (const float *)us[k]->data;
        a.scale = scales.data(), a.col_scale = col.data(), a.loss = loss[k].data();
        a.O = O, a.I = I, a.n_scale_cols = n_cols, a.row_block = 1, a.block_size = 128, a.bits = 4;
        a.dq_dtype = OSH_BF16;
    }
    char name[32] = "gptq_solve";
    if (n_jobs > 1) snprintf(name, sizeof name, "gptq_solve of %d", n_jobs);
    auto call = [&] { return osh_gptq_solve_cuda(cx, d, jobs.data(), n_jobs); };
    double flops = (double)n_jobs * (double)O * (double)I * (double)I;
    if (good) row(name, shape_of({O, I}), time_of(name, call), flops, peak.f32, 0, true);
    for (size_t k = 1; k < us.size(); k++)
        if (us[k] != u) osh_tensor_free(cx, us[k]);
    osh_tensor_free(cx, w);
}

/* Measures the steps of the solver for inputs of width I: statistics, triangles and factor. Also
 * measures the solve of one weight with O rows, and the solve of n_jobs such weights. */
static void width(int64_t N, int64_t I, int64_t O, int n_jobs)
{
    osh_tensor *h = hessian(N, I), *work = tensor(OSH_F32, I, I, false); // own
    osh_op_args a = {};
    if (h && work) {
        a.out[0] = work;
        double turned = time_of("gptq_permute", [&] { return osh_gptq_permute_cuda(cx, h, NULL); });
        row("gptq_permute", shape_of({I, I}), turned, 0, peak.memory,
            1.5 * (double)osh_tensor_bytes(h), false);
        whole_triangle(h, work, I);
        double copy = time_of("copy for gptq_factor", [&] { return osh_tensor_copy(cx, work, h); });
        double s = time_of("gptq_factor", [&] {
            osh_status rc = osh_tensor_copy(cx, work, h);
            return rc ? rc : osh_gptq_factor_cuda(cx, &a);
        });
        row("gptq_factor", shape_of({I, I}), s - copy, 2.0 / 3 * pow((double)I, 3), peak.f32, 0,
            I > OSH_FACTORS_MOST);
        solve(work, O, I, 1);
        if (n_jobs > 1) solve(work, O, I, n_jobs);
    }
    osh_tensor_free(cx, h), osh_tensor_free(cx, work);
}

/* ---- host memory ---- */
static void pages(size_t n_bytes)
{
    void *block[BLOCKS] = {NULL}; // own
    const char *why = NULL;
    double begin = osh_now(), touched, locked, unlocked;
    int n = 0;
    for (; n < BLOCKS; n++) {
        if (posix_memalign(&block[n], 4096, n_bytes)) break;
        memset(block[n], 1, n_bytes);
    }
    touched = osh_now();
    for (int i = 0; i < n && !why; i++)
        ok(d->type->pinned->lock(cx, d, &why, block[i], n_bytes), "page-locking");
    locked = osh_now();
    for (int i = 0; i < n; i++) d->type->pinned->unlock(cx, d, block[i]);
    unlocked = osh_now();
    printf("page-locking of %d blocks of %.1f MB: touched in %.3f s, locked in %.3f s (%.1f GB/s), "
           "unlocked in %.3f s"
           "%s%s\n",
           n, (double)n_bytes / 1e6, touched - begin, locked - touched,
           n * (double)n_bytes / (locked - touched) / 1e9, unlocked - locked,
           why ? "; refused: " : "", why ? why : "");
    for (int i = 0; i < n; i++) free(block[i]);
}

static void bus(int64_t n_bytes)
{
    osh_tensor *t = tensor(OSH_U8, n_bytes, 0, false); // own
    std::vector<char> host((size_t)n_bytes, 1);
    if (!t) return;
    double s = time_of("put", [&] { return osh_tensor_put(cx, t, 0, host.data(), host.size()); });
    row("put, through pieces", shape_of({n_bytes}), s, 0, peak.bus, (double)n_bytes, false);
    s = time_of("get", [&] { return osh_tensor_get(cx, host.data(), t, 0, host.size()); });
    row("get, through pieces", shape_of({n_bytes}), s, 0, peak.bus, (double)n_bytes, false);
    osh_tensor_free(cx, t);
}

static int64_t cut(int64_t n, int64_t least) { return n / scale > least ? n / scale : least; }

static void peaks(void)
{
    int64_t T = cut(2048, 16), side = cut(8192, 32);
    ok(osh_cuda_speed.product(cx, &peak.bf16, d, OSH_BF16, side, seconds), "BF16 products");
    ok(osh_cuda_speed.product(cx, &peak.f32, d, OSH_F32, side, seconds), "F32 products");
    ok(osh_cuda_speed.attention(cx, &peak.attention, d, scale > 1 ? 1 : SAMPLES, T, seconds),
       "attention");
    ok(osh_cuda_speed.copies(cx, &peak.memory, &peak.bus, d, cut(1 << 30, 1 << 16), seconds),
       "copies");
    peak.memory *= 2; // a copy reads and writes each byte, so the memory moves twice as many bytes
    printf("%s\nsustained: BF16 %.1f TFLOP/s, F32 %.1f, attention %.1f, memory %.1f GB/s read and "
           "written, from the"
           " host %.1f GB/s; columns: milliseconds, rate, share of the sustained one\n",
           d->text, peak.bf16 / 1e12, peak.f32 / 1e12, peak.attention / 1e12, peak.memory / 1e9,
           peak.bus / 1e9);
}

static void run(const model *given)
{
    model m = *given;
    int64_t N = cut(TOKENS, 64) / SAMPLES * SAMPLES;
    m.D = cut(m.D, 32), m.F = cut(m.F, 32), m.V = cut(m.V, 64), m.H = cut(m.H, 1),
    m.K = cut(m.K, 1);
    if (scale > 1 && m.E) m.E = cut(m.E, 8), m.top_k = 2;
    printf("== %s: %lld tokens in %d samples\n", m.name, (long long)N, SAMPLES);
    offsets.clear();
    for (int64_t i = 0; i <= SAMPLES; i++) offsets.push_back(i * N / SAMPLES);
    seqs.n = SAMPLES, seqs.offsets = offsets.data();
    elementwise(&m, N);
    heads(&m, N);
    rotate(N, m.H * m.Dh, m.Dh); // R3
    rotate(N, m.F, m.F);         // R4
    linear(N, m.D, m.H * m.Dh);
    linear(N, m.D, m.K * m.Dh);
    linear(N, m.H * m.Dh, m.D);
    linear(N, m.D, m.F);
    linear(N, m.F, m.D);
    if (m.E) linear(N, m.D, m.E);
    width(N, m.D, (m.H + 2 * m.K) * m.Dh, 1);
    width(N, m.F, m.D, m.E ? (int)cut(AT_ONCE, 2) : 1);
    if (m.E) mixture(&m, N);
}

int main(int argc, char **argv)
{
    static const model models[] = {{"Llama-3-8B", 4096, 14336, 32, 8, 128, 128256, 0, 0},
                                   {"Qwen3-30B-A3B", 2048, 768, 32, 4, 128, 151936, 128, 8}};
    int device = 0;
    size_t free_bytes = 0;
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "seconds=", 8)) seconds = atof(argv[i] + 8);
        else if (!strncmp(argv[i], "scale=", 6))
            scale = atol(argv[i] + 6) > 0 ? atol(argv[i] + 6) : 1;
        else if (!strncmp(argv[i], "only=", 5)) only = argv[i] + 5;
        else if (!strncmp(argv[i], "device=", 7)) device = atoi(argv[i] + 7);
        else return fprintf(stderr, "gpu_ops: unknown argument %s\n", argv[i]), 2;
    if (osh_ctx_new(&cx, 1)) return 1;
    if (osh_device_kinds[OSH_GPU].type->free_bytes(cx, &free_bytes, device) ||
        osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], device,
                        (free_bytes - free_bytes / 8) / 512 * 512)) {
        fprintf(stderr, "gpu_ops: %s\n", osh_error_text(cx));
        return 77;
    }
    peaks();
    for (const model &m : models) run(&m);
    gate(cut(TOKENS, 64), cut(7168, 32), cut(256, 16));
    bus(cut(1 << 30, 1 << 16));
    pages((size_t)cut((int64_t)TOKENS * 4096 * 2, 1 << 16));
    osh_device_counters count;
    ok(d->type->count(cx, d, &count), "counters");
    for (int k = 0; k < OSH_N_DETOURS; k++)
        if (count.detours[k])
            printf("FALLBACK %s: %lld\n", osh_detour_text((osh_detour)k),
                   (long long)count.detours[k]);
    osh_device_close(cx, d);
    bool leak = osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return n_failed || leak;
}
