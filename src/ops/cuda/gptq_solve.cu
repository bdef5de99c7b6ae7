/* gptq_solve.cu - the GPTQ column loop on the device: one kernel and one product for each block of columns.
 *
 *   w [I, rows] f32: a tile of rows of the weight, turned, in solving order; a thread is a row
 *
 *           rows ──►
 *   block | codes of the columns that are done      the kernel: WIDE columns at a time in registers. What the columns
 *         | codes | WIDE | ..................       before them in the block leave to them is gathered first, in the
 *   rest  | w: minus U[block, rest]^T err           reference's order and with its roundings (no fused multiply-add),
 *         |                                         then column after column is quantized.
 *                                                   the product: f32, no tensor cores' narrow formats
 *
 * Only the product rounds otherwise than the reference's loop does. A thread a row keeps all lanes at work in
 * the long chain of a quantization (two divisions, three roundings); lanes that share a row would wait for one of them.
 * Rows are tiled by the weight's shape alone. */
#include "ops/cuda/kernel.cuh"

#include <math.h>

enum { WIDE = 32, DEEP = 128, ROWS = 64 }; // columns in registers; rows of U in shared memory; threads of a block
enum { TURN = 32, STEP = 8 };              // a tile that is turned, by TURN x STEP threads
enum { TILE_ELEMENTS = 1 << 26, TILE_ROWS = 1024 }; // elements of w at most, where that leaves so many rows

typedef struct rule { // how a weight becomes a code
    float low, high;
    bool fp8;
} rule;

typedef struct span { // of w and of the other arrays with `ld` rows
    int64_t I, ld, n_rows;
    int64_t first, n; // the block's columns
} span;

__device__ static int at_most(int64_t n, int limit) { return n < limit ? (int)n : limit; }

/* The nearest E4M3 value, |x| <= 448: 4 significant bits, multiples of 2^-9 below 2^-6. */
__device__ static float nearest_fp8(float x)
{
    uint32_t u = __float_as_uint(x), sign = u & 0x80000000u, a = u & 0x7fffffffu;
    float r = __uint_as_float((a + 0x7ffffu + ((a >> 20) & 1)) & 0xfff00000u);
    if (a < 0x3c800000u) r = __fsub_rn(__fadd_rn(__uint_as_float(a), 16384.0f), 16384.0f);
    return __uint_as_float(__float_as_uint(r) | sign);
}

/* The byte of an E4M3 value. */
__device__ static int byte_of_fp8(float x)
{
    uint32_t u = __float_as_uint(x), a = u & 0x7fffffffu;
    int low = a < 0x3c800000u ? (int)(__uint_as_float(a) * 512.0f) : (int)((a >> 20) - ((127u - 7u) << 3));
    return (int)(u >> 31) << 7 | low;
}

__device__ static float value_of_fp8(int byte)
{
    uint32_t low = (uint32_t)byte & 0x7f, sign = (uint32_t)(byte & 0x80) << 24;
    float small = (float)low / 512.0f; // below 2^-6: a multiple of 2^-9
    return __uint_as_float(sign | (low < 8 ? __float_as_uint(small) : (low << 20) + ((127u - 7u) << 23)));
}

/* Rounded to T at either step. */
template <class T> __device__ static float dequantize(float q, float s, float zero)
{
    return osh_cu_round<T>(__fmul_rn(osh_cu_round<T>(__fsub_rn(q, zero)), s));
}

/* The quantized value before scaling; *dq: its value. */
template <class T> __device__ static float quantize(float *dq, const rule &r, float w, float s, float zero)
{
    float q = __fdiv_rn(w, s);
    if (r.fp8) q = nearest_fp8(fminf(fmaxf(q, r.low), r.high));
    else q = rintf(fminf(fmaxf(__fadd_rn(q, zero), r.low), r.high));
    *dq = dequantize<T>(q, s, zero);
    return q;
}

/* to [n, WIDE] = U from row i, column j on; zero beyond `wide` columns. All threads of the block. */
__device__ static void load_u(float (*to)[WIDE], const float *u, int64_t I, int64_t i, int64_t j, int n, int wide)
{
    for (int k = threadIdx.x; k < n * WIDE; k += ROWS)
        to[k / WIDE][k % WIDE] = k % WIDE < wide ? u[(i + k / WIDE) * I + j + k % WIDE] : 0;
}

/* Columns `at` .. of the block in v, one row of the weight: quantized in turn. */
template <class T>
__device__ static void solve_columns(float *v, float *w, float *err, const float (*u)[WIDE], const float *scale,
                                     const float *zero, const int32_t *col, const span &p, const rule &r, int wide,
                                     double *loss)
{
#pragma unroll
    for (int j = 0; j < WIDE; j++) {
        if (j < wide) {
            float dq, s = scale[col[j] * p.ld], z = zero ? zero[col[j] * p.ld] : 0;
            float q = quantize<T>(&dq, r, v[j], s, z), e = __fdiv_rn(__fsub_rn(v[j], dq), u[j][j]);
            w[j * p.ld] = r.fp8 ? (float)byte_of_fp8(q) : q;
            err[j * p.ld] = e;
            *loss += (double)e * e / 2;
#pragma unroll
            for (int k = j + 1; k < WIDE; k++) v[k] = __fsub_rn(v[k], __fmul_rn(e, u[j][k]));
        }
    }
}

/* One block of columns: w becomes codes, err [block, ld] the errors, loss [n_rows] grows. */
template <class T>
static __global__ void __launch_bounds__(ROWS)
solve_block(float *w, float *err, double *loss, const float *__restrict__ u, const float *__restrict__ scale,
            const float *__restrict__ zero, const int32_t *__restrict__ col, span p, rule r)
{
    __shared__ __align__(16) float panel[DEEP][WIDE], corner[WIDE][WIDE];
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x;
    bool mine = row < p.n_rows; // the others help to load
    double sum = mine ? loss[row] : 0;

    for (int64_t j0 = 0; j0 < p.n; j0 += WIDE) {
        int wide = at_most(p.n - j0, WIDE);
        float v[WIDE];
#pragma unroll
        for (int j = 0; j < WIDE; j++) v[j] = mine && j < wide ? w[(p.first + j0 + j) * p.ld + row] : 0;
        load_u(corner, u, p.I, p.first + j0, p.first + j0, wide, wide);
        for (int64_t k0 = 0; k0 < j0; k0 += DEEP) {
            int deep = at_most(j0 - k0, DEEP);
            if (k0) __syncthreads(); // the panel was read
            load_u(panel, u, p.I, p.first + k0, p.first + j0, deep, wide);
            __syncthreads();
#pragma unroll 4
            for (int k = 0; k < deep && mine; k++) {
                float e = err[(k0 + k) * p.ld + row];
#pragma unroll
                for (int j = 0; j < WIDE; j++) v[j] = __fsub_rn(v[j], __fmul_rn(e, panel[k][j]));
            }
        }
        __syncthreads(); // the corner is there
        if (mine)
            solve_columns<T>(v, w + (p.first + j0) * p.ld + row, err + j0 * p.ld + row, corner, scale + row,
                             zero ? zero + row : NULL, col + p.first + j0, p, r, wide, &sum);
        __syncthreads(); // corner and panel were read
    }
    if (mine) loss[row] = sum;
}

/* w [I, ld] = rows of the weight in f32, turned; place[c]: where column c goes, ~place: and is zero there. */
template <class S> static __global__ void load_tile(float *w, const S *from, const int32_t *place, span p)
{
    __shared__ float tile[TURN][TURN + 1];
    int64_t row = (int64_t)blockIdx.x * TURN, c0 = (int64_t)blockIdx.y * TURN, tx = threadIdx.x;

    for (int64_t y = threadIdx.y; y < TURN; y += STEP)
        if (row + y < p.n_rows && c0 + tx < p.I) tile[y][tx] = osh_cu_load(from[(row + y) * p.I + c0 + tx]);
    __syncthreads();
    for (int64_t y = threadIdx.y; y < TURN; y += STEP) {
        if (row + tx >= p.n_rows || c0 + y >= p.I) continue;
        int64_t i = place[c0 + y];
        w[(i < 0 ? ~i : i) * p.ld + row + tx] = i < 0 ? 0 : tile[tx][y];
    }
}

/* codes [n_rows, I] in file order = w [I, ld], turned back. */
static __global__ void store_codes(int8_t *codes, const float *w, const int32_t *place, span p)
{
    __shared__ float tile[TURN][TURN + 1];
    int64_t row = (int64_t)blockIdx.x * TURN, c0 = (int64_t)blockIdx.y * TURN, tx = threadIdx.x;

    for (int64_t y = threadIdx.y; y < TURN; y += STEP) {
        if (row + tx >= p.n_rows || c0 + y >= p.I) continue;
        int64_t i = place[c0 + y];
        tile[y][tx] = w[(i < 0 ? ~i : i) * p.ld + row + tx];
    }
    __syncthreads();
    for (int64_t y = threadIdx.y; y < TURN; y += STEP)
        if (row + y < p.n_rows && c0 + tx < p.I) codes[(row + y) * p.I + c0 + tx] = (int8_t)(int)tile[tx][y];
}

/* to [n_cols, ld] = the scales (zero points) [.., n_cols] of rows [row, row + n_rows), each row with its own. */
static __global__ void spread(float *to, const float *from, int64_t row, int64_t row_block, int64_t n_cols, span p)
{
    int64_t r = (int64_t)blockIdx.x * ROWS + threadIdx.x, c = blockIdx.y;
    if (r < p.n_rows) to[c * p.ld + r] = from[(row + r) / row_block * n_cols + c];
}

typedef struct given { // scales, zero points (or NULL) and column lists of the whole weight
    const float *scale, *zero;
    const int32_t *place, *col;
    int64_t row, row_block, n_cols; // first row of the tile; rows that share a scale; scales of a row
    bool fp8;
} given;

/* out [n_rows, I] = the weight that the codes stand for; squares [2, ld]: |w - out|^2 and |w|^2 of each row. A block
 * has a row; out may be w, or NULL. */
template <class S, class T>
static __global__ void decode_rows(S *out, double *squares, const S *w, const int8_t *codes, given g, span p)
{
    __shared__ double part[2][ROWS];
    int64_t row = blockIdx.x, scales = (g.row + row) / g.row_block * g.n_cols;
    double err = 0, all = 0;

    for (int64_t c = threadIdx.x; c < p.I; c += ROWS) {
        int64_t i = g.place[c], at = scales + g.col[i < 0 ? ~i : i];
        float q = g.fp8 ? value_of_fp8(codes[row * p.I + c] & 0xff) : (float)codes[row * p.I + c];
        float was = osh_cu_load(w[row * p.I + c]);
        S kept;
        osh_cu_store(&kept, dequantize<T>(q, g.scale[at], g.zero ? g.zero[at] : 0));
        double d = (double)was - osh_cu_load(kept);
        err += d * d, all += (double)was * was;
        if (out) out[row * p.I + c] = kept;
    }
    part[0][threadIdx.x] = err, part[1][threadIdx.x] = all;
    __syncthreads();
    if (threadIdx.x < 2) {
        double sum = 0;
        for (int k = 0; k < ROWS; k++) sum += part[threadIdx.x][k];
        squares[threadIdx.x * p.ld + row] = sum;
    }
}

/* ---- host ---- */
enum { W, ERR, SCALE, ZERO, LOSS, SQUARES, CODES, SCALE_GIVEN, ZERO_GIVEN, PLACE, COL, N_ARRAYS };

static int64_t tile_rows(int64_t O, int64_t I)
{
    int64_t rows = TILE_ELEMENTS / I;
    if (rows < TILE_ROWS) rows = TILE_ROWS;
    return osh_min64(O, rows / ROWS * ROWS);
}
static int64_t padded(int64_t rows) { return osh_div_up(rows, TURN) * TURN; }

static void array_bytes(size_t bytes[N_ARRAYS], int64_t O, int64_t I, int64_t n_cols, int64_t block_size)
{
    int64_t rows = tile_rows(O, I), ld = padded(rows);
    bytes[W] = (size_t)(I * ld) * sizeof(float);
    bytes[ERR] = (size_t)(osh_min64(block_size, I) * ld) * sizeof(float);
    bytes[SCALE] = bytes[ZERO] = (size_t)(n_cols * ld) * sizeof(float);
    bytes[LOSS] = (size_t)rows * sizeof(double);
    bytes[SQUARES] = (size_t)(2 * ld) * sizeof(double);
    bytes[CODES] = (size_t)(rows * I);
    bytes[SCALE_GIVEN] = bytes[ZERO_GIVEN] = (size_t)(O * n_cols) * sizeof(float);
    bytes[PLACE] = bytes[COL] = (size_t)I * sizeof(int32_t);
}

typedef struct solver {
    const osh_gptq_solve_args *a;
    osh_device *d;
    void *at[N_ARRAYS]; // own
    rule r;
} solver;

static float *floats(const solver *s, int which) { return static_cast<float *>(s->at[which]); }
static int32_t *ints(const solver *s, int which) { return static_cast<int32_t *>(s->at[which]); }

/* Scales, zero points and column lists of the whole weight. */
static osh_status put_given(osh_ctx *cx, solver *s)
{
    osh_status rc = OSH_OK;
    const osh_gptq_solve_args *a = s->a;
    const osh_device_type *t = s->d->type;
    size_t n_scales = (size_t)(osh_div_up(a->O, a->row_block) * a->n_scale_cols);
    int32_t *place = static_cast<int32_t *>(osh_alloc(cx, (size_t)a->I * sizeof *place)); // own

    if (!place) OSH_TRY(OSH_E_NOMEM);
    for (int64_t i = 0; i < a->I; i++) {
        int64_t c = a->perm ? a->perm[i] : i;
        place[c] = (int32_t)(a->dead && a->dead[c] ? ~i : i);
    }
    OSH_TRY(t->put(cx, s->d, s->at[PLACE], place, (size_t)a->I * sizeof *place));
    OSH_TRY(t->put(cx, s->d, s->at[COL], a->col_scale, (size_t)a->I * sizeof *a->col_scale));
    OSH_TRY(t->put(cx, s->d, s->at[SCALE_GIVEN], a->scale, n_scales * sizeof *a->scale));
    if (a->zero) OSH_TRY(t->put(cx, s->d, s->at[ZERO_GIVEN], a->zero, n_scales * sizeof *a->zero));
done:
    osh_free(cx, place);
    return rc;
}

static osh_status open_tile(osh_ctx *cx, const solver *s, int64_t row, span p)
{
    osh_status rc = OSH_OK;
    const osh_gptq_solve_args *a = s->a;
    cudaStream_t stream = osh_cuda_stream(s->d);
    dim3 tiles((unsigned)osh_div_up(p.n_rows, TURN), (unsigned)osh_div_up(p.I, TURN));
    dim3 scales((unsigned)osh_div_up(p.n_rows, ROWS), (unsigned)a->n_scale_cols);

    OSH_CU_BY_STORED(a->w->dtype, S,
        OSH_LAUNCH(load_tile<S>, tiles, dim3(TURN, STEP), 0, stream, floats(s, W),
                   static_cast<const S *>(osh_elem(a->w, row * a->I)), ints(s, PLACE), p));
    OSH_LAUNCH(spread, scales, ROWS, 0, stream, floats(s, SCALE), floats(s, SCALE_GIVEN), row, a->row_block,
               a->n_scale_cols, p);
    if (a->zero)
        OSH_LAUNCH(spread, scales, ROWS, 0, stream, floats(s, ZERO), floats(s, ZERO_GIVEN), row, a->row_block,
                   a->n_scale_cols, p);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(s->d->type->fill(cx, s->d, s->at[LOSS], 0, (size_t)p.n_rows * sizeof(double)));
done:
    return rc;
}

/* One block of columns, and what it leaves to the columns behind it. */
static osh_status run_block(osh_ctx *cx, const solver *s, span p)
{
    osh_status rc = OSH_OK;
    const osh_gptq_solve_args *a = s->a;
    float *w = floats(s, W), *u = const_cast<float *>(a->u);
    int64_t rest = p.first + p.n;
    osh_cuda_mat c = {w + rest * p.ld, p.ld, 0, OSH_F32, false};
    osh_cuda_mat ut = {u + p.first * p.I + rest, p.I, 0, OSH_F32, true};
    osh_cuda_mat e = {s->at[ERR], p.ld, 0, OSH_F32, false};

    OSH_CU_BY_DTYPE(a->dq_dtype, T,
        OSH_LAUNCH(solve_block<T>, (unsigned)osh_div_up(p.n_rows, ROWS), ROWS, 0, osh_cuda_stream(s->d), w,
                   floats(s, ERR), static_cast<double *>(s->at[LOSS]), u, floats(s, SCALE),
                   a->zero ? floats(s, ZERO) : NULL, ints(s, COL), p, s->r));
    OSH_CUDA(cx, cudaGetLastError());
    if (rest < p.I) OSH_TRY(osh_cuda_gemm(cx, s->d, &c, &ut, &e, p.I - rest, p.n_rows, p.n, 1, -1, 1));
done:
    return rc;
}

static osh_status close_tile(osh_ctx *cx, const solver *s, int64_t row, span p)
{
    osh_status rc = OSH_OK;
    const osh_gptq_solve_args *a = s->a;
    dim3 tiles((unsigned)osh_div_up(p.n_rows, TURN), (unsigned)osh_div_up(p.I, TURN));

    OSH_LAUNCH(store_codes, tiles, dim3(TURN, STEP), 0, osh_cuda_stream(s->d), static_cast<int8_t *>(s->at[CODES]),
               floats(s, W), ints(s, PLACE), p);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(s->d->type->get(cx, s->d, a->codes + row * p.I, s->at[CODES], (size_t)(p.n_rows * p.I)));
    OSH_TRY(s->d->type->get(cx, s->d, a->loss + row, s->at[LOSS], (size_t)p.n_rows * sizeof *a->loss));
done:
    return rc;
}

/* The tile's rows of w_out, from its codes; squares grow. rows: room for [2, ld]. */
static osh_status decode_tile(osh_ctx *cx, const solver *s, int64_t row, span p, double *rows)
{
    osh_status rc = OSH_OK;
    const osh_gptq_solve_args *a = s->a;
    given g = {floats(s, SCALE_GIVEN), a->zero ? floats(s, ZERO_GIVEN) : NULL, ints(s, PLACE), ints(s, COL), row,
               a->row_block, a->n_scale_cols, a->fp8};
    double *squares = static_cast<double *>(s->at[SQUARES]);
    void *to = a->w_out ? osh_elem(a->w_out, row * p.I) : NULL, *from = osh_elem(a->w, row * p.I);

    OSH_CU_BY_STORED(a->w->dtype, S, OSH_CU_BY_DTYPE(a->dq_dtype, T,
        OSH_LAUNCH((decode_rows<S, T>), (unsigned)p.n_rows, ROWS, 0, osh_cuda_stream(s->d), static_cast<S *>(to),
                   squares, static_cast<const S *>(from), static_cast<const int8_t *>(s->at[CODES]), g, p)));
    OSH_CUDA(cx, cudaGetLastError());
    if (!a->squares) goto done;
    OSH_TRY(s->d->type->get(cx, s->d, rows, squares, (size_t)(2 * p.ld) * sizeof *rows));
    for (int64_t r = 0; r < p.n_rows; r++) a->squares[0] += rows[r], a->squares[1] += rows[p.ld + r];
done:
    return rc;
}

/* The codes' values, with the roundings of the kernel. */
static void decode(const osh_gptq_solve_args *a)
{
    for (int64_t row = 0; row < a->O; row++)
        for (int64_t i = 0; i < a->I; i++) {
            int8_t code = a->codes[row * a->I + (a->perm ? a->perm[i] : i)];
            int64_t at = row / a->row_block * a->n_scale_cols + a->col_scale[i];
            float q = a->fp8 ? osh_f32_of_fp8((uint8_t)code) : code;
            q = osh_round_to(q - (a->zero ? a->zero[at] : 0), a->dq_dtype);
            a->dq[row * a->I + i] = osh_round_to(q * a->scale[at], a->dq_dtype);
        }
}

osh_status osh_gptq_solve_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *a)
{
    osh_status rc = OSH_OK;
    float steps = (float)(1 << (a->bits - 1));
    solver s = {a, d, {NULL}, {a->fp8 ? -448.0f : -steps, a->fp8 ? 448.0f : steps - 1, a->fp8}};
    size_t bytes[N_ARRAYS];
    int64_t rows = tile_rows(a->O, a->I);
    double *squares = NULL; // own: [2, padded rows]

    array_bytes(bytes, a->O, a->I, a->n_scale_cols, a->block_size);
    for (int i = 0; i < N_ARRAYS; i++) {
        if (!a->zero && (i == ZERO || i == ZERO_GIVEN)) continue;
        s.at[i] = osh_device_alloc(cx, d, bytes[i], OSH_LIFE_SHORT);
        if (!s.at[i]) OSH_TRY(OSH_E_NOMEM);
    }
    if (a->squares) {
        squares = static_cast<double *>(osh_alloc(cx, bytes[SQUARES]));
        if (!squares) OSH_TRY(OSH_E_NOMEM);
        a->squares[0] = a->squares[1] = 0;
    }
    OSH_TRY(put_given(cx, &s));
    for (int64_t row = 0; row < a->O; row += rows) {
        span p = {a->I, padded(rows), osh_min64(rows, a->O - row), 0, 0};
        OSH_TRY(open_tile(cx, &s, row, p));
        for (p.first = 0; p.first < a->I; p.first += p.n) {
            p.n = osh_min64(a->block_size, a->I - p.first);
            OSH_TRY(run_block(cx, &s, p));
        }
        OSH_TRY(close_tile(cx, &s, row, p));
        if (a->w_out || a->squares) OSH_TRY(decode_tile(cx, &s, row, p, squares));
    }
    if (a->dq) decode(a);
done:
    osh_free(cx, squares);
    for (int i = 0; i < N_ARRAYS; i++) osh_device_free(d, s.at[i]);
    return rc;
}

size_t osh_gptq_solve_cuda_bytes(int64_t O, int64_t I, int64_t n_scale_cols, int64_t block_size)
{
    size_t bytes[N_ARRAYS], sum = 0;
    array_bytes(bytes, O, I, n_scale_cols, block_size);
    for (int i = 0; i < N_ARRAYS; i++) sum += osh_arena_gross(bytes[i]);
    return sum;
}
