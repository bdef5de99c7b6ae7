/* sizes.h - declares the layout of the scratch of the solver's kernels. sizes.c, prune_sizes.c and
 * refine_sizes.c compute the layout. These files are in every binary, also without CUDA. */
#ifndef OSH_SOLVER_CUDA_SIZES_H
#define OSH_SOLVER_CUDA_SIZES_H
#ifdef __cplusplus
extern "C" {
#endif
#include "solver/cuda/solver.h"

/* ---- gptq_solve.cu ---- */
/* A panel: consecutive rows of one weight that are solved together. All pointers are views of GPU
 * memory. */
typedef struct osh_gptq_panel {
    const void *w; // the rows of the weight in their stored dtype, [n_rows, I]
    const float *target; // values to approximate instead of w, [n_rows, I]; NULL: w itself
    void *out; // output: the dequantized rows in the dtype of w, [n_rows, I]; NULL: not computed
    /* Scales and zero points of the whole weight, [scale rows, n_cols]. `zero` is NULL if the
     * quantization is symmetric. */
    const float *scale, *zero;
    /* For each column in solving order, the index of its scale in a row of `scale`, [I]. */
    const int32_t *col;
    /* Position p of each column in solving order, [I]. A dead column (its input is always 0) has
     * ~p, which is negative. */
    const int32_t *place;
    const float *u;            // [I, I]
    /* row: first row of the panel.
     * n_rows: number of rows of the panel.
     * row_block: number of rows that share a scale.
     * n_cols: number of scales of a row. */
    int64_t row, n_rows, row_block, n_cols;
    int64_t n_words; // number of 32-bit words of a packed row; 0: one byte per code, not packed
    int64_t words;   // number of 32-bit words in the packed rows of all earlier panels
    osh_grid grid;
} osh_gptq_panel;

enum { // indices of the arrays of a solve, which are parts of one allocation in the arena
    OSH_GPTQ_W,
    OSH_GPTQ_ERR,
    OSH_GPTQ_SPLIT,
    OSH_GPTQ_SPLIT_U,
    OSH_GPTQ_SCALE,
    OSH_GPTQ_ZERO,
    OSH_GPTQ_LOSS,
    OSH_GPTQ_SQUARES,
    OSH_GPTQ_CODES,
    OSH_GPTQ_SCALE_GIVEN,
    OSH_GPTQ_ZERO_GIVEN,
    OSH_GPTQ_PLACE,
    OSH_GPTQ_COL,
    OSH_GPTQ_PANELS,
    OSH_GPTQ_N_ARRAYS
};
/* Returns the number of rows of a panel of weights [O, I]: a power of two from 64 to 1,024. */
int64_t osh_gptq_panel_rows(int64_t I);
/* True if enough columns follow the block [first, first + n). A TF32 product is then faster than an
 * F32 product. Assumes a GPU whose TF32 products are at least three times as fast as its F32
 * products (osh_cuda_tf32_pays). */
bool osh_gptq_splits(int64_t first, int64_t n, int64_t I);
/* Returns the distance between rows of the split U, in elements. */
int64_t osh_gptq_split_ld(int64_t rest);
/* Sets at[i] to the offset of array i in one allocation of the arena, for tiles of n_panels panels.
 * Returns the size of the allocation. */
size_t osh_gptq_offsets(size_t at[OSH_GPTQ_N_ARRAYS], const osh_gptq_group *g, int64_t n_panels);
/* Returns the number of panels of a tile, at least 1. If it is more than 1, all arrays of the tile
 * fit into `room` bytes. */
int64_t osh_gptq_tile_panels(const osh_gptq_group *g, size_t room);

/* ---- prune_solve.cu ---- */
enum { OSH_PRUNE_BINS = 2048 };
typedef struct osh_prune_pick { // state of the search for the k-th smallest cost
    /* prefix: the bits of the result that are already known. mask: 1 for each known bit. */
    uint32_t prefix, mask;
    uint64_t less;         // number of costs whose known bits are smaller than `prefix`
} osh_prune_pick;
enum { // indices of the arrays of a solve by SparseGPT
    OSH_PRUNE_W,
    OSH_PRUNE_ERR,
    OSH_PRUNE_LOSS,
    OSH_PRUNE_DEAD,
    OSH_PRUNE_COUNTS,
    OSH_PRUNE_PICK,
    OSH_PRUNE_N_ARRAYS
};
/* Returns the number of floats of the array OSH_PRUNE_ERR. */
int64_t osh_prune_room(const osh_prune_solve_args *a);
/* Sets at[i] to the offset of array i in one allocation of the arena, and returns the size of the
 * allocation. osh_scales_offsets and osh_refine_offsets do the same. */
size_t osh_prune_offsets(size_t at[OSH_PRUNE_N_ARRAYS], const osh_prune_solve_args *a);

/* ---- scratch of gptq_scales.cu and gptq_refine.cu, computed in refine_sizes.c ---- */
enum { OSH_SCALES_WEIGHT, OSH_SCALES_DEAD, OSH_SCALES_SCALE, OSH_SCALES_ZERO, OSH_SCALES_N_ARRAYS };
size_t osh_scales_offsets(size_t at[OSH_SCALES_N_ARRAYS], int64_t I, int64_t n_scales);

enum { OSH_CU_DESCEND = 64 }; // number of columns of a block in coordinate descent
enum {                        // indices of arrays; each tile of the refine steps has these arrays
    OSH_REFINE_Q,
    OSH_REFINE_D,
    OSH_REFINE_G,
    OSH_REFINE_NEXT,
    OSH_REFINE_SCALE,
    OSH_REFINE_ZERO,
    OSH_REFINE_KEPT_SCALE,
    OSH_REFINE_KEPT_ZERO,
    OSH_REFINE_CODES,
    OSH_REFINE_LOSS,
    OSH_REFINE_NOW,
    OSH_REFINE_FIT,
    OSH_REFINE_ROOM,
    OSH_REFINE_TURNED,
    OSH_REFINE_ERR,
    OSH_REFINE_DEAD,
    OSH_REFINE_VALUES,
    OSH_REFINE_N_ARRAYS
};
/* Returns the number of rows of a tile of the refine steps. */
int64_t osh_refine_rows(int64_t O, int64_t row_block);
size_t osh_refine_offsets(size_t at[OSH_REFINE_N_ARRAYS], int64_t O, int64_t I, int64_t group,
                          int64_t row_block);

#ifdef __cplusplus
}
#endif
#endif
