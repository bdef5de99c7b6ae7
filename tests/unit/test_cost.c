/* test_cost.c - compares counts of operations with a calculation by hand for the model in
 * examples/, and tests the estimate of the remaining time with an artificial clock. */
#include "plan/plan.h"
#include "run/pace.h"
#include "torture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char model[] = OSH_SOURCE_DIR "/examples/docs-llama-3m";
/* Widths of the model, which has 4 heads of 64 and 2 key/value heads. */
enum { D = 256, F = 512, KV = 128, SAMPLES = 3, T = 64 };

static osh_plan *plan_of(osh_ctx *cx, osh_options *opt, const char *const (*set)[2], size_t n)
{
    osh_plan *p = NULL;
    assert_ok(cx, osh_fields_default(cx, osh_option_fields, opt));
    assert_ok(cx, osh_option_set(cx, opt, "model", model));
    assert_ok(cx, osh_option_set(cx, opt, "dataset",
                                 OSH_SOURCE_DIR "/examples/docs-llama-3m/data/calibration.jsonl"));
    assert_ok(cx, osh_option_set(cx, opt, "scheme", "W4A16"));
    assert_ok(cx, osh_option_set(cx, opt, "ignore", "lm_head"));
    assert_ok(cx, osh_option_set(cx, opt, "num-calibration-samples", "3"));
    assert_ok(cx, osh_option_set(cx, opt, "max-seq-length", "64"));
    for (size_t i = 0; i < n; i++) assert_ok(cx, osh_option_set(cx, opt, set[i][0], set[i][1]));
    assert_ok(cx, osh_plan_new(cx, &p, opt));
    return p;
}

static void near_to(double got, double want)
{
    if (fabs(got - want) > 1e-6 * fabs(want)) fail_msg("%.9g, want %.9g", got, want);
}

static void flops_of_layers(void **state)
{
    osh_ctx *cx;
    osh_options opt = {0};
    osh_cost *c;
    int n;
    static const char *const set[][2] = {{"method", "gptq"}};
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_plan *p = plan_of(cx, &opt, set, 1);
    // every sample is cut to T tokens
    assert_int_equal(p->in.data.offsets[p->in.data.n], SAMPLES * T);
    assert_ok(cx, osh_cost_new(cx, &c, &n, &p->budget));
    assert_int_equal(n, 1 + 4 + 1); // subgraphs: the embedding, 4 layers, the output
    double N = SAMPLES * T;
    double qkvo = 2 * N * D * (D + KV + KV + D), mlp = 2 * N * D * (2 * F), down = 2 * N * F * D;
    double attention = SAMPLES * 4.0 * D * T * (T + 1) / 2;
    /* Q, k and v share one Hessian; o has one; gate and up share one; down has one. */
    double hessians = N * (3 * D * (D + 1) + F * (F + 1.0));
    double factors = 2.0 / 3 * (3 * pow(D, 3) + pow(F, 3));
    double solves = (double)D * D * (D + KV + KV + D + 2 * F) + (double)D * F * F;
    // the error of each of the 7 Linears is computed for 64 of its rows
    double judged = 64.0 * (6 * D * D + F * F);
    for (int s = 1; s <= 4; s++) {
        /* The pass that observes does not run down_proj. */
        near_to(c[s].flops[OSH_PHASE_OBSERVE], qkvo + mlp + attention + hessians);
        near_to(c[s].flops[OSH_PHASE_SOLVE], factors + solves + judged);
        /* No later subgraph reads the output of the last layer. */
        near_to(c[s].flops[OSH_PHASE_PROPAGATE], s < 4 ? qkvo + mlp + attention + down : 0);
    }
    assert_true(c[0].flops[OSH_PHASE_PROPAGATE] == 0 && c[0].work[OSH_PHASE_PROPAGATE] > 0);
    assert_true(c[5].work[OSH_PHASE_COPY] > 0 && c[5].work[OSH_PHASE_SEAL] > 0);
    double sum = 0; // sum of the operations over the Linears of subgraph 2
    for (int i = 0; i < p->match.n_linears; i++)
        if (p->match.linears[i].subgraph == 2) sum += osh_cost_of_linear(&p->budget, i);
    near_to(sum, c[2].work[OSH_PHASE_SOLVE]);
    osh_free(cx, c);
    osh_plan_free(cx, p);
    osh_fields_deinit(cx, osh_option_fields, &opt);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void pipelines(void **state)
{
    osh_ctx *cx;
    static const char *const sets[][2] = {{"pipeline", "basic"}, {"sequential-targets", "Linear"}};
    double flops[2] = {0};
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int k = 0; k < 2; k++) {
        osh_options opt = {0};
        osh_cost *c;
        int n;
        const char *const set[][2] = {{"method", "gptq"}, {sets[k][0], sets[k][1]}};
        osh_plan *p = plan_of(cx, &opt, set, 2);
        assert_ok(cx, osh_cost_new(cx, &c, &n, &p->budget));
        assert_int_equal(n, k ? p->schedule.parts->n + 1 : 2);
        for (int s = 0; s < n; s++)
            for (int f = 0; f < OSH_N_PHASES; f++) flops[k] += c[s].flops[f];
        osh_free(cx, c);
        osh_plan_free(cx, p);
        osh_fields_deinit(cx, osh_option_fields, &opt);
    }
    // every op runs once, both with Linears and with layers as targets
    near_to(flops[0], flops[1]);
    osh_options opt = {0};
    osh_cost *c;
    int n;
    osh_plan *p = plan_of(cx, &opt, NULL, 0); // rounding to nearest needs no data
    assert_ok(cx, osh_cost_new(cx, &c, &n, &p->budget));
    assert_int_equal(n, 1);
    assert_true(c[0].work[OSH_PHASE_ROUND] > 0 && c[0].work[OSH_PHASE_COPY] > 0 &&
                c[0].work[OSH_PHASE_OBSERVE] == 0);
    osh_free(cx, c);
    osh_plan_free(cx, p);
    osh_fields_deinit(cx, osh_option_fields, &opt);
    osh_ctx_free(cx);
}

/* Compares one sample of 3 T tokens with 3 samples of T tokens. The long sample takes more work
 * only in attention, where the work grows with the square of the length. */
static void long_samples(void **state)
{
    osh_ctx *cx;
    static const char *const sets[][2] = {{"3", "64"}, {"1", "192"}};
    double work[2], flops[2];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int k = 0; k < 2; k++) {
        osh_options opt = {0};
        osh_cost *c;
        int n;
        const char *const set[][2] = {{"method", "gptq"},
                                      {"num-calibration-samples", sets[k][0]},
                                      {"max-seq-length", sets[k][1]}};
        osh_plan *p = plan_of(cx, &opt, set, 3);
        assert_int_equal(p->in.data.offsets[p->in.data.n], SAMPLES * T);
        assert_ok(cx, osh_cost_new(cx, &c, &n, &p->budget));
        work[k] = c[2].work[OSH_PHASE_OBSERVE], flops[k] = c[2].flops[OSH_PHASE_OBSERVE];
        osh_free(cx, c);
        osh_plan_free(cx, p);
        osh_fields_deinit(cx, osh_option_fields, &opt);
    }
    double pairs = 3 * T * (3 * T + 1.0) / 2 - 3 * (T * (T + 1.0) / 2);
    near_to(flops[1] - flops[0], 4.0 * D * pairs);
    /* The estimate counts attention at 30 GFLOP/s, 0.6 of the speed of matrix products. */
    near_to(work[1] - work[0], 4.0 * D * pairs / 30e9);
    osh_ctx_free(cx);
}

typedef struct shares {
    int n;         // number of passes
    double sum[2]; // sums of the shares (osh_cost_share) of passes; [0]: passes that observe; [1]:
                   // passes that propagate
} shares;
static void shares_add(osh_ctx *cx, shares *x, const osh_plan *p, const osh_cost *c, int index)
{
    osh_steps *steps;
    bool *open = calloc((size_t)p->in.graph->n_values, sizeof *open);
    assert_ok(cx, osh_steps_new(cx, &steps, p->in.graph));
    assert_ok(cx, osh_visit_list(cx, steps, &p->schedule, index, NULL));
    for (int k = 0; k < osh_steps_n(steps); k++) {
        const osh_step *s = osh_steps_at(steps, k);
        double share;
        if (s->kind == OSH_STEP_OPEN)
            memcpy(open, s->values, (size_t)p->in.graph->n_values * sizeof *open);
        if (s->kind != OSH_STEP_PASS) continue;
        assert_ok(cx, osh_cost_share(cx, &share, &p->budget, c,
                                     &(osh_visited){index, s, s->observe ? open : NULL}));
        x->sum[s->again] += share, x->n++;
    }
    osh_steps_free(cx, steps);
    free(open);
}

/* A pass is of the kind observe or propagate. The share of a pass is its cost divided by the cost
 * of all passes of the same kind in a subgraph. Without the time to read weights, the shares of a
 * kind add up to 1. */
static void shares_of_passes(void **state)
{
    osh_ctx *cx;
    osh_options opt = {0};
    static const char *const set[][2] = {{"method", "gptq"}};
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_plan *p = plan_of(cx, &opt, set, 1);
    for (int way = 0; way < 3; way++) {
        osh_cost *c;
        int n;
        for (int i = 0; i < p->schedule.n_visits; i++) {
            p->schedule.visits[i].how.round_bytes = way == 1 ? 600000 : 0;
            p->schedule.visits[i].how.segments = way == 2;
        }
        assert_ok(cx, osh_cost_new(cx, &c, &n, &p->budget));
        shares x = {0};
        shares_add(cx, &x, p, c, 2);
        if (x.sum[0] < 0.8 || x.sum[0] > 1.001 || x.sum[1] < 0.8 || x.sum[1] > 1.001)
            fail_msg("way %d: observe %.3f, propagate %.3f", way, x.sum[0], x.sum[1]);
        assert_true(way == 0 ? x.n == 2 : x.n > 2);
        osh_free(cx, c);
    }
    osh_plan_free(cx, p);
    osh_fields_deinit(cx, osh_option_fields, &opt);
    osh_ctx_free(cx);
}

/* The estimate of the remaining time must learn from measured times. In each of ten equal
 * subgraphs, the phase `observe` has 3 times the operations of the phase `propagate`, but 9 times
 * its seconds. */
static void pace_learns(void **state)
{
    osh_cost cost[11] = {0};
    for (int s = 0; s < 10; s++)
        cost[s].work[OSH_PHASE_OBSERVE] = 3, cost[s].work[OSH_PHASE_PROPAGATE] = 1;
    osh_pace pace = {.cost = cost, .n = 11, .subgraph = -1};
    double t = 100;
    assert_true(osh_pace_eta(&pace, t) == 0); // no time is measured yet, so there is no estimate
    for (int s = 0; s < 2; s++) {
        osh_pace_begin(&pace, OSH_PHASE_OBSERVE, s, 1, t);
        assert_true(s > 0 || osh_pace_eta(&pace, t) == 0);
        for (int k = 1; k <= 4; k++) osh_pace_step(&pace, k / 4.0), t += 9;
        osh_pace_begin(&pace, OSH_PHASE_PROPAGATE, s, 1, t); // the observe pass has ended
        osh_pace_step(&pace, 0.5), t += 2;
        if (fabs(osh_pace_eta(&pace, t) / (40 * (9 - s) + 2) - 1) > 0.2)
            fail_msg("%.1f", osh_pace_eta(&pace, t));
        osh_pace_step(&pace, 1), t += 2;
    }
    osh_pace_end(&pace, t);
    if (fabs(osh_pace_eta(&pace, t) / 320 - 1) > 0.02)
        fail_msg("eta %.1f, want 320", osh_pace_eta(&pace, t));
    near_to(osh_pace_work(&pace), 40);
    /* Continues at subgraph 8, as if an earlier process had finished the subgraphs before it. */
    osh_pace_begin(&pace, OSH_PHASE_OBSERVE, 8, 1, t);
    if (fabs(osh_pace_eta(&pace, t) / 80 - 1) > 0.02)
        fail_msg("eta %.1f, want 80", osh_pace_eta(&pace, t));
    osh_pace_begin(&pace, OSH_PHASE_SEAL, -1, 1, t);
    osh_pace_end(&pace, t + 1);
    assert_true(osh_pace_eta(&pace, t + 1) == 0); // the job has ended, so no time remains
}

/* A subgraph is processed in two rounds of observe and solve. After the first round, half of the
 * work of each phase remains. */
static void pace_of_rounds(void **state)
{
    osh_cost cost[2] = {{{0}}};
    cost[0].work[OSH_PHASE_OBSERVE] = 4, cost[0].work[OSH_PHASE_SOLVE] = 2;
    osh_pace pace = {.cost = cost, .n = 2, .subgraph = -1};
    double t = 5;
    for (int round = 0; round < 2; round++) {
        /* The first round takes 2 seconds more, to load weights. */
        osh_pace_begin(&pace, OSH_PHASE_OBSERVE, 0, 0.5, round ? t += 2 : t);
        osh_pace_step(&pace, 1), t += round ? 4 : 6;
        osh_pace_begin(&pace, OSH_PHASE_SOLVE, 0, 0.5, t);
        osh_pace_end(&pace, t += 3);
        near_to(osh_pace_eta(&pace, t), round ? 0 : 9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops_of_layers),
        cmocka_unit_test(pipelines),
        cmocka_unit_test(long_samples),
        cmocka_unit_test(shares_of_passes),
        cmocka_unit_test(pace_learns),
        cmocka_unit_test(pace_of_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
