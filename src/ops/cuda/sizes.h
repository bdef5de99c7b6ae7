/* sizes.h - the sizes of tiles on which the scratch of kernels depends. The kernels and sizes.c
 * share them. */
#ifndef OSH_CUDA_SIZES_H
#define OSH_CUDA_SIZES_H
#ifdef __cplusplus
extern "C" {
#endif
#include "ops/cuda/cuda.h"

/* ---- factors.cu: Hessians of few columns, computed without cuSOLVER ---- */
enum { OSH_FACTORS_SIDE = 64 }; // columns of a block
enum {
    OSH_FACTORS_A,
    OSH_FACTORS_LEFT,
    OSH_FACTORS_H,
    OSH_FACTORS_PERM,
    OSH_FACTORS_DIAG,
    OSH_FACTORS_FAILED,
    OSH_FACTORS_N_ARRAYS
};
int64_t osh_factors_ld(int64_t I); // elements from row to row: whole words of 16 bytes
/* Returns how many of n Hessians fit in `room` bytes of the arena, but at least 1. */
int osh_factors_at_once(int64_t I, int n, size_t room);
/* Computes the offset of each array in one block of the arena, for `most` matrices at a time out of
 * n. Returns the bytes of the block. */
size_t osh_factors_offsets(size_t at[OSH_FACTORS_N_ARRAYS], int64_t I, int n, int most);

enum { OSH_HESSIAN_TOKENS = 4096 }; // most tokens of a product
enum { OSH_HESSIAN_GRAIN = 256 };   // the tokens of a product are padded with zeros to a multiple
                                    // of this
/* Limits of hessian_accum: products of a batch, rows and elements of a piece of H. */
enum {
    OSH_HESSIAN_PARTS = 4,
    OSH_HESSIAN_ROWS = 1024,
    OSH_HESSIAN_PIECE = OSH_HESSIAN_ROWS * 2048
};
int64_t osh_hessian_columns(int64_t m); // most columns of a piece that has m rows
int64_t osh_hessian_parts(int64_t n_tokens); // number of parts that are computed before they are
                                             // added to H
size_t osh_hessian_parts_bytes(int64_t n_tokens, int64_t I);
enum { OSH_TARGET_ROWS = 1024 }; // rows of a slab

int64_t osh_linear_panel_rows(int64_t n, int64_t width); // returns the rows of a panel, at most n

enum { OSH_ATTENTION_SCORES = 128 << 20 }; // most bytes of scores, unless one row has more
enum { OSH_ATTENTION_FUSED_DIM = 128 }; // most elements of a head
int64_t osh_attention_row(int64_t n_keys); // returns the elements of a row of scores
/* OSH_SCAN_BLOCKS: most blocks of a scan over heads; each has a state of its own. OSH_SCAN_DIM:
 * longest key or state. */
enum { OSH_SCAN_BLOCKS = 256, OSH_SCAN_DIM = 4096 };
int64_t osh_scan_blocks(int64_t n_tokens, int64_t heads);
/* For the gradient of attention: return the queries of a chunk of a sample of T tokens, and the
 * bytes of the scores of a chunk for one head of each group. */
int64_t osh_attention_back_chunk(const osh_attention_attr *at, int64_t T);
size_t osh_attention_back_bytes(const osh_attention_attr *at, int64_t n_tokens);
enum { OSH_SUM_ROWS = 512 }; // rows of a chunk, whose sum is computed first (sums.cuh)
size_t osh_sums_bytes(int64_t rows, int64_t D);
/* Returns true if attention_fused.cuh computes this attention, which then needs no scratch. */
bool osh_attention_is_fused(const osh_attention_attr *at, osh_dtype dt);
size_t osh_attention_scores_bytes(const osh_attention_attr *at, int64_t n_tokens);

/* Returns the bytes of the lists of n_seqs samples: offsets, table numbers, and n_tables tables of
 * frequencies. */
size_t osh_rope_samples_bytes(int64_t n_seqs, int64_t n_tables, int64_t half);

/* ---- mixture.cu: arrays of a call, in one block of the arena ---- */
enum { OSH_MIXTURE_F, OSH_MIXTURE_Y, OSH_MIXTURE_PARTS, OSH_MIXTURE_TILES, OSH_MIXTURE_N_ARRAYS };
enum { OSH_MIXTURE_PART = 64, OSH_MIXTURE_TILE_ROWS = 128 }; // most bytes of a routed_part; rows of
                                                             // a tile
size_t osh_mixture_offsets(size_t at[OSH_MIXTURE_N_ARRAYS], int64_t N, int64_t D, int64_t F,
                           int n_experts);

#ifdef __cplusplus
}
#endif
#endif
