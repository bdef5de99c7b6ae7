/* gptq_tile.cuh - declares the tile of gptq_solve.cu: some panels of rows that one kernel launch
 * solves. The file also defines the quantization of one element, and kernels that load rows into a
 * tile and store the codes. P is the number of rows of a panel. */
#ifndef OSH_GPTQ_TILE_CUH
#define OSH_GPTQ_TILE_CUH
#include "ops/cuda/grid.cuh"
#include "solver/cuda/sizes.h"

#include <math.h>

enum { ROWS = 64 };           // number of threads of a thread block; each thread has one row
/* A thread block of TURN x STEP threads transposes a square of TURN rows and TURN columns. */
enum { TURN = 32, STEP = 8 };

typedef osh_gptq_panel panel;

/* Some panels that are solved together. The shapes in the comments are those of one panel. Each
 * array contains all panels, one after the other. */
typedef struct tile {
    float *w;            // [I, P]
    float *err;          // [block, P]
    float *split; // [3 n, P]: TF32 values hi, hi and lo of err; NULL: the update product is F32
    /* Scales and zero points of each row, [n_cols, P]. n_cols: largest number of scales of a row,
     * over all weights. */
    float *scale, *zero;
    double *loss;        // [P]
    double *squares;     // [2, P]: sum of (w - out)^2 of each row, then sum of w^2 of each row
    int8_t *codes;       // codes, columns as in the checkpoint, [P, I]
    const panel *panels;
    int64_t I, P, block, n_cols;
    /* run: number of panels of each input. An input may have several weights, which use one U.
     * skip: number of panels that the first input of this tile has in the previous tile. */
    int64_t run, skip;
    int64_t first, n;  // the current block is columns [first, first + n)
} tile;

/* ---- codes ---- */

/* Returns the value of the grid nearest to w / s + zero. Sets *dq to the dequantized weight. */
template <class T>
__device__ static float quantize(float *dq, const osh_grid &g, float w, float s, float zero)
{
    float q = __fdiv_rn(w, s);
    if (!g.digits) q = __fadd_rn(q, zero);
    q = osh_cu_on_grid(g, fminf(fmaxf(q, g.lo), g.hi));
    *dq = osh_cu_value<T>(q, s, zero);
    return q;
}

/* ---- kernels of a tile ---- */

/* Loads the rows of all panels to t.w as f32, transposed, with columns in solving order. */
template <class S> static __global__ void load_tile(tile t)
{
    __shared__ float square[TURN][TURN + 1];
    const panel &p = t.panels[blockIdx.z];
    const S *from = static_cast<const S *>(p.w);
    const float *target = p.target;
    float *w = t.w + blockIdx.z * t.I * t.P;
    int64_t row = (int64_t)blockIdx.x * TURN, c0 = (int64_t)blockIdx.y * TURN, tx = threadIdx.x;

    for (int64_t y = threadIdx.y; y < TURN; y += STEP)
        if (row + y < p.n_rows && c0 + tx < t.I) {
            int64_t at = (row + y) * t.I + c0 + tx;
            square[y][tx] = target ? target[at] : osh_cu_load(from[at]);
        }
    __syncthreads();
    for (int64_t y = threadIdx.y; y < TURN; y += STEP) {
        if (row + tx >= p.n_rows || c0 + y >= t.I) continue;
        int64_t i = p.place[c0 + y];
        w[(i < 0 ? ~i : i) * t.P + row + tx] = i < 0 ? 0 : square[tx][y];
    }
}

/* Transposes the codes in t.w to t.codes [P, I], with columns as in the checkpoint. */
static __global__ void store_codes(tile t)
{
    __shared__ float square[TURN][TURN + 1];
    const panel &p = t.panels[blockIdx.z];
    const float *w = t.w + blockIdx.z * t.I * t.P;
    int8_t *codes = t.codes + blockIdx.z * t.P * t.I;
    int64_t row = (int64_t)blockIdx.x * TURN, c0 = (int64_t)blockIdx.y * TURN, tx = threadIdx.x;

    for (int64_t y = threadIdx.y; y < TURN; y += STEP) {
        if (row + tx >= p.n_rows || c0 + y >= t.I) continue;
        int64_t i = p.place[c0 + y];
        square[y][tx] = w[(i < 0 ? ~i : i) * t.P + row + tx];
    }
    __syncthreads();
    for (int64_t y = threadIdx.y; y < TURN; y += STEP)
        if (row + y < p.n_rows && c0 + tx < t.I)
            codes[(row + y) * t.I + c0 + tx] = (int8_t)(int)square[tx][y];
}

/* Copies the scales and zero points of each row to the arrays of the tile, and sets the loss of
 * each row to 0. blockIdx.y is the index of the scale in the row. */
static __global__ void spread_scales(tile t)
{
    const panel &p = t.panels[blockIdx.z];
    int64_t r = (int64_t)blockIdx.x * ROWS + threadIdx.x, c = blockIdx.y, b = blockIdx.z;
    if (r >= p.n_rows || c >= p.n_cols) return;
    int64_t to = (b * t.n_cols + c) * t.P + r, from = (p.row + r) / p.row_block * p.n_cols + c;
    t.scale[to] = p.scale[from];
    if (p.zero) t.zero[to] = p.zero[from];
    if (!c) t.loss[b * t.P + r] = 0;
}

/* Writes the dequantized weight to p.out, which may be p.w. Computes t.squares. A thread block
 * computes one row. */
template <class S, class T> static __global__ void tile_decode_rows(tile t)
{
    __shared__ double part[2][ROWS];
    const panel &p = t.panels[blockIdx.y];
    int64_t b = blockIdx.y, row = blockIdx.x, scales = (p.row + row) / p.row_block * p.n_cols;
    if (row >= p.n_rows) return; // all threads of the block take the same branch
    const S *w = static_cast<const S *>(p.w) + row * t.I;
    S *out = p.out ? static_cast<S *>(p.out) + row * t.I : NULL;
    const int8_t *codes = t.codes + (b * t.P + row) * t.I;
    double err = 0, all = 0;

    for (int64_t c = threadIdx.x; c < t.I; c += ROWS) {
        int64_t i = p.place[c], at = scales + p.col[i < 0 ? ~i : i];
        float q = osh_cu_value_of_code(p.grid, codes[c]);
        float was = osh_cu_load(w[c]);
        S kept;
        osh_cu_store(&kept, osh_cu_value<T>(q, p.scale[at], p.zero ? p.zero[at] : 0));
        double d = (double)was - osh_cu_load(kept);
        err += d * d, all += (double)was * was;
        if (out) out[c] = kept;
    }
    part[0][threadIdx.x] = err, part[1][threadIdx.x] = all;
    __syncthreads();
    if (threadIdx.x < 2) {
        double sum = 0;
        for (int k = 0; k < ROWS; k++) sum += part[threadIdx.x][k];
        t.squares[(2 * b + threadIdx.x) * t.P + row] = sum;
    }
}

/* Overwrites t.w with the packed rows of all panels, one after the other. If a code has b bits,
 * element i of a row is in bits [i b, (i + 1) b) of the row's words. */
static __global__ void tile_pack_rows(tile t)
{
    const panel &p = t.panels[blockIdx.z];
    int64_t b = blockIdx.z, row = blockIdx.y, k = (int64_t)blockIdx.x * ROWS + threadIdx.x;
    if (row >= p.n_rows || k >= p.n_words) return;
    const int8_t *codes = t.codes + (b * t.P + row) * t.I;
    int bits = p.grid.bits;
    uint32_t word = 0, mask = (1u << bits) - 1, zero = p.grid.digits ? 0 : 1u << (bits - 1);

    for (int64_t i = 32 * k / bits; i < t.I && i * bits < 32 * k + 32; i++) {
        uint32_t code = ((uint32_t)codes[i] + zero) & mask;
        /* Position of the code's lowest bit in word k. If it is negative, the low bits of the code
         * are in the previous word. */
        int at = (int)(i * bits - 32 * k);
        word |= at < 0 ? code >> -at : code << at;
    }
    reinterpret_cast<uint32_t *>(t.w)[p.words - t.panels->words + row * p.n_words + k] = word;
}
#endif
