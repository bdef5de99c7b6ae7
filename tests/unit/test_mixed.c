/* test_mixed.c - tests the choice of a candidate (scheme) for each unit (Linears that must get the
 * same scheme). The choice must be within the limit of bytes, and no worse than the computed bound.
 * For small problems it must be equal or close to the best choice. */
#include "torture.h"

#include "base/rng.h"
#include "plan/mixed.h"

enum { UNITS = 5, CANDIDATES = 4 };

static osh_mixed *mixed_make(osh_ctx *cx, uint64_t seed)
{
    osh_mixed *m = osh_calloc(cx, 1, sizeof *m);
    m->units = osh_calloc(cx, UNITS, sizeof *m->units);
    m->unit_of = osh_calloc(cx, UNITS, sizeof *m->unit_of);
    m->n_units = UNITS;
    for (int u = 0; u < UNITS; u++) {
        osh_mixed_unit *x = &m->units[u];
        double size = 100 * (1 + (double)(osh_rng_u64(seed, 0, (uint64_t)u) % 9));
        double worth = 0.1 + (double)(osh_rng_u64(seed, 1, (uint64_t)u) % 1000);
        x->n = CANDIDATES, x->n_weights = (int64_t)size * 8;
        m->n_weights += x->n_weights;
        for (int k = 0; k < CANDIDATES; k++) {
            x->bits[k] = 2 + k, x->bytes[k] = (int64_t)size * (2 + k);
            /* The factor is 0.1 to 1.05. If it exceeds 1, the loss is larger with more bits. */
            worth *= 0.1 + 0.05 * (double)(osh_rng_u64(seed, 2 + (uint64_t)k, (uint64_t)u) % 20);
            x->loss[k] = worth;
        }
        if (seed % 2) { // the candidates have several formats, so a candidate with more bits may
                        // take fewer bytes
            int64_t bytes = x->bytes[1];
            double loss = x->loss[1];
            x->bytes[1] = x->bytes[2], x->loss[1] = x->loss[2], x->bytes[2] = bytes,
            x->loss[2] = loss;
        }
    }
    return m;
}

/* Returns the least loss of all choices within the limit, by trying all of them. */
static double best_of_all(const osh_mixed *m, int64_t limit)
{
    double best = 1e300;
    for (int code = 0; code < CANDIDATES * CANDIDATES * CANDIDATES * CANDIDATES * CANDIDATES;
         code++) {
        int64_t bytes = 0;
        double loss = 0;
        for (int u = 0, rest = code; u < UNITS; u++, rest /= CANDIDATES)
            bytes += m->units[u].bytes[rest % CANDIDATES],
                loss += m->units[u].loss[rest % CANDIDATES];
        if (bytes <= limit && loss < best) best = loss;
    }
    return best;
}

static void test_against_all(void **state)
{
    osh_ctx *cx = *state;
    int n_best = 0, n = 0;
    for (uint64_t seed = 1; seed <= 40; seed++)
        for (int share = 0; share <= 6; share++) {
            osh_mixed *m = mixed_make(cx, seed);
            int64_t least = 0, most = 0, bytes = 0;
            double loss = 0;
            for (int u = 0; u < UNITS; u++)
                least += m->units[u].bytes[0], most += m->units[u].bytes[CANDIDATES - 1];
            int64_t limit = least + (most - least) * share / 6;
            double best = best_of_all(m, limit);
            assert_ok(cx, osh_mixed_choose(cx, m, limit));
            for (int u = 0; u < UNITS; u++)
                bytes += m->units[u].bytes[m->units[u].chosen],
                    loss += m->units[u].loss[m->units[u].chosen];
            assert_true(bytes == m->bytes && bytes <= limit);
            assert_true(loss >= best * (1 - 1e-9) && m->bound <= best * (1 + 1e-9));
            n_best += loss <= best * (1 + 1e-9), n++;
            osh_mixed_free(cx, m);
        }
    if (n_best < n * 3 / 4) fail_msg("the best choice in %d of %d", n_best, n);
}

/* Two units (sets of Linears with one scheme) have the same size. A byte more for the first unit
 * lowers the loss ten times as much as a byte more for the second. */
static void test_known(void **state)
{
    osh_ctx *cx = *state;
    osh_mixed *m = mixed_make(cx, 1);
    m->n_units = 2;
    for (int u = 0; u < 2; u++)
        for (int k = 0; k < CANDIDATES; k++)
            m->units[u].bytes[k] = 100 * (2 + k),
            m->units[u].loss[k] = (u ? 1 : 10) * (double)(1 << (2 * (3 - k)));
    assert_ok(cx, osh_mixed_choose(cx, m, 700)); // the limit is 3.5 bits on average
    assert_int_equal(m->units[0].chosen, 2);
    assert_int_equal(m->units[1].chosen, 1);
    assert_true(m->loss == 40 + 16 && m->bound == m->loss);
    assert_int_equal(m->n_curve, 7);
    assert_true(m->curve[0].bytes == 400 && m->curve[0].loss == 704 && m->curve[6].bytes == 1000);
    osh_mixed_free(cx, m);
}

static void test_too_small(void **state)
{
    osh_ctx *cx = *state;
    osh_mixed *m = mixed_make(cx, 3);
    assert_int_equal(osh_mixed_choose(cx, m, 10), OSH_E_USAGE);
    assert_non_null(strstr(osh_error_text(cx), "want a larger target"));
    osh_error_clear(cx);
    osh_mixed_free(cx, m);
}

/* A unit is the Linears that get the same scheme. The effect of a unit multiplies the losses of all
 * its candidates. */
static void test_weighed(void **state)
{
    osh_ctx *cx = *state;
    osh_mixed *m = mixed_make(cx, 5);
    double effect[UNITS] = {0.5, 0.25, 0, 1, 2}, before = m->units[0].loss[2];
    for (int u = 0; u < UNITS; u++) m->units[u].rounded = 4;
    osh_mixed_weigh(m, effect);
    assert_true(m->units[0].loss[2] == before * 0.125 && m->units[0].effect == 0.5);
    for (int k = 0; k < CANDIDATES; k++) assert_true(m->units[2].loss[k] == 0);
    assert_ok(cx, osh_mixed_choose(cx, m, 1 << 20));
    assert_int_equal(m->units[2].chosen, 0); // a unit with effect 0 gets the smallest candidate
    osh_mixed_free(cx, m);
}

static int setup(void **state) { return osh_ctx_new((osh_ctx **)state, 1); }

static int teardown(void **state)
{
    int64_t live = osh_mem_live(*state);
    osh_ctx_free(*state);
    return live != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_against_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_known, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_small, setup, teardown),
        cmocka_unit_test_setup_teardown(test_weighed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
