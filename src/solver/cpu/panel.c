/* panel.c - implements functions on panels (panel.h), for every instruction set: the column loop,
 * the transposition, and the search for scales. panel512.c has AVX-512 versions of the two loops
 * that take most of the time. */
#include "solver/cpu/panel.h"
#include "base/isa.h"
#include "math/gemm.h"
#include "solver/cpu/panel512.h"
#include "math/tile.h"
#include "math/vec.h"

#include <assert.h>

/* Rounds x to the nearest value of the grid. x must be between the smallest and the largest value.
 * A value of a floating type has `digits` significant bits and is a multiple of `2^least`. */
OSH_VEC_FN void v8_on_grid(osh_v8f *x, const osh_grid *g)
{
    if (!g->digits) {
        v8_nearest(x);
        return;
    }
    int cut = 24 - g->digits;
    osh_v8u u = (osh_v8u)*x, sign = u & 0x80000000u, a = u & 0x7fffffffu;
    osh_v8f r = (osh_v8f)((a + ((1u << (cut - 1)) - 1) + ((a >> cut) & 1)) & ~((1u << cut) - 1)),
            magic, s;
    osh_v8i tiny = (osh_v8i)(a < (uint32_t)(127 + g->least + g->digits - 1) << 23);

    v8_set(&magic, osh_f32_of_bits((uint32_t)(127 + 23 + g->least) << 23)); // 2^(23 + least)
    s = ((osh_v8f)a + magic) - magic;
    v8_select(&r, &tiny, &s, &r);
    *x = (osh_v8f)((osh_v8u)r | sign);
}

OSH_VEC_FN void v8_clamp(osh_v8f *x, const osh_v8f *lo, const osh_v8f *hi)
{
    osh_v8i m = *x < *lo;
    v8_select(x, &m, lo, x);
    m = *x > *hi;
    v8_select(x, &m, hi, x);
}

/* ---- the column loop ---- */

/* For 8 rows: sets q to the value of the grid nearest to w / s + zp. */
OSH_VEC_FN void nearest_8(const osh_panel *p, osh_v8f *q, const osh_v8f *w, const osh_v8f *s,
                          const osh_v8f *zp)
{
    osh_v8f lo, hi;

    *q = *w / *s;
    if (!p->grid.digits) *q = *q + *zp;
    v8_set(&lo, p->grid.lo);
    v8_set(&hi, p->grid.hi);
    v8_clamp(q, &lo, &hi);
    v8_on_grid(q, &p->grid);
}

/* Quantizes 8 rows of one column: stores the codes q and the negated errors ne, and overwrites w
 * with the dequantized weights. */
OSH_VEC_FN void quantize_8(const osh_panel *p, int64_t at, int64_t scale_at, float diag)
{
    osh_v8f w, s, zp, q, d;

    v8_load(&w, p->w + at);
    v8_load(&s, p->scale + scale_at);
    v8_load(&zp, p->zero + scale_at);
    nearest_8(p, &q, &w, &s, &zp);
    if (p->zeros) {
        osh_v8f z;
        v8_load(&z, p->zeros + at);
        osh_v8i m = z != 0;
        v8_select(&q, &m, &zp, &q);
    }
    v8_store(p->q + at, &q);
    d = q - zp;
    v8_round(&d, p->dtype);
    d = d * s;
    v8_round(&d, p->dtype);
    v8_store(p->w + at, &d);
    w = -((w - d) / diag);
    v8_store(p->ne + at, &w);
}

/* For 8 rows: adds the errors of columns [first, end) to columns [j, j + n). Every caller passes a
 * constant n, so that the compiler keeps the n sums in registers. */
OSH_VEC_FN void gather_8(const osh_panel *p, int64_t r, int64_t j, int n, int64_t first,
                         int64_t end)
{
    int64_t rows = p->rows;
    float *w = p->w + j * rows + r;
    const float *u = p->strip + first * OSH_PANEL_STRIP + j % OSH_PANEL_STRIP;
    osh_v8f a[OSH_PANEL_STRIP], e;
#pragma GCC unroll 8
    for (int k = 0; k < n; k++) v8_load(&a[k], w + k * rows);
    for (int64_t i = first; i < end; i++, u += OSH_PANEL_STRIP) {
        v8_load(&e, p->ne + i * rows + r);
#pragma GCC unroll 8
        for (int k = 0; k < n; k++) a[k] = a[k] + e * u[k];
    }
#pragma GCC unroll 8
    for (int k = 0; k < n; k++) v8_store(w + k * rows, &a[k]);
}

/* Adds to each of the columns [j, j + wide) the errors of those columns of the block that are
 * before column j. Updates `at_once` columns at a time. */
OSH_VEC_FN void gather_strip(const osh_panel *p, int64_t j, int64_t wide, int at_once)
{
    for (int64_t r = 0; r < p->rows; r += OSH_LANES) {
        int64_t k = 0;
        for (; k + at_once <= wide; k += at_once) gather_8(p, r, j + k, at_once, 0, j);
        for (; k < wide; k++) gather_8(p, r, j + k, 1, 0, j);
    }
}

OSH_VEC_FN void quantize_column(const osh_panel *p, int64_t j, int64_t scale_col, float diag)
{
    int64_t at = j * p->rows;
    for (int64_t r = 0; r < p->rows && !p->nearest; r += OSH_LANES)
        quantize_8(p, at + r, scale_col * p->rows + r, diag);
    for (int64_t r = 0; r < p->rows && p->nearest; r += OSH_LANES) {
        osh_v8f w;
        v8_load(&w, p->w + at + r);
        w = -(w / diag);
        v8_store(p->ne + at + r, &w);
    }
}

OSH_VEC_FN void solve_body(const osh_panel *p, const float *u, int64_t ldu,
                           const int32_t *scale_col, int64_t n, int at_once)
{
    bool wider = osh_panel512_solves(p);
    for (int64_t j = 0; j < n; j += OSH_PANEL_STRIP) {
        int64_t wide = n - j < OSH_PANEL_STRIP ? n - j : OSH_PANEL_STRIP;
        for (int64_t i = 0; i < j + wide; i++) {
            if (wide == OSH_PANEL_STRIP)
                memcpy(p->strip + i * OSH_PANEL_STRIP, u + i * ldu + j, sizeof(osh_v8f));
            else memcpy(p->strip + i * OSH_PANEL_STRIP, u + i * ldu + j, (size_t)wide * sizeof *u);
        }
        if (wider && wide == OSH_PANEL_STRIP) {
            osh_panel512_solve(p, j, scale_col + j);
            continue;
        }
        gather_strip(p, j, wide, at_once);
        for (int64_t k = j; k < j + wide; k++) {
            for (int64_t r = 0; r < p->rows && k > j; r += OSH_LANES) gather_8(p, r, k, 1, j, k);
            quantize_column(p, k, scale_col[k], p->strip[k * OSH_PANEL_STRIP + k - j]);
        }
    }
}
OSH_AVX2 static void solve_avx2(const osh_panel *p, const float *u, int64_t ldu,
                                const int32_t *scale_col, int64_t n)
{
    solve_body(p, u, ldu, scale_col, n, OSH_PANEL_STRIP);
}

void osh_panel_solve(const osh_panel *p, const float *u, int64_t ldu, const int32_t *scale_col,
                     int64_t n)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) solve_avx2(p, u, ldu, scale_col, n);
    else solve_body(p, u, ldu, scale_col, n, 4);
}

OSH_VEC_FN void rest_body(const osh_panel *p, const int32_t *scale_col, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t r = 0; r < p->rows; r += OSH_LANES) {
            int64_t scale_at = scale_col[j] * p->rows + r;
            osh_v8f x, scale, zp, q;
            v8_load(&x, p->w + j * p->rows + r), v8_load(&scale, p->scale + scale_at),
                v8_load(&zp, p->zero + scale_at);
            nearest_8(p, &q, &x, &scale, &zp);
            q = q - zp;
            v8_round(&q, p->dtype);
            q = q * scale;
            v8_round(&q, p->dtype);
            x = x - q;
            v8_store(p->w + j * p->rows + r, &x);
        }
}
OSH_AVX2 static void rest_avx2(const osh_panel *p, const int32_t *scale_col, int64_t n)
{
    rest_body(p, scale_col, n);
}

void osh_panel_rest(const osh_panel *p, const int32_t *scale_col, int64_t n)
{
    if (osh_panel512_solves(p)) osh_panel512_rest(p, scale_col, n);
    else if (osh_isa_used() >= OSH_ISA_AVX2) rest_avx2(p, scale_col, n);
    else rest_body(p, scale_col, n);
}

void osh_panel_update(float *w, osh_mat ut, osh_mat ne, int64_t n, int64_t k)
{
    osh_into to = {w, ne.ld, true};
    osh_mnk size = {n, ne.ld, k};
    if (osh_panel512_takes(ne.ld)) osh_panel512_update(w, ut, ne, n, k);
    else if (osh_tile_used())
        osh_tile_product(to, (osh_tile_a){.p = ut.p, .row = ut.ld, .col = 1},
                         (osh_tile_b){ne.p, OSH_TILE_COLS, ne.ld}, size);
    else osh_gemm_nn(to, ut, ne, size);
}

/* ---- transposes ---- */

/* Sets t to the transpose of the 8 x 8 elements at `from`, whose rows are ldf elements apart. */
OSH_VEC_FN void turned_8(osh_v8f *t, const float *from, int64_t ldf)
{
    osh_v8f r[8];
    for (int i = 0; i < 8; i++) v8_load(&r[i], from + i * ldf);
    for (int i = 0; i < 8; i += 2) { // interleaves rows i and i + 1
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) // interleaves pairs of elements of four rows
        for (int h = 0; h < 2; h++) {
            r[i + 2 * h] =
                __builtin_shufflevector(t[i + h], t[i + 2 + h], 0, 1, 8, 9, 4, 5, 12, 13);
            r[i + 2 * h + 1] =
                __builtin_shufflevector(t[i + h], t[i + 2 + h], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        t[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        t[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* Transposes `from` [m, n]. Column j becomes row `at`[j] of `to`, or row j if `at` is NULL. */
OSH_VEC_FN void turn_body(osh_into to, osh_mat from, int64_t m, int64_t n, const int32_t *at)
{
    int64_t m8 = m / 8 * 8, n8 = n / 8 * 8;
    for (int64_t i = 0; i < m8; i += 8)
        for (int64_t j = 0; j < n8; j += 8) {
            osh_v8f t[8];
            turned_8(t, from.p + i * from.ld + j, from.ld);
            for (int k = 0; k < 8; k++)
                v8_store(to.p + (at ? at[j + k] : j + k) * to.ld + i, &t[k]);
        }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i < m8 ? n8 : 0; j < n; j++)
            to.p[(at ? at[j] : j) * to.ld + i] = from.p[i * from.ld + j];
}
OSH_AVX2 static void turn_avx2(osh_into to, osh_mat from, int64_t m, int64_t n, const int32_t *at)
{
    if (at) turn_body(to, from, m, n, at);
    else turn_body(to, from, m, n, NULL);
}

void osh_panel_lay(float *to, int64_t ldt, osh_mat from, int64_t m, int64_t n, const int32_t *at)
{
    osh_into into = {to, ldt, false};
    if (osh_isa_used() >= OSH_ISA_AVX2) turn_avx2(into, from, m, n, at);
    else turn_body(into, from, m, n, at);
}

void osh_panel_turn(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t m, int64_t n)
{
    osh_panel_lay(to, ldt, (osh_mat){from, ldf}, m, n, NULL);
}

/* ---- codes ---- */

typedef int8_t osh_v8b __attribute__((vector_size(8)));
typedef int8_t osh_v16b __attribute__((vector_size(16)));

OSH_VEC_FN void bytes_body(int8_t *to, const float *q, int64_t n)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f x;
        v8_load(&x, q + i);
        osh_v8b b = __builtin_convertvector(__builtin_convertvector(x, osh_v8i), osh_v8b);
        memcpy(to + i, &b, sizeof b);
    }
}
OSH_AVX2 static void bytes_avx2(int8_t *to, const float *q, int64_t n) { bytes_body(to, q, n); }

void osh_panel_bytes(int8_t *to, const osh_grid *grid, const float *q, int64_t n)
{
    if (grid->digits && grid->bits == 8) osh_from_f32(to, OSH_FP8, q, n);
    else if (grid->digits)
        for (int64_t i = 0; i < n; i++) to[i] = osh_grid_code(grid, q[i]);
    else if (osh_panel512_takes(n)) osh_panel512_bytes(to, q, n);
    else if (osh_isa_used() >= OSH_ISA_AVX2) bytes_avx2(to, q, n);
    else bytes_body(to, q, n);
}

/* Transposes 16 x 16 bytes in four steps. Each step interleaves row i with row i + 8, for i < 8. */
static void panel_turn_bytes_16(int8_t *to, int64_t ldt, osh_panel_turned from, const int32_t *at)
{
    osh_v16b r[16], t[16];
    for (int i = 0; i < 16; i++) memcpy(&r[i], from.p + at[i] * from.rows, sizeof *r);
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 8; i++) {
            t[2 * i] = __builtin_shufflevector(r[i], r[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                               21, 6, 22, 7, 23);
            t[2 * i + 1] = __builtin_shufflevector(r[i], r[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                                   28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(r, t, sizeof r);
    }
    for (int i = 0; i < 16; i++) memcpy(to + i * ldt, &r[i], sizeof *r);
}

void osh_panel_codes(int8_t *to, int64_t ldt, osh_panel_turned from, const int32_t *at, int64_t m,
                     int64_t n)
{
    enum { SIDE = 16 };
    int64_t m16 = m / SIDE * SIDE, n16 = n / SIDE * SIDE;
    for (int64_t j = 0; j < n16; j += SIDE)
        for (int64_t i = 0; i < m16; i += SIDE)
            panel_turn_bytes_16(to + i * ldt + j, ldt, (osh_panel_turned){from.p + i, from.rows},
                                at + j);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i < m16 ? n16 : 0; j < n; j++)
            to[i * ldt + j] = from.p[at[j] * from.rows + i];
}

OSH_VEC_FN void squares_body(const osh_panel *p, double *sums, int64_t n)
{
    typedef float four __attribute__((vector_size(16)));
    for (int64_t r = 0; r < p->rows; r += OSH_LANES_D) {
        osh_v4d sum = {0};
        for (int64_t j = 0; j < n; j++) {
            four part;
            memcpy(&part, p->ne + j * p->rows + r, sizeof part);
            osh_v4d e = __builtin_convertvector(part, osh_v4d);
            sum = sum + e * e / 2;
        }
        for (int k = 0; k < OSH_LANES_D; k++) sums[r + k] += sum[k];
    }
}
OSH_AVX2 static void squares_avx2(const osh_panel *p, double *sums, int64_t n)
{
    squares_body(p, sums, n);
}

void osh_panel_squares(const osh_panel *p, double *sums, int64_t n)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) squares_avx2(p, sums, n);
    else squares_body(p, sums, n);
}

/* ---- the search for scales ---- */

OSH_VEC_FN void ranges_body(const osh_search *s, float *lo, float *hi)
{
    for (int64_t r = 0; r < s->rows; r += OSH_LANES) {
        osh_v8f least = {0}, most = {0}, x;
        for (int64_t j = 0; j < s->n; j++) {
            v8_load(&x, s->x + j * s->rows + r);
            osh_v8i m = x < least;
            v8_select(&least, &m, &x, &least);
            m = x > most;
            v8_select(&most, &m, &x, &most);
        }
        v8_store(lo + r, &least);
        v8_store(hi + r, &most);
    }
}
OSH_AVX2 static void ranges_avx2(const osh_search *s, float *lo, float *hi)
{
    ranges_body(s, lo, hi);
}

void osh_panel_ranges(const osh_search *s, float *lo, float *hi)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) ranges_avx2(s, lo, hi);
    else ranges_body(s, lo, hi);
}

/* Rounds s >= 0 to a scale that the rule can store. osh_scale_of gives the same bits. */
OSH_VEC_FN void v8_stored(osh_v8f *s, const osh_scale_rule *rule)
{
    osh_grid e4m3 = osh_scale_e4m3();
    osh_v8f least, most;
    switch (rule->kind) {
    case OSH_SCALE_PLAIN:
        v8_round(s, rule->dtype);
        v8_set(&least, osh_scale_least(rule->dtype));
        osh_v8i m = *s == 0;
        v8_select(s, &m, &least, s);
        break;
    case OSH_SCALE_E4M3:
        *s = *s * rule->global;
        v8_set(&least, e4m3.lo);
        v8_set(&most, e4m3.hi);
        v8_clamp(s, &least, &most);
        v8_on_grid(s, &e4m3);
        *s = *s / rule->global;
        break;
    case OSH_SCALE_E8M0:
        *s = (osh_v8f)(((osh_v8u)*s + 0x400000u) & 0xff800000u);
        v8_set(&least, osh_power_least(rule->dtype));
        v8_set(&most, osh_power_most(rule->dtype));
        v8_clamp(s, &least, &most);
        break;
    }
}

/* For 8 rows: computes the scale s for the fraction `share` of the range [lo, hi], like
 * osh_scale_of. Also computes `zero` [OSH_SCALE_ZEROS], the clamped zero points of the candidates
 * with this scale. */
OSH_VEC_FN void v8_scale(const osh_scale_rule *rule, float share, const osh_v8f *lo,
                         const osh_v8f *hi, osh_v8f *s, osh_v8f *zero)
{
    float steps = rule->grid.hi - rule->grid.lo;
    osh_v8f most = -*lo;
    osh_v8i m = most < *hi;
    v8_select(&most, &m, hi, &most);
    *s = rule->symmetric ? most * share / (steps / 2) : (*hi - *lo) * share / steps;
    v8_stored(s, rule);
    for (int i = 0; i < OSH_SCALE_ZEROS; i++) zero[i] = *s * 0;
    if (rule->symmetric) return;
    osh_v8f z = *lo * share / *s, first, last;
    v8_nearest(&z);
    v8_set(&first, rule->grid.lo);
    v8_set(&last, rule->grid.hi);
    zero[0] = first - z;
    zero[1] = zero[0] - 1;
    zero[2] = zero[0] + 1;
    for (int i = 0; i < OSH_SCALE_ZEROS; i++) v8_clamp(&zero[i], &first, &last);
}

/* For each k < n: sets loss[k] to the losses of 8 rows with scale v and zero point zero[k]. */
OSH_VEC_FN void v8_losses(const osh_search *s, int64_t row, const osh_v8f *v, const osh_v8f *zero,
                          int n, osh_v8f *loss)
{
    const osh_grid *g = &s->rule.grid;
    osh_v8f first[OSH_SCALE_ZEROS], last[OSH_SCALE_ZEROS], sum[OSH_SCALE_ZEROS], inverse = 1 / *v;
    for (int i = 0; i < n; i++) {
        first[i] = g->lo - zero[i];
        last[i] = g->hi - zero[i];
        sum[i] = *v * 0;
    }
    for (int64_t j = 0; j < s->n; j++) {
        osh_v8f w, t;
        v8_load(&w, s->x + j * s->rows + row);
        float cost = s->weight ? s->weight[j] : 1;
        t = w * inverse;
        if (!g->digits) v8_nearest(&t);
        for (int i = 0; i < n; i++) {
            osh_v8f q = t;
            v8_clamp(&q, &first[i], &last[i]);
            if (g->digits) v8_on_grid(&q, g);
            q = q * *v - w;
            sum[i] = sum[i] + q * q * cost;
        }
    }
    for (int i = 0; i < n; i++) loss[i] = sum[i];
}

OSH_VEC_FN void search_body(const osh_search *s, const float *lo, const float *hi, float *scale,
                            float *zero, int n)
{
    for (int64_t r = 0; r < s->rows; r += OSH_LANES) {
        osh_v8f from, to, v, z[OSH_SCALE_ZEROS], loss[OSH_SCALE_ZEROS], least, best_s = {0},
                                                                               best_z = {0};
        v8_load(&from, lo + r);
        v8_load(&to, hi + r);
        v8_set(&least, INFINITY);
        for (int k = 0; k < OSH_SCALE_STEPS && !(s->rule.fixed && k); k++) {
            v8_scale(&s->rule, osh_scale_share(s->rule.kind, k), &from, &to, &v, z);
            v8_losses(s, r, &v, z, n, loss);
            for (int i = 0; i < n; i++) {
                osh_v8i better = loss[i] < least;
                v8_select(&least, &better, &loss[i], &least);
                v8_select(&best_s, &better, &v, &best_s);
                v8_select(&best_z, &better, &z[i], &best_z);
            }
        }
        v8_store(scale + r, &best_s);
        v8_store(zero + r, &best_z);
    }
}
OSH_AVX2 static void search_avx2(const osh_search *s, const float *lo, const float *hi,
                                 float *scale, float *zero)
{
    if (s->rule.symmetric || s->rule.fixed) search_body(s, lo, hi, scale, zero, 1);
    else search_body(s, lo, hi, scale, zero, OSH_SCALE_ZEROS);
}
static void panel_search_base(const osh_search *s, const float *lo, const float *hi, float *scale,
                              float *zero)
{
    if (s->rule.symmetric || s->rule.fixed) search_body(s, lo, hi, scale, zero, 1);
    else search_body(s, lo, hi, scale, zero, OSH_SCALE_ZEROS);
}

void osh_panel_search(const osh_search *s, const float *lo, const float *hi, float *scale,
                      float *zero)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) search_avx2(s, lo, hi, scale, zero);
    else panel_search_base(s, lo, hi, scale, zero);
}

OSH_VEC_FN void candidates_body(const osh_search *s, const float *lo, const float *hi,
                                int64_t n_rows, double *sums)
{
    for (int64_t r = 0; r < n_rows; r += OSH_LANES) {
        osh_v8f from, to, v, z[OSH_SCALE_ZEROS], loss[OSH_SCALE_ZEROS];
        v8_load(&from, lo + r);
        v8_load(&to, hi + r);
        for (int k = 0; k < OSH_SCALE_STEPS; k++) {
            v8_scale(&s->rule, osh_scale_share(s->rule.kind, k), &from, &to, &v, z);
            v8_losses(s, r, &v, z, OSH_SCALE_ZEROS, loss);
            for (int i = 0; i < OSH_SCALE_ZEROS; i++)
                for (int64_t lane = 0; lane < OSH_LANES && r + lane < n_rows; lane++)
                    sums[k * OSH_SCALE_ZEROS + i] += loss[i][lane];
        }
    }
}
OSH_AVX2 static void candidates_avx2(const osh_search *s, const float *lo, const float *hi,
                                     int64_t n_rows, double *sums)
{
    candidates_body(s, lo, hi, n_rows, sums);
}

void osh_panel_candidates(const osh_search *s, const float *lo, const float *hi, int64_t n_rows,
                          double *sums)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) candidates_avx2(s, lo, hi, n_rows, sums);
    else candidates_body(s, lo, hi, n_rows, sums);
}
