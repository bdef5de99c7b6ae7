/* gptq_solve.cu - runs the GPTQ column loop on the device. For each block of columns it runs one
 * kernel and one matrix product.
 *
 * w [panels, I, P] f32: a tile of rows, transposed, columns in solving order; one thread per row
 *
 *           P rows ─►
 *   block | codes of the columns that are done
 *         | codes | WIDE | ..................       kernel: WIDE columns at a time in registers
 *   rest  | w                                       product: minus U[block, rest]^T err
 *
 * The kernel first adds the errors of the previous columns of the block, in the reference's order
 * and with its roundings (no fused multiply-add). Then it quantizes column after column.
 *
 * The product is F32, or TF32 on tensor cores with three times as many multiplications. TF32 has 11
 * significant bits, so an f32 number x is hi + lo with an error of at most 2^-22 |x|. The product
 * lo x lo is as small as this error and is left out. The product of two f32 matrices is then
 *
 *   minus [ U_hi | U_lo | U_hi ]^T [ err_hi ; err_hi ; err_lo ]      rest x 3 block x P
 *
 * Time of the product for each element of w, after a block of 128 columns:
 *
 *   F32    2 x 128 operations take 5.1 ps at 50 TFLOP/s
 *   TF32   6 x 128 operations take 2.2 ps at 350 TFLOP/s
 *   both   reading and writing the element takes 2.0 ps (8 bytes at 4 TB/s)
 *
 * For TF32 the kernel also writes 12 bytes for each of the 128 errors of a row, which takes 0.4 ns
 * per row. So TF32 saves time if more than about 130 columns remain. U is split into U_hi and U_lo
 * once for each block (16 bytes of traffic per element) and serves all rows.
 *
 * Only the product rounds differently from the loop of the reference (solver/gptq_solve.c). Each
 * row has one thread, because a quantization is a long chain of operations (two divisions, three
 * roundings): if several threads of a warp shared a row, all but one would wait during the chain.
 *
 * One call solves all weights that read one input, so a small weight needs no kernel launches of
 * its own. One call can also solve weights with different inputs, such as the down projections of
 * experts, if all inputs have the same width and equally many rows of weights. A panel is P rows of
 * one weight; the last panel of a weight can have fewer. A table gives the weight and U of each
 * panel. The number of panels in a tile depends on the free bytes of the arena. The codes of a row
 * do not depend on this number or on other rows, because P depends only on I, and the batched
 * matrix product over panels uses the algorithm that is chosen for one panel. */
#include "solver/cuda/gptq_tile.cuh"

#include <assert.h>

/* WIDE: number of columns of a row that are in registers. DEEP: number of rows of U in shared
 * memory.
 * TURNS: number of columns that each pass of a loop quantizes. On an H100, the kernel without the
 * loop has 145 KB of code and is slower. There, TURNS of 4 and of 8 take the same time. */
enum { WIDE = 32, DEEP = 128, TURNS = 8 };

__device__ static int solve_at_most(int64_t n, int limit) { return n < limit ? (int)n : limit; }

/* Returns the nearest f32 with 11 significant bits, ties away from zero. */
__device__ static float nearest_tf32(float x)
{
    return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u);
}

/* Loads WIDE columns of n rows of U to `to` [n, LD]; `u` is the first element. Columns from index
 * `wide` on become 0. All threads of a thread block call this function. */
template <int LD>
__device__ static void solve_load_u(float (*to)[LD], const float *u, int64_t I, int n, int wide)
{
#pragma unroll 8
    for (int k = threadIdx.x; k < n * WIDE; k += ROWS)
        to[k / WIDE][k % WIDE] = k % WIDE < wide ? u[k / WIDE * I + k % WIDE] : 0;
}

/* Views of one row: its weights, its errors, and its errors split into TF32 values. The views begin
 * at the first column of a strip, which has WIDE columns. Consecutive columns are P elements
 * apart. */
typedef struct row_columns {
    float *w, *err, *split;
    int64_t n, P;
} row_columns;

/* Numbers of a strip (WIDE columns), in the shared memory of a thread block. */
typedef struct strip_values {
    /* The diagonal block of U for the strip, in the first WIDE columns; the other columns are 0. */
    float corner[WIDE][WIDE + WIDE];
    float scale[WIDE][ROWS], zero[WIDE][ROWS];
} strip_values;

/* Views of the scales of a row. Consecutive scales are P elements apart.
 * zero: NULL if there are no zero points.
 * col: index of the scale of each column of a strip. */
typedef struct row_scales {
    const float *scale, *zero;
    const int32_t *col;
} row_scales;

/* Loads the weights of WIDE columns to registers, and their scales and zero points to shared
 * memory. Without this, each quantization would wait for memory: the compiler cannot move a load
 * before the stores of the previous column. */
__device__ static void solve_load_values(float *v, strip_values *x, const row_columns &r,
                                         const row_scales &s, int wide)
{
#pragma unroll
    for (int j = 0; j < WIDE; j++) {
        int64_t at = j < wide ? s.col[j] * r.P : 0;
        v[j] = j < wide ? r.w[j * r.P] : 0;
        x->scale[j][threadIdx.x] = j < wide ? s.scale[at] : 1;
        x->zero[j][threadIdx.x] = j < wide && s.zero ? s.zero[at] : 0;
    }
}

/* Quantizes `wide` columns of a row in order, and adds their losses to *loss. Each pass of the
 * outer loop quantizes v[0] to v[TURNS - 1]. It then moves the later columns to the front of v, so
 * all passes run the same code with constant indices of v. `grid` is passed by value, because
 * otherwise the compiler would load it again after each store. */
template <class T>
__device__ static void solve_columns(float *v, const strip_values *x, const row_columns &r,
                                     const osh_grid grid, int wide, double *loss)
{
    int64_t P = r.P;
#pragma unroll 1
    for (int j0 = 0; j0 < wide; j0 += TURNS) {
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            int j = j0 + i;
            if (j >= wide) break;
            const float *u = &x->corner[j][j0];
            float dq, q = quantize<T>(&dq, grid, v[i], x->scale[j][threadIdx.x],
                                      x->zero[j][threadIdx.x]);
            float e = __fdiv_rn(__fsub_rn(v[i], dq), u[i]);
            r.w[j * P] = (float)osh_cu_code(grid, q);
            r.err[j * P] = e;
            if (r.split) {
                float hi = nearest_tf32(e);
                r.split[j * P] = r.split[(r.n + j) * P] = hi;
                r.split[(2 * r.n + j) * P] = nearest_tf32(__fsub_rn(e, hi));
            }
            *loss += (double)e * e / 2;
#pragma unroll
            for (int k = i + 1; k < WIDE; k++) v[k] = __fsub_rn(v[k], __fmul_rn(e, u[k]));
        }
#pragma unroll
        for (int k = 0; k + TURNS < WIDE; k++) v[k] = v[k + TURNS];
    }
}

/* Solves one block of columns. Overwrites w with the codes, writes the errors to err, and adds the
 * losses to t.loss. */
template <class T> static __global__ void __launch_bounds__(ROWS) solve_block_kernel(tile t)
{
    __shared__ __align__(16) float strip[DEEP][WIDE];
    __shared__ __align__(16) strip_values x;
    const panel &p = t.panels[blockIdx.y];
    int64_t b = blockIdx.y, P = t.P, row = (int64_t)blockIdx.x * ROWS + threadIdx.x;
    // all threads of the block take the same branch
    if ((int64_t)blockIdx.x * ROWS >= p.n_rows) return;
    bool mine = row < p.n_rows; // false: the thread has no row and only helps to load U
    float *w = t.w + b * t.I * P + row, *err = t.err + b * t.block * P + row;
    float *split = t.split ? t.split + 3 * b * t.block * P + row : NULL;
    const float *scale = t.scale + b * t.n_cols * P + row,
                *zero = p.zero ? t.zero + b * t.n_cols * P + row : NULL;
    double sum = mine ? t.loss[b * P + row] : 0;
    const osh_grid grid = p.grid;

    for (int k = threadIdx.x; k < WIDE * WIDE; k += ROWS) x.corner[k / WIDE][WIDE + k % WIDE] = 0;
    for (int64_t j0 = 0; j0 < t.n; j0 += WIDE) {
        int wide = solve_at_most(t.n - j0, WIDE);
        float v[WIDE];
        row_columns r = {w + (t.first + j0) * P, err + j0 * P, split ? split + j0 * P : NULL, t.n,
                         P};
        solve_load_values(v, &x, r, {scale, zero, p.col + t.first + j0}, mine ? wide : 0);
        solve_load_u(x.corner, p.u + (t.first + j0) * t.I + t.first + j0, t.I, wide, wide);
        for (int64_t k0 = 0; k0 < j0; k0 += DEEP) {
            int deep = solve_at_most(j0 - k0, DEEP);
            if (k0) __syncthreads(); // after this barrier all threads have read `strip`
            solve_load_u(strip, p.u + (t.first + k0) * t.I + t.first + j0, t.I, deep, wide);
            __syncthreads();
#pragma unroll 8
            for (int k = 0; k < deep && mine; k++) {
                float e = err[(k0 + k) * P];
#pragma unroll
                for (int j = 0; j < WIDE; j++) v[j] = __fsub_rn(v[j], __fmul_rn(e, strip[k][j]));
            }
        }
        __syncthreads(); // after this barrier all elements of x.corner are stored
        if (mine) solve_columns<T>(v, &x, r, grid, wide, &sum);
        __syncthreads(); // after this barrier all threads have read x.corner and `strip`
    }
    if (mine) t.loss[b * P + row] = sum;
}

/* Returns the index of the first panel of input number k. Both are numbered within the tile. */
__host__ __device__ static int64_t tile_panels_before(const tile &t, int64_t k)
{
    return k ? k * t.run - t.skip : 0;
}

/* Sets `to` [inputs of the tile, 3 n, ld] to U_hi, U_lo and U_hi of the block U[block, rest], one
 * below the other. Columns after the last column of U become 0. */
static __global__ void solve_split_u(float *to, int64_t ld, tile t)
{
    int64_t c = (int64_t)blockIdx.x * ROWS + threadIdx.x, j = blockIdx.y, rest = t.first + t.n;
    const float *from = t.panels[tile_panels_before(t, blockIdx.z)].u + (t.first + j) * t.I + rest;
    if (c >= ld) return;
    float u = rest + c < t.I ? from[c] : 0, hi = nearest_tf32(u);
    to += (int64_t)blockIdx.z * 3 * t.n * ld;
    to[j * ld + c] = to[(2 * t.n + j) * ld + c] = hi;
    to[(t.n + j) * ld + c] = nearest_tf32(__fsub_rn(u, hi));
}

/* ---- host ---- */
typedef struct solver {
    const osh_gptq_solve_args *jobs;
    int n;
    osh_device *d;
    osh_gptq_group g;
    char *base;       // all arrays of the solve, one allocation in the GPU's arena; own
    size_t at[OSH_GPTQ_N_ARRAYS];
    panel *panels;    // own: [g.n_panels]
    int *job_of;      // own [g.n_panels]: index of the job of each panel
    int n_inputs;     // number of inputs whose lists of columns (`place`) are already on the device
    /* Results of one tile of n panels in host memory: losses [n, P], then squared sums [n, 2,
     * P]. */
    double *figures;  // own
} solver;

template <class X> static X *solver_array(const solver *s, int which)
{
    return reinterpret_cast<X *>(s->base + s->at[which]);
}

static osh_status solver_put(osh_ctx *cx, const solver *s, void *to, const void *from,
                             size_t n_bytes)
{
    return s->d->type->put(cx, s->d, to, from, n_bytes);
}

/* Copies the position of each column in solving order to the device, for the input of job k. Does
 * nothing if the previous job has the same input, because both jobs use one list of positions. */
static osh_status solver_put_place(osh_ctx *cx, solver *s, int k)
{
    osh_status rc = OSH_OK;
    const osh_gptq_solve_args *a = &s->jobs[k];
    int32_t *place = NULL; // own
    if (k && a->u == s->jobs[k - 1].u) return OSH_OK;
    assert(s->n_inputs < s->g.n_inputs);
    OSH_NEW(cx, place, a->I);
    for (int64_t i = 0; i < a->I; i++) {
        int64_t c = a->perm ? a->perm[i] : i;
        place[c] = (int32_t)(a->dead && a->dead[c] ? ~i : i);
    }
    OSH_TRY(solver_put(cx, s, solver_array<int32_t>(s, OSH_GPTQ_PLACE) + s->n_inputs++ * a->I,
                       place, (size_t)a->I * sizeof *place));
done:
    osh_free(cx, place);
    return rc;
}

/* Copies the scales, zero points and lists of columns of job k to the device, and appends the
 * panels of the job. Adds the number of the job's scales to *scales, and the number of its panels
 * to *n_panels. */
static osh_status solver_put_job(osh_ctx *cx, solver *s, int k, int64_t *scales, int64_t *n_panels)
{
    osh_status rc = OSH_OK;
    const osh_gptq_solve_args *a = &s->jobs[k];
    int64_t P = osh_gptq_panel_rows(a->I), n = osh_div_up(a->O, a->row_block) * a->n_scale_cols;
    float *scale = solver_array<float>(s, OSH_GPTQ_SCALE_GIVEN) + *scales;
    float *zero = a->zero ? solver_array<float>(s, OSH_GPTQ_ZERO_GIVEN) + *scales : NULL;
    int32_t *col = solver_array<int32_t>(s, OSH_GPTQ_COL) + k * a->I,
            *place = solver_array<int32_t>(s, OSH_GPTQ_PLACE);
    int64_t n_words = a->packed ? (a->I * a->bits + 31) / 32 : 0;
    osh_grid grid = osh_grid_of(a->bits, a->fp8);

    OSH_TRY(solver_put_place(cx, s, k));
    place += (s->n_inputs - 1) * a->I;
    OSH_TRY(solver_put(cx, s, col, a->col_scale, (size_t)a->I * sizeof *col));
    OSH_TRY(solver_put(cx, s, scale, a->scale, (size_t)n * sizeof *scale));
    if (zero) OSH_TRY(solver_put(cx, s, zero, a->zero, (size_t)n * sizeof *zero));
    for (int64_t row = 0; row < a->O; row += P, (*n_panels)++) {
        const panel *before = *n_panels ? &s->panels[*n_panels - 1] : NULL;
        const void *target = a->target ? osh_elem(a->target, row * a->I) : NULL;
        s->panels[*n_panels] = {osh_elem(a->w, row * a->I),
                                static_cast<const float *>(target),
                                a->w_out ? osh_elem(a->w_out, row * a->I) : NULL,
                                scale,
                                zero,
                                col,
                                place,
                                a->u,
                                row,
                                osh_min64(P, a->O - row),
                                a->row_block,
                                a->n_scale_cols,
                                n_words,
                                before ? before->words + before->n_rows * before->n_words : 0,
                                grid};
        s->job_of[*n_panels] = k;
    }
    *scales += a->O * a->n_scale_cols;
done:
    return rc;
}

/* Copies the table of panels to the device. Also copies the scales, the zero points and the lists
 * of columns of all jobs. */
static osh_status solver_put_given(osh_ctx *cx, solver *s)
{
    osh_status rc = OSH_OK;
    int64_t scales = 0, n_panels = 0;

    for (int k = 0; k < s->n; k++) OSH_TRY(solver_put_job(cx, s, k, &scales, &n_panels));
    OSH_TRY(solver_put(cx, s, solver_array<panel>(s, OSH_GPTQ_PANELS), s->panels,
                       (size_t)n_panels * sizeof(panel)));
done:
    return rc;
}

/* Loads the weights and scales of the n panels of a tile into the arrays of the tile. Sets the
 * losses to 0. */
static osh_status solver_open_tile(osh_ctx *cx, const solver *s, const tile &t, int64_t n)
{
    osh_status rc = OSH_OK;
    dim3 squares((unsigned)(t.P / TURN), (unsigned)osh_div_up(t.I, TURN), (unsigned)n);
    dim3 scales((unsigned)(t.P / ROWS), (unsigned)t.n_cols, (unsigned)n);

    OSH_CU_BY_STORED(s->jobs->w->dtype, S,
        OSH_LAUNCH(load_tile<S>, squares, dim3(TURN, STEP), 0, osh_cuda_stream(s->d), t));
    OSH_LAUNCH(spread_scales, scales, ROWS, 0, osh_cuda_stream(s->d), t);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Some panels of a tile. Panel k of these n panels has the index first + k * step in the tile, and
 * uses the matrix U at u + k * u_stride. */
typedef struct panels {
    int64_t first, n, step;
    const float *u;
    int64_t u_ld, u_stride;
} panels;

/* Multiplies the errors of a block of columns by U, and adds the product to the later columns of
 * the panels x. */
static osh_status solver_multiply(osh_ctx *cx, const solver *s, const tile &t, const panels &x)
{
    int64_t rest = t.first + t.n, width = t.I - rest, deep = t.split ? 3 * t.n : t.n;
    int64_t err = t.block * t.P * (t.split ? 3 : 1);
    osh_cuda_mat c = {t.w + (x.first * t.I + rest) * t.P, t.P, x.step * t.I * t.P, OSH_F32, false};
    osh_cuda_mat ut = {const_cast<float *>(x.u), x.u_ld, x.u_stride, OSH_F32, true};
    osh_cuda_mat e = {(t.split ? t.split : t.err) + x.first * err, t.P, x.step * err, OSH_F32,
                      false};
    return osh_cuda_gemm(cx, s->d, {&c, &ut, &e, width, t.P, deep, x.n, -1, 1, 1, t.split != NULL});
}

/* Adds the errors of a block of columns to the later columns, in all n panels of the tile.
 * Normally, a batched product computes all panels of one input. If the tile has more inputs than
 * panels per input, a batched product computes one panel of each input instead. This needs fewer
 * batched products. */
static osh_status solver_run_product(osh_ctx *cx, const solver *s, const tile &t, int64_t n)
{
    osh_status rc = OSH_OK;
    int64_t rest = t.first + t.n, n_inputs = (t.skip + n - 1) / t.run + 1,
            ld = osh_gptq_split_ld(t.I - rest);
    float *split = solver_array<float>(s, OSH_GPTQ_SPLIT_U);
    bool across = t.split && !t.skip && n == n_inputs * t.run && n_inputs > t.run;

    if (t.split) {
        dim3 grid((unsigned)osh_div_up(ld, ROWS), (unsigned)t.n, (unsigned)n_inputs);
        OSH_LAUNCH(solve_split_u, grid, ROWS, 0, osh_cuda_stream(s->d), split, ld, t);
        OSH_CUDA(cx, cudaGetLastError());
    }
    for (int64_t k = 0; across && k < t.run; k++)
        OSH_TRY(solver_multiply(cx, s, t, {k, n_inputs, t.run, split, ld, 3 * t.n * ld}));
    for (int64_t k = 0; !across && k < n_inputs; k++) {
        int64_t first = tile_panels_before(t, k), end = osh_min64(tile_panels_before(t, k + 1), n);
        const float *u = s->panels[t.panels - solver_array<panel>(s, OSH_GPTQ_PANELS) + first].u +
                         t.first * t.I + rest;
        if (t.split)
            OSH_TRY(solver_multiply(cx, s, t,
                                    {first, end - first, 1, split + k * 3 * t.n * ld, ld, 0}));
        else OSH_TRY(solver_multiply(cx, s, t, {first, end - first, 1, u, t.I, 0}));
    }
done:
    return rc;
}

/* Solves one block of columns and updates the later columns. */
static osh_status solver_run_block(osh_ctx *cx, const solver *s, tile t, int64_t n)
{
    osh_status rc = OSH_OK;
    bool tf32 = osh_cuda_tf32_pays(s->d) && osh_gptq_splits(t.first, t.n, t.I);
    t.split = tf32 ? solver_array<float>(s, OSH_GPTQ_SPLIT) : NULL;
    OSH_CU_BY_DTYPE(s->jobs->dq_dtype, T,
                    OSH_LAUNCH(solve_block_kernel<T>, dim3((unsigned)(t.P / ROWS), (unsigned)n),
                               ROWS, 0, osh_cuda_stream(s->d), t));
    OSH_CUDA(cx, cudaGetLastError());
    if (t.first + t.n < t.I) OSH_TRY(solver_run_product(cx, s, t, n));
done:
    return rc;
}

/* Copies the codes, losses and squared sums (tile.squares) of a tile to host memory. `first`: index
 * of the tile's first panel among the panels of all tiles. */
static osh_status solver_get_tile(osh_ctx *cx, const solver *s, const tile &t, int64_t first,
                                  int64_t n)
{
    osh_status rc = OSH_OK;
    double *loss = s->figures, *squares = loss + n * t.P;
    // After tile_pack_rows, t.w contains the packed rows of all panels, one after the other.
    const uint32_t *words = reinterpret_cast<const uint32_t *>(t.w);
    OSH_TRY(s->d->type->get(cx, s->d, loss, t.loss, (size_t)(n * t.P) * sizeof *loss));
    OSH_TRY(s->d->type->get(cx, s->d, squares, t.squares, (size_t)(2 * n * t.P) * sizeof *squares));
    // number of consecutive panels of the tile that belong to the same weight
    for (int64_t b = 0, run; b < n; b += run) {
        const panel *p = &s->panels[first + b];
        const osh_gptq_solve_args *a = &s->jobs[s->job_of[first + b]];
        int64_t rows = 0;
        for (run = 0; b + run < n && s->job_of[first + b + run] == s->job_of[first + b]; run++) {
            int64_t k = b + run;
            for (int64_t r = 0; r < p[run].n_rows; r++) {
                a->loss[p[run].row + r] = loss[k * t.P + r];
                if (a->squares) a->squares[0] += squares[2 * k * t.P + r];
                if (a->squares) a->squares[1] += squares[(2 * k + 1) * t.P + r];
            }
            rows += p[run].n_rows;
        }
        size_t row_bytes = a->packed ? (size_t)p->n_words * sizeof(uint32_t) : (size_t)t.I;
        const void *from = t.codes + b * t.P * t.I;
        if (a->packed) from = words + p->words - s->panels[first].words;
        OSH_TRY(s->d->type->get(cx, s->d, a->codes + (size_t)p->row * row_bytes, from,
                                (size_t)rows * row_bytes));
    }
done:
    return rc;
}

static bool solver_any_packed(const solver *s)
{
    for (int k = 0; k < s->n; k++)
        if (s->jobs[k].packed) return true;
    return false;
}

/* Computes the codes, dequantized weights, squared sums (tile.squares) and packed rows of a tile on
 * the device. */
static osh_status solver_close_tile(osh_ctx *cx, const solver *s, const tile &t, int64_t n)
{
    osh_status rc = OSH_OK;
    dim3 squares((unsigned)(t.P / TURN), (unsigned)osh_div_up(t.I, TURN), (unsigned)n);
    // A row has at most I / 4 words, because codes have at most 8 bits and a word has 32.
    dim3 words((unsigned)osh_div_up(osh_div_up(t.I, 4), ROWS), (unsigned)t.P, (unsigned)n);
    cudaStream_t stream = osh_cuda_stream(s->d);

    OSH_LAUNCH(store_codes, squares, dim3(TURN, STEP), 0, stream, t);
    OSH_CU_BY_STORED(
        s->jobs->w->dtype, S,
        OSH_CU_BY_DTYPE(s->jobs->dq_dtype, T,
                        OSH_LAUNCH((tile_decode_rows<S, T>), dim3((unsigned)t.P, (unsigned)n), ROWS,
                                   0, stream, t)));
    OSH_CUDA(cx, cudaGetLastError());
    if (solver_any_packed(s)) {
        OSH_LAUNCH(tile_pack_rows, words, ROWS, 0, stream, t);
        OSH_CUDA(cx, cudaGetLastError());
    }
done:
    return rc;
}

/* Computes a->dq from the codes in host memory, with the same roundings as the kernel. */
static void solver_decode(const osh_gptq_solve_args *a)
{
    osh_grid grid = osh_grid_of(a->bits, a->fp8);
    for (int64_t row = 0; row < a->O; row++)
        for (int64_t i = 0; i < a->I; i++) {
            int8_t code = a->codes[row * a->I + (a->perm ? a->perm[i] : i)];
            int64_t at = row / a->row_block * a->n_scale_cols + a->col_scale[i];
            float q = osh_round_to(osh_grid_value(&grid, code) - (a->zero ? a->zero[at] : 0),
                                   a->dq_dtype);
            a->dq[row * a->I + i] = osh_round_to(q * a->scale[at], a->dq_dtype);
        }
}

static osh_status solver_init(osh_ctx *cx, solver *s, int64_t *n_panels)
{
    osh_status rc = OSH_OK;
    const osh_gptq_solve_args *a = s->jobs;
    s->g.I = a->I, s->g.block_size = a->block_size;
    for (int k = 0; k < s->n; k++) {
        osh_gptq_group_add(&s->g, a[k].O, a[k].n_scale_cols);
        if (k && a[k].u != a[k - 1].u) s->g.n_inputs++;
    }
    assert(s->g.n_panels % s->g.n_inputs == 0);
    *n_panels = osh_gptq_tile_panels(&s->g, osh_arena_room(s->d->arena));
    size_t bytes = osh_gptq_offsets(s->at, &s->g, *n_panels);
    s->base = static_cast<char *>(osh_device_alloc(cx, s->d, bytes, OSH_LIFE_SHORT));
    if (!s->base) OSH_TRY(OSH_E_NOMEM);
    OSH_NEW(cx, s->panels, s->g.n_panels);
    OSH_NEW(cx, s->job_of, s->g.n_panels);
    OSH_NEW(cx, s->figures, 3 * *n_panels * osh_gptq_panel_rows(a->I));
    for (int k = 0; k < s->n; k++)
        if (a[k].squares) a[k].squares[0] = a[k].squares[1] = 0;
    OSH_TRY(solver_put_given(cx, s));
done:
    return rc;
}

static tile solver_tile(const solver *s)
{
    const osh_gptq_solve_args *a = s->jobs;
    return {solver_array<float>(s, OSH_GPTQ_W),
            solver_array<float>(s, OSH_GPTQ_ERR),
            NULL,
            solver_array<float>(s, OSH_GPTQ_SCALE),
            solver_array<float>(s, OSH_GPTQ_ZERO),
            solver_array<double>(s, OSH_GPTQ_LOSS),
            solver_array<double>(s, OSH_GPTQ_SQUARES),
            solver_array<int8_t>(s, OSH_GPTQ_CODES),
            solver_array<panel>(s, OSH_GPTQ_PANELS),
            a->I,
            osh_gptq_panel_rows(a->I),
            osh_min64(a->block_size, a->I),
            s->g.n_scale_cols,
            s->g.n_panels / s->g.n_inputs,
            0,
            0,
            0};
}

osh_status osh_gptq_solve_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n)
{
    osh_status rc = OSH_OK;
    solver s = {jobs, n, d, {}, NULL, {}, NULL, NULL, 0, NULL};
    int64_t n_panels = 0;
    tile t;

    OSH_TRY(solver_init(cx, &s, &n_panels));
    t = solver_tile(&s);
    for (int64_t first = 0; first < s.g.n_panels; first += n_panels, t.panels += n_panels) {
        int64_t here = osh_min64(n_panels, s.g.n_panels - first);
        t.skip = first % t.run;
        OSH_TRY(solver_open_tile(cx, &s, t, here));
        for (t.first = 0; t.first < t.I; t.first += t.n) {
            t.n = osh_min64(t.block, t.I - t.first);
            OSH_TRY(solver_run_block(cx, &s, t, here));
        }
        OSH_TRY(solver_close_tile(cx, &s, t, here));
        OSH_TRY(solver_get_tile(cx, &s, t, first, here));
    }
    for (int k = 0; k < n; k++)
        if (jobs[k].dq) solver_decode(&jobs[k]);
done:
    osh_free(cx, s.figures);
    osh_free(cx, s.job_of);
    osh_free(cx, s.panels);
    osh_device_free(d, s.base);
    return rc;
}
