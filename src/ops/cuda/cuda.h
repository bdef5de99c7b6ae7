/* cuda.h - the CUDA kernels of the ops of ops.def, callable from C.
 *
 * Tensors are in GPU memory (osh_tensor.device) unless an argument says otherwise. Scratch comes
 * from the device's arena (OSH_LIFE_SHORT) and is freed before the call returns. Results depend on
 * the shapes and on the GPU, never on the size of the arena. gpu/gpu.h says what a call waits for
 * and how it fails. */
#ifndef OSH_OPS_CUDA_H
#define OSH_OPS_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
#include "gpu/gpu.h"
#include "ops/op.h"

/* These functions measure the speed of the GPU over `seconds`:
 *   product    operations per second in products of side x side matrices; the arena must
 *              have room for three
 *   attention  operations per second in causal attention, BF16, 32 heads of 128 on 8 kv heads,
 *              n_samples samples of n_tokens tokens; masked keys are not counted
 *   copies     bytes per second copied inside its memory (counted once) and from page-locked
 *              memory of the host */
osh_status osh_cuda_peak_product(osh_ctx *cx, double *flops_per_s, osh_device *d, osh_dtype dtype,
                                 int64_t side, double seconds);
osh_status osh_cuda_peak_attention(osh_ctx *cx, double *flops_per_s, osh_device *d,
                                   int64_t n_samples, int64_t n_tokens, double seconds);
/* Returns the bytes of the arena that osh_cuda_peak_attention needs. */
size_t osh_cuda_peak_attention_bytes(int64_t n_samples, int64_t n_tokens);
osh_status osh_cuda_peak_copies(osh_ctx *cx, double *inside_per_s, double *put_per_s, osh_device *d,
                                int64_t n_bytes, double seconds);

/* Computes osh_wordsum (ops/wordsum.h) of n_bytes bytes of GPU memory and writes it to *sum, which
 * is in GPU memory too. */
osh_status osh_cuda_wordsum(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p,
                            size_t n_bytes);
/* Finds the first of n tensors that has a non-finite element. *first is its index, or n if there is
 * none. The device must have a stage. Waits for the GPU. */
osh_status osh_cuda_all_finite(osh_ctx *cx, int *first, osh_device *d,
                               const osh_tensor *const *tensors, int n);

/* ---- experts on the rows that are routed to them ---- */
/* Lists the rows of each expert in route [N, E]. `lists` is in GPU memory: the number of rows of
 * each expert [E], then its rows in ascending order [E, N]. n [E], on the host, gets the numbers.
 * Waits for the GPU. */
osh_status osh_cuda_routes(osh_ctx *cx, int32_t *n, int32_t *lists, const osh_tensor *route);
/* Counts the rows of each expert: n [E], on the host. Waits for the GPU. */
osh_status osh_cuda_count_routes(osh_ctx *cx, int32_t *n, const osh_tensor *route);
/* Returns the number of elements of the argument `lists` of osh_cuda_routes. */
static inline int64_t osh_cuda_routes_n(int64_t E, int64_t N) { return E + E * N; }
/* osh_cuda_linear_rows runs op linear only for the rows of a->rows. osh_cuda_linear_takes_rows
 * returns true if it supports the arguments: bf16 or f16, no bias, rows whose bytes are a multiple
 * of 16. */
bool osh_cuda_linear_takes_rows(const osh_op_args *a);
osh_status osh_cuda_linear_rows(osh_ctx *cx, const osh_op_args *a);
/* Does the same as osh_cuda_finite for some rows of x. */
osh_status osh_cuda_finite_rows(osh_ctx *cx, int64_t *first, const osh_tensor *x,
                                const osh_op_rows *rows);
typedef struct osh_cuda_expert { // all are views
    const osh_tensor *gate, *up, *down; // weights [F, D], [F, D], [D, F] in the dtype of x
    osh_op_rows rows;
    int32_t column; // column of the expert in `route`
    int64_t *found; // GPU: index of the first non-finite element of [N, F] after the activation;
                    // NULL: not computed
} osh_cuda_expert;
typedef struct osh_cuda_mixture { // all are views
    const osh_cuda_expert *experts; // in the order in which their outputs are added
    int n_experts;
    const osh_tensor *x, *route, *sum; // [N, D], [N, E], [N, D]
    osh_tensor *out;                   // [N, D]; may be `sum`
    const osh_glu_attr *glu;
    bool plain;                        // see osh_moe_combine_attr
} osh_cuda_mixture;
/* Computes the same bytes as the ops linear, glu, linear and moe_combine, expert by expert, on the
 * rows of the experts. D and F are multiples of 8. */
osh_status osh_cuda_mixture_run(osh_ctx *cx, const osh_cuda_mixture *m);
size_t osh_cuda_mixture_bytes(int64_t N, int64_t D, int64_t F, int n_experts); // arena, gross bytes
/* Returns true if osh_cuda_mixture_run supports the dtype and the widths. */
bool osh_cuda_mixture_takes(osh_dtype dt, int64_t D, int64_t F);

/* The kernels. Shapes, dtypes and rounding are those of the reference of each op. */
osh_status osh_embedding_cuda(osh_ctx *cx, const osh_op_args *a); // the ids may be in host memory
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
osh_status osh_product_cuda(osh_ctx *cx, const osh_op_args *a);
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
/* Multiplies the tokens of all samples at once. Squares on the diagonal of H are computed whole:
 * elements above the diagonal are undefined after the call. */
osh_status osh_hessian_accum_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_shift_accum_cuda(osh_ctx *cx, const osh_op_args *a); // multiplies all tokens at once
/* These merge two states of a statistic (merge.c). */
osh_status osh_merge_lower_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_merge_sums_cuda(osh_ctx *cx, const osh_op_args *a); // for F32 only
osh_status osh_nll_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_kl_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gptq_factor_cuda(osh_ctx *cx, const osh_op_args *a); // waits for the GPU, to return
                                                                    // the status
osh_status osh_gptq_shift_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_gptq_target_cuda(osh_ctx *cx, const osh_op_args *a);
/* Gradients. All tensors are on the device; dout and din are F32. */
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
/* The scratch_cuda functions of the ops. They return the most bytes of the device that one call
 * needs, as a sum of osh_arena_gross of each block. */
size_t osh_embedding_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, osh_dtype dt);
size_t osh_linear_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, osh_dtype dt);
size_t osh_rope_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
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
size_t osh_gptq_shift_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                   int64_t n_tokens, osh_dtype dt);
size_t osh_gptq_target_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt); // n_tokens: rows of w
size_t osh_rms_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt);
size_t osh_linear_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt);
size_t osh_attention_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                       int64_t n_tokens, osh_dtype dt);
size_t osh_layer_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt);
size_t osh_gptq_factor_cuda_scratch(int64_t I);

/* Lowers *first (int64 in device memory) to `base` plus the index of the first non-finite element
 * of x. *first does not change if all elements are finite. Does not wait for the GPU. */
osh_status osh_cuda_finite(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base);
/* Extends the range [*low, *high], in device memory, to the smallest and the largest element of
 * rows [row, row + n) of x [N, D]. */
osh_status osh_cuda_minmax(osh_ctx *cx, float *low, float *high, const osh_tensor *x, int64_t row,
                           int64_t n);

/* ---- factors of Hessians ---- */
/* Replaces Hessians [I, I] of at most OSH_FACTORS_MOST columns by their factors U (gptq_factor).
 * Reads the lower triangles; `perm` and `diag` have the order and the diagonals. failed[k] becomes
 * 1 if Hessian k is not positive definite; it is then unchanged. U does not depend on the other
 * Hessians. The arena limits how many are computed at a time. Waits for the GPU once. */
enum { OSH_FACTORS_MOST = 1024 };
typedef struct osh_gptq_hessians {
    float *const *h;     // [n] pointers to device memory; this list and the lists below are in host
                         // memory
    const int32_t *perm; // [n, I] solving order -> column; NULL: the order of the columns
    const float *diag;   // [n, I] diagonals in solving order; NULL: the diagonals of h
    int64_t I;
    int n;
} osh_gptq_hessians;
osh_status osh_gptq_factors_cuda(osh_ctx *cx, osh_device *d, int *failed,
                                 const osh_gptq_hessians *x);
/* Returns the bytes of the arena for as many of n Hessians at a time as fit in `room` bytes, but at
 * least one. */
size_t osh_gptq_factors_cuda_bytes(int64_t I, int n, size_t room);
/* Copies the diagonals of the Hessians to diag [n, I] on the host. */
osh_status osh_gptq_diags_cuda(osh_ctx *cx, osh_device *d, float *diag, const osh_gptq_hessians *x);
size_t osh_gptq_diags_cuda_bytes(int64_t I, int n);

#ifdef __cplusplus
}
#endif

/* Entry of a row of the op table: the function if the binary has CUDA, else NULL. */
#ifdef OSH_CUDA_BUILT
#define OSH_CUDA_FN(f) f
#else
#define OSH_CUDA_FN(f) NULL
#endif
#endif
