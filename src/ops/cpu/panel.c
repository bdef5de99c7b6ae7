/* panel.c - see panel.h. */
#include "ops/cpu/panel.h"
#include "base/isa.h"
#include "ops/cpu/vec.h"

#include <assert.h>

/* x = the nearest value of the grid, |x| within it. In a floating type of d digits that is d significant bits, and
 * whole multiples of 2^least where these are coarser. */
OSH_VEC_FN void v8_on_grid(osh_v8f *x, const osh_grid *g)
{
    if (!g->digits) {
        v8_nearest(x);
        return;
    }
    int cut = 24 - g->digits;
    osh_v8u u = (osh_v8u)*x, sign = u & 0x80000000u, a = u & 0x7fffffffu;
    osh_v8f r = (osh_v8f)((a + ((1u << (cut - 1)) - 1) + ((a >> cut) & 1)) & ~((1u << cut) - 1)), magic, s;
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

/* The value of the grid nearest to w / s + zp. */
OSH_VEC_FN void nearest_8(const osh_panel *p, osh_v8f *q, const osh_v8f *w, const osh_v8f *s, const osh_v8f *zp)
{
    osh_v8f lo, hi;

    *q = *w / *s;
    if (!p->grid.digits) *q = *q + *zp;
    v8_set(&lo, p->grid.lo);
    v8_set(&hi, p->grid.hi);
    v8_clamp(q, &lo, &hi);
    v8_on_grid(q, &p->grid);
}

/* Quantizes 8 rows of one column: w becomes dq, q and ne are stored. */
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

/* u [j]: U[0..j, j] of the block. */
OSH_VEC_FN void gather_column(const osh_panel *p, const float *u, int64_t j)
{
    for (int64_t r = 0; r < p->rows; r += OSH_PANEL_STEP) {
        float *w = p->w + j * p->rows + r;
        const float *e = p->ne + r;
        osh_v8f a0, a1, a2, a3, e0, e1, e2, e3;
        v8_load(&a0, w), v8_load(&a1, w + 8), v8_load(&a2, w + 16), v8_load(&a3, w + 24);
        for (int64_t i = 0; i < j; i++, e += p->rows) {
            v8_load(&e0, e), v8_load(&e1, e + 8), v8_load(&e2, e + 16), v8_load(&e3, e + 24);
            a0 = a0 + e0 * u[i];
            a1 = a1 + e1 * u[i];
            a2 = a2 + e2 * u[i];
            a3 = a3 + e3 * u[i];
        }
        v8_store(w, &a0), v8_store(w + 8, &a1), v8_store(w + 16, &a2), v8_store(w + 24, &a3);
    }
}

OSH_VEC_FN void solve_body(const osh_panel *p, const float *u, int64_t ldu, const int32_t *scale_col, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        int64_t c = j % OSH_PANEL_STRIP;
        if (c == 0) {
            int64_t wide = n - j < OSH_PANEL_STRIP ? n - j : OSH_PANEL_STRIP;
            for (int64_t i = 0; i < j + wide; i++)
                for (int64_t k = 0; k < wide; k++) p->strip[k * n + i] = u[i * ldu + j + k];
        }
        gather_column(p, p->strip + c * n, j);
        for (int64_t r = 0; r < p->rows; r += OSH_LANES)
            quantize_8(p, j * p->rows + r, scale_col[j] * p->rows + r, p->strip[c * n + j]);
    }
}
OSH_AVX2 static void solve_avx2(const osh_panel *p, const float *u, int64_t ldu, const int32_t *scale_col, int64_t n)
{
    solve_body(p, u, ldu, scale_col, n);
}

void osh_panel_solve(const osh_panel *p, const float *u, int64_t ldu, const int32_t *scale_col, int64_t n)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) solve_avx2(p, u, ldu, scale_col, n);
    else solve_body(p, u, ldu, scale_col, n);
}

OSH_VEC_FN void rest_body(const osh_panel *p, float *w, const float *s, const float *zero, int64_t n)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f x, scale, zp, q;
        v8_load(&x, w + i), v8_load(&scale, s + i), v8_load(&zp, zero + i);
        nearest_8(p, &q, &x, &scale, &zp);
        q = q - zp;
        v8_round(&q, p->dtype);
        q = q * scale;
        v8_round(&q, p->dtype);
        x = x - q;
        v8_store(w + i, &x);
    }
}
OSH_AVX2 static void rest_avx2(const osh_panel *p, float *w, const float *s, const float *zero, int64_t n)
{
    rest_body(p, w, s, zero, n);
}
void osh_panel_rest(const osh_panel *p, float *w, const float *s, const float *zero, int64_t n)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) rest_avx2(p, w, s, zero, n);
    else rest_body(p, w, s, zero, n);
}

/* ---- rows as columns ---- */

OSH_VEC_FN void turn_8(float *to, int64_t ldt, const float *from, int64_t ldf)
{
    osh_v8f r[8], t[8];
    for (int i = 0; i < 8; i++) v8_load(&r[i], from + i * ldf);
    for (int i = 0; i < 8; i += 2) { // pairs of rows
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) // fours
        for (int h = 0; h < 2; h++) {
            r[i + 2 * h] = __builtin_shufflevector(t[i + h], t[i + 2 + h], 0, 1, 8, 9, 4, 5, 12, 13);
            r[i + 2 * h + 1] = __builtin_shufflevector(t[i + h], t[i + 2 + h], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        t[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        t[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; i++) v8_store(to + i * ldt, &t[i]);
}

OSH_VEC_FN void turn_body(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t m, int64_t n)
{
    int64_t m8 = m / 8 * 8, n8 = n / 8 * 8;
    for (int64_t i = 0; i < m8; i += 8)
        for (int64_t j = 0; j < n8; j += 8) turn_8(to + j * ldt + i, ldt, from + i * ldf + j, ldf);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i < m8 ? n8 : 0; j < n; j++) to[j * ldt + i] = from[i * ldf + j];
}
OSH_AVX2 static void turn_avx2(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t m, int64_t n)
{
    turn_body(to, ldt, from, ldf, m, n);
}

void osh_panel_turn(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t m, int64_t n)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) turn_avx2(to, ldt, from, ldf, m, n);
    else turn_body(to, ldt, from, ldf, m, n);
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
OSH_AVX2 static void squares_avx2(const osh_panel *p, double *sums, int64_t n) { squares_body(p, sums, n); }

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
OSH_AVX2 static void ranges_avx2(const osh_search *s, float *lo, float *hi) { ranges_body(s, lo, hi); }

void osh_panel_ranges(const osh_search *s, float *lo, float *hi)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) ranges_avx2(s, lo, hi);
    else ranges_body(s, lo, hi);
}

/* s >= 0 becomes what the rule stores for it, as in osh_scale_of. */
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

/* Scale and zero points of a candidate, as osh_scale_of. */
OSH_VEC_FN void v8_scale(const osh_scale_rule *rule, float share, const osh_v8f *lo, const osh_v8f *hi, osh_v8f *s,
                         osh_v8f *zero)
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

/* Losses of 8 rows with scale v and n zero points. */
OSH_VEC_FN void v8_losses(const osh_search *s, int64_t row, const osh_v8f *v, const osh_v8f *zero, int n, osh_v8f *loss)
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

OSH_VEC_FN void search_body(const osh_search *s, const float *lo, const float *hi, float *scale, float *zero, int n)
{
    for (int64_t r = 0; r < s->rows; r += OSH_LANES) {
        osh_v8f from, to, v, z[OSH_SCALE_ZEROS], loss[OSH_SCALE_ZEROS], least, best_s = {0}, best_z = {0};
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
OSH_AVX2 static void search_avx2(const osh_search *s, const float *lo, const float *hi, float *scale, float *zero)
{
    if (s->rule.symmetric || s->rule.fixed) search_body(s, lo, hi, scale, zero, 1);
    else search_body(s, lo, hi, scale, zero, OSH_SCALE_ZEROS);
}
static void search_base(const osh_search *s, const float *lo, const float *hi, float *scale, float *zero)
{
    if (s->rule.symmetric || s->rule.fixed) search_body(s, lo, hi, scale, zero, 1);
    else search_body(s, lo, hi, scale, zero, OSH_SCALE_ZEROS);
}

void osh_panel_search(const osh_search *s, const float *lo, const float *hi, float *scale, float *zero)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) search_avx2(s, lo, hi, scale, zero);
    else search_base(s, lo, hi, scale, zero);
}

OSH_VEC_FN void candidates_body(const osh_search *s, const float *lo, const float *hi, int64_t n_rows, double *sums)
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
OSH_AVX2 static void candidates_avx2(const osh_search *s, const float *lo, const float *hi, int64_t n_rows,
                                     double *sums)
{
    candidates_body(s, lo, hi, n_rows, sums);
}

void osh_panel_candidates(const osh_search *s, const float *lo, const float *hi, int64_t n_rows, double *sums)
{
    if (osh_isa_used() >= OSH_ISA_AVX2) candidates_avx2(s, lo, hi, n_rows, sums);
    else candidates_body(s, lo, hi, n_rows, sums);
}
