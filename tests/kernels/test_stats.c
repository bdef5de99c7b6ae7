/* test_stats.c - compares hessian_accum, shift_accum, nll and kl with their references. The bytes
 * must not depend on the batch or the number of threads. Also tests the statistics of ops/stat.h,
 * which are summed in groups of samples. */
#include "on_gpu.h"

#include <math.h>

#include "ops/stat.h"

typedef struct fixture {
    osh_ctx *one, *three;
    osh_device *d; // NULL: no GPU
} fixture;

static int setup(void **state)
{
    static fixture f;
    *state = &f;
    if (osh_ctx_new(&f.one, 1) || osh_ctx_new(&f.three, 3)) return 1;
    f.d = gpu_open(f.one, 2 * GPU_BYTES);
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    osh_device_close(f->one, f->d);
    bool leak = osh_mem_live(f->one) || osh_mem_live(f->three);
    osh_ctx_free(f->one);
    osh_ctx_free(f->three);
    return leak;
}

static void hessian_fill(guarded *g, uint64_t stream, bool whole)
{
    if (whole) guarded_whole(g, stream);
    else guarded_fill(g, stream, 1);
}

/* Adds x^T x to H. x [n, width] is a batch of two samples: the rows before `split`, and the other
 * rows. If `whole` is true, x has whole numbers, and H must be exact. */
static void hessian_case(fixture *f, int64_t n, int64_t width, int64_t split, osh_dtype dt,
                         bool whole)
{
    const osh_op *op = &osh_op_hessian_accum;
    guarded x = guarded_new(f->one, dt, 2, n, width), h[3];
    int64_t offsets[3] = {0, split, n};
    osh_seqs seqs = {.n = 2, .offsets = offsets};

    if (!split) offsets[1] = n, seqs.n = 1;
    double tol = whole ? 0 : op->tol + tol_sums(n);
    hessian_fill(&x, 1, whole);
    for (int i = 0; i < 3; i++) {
        h[i] = guarded_new(f->one, OSH_F32, 2, width, width);
        hessian_fill(&h[i], 2, whole);
    }
    osh_op_args a = {.in = {&x.t}, .out = {&h[0].t}, .seqs = &seqs};
    assert_int_equal(op->run[OSH_REF](f->one, &a), OSH_OK);
    a.out[0] = &h[1].t;
    assert_int_equal(osh_op_run(f->three, op, &a), OSH_OK);
    for (int64_t s = 0; s < seqs.n; s++) { // computes H of each sample alone, on one thread
        osh_tensor part = x.t;
        part.data = osh_elem(&x.t, offsets[s] * width);
        part.shape[0] = offsets[s + 1] - offsets[s];
        osh_op_args b = {.in = {&part}, .out = {&h[2].t}};
        assert_int_equal(osh_op_run(f->one, op, &b), OSH_OK);
    }
    /* Elements above the diagonal must not be written. */
    assert_memory_equal(h[1].t.data, h[2].t.data, osh_tensor_bytes(&h[1].t));
    double e = nmse(&h[1].t, &h[0].t);
    if (!(e <= tol)) fail_msg("hessian [%ld, %ld]: NMSE %g, want %g", (long)n, (long)width, e, tol);
    if (f->d && op->run[OSH_CUDA]) { // only the lower triangle of the GPU's H is compared
        float *got = h[2].t.data, *want = h[0].t.data;
        hessian_fill(&h[2], 2, whole);
        a.out[0] = &h[2].t;
        assert_int_equal(gpu_run(f->one, f->d, op, &a, op->arena_bytes(NULL, &width, 0, n, dt)),
                         OSH_OK);
        for (int64_t i = 0; i < width; i++)
            memcpy(got + i * width + i + 1, want + i * width + i + 1,
                   (size_t)(width - 1 - i) * sizeof *got);
        e = nmse(&h[2].t, &h[0].t);
        if (!(e <= tol))
            fail_msg("hessian [%ld, %ld] on the GPU: NMSE %g, want %g", (long)n, (long)width, e,
                     tol);
    }
    guarded_check(&x), guarded_free(f->one, &x);
    for (int i = 0; i < 3; i++) guarded_check(&h[i]), guarded_free(f->one, &h[i]);
}

static void test_hessian(void **state)
{
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};
    for (int d = 0; d < 6; d++) {
        osh_dtype dt = dts[d % 3];
        hessian_case(*state, 1, 1, 0, dt, d > 2);
        hessian_case(*state, 7, 7, 3, dt, d > 2);
        hessian_case(*state, 129, 129, 1, dt, d > 2);
        hessian_case(*state, 700, 257, 600, dt, d > 2);
        // 2100 rows: more than one panel (OSH_GEMM_PANEL rows)
        hessian_case(*state, 2100, 9, 2050, dt, d > 2);
        hessian_case(*state, 130, 576, 0, dt, d > 2);
    }
    for (int whole = 0; whole < 2; whole++) {
        // the sums are so long that a tensor core truncates them
        hessian_case(*state, 16400, 5, 16390, OSH_BF16, whole);
        // H has 2100 rows, so the GPU computes it in several bands of rows
        hessian_case(*state, 3, 2100, 1, OSH_BF16, whole);
    }
}

/* Checks shift_accum on the inputs x and x0 [n, width], as hessian_case checks hessian_accum. If x
 * and x0 are equal, nothing may be added. */
static void shift_case(fixture *f, int64_t n, int64_t width, int64_t split, osh_dtype dt)
{
    const osh_op *op = &osh_op_shift_accum;
    guarded x = guarded_new(f->one, dt, 2, n, width), x0 = guarded_new(f->one, dt, 2, n, width),
            d[4];
    int64_t offsets[3] = {0, split, n};
    osh_seqs seqs = {.n = 2, .offsets = offsets};

    if (!split) offsets[1] = n, seqs.n = 1;
    guarded_fill(&x, 1, 1), guarded_fill(&x0, 3, 1);
    for (int i = 0; i < 4; i++) {
        d[i] = guarded_new(f->one, OSH_F32, 2, width, width);
        guarded_fill(&d[i], 2, 1);
    }
    osh_op_args a = {.in = {&x.t, &x0.t}, .out = {&d[0].t}, .seqs = &seqs};
    assert_int_equal(op->run[OSH_REF](f->one, &a), OSH_OK);
    a.out[0] = &d[1].t;
    assert_int_equal(osh_op_run(f->three, op, &a), OSH_OK);
    for (int64_t s = 0; s < seqs.n; s++) { // computes D of each sample alone, on one thread
        osh_tensor part = x.t, part0 = x0.t;
        part.data = osh_elem(&x.t, offsets[s] * width),
        part0.data = osh_elem(&x0.t, offsets[s] * width);
        part.shape[0] = part0.shape[0] = offsets[s + 1] - offsets[s];
        osh_op_args b = {.in = {&part, &part0}, .out = {&d[2].t}};
        assert_int_equal(osh_op_run(f->one, op, &b), OSH_OK);
    }
    assert_memory_equal(d[1].t.data, d[2].t.data, osh_tensor_bytes(&d[1].t));
    double e = nmse(&d[1].t, &d[0].t);
    if (!(e <= op->tol + tol_sums(n)))
        fail_msg("shift [%ld, %ld]: NMSE %g", (long)n, (long)width, e);
    osh_op_args same = {.in = {&x.t, &x.t}, .out = {&d[2].t}, .seqs = &seqs};
    assert_int_equal(osh_op_run(f->three, op, &same), OSH_OK);
    assert_memory_equal(d[1].t.data, d[2].t.data, osh_tensor_bytes(&d[1].t));
    if (f->d && op->run[OSH_CUDA]) {
        a.out[0] = &d[3].t;
        size_t scratch = op->arena_bytes(NULL, (int64_t[]){width}, 0, n, dt);
        assert_int_equal(gpu_run(f->one, f->d, op, &a, scratch), OSH_OK);
        e = nmse(&d[3].t, &d[0].t);
        if (!(e <= op->tol + tol_sums(n)))
            fail_msg("shift [%ld, %ld] on the GPU: NMSE %g", (long)n, (long)width, e);
    }
    guarded_check(&x), guarded_free(f->one, &x), guarded_check(&x0), guarded_free(f->one, &x0);
    for (int i = 0; i < 4; i++) guarded_check(&d[i]), guarded_free(f->one, &d[i]);
}

/* Checks the smallest and the largest value of each channel of x [n, width]. The result must be
 * exact for any batch and number of threads. */
static void range_case(fixture *f, int64_t n, int64_t width, int64_t split, osh_dtype dt)
{
    const osh_op *op = &osh_op_channel_range;
    guarded x = guarded_new(f->one, dt, 2, n, width), r[3];
    guarded_fill(&x, 1, 1);
    for (int i = 0; i < 3; i++) {
        r[i] = guarded_new(f->one, OSH_F32, 2, 2, width);
        float *at = r[i].t.data;
        for (int64_t c = 0; c < width; c++)
            at[c] = c % 2 ? INFINITY : -0.25f, at[width + c] = -at[c];
    }
    osh_op_args a = {.in = {&x.t}, .out = {&r[0].t}};
    assert_int_equal(op->run[OSH_REF](f->one, &a), OSH_OK);
    a.out[0] = &r[1].t;
    assert_int_equal(osh_op_run(f->three, op, &a), OSH_OK);
    for (int64_t s = 0; s < 2; s++) { // adds the second sample first
        osh_tensor part = x.t;
        part.data = osh_elem(&x.t, s ? 0 : split * width), part.shape[0] = s ? split : n - split;
        osh_op_args b = {.in = {&part}, .out = {&r[2].t}};
        assert_int_equal(osh_op_run(f->one, op, &b), OSH_OK);
    }
    for (int i = 1; i < 3; i++)
        assert_memory_equal(r[i].t.data, r[0].t.data, osh_tensor_bytes(&r[0].t));
    for (int k = 0; f->d && k < gpu_orders(); k++) {
        float *at = r[2].t.data;
        for (int64_t c = 0; c < width; c++)
            at[c] = c % 2 ? INFINITY : -0.25f, at[width + c] = -at[c];
        gpu_order(k);
        a.out[0] = &r[2].t;
        assert_int_equal(gpu_run(f->one, f->d, op, &a, 0), OSH_OK);
        assert_memory_equal(r[2].t.data, r[0].t.data, osh_tensor_bytes(&r[0].t));
    }
    float *got = r[0].t.data, lo = got[0], hi = got[width]; // compares channel 0 with a simple loop
    for (int64_t i = 0; i < n; i++) {
        float v;
        osh_to_f32(&v, osh_elem(&x.t, i * width), dt, 1);
        assert_true(v >= lo && v <= hi);
    }
    guarded_check(&x), guarded_free(f->one, &x);
    for (int i = 0; i < 3; i++) guarded_check(&r[i]), guarded_free(f->one, &r[i]);
}

static void test_channel_range(void **state)
{
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};
    for (int d = 0; d < 3; d++) {
        range_case(*state, 1, 1, 0, dts[d]);
        range_case(*state, 7, 7, 3, dts[d]);
        range_case(*state, 129, 129, 1, dts[d]);
        range_case(*state, 70, 576, 60, dts[d]);
        range_case(*state, 300, 40, 60, dts[d]); // 300 rows are several blocks of the kernel
    }
}

/* Checks sums of |x| over 40,000 tokens. Each |x| is near 1, so a plain f32 sum would have an error
 * of 0.1 %. The sums must be within half a unit in the last place of the sum in double. In two
 * batches and on three threads, the sums must have the same bytes. */
static void test_channel_sum(void **state)
{
    if (gpu_alone()) return;
    enum { TOKENS = 40000, WIDTH = 300 };
    fixture *f = *state;
    const osh_op *op = &osh_op_channel_sum;
    guarded x = guarded_new(f->one, OSH_F32, 2, TOKENS, WIDTH), s[3];
    guarded_fill(&x, 1, 1);
    float *at = x.t.data;
    for (int64_t i = 0; i < (int64_t)TOKENS * WIDTH; i++)
        at[i] = at[i] < 0 ? at[i] * 0.001f - 1 : at[i] * 0.001f + 1;
    for (int i = 0; i < 3; i++) {
        s[i] = guarded_new(f->one, OSH_F32, 2, 2, WIDTH);
        memset(s[i].t.data, 0, osh_tensor_bytes(&s[i].t));
    }
    osh_op_args a = {.in = {&x.t}, .out = {&s[0].t}};
    assert_int_equal(op->run[OSH_REF](f->one, &a), OSH_OK);
    a.out[0] = &s[1].t;
    assert_int_equal(osh_op_run(f->three, op, &a), OSH_OK);
    for (int part = 0; part < 2; part++) {
        osh_tensor rows = x.t;
        rows.data = osh_elem(&x.t, part ? 77 * WIDTH : 0), rows.shape[0] = part ? TOKENS - 77 : 77;
        osh_op_args b = {.in = {&rows}, .out = {&s[2].t}};
        assert_int_equal(osh_op_run(f->one, op, &b), OSH_OK);
    }
    assert_memory_equal(s[1].t.data, s[2].t.data, osh_tensor_bytes(&s[1].t));
    const float *want = s[0].t.data, *got = s[1].t.data;
    for (int c = 0; c < WIDTH; c++) {
        double w = (double)want[c] - want[WIDTH + c], g = (double)got[c] - got[WIDTH + c];
        if (!(fabs(w - g) <= w * ldexp(1, -24))) fail_msg("channel %d: %.9g, want %.9g", c, g, w);
    }
    guarded_check(&x), guarded_free(f->one, &x);
    for (int i = 0; i < 3; i++) guarded_check(&s[i]), guarded_free(f->one, &s[i]);
}

/* Checks sums of |x| of each channel on the GPU, in two batches, against the host's sums in
 * double. */
static void sum_case(fixture *f, int64_t n, int64_t width, osh_dtype dt)
{
    guarded x = guarded_new(f->one, dt, 2, n, width),
            s = guarded_new(f->one, OSH_F32, 2, 2, width);
    guarded_fill(&x, 1, 1);
    for (int k = 0; f->d && k < gpu_orders(); k++) {
        memset(s.t.data, 0, osh_tensor_bytes(&s.t));
        gpu_order(k);
        for (int64_t row = 0, end; row < n; row = end) {
            osh_tensor part = x.t;
            end = row ? n : osh_div_up(n, 3);
            part.data = osh_elem(&x.t, row * width), part.shape[0] = end - row;
            osh_op_args a = {.in = {&part}, .out = {&s.t}};
            assert_int_equal(gpu_run(f->one, f->d, &osh_op_channel_sum, &a, 0), OSH_OK);
        }
        for (int64_t c = 0; c < width; c++) {
            const float *got = (float *)s.t.data + c;
            double sum = 0;
            for (int64_t i = c; i < n * width; i += width) sum += fabs(value_at(&x.t, i));
            if (!(fabs((double)got[0] - got[width] - sum) <= sum * ldexp(1, -40)))
                fail_msg("|x| of channel %ld: %.12g, want %.12g", (long)c, got[0], sum);
        }
    }
    guarded_check(&x), guarded_free(f->one, &x);
    guarded_check(&s), guarded_free(f->one, &s);
}

static void test_sum_on_gpu(void **state)
{
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};
    for (int d = 0; d < 3; d++) {
        sum_case(*state, 1, 1, dts[d]);
        sum_case(*state, 17, 33, dts[d]);
        sum_case(*state, 129, 70, dts[d]);
    }
}

/* Checks the sums of squares s [I] of x on the GPU. The GPU adds in another order than the host. */
static void squares_on_gpu(fixture *f, const osh_tensor *x, const double *want)
{
    int64_t I = osh_width(x);
    const osh_op *op = &osh_op_channel_squares;
    double *got = osh_calloc(f->one, 2 * (size_t)I, sizeof *got);
    for (int k = 0; f->d && k < gpu_orders(); k++) {
        osh_tensor s = osh_tensor_view(OSH_F64, 1, &I, got + k * I);
        osh_op_args a = {.in = {x}, .out = {&s}};
        gpu_order(k);
        size_t scratch = op->arena_bytes(NULL, &I, 0, osh_rows(x), x->dtype);
        assert_int_equal(gpu_run(f->one, f->d, op, &a, scratch), OSH_OK);
        assert_memory_equal(got + k * I, got, (size_t)I * sizeof *got);
        for (int64_t i = 0; i < I; i++) assert_true(fabs(got[i] - want[i]) <= 1e-13 * want[i]);
    }
    osh_free(f->one, got);
}

/* Checks the sum of squares of each channel. This sum is computed in double, in the order of the
 * tokens. On the CPU, the bits must not depend on batches or threads. */
static void test_channel_squares(void **state)
{
    enum { N = 330, I = 577, SPLIT = 9 };
    fixture *f = *state;
    const osh_op *op = &osh_op_channel_squares;
    for (int d = 0; d < 3; d++) {
        guarded x = guarded_new(f->one, (osh_dtype[]){OSH_F32, OSH_BF16, OSH_F16}[d], 2, N, I);
        double want[I] = {0}, got[2][I] = {{0}};
        guarded_fill(&x, 1, 1);
        for (int64_t i = 0; i < N * I; i++) {
            float v;
            osh_to_f32(&v, osh_elem(&x.t, i), x.t.dtype, 1);
            want[i % I] += (double)v * v;
        }
        squares_on_gpu(f, &x.t, want);
        osh_tensor s = osh_tensor_view(OSH_F64, 1, (int64_t[]){I}, got[0]), part = x.t;
        osh_op_args a = {.in = {&x.t}, .out = {&s}}, b = {.in = {&part}, .out = {&s}};
        assert_int_equal(osh_op_run(f->three, op, &a), OSH_OK);
        s.data = got[1];
        part.shape[0] = SPLIT;
        assert_int_equal(osh_op_run(f->one, op, &b), OSH_OK);
        part.shape[0] = N - SPLIT, part.data = osh_elem(&x.t, SPLIT * I);
        assert_int_equal(op->run[OSH_REF](f->one, &b), OSH_OK);
        assert_memory_equal(got[0], want, sizeof want);
        assert_memory_equal(got[1], want, sizeof want);
        guarded_check(&x), guarded_free(f->one, &x);
    }
}

/* Checks the op token_peaks. Each token adds its largest square to one sum, in the order of the
 * tokens. The bits must not depend on batches or threads. */
static void test_token_peaks(void **state)
{
    if (gpu_alone()) return;
    enum { N = 1100, I = 577, SPLIT = 9 };
    fixture *f = *state;
    const osh_op *op = &osh_op_token_peaks;
    for (int d = 0; d < 3; d++) {
        guarded x = guarded_new(f->one, (osh_dtype[]){OSH_F32, OSH_BF16, OSH_F16}[d], 2, N, I);
        double want = 0, got[2] = {0};
        guarded_fill(&x, 1, 1);
        for (int64_t t = 0; t < N; t++) {
            double most = 0;
            for (int64_t i = 0; i < I; i++) {
                float v;
                osh_to_f32(&v, osh_elem(&x.t, t * I + i), x.t.dtype, 1);
                if ((double)v * v > most) most = (double)v * v;
            }
            want += most;
        }
        osh_tensor s = osh_tensor_view(OSH_F64, 1, (int64_t[]){1}, &got[0]), part = x.t;
        osh_op_args a = {.in = {&x.t}, .out = {&s}}, b = {.in = {&part}, .out = {&s}};
        assert_int_equal(osh_op_run(f->three, op, &a), OSH_OK);
        s.data = &got[1];
        part.shape[0] = SPLIT;
        assert_int_equal(osh_op_run(f->one, op, &b), OSH_OK);
        part.shape[0] = N - SPLIT, part.data = osh_elem(&x.t, SPLIT * I);
        assert_int_equal(op->run[OSH_REF](f->one, &b), OSH_OK);
        assert_true(got[0] == want && got[1] == want);
        guarded_check(&x), guarded_free(f->one, &x);
    }
}

/* Checks the op `mix`. The op takes each element from one of two inputs; a random number decides
 * which. The bits must not depend on batches or threads. */
static void test_mix(void **state)
{
    enum { N = 70, I = 577, SPLIT = 9, FIRST = 4 };
    fixture *f = *state;
    const osh_op *op = &osh_op_mix;
    const int64_t offsets[] = {0, SPLIT, N}, samples[] = {FIRST, FIRST + 1};
    const osh_seqs whole = {2, offsets}, second = {1, (int64_t[]){0, N - SPLIT}};
    for (int d = 0; d < 3; d++) {
        osh_dtype dt = (osh_dtype[]){OSH_F32, OSH_BF16, OSH_F16}[d];
        guarded x[4];
        for (int i = 0; i < 4; i++)
            x[i] = guarded_new(f->one, dt, 2, N, I), guarded_fill(&x[i], (uint64_t)i, 1);
        osh_mix_attr at = {.key = osh_mix_key(SEED, 3, 1), .share = 0.25, .first_sample = FIRST},
                     by = at;
        by.samples = samples, by.first_sample = 0;
        osh_op_args a = {.in = {&x[0].t, &x[1].t}, .out = {&x[2].t}, .attr = &at, .seqs = &whole},
                    b = a;
        assert_int_equal(osh_op_run(f->three, op, &a), OSH_OK);
        int64_t first = 0;
        for (int64_t i = 0; i < N * I; i++) {
            int64_t row = i / I, sample = FIRST + (row >= SPLIT),
                    at_row = row >= SPLIT ? row - SPLIT : row;
            uint64_t u =
                osh_rng_u64(at.key, (uint64_t)sample, (uint64_t)(at_row * I + i % I)) >> 40;
            bool of_x = u < 1 << 22;
            assert_true(value_at(&x[2].t, i) == value_at(&x[of_x ? 0 : 1].t, i));
            first += of_x;
        }
        // On average a quarter of the `N * I` elements is from the first input. The standard
        // deviation of their number is 87.
        assert_in_range(first, N * I / 4 - 400, N * I / 4 + 400);
        b.out[0] = &x[3].t, b.attr = &by;
        assert_int_equal(op->run[OSH_REF](f->one, &b), OSH_OK);
        assert_memory_equal(x[3].t.data, x[2].t.data, osh_tensor_bytes(&x[2].t));
        if (f->d) {
            memset(x[3].t.data, 0, osh_tensor_bytes(&x[3].t));
            assert_int_equal(gpu_run(f->one, f->d, op, &b, 0), OSH_OK);
            assert_memory_equal(x[3].t.data, x[2].t.data, osh_tensor_bytes(&x[2].t));
        }
        // runs only the second sample, and overwrites the input with the output
        osh_tensor part[2] = {x[0].t, x[1].t};
        for (int i = 0; i < 2; i++)
            part[i].shape[0] = N - SPLIT, part[i].data = osh_elem(&x[i].t, SPLIT * I);
        at.first_sample = FIRST + 1;
        osh_op_args c = {
            .in = {&part[0], &part[1]}, .out = {&part[0]}, .attr = &at, .seqs = &second};
        assert_int_equal(osh_op_run(f->one, op, &c), OSH_OK);
        assert_memory_equal(part[0].data, osh_elem(&x[2].t, SPLIT * I), osh_tensor_bytes(&part[0]));
        for (int i = 0; i < 4; i++) guarded_check(&x[i]), guarded_free(f->one, &x[i]);
    }
}

static void test_shift(void **state)
{
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};
    for (int d = 0; d < 3; d++) {
        shift_case(*state, 1, 1, 0, dts[d]);
        shift_case(*state, 7, 7, 3, dts[d]);
        shift_case(*state, 129, 129, 1, dts[d]);
        shift_case(*state, 700, 257, 600, dts[d]);
        // 2100 rows: more than one panel (OSH_GEMM_PANEL rows)
        shift_case(*state, 2100, 9, 2050, dts[d]);
    }
    shift_case(*state, 4500, 5, 4390, OSH_BF16); // the GPU computes D in several chunks
    /* The GPU computes D in two panels of at most 2048 rows. */
    shift_case(*state, 3, 2100, 1, OSH_BF16);
}

enum { SHARP = 8 }; // amplitude of x, large enough that logits differ
static const osh_tensor some; // marks attributes that need a bias; bias_take makes the bias
static const osh_vocab_attr capped = {{{0, 4}, {0, 4}}}, divided = {{{3, 0}, {3, 0}}},
                            mixed = {{{3, 0}, {2, 4}}}, biased = {.bias = {&some, &some}},
                            mixed_bias = {{{3, 0}, {2, 4}}, {&some, NULL}};

/* Makes `bias` [V] of dtype dt, which the caller owns. Returns `at` if its attributes have no bias.
 * Otherwise returns *own, a copy of `at` in which `bias` replaces the marker `some`. */
static const osh_vocab_attr *bias_take(fixture *f, osh_vocab_attr *own, guarded *bias,
                                       const osh_vocab_attr *at, osh_dtype dt, int64_t V)
{
    *bias = guarded_new(f->one, dt, 1, V, 0);
    if (!at || !at->bias[0]) return at;
    guarded_fill(bias, 7, 5);
    *own = *at;
    for (int m = 0; m < 2; m++) own->bias[m] = at->bias[m] ? &bias->t : NULL;
    return own;
}

/* Runs the op nll or kl on the GPU. The biases of its attributes are copied to the GPU. */
static osh_status gpu_run_vocab(fixture *f, const osh_op *op, const osh_op_args *a, size_t scratch)
{
    osh_op_args on = *a;
    osh_vocab_attr at;
    gpu_copy_of bias;
    const osh_vocab_attr *own = a->attr;
    bool has = own && own->bias[0];
    if (has) {
        bias = gpu_put(f->one, f->d, own->bias[0]);
        at = *own, on.attr = &at;
        for (int m = 0; m < 2; m++) at.bias[m] = own->bias[m] ? &bias.t : NULL;
    }
    osh_status rc = gpu_run(f->one, f->d, op, &on, scratch);
    if (has) gpu_take(f->one, NULL, &bias);
    return rc;
}
/* Runs nll on the GPU. The result must be near `want`. Its bytes must depend neither on the order
 * of the threads nor on the other samples of the batch. */
static void nll_on(fixture *f, const osh_op_args *a, const osh_tensor *want)
{
    const osh_op *op = &osh_op_nll;
    const osh_tensor *x = a->in[0];
    int64_t n = osh_rows(x), D = osh_width(x), V = a->in[1]->shape[0];
    guarded y[2] = {guarded_new(f->one, OSH_F32, 1, n, 0), guarded_new(f->one, OSH_F32, 1, n, 0)};
    osh_op_args on = *a;

    for (int k = 0; k < gpu_orders(); k++) {
        on.out[0] = &y[k > 0].t;
        /* The output contains NaN before the call. So the test sees that every row is written, even
         * rows without a score. */
        memset(y[k > 0].t.data, 0xff, osh_tensor_bytes(want));
        gpu_order(k);
        if (gpu_run_vocab(f, op, &on, op->arena_bytes(a->attr, (int64_t[]){D}, V, n, OSH_F32)))
            fail_msg("%s", osh_error_text(f->one));
        if (k) assert_memory_equal(y[0].t.data, y[1].t.data, osh_tensor_bytes(want));
    }
    for (int64_t s = 0; s < a->seqs->n; s++) {
        int64_t row = a->seqs->offsets[s], rows = a->seqs->offsets[s + 1] - row;
        osh_tensor px = *x, pt = *a->in[2], py = y[1].t;
        px.data = osh_elem(&px, row * D), pt.data = osh_elem(&pt, row),
        py.data = osh_elem(&py, row);
        px.shape[0] = pt.shape[0] = py.shape[0] = rows;
        osh_op_args b = {.in = {&px, a->in[1], &pt}, .out = {&py}, .attr = a->attr};
        assert_int_equal(gpu_run_vocab(f, op, &b, SIZE_MAX / 2), OSH_OK);
    }
    strict(!memcmp(y[0].t.data, y[1].t.data, osh_tensor_bytes(want)),
           nmse(&y[1].t, want) <= tol_of(op->tol, x->dtype),
           "a sample alone has the NLL that it has in its batch",
           "A product's algorithm follows from the batch: perplexities differ in the last digits "
           "by --batch-size.");
    double e = nmse(&y[0].t, want);
    if (!(e <= tol_of(op->tol, x->dtype)))
        fail_msg("nll [%ld, %ld, %ld] on the GPU: NMSE %g", (long)n, (long)D, (long)V, e);
    for (int i = 0; i < 2; i++) guarded_check(&y[i]), guarded_free(f->one, &y[i]);
}

static void nll_case(fixture *f, int64_t n, int64_t D, int64_t V, int64_t split, osh_dtype dt,
                     const osh_vocab_attr *at)
{
    const osh_op *op = &osh_op_nll;
    guarded x = guarded_new(f->one, dt, 2, n, D), w = guarded_new(f->one, dt, 2, V, D),
            t = guarded_new(f->one, OSH_I32, 1, n, 0);
    guarded y[3], bias;
    osh_vocab_attr own;
    int64_t offsets[3] = {0, split, n};
    osh_seqs seqs = {.n = 2, .offsets = offsets};

    at = bias_take(f, &own, &bias, at, dt, V);
    if (!split) offsets[1] = n, seqs.n = 1;
    guarded_fill(&x, 1, SHARP), guarded_fill(&w, 2, 0.5f);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)t.t.data)[i] =
            i % 5 == 4
                ? -1
                : (int32_t)(i == 0 ? V - 1
                                   : (int64_t)(osh_rng_u64(SEED, 3, (uint64_t)i) % (uint64_t)V));
    for (int i = 0; i < 3; i++) y[i] = guarded_new(f->one, OSH_F32, 1, n, 0);
    osh_op_args a = {.in = {&x.t, &w.t, &t.t}, .out = {&y[0].t}, .seqs = &seqs};
    assert_int_equal(op->run[OSH_REF](f->one, &a), OSH_OK);
    a.attr = at, a.out[0] = &y[1].t;
    assert_int_equal(op->run[OSH_REF](f->one, &a), OSH_OK);
    if (at) assert_true(nmse(&y[0].t, &y[1].t) > 1e-3);
    memcpy(y[0].t.data, y[1].t.data, osh_tensor_bytes(&y[0].t));
    a.out[0] = &y[1].t;
    assert_int_equal(osh_op_run(f->three, op, &a), OSH_OK);
    for (int64_t s = 0; s < seqs.n; s++) {
        int64_t row = offsets[s], rows = offsets[s + 1] - row;
        osh_tensor px = x.t, pt = t.t, py = y[2].t;
        px.data = osh_elem(&px, row * D), pt.data = osh_elem(&pt, row),
        py.data = osh_elem(&py, row);
        px.shape[0] = pt.shape[0] = py.shape[0] = rows;
        osh_op_args b = {.in = {&px, &w.t, &pt}, .out = {&py}, .attr = at};
        assert_int_equal(osh_op_run(f->one, op, &b), OSH_OK);
    }
    assert_memory_equal(y[1].t.data, y[2].t.data, osh_tensor_bytes(&y[1].t));
    double e = nmse(&y[1].t, &y[0].t);
    if (!(e <= tol_of(op->tol, dt)))
        fail_msg("nll [%ld, %ld, %ld]: NMSE %g", (long)n, (long)D, (long)V, e);
    if (f->d) nll_on(f, &a, &y[0].t);
    guarded_check(&x), guarded_check(&w), guarded_check(&t);
    guarded_free(f->one, &x), guarded_free(f->one, &w), guarded_free(f->one, &t);
    guarded_check(&bias), guarded_free(f->one, &bias);
    for (int i = 0; i < 3; i++) guarded_check(&y[i]), guarded_free(f->one, &y[i]);
}

static void test_nll(void **state)
{
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};
    int n_dts = gpu_looks_at_addresses() ? 2 : 3;
    for (int d = 0; d < n_dts; d++) {
        nll_case(*state, 1, 1, 1, 0, dts[d], NULL);
        nll_case(*state, 7, 7, 7, 3, dts[d], NULL);
        nll_case(*state, 129, 129, 129, 100, dts[d], NULL);
        nll_case(*state, 129, 129, 129, 100, dts[d], &capped);
        nll_case(*state, 40, 65, 303, 8, dts[d], &divided);
        nll_case(*state, 40, 65, 303, 8, dts[d], &biased);
        nll_case(*state, 9, 16, 2100, 3, dts[d], &mixed_bias);
        // 600 rows are two panels (of 512 rows); the vocabulary has six blocks
        nll_case(*state, 600, 9, 1000, 520, dts[d], NULL);
        nll_case(*state, 40, 64, 5003, 0, dts[d], NULL);
    }
    // on a GPU, the second sample has two panels (vocab.cuh)
    nll_case(*state, 1100, 9, 70, 30, OSH_BF16, NULL);
}

/* For a target outside the vocabulary, the GPU returns NaN, whatever bytes come after the last
 * block in memory. The results of the neighbouring tokens are not NaN. */
static void test_nll_past(void **state)
{
    fixture *f = *state;
    enum { N = 3 };
    const int64_t sizes[] = {70, 2048, 2100};
    for (int k = 0; f->d && k < 3; k++) {
        const osh_op *op = &osh_op_nll;
        int64_t V = sizes[k], D = 9, offsets[2] = {0, N};
        osh_seqs seqs = {.n = 1, .offsets = offsets};
        guarded x = guarded_new(f->one, OSH_F32, 2, N, D),
                w = guarded_new(f->one, OSH_F32, 2, V, D),
                t = guarded_new(f->one, OSH_I32, 1, N, 0),
                y = guarded_new(f->one, OSH_F32, 1, N, 0);
        guarded_fill(&x, 1, 1), guarded_fill(&w, 2, 1);
        memcpy(t.t.data, (int32_t[N]){0, (int32_t)V, (int32_t)V - 1}, N * sizeof(int32_t));
        osh_op_args a = {.in = {&x.t, &w.t, &t.t}, .out = {&y.t}, .seqs = &seqs};
        assert_int_equal(gpu_run(f->one, f->d, op, &a, SIZE_MAX / 2), OSH_OK);
        const float *nll = y.t.data;
        assert_true(isfinite(nll[0]) && isnan(nll[1]) && isfinite(nll[2]));
        guarded_free(f->one, &x), guarded_free(f->one, &w), guarded_free(f->one, &t),
            guarded_free(f->one, &y);
    }
}

/* Among tokens with equal logits, kl prefers the lowest id, even if the tokens are in different
 * blocks. */
static void test_kl_ties(void **state)
{
    fixture *f = *state;
    enum { N = 3, V = 5003 };
    const osh_op *op = &osh_op_kl;
    int64_t offsets[2] = {0, N};
    osh_seqs seqs = {.n = 1, .offsets = offsets};
    guarded in[4], kl = guarded_new(f->one, OSH_F32, 1, N, 0),
                   same = guarded_new(f->one, OSH_F32, 1, N, 0);
    const int best[] = {0, 1, 2047, 2048, V - 1};
    for (int i = 0; i < 4; i++) {
        in[i] = guarded_new(f->one, OSH_F32, 2, i % 2 ? V : N, 1);
        for (int64_t v = 0; v < (i % 2 ? V : N); v++)
            ((float *)in[i].t.data)[v] = i == 3 ? 0.25f : 1;
    }
    osh_op_args a = {
        .in = {&in[0].t, &in[1].t, &in[2].t, &in[3].t}, .out = {&kl.t, &same.t}, .seqs = &seqs};
    for (int k = 0; k < 5; k++)
        for (int on_gpu = 0; on_gpu <= (f->d != NULL); on_gpu++) {
            float *w_ref = in[3].t.data;
            w_ref[best[k]] = 1;
            if (on_gpu) assert_int_equal(gpu_run(f->one, f->d, op, &a, SIZE_MAX / 2), OSH_OK);
            else assert_int_equal(osh_op_run(f->one, op, &a), OSH_OK);
            for (int r = 0; r < N; r++) assert_true(((float *)same.t.data)[r] == (k ? 0.0f : 1.0f));
            w_ref[best[k]] = 0.25f;
        }
    for (int i = 0; i < 4; i++) guarded_free(f->one, &in[i]);
    guarded_free(f->one, &kl), guarded_free(f->one, &same);
}

static size_t kl_scratch(const osh_vocab_attr *at, int64_t n, int64_t D, int64_t D2, int64_t V)
{
    return osh_op_kl.arena_bytes(at, (int64_t[]){D, D, D2, D2}, V, n, OSH_F32);
}

static void kl_case(fixture *f, int64_t n, int64_t D, int64_t D2, int64_t V, int64_t split,
                    osh_dtype dt, osh_dtype dt_ref, const osh_vocab_attr *at)
{
    const osh_op *op = &osh_op_kl;
    guarded in[4] = {guarded_new(f->one, dt, 2, n, D), guarded_new(f->one, dt, 2, V, D),
                     guarded_new(f->one, dt_ref, 2, n, D2), guarded_new(f->one, dt_ref, 2, V, D2)};
    enum { MOST = 2 + GPU_ORDERS };
    // y[run]: results of the reference (run 0), of the CPU (run 1), and of the GPU in several
    // orders of the threads
    guarded y[MOST][2];
    int n_runs = f->d ? 2 + gpu_orders() : 2;
    guarded bias;
    osh_vocab_attr own;
    int64_t offsets[3] = {0, split, n};
    osh_seqs seqs = {.n = 2, .offsets = offsets};

    at = bias_take(f, &own, &bias, at, dt, V);
    for (int i = 0; i < 4; i++) guarded_fill(&in[i], (uint64_t)i % 2, i % 2 ? 0.5f : 4);
    for (int i = 0; i < n_runs; i++) {
        y[i][0] = guarded_new(f->one, OSH_F32, 1, n, 0),
        y[i][1] = guarded_new(f->one, OSH_F32, 1, n, 0);
        osh_op_args a = {.in = {&in[0].t, &in[1].t, &in[2].t, &in[3].t},
                         .out = {&y[i][0].t, &y[i][1].t},
                         .attr = at,
                         .seqs = &seqs};
        if (i > 1) gpu_order(i - 2);
        if (i > 1)
            assert_int_equal(gpu_run_vocab(f, op, &a, kl_scratch(at, n, D, D2, V)), OSH_OK);
        else
            assert_int_equal(i ? osh_op_run(f->three, op, &a) : op->run[OSH_REF](f->one, &a),
                             OSH_OK);
    }
    for (int i = 1; i < n_runs; i++) {
        const float *kl = y[i][0].t.data, *want = y[0][0].t.data;
        // kl may be a difference of large numbers, so the tolerance is large
        for (int64_t r = 0; r < n; r++)
            if (!(fabsf(kl[r] - want[r]) <= 1e-5f + 1e-4f * fabsf(want[r])))
                fail_msg("kl [%ld, %ld, %ld] row %ld: %g, want %g", (long)n, (long)D, (long)V,
                         (long)r, kl[r], want[r]);
        if (dt == OSH_F32)
            assert_memory_equal(y[0][1].t.data, y[i][1].t.data, osh_tensor_bytes(&y[0][1].t));
        if (i > 2) assert_memory_equal(y[2][0].t.data, kl, osh_tensor_bytes(&y[2][0].t));
        for (int64_t r = 0; D == D2 && dt == dt_ref && r < n; r++) {
            assert_true(fabsf(kl[r]) < 1e-6f);
            assert_true(((float *)y[i][1].t.data)[r] > 0.5f);
        }
    }
    for (int i = 0; i < 4; i++) guarded_check(&in[i]), guarded_free(f->one, &in[i]);
    guarded_check(&bias), guarded_free(f->one, &bias);
    for (int i = 0; i < 2 * n_runs; i++)
        guarded_check(&y[i / 2][i % 2]), guarded_free(f->one, &y[i / 2][i % 2]);
}

static void test_kl(void **state)
{
    kl_case(*state, 2, 1, 1, 1, 1, OSH_F32, OSH_F32, NULL);
    kl_case(*state, 7, 7, 5, 7, 3, OSH_F32, OSH_F32, NULL);
    kl_case(*state, 129, 17, 129, 129, 100, OSH_F32, OSH_F32, NULL);
    kl_case(*state, 129, 17, 129, 129, 100, OSH_F32, OSH_F32, &mixed);
    kl_case(*state, 600, 9, 8, 1000, 520, OSH_F32, OSH_F32, NULL);
    // both models are equal, so kl is 0
    kl_case(*state, 40, 64, 64, 5003, 8, OSH_BF16, OSH_BF16, NULL);
    kl_case(*state, 40, 64, 64, 303, 8, OSH_BF16, OSH_BF16, &capped);
    kl_case(*state, 40, 64, 33, 5003, 8, OSH_F32, OSH_F16, NULL);
    kl_case(*state, 40, 17, 33, 2100, 8, OSH_F32, OSH_F32, &biased);
    kl_case(*state, 40, 17, 33, 303, 8, OSH_BF16, OSH_F32, &mixed_bias);
}

/* ---- statistics in groups of samples ---- */

enum { SAMPLES = 11, WIDTH = 37, LONGEST = 19 };
typedef struct fed { // inputs of samples; the inputs are added to statistics
    guarded x, x0, route;
    int64_t offsets[SAMPLES + 1];
} fed;

static void fed_init(fixture *f, fed *s)
{
    for (int k = 0; k < SAMPLES; k++) // sample 4 has no tokens
        s->offsets[k + 1] = s->offsets[k] + (k == 4 ? 0 : 1 + k * 7 % LONGEST);
    int64_t n = s->offsets[SAMPLES];
    s->x = guarded_new(f->one, OSH_BF16, 2, n, WIDTH),
    s->x0 = guarded_new(f->one, OSH_BF16, 2, n, WIDTH);
    s->route = guarded_new(f->one, OSH_BF16, 2, n, WIDTH);
    guarded_fill(&s->x, 1, 3), guarded_fill(&s->x0, 2, 3), guarded_fill(&s->route, 3, 1);
    for (int64_t i = 0; i < n * WIDTH; i += 3) memset(osh_elem(&s->route.t, i), 0, 2);
}

static void fed_free(fixture *f, fed *s)
{
    guarded_free(f->one, &s->x), guarded_free(f->one, &s->x0), guarded_free(f->one, &s->route);
}

/* Adds the range or the sum of sample k to the statistic `to`, as a collector does. n is the width
 * of the statistic. */
static void add_sample(const osh_stat_type *t, osh_tensor *to, const fed *s, int64_t k)
{
    int64_t n = to->shape[to->ndim - 1], first = s->offsets[k] * WIDTH,
            end = s->offsets[k + 1] * WIDTH;
    for (int64_t i = first; i < end; i++) {
        double v = value_at(&s->x.t, i);
        float *range = to->data;
        if (t->dtype == OSH_F64)
            ((double *)to->data)[i % n] += v * 1.1;
        else if (v < range[k])
            range[k] = (float)v;
        if (t->dtype == OSH_F32 && v > range[n + k]) range[n + k] = (float)v;
    }
}

/* Adds samples [span[0], span[1]) to a statistic in batches of `size` samples. `d` is the GPU that
 * has the rows, or NULL if the host has them. */
static void feed_samples(osh_ctx *cx, osh_stat *st, const fed *s, const int64_t span[2],
                         int64_t size, osh_device *d)
{
    const osh_tensor *x = st->type == &osh_stat_routes ? &s->route.t : &s->x.t;
    osh_tensor *to;
    for (int64_t k = span[0], n; k < span[1]; k += n) {
        n = osh_min64(size, span[1] - k);
        int64_t rows = s->offsets[k + n] - s->offsets[k], at[SAMPLES + 1];
        for (int64_t i = 0; i <= n; i++) at[i] = s->offsets[k + i] - s->offsets[k];
        for (int64_t i = 0; !st->type->feed && i < n; i++) {
            assert_int_equal(osh_stat_at(cx, &to, st, k + i), OSH_OK);
            add_sample(st->type, to, s, k + i);
        }
        if (!st->type->feed || !rows) continue;
        osh_tensor part[2] = {*x, s->x0.t};
        gpu_copy_of on[2];
        for (int i = 0; i < 2; i++) {
            part[i].data = osh_elem(&part[i], s->offsets[k] * WIDTH), part[i].shape[0] = rows;
            if (d) on[i] = gpu_put(cx, d, &part[i]);
        }
        osh_seqs seqs = {n, at};
        bool shift = st->type == &osh_stat_shift;
        osh_op_args a = {.in = {d ? &on[0].t : &part[0]}, .seqs = &seqs};
        if (shift) a.in[1] = d ? &on[1].t : &part[1];
        assert_int_equal(osh_stat_feed(cx, st, &a, k), OSH_OK);
        for (int i = 0; d && i < 2; i++) gpu_take(cx, NULL, &on[i]);
    }
}

static osh_stat *stat_begin(osh_ctx *cx, const osh_stat_type *t, osh_groups groups, osh_device *d)
{
    osh_stat *st = NULL;
    osh_where where = {d, OSH_LIFE_LONG};
    int64_t n = t == &osh_stat_sample_ranges ? SAMPLES : WIDTH;
    assert_int_equal(osh_stat_new(cx, &st, t, groups, n, where), OSH_OK);
    assert_int_equal(osh_stat_new_part(cx, st, where), OSH_OK);
    assert_int_equal(st->part != NULL, !t->exact && groups.n > 1);
    return st;
}

/* Copies the result of a statistic to `to` and frees the statistic. Elements above the diagonal of
 * a Hessian become 0. */
static void stat_take(osh_ctx *cx, osh_tensor *to, osh_stat *st)
{
    assert_int_equal(osh_stat_finish(cx, st), OSH_OK);
    assert_null(st->part);
    assert_int_equal(osh_tensor_copy(cx, to, st->all), OSH_OK);
    for (int64_t i = 0; st->type == &osh_stat_hessian && i < WIDTH; i++)
        memset((float *)to->data + i * WIDTH + i + 1, 0, (size_t)(WIDTH - 1 - i) * sizeof(float));
    osh_stat_free(cx, st);
}

/* Computes the result with n_groups separate statistics, one for each group. Merges all of them
 * into the first and copies the result to `to`. */
static void stat_by_hand(fixture *f, osh_tensor *to, const osh_stat_type *t, const fed *s,
                         int64_t n_groups, osh_device *d)
{
    osh_stat *all = stat_begin(f->one, t, (osh_groups){SAMPLES, 1}, d);
    for (int64_t g = 0; g < n_groups; g++) {
        osh_stat *part = g ? stat_begin(f->one, t, (osh_groups){SAMPLES, 1}, d) : all;
        feed_samples(f->one, part, s,
                     (int64_t[]){g * SAMPLES / n_groups, (g + 1) * SAMPLES / n_groups}, 1, d);
        if (!g) continue;
        osh_op_args a = {.out = {all->all, part->all}};
        assert_int_equal(osh_op_run(f->three, t->merge, &a), OSH_OK);
        osh_stat_free(f->one, part);
    }
    stat_take(f->one, to, all);
}

static void stat_case(fixture *f, const osh_stat_type *t, const fed *s, osh_device *d)
{
    const int64_t counts[] = {1, 2, 3, 8, SAMPLES}, sizes[] = {1, 3, 4, SAMPLES},
                  whole[] = {0, SAMPLES};
    osh_tensor shape = osh_stat_shape(t, t == &osh_stat_sample_ranges ? SAMPLES : WIDTH);
    size_t bytes = osh_tensor_bytes(&shape);
    // x[0]: result without groups; x[1]: groups that are merged by hand; x[2]: groups of the
    // statistic
    osh_tensor *x[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(osh_tensor_new(f->one, &x[i], shape.dtype, shape.ndim, shape.shape),
                         OSH_OK);
    for (int c = 0; c < 5; c++) {
        osh_groups groups = osh_groups_of(SAMPLES, counts[c]);
        stat_by_hand(f, x[1], t, s, counts[c], d);
        for (int i = 0; i < 4; i++) {
            /* A batch on a GPU has samples of one group, so only batches of one sample are
             * compared. */
            if (d && sizes[i] > 1) continue;
            osh_stat *st = stat_begin(f->three, t, groups, d);
            feed_samples(f->three, st, s, whole, sizes[i], d);
            stat_take(f->three, x[2], st);
            if (memcmp(x[1]->data, x[2]->data, bytes))
                fail_msg("%s: %ld groups in batches of %ld are not the sums by hand", t->name,
                         (long)counts[c], (long)sizes[i]);
        }
        if (!c) memcpy(x[0]->data, x[2]->data, bytes);
        if (t->exact) assert_memory_equal(x[0]->data, x[2]->data, bytes);
        // x[0] and x[2] are sums of the same n terms, added in different orders
        double e = t->exact ? 0 : nmse(x[2], x[0]);
        if (!(e <= 2 * tol_sums(s->offsets[SAMPLES]))) fail_msg("%s: NMSE %g", t->name, e);
    }
    for (int i = 0; i < 3; i++) osh_tensor_free(f->one, x[i]);
}

/* Tests groups of samples for each statistic and any batch size. The bytes must equal those of
 * separate statistics that the test merges itself. An exact statistic must not depend on groups.
 * The other statistics must be close to their results without groups. */
static void test_stat_rows(void **state)
{
    fixture *f = *state;
    fed s = {0};
    fed_init(f, &s);
    for (size_t i = 0; i < osh_stat_type_count(); i++) {
        const osh_stat_type *t = osh_stat_type_at(i);
        stat_case(f, t, &s, NULL);
        bool on_gpu =
            t->feed && t->feed->run[OSH_CUDA] && t->merge->run[OSH_CUDA];
        if (f->d && on_gpu) stat_case(f, t, &s, f->d);
    }
    fed_free(f, &s);
}

/* A group is a range of samples. Groups have nearly equal sizes, and there are at most as many
 * groups as samples. */
static void test_groups(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    assert_int_equal(osh_groups_of(5, 8).n, 5);
    assert_int_equal(osh_groups_of(0, 8).n, 1);
    for (int64_t n = 1; n < 40; n++)
        for (int64_t wanted = 1; wanted < 12; wanted++) {
            osh_groups g = osh_groups_of(n, wanted);
            assert_true(osh_group_first(&g, 0) == 0 && osh_group_first(&g, g.n) == n);
            for (int64_t k = 0; k < n; k++) {
                int64_t at = osh_group_at(&g, k);
                assert_true(osh_group_first(&g, at) <= k && k < osh_group_first(&g, at + 1));
            }
            for (int64_t k = 0; k < g.n; k++) {
                int64_t size = osh_group_first(&g, k + 1) - osh_group_first(&g, k);
                assert_true(size == n / g.n || size == n / g.n + 1);
            }
        }
}

static void test_torture(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    static const char *const ops[] = {"hessian_accum", "shift_accum", "kl"};
    for (int which = 0; which < 3; which++) {
        osh_status rc = OSH_E_NOMEM;
        for (int64_t nth = 1; rc && nth < 40; nth++) {
            osh_ctx *cx = NULL;
            assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
            guarded x = guarded_new(cx, OSH_BF16, 2, 7, 7), w = guarded_new(cx, OSH_BF16, 2, 7, 7);
            guarded y = guarded_new(cx, OSH_F32, 2, 7, 7), z = guarded_new(cx, OSH_F32, 1, 7, 0);
            guarded_fill(&x, 1, 1), guarded_fill(&w, 2, 1), guarded_fill(&y, 3, 1);
            osh_op_args a = {.in = {&x.t, &w.t, &x.t, &w.t}, .out = {&y.t, &z.t}};
            osh_mem_fail_after(cx, nth);
            rc = osh_op_run(cx, osh_op_find(ops[which]), &a);
            assert_true(rc == OSH_OK || rc == OSH_E_NOMEM);
            osh_mem_fail_after(cx, -1);
            guarded_free(cx, &x), guarded_free(cx, &w), guarded_free(cx, &y), guarded_free(cx, &z);
            assert_int_equal(osh_mem_live(cx), 0);
            osh_ctx_free(cx);
        }
        assert_int_equal(rc, OSH_OK);
    }
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hessian),     cmocka_unit_test(test_channel_range),
        cmocka_unit_test(test_channel_sum), cmocka_unit_test(test_channel_squares),
        cmocka_unit_test(test_sum_on_gpu),
        cmocka_unit_test(test_token_peaks), cmocka_unit_test(test_mix),
        cmocka_unit_test(test_stat_rows),   cmocka_unit_test(test_groups),
        cmocka_unit_test(test_shift),       cmocka_unit_test(test_nll),
        cmocka_unit_test(test_nll_past),    cmocka_unit_test(test_kl_ties),
        cmocka_unit_test(test_kl),          cmocka_unit_test(test_torture)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
