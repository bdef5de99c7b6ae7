/* panel512.c - does the column loop and the update of later columns with AVX-512, which has 32
 * registers. The update uses 24 registers for the sums of 6 columns x 64 rows, four for errors and
 * two for broadcast elements of U. The column loop uses 16 registers for 8 columns x 32 rows. */
#include "solver/cpu/panel512.h"
#include "base/isa.h"

#include <assert.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define WIDE_FN                                                                                    \
    static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl")))

/* LINE: number of floats in a cache line. */
enum { LANES = 16, COLS = 6, VECS = OSH_PANEL_ROWS / LANES, LINE = 16 };

bool osh_panel512_takes(int64_t rows)
{
    return osh_isa_used() >= OSH_ISA_AVX512 && rows % (2 * LANES) == 0;
}

bool osh_panel512_solves(const osh_panel *p)
{
    return osh_panel512_takes(p->rows) && !p->grid.digits &&
           (p->dtype == OSH_F32 || p->dtype == OSH_BF16);
}

WIDE_FN void gather_before(const osh_panel *p, int64_t j)
{
    enum { N = OSH_PANEL_STRIP };
    int64_t rows = p->rows;
    for (int64_t r = 0; r < rows; r += 2 * LANES) {
        __m512 a[N][2];
        float *w = p->w + j * rows + r;
        const float *e = p->ne + r, *u = p->strip;
#pragma GCC unroll 8
        for (int k = 0; k < N; k++)
            a[k][0] = _mm512_loadu_ps(w + k * rows),
            a[k][1] = _mm512_loadu_ps(w + k * rows + LANES);
        for (int64_t i = 0; i < j; i++, e += rows, u += N) {
            __m512 e0 = _mm512_loadu_ps(e), e1 = _mm512_loadu_ps(e + LANES);
#pragma GCC unroll 8
            for (int k = 0; k < N; k++) {
                __m512 x = _mm512_set1_ps(u[k]);
                a[k][0] = _mm512_add_ps(a[k][0], _mm512_mul_ps(e0, x));
                a[k][1] = _mm512_add_ps(a[k][1], _mm512_mul_ps(e1, x));
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < N; k++)
            _mm512_storeu_ps(w + k * rows, a[k][0]),
                _mm512_storeu_ps(w + k * rows + LANES, a[k][1]);
    }
}

WIDE_FN __m512 broadcast_512(float f) { return _mm512_set1_ps(f); }

WIDE_FN __m512 round_512(__m512 x, bool bf16)
{
    if (!bf16) return x;
    __m512i u = _mm512_castps_si512(x),
            odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    u = _mm512_and_si512(u, _mm512_set1_epi32((int)0xffff0000u));
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), _mm512_castsi512_ps(u));
}

WIDE_FN __m512 nearest(const osh_panel *p, __m512 w, __m512 s, __m512 zp)
{
    __m512 lo = broadcast_512(p->grid.lo), hi = broadcast_512(p->grid.hi),
           magic = broadcast_512(12582912.0f);
    __m512 q = _mm512_add_ps(_mm512_div_ps(w, s), zp);
    q = _mm512_mask_mov_ps(q, _mm512_cmp_ps_mask(q, lo, _CMP_LT_OQ), lo);
    q = _mm512_mask_mov_ps(q, _mm512_cmp_ps_mask(q, hi, _CMP_GT_OQ), hi);
    return _mm512_sub_ps(_mm512_add_ps(q, magic), magic);
}

WIDE_FN __m512 value_512(__m512 q, __m512 s, __m512 zp, bool bf16)
{
    return round_512(_mm512_mul_ps(round_512(_mm512_sub_ps(q, zp), bf16), s), bf16);
}

typedef struct column { // one column of a strip (OSH_PANEL_STRIP columns that are solved together)
    /* Index of the column's first element in `w`, and of its first scale in `scale`. */
    int64_t at, scale_at;
    /* One element of U for each earlier column of the strip; view of p->strip. */
    const float *u;
    /* Index of the column in its strip. All columns of the strip before it are already
     * quantized. */
    int before;
    bool bf16;
} column;

/* For rows [r, r + 16) of a column: adds the errors of the earlier columns of the strip. The result
 * is `w - e_0 u_0 - e_1 u_1 ...`. Then quantizes these 16 weights like quantize_8 of panel.c. */
WIDE_FN void column_16(const osh_panel *p, const column *c, int64_t r)
{
    int64_t at = c->at + r;
    __m512 w = _mm512_loadu_ps(p->w + at), sign = broadcast_512(-0.0f);
    const float *e = p->ne + at - c->before * p->rows;
    for (int k = 0; k < c->before; k++)
        w = _mm512_add_ps(w, _mm512_mul_ps(_mm512_loadu_ps(e + k * p->rows),
                                           broadcast_512(c->u[k * OSH_PANEL_STRIP])));
    __m512 diag = broadcast_512(c->u[c->before * OSH_PANEL_STRIP]);
    if (p->nearest) {
        _mm512_storeu_ps(p->ne + at, _mm512_xor_ps(_mm512_div_ps(w, diag), sign));
        return;
    }
    __m512 s = _mm512_loadu_ps(p->scale + c->scale_at + r),
           zp = _mm512_loadu_ps(p->zero + c->scale_at + r);
    __m512 q = nearest(p, w, s, zp);
    if (p->zeros) {
        __m512 z = _mm512_loadu_ps(p->zeros + at);
        q = _mm512_mask_mov_ps(q, _mm512_cmp_ps_mask(z, _mm512_setzero_ps(), _CMP_NEQ_UQ), zp);
    }
    _mm512_storeu_ps(p->q + at, q);
    __m512 d = value_512(q, s, zp, c->bf16);
    _mm512_storeu_ps(p->w + at, d);
    _mm512_storeu_ps(p->ne + at, _mm512_xor_ps(_mm512_div_ps(_mm512_sub_ps(w, d), diag), sign));
}

WIDE_FN void panel512_columns(const osh_panel *p, int64_t j, const int32_t *scale_col, bool bf16)
{
    for (int k = 0; k < OSH_PANEL_STRIP; k++) {
        column c = {(j + k) * p->rows, scale_col[k] * p->rows, p->strip + j * OSH_PANEL_STRIP + k,
                    k, bf16};
        for (int64_t r = 0; r < p->rows; r += LANES) column_16(p, &c, r);
    }
}

WIDE void osh_panel512_solve(const osh_panel *p, int64_t j, const int32_t *scale_col)
{
    gather_before(p, j);
    if (p->dtype == OSH_BF16) panel512_columns(p, j, scale_col, true);
    else panel512_columns(p, j, scale_col, false);
}

WIDE void osh_panel512_rest(const osh_panel *p, const int32_t *scale_col, int64_t n)
{
    bool bf16 = p->dtype == OSH_BF16;
    for (int64_t j = 0; j < n; j++)
        for (int64_t r = 0; r < p->rows; r += LANES) {
            int64_t scale_at = scale_col[j] * p->rows + r;
            float *at = p->w + j * p->rows + r;
            __m512 w = _mm512_loadu_ps(at), s = _mm512_loadu_ps(p->scale + scale_at);
            __m512 zp = _mm512_loadu_ps(p->zero + scale_at);
            _mm512_storeu_ps(at, _mm512_sub_ps(w, value_512(nearest(p, w, s, zp), s, zp, bf16)));
        }
}

WIDE void osh_panel512_bytes(int8_t *to, const float *q, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        __m128i b = _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(_mm512_loadu_ps(q + i)));
        _mm_storeu_si128((__m128i *)(void *)(to + i), b);
    }
}

/* Computes w += ut ne for n columns of w, which have `vecs` vectors each. Every caller passes
 * constants for n and vecs. */
WIDE_FN void update_columns(float *w, osh_mat ut, const float *ne, int n, int64_t k, int vecs)
{
    __m512 s[COLS][VECS];
    const float *low = ut.p, *high = ut.p + 3 * ut.ld;
#pragma GCC unroll 6
    for (int c = 0; c < n; c++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) s[c][v] = _mm512_setzero_ps();
    for (int c = 0; c < n; c++)
        for (int v = 0; v < vecs; v++) __builtin_prefetch(w + (c * vecs + v) * LANES, 1);
    for (int64_t l = 0; l < k; l++) {
        __m512 e[VECS];
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) e[v] = _mm512_loadu_ps(ne + v * LANES);
#pragma GCC unroll 6
        for (int c = 0; c < n; c++) {
            __m512 x = _mm512_set1_ps(c < 3 ? low[c * ut.ld] : high[(c - 3) * ut.ld]);
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++) s[c][v] = _mm512_fmadd_ps(x, e[v], s[c][v]);
        }
        low++, high++, ne += vecs * LANES;
    }
#pragma GCC unroll 6
    for (int c = 0; c < n; c++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            float *to = w + (c * vecs + v) * LANES;
            _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), s[c][v]));
        }
}

WIDE_FN void update_all(float *w, osh_mat ut, const float *ne, int64_t n, int64_t k, int vecs)
{
    int64_t c = 0, rows = vecs * LANES;
    for (; c + COLS <= n; c += COLS, w += COLS * rows, ut.p += COLS * ut.ld) {
        for (int64_t next = COLS; next < 2 * COLS && c + next < n; next++)
            for (int64_t l = 0; l < k; l += LINE) __builtin_prefetch(ut.p + next * ut.ld + l);
        update_columns(w, ut, ne, COLS, k, vecs);
    }
    for (; c + 2 <= n; c += 2, w += 2 * rows, ut.p += 2 * ut.ld)
        update_columns(w, ut, ne, 2, k, vecs);
    if (c < n) update_columns(w, ut, ne, 1, k, vecs);
}

WIDE void osh_panel512_update(float *w, osh_mat ut, osh_mat ne, int64_t n, int64_t k)
{
    if (ne.ld == OSH_PANEL_ROWS) update_all(w, ut, ne.p, n, k, VECS);
    else update_all(w, ut, ne.p, n, k, OSH_PANEL_STEP / LANES);
}
#else
bool osh_panel512_takes(int64_t rows) { return (void)rows, false; }

bool osh_panel512_solves(const osh_panel *p) { return (void)p, false; }

void osh_panel512_solve(const osh_panel *p, int64_t j, const int32_t *scale_col)
{
    (void)p, (void)j, (void)scale_col;
    assert(false); // not reached, because osh_panel512_solves returns false in this build
}

void osh_panel512_rest(const osh_panel *p, const int32_t *scale_col, int64_t n)
{
    (void)p, (void)scale_col, (void)n;
    assert(false);
}

void osh_panel512_bytes(int8_t *to, const float *q, int64_t n)
{
    (void)to, (void)q, (void)n;
    assert(false);
}

void osh_panel512_update(float *w, osh_mat ut, osh_mat ne, int64_t n, int64_t k)
{
    (void)w, (void)ut, (void)ne, (void)n, (void)k;
    assert(false);
}
#endif
