/* sizes.c - computes the scratch of the CUDA kernels in bytes. Every binary has these functions,
 * because `oneshot plan` plans the memory of a GPU on machines without a GPU or CUDA. */
#include "ops/cuda/sizes.h"

#include "ops/kernel.h"
#include "ops/scan.h"

/* ---- ops ---- */
size_t osh_embedding_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, osh_dtype dt)
{
    (void)attr, (void)in_width, (void)out_width, (void)dt;
    return osh_arena_gross((size_t)n_tokens * sizeof(int32_t));
}

enum { LINEAR_PANEL = 1 << 23 }; // largest number of elements of a panel (linear.cu)

int64_t osh_linear_panel_rows(int64_t n, int64_t width)
{
    return osh_min64(n, LINEAR_PANEL / width > 1 ? LINEAR_PANEL / width : 1);
}

size_t osh_linear_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, osh_dtype dt)
{
    (void)dt; // the result is an upper bound: it assumes the widest dtype
    bool bias = attr && ((const osh_linear_attr *)attr)->bias;
    int64_t I = in_width[0], O = out_width, step = osh_linear_panel_rows(O, I);
    /* If W has the dtype of x, W is not copied, and a panel of sums has O columns. If not, W is
     * cast in panels of `step` rows, and a panel of sums has `step` columns. This function does not
     * get the dtype of W, so the result is the larger of the two cases. */
    int64_t whole = osh_linear_panel_rows(n_tokens, O) * O,
            part = osh_linear_panel_rows(n_tokens, step) * step;
    size_t copy = osh_arena_gross((size_t)(step * I) * sizeof(float));
    return copy +
           (bias ? osh_arena_gross((size_t)(whole > part ? whole : part) * sizeof(float)) : 0);
}

size_t osh_mixture_offsets(size_t at[OSH_MIXTURE_N_ARRAYS], int64_t N, int64_t D, int64_t F,
                           int n_experts)
{
    size_t n = (size_t)n_experts, rows = (size_t)N, bytes[OSH_MIXTURE_N_ARRAYS], sum = 0;
    /* 2 bytes per element: bf16 or f16. */
    bytes[OSH_MIXTURE_F] = rows * (size_t)F * 2, bytes[OSH_MIXTURE_Y] = rows * (size_t)D * 2;
    bytes[OSH_MIXTURE_PARTS] = 2 * n * OSH_MIXTURE_PART;
    bytes[OSH_MIXTURE_TILES] =
        n * (size_t)osh_div_up(N, OSH_MIXTURE_TILE_ROWS) * 2 * sizeof(int32_t);
    for (int i = 0; i < OSH_MIXTURE_N_ARRAYS; i++) at[i] = sum, sum += osh_arena_gross(bytes[i]);
    return sum;
}

size_t osh_mixture_bytes(int64_t N, int64_t D, int64_t F, int n_experts)
{
    size_t at[OSH_MIXTURE_N_ARRAYS];
    return osh_arena_gross(osh_mixture_offsets(at, N, D, F, n_experts));
}

bool osh_mixture_takes(osh_dtype dt, int64_t D, int64_t F)
{
    return (dt == OSH_BF16 || dt == OSH_F16) && D % 8 == 0 && F % 8 == 0;
}

size_t osh_rope_samples_bytes(int64_t n_seqs, int64_t n_tables, int64_t half)
{
    return (size_t)(n_seqs + 1) * sizeof(int64_t) +
           (size_t)(n_seqs + n_tables * half) * sizeof(float);
}

size_t osh_rope_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                             int64_t n_tokens, osh_dtype dt)
{
    const osh_rope_attr *at = attr;
    int64_t n_tables = 1;
    (void)in_width, (void)out_width, (void)dt;
    /* There are at most n_tokens samples. Only a sample with more than max_pos tokens has a table
     * of frequencies of its own, so the tokens also limit the number of tables. */
    if (at->dynamic) n_tables += n_tokens / (at->max_pos + 1);
    return osh_arena_gross(osh_rope_samples_bytes(n_tokens, n_tables, at->rotary_dim / 2));
}

size_t osh_minmax_rows_bytes(int64_t n_samples)
{
    return osh_arena_gross((size_t)(n_samples + 1) * sizeof(int64_t));
}

int64_t osh_rotate_tile(int64_t n) { return n < OSH_ROTATE_TILE ? OSH_ROTATE_TILE / n * n : n; }

int64_t osh_rotate_slabs(int64_t n, int64_t n_vectors)
{
    if (osh_rotate_tile(n) * (int64_t)sizeof(float) <= OSH_ROTATE_SHARED) return 0;
    return osh_min64(n_vectors, OSH_ROTATE_SLABS);
}

size_t osh_rotate_table_bytes(const osh_rotation *r)
{
    size_t K = (size_t)r->factor, signs = r->sign ? (size_t)r->n * sizeof(double) : 0;
    return signs + (r->had ? K * K : r->cas ? K * sizeof(double) : 0);
}

size_t osh_rotate_panel_bytes(int64_t n_vectors, int64_t n)
{
    int64_t rows = 2 * osh_linear_panel_rows(n_vectors, n) + osh_linear_panel_rows(n, n);
    return (size_t)(rows * n) * sizeof(float);
}

size_t osh_rotate_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, osh_dtype dt)
{
    const osh_rotate_attr *at = attr;
    int64_t n = at->n, n_vectors = n_tokens * (in_width[0] / n);
    (void)out_width, (void)dt;
    // the result is an upper bound: it assumes that T has another dtype than x
    if (!at->r) return osh_arena_gross(osh_rotate_panel_bytes(n_vectors, n));
    size_t tables = osh_rotate_table_bytes(at->r),
           slabs = (size_t)(osh_rotate_slabs(n, n_vectors) * osh_rotate_tile(n)) * sizeof(float);
    return (tables ? osh_arena_gross(tables) : 0) + (slabs ? osh_arena_gross(slabs) : 0);
}

int64_t osh_attention_row(int64_t n_keys) { return (n_keys + 7) & ~(int64_t)7; }

bool osh_attention_is_fused(const osh_attention_attr *at, osh_dtype dt)
{
    return (dt == OSH_BF16 || dt == OSH_F16) && at->head_dim % 8 == 0 &&
           at->head_dim <= OSH_ATTENTION_FUSED_DIM && at->softcap == 0 &&
           !at->chunk; // the fused kernel supports neither chunks nor softcap
}

size_t osh_attention_scores_bytes(const osh_attention_attr *at, int64_t n_tokens)
{
    int64_t row = osh_attention_row(n_tokens) * (int64_t)sizeof(float),
            rows = at->n_heads * n_tokens;
    // one row of scores alone exceeds the limit
    if (row > OSH_ATTENTION_SCORES) return (size_t)row;
    return (size_t)(rows > OSH_ATTENTION_SCORES / row ? OSH_ATTENTION_SCORES : rows * row);
}

size_t osh_attention_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, osh_dtype dt)
{
    (void)in_width, (void)out_width;
    if (osh_attention_is_fused(attr, dt)) return 0;
    return osh_arena_gross(osh_attention_scores_bytes(attr, n_tokens));
}

size_t osh_attention_sinks_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt)
{
    (void)in_width, (void)out_width, (void)dt;
    return osh_arena_gross(osh_attention_scores_bytes(attr, n_tokens));
}

int64_t osh_attention_back_chunk(const osh_attention_attr *at, int64_t T)
{
    int64_t most =
        OSH_ATTENTION_SCORES / 2 / (at->n_kv_heads * osh_attention_row(T) * (int64_t)sizeof(float));
    return most < 1 ? 1 : osh_min64(most, osh_min64(T, 512));
}

/* Returns how many bytes the scores of a sample with n_tokens tokens need. These bytes are also
 * enough for shorter samples: their chunks have more queries and fewer keys, and need at most half
 * of OSH_ATTENTION_SCORES. */
size_t osh_attention_back_bytes(const osh_attention_attr *at, int64_t n_tokens)
{
    int64_t row = at->n_kv_heads * osh_attention_row(n_tokens) * (int64_t)sizeof(float),
            n = osh_min64(n_tokens, 512);
    int64_t most = OSH_ATTENTION_SCORES / 2;
    return (size_t)(row > most ? row : row * n < most ? row * n : most);
}

size_t osh_sums_bytes(int64_t rows, int64_t D)
{
    return (size_t)(osh_div_up(rows, OSH_SUM_ROWS) * D) * sizeof(float);
}

static size_t size_larger(size_t a, size_t b) { return a > b ? a : b; }

size_t osh_linear_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt)
{
    int64_t I = in_width[0];
    size_t w = (size_t)(osh_linear_panel_rows(out_width, I) * I) * sizeof(float);
    size_t x = (size_t)(osh_linear_panel_rows(n_tokens, I) * I) * sizeof(float);
    size_t dy = (size_t)(n_tokens * out_width) * sizeof(uint16_t);
    (void)attr, (void)dt;
    return osh_arena_gross(
        size_larger(size_larger(w, x), size_larger(dy, osh_sums_bytes(n_tokens, out_width))));
}

size_t osh_rms_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt)
{
    const osh_rms_norm_attr *at = attr;
    int64_t D = at->head_dim ? at->head_dim : in_width[0], rows = n_tokens * (in_width[0] / D);
    (void)out_width, (void)dt;
    return osh_arena_gross((size_t)rows * sizeof(float)) + osh_arena_gross(osh_sums_bytes(rows, D));
}

size_t osh_layer_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt)
{
    const osh_layer_norm_attr *at = attr;
    int64_t D = at->head_dim ? at->head_dim : in_width[0], rows = n_tokens * (in_width[0] / D);
    (void)out_width, (void)dt;
    return osh_arena_gross((size_t)(2 * rows) * sizeof(float)) +
           osh_arena_gross(osh_sums_bytes(rows, D));
}

size_t osh_attention_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                       int64_t n_tokens, osh_dtype dt)
{
    const osh_attention_attr *at = attr;
    size_t wide = (size_t)(n_tokens * (in_width[0] + in_width[1] + in_width[2])) * sizeof(float);
    size_t sinks = (size_t)(n_tokens * at->n_heads) * sizeof(float);
    (void)out_width;
    return (dt == OSH_F32 ? 0 : osh_arena_gross(wide)) +
           2 * osh_arena_gross(osh_attention_back_bytes(at, n_tokens)) + osh_arena_gross(sinks);
}

size_t osh_vocab_bytes(const void *attr, int side, int64_t D, int64_t n_tokens)
{
    const osh_vocab_attr *at = attr;
    size_t block = osh_arena_gross(
        (size_t)(osh_min64(n_tokens, OSH_VOCAB_ROWS) * OSH_VOCAB_COLS) * sizeof(float));
    return block + (at && at->bias[side] ? block : 0) +
           osh_arena_gross((size_t)(OSH_VOCAB_COLS * D) * sizeof(float));
}

size_t osh_kl_state_bytes(int64_t n_tokens)
{
    return (size_t)osh_min64(n_tokens, OSH_VOCAB_ROWS) * OSH_KL_STATE;
}

size_t osh_kl_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                           int64_t n_tokens, osh_dtype dt)
{
    (void)out_width, (void)dt;
    return osh_vocab_bytes(attr, 0, in_width[0], n_tokens) +
           osh_vocab_bytes(attr, 1, in_width[2], n_tokens) +
           osh_arena_gross(osh_kl_state_bytes(n_tokens));
}

size_t osh_kl_back_offsets(size_t at[OSH_KL_BACK_N_PARTS], int64_t n_tokens, int64_t D)
{
    size_t block = (size_t)(osh_min64(n_tokens, OSH_VOCAB_ROWS) * OSH_VOCAB_COLS), sum = 0;
    const size_t bytes[OSH_KL_BACK_N_PARTS] = {
        [OSH_KL_BACK_STATE] = (size_t)n_tokens * OSH_KL_BACK_ROW,
        [OSH_KL_BACK_X] = block * sizeof(float),
        [OSH_KL_BACK_R] = block * sizeof(float),
        [OSH_KL_BACK_SLOPE] = block * sizeof(uint16_t),
        [OSH_KL_BACK_BIAS] = 2 * OSH_VOCAB_COLS * sizeof(float),
        [OSH_KL_BACK_W] = (size_t)(OSH_VOCAB_COLS * D) * sizeof(float)};
    for (int i = 0; i < OSH_KL_BACK_N_PARTS; i++) at[i] = sum, sum += osh_arena_gross(bytes[i]);
    return sum;
}

size_t osh_kl_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                int64_t n_tokens, osh_dtype dt)
{
    size_t at[OSH_KL_BACK_N_PARTS];
    (void)attr, (void)out_width, (void)dt;
    return osh_arena_gross(osh_kl_back_offsets(
        at, n_tokens, in_width[0] > in_width[2] ? in_width[0] : in_width[2]));
}

int64_t osh_scan_blocks(int64_t n_tokens, int64_t heads)
{
    return n_tokens < OSH_SCAN_BLOCKS ? osh_min64(n_tokens * heads, OSH_SCAN_BLOCKS)
                                      : OSH_SCAN_BLOCKS;
}

size_t osh_delta_rule_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                   int64_t n_tokens, osh_dtype dt)
{
    const osh_delta_rule_attr *at = attr;
    (void)in_width, (void)out_width, (void)dt;
    return osh_arena_gross(
        (size_t)(osh_scan_blocks(n_tokens, at->v_heads) * at->k_dim * at->v_dim) * sizeof(float));
}

size_t osh_ssm_scan_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                 int64_t n_tokens, osh_dtype dt)
{
    const osh_ssm_scan_attr *at = attr;
    (void)in_width, (void)out_width, (void)dt;
    return osh_arena_gross(
        (size_t)(osh_scan_blocks(n_tokens, at->heads) * at->head_dim * at->state) * sizeof(float));
}

int64_t osh_hessian_columns(int64_t m) { return OSH_HESSIAN_PIECE / m / 256 * 256; }

int64_t osh_hessian_parts(int64_t n_tokens)
{
    int64_t chunks = n_tokens / OSH_HESSIAN_TOKENS;
    return chunks < 1 ? 1 : osh_min64(chunks, OSH_HESSIAN_PARTS);
}

size_t osh_hessian_parts_bytes(int64_t n_tokens, int64_t I)
{
    int64_t most = 0; // number of elements of the largest piece of H
    for (int64_t row = 0, m, n; row < I; row += m) {
        m = osh_min64(OSH_HESSIAN_ROWS, I - row);
        n = osh_min64(osh_hessian_columns(m), row + m);
        if (m * n > most) most = m * n;
    }
    return (size_t)(osh_hessian_parts(n_tokens) * most) * sizeof(float);
}

size_t osh_hessian_accum_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt)
{
    (void)attr, (void)out_width;
    /* Two allocations. The first has the parts of one piece. The second has the last tokens of a
     * batch, which are padded with zeros. */
    return osh_arena_gross(osh_hessian_parts_bytes(n_tokens, in_width[0])) +
           osh_arena_gross((size_t)(OSH_HESSIAN_GRAIN * in_width[0]) * osh_dtype_bytes(dt));
}

int64_t osh_gathered_rows(int64_t n)
{
    return osh_div_up(n, OSH_HESSIAN_GRAIN) * OSH_HESSIAN_GRAIN;
}

size_t osh_shift_accum_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt)
{
    size_t row = (size_t)in_width[0] * osh_dtype_bytes(dt);
    int64_t grains = osh_div_up(osh_min64(n_tokens, OSH_HESSIAN_TOKENS), OSH_HESSIAN_GRAIN);
    (void)attr, (void)out_width;
    return osh_arena_gross((size_t)(grains * OSH_HESSIAN_GRAIN) * row) +
           osh_arena_gross(OSH_HESSIAN_GRAIN * row);
}

size_t osh_channel_squares_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt)
{
    (void)attr, (void)out_width, (void)dt;
    int64_t chunks = osh_div_up(n_tokens, OSH_SQUARES_ROWS);
    return osh_arena_gross((size_t)(chunks * in_width[0]) * sizeof(double));
}

/* ---- ops of the GPTQ solve ---- */
size_t osh_gptq_shift_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                   int64_t n_tokens, osh_dtype dt)
{
    int64_t I = in_width[0];
    (void)attr, (void)out_width, (void)n_tokens, (void)dt;
    return 2 * osh_arena_gross((size_t)(osh_min64(OSH_TARGET_ROWS, I) * I) * sizeof(float));
}

size_t osh_gptq_target_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt)
{
    (void)attr, (void)out_width, (void)dt;
    return osh_arena_gross((size_t)(osh_min64(OSH_TARGET_ROWS, n_tokens) * in_width[0]) *
                           sizeof(float));
}

int64_t osh_factors_ld(int64_t I) { return (I + 3) / 4 * 4; }

size_t osh_factors_offsets(size_t at[OSH_FACTORS_N_ARRAYS], int64_t I, int n, int most)
{
    size_t bytes[OSH_FACTORS_N_ARRAYS], sum = 0, row = (size_t)osh_factors_ld(I) * sizeof(float),
                                        all = (size_t)n;
    bytes[OSH_FACTORS_A] = (size_t)most * (size_t)I * row;
    bytes[OSH_FACTORS_LEFT] = I > OSH_FACTORS_SIDE ? (size_t)most * OSH_FACTORS_SIDE * row : 0;
    bytes[OSH_FACTORS_H] = all * sizeof(float *);
    bytes[OSH_FACTORS_PERM] = bytes[OSH_FACTORS_DIAG] = all * (size_t)I * sizeof(float);
    bytes[OSH_FACTORS_FAILED] = all * sizeof(int);
    for (int i = 0; i < OSH_FACTORS_N_ARRAYS; i++) at[i] = sum, sum += osh_arena_gross(bytes[i]);
    return sum;
}

int osh_factors_at_once(int64_t I, int n, size_t room)
{
    size_t at[OSH_FACTORS_N_ARRAYS];
    int most = n;
    while (most > 1 && osh_factors_offsets(at, I, n, most) > room) most--;
    return most;
}

size_t osh_gptq_factors_device_bytes(int64_t I, int n, size_t room)
{
    size_t at[OSH_FACTORS_N_ARRAYS];
    return osh_arena_gross(osh_factors_offsets(at, I, n, osh_factors_at_once(I, n, room)));
}

size_t osh_gptq_factor_device_bytes(int64_t I)
{
    return I <= OSH_FACTORS_MOST ? osh_gptq_factors_device_bytes(I, 1, 0)
                                 : osh_cuda_triangle_bytes(I);
}

size_t osh_gptq_diags_device_bytes(int64_t I, int n)
{
    return osh_arena_gross(osh_arena_gross((size_t)n * sizeof(float *)) +
                           (size_t)n * (size_t)I * sizeof(float));
}

/* ---- peak.cu ---- */
const osh_attention_attr osh_peak_heads = {32, 8, 128, 0, 0, 0, 0};

void osh_peak_widths(int64_t of[4])
{
    of[0] = of[3] = osh_peak_heads.n_heads * osh_peak_heads.head_dim;
    of[1] = of[2] = osh_peak_heads.n_kv_heads * osh_peak_heads.head_dim;
}

size_t osh_peak_attention_bytes(int64_t n_samples, int64_t n_tokens)
{
    int64_t width[4], rows = n_samples * n_tokens;
    size_t n = 0;
    osh_peak_widths(width);
    for (int i = 0; i < 4; i++)
        n += osh_arena_gross((size_t)(rows * width[i]) * osh_dtype_bytes(OSH_BF16));
    return n + osh_attention_cuda_scratch(&osh_peak_heads, width, width[3], rows, OSH_BF16);
}
