/* gptq_descend.c - does coordinate descent on the codes of a tile of rows, one block of columns at
 * a time. solver/gptq_descend.c has the formulas.
 * In a block, eight columns of a row are tested together. They are processed one by one only if one
 * of their codes may change, which is rare. After a block, the effect of its changed codes is added
 * to the other columns of G = (w^ - w) H. This update reads H in panels of PANEL columns, and a
 * panel stays in the cache while all rows are updated. */
#include "base/isa.h"
#include "solver/cpu/refine.h"

enum { PANEL = 2048 }; // number of columns of H in a panel

typedef struct block { // columns [first, first + n) of one row
    const osh_refine_tile *t;
    int64_t row, first, n;
    // g: G of each column. s, z: scale and zero point of each column. steep: H_jj s of each column
    // j; the loss is least if code j changes by -g_j / steep_j.
    float g[OSH_DESCEND_BLOCK], s[OSH_DESCEND_BLOCK], z[OSH_DESCEND_BLOCK],
        steep[OSH_DESCEND_BLOCK];
} block;

static void descend_load(block *b, const osh_refine_tile *t, int64_t row)
{
    const osh_gptq_refine_args *a = t->a;
    b->t = t, b->row = row;
    for (int64_t j = 0; j < b->n; j++) {
        int64_t c = b->first + j, at = row * t->groups + c / a->group;
        b->g[j] = t->g[row * a->I + c];
        b->s[j] = t->scale[at];
        b->z[j] = t->zero[at];
        b->steep[j] = a->h[c * (a->I + 1)] * b->s[j];
    }
    for (int64_t j = b->n; j < osh_pad8(b->n); j++)
        b->g[j] = 0, b->steep[j] = b->s[j] = 1, b->z[j] = 0;
}

/* Adds the products `by[k] * h[k]` to g [n], for each k < n_rows, in the order of k. */
OSH_VEC_FN void descend_add_rows(float *g, const float *const *h, const float *by, int n_rows,
                                 int64_t n)
{
    int64_t i = 0;
    for (; i + OSH_LANES <= n; i += OSH_LANES) {
        osh_v8f sum, x;
        v8_load(&sum, g + i);
        for (int k = 0; k < n_rows; k++) {
            v8_load(&x, h[k] + i);
            sum = sum + x * by[k];
        }
        v8_store(g + i, &sum);
    }
    for (; i < n; i++)
        for (int k = 0; k < n_rows; k++) g[i] += h[k][i] * by[k];
}

/* Tests column j of the block, and changes its code if another code has a lower loss. */
OSH_VEC_FN void descend_one(block *b, int64_t j)
{
    const osh_refine_tile *t = b->t;
    const osh_gptq_refine_args *a = t->a;
    const osh_grid *grid = &a->rule.grid;
    int64_t c = b->first + j;
    float *q = &t->q[b->row * a->I + c];
    float want = *q - b->g[j] / b->steep[j];
    want = want < grid->lo ? grid->lo : want > grid->hi ? grid->hi : want;
    float next = osh_grid_nearest(grid, want);
    if (next == *q || next != next) return;
    float by =
        osh_value(&a->rule, next, b->s[j], b->z[j]) - osh_value(&a->rule, *q, b->s[j], b->z[j]);
    if (!(2 * by * b->g[j] + by * by * a->h[c * (a->I + 1)] < 0)) return;
    const float *h = a->h + c * a->I + b->first;
    *q = next;
    descend_add_rows(b->g, &h, &by, 1, b->n);
    t->changes[b->row * OSH_DESCEND_BLOCK + t->n_changes[b->row]++] = (osh_change){(int32_t)c, by};
}

/* Tests all columns of a block. An integer code can only change if |g / steep| is at least 1/2.
 * Eight columns are skipped if |g / steep| is below 1/2 for all of them. Codes of a floating type
 * are never skipped. */
OSH_VEC_FN void block_body(block *b)
{
    bool whole = !b->t->a->rule.grid.digits;
    for (int64_t j = 0; j < b->n; j += OSH_LANES) {
        osh_v8f g, steep, half;
        v8_load(&g, b->g + j);
        v8_load(&steep, b->steep + j);
        v8_set(&half, 0.5f);
        g = g / steep;
        osh_v8f size = (osh_v8f)((osh_v8u)g & 0x7fffffffu);
        osh_v8i far = size >= half;
        bool any =
            !whole || (far[0] | far[1] | far[2] | far[3] | far[4] | far[5] | far[6] | far[7]);
        for (int64_t k = j; any && k < j + OSH_LANES && k < b->n; k++) descend_one(b, k);
    }
}
OSH_AVX2 static void block_avx2(block *b) { block_body(b); }
static void descend_block(block *b)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) block_avx2(b);
    else block_body(b);
}

/* Adds the effects of n_changes changes of codes to g [n]. A change c adds row c.column of h,
 * multiplied by c.by. Four changes are added in one pass over g. */
OSH_VEC_FN void spread_body(float *g, const float *h, int64_t ldh, const osh_change *c,
                            int64_t n_changes, int64_t n)
{
    for (int64_t k = 0; k < n_changes; k += 4) {
        const float *from[4];
        float by[4];
        int wide = n_changes - k < 4 ? (int)(n_changes - k) : 4;
        for (int i = 0; i < wide; i++) from[i] = h + c[k + i].column * ldh, by[i] = c[k + i].by;
        if (wide == 4) descend_add_rows(g, from, by, 4, n);
        else descend_add_rows(g, from, by, wide, n);
    }
}
OSH_AVX2 static void spread_avx2(float *g, const float *h, int64_t ldh, const osh_change *c,
                                 int64_t n_changes, int64_t n)
{
    spread_body(g, h, ldh, c, n_changes, n);
}

/* Adds the effects of the changed codes of one row to columns [`from`, `to`) of G. */
static void descend_spread(const osh_refine_tile *t, int64_t row, int64_t from, int64_t to)
{
    const osh_change *c = t->changes + row * OSH_DESCEND_BLOCK;
    int64_t I = t->a->I;
    if (to <= from || !t->n_changes[row]) return;
    if (osh_isa_used() >= OSH_ISA_AVX2)
        spread_avx2(t->g + row * I + from, t->a->h + from, I, c, t->n_changes[row], to - from);
    else spread_body(t->g + row * I + from, t->a->h + from, I, c, t->n_changes[row], to - from);
}

/* Does coordinate descent on columns [first, first + n) of all rows except settled rows. A row is
 * settled if the previous pass over all columns changed none of its codes. */
static void descend_sweep_block(osh_refine_tile *t, int64_t first, int64_t n)
{
    int64_t I = t->a->I;
    bool changed = false;
    for (int64_t r = 0; r < t->n; r++) {
        block b = {.first = first, .n = n};
        t->n_changes[r] = 0;
        if (t->settled[r]) continue;
        descend_load(&b, t, r);
        descend_block(&b);
        for (int64_t j = 0; j < n; j++) t->g[r * I + first + j] = b.g[j];
        changed |= t->n_changes[r] > 0;
    }
    for (int64_t p = 0; changed && p < I; p += PANEL)
        for (int64_t r = 0; r < t->n; r++) {
            int64_t end = osh_min64(I, p + PANEL);
            descend_spread(t, r, p, osh_min64(end, first));
            descend_spread(t, r, p > first + n ? p : first + n, end);
        }
}

void osh_tile_descend(osh_refine_tile *t)
{
    const osh_gptq_refine_args *a = t->a;
    for (int64_t r = 0; r < t->n; r++) t->settled[r] = false;
    for (int sweep = 0; sweep < OSH_DESCEND_SWEEPS; sweep++) {
        for (int64_t r = 0; r < t->n; r++) t->moved[r] = false;
        for (int64_t first = 0; first < a->I; first += OSH_DESCEND_BLOCK) {
            descend_sweep_block(t, first, osh_min64(OSH_DESCEND_BLOCK, a->I - first));
            for (int64_t r = 0; r < t->n; r++) t->moved[r] |= t->n_changes[r] > 0;
        }
        for (int64_t r = 0; r < t->n; r++) t->settled[r] = !t->moved[r];
    }
}
