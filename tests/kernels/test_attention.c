/* test_attention.c - compares the GPU's fused attention (src/ops/cuda/attention_fused.cuh) with its
 * definition in double. Like the kernel, the definition rounds the probabilities before the
 * division by their sum. Also compares the kernel with the reference, which rounds after the
 * division. This comparison has a larger tolerance.
 *
 * The kernel has tiles of 64 keys, blocks of 128 queries and bands of 16 queries. The cases have
 * samples with lengths around these numbers, and heads of the kernel's four sizes and of other
 * sizes. The cases also test grouped heads, windows, more samples than one launch can process, and
 * less shared memory. */
#include "on_gpu.h"

/* osh_play_shared (tests/play/play.h) exists only if the GPU is emulated. */
void osh_play_shared(size_t n_bytes) __attribute__((weak));

/* KEYS: number of keys of a tile; MANY: more samples than one launch can process. */
enum { KEYS = 64, MANY = 70 };

typedef struct shape {
    osh_attention_attr at;
    int64_t T[5]; // lengths of the samples; a 0 ends the list
    float amp;    // amplitude of q and k; 0 means 1
} shape;

static const shape shapes[] = {
    {{1, 1, 64, 0, 0}, {1}},
    {{3, 3, 64, 0, 0}, {7, 63, 64}},
    {{6, 2, 64, 0, 0}, {65, 1, 200}},
    {{2, 1, 64, 0, 0}, {127, 128, 129}},
    {{3, 1, 96, 0, 0}, {200, 63}},
    {{2, 2, 96, 0, 0}, {64, 65, 7}},
    {{8, 2, 128, 0, 0}, {65, 1}},
    {{3, 1, 128, 0, 0}, {200, 63, 7}},
    {{1, 1, 128, 0, 0}, {300}, 4},         // scores of up to 50, so the maximum changes from tile
                                           // to tile
    /* A head has 8 columns, half of the 16 that one mma instruction multiplies. */
    {{2, 1, 8, 0, 0}, {150}},
    {{2, 1, 40, 0, 0.3}, {129, 20}, 2},    // no kernel is made for heads of 40 columns, so a kernel
                                           // for larger heads runs; a scale is given
    {{2, 2, 104, 0, 0}, {70}},
    {{2, 2, 64, 1, 0}, {65}},              // with a window of 1 each token sees only itself
    {{2, 1, 64, 50, 0}, {300, 40}, 3},     // the window is shorter than a tile; the sample of 40
                                           // tokens is shorter than the window
    {{1, 1, 128, 64, 0}, {200}},
    {{1, 1, 64, 65, 0}, {200}},
    {{1, 1, 64, 66, 0}, {200}},            // query 128 is the first of the second block of queries;
                                           // its window begins at key 63, the last key of a tile
    {{2, 1, 32, 129, 0}, {400}},
    {{2, 1, 128, 20, 0}, {150, 33}},       // some bands (16 queries) see no key of a tile, because
                                           // their windows are before or after the tile
    {{2, 1, 96, 100, 0}, {15, 16, 17, 31, 97}},
    {{1, 1, 64, 1000, 0}, {65}},
};

typedef struct batch {
    guarded in[3], out, want;
    float *f[3]; // own: the inputs, converted to f32
    int64_t offsets[MANY + 1];
    osh_seqs seqs;
    osh_op_args a;
} batch;

static void batch_open(osh_ctx *cx, batch *b, const osh_attention_attr *at, const int64_t *T,
                       int64_t n, float amp, osh_dtype dt)
{
    int64_t width[3] = {at->n_heads * at->head_dim, at->n_kv_heads * at->head_dim,
                        at->n_kv_heads * at->head_dim};
    *b = (batch){.seqs = {.n = n, .offsets = b->offsets}};
    for (int64_t s = 0; s < n; s++) b->offsets[s + 1] = b->offsets[s] + T[s];
    for (int i = 0; i < 3; i++) {
        b->in[i] = guarded_new(cx, dt, 2, b->offsets[n], width[i]);
        guarded_fill(&b->in[i], (uint64_t)i, i < 2 && amp > 0 ? amp : 1);
        b->a.in[i] = &b->in[i].t;
        assert_int_equal(osh_f32_copy(cx, &b->f[i], &b->in[i].t), OSH_OK);
    }
    b->out = guarded_new(cx, dt, 2, b->offsets[n], width[0]);
    b->want = guarded_new(cx, dt, 2, b->offsets[n], width[0]);
    b->a.out[0] = &b->out.t, b->a.attr = at, b->a.seqs = &b->seqs;
}

static void batch_close(osh_ctx *cx, batch *b)
{
    for (int i = 0; i < 3; i++)
        guarded_check(&b->in[i]), guarded_free(cx, &b->in[i]), osh_free(cx, b->f[i]);
    guarded_check(&b->out), guarded_free(cx, &b->out);
    guarded_check(&b->want), guarded_free(cx, &b->want);
}

/* Computes the output y [Dh] of query i of the sample that begins at `row`, by the recurrence of
 * attention_fused.cuh, tile by tile. */
static void define_row(double *y, const batch *b, const osh_attention_attr *at, int64_t row,
                       int64_t i, int64_t h)
{
    int64_t Dh = at->head_dim, kv = at->n_kv_heads * Dh,
            at_k = row * kv + h / (at->n_heads / at->n_kv_heads) * Dh;
    const float *q = b->f[0] + ((row + i) * at->n_heads + h) * Dh, *k = b->f[1] + at_k,
                *v = b->f[2] + at_k;
    int64_t lo = at->sliding_window && i >= at->sliding_window ? i - at->sliding_window + 1 : 0;
    double c = (float)((float)(at->scale > 0 ? at->scale : 1 / sqrt((double)Dh)) * M_LOG2E),
           max = -INFINITY, l = 0;

    for (int64_t d = 0; d < Dh; d++) y[d] = 0;
    for (int64_t tile = 0; tile <= i; tile += KEYS) {
        double s[KEYS], before = max;
        for (int64_t j = 0; j < KEYS; j++) {
            s[j] = -INFINITY;
            if (tile + j < lo || tile + j > i) continue;
            s[j] = 0;
            for (int64_t d = 0; d < Dh; d++) s[j] += (double)q[d] * k[(tile + j) * kv + d];
            max = fmax(max, s[j] * c);
        }
        if (max == -INFINITY) continue;
        double shrink = exp2(before - max);
        l *= shrink;
        for (int64_t d = 0; d < Dh; d++) y[d] *= shrink;
        for (int64_t j = 0; j < KEYS; j++) {
            double p = exp2(s[j] * c - max), rounded = osh_round_to((float)p, b->want.t.dtype);
            l += p;
            for (int64_t d = 0; d < Dh && p > 0; d++) y[d] += rounded * v[(tile + j) * kv + d];
        }
    }
    for (int64_t d = 0; d < Dh; d++) y[d] /= l;
}

static void batch_define(batch *b, const osh_attention_attr *at)
{
    int64_t Dh = at->head_dim;
    for (int64_t s = 0; s < b->seqs.n; s++)
        for (int64_t i = b->offsets[s]; i < b->offsets[s + 1]; i++)
            for (int64_t h = 0; h < at->n_heads; h++) {
                double y[128];
                define_row(y, b, at, b->offsets[s], i - b->offsets[s], h);
                for (int64_t d = 0; d < Dh; d++) {
                    float f = (float)y[d];
                    osh_from_f32(osh_elem(&b->want.t, (i * at->n_heads + h) * Dh + d),
                                 b->want.t.dtype, &f, 1);
                }
            }
}

/* Runs one batch: BF16 once for each order of the threads, and F16 once. The result may differ from
 * the definition only by a few roundings. The difference from the reference may be larger, because
 * the reference rounds probabilities at another step. The kernel must allocate no scratch. */
static void batch_check(osh_ctx *cx, osh_device *d, const osh_attention_attr *at, const int64_t *T,
                        int64_t n, float amp, osh_dtype dt)
{
    const osh_op *op = &osh_op_attention;
    batch b;
    batch_open(cx, &b, at, T, n, amp, dt);
    batch_define(&b, at);
    for (int order = 0; order < (dt == OSH_BF16 ? gpu_orders() : 1); order++) {
        gpu_order(order);
        memset(b.out.t.data, 0, osh_tensor_bytes(&b.out.t));
        if (gpu_run(cx, d, op, &b.a, 0)) fail_msg("%s", osh_error_text(cx));
        double e = nmse(&b.out.t, &b.want.t), most = tol_of(op->tol, dt);
        if (!(e <= most))
            fail_msg("Dh %lld, %lld samples of %lld.. tokens, %s, order %d: NMSE %g, want %g",
                     (long long)at->head_dim, (long long)n, (long long)T[0], osh_dtype_name(dt),
                     order, e, most);
    }
    gpu_order(0);
    assert_int_equal(op->run[OSH_REF](cx, &(osh_op_args){.in = {b.a.in[0], b.a.in[1], b.a.in[2]},
                                                         .out = {&b.want.t},
                                                         .attr = at,
                                                         .seqs = &b.seqs}),
                     OSH_OK);
    double e = nmse(&b.out.t, &b.want.t), most = tol_fused(dt) * (amp > 1 ? amp * amp : 1);
    if (!(e <= most))
        fail_msg("Dh %lld, %s: NMSE against the reference %g, want %g", (long long)at->head_dim,
                 osh_dtype_name(dt), e, most);
    batch_close(cx, &b);
}

static void test_definition(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (size_t i = 0; d && i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        int64_t n = 0;
        while (n < 5 && s->T[n]) n++;
        // BF16 and F16 access the same addresses, so a check of addresses runs only one of them
        bool one = gpu_looks_at_addresses();
        if (!one || i % 2 == 0) batch_check(cx, d, &s->at, s->T, n, s->amp, OSH_BF16);
        if (!one || i % 2 == 1) batch_check(cx, d, &s->at, s->T, n, s->amp, OSH_F16);
    }
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* Runs more samples than one launch can process. One of them is empty. */
static void test_many_samples(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    const osh_attention_attr at = {4, 2, 16, 0, 0};
    int64_t T[MANY];
    for (int i = 0; i < MANY; i++) T[i] = i == 66 ? 0 : i % 7 + 1;
    T[3] = 130;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    if (d) batch_check(cx, d, &at, T, MANY, 1, OSH_BF16);
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* If a multiprocessor has too little shared memory for two blocks of large heads, each warp
 * computes one band. The output must have the same bytes as with enough shared memory. */
static void test_less_shared_memory(void **state)
{
    (void)state;
    /* bytes of shared memory of a multiprocessor, by compute capability: 9.0; 8.0; 8.6 and 8.9 */
    static const size_t shared[] = {228 << 10, 164 << 10, 100 << 10};
    osh_ctx *cx = NULL;
    if (!osh_play_shared) skip();
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        int64_t n = 0;
        batch b;
        if (s->at.head_dim <= 64) continue;
        while (n < 5 && s->T[n]) n++;
        batch_open(cx, &b, &s->at, s->T, n, s->amp, OSH_BF16);
        // Under a tool that checks addresses, only the least shared memory is tested. Then each
        // warp has one band. More memory would not change the addresses of this kernel.
        // test_definition tests the kernel with two bands.
        int first = gpu_looks_at_addresses() ? 2 : 0;
        for (int k = first; k < 3; k++) {
            osh_play_shared(shared[k]);
            osh_device *d = gpu_open(cx, GPU_BYTES);
            if (gpu_run(cx, d, &osh_op_attention, &b.a, 0))
                fail_msg("%s", osh_error_text(cx));
            if (k == first) memcpy(b.want.t.data, b.out.t.data, osh_tensor_bytes(&b.out.t));
            assert_memory_equal(b.want.t.data, b.out.t.data, osh_tensor_bytes(&b.out.t));
            osh_device_close(cx, d);
        }
        osh_play_shared(shared[0]);
        batch_close(cx, &b);
    }
    osh_ctx_free(cx);
}

/* A value that is not finite does not change other samples, because keys after the end of a sample
 * are not used. */
static void test_neighbours(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    const osh_attention_attr at = {2, 1, 64, 0, 0};
    const int64_t T[] = {70, 10, 66};
    const uint16_t nan = 0x7fc0; // the bits of a NaN in BF16
    batch b;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    if (d) {
        batch_open(cx, &b, &at, T, 3, 1, OSH_BF16);
        for (int i = 0; i < 3; i++)
            for (int64_t n = 70 * osh_width(&b.in[i].t); n < 80 * osh_width(&b.in[i].t); n++)
                memcpy(osh_elem(&b.in[i].t, n), &nan, sizeof nan);
        assert_int_equal(gpu_run(cx, d, &osh_op_attention, &b.a, 0), OSH_OK);
        assert_int_equal(osh_find_nonfinite(b.out.t.data, OSH_BF16, osh_tensor_numel(&b.out.t)),
                         70 * 128);
        for (int64_t n = 70 * 128; n < 80 * 128; n++) assert_true(isnan(value_at(&b.out.t, n)));
        assert_int_equal(osh_find_nonfinite(osh_elem(&b.out.t, 80 * 128), OSH_BF16, 66 * 128), -1);
        batch_close(cx, &b);
    }
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_many_samples),
        cmocka_unit_test(test_less_shared_memory), cmocka_unit_test(test_neighbours),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
