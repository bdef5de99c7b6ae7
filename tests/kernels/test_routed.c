/* test_routed.c - tests experts on a GPU. An expert runs only on the rows that the router sends to
 * it. Tests the lists of rows, copies of the rows, a linear op on the rows of one expert, and all
 * experts in one call. One call must give the same bytes as single ops. */
#include "on_gpu.h"

typedef struct fixture {
    osh_ctx *cx;
    osh_device *d; // NULL: no GPU
} fixture;

static int setup(void **state)
{
    static fixture f;
    *state = &f;
    if (osh_ctx_new(&f.cx, 1)) return 1;
    f.d = gpu_open(f.cx, GPU_BYTES);
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    osh_device_close(f->cx, f->d);
    bool leak = osh_mem_live(f->cx);
    osh_ctx_free(f->cx);
    return leak;
}

typedef struct shape {
    /* N: number of tokens. D: hidden size. F: width of an expert. E: number of experts.
     * some: number of tokens of each expert except the first, which gets none. If `some` is 0, all
     * experts get all tokens. */
    int64_t N, D, F, E, some;
    osh_dtype dt;
} shape;

typedef struct moe { // tensors on the GPU
    shape s;
    gpu_copy_of x, route, sum, gate[64], up[64], down[64];
    guarded host_x, host_route, host_gate; // copies of x, route and gate[0] on the host
    int32_t *n;   // own
    osh_tensor *lists; // own
} moe;

static bool token_goes(const shape *s, int64_t token, int64_t expert)
{
    if (!s->some) return true;
    return expert && osh_rng_u64(SEED, 77, (uint64_t)(token * s->E + expert)) % (uint64_t)s->N <
                         (uint64_t)s->some;
}

static gpu_copy_of filled(fixture *f, osh_dtype dt, int64_t rows, int64_t cols, uint64_t stream,
                          guarded *keep)
{
    guarded g = guarded_new(f->cx, dt, 2, rows, cols);
    guarded_fill(&g, stream, 1);
    gpu_copy_of c = gpu_put(f->cx, f->d, &g.t);
    if (keep) *keep = g;
    else guarded_free(f->cx, &g);
    return c;
}

static void moe_open(fixture *f, moe *m, const shape *s)
{
    osh_device *d = f->d;
    *m = (moe){.s = *s};
    m->x = filled(f, s->dt, s->N, s->D, 1, &m->host_x);
    m->sum = filled(f, s->dt, s->N, s->D, 2, NULL);
    m->host_route = guarded_new(f->cx, s->dt, 2, s->N, s->E);
    guarded_fill(&m->host_route, 3, 1);
    for (int64_t i = 0; i < s->N * s->E; i++)
        if (!token_goes(s, i / s->E, i % s->E))
            memset(osh_elem(&m->host_route.t, i), 0, osh_dtype_bytes(s->dt));
    m->route = gpu_put(f->cx, d, &m->host_route.t);
    for (int64_t e = 0; e < s->E; e++) {
        m->gate[e] = filled(f, s->dt, s->F, s->D, 10 + 3 * (uint64_t)e, e ? NULL : &m->host_gate);
        m->up[e] = filled(f, s->dt, s->F, s->D, 11 + 3 * (uint64_t)e, NULL);
        m->down[e] = filled(f, s->dt, s->D, s->F, 12 + 3 * (uint64_t)e, NULL);
    }
    int64_t n = osh_routes_n(s->E, s->N);
    m->n = calloc((size_t)s->E, sizeof *m->n);
    assert_int_equal(
        osh_tensor_new_on(f->cx, &m->lists, (osh_where){d, OSH_LIFE_SHORT}, OSH_I32, 1, &n),
        OSH_OK);
    assert_int_equal(osh_device_ops_of(d)->routes(f->cx, m->n, m->lists->data, &m->route.t),
                     OSH_OK);
}

static void moe_close(fixture *f, moe *m)
{
    gpu_take(f->cx, NULL, &m->x), gpu_take(f->cx, NULL, &m->sum),
        gpu_take(f->cx, NULL, &m->route);
    for (int64_t e = 0; e < m->s.E; e++) {
        gpu_take(f->cx, NULL, &m->gate[e]), gpu_take(f->cx, NULL, &m->up[e]);
        gpu_take(f->cx, NULL, &m->down[e]);
    }
    guarded_free(f->cx, &m->host_x), guarded_free(f->cx, &m->host_route),
        guarded_free(f->cx, &m->host_gate);
    osh_tensor_free(f->cx, m->lists);
    free(m->n);
}

static osh_op_rows rows_of(const moe *m, int64_t e)
{
    return (osh_op_rows){(const int32_t *)m->lists->data + m->s.E + e * m->s.N, m->n[e]};
}

static void lists_are_right(fixture *f, const moe *m)
{
    int64_t N = m->s.N, E = m->s.E;
    int32_t *lists = malloc((size_t)osh_routes_n(E, N) * sizeof *lists);
    assert_int_equal(osh_tensor_get(f->cx, lists, m->lists, 0, (size_t)(E + E * N) * sizeof *lists),
                     OSH_OK);
    for (int64_t e = 0; e < E; e++) {
        int32_t n = 0;
        for (int64_t t = 0; t < N; t++)
            if (value_at(&m->host_route.t, t * E + e) != 0)
                assert_int_equal(lists[E + e * N + n++], t);
        assert_int_equal(n, m->n[e]);
        assert_int_equal(n, lists[e]);
    }
    memset(lists, 0xA5, (size_t)E * sizeof *lists);
    assert_int_equal(osh_device_ops_of(f->d)->count_routes(f->cx, lists, &m->route.t), OSH_OK);
    assert_memory_equal(lists, m->n, (size_t)E * sizeof *lists);
    free(lists);
}

static gpu_copy_of empty_new(fixture *f, osh_dtype dt, int64_t rows, int64_t cols)
{
    guarded g = guarded_new(f->cx, dt, 2, rows, cols); // the tensor is filled with bytes 0xA5
    gpu_copy_of c = gpu_put(f->cx, f->d, &g.t);
    guarded_free(f->cx, &g);
    return c;
}

static void op_run(fixture *f, const char *op, osh_op_args a)
{
    if (osh_op_run(f->cx, osh_op_find(op), &a)) fail_msg("%s: %s", op, osh_error_text(f->cx));
}

/* Computes the sum of all experts with single ops. */
static void one_by_one(fixture *f, const moe *m, gpu_copy_of *out)
{
    const shape *s = &m->s;
    gpu_copy_of g = empty_new(f, s->dt, s->N, s->F), u = empty_new(f, s->dt, s->N, s->F),
                y = empty_new(f, s->dt, s->N, s->D);
    osh_glu_attr act = {.act = "silu"};
    assert_int_equal(osh_tensor_copy(f->cx, &out->t, &m->sum.t), OSH_OK);
    for (int64_t e = 0; e < s->E; e++) {
        osh_op_rows rows = rows_of(m, e);
        osh_moe_combine_attr at = {.expert = e};
        op_run(f, "linear",
               (osh_op_args){.in = {&m->x.t, &m->gate[e].t}, .out = {&g.t}, .rows = &rows});
        op_run(f, "linear",
               (osh_op_args){.in = {&m->x.t, &m->up[e].t}, .out = {&u.t}, .rows = &rows});
        op_run(f, "glu",
               (osh_op_args){.in = {&g.t, &u.t}, .out = {&g.t}, .attr = &act, .rows = &rows});
        op_run(f, "linear",
               (osh_op_args){.in = {&g.t, &m->down[e].t}, .out = {&y.t}, .rows = &rows});
        op_run(f, "moe_combine",
               (osh_op_args){.in = {&out->t, &y.t, &m->route.t}, .out = {&out->t}, .attr = &at});
    }
    gpu_take(f->cx, NULL, &g), gpu_take(f->cx, NULL, &u), gpu_take(f->cx, NULL, &y);
}

static int64_t at_once(fixture *f, const moe *m, gpu_copy_of *out, const osh_tensor *sum)
{
    osh_mixture_expert of[64];
    osh_glu_attr act = {.act = "silu"};
    int64_t found = INT64_MAX, n = 1;
    osh_tensor *note = NULL; // own
    assert_int_equal(
        osh_tensor_new_on(f->cx, &note, (osh_where){f->d, OSH_LIFE_SHORT}, OSH_I64, 1, &n), OSH_OK);
    assert_int_equal(osh_tensor_put(f->cx, note, 0, &found, sizeof found), OSH_OK);
    for (int e = 0; e < m->s.E; e++)
        of[e] = (osh_mixture_expert){&m->gate[e].t, &m->up[e].t, &m->down[e].t,
                                  rows_of(m, e), e,           note->data};
    osh_mixture x = {of, (int)m->s.E, &m->x.t, &m->route.t, sum, &out->t, &act, false};
    size_t before = osh_arena_used(f->d->arena), peak = osh_arena_peak(f->d->arena);
    if (osh_device_ops_of(f->d)->mixture(f->cx, &x)) fail_msg("%s", osh_error_text(f->cx));
    assert_int_equal(osh_arena_used(f->d->arena), before);
    size_t most = before + osh_mixture_bytes(m->s.N, m->s.D, m->s.F, (int)m->s.E);
    assert_true(osh_arena_peak(f->d->arena) <= (peak > most ? peak : most));
    assert_int_equal(osh_tensor_get(f->cx, &found, note, 0, sizeof found), OSH_OK);
    osh_tensor_free(f->cx, note);
    return found;
}

/* Asserts that three tensors on the GPU have equal bytes, and frees them. */
static void assert_same(fixture *f, gpu_copy_of *const c[3])
{
    guarded x[3];
    for (int i = 0; i < 3; i++) {
        x[i] = guarded_new(f->cx, c[i]->t.dtype, 2, c[i]->t.shape[0], c[i]->t.shape[1]);
        gpu_take(f->cx, &x[i].t, c[i]);
        assert_memory_equal(x[0].t.data, x[i].t.data, osh_tensor_bytes(&x[0].t));
    }
    for (int i = 0; i < 3; i++) guarded_free(f->cx, &x[i]);
}

/* Multiplies the rows of the last expert by the gate of the first expert. The result must equal the
 * reference, and no other rows may be written. */
static void linear_is_right(fixture *f, const moe *m)
{
    const shape *s = &m->s;
    guarded want = guarded_new(f->cx, s->dt, 2, s->N, s->F),
            got = guarded_new(f->cx, s->dt, 2, s->N, s->F);
    gpu_copy_of y = empty_new(f, s->dt, s->N, s->F);
    osh_op_rows rows = rows_of(m, s->E - 1);
    op_run(f, "linear",
           (osh_op_args){.in = {&m->x.t, &m->gate[0].t}, .out = {&y.t}, .rows = &rows});
    gpu_take(f->cx, &got.t, &y);
    osh_op_args a = {.in = {&m->host_x.t, &m->host_gate.t}, .out = {&want.t}};
    assert_int_equal(osh_op_linear.run[OSH_REF](f->cx, &a), OSH_OK);
    double diff = 0, all = 0;
    size_t row_bytes = (size_t)s->F * osh_dtype_bytes(s->dt);
    for (int64_t t = 0; t < s->N; t++) {
        if (!token_goes(s, t, s->E - 1)) {
            const uint8_t *row = osh_elem(&got.t, t * s->F);
            for (size_t i = 0; i < row_bytes; i++) assert_int_equal(row[i], 0xA5);
            continue;
        }
        for (int64_t c = 0; c < s->F; c++) {
            double y1 = value_at(&got.t, t * s->F + c), y0 = value_at(&want.t, t * s->F + c);
            diff += (y1 - y0) * (y1 - y0), all += y0 * y0;
        }
    }
    if (!(diff <= tol_of(1e-11, s->dt) * all)) fail_msg("linear of rows: NMSE %g", diff / all);
    guarded_free(f->cx, &want), guarded_free(f->cx, &got);
}

/* Copies the rows of the last expert in two ways: one after the other by gather(), and to their own
 * positions by the op routed_rows. If the op gets the list `rows`, it writes no other rows. Without
 * the list, all other rows become zeros. */
static void rows_are_copied(fixture *f, const moe *m)
{
    const shape *s = &m->s;
    int64_t E = s->E, n = osh_gathered_rows(m->n[E - 1]);
    osh_op_rows rows = rows_of(m, E - 1);
    osh_moe_combine_attr at = {.expert = E - 1};
    gpu_copy_of some = empty_new(f, s->dt, s->N, s->D), all = empty_new(f, s->dt, s->N, s->D),
                together = empty_new(f, s->dt, n ? n : 1, s->D);
    osh_op_args a = {.in = {&m->x.t, &m->route.t}, .out = {&all.t}, .attr = &at};
    op_run(f, "routed_rows", a);
    a.out[0] = &some.t, a.rows = &rows;
    op_run(f, "routed_rows", a);
    assert_int_equal(osh_device_ops_of(f->d)->gather(f->cx, &together.t, &m->x.t, &rows), OSH_OK);
    guarded got[3] = {guarded_new(f->cx, s->dt, 2, s->N, s->D),
                      guarded_new(f->cx, s->dt, 2, s->N, s->D),
                      guarded_new(f->cx, s->dt, 2, n ? n : 1, s->D)};
    gpu_take(f->cx, &got[0].t, &some), gpu_take(f->cx, &got[1].t, &all);
    gpu_take(f->cx, &got[2].t, &together);
    size_t row = (size_t)s->D * osh_dtype_bytes(s->dt);
    char *untouched = malloc(row), *zero = calloc(1, row);
    memset(untouched, 0xA5, row);
    int64_t k = 0;
    for (int64_t t = 0; t < s->N; t++) {
        const void *x = osh_elem(&m->host_x.t, t * s->D);
        bool goes = value_at(&m->host_route.t, t * E + E - 1) != 0;
        assert_memory_equal(osh_elem(&got[0].t, t * s->D), goes ? x : untouched, row);
        assert_memory_equal(osh_elem(&got[1].t, t * s->D), goes ? x : zero, row);
        if (goes) assert_memory_equal(osh_elem(&got[2].t, k++ * s->D), x, row);
    }
    assert_int_equal(k, m->n[E - 1]);
    for (; k < osh_rows(&got[2].t); k++)
        assert_memory_equal(osh_elem(&got[2].t, k * s->D), zero, row);
    free(untouched), free(zero);
    for (int i = 0; i < 3; i++) guarded_free(f->cx, &got[i]);
}

/* Computes only the activations of the last expert. These activations must have the same bytes as
 * the rows that single ops compute. */
static void activations_are_right(fixture *f, const moe *m)
{
    const shape *s = &m->s;
    int64_t e = s->E - 1;
    osh_op_rows rows = rows_of(m, e);
    osh_glu_attr act = {.act = "silu"};
    gpu_copy_of g = empty_new(f, s->dt, s->N, s->F), u = empty_new(f, s->dt, s->N, s->F),
                got = empty_new(f, s->dt, s->N, s->F);
    op_run(f, "linear",
           (osh_op_args){.in = {&m->x.t, &m->gate[e].t}, .out = {&g.t}, .rows = &rows});
    op_run(f, "linear", (osh_op_args){.in = {&m->x.t, &m->up[e].t}, .out = {&u.t}, .rows = &rows});
    op_run(f, "glu",
           (osh_op_args){.in = {&g.t, &u.t}, .out = {&g.t}, .attr = &act, .rows = &rows});
    osh_mixture_expert of = {.gate = &m->gate[e].t, .up = &m->up[e].t, .rows = rows,
                             .column = (int32_t)e};
    osh_mixture x = {.experts = &of, .n_experts = 1, .x = &m->x.t, .out = &got.t, .glu = &act};
    if (osh_device_ops_of(f->d)->mixture(f->cx, &x)) fail_msg("%s", osh_error_text(f->cx));
    guarded want = guarded_new(f->cx, s->dt, 2, s->N, s->F),
            have = guarded_new(f->cx, s->dt, 2, s->N, s->F);
    gpu_take(f->cx, &want.t, &g), gpu_take(f->cx, &have.t, &got), gpu_take(f->cx, NULL, &u);
    for (int64_t t = 0, k = 0; t < s->N; t++)
        if (value_at(&m->host_route.t, t * s->E + e) != 0)
            assert_memory_equal(osh_elem(&have.t, k++ * s->F), osh_elem(&want.t, t * s->F),
                                (size_t)s->F * osh_dtype_bytes(s->dt));
    guarded_free(f->cx, &want), guarded_free(f->cx, &have);
}

static void one_shape(fixture *f, shape s)
{
    moe m;
    moe_open(f, &m, &s);
    lists_are_right(f, &m);
    linear_is_right(f, &m);
    rows_are_copied(f, &m);
    activations_are_right(f, &m);
    gpu_copy_of want = empty_new(f, s.dt, s.N, s.D), got = empty_new(f, s.dt, s.N, s.D),
                in_place = empty_new(f, s.dt, s.N, s.D); // used as `sum` and as the output
    one_by_one(f, &m, &want);
    assert_true(at_once(f, &m, &got, &m.sum.t) == INT64_MAX);
    assert_int_equal(osh_tensor_copy(f->cx, &in_place.t, &m.sum.t), OSH_OK);
    assert_true(at_once(f, &m, &in_place, &in_place.t) == INT64_MAX);
    assert_same(f, (gpu_copy_of *[]){&want, &got, &in_place});
    moe_close(f, &m);
}

static void experts_at_once(void **state)
{
    fixture *f = *state;
    if (!f->d) return;
    for (int k = 0; k < gpu_orders(); k++) {
        gpu_order(k);
        one_shape(f, (shape){7, 8, 8, 3, 3, OSH_F16});
        /* 60 rows per expert do not fill tiles; one round of the kernel (mixture.cu) computes
         * several experts. */
        if (!k) one_shape(f, (shape){300, 72, 40, 5, 60, OSH_BF16});
        /* All tokens go to all experts: each round computes one expert with two tiles of rows. */
        if (!k) one_shape(f, (shape){129, 136, 72, 2, 0, OSH_BF16});
        // there are more experts (33) than threads of a warp
        one_shape(f, (shape){1, 16, 264, 33, 1, OSH_BF16});
        one_shape(f, (shape){30, 160, 24, 33, 3, OSH_F16});
    }
    gpu_order(0);
}

/* An infinity in a gate must be found after the activation, and reported with the first row of the
 * expert and the channel. */
static void what_is_not_finite_is_found(void **state)
{
    fixture *f = *state;
    moe m;
    if (!f->d) return;
    moe_open(f, &m, &(shape){50, 64, 32, 3, 9, OSH_BF16});
    gpu_copy_of out = empty_new(f, OSH_BF16, 50, 64);
    uint16_t inf = 0x7f80;
    int32_t row;
    assert_int_equal(
        osh_tensor_put(f->cx, &m.gate[2].t, (5 * 64 + 3) * sizeof inf, &inf, sizeof inf), OSH_OK);
    assert_int_equal(
        osh_tensor_get(f->cx, &row, m.lists, (size_t)(3 + 2 * 50) * sizeof row, sizeof row),
        OSH_OK);
    assert_true(at_once(f, &m, &out, &m.sum.t) == row * 32 + 5);
    gpu_take(f->cx, NULL, &out);
    moe_close(f, &m);
}

/* Tests rows of 9 elements, which do not begin at multiples of 16 bytes. */
static void rows_of_any_width(void **state)
{
    fixture *f = *state;
    if (!f->d) return;
    const osh_dtype dts[] = {OSH_BF16, OSH_F32};
    for (int k = 0; k < 2; k++) {
        moe m;
        moe_open(f, &m, &(shape){270, 9, 8, 3, 260, dts[k]});
        rows_are_copied(f, &m);
        moe_close(f, &m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_at_once),
        cmocka_unit_test(what_is_not_finite_is_found),
        cmocka_unit_test(rows_of_any_width),
    };
    int rc = pin_isa();
    return rc ? rc : cmocka_run_group_tests(tests, setup, teardown);
}
