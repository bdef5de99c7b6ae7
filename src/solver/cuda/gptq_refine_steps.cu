/* gptq_refine_steps.cu - does the steps of gptq_refine.h on a tile of rows. One thread per row
 * computes the changes in a group or block of columns. A matrix product then adds their effect to G
 * = (w^ - w) H. */
#include "solver/cuda/gptq_refine.cuh"
#include "solver/cuda/sizes.h"

enum { THREADS = 64 };

__device__ static int64_t steps_row() { return (int64_t)blockIdx.x * THREADS + threadIdx.x; }
static unsigned steps_blocks(int64_t n) { return (unsigned)osh_div_up(n, THREADS); }

osh_status osh_cuda_rows(osh_ctx *cx, osh_device *d, const osh_cuda_rows_args &r)
{
    osh_cuda_mat c = {r.y, r.ldy, 0, OSH_F32, false},
                 a = {const_cast<float *>(r.x), r.ldx, 0, OSH_F32, false};
    osh_cuda_mat b = {const_cast<float *>(r.m), r.ldm, 0, OSH_F32, false};
    return osh_cuda_gemm(cx, d, {&c, &a, &b, r.n, r.n_cols, r.n_rows, 1, 1, r.add ? 1.f : 0.f});
}

/* ---- rescale ---- */

typedef struct group { // the group of columns that is rescaled
    int64_t g, first;
    const int32_t *order; // column at each position of the solving order, [n_cols]
    const float *u;       // [n_cols, n_cols]
    float *scale, *zero;  // scale and zero point that the search finds for each row, [n]
    double *was;          // for each row, loss of the current codes minus loss of the target, [n]
} group;

/* Sets t.turned to the target of the group, in solving order. Sets t.err [n, n_cols] to w^ minus
 * target. (The target is the values of the group that minimize the loss; gptq_rescale.c has its
 * formula.) */
template <class T> static __global__ void rescale_want(osh_cu_tile t, group k)
{
    int64_t r = steps_row(), n = t.n_cols;
    if (r >= t.n) return;
    const float *step = t.err + r * n, *pull = t.next + r * t.I + k.first,
                *q = t.q + r * t.I + k.first;
    float s = t.scale[r * t.groups + k.g], z = t.zero[r * t.groups + k.g];
    double was = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t c = k.order[j];
        was += (double)pull[j] * step[j];
        t.turned[j * t.n + r] = __fsub_rn(osh_cu_value<T>(q[c], s, z), step[c]);
    }
    k.was[r] = was;
}

/* Runs the column loop (solver/gptq_solve.h) inside the group, and overwrites t.turned with the
 * negated errors. Rows whose loss becomes lower get the new codes, scale and zero point. Sets t.err
 * [n, n_cols] to the changes of w^. `codes` [n_cols, n]: scratch. */
template <class T> static __global__ void rescale_solve(osh_cu_tile t, group k, float *codes)
{
    int64_t r = steps_row(), n = t.n_cols, at = r * t.groups + k.g;
    if (r >= t.n) return;
    const osh_grid grid = t.rule.grid;
    float s = k.scale[r], z = k.zero[r], *q = t.q + r * t.I + k.first, *by = t.err + r * n;
    double now = 0;
    for (int64_t j = 0; j < n; j++) {
        float w = t.turned[j * t.n + r];
        for (int64_t i = 0; i < j; i++)
            w = __fadd_rn(w, __fmul_rn(t.turned[i * t.n + r], k.u[i * n + j]));
        float x = __fdiv_rn(w, s);
        if (!grid.digits) x = __fadd_rn(x, z);
        x = osh_cu_on_grid(grid, fminf(fmaxf(x, grid.lo), grid.hi));
        float e = -__fdiv_rn(__fsub_rn(w, osh_cu_value<T>(x, s, z)), k.u[j * n + j]);
        codes[j * t.n + r] = x;
        t.turned[j * t.n + r] = e;
        now += (double)e * e;
    }
    bool better = now < k.was[r];
    for (int64_t j = 0; j < n; j++) {
        int64_t c = k.order[j];
        float x = codes[j * t.n + r], old = osh_cu_value<T>(q[c], t.scale[at], t.zero[at]);
        by[c] = better ? __fsub_rn(osh_cu_value<T>(x, s, z), old) : 0;
        if (better) q[c] = x;
    }
    if (better) t.scale[at] = s, t.zero[at] = z;
}

/* Sets cost[i] to 1 / inverse[j][j], where j = order[i] is the column at position i of the solving
 * order. */
static __global__ void rescale_costs(float *cost, const float *inverse, const int32_t *order,
                                     int64_t n)
{
    int64_t j = steps_row();
    if (j < n) cost[j] = __fdiv_rn(1.0f, inverse[order[j] * (n + 1)]);
}

static osh_status rescale_group(osh_ctx *cx, osh_device *d, osh_cu_tile t,
                                const osh_group_factors *f, int64_t g)
{
    osh_status rc = OSH_OK;
    cudaStream_t stream = osh_cuda_stream(d);
    int64_t first = g * t.group, n = osh_min64(t.group, t.I - first);
    float *inverse = t.room, *u = inverse + n * n, *cost = u + n * n, *scale = cost + n,
          *zero = scale + t.n;
    float *codes = zero + t.n;
    int32_t *order = reinterpret_cast<int32_t *>(codes + n * t.n);
    group k = {g, first, order, u, scale, zero, t.fit};
    osh_cu_search s = {t.turned, cost, NULL, t.n, n, n, 1, 1, 1, t.n, t.rule, scale, zero};

    t.n_cols = n;
    OSH_TRY(d->type->put(cx, d, inverse, f->inverse + first * t.group,
                         (size_t)(n * n) * sizeof(float)));
    OSH_TRY(d->type->put(cx, d, u, f->u + first * t.group, (size_t)(n * n) * sizeof(float)));
    OSH_TRY(d->type->put(cx, d, order, f->order + first, (size_t)n * sizeof *order));
    OSH_LAUNCH(rescale_costs, steps_blocks(n), THREADS, 0, stream, cost, inverse, order, n);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(osh_cuda_rows(cx, d, {t.err, n, t.next + first, t.I, inverse, n, t.n, n, n, false}));
    OSH_CU_BY_DTYPE(t.rule.dtype, T,
                    OSH_LAUNCH(rescale_want<T>, steps_blocks(t.n), THREADS, 0, stream, t, k));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(osh_cuda_search(cx, d, &s, OSH_F32));
    OSH_CU_BY_DTYPE(
        t.rule.dtype, T,
        OSH_LAUNCH(rescale_solve<T>, steps_blocks(t.n), THREADS, 0, stream, t, k, codes));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(
        osh_cuda_rows(cx, d, {t.next, t.I, t.err, n, t.h + first * t.I, t.I, t.n, t.I, n, true}));
done:
    return rc;
}

osh_status osh_cuda_rescale(osh_ctx *cx, osh_device *d, const osh_cu_tile *t,
                            const osh_group_factors *f)
{
    osh_status rc = OSH_OK;
    for (int64_t g = 0; g < t->groups && f->ok; g++)
        if (f->ok[g]) OSH_TRY(rescale_group(cx, d, *t, f, g));
done:
    return rc;
}

/* ---- descend ---- */

enum { DESCEND = OSH_CU_DESCEND, TURNS = 4 };

typedef struct descent { // data of a thread block, in shared memory
    /* Rows of the diagonal block of H. The first element of row j is the element of column
     * j / TURNS * TURNS. (When column j is tested, the array g of descend_columns begins with the
     * same column.) Zeros follow the last column. */
    float corner[DESCEND][DESCEND];
    /* Has a row for each thread. The row contains the thread's part of G at first, and then the
     * codes of the same columns. When a column is tested, the change of w^ replaces its code. The
     * last element of a row is unused, so that the threads of a warp access different banks. */
    float rows[THREADS][DESCEND + 1];
} descent;

/* Copies n columns of the rows of a thread block to x->rows. The rows in `from` are `ld` elements
 * apart. All threads of the block call this function. */
__device__ static void descend_load(descent *x, const float *from, int64_t ld, int64_t n, int wide)
{
    int64_t first = (int64_t)blockIdx.x * THREADS;
    for (int k = threadIdx.x; k < THREADS * wide; k += THREADS)
        if (first + k / wide < n)
            x->rows[k / wide][k % wide] = from[(first + k / wide) * ld + k % wide];
}

/* Proposes another code for one column. If the code lowers the loss, sets *q to it and returns the
 * change of w^. (*q is a value of the grid.) If not, returns 0, and *q must not be used. g: the
 * column's element of G. h: the column's diagonal element of H. */
template <class T>
__device__ static float descend_step(const osh_grid &grid, float *q, float s, float z, float g,
                                     float h)
{
    float x = __fsub_rn(*q, __fdiv_rn(g, __fmul_rn(h, s)));
    x = osh_cu_on_grid(grid, fminf(fmaxf(x, grid.lo), grid.hi));
    float by = __fsub_rn(osh_cu_value<T>(x, s, z), osh_cu_value<T>(*q, s, z));
    bool better = __fadd_rn(__fmul_rn(__fmul_rn(2.0f, by), g), __fmul_rn(__fmul_rn(by, by), h)) < 0;
    *q = x;
    return better ? by : 0;
}

/* Tests columns [first, first + wide) of each row in ascending order, and changes a code if that
 * lowers the loss. Sets t.err [n, wide] to the changes of w^. Each pass of the loop over j0 tests
 * columns g[0] to g[TURNS - 1]. It then moves the later columns to the front of g, so that g stays
 * in registers. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    descend_columns(osh_cu_tile t, int64_t first, int wide)
{
    __shared__ __align__(16) descent x;
    int64_t r = steps_row();
    bool mine = r < t.n; // false: the thread has no row and only helps to load
    float g[DESCEND], *row = x.rows[threadIdx.x], s = 1, z = 0;
    const osh_grid grid = t.rule.grid;

    for (int k = threadIdx.x; k < wide * DESCEND; k += THREADS) {
        int i = k / DESCEND, j = i / TURNS * TURNS + k % DESCEND;
        x.corner[i][k % DESCEND] = j < wide ? t.h[(first + i) * t.I + first + j] : 0;
    }
    descend_load(&x, t.next + first, t.I, t.n, wide);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < DESCEND; j++) g[j] = mine && j < wide ? row[j] : 0;
    __syncthreads();
    descend_load(&x, t.q + first, t.I, t.n, wide);
    __syncthreads();
#pragma unroll 1
    for (int j0 = 0; j0 < wide && mine; j0 += TURNS) {
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            int j = j0 + i;
            if (j >= wide) break;
            const float *h = x.corner[j];
            if (!j || (first + j) % t.group == 0) {
                int64_t at = r * t.groups + (first + j) / t.group;
                s = t.scale[at], z = t.zero[at];
            }
            float q = row[j], by = descend_step<T>(grid, &q, s, z, g[i], h[i]);
            row[j] = by;
            if (by == 0) continue;
            t.q[r * t.I + first + j] = q;
#pragma unroll
            for (int k = i + 1; k < DESCEND; k++) g[k] = __fadd_rn(g[k], __fmul_rn(by, h[k]));
        }
#pragma unroll
        for (int k = 0; k + TURNS < DESCEND; k++) g[k] = g[k + TURNS];
    }
    __syncthreads();
    for (int k = threadIdx.x; k < THREADS * wide; k += THREADS) {
        int64_t at = (int64_t)blockIdx.x * THREADS + k / wide;
        if (at < t.n) t.err[at * wide + k % wide] = x.rows[k / wide][k % wide];
    }
}

osh_status osh_cuda_descend(osh_ctx *cx, osh_device *d, const osh_cu_tile *t)
{
    osh_status rc = OSH_OK;
    for (int sweep = 0; sweep < OSH_DESCEND_SWEEPS; sweep++)
        for (int64_t first = 0; first < t->I; first += OSH_CU_DESCEND) {
            int wide = (int)osh_min64(OSH_CU_DESCEND, t->I - first);
            OSH_CU_BY_DTYPE(t->rule.dtype, T,
                            OSH_LAUNCH(descend_columns<T>, steps_blocks(t->n), THREADS, 0,
                                       osh_cuda_stream(d), *t, first, wide));
            OSH_CUDA(cx, cudaGetLastError());
            const float *h = t->h + first * t->I;
            OSH_TRY(osh_cuda_rows(cx, d,
                                  {t->next, t->I, t->err, wide, h, t->I, t->n, t->I, wide, true}));
        }
done:
    return rc;
}

/* ---- fit_scales ---- */

/* Sets t.d to q - z, the codes without scale. */
static __global__ void fit_centre(osh_cu_tile t)
{
    int64_t c = steps_row(), r = blockIdx.y;
    if (c < t.I) t.d[r * t.I + c] = __fsub_rn(t.q[r * t.I + c], t.zero[r * t.groups + c / t.group]);
}

/* Computes row g of A and element g of b (gptq_fit_scales.c) for all rows of the tile. One thread
 * computes A[g, k], with k <= g, for one row of the tile. t.next [n, width]: a product of two
 * matrices. The left matrix has the columns of q - z for group g. The right matrix has the rows of
 * H for group g. */
static __global__ void fit_sums(osh_cu_tile t, int64_t g0, int64_t n, int64_t g, int64_t width)
{
    int64_t r = steps_row(), k = blockIdx.y, first = g0 * t.group, at = k * t.group,
            end = at + t.group;
    if (r >= t.n) return;
    const float *c = t.d + r * t.I + first, *part = t.next + r * width,
                *pull = t.g + r * t.I + first;
    double sum = 0, b = 0;
    if (end > t.I - first) end = t.I - first;
    for (int64_t i = at; i < end; i++) sum += (double)part[i] * c[i];
    for (int64_t i = at; i < end && k == g; i++) b -= (double)pull[i] * c[i];
    t.fit[(g * n + k) * t.n + r] = sum;
    if (k == g) t.fit[(n * n + g) * t.n + r] = b;
}

/* Sums element blockIdx.y of the array (A, b) over all rows of a band (rows that share scales).
 * Stores the sum in the first row of the band. */
static __global__ void fit_join(osh_cu_tile t, int64_t band)
{
    int64_t first = steps_row() * band, end = first + band < t.n ? first + band : t.n;
    double *x = t.fit + blockIdx.y * t.n, sum = 0;
    if (first >= t.n) return;
    for (int64_t r = first; r < end; r++) sum += x[r];
    x[first] = sum;
}

/* Computes the scales of a band (rows that share scales) by solving A d = -b. */
template <class T>
static __global__ void fit_solve_band(osh_cu_tile t, int64_t g0, int64_t n, int64_t band)
{
    int64_t first = steps_row() * band, end = first + band < t.n ? first + band : t.n;
    if (first >= t.n) return;
    double *a = t.fit + first, *b = a + n * n * t.n;
    if (!osh_fit_solve(a, b, n, t.n)) return;
    for (int64_t g = 0; g < n; g++) {
        float s =
            osh_cu_stored<T>(t.rule, (float)(t.scale[first * t.groups + g0 + g] + b[g * t.n]));
        for (int64_t r = first; s > 0 && s < INFINITY && r < end; r++)
            t.scale[r * t.groups + g0 + g] = s;
    }
}

osh_status osh_cuda_fit_sums(osh_ctx *cx, osh_device *d, const osh_cu_tile *t, int64_t g0,
                             int64_t n, int64_t band)
{
    osh_status rc = OSH_OK;
    cudaStream_t stream = osh_cuda_stream(d);
    int64_t first = g0 * t->group, end = osh_min64(t->I, (g0 + n) * t->group), width = end - first;

    OSH_LAUNCH(fit_centre, dim3(steps_blocks(t->I), (unsigned)t->n), THREADS, 0, stream, *t);
    OSH_CUDA(cx, cudaGetLastError());
    for (int64_t g = 0; g < n; g++) {
        int64_t col = first + g * t->group, n_cols = osh_min64(t->group, end - col);
        OSH_TRY(osh_cuda_rows(cx, d,
                              {t->next, width, t->d + col, t->I, t->h + col * t->I + first, t->I,
                               t->n, col + n_cols - first, n_cols, false}));
        OSH_LAUNCH(fit_sums, dim3(steps_blocks(t->n), (unsigned)(g + 1)), THREADS, 0, stream, *t,
                   g0, n, g, width);
        OSH_CUDA(cx, cudaGetLastError());
    }
    if (band == 1) goto done;
    OSH_LAUNCH(fit_join, dim3(steps_blocks(osh_div_up(t->n, band)), (unsigned)(n * (n + 1))),
               THREADS, 0, stream, *t, band);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_cuda_fit_scales(osh_ctx *cx, osh_device *d, const osh_cu_tile *t)
{
    osh_status rc = OSH_OK;
    int64_t band = osh_min64(t->row_block, t->n);
    for (int64_t g0 = 0; g0 < t->groups; g0 += OSH_FIT_GROUPS) {
        int64_t n = osh_min64(OSH_FIT_GROUPS, t->groups - g0);
        // the scales of earlier groups have changed, so g must be computed anew
        if (g0) OSH_TRY(osh_cuda_pull(cx, d, t, t->g));
        OSH_TRY(osh_cuda_fit_sums(cx, d, t, g0, n, band));
        OSH_CU_BY_DTYPE(t->rule.dtype, T,
                        OSH_LAUNCH(fit_solve_band<T>, steps_blocks(osh_div_up(t->n, band)), THREADS,
                                   0, osh_cuda_stream(d), *t, g0, n, band));
        OSH_CUDA(cx, cudaGetLastError());
    }
done:
    return rc;
}
