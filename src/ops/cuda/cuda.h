/* cuda.h - declares the CUDA kernels of the ops of ops.def, callable from C.
 *
 * Tensors are in GPU memory (osh_tensor.device) unless an argument says otherwise. Scratch comes
 * from the device's arena (OSH_LIFE_SHORT) and is freed before the call returns. Results depend on
 * the shapes and on the GPU, never on the size of the arena. Unless a comment says otherwise, a
 * call does not wait for the GPU. gpu/gpu.h describes errors. Shape letters: op.h. */
#ifndef OSH_OPS_CUDA_H
#define OSH_OPS_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
#include "gpu/gpu.h"
#include "ops/device_ops.h"

/* ---- members of osh_device_ops (ops/device_ops.h) ---- */
extern const osh_device_speed osh_cuda_speed;
osh_status osh_cuda_wordsum(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p,
                            size_t n_bytes);
osh_status osh_cuda_finite(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base);
osh_status osh_cuda_finite_rows(osh_ctx *cx, int64_t *first, const osh_tensor *x,
                                const osh_op_rows *rows);
osh_status osh_cuda_all_finite(osh_ctx *cx, int *first, osh_device *d,
                               const osh_tensor *const *tensors, int n);
osh_status osh_cuda_minmax(osh_ctx *cx, float *low, float *high, const osh_tensor *x, int64_t row,
                           int64_t n);
osh_status osh_cuda_minmax_rows(osh_ctx *cx, float *low, float *high, const osh_tensor *x,
                                const osh_sampled_rows *of);
osh_status osh_cuda_routes(osh_ctx *cx, int32_t *n, int32_t *lists, const osh_tensor *route);
osh_status osh_cuda_count_routes(osh_ctx *cx, int32_t *n, const osh_tensor *route);
osh_status osh_cuda_mixture_run(osh_ctx *cx, const osh_mixture *m);
osh_status osh_cuda_gather(osh_ctx *cx, const osh_tensor *out, const osh_tensor *x,
                           const osh_op_rows *rows);
osh_status osh_gptq_factors_cuda(osh_ctx *cx, osh_device *d, int *failed,
                                 const osh_gptq_hessians *x);

/* osh_cuda_linear_rows runs the op `linear` only for the rows of a->rows.
 * osh_cuda_linear_takes_rows returns true if osh_cuda_linear_rows supports the arguments: bf16 or
 * f16, no bias, and rows whose number of bytes is a multiple of 16. */
bool osh_cuda_linear_takes_rows(const osh_op_args *a);
osh_status osh_cuda_linear_rows(osh_ctx *cx, const osh_op_args *a);

/* The CUDA kernels of the ops. Shapes, dtypes and rounding are those of the op's reference
 * kernel. */
osh_status osh_embedding_cuda(osh_ctx *cx, const osh_op_args *a); // ids may be in host memory
osh_status osh_rms_norm_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_linear_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_rope_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_rotate_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_attention_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_glu_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_add_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_add_f32_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_clamp_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_layer_norm_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_slice_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_join_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_scale_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_positions_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_sigmoid_gate_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_product_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_mix_cuda(osh_ctx *cx, const osh_op_args *a); // elements have 2 or 4 bytes
/* If a->rows is not NULL, writes only the rows of out that a->rows lists. */
osh_status osh_routed_rows_cuda(osh_ctx *cx, const osh_op_args *a);
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
/* Multiplies the tokens of all samples at once. Elements of H above the diagonal are undefined
 * after the call, because diagonal blocks are computed as a whole. */
osh_status osh_hessian_accum_cuda(osh_ctx *cx, const osh_op_args *a);
/* Multiplies the tokens of all samples at once. */
osh_status osh_shift_accum_cuda(osh_ctx *cx, const osh_op_args *a);
/* Sums the squares in chunks of rows, and then adds the sums of the chunks in order. */
osh_status osh_channel_squares_cuda(osh_ctx *cx, const osh_op_args *a);
/* The next two functions merge two states of a statistic (ops/merge.c). */
osh_status osh_merge_lower_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_merge_sums_cuda(osh_ctx *cx, const osh_op_args *a); // merges states of F32 or F64
osh_status osh_nll_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_kl_cuda(osh_ctx *cx, const osh_op_args *a);
/* Waits for the GPU, because the returned status tells if H is positive definite. */
osh_status osh_gptq_factor_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gptq_shift_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gptq_target_cuda(osh_ctx *cx, const osh_op_args *a);
/* Kernels of the gradients of the ops. All tensors are on the device; dout and din are F32. */
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
osh_status osh_clamp_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_join_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_product_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_positions_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_position_scale_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_gain_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_sigmoid_gate_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_routed_scale_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_routed_rows_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_moe_combine_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_moe_router_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_moe_gate_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_rotate_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_conv1d_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_gated_norm_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_delta_rule_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
osh_status osh_ssm_scan_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
/* Computes the gradients of linear. The stored weight is first rounded to the dtype `compute`. */
osh_status osh_cuda_linear_back(osh_ctx *cx, const osh_grad_args *a, osh_dtype compute);
osh_status osh_kl_grad_cuda(osh_ctx *cx, const osh_grad_args *a);
/* Functions for osh_op.arena_bytes. Each returns an upper bound of the bytes that one call of the
 * op allocates in the arena: the sum of osh_arena_gross over all blocks. */
size_t osh_embedding_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, osh_dtype dt);
size_t osh_linear_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, osh_dtype dt);
size_t osh_rope_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                             int64_t n_tokens, osh_dtype dt);
size_t osh_rotate_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, osh_dtype dt);
size_t osh_delta_rule_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                   int64_t n_tokens, osh_dtype dt);
size_t osh_ssm_scan_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                 int64_t n_tokens, osh_dtype dt);
size_t osh_attention_sinks_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt);
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
size_t osh_channel_squares_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt);
size_t osh_gptq_shift_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                   int64_t n_tokens, osh_dtype dt);
/* n_tokens is the number of rows of w. */
size_t osh_gptq_target_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt);
size_t osh_rms_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt);
size_t osh_linear_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt);
size_t osh_attention_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                       int64_t n_tokens, osh_dtype dt);
size_t osh_kl_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                int64_t n_tokens, osh_dtype dt);
size_t osh_layer_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt);
size_t osh_moe_router_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt);
size_t osh_moe_gate_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt);
size_t osh_gain_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, osh_dtype dt);
size_t osh_rotate_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt);
size_t osh_conv1d_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt);
size_t osh_gated_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt);
size_t osh_delta_rule_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt);
size_t osh_ssm_scan_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt);

#ifdef __cplusplus
}
#endif
#endif
