/* rotation.c - makes the matrices of rotation.h, and multiplies by them. LANES rows or columns are
 * multiplied together, so that the compiler can use vector instructions. */
#include "tensor/rotation.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

/* LANES: number of vectors that are multiplied together.
 * GROUPS: number of groups of LANES vectors that a thread multiplies at a time.
 * MOST_DEGREE: largest degree e of a field with p^e elements. */
enum { LANES = 8, GROUPS = 8, MOST_DEGREE = 3 };

/* ---- Hadamard matrices by Paley: R. E. A. C. Paley, "On Orthogonal Matrices", 1933 ---- */

/* Sets *p to the smallest prime factor of q. Returns e if q = p^e and e <= MOST_DEGREE, else 0. */
static int power_of_prime(int64_t q, int64_t *p)
{
    int e = 0;
    for (*p = 2; *p * *p <= q && q % *p; ++*p) {}
    if (*p * *p > q) *p = q;
    for (; q > 1 && q % *p == 0; q /= *p) e++;
    return q == 1 && e <= MOST_DEGREE ? e : 0;
}

/* A finite field with q = p^e elements. An element is a polynomial. It is stored as a number whose
 * digits in base p are the coefficients. */
typedef struct field {
    int64_t p, q;
    int e;
    /* Coefficients of the polynomial `tail`, lowest power first. Elements are multiplied modulo X^e
     * + tail, which is irreducible: it has no root, and e <= 3. */
    int64_t tail[MOST_DEGREE];
} field;

static bool field_has_root(const field *f)
{
    for (int64_t x = 0; x < f->p; x++) {
        int64_t y = 1;
        for (int k = f->e - 1; k >= 0; k--) y = (y * x + f->tail[k]) % f->p;
        if (!y) return true;
    }
    return false;
}

static void field_init(field *f, int64_t p, int e)
{
    *f = (field){.p = p, .q = 1, .e = e};
    for (int k = 0; k < e; k++) f->q *= p;
    for (int64_t c = 1; e > 1 && c < f->q; c++) {
        for (int64_t k = 0, left = c; k < e; k++, left /= p) f->tail[k] = left % p;
        if (!field_has_root(f)) break;
    }
}

static int64_t field_square(const field *f, int64_t x)
{
    int64_t a[MOST_DEGREE] = {0}, y[2 * MOST_DEGREE] = {0}, out = 0;
    for (int k = 0; k < f->e; k++, x /= f->p) a[k] = x % f->p;
    for (int i = 0; i < f->e; i++)
        for (int k = 0; k < f->e; k++) y[i + k] = (y[i + k] + a[i] * a[k]) % f->p;
    for (int k = 2 * f->e - 2; k >= f->e; k--)
        for (int i = 0; i < f->e && f->e > 1; i++)
            y[k - f->e + i] = (y[k - f->e + i] + (f->p - f->tail[i]) * y[k]) % f->p;
    for (int k = f->e - 1; k >= 0; k--) out = out * f->p + y[k];
    return out;
}

static int64_t field_minus(const field *f, int64_t x, int64_t y)
{
    int64_t out = 0;
    for (int64_t k = 0, unit = 1; k < f->e; k++, unit *= f->p, x /= f->p, y /= f->p)
        out += (x % f->p - y % f->p + f->p) % f->p * unit;
    return out;
}

/* Returns the size q of the finite field from which Paley makes a Hadamard matrix of order K, or 0
 * if no construction is possible. Sets *p and *e with q = p^e.
 * First construction: q = K - 1, if K - 1 is a prime power and 3 modulo 4.
 * Second construction: q = K / 2 - 1, if K / 2 - 1 is a prime power and 1 modulo 4. */
static int64_t paley_field(int64_t K, int64_t *p, int *e)
{
    if ((*e = power_of_prime(K - 1, p)) && (K - 1) % 4 == 3) return K - 1;
    if ((*e = power_of_prime(K / 2 - 1, p)) && (K / 2 - 1) % 4 == 1) return K / 2 - 1;
    return 0;
}

static osh_status paley_make(osh_ctx *cx, int8_t *h, int64_t K)
{
    osh_status rc = OSH_OK;
    int64_t p, q;
    int e;
    // Own [q]: quadratic character of each element of the field: 1 for squares, -1 for non-squares,
    // 0 for 0.
    int8_t *chi = NULL;
    field f;
    q = paley_field(K, &p, &e);
    field_init(&f, p, e);
    OSH_NEW(cx, chi, q);
    memset(chi, -1, (size_t)q);
    for (int64_t x = 1; x < q; x++) chi[field_square(&f, x)] = 1;
    chi[0] = 0;
    bool twice = q != K - 1;
    for (int64_t i = 0; i <= q; i++)
        for (int64_t k = 0; k <= q; k++) {
            int c = !i || !k ? i != k : chi[field_minus(&f, i - 1, k - 1)];
            if (!twice) { // Paley's first construction: I + S with a skew-symmetric S
                h[i * K + k] = (int8_t)(i == k ? 1 : i && !k ? -1 : c);
                continue;
            }
            // Paley's second construction: C x [1 1; 1 -1] + I x [1 -1; -1 -1] with a symmetric C.
            // `same` is an element of the identity matrix I.
            int same = i == k;
            int8_t *at = h + 2 * i * K + 2 * k;
            at[0] = (int8_t)(c + same), at[1] = (int8_t)(c - same);
            at[K] = (int8_t)(c - same), at[K + 1] = (int8_t)(-c - same);
        }
done:
    osh_free(cx, chi);
    return rc;
}

/* ---- matrices ---- */

/* Returns cos(a) + sin(a) for a = 2 pi i / K, i < K. Computes the Taylor series of an angle below
 * pi / 4, and rotates it by multiples of pi / 4. cos and sin of the C library are not used, because
 * the bits of the result would depend on the library. */
static double cos_plus_sin(int64_t i, int64_t K)
{
    int64_t eighths = 8 * i / K;
    double x = 6.283185307179586476925 * (double)(8 * i - eighths * K) / (8.0 * (double)K);
    double c = 0, s = 0, term = 1;
    for (int n = 0; n < 20; term *= x / ++n) {
        if (n % 2) s += n % 4 == 1 ? term : -term;
        else c += n % 4 == 0 ? term : -term;
    }
    for (; eighths > 0; eighths--) {
        double turned = (c - s) * sqrt(0.5);
        s = (c + s) * sqrt(0.5), c = turned;
    }
    return c + s;
}

static osh_status rotation_find_factor(osh_ctx *cx, osh_rotation *r, const char *what)
{
    osh_status rc = OSH_OK;
    int64_t odd = r->n, p;
    int e;
    while (odd && odd % 2 == 0) odd /= 2;
    if (r->n < 1)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: a rotation of %ld rows: want 1 or more", what, (long)r->n);
    r->factor = odd;
    if (odd == 1 || r->kind == OSH_ROTATION_RANDOM_MATRIX) goto done;
    if (r->kind == OSH_ROTATION_HADAMARD)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s has %ld channels, and transform_type hadamard wants a power of two: "
                 "want random-hadamard or random-matrix",
                 what, (long)r->n);
    for (r->factor = 4 * odd; r->factor <= r->n && !paley_field(r->factor, &p, &e);
         r->factor *= 2) {
    }
    if (r->factor > r->n)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s has %ld channels, %ld times a power of two, and Paley's constructions have "
                 "no Hadamard matrix of this size: want transform_type random-matrix",
                 what, (long)r->n, (long)odd);
done:
    return rc;
}

osh_status osh_rotation_init(osh_ctx *cx, osh_rotation *r, osh_rotation_kind kind, int64_t n,
                             uint64_t seed, const char *what)
{
    osh_status rc = OSH_OK;
    *r = (osh_rotation){.kind = kind, .n = n};
    OSH_TRY(rotation_find_factor(cx, r, what));
    int64_t K = r->factor;
    if (K > 1 && kind == OSH_ROTATION_RANDOM_HADAMARD) {
        OSH_NEW(cx, r->had, K * K);
        OSH_TRY(paley_make(cx, r->had, K));
    } else if (K > 1) {
        OSH_NEW(cx, r->cas, K);
        for (int64_t i = 0; i < K; i++) r->cas[i] = cos_plus_sin(i, K);
    }
    if (kind == OSH_ROTATION_HADAMARD) goto done;
    OSH_NEW(cx, r->sign, n);
    for (int64_t i = 0; i < n; i++)
        r->sign[i] = osh_rng_u64(seed, (uint64_t)n, (uint64_t)i) >> 63 ? -1 : 1;
done:
    if (rc) osh_rotation_deinit(cx, r);
    return rc;
}

void osh_rotation_deinit(osh_ctx *cx, osh_rotation *r)
{
    osh_free(cx, r->had);
    osh_free(cx, r->cas);
    osh_free(cx, r->sign);
    *r = (osh_rotation){0};
}

/* ---- products ---- */

size_t osh_rotation_room(const osh_rotation *r)
{
    return osh_mem_gross((size_t)((r->n + r->factor) * LANES) * sizeof(double));
}

static void rotate_signs(double *x, const osh_rotation *r)
{
    for (int64_t i = 0; r->sign && i < r->n; i++)
        for (int l = 0; l < LANES; l++) x[i * LANES + l] *= r->sign[i];
}

/* Replaces x [n, width] by H x. H is Sylvester's Hadamard matrix [n, n]; n is a power of two. */
static void rotate_sylvester(double *x, int64_t n, int64_t width)
{
    for (int64_t half = 1; half < n; half *= 2)
        for (int64_t at = 0; at < n; at += 2 * half) {
            double *a = x + at * width, *b = a + half * width;
            for (int64_t i = 0; i < half * width; i++) {
                double u = a[i], v = b[i];
                a[i] = u + v, b[i] = u - v;
            }
        }
}

static double rotation_factor_at(const osh_rotation *r, int64_t b, int64_t c)
{
    return r->had ? r->had[b * r->factor + c] : r->cas[b * c % r->factor];
}

void osh_rotation_rows(double *to, const osh_rotation *r, int64_t first, int64_t rows)
{
    int64_t K = r->factor;
    for (int64_t i = first; i < first + rows; i++)
        for (int64_t j = 0; j < r->n; j++) {
            double f = K > 1 ? rotation_factor_at(r, i % K, j % K) : 1,
                   sign = r->sign ? r->sign[i] : 1;
            bool minus = __builtin_popcountll((unsigned long long)(i / K & j / K)) % 2;
            *to++ = minus ? -sign * f : sign * f;
        }
}

/* Computes y = x F for LANES vectors of K elements, or y = x F^T if `transposed` is true. x, y: [K,
 * LANES]. */
static void rotate_factor(double *y, const double *x, const osh_rotation *r, bool transposed)
{
    int64_t K = r->factor;
    for (int64_t c = 0; c < K; c++) {
        double sum[LANES] = {0};
        for (int64_t b = 0; b < K; b++) {
            double f = transposed ? rotation_factor_at(r, c, b) : rotation_factor_at(r, b, c);
            for (int l = 0; l < LANES; l++) sum[l] += f * x[b * LANES + l];
        }
        memcpy(y + c * LANES, sum, sizeof sum);
    }
}

/* Multiplies the LANES vectors in x [n, LANES] by M, or by M^T if `transposed` is true. The memory
 * after x must have room for K more rows of LANES numbers. The function uses it as scratch. */
static void rotate_lanes(double *x, const osh_rotation *r, bool transposed)
{
    int64_t K = r->factor, line = K * LANES;
    double root = sqrt((double)r->n), *y = x + r->n * LANES;
    if (!transposed) rotate_signs(x, r);
    rotate_sylvester(x, r->n / K, line);
    for (int64_t a = 0; K > 1 && a < r->n / K; a++) {
        rotate_factor(y, x + a * line, r, transposed);
        memcpy(x + a * line, y, (size_t)line * sizeof *y);
    }
    for (int64_t i = 0; i < r->n * LANES; i++) x[i] /= root;
    if (transposed) rotate_signs(x, r);
}

typedef struct strip { // up to LANES vectors of n elements in a tensor
    char *at;          // view: address of the first element of the first vector
    osh_dtype dt;
    /* step: distance from one element of a vector to the next, in elements.
     * lane: distance from one vector to the next, in elements. */
    int64_t step, lane;
    int64_t n, lanes; // n: number of elements of a vector; lanes: number of vectors, at most LANES
} strip;

/* Copies the vectors of a strip to x [n, LANES]. If `store` is true, copies x to the vectors
 * instead. Converts up to PIECE contiguous elements of the tensor together. */
static void strip_move(double *x, const strip *s, bool store)
{
    enum { PIECE = 256 };
    float piece[PIECE];
    size_t size = osh_dtype_bytes(s->dt);
    // true: the elements of each vector are contiguous; false: elements with the same index are
    // contiguous
    bool rows = s->step == 1;
    int64_t outer = rows ? s->lanes : s->n, inner = rows ? s->n : s->lanes;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0, k; i < inner; i += k) {
            char *at = s->at + (size_t)(o * (rows ? s->lane : s->step) + i) * size;
            double *to = x + (rows ? i * LANES + o : o * LANES + i);
            int64_t gap = rows ? LANES : 1;
            k = inner - i < PIECE ? inner - i : PIECE;
            if (!store) osh_to_f32(piece, at, s->dt, k);
            for (int64_t e = 0; e < k && !store; e++) to[e * gap] = piece[e];
            for (int64_t e = 0; e < k && store; e++) piece[e] = (float)to[e * gap];
            if (store) osh_from_f32(at, s->dt, piece, k);
        }
}

static void strip_rotate(double *x, const strip *s, const osh_rotation *r, bool transposed)
{
    if (s->lanes < LANES) memset(x, 0, (size_t)(r->n * LANES) * sizeof *x);
    strip_move(x, s, false);
    rotate_lanes(x, r, transposed);
    strip_move(x, s, true);
}

typedef struct rotate_job {
    char *data;
    osh_dtype dt;
    int64_t rows, width;
    const osh_rotation *r;
    bool transposed, columns;
    int64_t groups; // number of groups of LANES rows, or of LANES columns
} rotate_job;

static strip strip_at(const rotate_job *j, int64_t group, int64_t block)
{
    int64_t lane = group * LANES, lanes = (j->columns ? j->width : j->rows) - lane;
    int64_t row = j->columns ? block * j->r->n : lane, column = j->columns ? lane : block * j->r->n;
    return (strip){j->data + (size_t)(row * j->width + column) * osh_dtype_bytes(j->dt),
                   j->dt,
                   j->columns ? j->width : 1,
                   j->columns ? 1 : j->width,
                   j->r->n,
                   lanes < LANES ? lanes : LANES};
}

static osh_status rotate_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const rotate_job *j = user;
    const osh_rotation *r = j->r;
    int64_t n_blocks = (j->columns ? j->rows : j->width) / r->n, end = (chunk + 1) * GROUPS;
    double *x = osh_alloc(cx, (size_t)((r->n + r->factor) * LANES) * sizeof *x); // own
    (void)worker;
    if (!x) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to rotate by %ld channels", (long)r->n);
    for (int64_t g = chunk * GROUPS; g < end && g < j->groups; g++)
        for (int64_t b = 0; b < n_blocks; b++) {
            strip s = strip_at(j, g, b);
            strip_rotate(x, &s, r, j->transposed);
        }
done:
    osh_free(cx, x);
    return rc;
}

static osh_status rotate_all(osh_ctx *cx, rotate_job *j)
{
    j->groups = ((j->columns ? j->width : j->rows) + LANES - 1) / LANES;
    return osh_parallel_for(cx, (j->groups + GROUPS - 1) / GROUPS, rotate_chunk, j);
}

osh_status osh_rotate_rows(osh_ctx *cx, osh_tensor *m, const osh_rotation *r, bool transposed)
{
    rotate_job j = {.data = m->data,
                    .dt = m->dtype,
                    .rows = m->shape[0],
                    .width = m->shape[1],
                    .r = r,
                    .transposed = transposed};
    return rotate_all(cx, &j);
}

osh_status osh_rotate_columns(osh_ctx *cx, osh_tensor *m, const osh_rotation *r, bool transposed)
{
    rotate_job j = {.data = m->data,
                    .dt = m->dtype,
                    .rows = m->shape[0],
                    .width = m->shape[1],
                    .r = r,
                    .transposed = transposed,
                    .columns = true};
    return rotate_all(cx, &j);
}
