/* sizes.h - declares the sizes of chunks, panels and pieces on which the scratch of CUDA kernels
 * depends. The kernels and sizes.c use the same sizes. op.h explains the letters in shapes. */
#ifndef OSH_CUDA_SIZES_H
#define OSH_CUDA_SIZES_H
#ifdef __cplusplus
extern "C" {
#endif
#include "ops/cuda/cuda.h"

/* ---- sizes of factors.cu ---- */
enum { OSH_FACTORS_SIDE = 64 }; // number of columns of a block column of a Hessian
enum {
    OSH_FACTORS_A,
    OSH_FACTORS_LEFT,
    OSH_FACTORS_H,
    OSH_FACTORS_PERM,
    OSH_FACTORS_DIAG,
    OSH_FACTORS_FAILED,
    OSH_FACTORS_N_ARRAYS
};
/* Returns the row stride of a Hessian in scratch, in elements: I, rounded up to 16 bytes. */
int64_t osh_factors_ld(int64_t I);
/* Returns how many of n Hessians fit in `room` bytes of the arena, at least 1. */
int osh_factors_at_once(int64_t I, int n, size_t room);
/* Sets at[i] to the offset of array i in one allocation of the arena, for n Hessians. `most`:
 * number of Hessians that are computed at a time. Returns the size of the allocation in bytes. */
size_t osh_factors_offsets(size_t at[OSH_FACTORS_N_ARRAYS], int64_t I, int n, int most);

enum { OSH_HESSIAN_TOKENS = 4096 }; // largest number of tokens that one matrix product sums
/* The tokens of a matrix product are padded with zeros to a multiple of this number. */
enum { OSH_HESSIAN_GRAIN = 256 };
/* Limits of hessian_accum.cu.
 * PARTS: largest number of matrix products in a batch.
 * ROWS: largest number of rows of a piece of H.
 * PIECE: largest number of elements of a piece of H. */
enum {
    OSH_HESSIAN_PARTS = 4,
    OSH_HESSIAN_ROWS = 1024,
    OSH_HESSIAN_PIECE = OSH_HESSIAN_ROWS * 2048
};
int64_t osh_hessian_columns(int64_t m); // largest number of columns of a piece with m rows of H
/* Returns the number of parts (hessian_accum.cu) that are computed before they are added to H. */
int64_t osh_hessian_parts(int64_t n_tokens);
/* Returns how many bytes these parts have for the largest piece of H [I, I]. */
size_t osh_hessian_parts_bytes(int64_t n_tokens, int64_t I);
enum { OSH_TARGET_ROWS = 1024 }; // number of rows of a slab (gptq_target.cu)

/* Returns the number of rows of a panel of linear.cu, at most n. A row has `width` elements. */
int64_t osh_linear_panel_rows(int64_t n, int64_t width);

/* Largest size of the scores of attention.cu in bytes, unless the scores of one query need more. */
enum { OSH_ATTENTION_SCORES = 128 << 20 };
/* Largest number of elements of a head in attention_fused.cuh. */
enum { OSH_ATTENTION_FUSED_DIM = 128 };
/* Returns the number of elements of a row of scores for n_keys keys, with padding. */
int64_t osh_attention_row(int64_t n_keys);
/* OSH_SCAN_BLOCKS: largest number of blocks of a kernel of scan.cu. Each block has the state of one
 * head.
 * OSH_SCAN_DIM: largest Dk of delta_rule, and largest S of ssm_scan. */
enum { OSH_SCAN_BLOCKS = 256, OSH_SCAN_DIM = 4096 };
/* Returns the number of blocks of a kernel of scan.cu for a batch of n_tokens tokens. */
int64_t osh_scan_blocks(int64_t n_tokens, int64_t heads);
/* For attention_grad.cu.
 * osh_attention_back_chunk: returns the number of queries in a chunk of a sample of T tokens.
 * osh_attention_back_bytes: returns the size in bytes of a chunk's scores, for one head of each
 * group. */
int64_t osh_attention_back_chunk(const osh_attention_attr *at, int64_t T);
size_t osh_attention_back_bytes(const osh_attention_attr *at, int64_t n_tokens);
/* number of rows of a chunk in sums.cuh */
enum { OSH_SUM_ROWS = 512 };
/* Returns the number of bytes of the partial sums of a matrix [rows, D]. */
size_t osh_sums_bytes(int64_t rows, int64_t D);
/* For the gradients of delta_rule and ssm_scan (scan_grad.cuh).
 * BLOCKS: largest number of blocks.
 * BYTES: largest number of bytes of the states of all blocks, unless one block needs more.
 * SHARED: largest number of bytes of shared memory of a block.
 * WAVE: largest number of heads of ssm_scan that are computed together. */
enum {
    OSH_SCAN_BACK_BLOCKS = 256,
    OSH_SCAN_BACK_BYTES = 256 << 20,
    OSH_SCAN_BACK_SHARED = 96 << 10,
    OSH_SCAN_BACK_WAVE = 32
};
/* A head has a state of `each` elements.
 * osh_scan_back_block returns the number of elements of the states of a block: C stored states, C +
 * 1 states of the current step, and the gradient of a state.
 * osh_scan_back_blocks returns the number of blocks for n_tokens tokens.
 * osh_scan_back_terms_bytes returns the number of bytes of the terms of the gradients of n weights
 * [heads], and of the scratch for their sums. */
int64_t osh_scan_back_block(int64_t C, int64_t each);
int64_t osh_scan_back_blocks(int64_t n_tokens, int64_t heads, int64_t each);
size_t osh_scan_back_terms_bytes(int64_t n_tokens, int64_t heads, int64_t n);
/* The next two functions return numbers of bytes: the scratch of conv1d_grad.cu for C channels and
 * a window of K tokens, and the scratch of gated_norm_grad.cu for n heads of D elements. heads:
 * number of heads that have weights of their own. */
size_t osh_conv1d_back_bytes(int64_t n_tokens, int64_t C, int64_t K);
size_t osh_gated_norm_back_bytes(int64_t n, int64_t heads, int64_t D);
/* For vocab.cu.
 * OSH_VOCAB_ROWS: largest number of rows that are computed together.
 * OSH_VOCAB_COLS: largest number of vocabulary entries of a block. */
enum { OSH_VOCAB_ROWS = 1024, OSH_VOCAB_COLS = 2048 };
/* Returns an upper bound of the bytes in the arena for the logits of one model, with the
 * allocator's overhead. attr: an osh_vocab_attr or NULL; only the presence of biases matters. */
size_t osh_vocab_bytes(const void *attr, int side, int64_t D, int64_t n_tokens);
enum { OSH_KL_STATE = 40 }; // bytes of the state of a row in kl.cu
/* Returns the number of bytes of the states of kl.cu. */
size_t osh_kl_state_bytes(int64_t n_tokens);
/* Parts of one allocation of kl_grad.cu. */
enum {
    OSH_KL_BACK_STATE, // states of all rows
    OSH_KL_BACK_X,     // logits of a block, in F32
    OSH_KL_BACK_R,     // logits of the reference model, in F32
    OSH_KL_BACK_SLOPE, // gradients of the logits, in BF16
    OSH_KL_BACK_BIAS,  // biases of a block for both models, in F32
    OSH_KL_BACK_W,     // rows of a weight, in another dtype
    OSH_KL_BACK_N_PARTS
};
enum { OSH_KL_BACK_ROW = 32 }; // bytes of the state of a row in kl_grad.cu
/* Sets at[i] to the offset of part i. Returns the size of the allocation in bytes. D: hidden_size
 * of the model or of the reference model, whichever is larger. */
size_t osh_kl_back_offsets(size_t at[OSH_KL_BACK_N_PARTS], int64_t n_tokens, int64_t D);
enum { OSH_SQUARES_ROWS = 256 }; // number of rows of a chunk in channel_squares.cu
/* Returns true if attention_fused.cuh supports this attention, which then needs no scratch. */
bool osh_attention_is_fused(const osh_attention_attr *at, osh_dtype dt);
/* Returns the size in bytes of attention.cu's scores for a sample of n_tokens tokens. */
size_t osh_attention_scores_bytes(const osh_attention_attr *at, int64_t n_tokens);

/* osh_peak_heads describes the attention that peak.cu measures. It has the heads of Llama-3-8B.
 * osh_peak_widths sets `of` to the widths of its q, k, v and output. */
extern const osh_attention_attr osh_peak_heads;
void osh_peak_widths(int64_t of[4]);

/* ---- sizes of rotate.cu ----
 * SHARED: largest shared memory of a block in bytes. All supported GPUs have this much.
 * TILE: number of elements of a tile with several vectors.
 * SLABS: largest number of blocks if the vectors are not in shared memory. */
enum { OSH_ROTATE_SHARED = 96 << 10, OSH_ROTATE_TILE = 4096, OSH_ROTATE_SLABS = 256 };
/* Returns the number of elements of a tile: one or more whole vectors of n elements. */
int64_t osh_rotate_tile(int64_t n);
/* Returns the number of blocks that need scratch for a tile: 0 if a tile fits in shared memory. */
int64_t osh_rotate_slabs(int64_t n, int64_t n_vectors);
size_t osh_rotate_table_bytes(const osh_rotation *r); // bytes of the factors of r in GPU memory
/* Returns the number of bytes of the panels in f32 for a product of n_vectors vectors and T [n,
 * n]. */
size_t osh_rotate_panel_bytes(int64_t n_vectors, int64_t n);

/* Returns the number of bytes of the lists of rope.cu for n_seqs samples: offsets, table numbers,
 * and n_tables tables of `half` frequencies. */
size_t osh_rope_samples_bytes(int64_t n_seqs, int64_t n_tables, int64_t half);

/* ---- arrays of mixture.cu ---- */
enum { OSH_MIXTURE_F, OSH_MIXTURE_Y, OSH_MIXTURE_PARTS, OSH_MIXTURE_TILES, OSH_MIXTURE_N_ARRAYS };
/* PART: largest size of a routed_part in bytes; TILE_ROWS: rows of a tile (routed.cuh) */
enum { OSH_MIXTURE_PART = 64, OSH_MIXTURE_TILE_ROWS = 128 };
/* Sets at[i] to the offset of array i in one allocation of the arena. Returns the size of the
 * allocation. */
size_t osh_mixture_offsets(size_t at[OSH_MIXTURE_N_ARRAYS], int64_t N, int64_t D, int64_t F,
                           int n_experts);

#ifdef __cplusplus
}
#endif
#endif
