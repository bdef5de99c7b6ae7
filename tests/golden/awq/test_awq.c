/* test_awq.c - compares AWQModifier's search with LLM Compressor's search. For the inputs and
 * weights of gen.py, the same point of the grid must have the least loss, and the factors must be
 * the same. LLM Compressor computes the loss from outputs that are rounded to the dtype. This
 * program computes the loss from sums in F32. Therefore gen.py uses only cases in which the second
 * best loss is more than 1 % larger than the best. */
#include "torture.h"

#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "io/container.h"
#include "modifiers/recipe.h"
#include "ops/op.h"
#include "text/json.h"

enum { N = 64, T = 96, LINEARS = 2, ROWS = 32, CASES = 15 };
static const uint64_t seed = 20261122;
static const int64_t n_rows[LINEARS] = {32, 16};
static const char folder[] = OSH_SOURCE_DIR "/tests/golden/awq";
static osh_ctx *cx, *many;
static osh_container *st;

static const struct { const char *name, *weights;
} schemes[] = {
    {"int4_g32", "num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32"},
    {"int3_asym_g16", "num_bits: 3, type: int, symmetric: false, strategy: group, group_size: 16"},
    {"int4_channel", "num_bits: 4, type: int, symmetric: true, strategy: channel, observer: mse"},
    {"fp8_block",
     "num_bits: 8, type: float, symmetric: true, strategy: block, block_structure: [16, 16]"},
    {"nvfp4", "num_bits: 4, type: float, symmetric: true, strategy: tensor_group, group_size: 16, "
              "scale_dtype: "
              "torch.float8_e4m3fn, zp_dtype: torch.float8_e4m3fn"},
};

typedef struct awq_case {
    const char *name;
    osh_dtype dt;
    uint64_t stream;
    char x[T * N * 4], w[LINEARS][ROWS * N * 4]; // arrays of elements of the dtype dt
} awq_case;

static double uniform(const awq_case *c, int stream, int64_t i)
{
    return (double)osh_rng_sym(seed, c->stream + (uint64_t)stream, (uint64_t)i);
}

static void make(awq_case *c)
{
    static float f[T * N];
    for (int64_t i = 0; i < T * N; i++) {
        float v = (float)uniform(c, 1, i % N);
        f[i] = (float)uniform(c, 0, i) * (1 + 15 * v * v * v * v);
    }
    osh_from_f32(c->x, c->dt, f, T * N);
    for (int k = 0; k < LINEARS; k++) {
        for (int64_t i = 0; i < n_rows[k] * N; i++) {
            float v = (float)uniform(c, 3 + 2 * k, i % N);
            f[i] = (float)uniform(c, 2 + 2 * k, i) / (1 + 7 * v * v);
        }
        osh_from_f32(c->w[k], c->dt, f, n_rows[k] * N);
    }
}

static osh_status rows_of(osh_ctx *unused, const osh_search *j, int k, void *to, int64_t first,
                          int64_t n)
{
    const awq_case *c = j->user;
    size_t row = N * osh_dtype_bytes(c->dt);
    (void)unused;
    memcpy(to, c->w[k] + (size_t)first * row, (size_t)n * row);
    return OSH_OK;
}

/* Collects the statistics of the inputs in two batches, as the program does. */
static void collect(const awq_case *c, float *mean, osh_tensor *h)
{
    float sums[2 * N] = {0};
    osh_tensor s = osh_tensor_view(OSH_F32, 2, (int64_t[]){2, N}, sums);
    for (int64_t first = 0; first < T; first += 60) {
        int64_t n = T - first < 60 ? T - first : 60, offsets[] = {0, n};
        osh_seqs seqs = {.n = 1, .offsets = offsets};
        osh_tensor x = osh_tensor_view(c->dt, 2, (int64_t[]){n, N}, (char *)(uintptr_t)c->x +
                                       (size_t)(first * N) * osh_dtype_bytes(c->dt));
        osh_op_args a = {.in = {&x}, .out = {&s}, .seqs = &seqs};
        assert_ok(cx, osh_op_run(cx, &osh_op_channel_sum, &a));
        a.out[0] = h;
        assert_ok(cx, osh_op_run(cx, &osh_op_hessian_accum, &a));
    }
    for (int i = 0; i < N; i++) mean[i] = (sums[i] - sums[N + i]) / T;
    float *at = h->data;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i; k++) at[i * N + k] *= 2;
}

static void wanted(float *to, const char *name)
{
    for (int64_t i = 0; i < osh_container_count(st); i++) {
        const osh_entry *e = osh_container_at(st, i);
        if (strcmp(e->name, name)) continue;
        assert_int_equal(e->end - e->begin, N * (int64_t)sizeof *to);
        assert_ok(cx, osh_container_read(cx, to, st, e));
        return;
    }
    fail_msg("no %s", name);
}

typedef struct search_of { const osh_modifier *m; osh_search *j; } search_of;

static osh_status search_again(osh_ctx *torn, void *user)
{
    const search_of *o = user;
    float s[N];
    return o->m->type->transform->search(torn, o->m, s, o->j);
}

/* Checks that the predicted memory is enough for the search, and not much more. */
static void check_bytes(const search_of *o, int n_threads)
{
    osh_ctx *fresh;
    assert_int_equal(osh_ctx_new(&fresh, n_threads), OSH_OK);
    size_t before = osh_mem_used(fresh, OSH_MEM_HOST),
           bytes = o->m->type->transform->search_bytes(o->m, o->j, n_threads);
    assert_ok(fresh, search_again(fresh, (void *)(uintptr_t)o));
    assert_in_range(osh_mem_used_peak(fresh, OSH_MEM_HOST) - before, bytes / 3, bytes);
    osh_ctx_free(fresh);
}

static void case_of(awq_case *c, const osh_recipe *r, bool tear)
{
    float mean[N], want[N], s[N], again[N];
    static float h[N * N];
    memset(h, 0, sizeof h);
    osh_tensor H = osh_tensor_view(OSH_F32, 2, (int64_t[]){N, N}, h);
    const osh_modifier *m = &r->modifiers[0];
    osh_balance balance[LINEARS];
    make(c);
    collect(c, mean, &H);
    wanted(want, c->name);
    for (int k = 0; k < LINEARS; k++)
        balance[k] = (osh_balance){.name = "linear", .scheme = &r->modifiers[1].schemes[0],
                                   .dtype = c->dt,
                                   .O = n_rows[k]};
    osh_search j = {.name = c->name, .n = N, .mean = mean, .h = h, .balance = balance,
                    .n_balance = LINEARS,
                    .rows = rows_of, .user = c};
    assert_ok(cx, m->type->transform->search(cx, m, s, &j));
    for (int i = 0; i < N; i++)
        if (!(fabs((double)s[i] - want[i]) <= 2e-6 * want[i]))
            fail_msg("%s, channel %d: %.9g, want %.9g", c->name, i, (double)s[i], (double)want[i]);
    assert_true(j.after > 0 && j.after <= j.before);
    assert_ok(many, m->type->transform->search(many, m, again, &j));
    // a search with another number of threads gives the same bytes
    assert_memory_equal(again, s, sizeof s);
    search_of o = {m, &j};
    check_bytes(&o, 1);
    check_bytes(&o, 3);
    if (tear) assert_true(torture(search_again, &o) > 20);
}

static void test_cases(void **state)
{
    cJSON *cases = NULL; // own
    char path[512], text[600];
    static awq_case c;
    int n = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/cases.json", folder);
    assert_ok(cx, osh_json_read(cx, &cases, path, 1 << 20, 0));
    for (const cJSON *o = cases->child; o; o = o->next, n++) {
        const char *scheme = cJSON_GetObjectItem(o, "scheme")->valuestring, *weights = NULL;
        osh_recipe *r = NULL; // own
        c = (awq_case){.name = o->string,
                       .dt = osh_dtype_of_name(cJSON_GetObjectItem(o, "dtype")->valuestring),
                       .stream = (uint64_t)cJSON_GetObjectItem(o, "stream")->valuedouble};
        for (size_t k = 0; k < sizeof schemes / sizeof *schemes; k++)
            if (!strcmp(schemes[k].name, scheme)) weights = schemes[k].weights;
        assert_non_null(weights);
        snprintf(text, sizeof text,
                 "s_stage: {q_modifiers: {AWQModifier: {duo_scaling: %s, n_grid: %d}, "
                 "QuantizationModifier: "
                 "{config_groups: {g: {targets: [Linear], weights: {%s}}}}}}",
                 cJSON_GetObjectItem(o, "duo")->valuestring,
                 cJSON_GetObjectItem(o, "n_grid")->valueint, weights);
        assert_ok(cx, osh_recipe_parse(cx, &r, text, strlen(text), "case"));
        case_of(&c, r, !n);
        osh_recipe_free(cx, r);
    }
    assert_int_equal(n, CASES);
    cJSON_Delete(cases);
}

static int setup(void **state)
{
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s/factors.safetensors", folder);
    return osh_ctx_new(&cx, 1) || osh_ctx_new(&many, 3) || osh_container_open(cx, &st, path);
}

static int teardown(void **state)
{
    (void)state;
    osh_container_close(cx, st);
    int live = osh_mem_live(cx) != 0 || osh_mem_live(many) != 0;
    osh_ctx_free(cx);
    osh_ctx_free(many);
    return live;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
