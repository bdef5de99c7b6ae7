/* cuda.h - the CUDA column of ops.def, callable from C.
 *
 * Tensors are in GPU memory (osh_tensor.device) unless an argument says otherwise. Scratch comes from
 * the device's arena (OSH_LIFE_SHORT) and is freed before the call returns. Results depend on the shapes
 * and on the GPU, never on the size of the arena. gpu/gpu.h says what a call waits for and how it fails. */
#ifndef OSH_OPS_CUDA_H
#define OSH_OPS_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
#include "gpu/gpu.h"
#include "ops/op.h"

/* What the card sustains over `seconds`: operations a second in products of side x side matrices (three of them lie in
 * the arena) and in causal attention of BF16, 32 heads of 128 on 8, of n_samples of n_tokens (what is hidden is not
 * counted); bytes a second copied inside its memory (counted once) and from page-locked memory of the host. */
osh_status osh_cuda_peak_product(osh_ctx *cx, double *flops_per_s, osh_device *d, osh_dtype dtype, int64_t side,
                                 double seconds);
osh_status osh_cuda_peak_attention(osh_ctx *cx, double *flops_per_s, osh_device *d, int64_t n_samples,
                                   int64_t n_tokens, double seconds);
size_t osh_cuda_peak_attention_bytes(int64_t n_samples, int64_t n_tokens); // of the arena
osh_status osh_cuda_peak_copies(osh_ctx *cx, double *inside_per_s, double *put_per_s, osh_device *d, int64_t n_bytes,
                                double seconds);

/* Writes osh_wordsum (ops/wordsum.h) of n_bytes bytes of GPU memory to *sum, which is GPU memory, too. */
osh_status osh_cuda_wordsum(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p, size_t n_bytes);
/* The first of these tensors on a card with a stage that has an element which is not finite; n: none. Waits. */
osh_status osh_cuda_all_finite(osh_ctx *cx, int *first, osh_device *d, const osh_tensor *const *tensors, int n);

/* ---- experts on the rows that the router sends to them ---- */
/* route [N, E]: lists, of the card, are the number of rows of each expert [E] and the rows, ascending [E, N]; n, of the
 * host: those numbers. Waits. */
osh_status osh_cuda_routes(osh_ctx *cx, int32_t *n, int32_t *lists, const osh_tensor *route);
static inline int64_t osh_cuda_routes_n(int64_t E, int64_t N) { return E + E * N; } // elements of lists
/* Op linear of a->rows alone; whether it can: bf16 or f16, no bias, widths of whole 16 bytes. */
bool osh_cuda_linear_takes_rows(const osh_op_args *a);
osh_status osh_cuda_linear_rows(osh_ctx *cx, const osh_op_args *a);
/* As osh_cuda_finite, of these rows of x. */
osh_status osh_cuda_finite_rows(osh_ctx *cx, int64_t *first, const osh_tensor *x, const osh_op_rows *rows);
typedef struct osh_cuda_expert { // views
    const osh_tensor *gate, *up, *down; // weights [F, D], [F, D], [D, F] in the dtype of x
    osh_op_rows rows;
    int32_t column;  // of route
    int64_t *found;  // of the card: the first element of [N, F] behind the activation that is not finite; NULL: none
} osh_cuda_expert;
typedef struct osh_cuda_mixture { // views
    const osh_cuda_expert *experts; // in the order in which they join the sum
    int n_experts;
    const osh_tensor *x, *route, *sum; // [N, D], [N, E], [N, D]
    osh_tensor *out;                   // [N, D]; may be sum
    const osh_glu_attr *glu;
    bool plain;                        // as osh_moe_combine_attr
} osh_cuda_mixture;
/* The bytes of ops linear, glu, linear and moe_combine of these rows, expert by expert. D and F are multiples of 8. */
osh_status osh_cuda_mixture_run(osh_ctx *cx, const osh_cuda_mixture *m);
size_t osh_cuda_mixture_bytes(int64_t N, int64_t D, int64_t F, int n_experts); // of the arena, gross
bool osh_cuda_mixture_takes(osh_dtype dt, int64_t D, int64_t F);

/* The column. Shapes, dtypes and rounding points as in the reference of each op. */
osh_status osh_embedding_cuda(osh_ctx *cx, const osh_op_args *a); // ids may lie in host memory
osh_status osh_rms_norm_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_linear_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_rope_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_attention_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_glu_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_add_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_add_f32_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_layer_norm_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_slice_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_join_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_scale_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_positions_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_sigmoid_gate_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_routed_scale_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_position_scale_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gain_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_conv1d_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_delta_rule_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_ssm_scan_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gated_norm_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_act_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_moe_router_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_moe_gate_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_moe_combine_cuda(osh_ctx *cx, const osh_op_args *a);
/* Products of the tokens of all samples at once. Squares on the diagonal of H are written whole: above the diagonal
 * there is nothing to rely on behind it. */
osh_status osh_hessian_accum_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_shift_accum_cuda(osh_ctx *cx, const osh_op_args *a); // products of all tokens at once
osh_status osh_nll_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_kl_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gptq_factor_cuda(osh_ctx *cx, const osh_op_args *a); // waits: not positive definite is its status
osh_status osh_gptq_shift_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gptq_target_cuda(osh_ctx *cx, const osh_op_args *a);
/* Gradients: all tensors lie on the device, dout and din in F32. */
osh_status osh_rms_norm_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_linear_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_rope_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_attention_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_glu_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_add_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_layer_norm_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_act_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_scale_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_slice_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
/* Device bytes (gross: osh_arena_gross of each block) that one call takes at most, as osh_op.scratch; NULL in the op's
 * row where none. */
size_t osh_embedding_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, osh_dtype dt);
size_t osh_linear_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, osh_dtype dt);
size_t osh_rope_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                             int64_t n_tokens, osh_dtype dt);
size_t osh_delta_rule_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                   osh_dtype dt);
size_t osh_ssm_scan_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                 osh_dtype dt);
size_t osh_attention_sinks_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                        osh_dtype dt);
size_t osh_attention_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, osh_dtype dt);
size_t osh_hessian_accum_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt);
size_t osh_nll_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, osh_dtype dt);
size_t osh_kl_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                           int64_t n_tokens, osh_dtype dt);
size_t osh_shift_accum_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt);
size_t osh_gptq_shift_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                   int64_t n_tokens, osh_dtype dt);
size_t osh_gptq_target_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt); // n_tokens: rows of w
size_t osh_rms_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                      osh_dtype dt);
size_t osh_linear_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                    osh_dtype dt);
size_t osh_attention_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                       osh_dtype dt);
size_t osh_layer_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                        osh_dtype dt);
size_t osh_gptq_factor_cuda_scratch(int64_t I);

/* Index of the first non-finite element of x into *first (device memory, int64): the lowest of what is there already
 * and this one plus `base`; untouched where all are finite. Does not wait. */
osh_status osh_cuda_finite(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base);
/* Smallest and largest element of rows [row, row + n) of x [N, D]: minmax, two f32 of device memory, is widened. */
osh_status osh_cuda_minmax(osh_ctx *cx, float *minmax, const osh_tensor *x, int64_t row, int64_t n);

/* ---- factors of Hessians ---- */
/* Factors of Hessians [I, I] of no more than OSH_FACTORS_MOST columns, in their place: U of gptq_factor; of H in the
 * order of perm with diag, its lower triangle read. failed[k] 1: there is none, H is as it was. What U is does not
 * depend on the others. Worked on are as many at a time as the arena has room for. Waits once. */
enum { OSH_FACTORS_MOST = 1024 };
typedef struct osh_gptq_hessians {
    float *const *h;     // [n] of the device; the lists are the host's
    const int32_t *perm; // [n, I] solving order -> column; NULL: as it is
    const float *diag;   // [n, I] in solving order; NULL: as it is
    int64_t I;
    int n;
} osh_gptq_hessians;
osh_status osh_gptq_factors_cuda(osh_ctx *cx, osh_device *d, int *failed, const osh_gptq_hessians *x);
size_t osh_gptq_factors_cuda_bytes(int64_t I, int n, size_t room); // of the arena; more than `room`: the least
osh_status osh_gptq_diags_cuda(osh_ctx *cx, osh_device *d, float *diag, const osh_gptq_hessians *x); // host: [n, I]
size_t osh_gptq_diags_cuda_bytes(int64_t I, int n);

#ifdef __cplusplus
}
#endif

/* A row of the op table: the function where CUDA was built, else NULL. */
#ifdef OSH_CUDA_BUILT
#define OSH_CUDA_FN(f) f
#else
#define OSH_CUDA_FN(f) NULL
#endif
#endif
