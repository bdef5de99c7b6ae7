/* prune.c - prunes a weight in plain loops, by SparseGPT or by magnitude. Pruning by magnitude does
 * not change the remaining weights. SparseGPT works row by row:
 *
 *   cost[r, i] = (w[r, i] w[r, i]) / (u[i, i] u[i, i])      each product rounded
 *   err        = w / u[i, i] if w becomes 0, else 0
 *   w[j]      -= err u[i, j]                                for the later columns j of the block
 *   w[j]      -= sum over i of err[i] u[i, j]               after a block [i1, i2), for j >= i2 */
#include "solver/prune.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

static uint32_t magnitude_bits(float x) { return osh_bits_of_f32(x) & 0x7fffffffu; }

float osh_kth(const float *x, int64_t n, int64_t k, int64_t *less)
{
    static const int shifts[] = {20, 10, 0}, widths[] = {11, 10, 10};
    int64_t bins[2048];
    uint32_t prefix = 0, mask = 0;
    *less = 0;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t last = (1u << widths[pass]) - 1, b = 0;
        memset(bins, 0, sizeof bins);
        for (int64_t i = 0; i < n; i++) {
            uint32_t m = magnitude_bits(x[i]);
            if ((m & mask) == prefix) bins[m >> shifts[pass] & last]++;
        }
        while (b < last && *less + bins[b] <= k) *less += bins[b++];
        prefix |= b << shifts[pass], mask |= last << shifts[pass];
    }
    return osh_f32_of_bits(prefix);
}

/* ---- equal magnitudes ---- */

typedef struct cut { // numbers that become 0
    float most;      // all magnitudes below this one become 0
    int64_t n_equal; // number of magnitudes that equal `most`
    int64_t n_zero;  // number of these magnitudes that become 0
    int64_t n_seen;  // number of these magnitudes for which cut_takes was called
} cut;

/* Selects the k smallest magnitudes of the n numbers x (k from 1). All numbers with the largest
 * selected magnitude become 0, as in LLM Compressor. But if these are too many, such as all numbers
 * of a ternary weight, exactly k numbers become 0. */
static cut cut_at(const float *x, int64_t n, int64_t k)
{
    int64_t less;
    cut c = {.most = osh_kth(x, n, k - 1, &less)};
    for (int64_t i = 0; i < n; i++) c.n_equal += fabsf(x[i]) == c.most;
    bool everything = less + c.n_equal == n && k < n;
    c.n_zero = everything || less + c.n_equal - k > n / 8 ? k - less : c.n_equal;
    return c;
}

/* True if x becomes 0. Must be called once for each of the n numbers. If only some of the numbers
 * with the magnitude c->most become 0, these numbers are spread evenly among the others. */
static bool cut_takes(cut *c, float x)
{
    if (fabsf(x) != c->most) return fabsf(x) < c->most;
    int64_t i = c->n_seen++;
    return (i + 1) * c->n_zero / c->n_equal > i * c->n_zero / c->n_equal;
}

float osh_prune_most(float *cost, int64_t n, int64_t k, bool few)
{
    cut c = cut_at(cost, n, k);
    for (int64_t i = 0; few && i < n; i++)
        if (cost[i] == c.most && !cut_takes(&c, cost[i])) cost[i] = INFINITY;
    return c.most;
}

/* ---- SparseGPT ---- */

static float prune_diag(const osh_prune_solve_args *a, int64_t i)
{
    return a->u ? a->u[i * a->I + i] : 1;
}

static float prune_cost(const osh_prune_solve_args *a, int64_t row, int64_t i, const bool *zero)
{
    float w = a->w[row * a->I + i], d = prune_diag(a, i);
    return a->keep && zero[row * a->I + i] ? 0 : w * w / (d * d);
}

/* Decides which weights of columns [i1, i1 + cols) become 0. In these columns sets `out` [O, I] to
 * true for weights that become 0, and to false for all others. `zero` [O, I]: true for weights that
 * were 0 before pruning. */
static osh_status prune_choose(osh_ctx *cx, const osh_prune_solve_args *a, bool *out,
                               const bool *zero, int64_t i1, int64_t cols)
{
    osh_status rc = OSH_OK;
    float *cost = NULL; // own
    int64_t n = a->O * cols, zeros = 0;
    OSH_NEW(cx, cost, n);
    for (int64_t r = 0; r < a->O; r++)
        for (int64_t j = 0; j < cols; j++) {
            cost[r * cols + j] = prune_cost(a, r, i1 + j, zero);
            zeros += a->keep && zero[r * a->I + i1 + j];
        }
    int64_t k = (int64_t)((double)n * a->sparsity);
    bool more = !a->keep || k > zeros;
    float most = more ? osh_prune_most(cost, n, k < n ? k + 1 : n, !a->u) : 0;
    for (int64_t r = 0; r < a->O; r++)
        for (int64_t j = 0; j < cols; j++)
            out[r * a->I + i1 + j] = more ? cost[r * cols + j] <= most : zero[r * a->I + i1 + j];
done:
    osh_free(cx, cost);
    return rc;
}

/* Decides which weights in columns [i, i + m) of one row become 0: the n weights with the lowest
 * costs. If a->keep is true, the weights that were 0 before pruning become 0, too. In these columns
 * sets `out` to true for weights that become 0, and to false for all others. */
static void prune_choose_group(const osh_prune_solve_args *a, bool *out, const bool *zero,
                               int64_t row, int64_t i)
{
    bool *at = out + row * a->I + i;
    for (int64_t j = 0; j < a->m; j++) {
        float mine = prune_cost(a, row, i + j, zero);
        int64_t before = 0;
        for (int64_t k = 0; k < a->m; k++) {
            float other = prune_cost(a, row, i + k, zero);
            before += other < mine || (other == mine && k < j);
        }
        at[j] = before < a->n || (a->keep && zero[row * a->I + i + j]);
    }
}

/* Prunes columns [i1, i2) of all rows and adds the errors to the later columns. `err` [I]:
 * scratch. */
static void prune_block(const osh_prune_solve_args *a, bool *out, const bool *zero, float *err,
                        int64_t i1, int64_t i2)
{
    for (int64_t r = 0; r < a->O; r++) {
        float *w = a->w + r * a->I;
        for (int64_t i = i1; i < i2; i++) {
            const float *u = a->u ? a->u + i * a->I : NULL;
            if (a->n && (i - i1) % a->m == 0) prune_choose_group(a, out, zero, r, i);
            err[i] = out[r * a->I + i] ? w[i] / prune_diag(a, i) : 0;
            a->loss[r] += (double)err[i] * err[i] / 2;
            if (out[r * a->I + i]) w[i] = 0;
            for (int64_t j = i + 1; u && j < i2; j++) w[j] -= err[i] * u[j];
        }
        for (int64_t j = i2; a->u && j < a->I; j++) {
            double sum = 0;
            for (int64_t i = i1; i < i2; i++) sum += (double)err[i] * a->u[i * a->I + j];
            w[j] = a->keep && zero[r * a->I + j] ? 0 : (float)(w[j] - sum);
        }
    }
}

osh_status osh_prune_solve_ref(osh_ctx *cx, const osh_prune_solve_args *a)
{
    osh_status rc = OSH_OK;
    bool *out = NULL;  // own [O, I]: true for weights that become 0
    bool *zero = NULL; // own [O, I]: true for weights that are 0 before pruning
    float *err = NULL;              // own: [I]
    OSH_NEW(cx, out, a->O * a->I);
    OSH_NEW(cx, zero, a->O * a->I);
    OSH_NEW(cx, err, a->I);
    for (int64_t i = 0; i < a->O * a->I; i++) zero[i] = a->w[i] == 0;
    memset(a->loss, 0, (size_t)a->O * sizeof *a->loss);
    for (int64_t i1 = 0; i1 < a->I; i1 += a->block_size) {
        int64_t cols = osh_min64(a->block_size, a->I - i1);
        if (!a->n) OSH_TRY(prune_choose(cx, a, out, zero, i1, cols));
        prune_block(a, out, zero, err, i1, i1 + cols);
    }
done:
    osh_free(cx, out);
    osh_free(cx, zero);
    osh_free(cx, err);
    return rc;
}

/* ---- pruning without updates ---- */

enum { CHUNK_ROWS = 16 };
typedef struct rows_job {
    float *w, *cost; // w: view of the weight; cost: own scratch, [threads, I]
    const float *weight;
    int64_t O, I, k, n, m;
} rows_job;

/* Among n weights, sets the k weights with the lowest costs to 0. If costs are equal, weights with
 * smaller indices are chosen first. */
static void prune_least(float *w, const float *cost, int64_t n, int64_t k)
{
    int64_t less;
    if (k <= 0) return;
    float most = osh_kth(cost, n, k - 1, &less);
    int64_t ties = k - less;
    for (int64_t i = 0; i < n; i++) {
        if (cost[i] > most || (cost[i] == most && ties-- <= 0)) continue;
        w[i] = 0;
    }
}

/* Among each m consecutive weights of a row, sets the n weights with the lowest costs to 0. If
 * costs are equal, weights with smaller indices are chosen first. */
static void prune_of_each(float *w, const float *cost, int64_t I, int64_t n, int64_t m)
{
    for (int64_t i = 0; i < I; i += m)
        for (int64_t j = 0; j < m; j++) {
            int64_t before = 0;
            for (int64_t k = 0; k < m; k++)
                before += cost[i + k] < cost[i + j] || (cost[i + k] == cost[i + j] && k < j);
            if (before < n) w[i + j] = 0;
        }
}

static osh_status prune_rows_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const rows_job *j = user;
    float *cost = j->cost + worker * j->I;
    (void)cx;
    for (int64_t r = chunk * CHUNK_ROWS; r < osh_min64(j->O, (chunk + 1) * CHUNK_ROWS); r++) {
        float *w = j->w + r * j->I;
        for (int64_t i = 0; i < j->I; i++)
            cost[i] = fabsf(w[i]) * (j->weight ? sqrtf(j->weight[i]) : 1);
        if (j->n) prune_of_each(w, cost, j->I, j->n, j->m);
        else prune_least(w, cost, j->I, j->k);
    }
    return OSH_OK;
}

osh_status osh_prune_rows(osh_ctx *cx, float *w, const float *weight, int64_t O, int64_t I,
                          osh_prune_share share)
{
    osh_status rc = OSH_OK;
    rows_job j = {.w = w,
                  .weight = weight,
                  .O = O,
                  .I = I,
                  .k = (int64_t)((double)I * share.sparsity),
                  .n = share.n,
                  .m = share.m};
    OSH_NEW(cx, j.cost, osh_threads(cx) * I);
    OSH_TRY(osh_parallel_for(cx, osh_div_up(O, CHUNK_ROWS), prune_rows_chunk, &j));
done:
    osh_free(cx, j.cost);
    return rc;
}

size_t osh_prune_rows_bytes(int64_t I, int n_threads)
{
    return osh_mem_gross((size_t)(n_threads * I) * sizeof(float));
}

osh_status osh_prune_all(osh_ctx *cx, float *w, int64_t O, int64_t I, double sparsity)
{
    int64_t n = O * I, k = (int64_t)(sparsity * (double)n);
    if (k <= 0) return OSH_OK;
    cut c = cut_at(w, n, k);
    for (int64_t i = 0; i < n; i++)
        if (cut_takes(&c, w[i])) w[i] = 0;
    return osh_check_interrupt(cx);
}
