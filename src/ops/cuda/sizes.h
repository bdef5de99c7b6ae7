/* sizes.h - what decides how much the kernels take: between them and sizes.c, which is in every binary. */
#ifndef OSH_CUDA_SIZES_H
#define OSH_CUDA_SIZES_H
#ifdef __cplusplus
extern "C" {
#endif
#include "ops/cuda/cuda.h"

/* Rows of a triangle that cuSOLVER gets at most; a larger one is cut into blocks of so many, or of a power of two less.
 * What a triangle takes: its square, of no more than 2 x 2 blocks, and a MiB. */
enum { OSH_TRIANGLE_BLOCK = 2048, OSH_TRIANGLE_LEAST = 64, OSH_TRIANGLE_SPARE = 1 << 20 };
size_t osh_triangle_room(int64_t n);

/* ---- factors.cu: Hessians of few columns, which cuSOLVER does not get ---- */
enum { OSH_FACTORS_SIDE = 64 }; // columns of a block
enum { OSH_FACTORS_A, OSH_FACTORS_LEFT, OSH_FACTORS_H, OSH_FACTORS_PERM, OSH_FACTORS_DIAG, OSH_FACTORS_FAILED,
       OSH_FACTORS_N_ARRAYS };
int64_t osh_factors_ld(int64_t I); // elements from row to row: whole words of 16 bytes
int osh_factors_at_once(int64_t I, int n, size_t room); // of n, one at least
/* Where each array begins in one block of the arena, and the end, with `most` of n matrices at work. */
size_t osh_factors_offsets(size_t at[OSH_FACTORS_N_ARRAYS], int64_t I, int n, int most);

enum { OSH_HESSIAN_TOKENS = 4096 }; // of one product, at most
enum { OSH_HESSIAN_GRAIN = 256 };   // fewer are filled up with zeros
/* Products of a batch, at most; rows of a piece of H and its elements, of hessian_accum alone. */
enum { OSH_HESSIAN_PARTS = 4, OSH_HESSIAN_ROWS = 1024, OSH_HESSIAN_PIECE = OSH_HESSIAN_ROWS * 2048 };
int64_t osh_hessian_columns(int64_t m); // of a piece of m rows, at most
int64_t osh_hessian_parts(int64_t n_tokens); // that wait to be added to H, at most
size_t osh_hessian_parts_bytes(int64_t n_tokens, int64_t I);
enum { OSH_TARGET_ROWS = 1024 }; // of a slab

int64_t osh_linear_panel_rows(int64_t n, int64_t width); // of n, in a panel

enum { OSH_ATTENTION_SCORES = 128 << 20 }; // bytes, where a row has no more
enum { OSH_ATTENTION_FUSED_DIM = 128 }; // elements of a head, at most
int64_t osh_attention_row(int64_t n_keys); // elements of a row of scores
/* Blocks of a scan over heads, each with a state of its own; the longest key, or state, that there is. */
enum { OSH_SCAN_BLOCKS = 256, OSH_SCAN_DIM = 4096 };
int64_t osh_scan_blocks(int64_t n_tokens, int64_t heads);
/* The way back through attention: queries of a chunk of a sample of T tokens, and bytes of its scores, of one head of
 * each group. */
int64_t osh_attention_back_chunk(const osh_attention_attr *at, int64_t T);
size_t osh_attention_back_bytes(const osh_attention_attr *at, int64_t n_tokens);
enum { OSH_SUM_ROWS = 512 }; // of a chunk, of which columns are summed first (sums.cuh)
size_t osh_sums_bytes(int64_t rows, int64_t D);
bool osh_attention_is_fused(const osh_attention_attr *at, osh_dtype dt); // by attention_fused.cuh: no scratch
size_t osh_attention_scores_bytes(const osh_attention_attr *at, int64_t n_tokens);

/* Offsets, tables and frequencies of n_seqs samples with so many different lengths. */
size_t osh_rope_samples_bytes(int64_t n_seqs, int64_t n_tables, int64_t half);

/* ---- mixture.cu: arrays of a call, in one block of the arena ---- */
enum { OSH_MIXTURE_F, OSH_MIXTURE_Y, OSH_MIXTURE_PARTS, OSH_MIXTURE_TILES, OSH_MIXTURE_N_ARRAYS };
enum { OSH_MIXTURE_PART = 64, OSH_MIXTURE_TILE_ROWS = 128 }; // bytes of a part at most; rows of a tile
size_t osh_mixture_offsets(size_t at[OSH_MIXTURE_N_ARRAYS], int64_t N, int64_t D, int64_t F, int n_experts);

/* ---- gptq_solve.cu ---- */
typedef struct osh_gptq_panel { // rows of one weight
    const void *w; // [n_rows, I] stored dtype
    const float *target; // [n_rows, I] what the codes come close to; NULL: w
    void *out;     // like w: gets what the codes stand for; NULL: not wanted
    const float *scale, *zero; // of the whole weight [.., n_cols]; zero NULL: symmetric
    const int32_t *col;        // [I] scale column of each column in solving order
    const int32_t *place;      // [I] where column c goes, ~place: and is zero there
    const float *u;            // [I, I]
    int64_t row, n_rows, row_block, n_cols; // first row; rows that share a scale; scales of a row
    int64_t n_words; // of a packed row; 0: codes are wanted a byte each
    int64_t words;   // of the packed rows of all panels before it
    osh_grid grid;
} osh_gptq_panel;

enum { // arrays of a solve, in one block of the arena
    OSH_GPTQ_W, OSH_GPTQ_ERR, OSH_GPTQ_SPLIT, OSH_GPTQ_SPLIT_U, OSH_GPTQ_SCALE, OSH_GPTQ_ZERO, OSH_GPTQ_LOSS,
    OSH_GPTQ_SQUARES, OSH_GPTQ_CODES, OSH_GPTQ_SCALE_GIVEN, OSH_GPTQ_ZERO_GIVEN, OSH_GPTQ_PLACE, OSH_GPTQ_COL,
    OSH_GPTQ_PANELS, OSH_GPTQ_N_ARRAYS
};
int64_t osh_gptq_panel_rows(int64_t I);
bool osh_gptq_splits(int64_t first, int64_t n, int64_t I); // the product behind the block may be one of TF32
int64_t osh_gptq_split_ld(int64_t rest); // distance of the rows of what is split of U
/* Where each array begins, and the end, with so many panels in a tile. */
size_t osh_gptq_offsets(size_t at[OSH_GPTQ_N_ARRAYS], const osh_gptq_group *g, int64_t n_panels);
int64_t osh_gptq_tile_panels(const osh_gptq_group *g, size_t room); // that fit into `room` bytes, one at least

/* ---- gptq_scales.cu, gptq_refine.cu: refine_sizes.c ---- */
enum { OSH_SCALES_WEIGHT, OSH_SCALES_DEAD, OSH_SCALES_SCALE, OSH_SCALES_ZERO, OSH_SCALES_N_ARRAYS };
size_t osh_scales_offsets(size_t at[OSH_SCALES_N_ARRAYS], int64_t I, int64_t n_scales);

enum { OSH_CU_DESCEND = 64 }; // columns of a block
enum { // arrays of a tile
    OSH_REFINE_Q, OSH_REFINE_D, OSH_REFINE_G, OSH_REFINE_NEXT, OSH_REFINE_SCALE, OSH_REFINE_ZERO,
    OSH_REFINE_KEPT_SCALE, OSH_REFINE_KEPT_ZERO, OSH_REFINE_CODES, OSH_REFINE_LOSS, OSH_REFINE_NOW, OSH_REFINE_FIT,
    OSH_REFINE_ROOM, OSH_REFINE_TURNED, OSH_REFINE_ERR, OSH_REFINE_DEAD, OSH_REFINE_VALUES, OSH_REFINE_N_ARRAYS
};
int64_t osh_refine_rows(int64_t O, int64_t row_block); // of a tile
size_t osh_refine_offsets(size_t at[OSH_REFINE_N_ARRAYS], int64_t O, int64_t I, int64_t group, int64_t row_block);

#ifdef __cplusplus
}
#endif
#endif
