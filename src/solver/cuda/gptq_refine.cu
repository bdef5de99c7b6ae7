/* gptq_refine.cu - improves codes and scales after GPTQ's column loop on a GPU, in tiles of rows
 * like solver/cpu/gptq_refine.c.
 * A step proposes codes and scales, and updates `next`, a copy of G = (w^ - w) H. Then G is
 * computed anew for the proposal, and the new losses follow from G. A row accepts the proposal if
 * its loss did not rise. Rows that share scales (a band) accept or reject it together. The size of
 * a tile depends only on the shape of the weight, so the matrix products have fixed shapes. */
#include "solver/cuda/gptq_refine.cuh"
#include "solver/cuda/sizes.h"

#include <math.h>
#include <string.h>

enum { THREADS = 64 };

__device__ static int64_t refine_column() { return (int64_t)blockIdx.x * THREADS + threadIdx.x; }
static unsigned refine_blocks(int64_t n) { return (unsigned)osh_div_up(n, THREADS); }

/* ---- kernels; blockIdx.y is the row ---- */

/* Sets the proposal (q, scale and zero) to the codes, scales and zero points that were accepted
 * last. */
static __global__ void refine_open_codes(osh_cu_tile t)
{
    int64_t c = refine_column(), r = blockIdx.y;
    if (c < t.I) t.q[r * t.I + c] = t.values[t.codes[r * t.I + c] & 0xff];
    if (c >= t.groups) return;
    t.scale[r * t.groups + c] = t.kept_scale[r * t.groups + c];
    t.zero[r * t.groups + c] = t.kept_zero[r * t.groups + c];
}

/* Sets t.d to w^ - w. If `nothing` is true, sets t.d to -w, as if all w^ were 0. */
template <class S, class T> static __global__ void refine_errors(osh_cu_tile t, bool nothing)
{
    int64_t c = refine_column(), r = blockIdx.y, at = r * t.groups + c / t.group;
    if (c >= t.I) return;
    float w =
        t.dead && t.dead[c] ? 0 : osh_cu_load(static_cast<const S *>(t.w)[(t.row + r) * t.I + c]);
    float is = nothing ? 0 : osh_cu_value<T>(t.q[r * t.I + c], t.scale[at], t.zero[at]);
    t.d[r * t.I + c] = __fsub_rn(is, w);
}

/* Sets t.now[r] to the loss of row r. The loss is the sum of d[r][c] g[r][c] over all columns c. A
 * thread block computes one row. */
static __global__ void refine_losses(osh_cu_tile t, const float *g)
{
    __shared__ double part[THREADS];
    int64_t r = blockIdx.x;
    double sum = 0;
    for (int64_t c = threadIdx.x; c < t.I; c += THREADS)
        sum += (double)t.d[r * t.I + c] * g[r * t.I + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int k = 1; k < THREADS; k++) sum += part[k];
    t.now[r] = sum;
}

/* True if the proposal does not raise the loss of the band that contains row r. `band`: number of
 * consecutive rows that share scales. */
__device__ static bool is_better(const osh_cu_tile &t, int64_t r, int64_t band)
{
    int64_t first = r / band * band, end = first + band < t.n ? first + band : t.n;
    double was = 0, now = 0;
    for (int64_t k = first; k < end; k++) was += t.loss[k], now += t.now[k];
    return now <= was;
}

/* Accepts the proposal of each band (rows that share scales) for which is_better returns true.
 * Restores q, scale and zero of the other bands. */
static __global__ void refine_settle(osh_cu_tile t, int64_t band)
{
    int64_t c = refine_column(), r = blockIdx.y, i = r * t.I + c, at = r * t.groups + c;
    bool better = is_better(t, r, band);
    if (c < t.I && better)
        t.codes[i] = (int8_t)osh_cu_code(t.rule.grid, t.q[i]), t.g[i] = t.next[i];
    else if (c < t.I) t.q[i] = t.values[t.codes[i] & 0xff];
    if (c >= t.groups) return;
    if (better) t.kept_scale[at] = t.scale[at], t.kept_zero[at] = t.zero[at];
    else t.scale[at] = t.kept_scale[at], t.zero[at] = t.kept_zero[at];
}

/* Copies `now` to `loss` in the bands whose proposal was accepted. It is a separate kernel, because
 * all threads of refine_settle read both arrays. */
static __global__ void refine_keep_losses(osh_cu_tile t, int64_t band)
{
    int64_t first = refine_column() * band, end = first + band < t.n ? first + band : t.n;
    if (first >= t.n || !is_better(t, first, band)) return;
    for (int64_t r = first; r < end; r++) t.loss[r] = t.now[r];
}

/* ---- host ---- */
typedef struct refiner {
    const osh_gptq_refine_args *a;
    osh_device *d;
    osh_group_factors f; // own
    osh_cu_tile t;
    char *base;          // all arrays of the tile, one allocation in the GPU's arena; own
    int64_t rows;
    float *scales;       // own: scales and zero points of a tile in host memory, [2, rows, groups]
    double *figures;     // own: losses of the rows of a tile in host memory, [rows]
    /* true: the loss for w^ = 0 must still be computed */
    bool wants_all;
} refiner;

static osh_status refiner_put(osh_ctx *cx, const refiner *s, void *to, const void *from,
                              size_t n_bytes)
{
    return s->d->type->put(cx, s->d, to, from, n_bytes);
}
static osh_status refiner_get(osh_ctx *cx, const refiner *s, void *to, const void *from,
                              size_t n_bytes)
{
    return s->d->type->get(cx, s->d, to, from, n_bytes);
}

osh_status osh_cuda_pull(osh_ctx *cx, osh_device *d, const osh_cu_tile *t, float *g)
{
    osh_status rc = OSH_OK;
    dim3 grid(refine_blocks(t->I), (unsigned)t->n);
    OSH_CU_BY_STORED(t->stored, S, OSH_CU_BY_DTYPE(t->rule.dtype, T,
        OSH_LAUNCH((refine_errors<S, T>), grid, THREADS, 0, osh_cuda_stream(d), *t, false)));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(osh_cuda_rows(cx, d, {g, t->I, t->d, t->I, t->h, t->I, t->n, t->I, t->I, false}));
done:
    return rc;
}

/* Sets now[r] to the loss of row r, for all rows of the tile (refine_losses). If `sum` is not NULL,
 * adds all these losses to *sum. */
static osh_status refiner_sum_losses(osh_ctx *cx, refiner *s, double *now, const float *g,
                                     double *sum)
{
    osh_status rc = OSH_OK;
    osh_cu_tile t = s->t;
    t.now = now;
    OSH_LAUNCH(refine_losses, (unsigned)t.n, THREADS, 0, osh_cuda_stream(s->d), t, g);
    OSH_CUDA(cx, cudaGetLastError());
    if (!sum) goto done;
    OSH_TRY(refiner_get(cx, s, s->figures, now, (size_t)t.n * sizeof *s->figures));
    for (int64_t r = 0; r < t.n; r++) *sum += s->figures[r];
done:
    return rc;
}

/* Loads the codes and scales of the tile that begins at row `row`. Computes G and the losses of the
 * tile. */
static osh_status refiner_open_tile(osh_ctx *cx, refiner *s, int64_t row)
{
    osh_status rc = OSH_OK;
    const osh_gptq_refine_args *a = s->a;
    osh_cu_tile *t = &s->t;
    t->row = row, t->n = osh_min64(s->rows, a->O - row);
    size_t n = (size_t)(t->n * t->groups), bytes = n * sizeof(float);
    float *scale = s->scales, *zero = scale + n;
    for (int64_t r = 0; r < t->n; r++)
        for (int64_t g = 0; g < t->groups; g++) {
            int64_t at = (row + r) / a->row_block * t->groups + g;
            scale[r * t->groups + g] = a->scale[at];
            zero[r * t->groups + g] = a->zero ? a->zero[at] : 0;
        }
    OSH_TRY(refiner_put(cx, s, t->kept_scale, scale, bytes));
    OSH_TRY(refiner_put(cx, s, t->kept_zero, zero, bytes));
    OSH_TRY(refiner_put(cx, s, t->codes, a->codes + row * a->I, (size_t)(t->n * a->I)));
    OSH_LAUNCH(refine_open_codes, dim3(refine_blocks(a->I), (unsigned)t->n), THREADS, 0,
               osh_cuda_stream(s->d), *t);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(osh_cuda_pull(cx, s->d, t, t->g));
    OSH_TRY(refiner_sum_losses(cx, s, t->loss, t->g, NULL));
done:
    return rc;
}

/* Copies the codes and scales of the tile from the GPU to the arrays in s->a. */
static osh_status refiner_close_tile(osh_ctx *cx, refiner *s)
{
    osh_status rc = OSH_OK;
    const osh_gptq_refine_args *a = s->a;
    const osh_cu_tile *t = &s->t;
    size_t n = (size_t)(t->n * t->groups), bytes = n * sizeof(float);
    float *scale = s->scales, *zero = scale + n;
    OSH_TRY(refiner_get(cx, s, scale, t->kept_scale, bytes));
    OSH_TRY(refiner_get(cx, s, zero, t->kept_zero, bytes));
    OSH_TRY(refiner_get(cx, s, a->codes + t->row * a->I, t->codes, (size_t)(t->n * a->I)));
    for (int64_t r = 0; r < t->n; r++)
        for (int64_t g = 0; g < t->groups; g++) {
            int64_t at = (t->row + r) / a->row_block * t->groups + g;
            a->scale[at] = scale[r * t->groups + g];
            if (a->zero) a->zero[at] = zero[r * t->groups + g];
        }
done:
    return rc;
}

static osh_status refiner_run_step(osh_ctx *cx, refiner *s, osh_refine step)
{
    osh_status rc = OSH_OK;
    osh_cu_tile *t = &s->t;
    cudaStream_t stream = osh_cuda_stream(s->d);
    int64_t band = step == OSH_REFINE_FIT_SCALES ? osh_min64(t->row_block, t->n) : 1;
    int64_t bytes = t->n * t->I * (int64_t)sizeof(float);
    OSH_CUDA(cx, cudaMemcpyAsync(t->next, t->g, (size_t)bytes, cudaMemcpyDeviceToDevice, stream));
    if (step == OSH_REFINE_RESCALE) OSH_TRY(osh_cuda_rescale(cx, s->d, t, &s->f));
    if (step == OSH_REFINE_DESCEND) OSH_TRY(osh_cuda_descend(cx, s->d, t));
    if (step == OSH_REFINE_FIT_SCALES) OSH_TRY(osh_cuda_fit_scales(cx, s->d, t));
    OSH_TRY(osh_cuda_pull(cx, s->d, t, t->next));
    OSH_TRY(refiner_sum_losses(cx, s, t->now, t->next, NULL));
    OSH_LAUNCH(refine_settle, dim3(refine_blocks(t->I), (unsigned)t->n), THREADS, 0, stream, *t,
               band);
    OSH_LAUNCH(refine_keep_losses, refine_blocks(osh_div_up(t->n, band)), THREADS, 0, stream, *t,
               band);
    OSH_CUDA(cx, cudaGetLastError());
    if (t->groups > OSH_FIT_GROUPS && step == OSH_REFINE_FIT_SCALES)
        OSH_TRY(osh_cuda_pull(cx, s->d, t, t->g));
done:
    return rc;
}

/* Adds the losses of the tile's rows, with the accepted codes and scales, to *sum. */
static osh_status refiner_add_losses(osh_ctx *cx, const refiner *s, double *sum)
{
    osh_status rc = OSH_OK;
    OSH_TRY(refiner_get(cx, s, s->figures, s->t.loss, (size_t)s->t.n * sizeof *s->figures));
    for (int64_t r = 0; r < s->t.n; r++) *sum += s->figures[r];
done:
    return rc;
}

/* Computes the loss that the tile would have if all w^ were 0, and adds it to *a->all. Overwrites
 * t.d, t.next and t.now. */
static osh_status refiner_add_all(osh_ctx *cx, refiner *s)
{
    osh_status rc = OSH_OK;
    osh_cu_tile *t = &s->t;
    dim3 grid(refine_blocks(t->I), (unsigned)t->n);
    OSH_CU_BY_STORED(t->stored, S, OSH_CU_BY_DTYPE(t->rule.dtype, T,
        OSH_LAUNCH((refine_errors<S, T>), grid, THREADS, 0, osh_cuda_stream(s->d), *t, true)));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(
        osh_cuda_rows(cx, s->d, {t->next, t->I, t->d, t->I, t->h, t->I, t->n, t->I, t->I, false}));
    OSH_TRY(refiner_sum_losses(cx, s, t->now, t->next, s->a->all));
done:
    return rc;
}

/* Does steps [`from`, `to`) on all tiles and sets a->loss[from] ... a->loss[to]. */
static osh_status refiner_run(osh_ctx *cx, refiner *s, int from, int to)
{
    osh_status rc = OSH_OK;
    const osh_gptq_refine_args *a = s->a;
    for (int k = from; k <= to; k++) a->loss[k] = 0;
    for (int64_t row = 0; row < a->O; row += s->rows) {
        OSH_TRY(refiner_open_tile(cx, s, row));
        OSH_TRY(refiner_add_losses(cx, s, &a->loss[from]));
        if (s->wants_all) OSH_TRY(refiner_add_all(cx, s));
        for (int k = from; k < to; k++) {
            OSH_TRY(refiner_run_step(cx, s, a->steps[k]));
            OSH_TRY(refiner_add_losses(cx, s, &a->loss[k + 1]));
        }
        if (to > from) OSH_TRY(refiner_close_tile(cx, s));
    }
    s->wants_all = false;
done:
    return rc;
}

/* Does step number k for a weight in which rows of several tiles share scales: sums A and b over
 * all tiles, and solves for the scales. Restores the old scales if the loss rises. */
static osh_status refiner_fit_all(osh_ctx *cx, refiner *s, int k)
{
    osh_status rc = OSH_OK;
    const osh_gptq_refine_args *a = s->a;
    double sums[2] = {0}, part[2], was = a->loss[k];
    float old = a->scale[0];
    for (int64_t row = 0; row < a->O; row += s->rows) {
        OSH_TRY(refiner_open_tile(cx, s, row));
        OSH_TRY(osh_cuda_fit_sums(cx, s->d, &s->t, 0, 1, s->t.n));
        for (int i = 0; i < 2; i++) {
            OSH_TRY(refiner_get(cx, s, &part[i], s->t.fit + i * s->t.n, sizeof *part));
            sums[i] += part[i];
        }
    }
    if (osh_fit_solve(&sums[0], &sums[1], 1, 1)) {
        float next = osh_scale_round(&a->rule, (float)(old + sums[1]));
        if (next > 0 && isfinite(next)) a->scale[0] = next;
    }
    OSH_TRY(refiner_run(cx, s, k + 1, k + 1));
    if (!(a->loss[k + 1] <= was)) a->scale[0] = old, a->loss[k + 1] = was;
    a->loss[k] = was;
done:
    return rc;
}

typedef struct block_rows { // rows [first, first + n) of H
    int64_t first, n, I, group;
} block_rows;

/* Only the elements in the diagonal blocks of H count. Returns the number of these elements in all
 * rows before row i. */
static __host__ __device__ inline int64_t block_row_at(const block_rows &r, int64_t i)
{
    int64_t first = i / r.group * r.group, rest = r.I - first;
    return first * r.group + (i - first) * (r.group < rest ? r.group : rest);
}

/* Copies some rows of the diagonal blocks of H [I, I]. There is one diagonal block per group. `to`
 * begins with row r.first. */
static __global__ void refine_blocks_of_rows(float *to, const float *h, block_rows r)
{
    int64_t i = r.first + blockIdx.x, first = i / r.group * r.group;
    float *row = to + block_row_at(r, i) - block_row_at(r, r.first);
    for (int64_t j = threadIdx.x; j < r.group && first + j < r.I; j += blockDim.x)
        row[j] = h[i * r.I + first + j];
}

/* Copies the diagonal blocks of H, one per group, to `to` [I, group] in host memory. Copies as many
 * rows at a time as fit into the scratch of the GPU. */
static osh_status refiner_get_blocks(osh_ctx *cx, const refiner *s, float *to)
{
    osh_status rc = OSH_OK;
    const osh_gptq_refine_args *a = s->a;
    float *room = static_cast<float *>(osh_cuda_scratch(s->d));
    int64_t width = osh_min64(a->group, a->I);
    int64_t most = OSH_GPU_WORKSPACE / (width * (int64_t)sizeof *room);
    for (int64_t i = 0; i < a->I; i += most) {
        block_rows r = {i, osh_min64(most, a->I - i), a->I, a->group};
        int64_t at = block_row_at(r, i), end = block_row_at(r, i + r.n);
        OSH_LAUNCH(refine_blocks_of_rows, (unsigned)r.n, THREADS, 0, osh_cuda_stream(s->d), room,
                   a->h, r);
        OSH_CUDA(cx, cudaGetLastError());
        OSH_TRY(refiner_get(cx, s, to + at, room, (size_t)(end - at) * sizeof *to));
    }
done:
    return rc;
}

static osh_status refiner_init(osh_ctx *cx, refiner *s)
{
    osh_status rc = OSH_OK;
    const osh_gptq_refine_args *a = s->a;
    osh_cu_tile *t = &s->t;
    size_t at[OSH_REFINE_N_ARRAYS],
        bytes = osh_refine_offsets(at, a->O, a->I, a->group, a->row_block);
    float values[256], *blocks = NULL; // own: the diagonal blocks of H
    float **const floats[] = {&t->q,     &t->d,    &t->g,          &t->next,
                              &t->scale, &t->zero, &t->kept_scale, &t->kept_zero};
    s->rows = osh_refine_rows(a->O, a->row_block);
    t->I = a->I, t->group = a->group, t->groups = osh_div_up(a->I, a->group),
    t->row_block = a->row_block;
    t->rule = a->rule, t->w = a->w->data, t->stored = a->w->dtype, t->h = a->h;
    OSH_NEW(cx, s->scales, 2 * s->rows * t->groups);
    OSH_NEW(cx, s->figures, s->rows);
    if (osh_rescales(a)) {
        OSH_NEW(cx, blocks, a->I * a->group);
        OSH_TRY(refiner_get_blocks(cx, s, blocks));
        OSH_TRY(osh_group_factors_init(cx, &s->f, a, blocks));
    }
    s->base = static_cast<char *>(osh_device_alloc(cx, s->d, bytes, OSH_LIFE_SHORT));
    if (!s->base) OSH_TRY(OSH_E_NOMEM);
    for (int i = OSH_REFINE_Q; i <= OSH_REFINE_KEPT_ZERO; i++)
        *floats[i] = reinterpret_cast<float *>(s->base + at[i]);
    t->codes = reinterpret_cast<int8_t *>(s->base + at[OSH_REFINE_CODES]);
    t->loss = reinterpret_cast<double *>(s->base + at[OSH_REFINE_LOSS]);
    t->now = reinterpret_cast<double *>(s->base + at[OSH_REFINE_NOW]);
    t->fit = reinterpret_cast<double *>(s->base + at[OSH_REFINE_FIT]);
    t->room = reinterpret_cast<float *>(s->base + at[OSH_REFINE_ROOM]);
    t->turned = reinterpret_cast<float *>(s->base + at[OSH_REFINE_TURNED]);
    t->err = reinterpret_cast<float *>(s->base + at[OSH_REFINE_ERR]);
    for (int i = 0; i < 256; i++) values[i] = osh_grid_value(&a->rule.grid, (int8_t)(uint8_t)i);
    OSH_TRY(refiner_put(cx, s, s->base + at[OSH_REFINE_VALUES], values, sizeof values));
    t->values = reinterpret_cast<float *>(s->base + at[OSH_REFINE_VALUES]);
    if (!a->dead) goto done;
    OSH_TRY(refiner_put(cx, s, s->base + at[OSH_REFINE_DEAD], a->dead, (size_t)a->I));
    t->dead = reinterpret_cast<bool *>(s->base + at[OSH_REFINE_DEAD]);
done:
    osh_free(cx, blocks);
    return rc;
}

osh_status osh_gptq_refine_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a)
{
    osh_status rc = OSH_OK;
    refiner s;
    bool all;
    memset(&s, 0, sizeof s);
    s.a = a, s.d = d;
    OSH_TRY(refiner_init(cx, &s));
    all = a->row_block >= a->O && a->O > s.rows;
    s.wants_all = a->all != NULL;
    if (a->all) *a->all = 0;
    OSH_TRY(refiner_run(cx, &s, 0, all ? 0 : a->n_steps));
    for (int k = 0; k < a->n_steps && all; k++) {
        if (a->steps[k] == OSH_REFINE_FIT_SCALES) OSH_TRY(refiner_fit_all(cx, &s, k));
        else OSH_TRY(refiner_run(cx, &s, k, k + 1));
    }
done:
    osh_group_factors_deinit(cx, &s.f);
    osh_free(cx, s.figures);
    osh_free(cx, s.scales);
    osh_device_free(d, s.base);
    return rc;
}
