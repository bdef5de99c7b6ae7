/* cuda.h - the CUDA kernels of the ops of ops.def, callable from C.
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
#include "ops/op.h"

/* The next three functions measure the speed of the GPU for about `seconds`:
 *   product    floating-point operations per second in products of [side, side] matrices; the
 *              arena must have space for three matrices
 *   attention  floating-point operations per second in causal attention, BF16, 32 heads of 128
 *              on 8 kv heads, n_samples samples of n_tokens tokens; masked keys are not counted
 *   copies     bytes per second copied inside GPU memory (counted once), and from page-locked
 *              memory of the host */
osh_status osh_cuda_peak_product(osh_ctx *cx, double *flops_per_s, osh_device *d, osh_dtype dtype,
                                 int64_t side, double seconds);
osh_status osh_cuda_peak_attention(osh_ctx *cx, double *flops_per_s, osh_device *d,
                                   int64_t n_samples, int64_t n_tokens, double seconds);
/* Returns the number of bytes that osh_cuda_peak_attention allocates in the arena. */
size_t osh_cuda_peak_attention_bytes(int64_t n_samples, int64_t n_tokens);
osh_status osh_cuda_peak_copies(osh_ctx *cx, double *inside_per_s, double *put_per_s, osh_device *d,
                                int64_t n_bytes, double seconds);

/* Computes osh_wordsum (ops/wordsum.h) of n_bytes bytes of GPU memory at p. Writes the result to
 * *sum, which is also in GPU memory. */
osh_status osh_cuda_wordsum(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p,
                            size_t n_bytes);
/* Finds the first of n tensors that contains a NaN or infinity. Sets *first to its index, or to n
 * if all values are finite. Requires osh_cuda_stage_open. Waits for the GPU. */
osh_status osh_cuda_all_finite(osh_ctx *cx, int *first, osh_device *d,
                               const osh_tensor *const *tensors, int n);

/* ---- experts on the rows that are routed to them ---- */
/* Lists the rows (tokens) of each expert in route [N, E]. Writes to `lists`, in GPU memory, the
 * number of rows of each expert [E], then the row numbers of each expert in ascending order [E, N].
 * Also copies the numbers of rows [E] to n, in host memory. Waits for the GPU. */
osh_status osh_cuda_routes(osh_ctx *cx, int32_t *n, int32_t *lists, const osh_tensor *route);
/* Counts the rows of each expert: n [E], on the host. Waits for the GPU. */
osh_status osh_cuda_count_routes(osh_ctx *cx, int32_t *n, const osh_tensor *route);
/* Returns the number of elements of the argument `lists` of osh_cuda_routes. */
static inline int64_t osh_cuda_routes_n(int64_t E, int64_t N) { return E + E * N; }
/* osh_cuda_linear_rows runs the op linear only for the rows of a->rows. osh_cuda_linear_takes_rows
 * returns true if osh_cuda_linear_rows supports the arguments: bf16 or f16, no bias, and rows whose
 * number of bytes is a multiple of 16. */
bool osh_cuda_linear_takes_rows(const osh_op_args *a);
osh_status osh_cuda_linear_rows(osh_ctx *cx, const osh_op_args *a);
/* Works like osh_cuda_finite for the rows of x that `rows` lists. */
osh_status osh_cuda_finite_rows(osh_ctx *cx, int64_t *first, const osh_tensor *x,
                                const osh_op_rows *rows);
typedef struct osh_cuda_expert { // an expert of a mixture; all pointers are views
    /* Weights: gate and up [F, D], down [D, F], in the dtype of x. */
    const osh_tensor *gate, *up, *down;
    osh_op_rows rows;
    int32_t column; // column of the expert in `route`
    /* *found, in GPU memory, becomes the index of the first NaN or infinity of the activations [N,
     * F] if that is smaller than its old value. NULL: no search. */
    int64_t *found;
} osh_cuda_expert;
typedef struct osh_cuda_mixture { // arguments of a mixture of experts; all pointers are views
    /* experts, in the order in which their outputs are added, [n_experts]. */
    const osh_cuda_expert *experts;
    int n_experts;
    /* x [N, D]: input; route [N, E]: the router's weights; sum [N, D]: added to the output. */
    const osh_tensor *x, *route, *sum;
    osh_tensor *out;                   // output [N, D]; may be the same tensor as `sum`
    const osh_glu_attr *glu;
    /* True: the outputs of the experts are added without multiplication by the router's weights
     * (osh_moe_combine_attr). */
    bool plain;
} osh_cuda_mixture;
/* Computes out = sum + the outputs of the experts, where an expert computes only the rows that are
 * routed to it. The result has the same bytes as the ops linear (gate, up), glu, linear (down) and
 * moe_combine for one expert after the other. D and F must be multiples of 8. */
osh_status osh_cuda_mixture_run(osh_ctx *cx, const osh_cuda_mixture *m);
/* Returns the number of bytes that osh_cuda_mixture_run allocates in the arena, with the
 * allocator's overhead. */
size_t osh_cuda_mixture_bytes(int64_t N, int64_t D, int64_t F, int n_experts);
/* Returns true if osh_cuda_mixture_run supports the dtype and the widths. */
bool osh_cuda_mixture_takes(osh_dtype dt, int64_t D, int64_t F);

/* The CUDA kernels of the ops. Shapes, dtypes and rounding are those of the op's reference
 * kernel. */
osh_status osh_embedding_cuda(osh_ctx *cx, const osh_op_args *a); // ids may be in host memory
osh_status osh_rms_norm_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_linear_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_rope_cuda(osh_ctx *cx, const osh_op_args *a);
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
/* The next two functions merge two states of a statistic (ops/merge.c). */
osh_status osh_merge_lower_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_merge_sums_cuda(osh_ctx *cx, const osh_op_args *a); // supports only states of F32
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
/* Functions for osh_op.scratch_cuda. Each returns an upper bound of the bytes that one call of the
 * op allocates in the arena: the sum of osh_arena_gross over all blocks. */
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
/* n_tokens: number of rows of w. */
size_t osh_gptq_target_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt);
size_t osh_rms_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt);
size_t osh_linear_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt);
size_t osh_attention_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                       int64_t n_tokens, osh_dtype dt);
size_t osh_layer_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt);
size_t osh_gptq_factor_cuda_scratch(int64_t I);

/* Sets *first, in GPU memory, to `base` plus the index of the first NaN or infinity of x if that
 * number is smaller than *first. Does not wait for the GPU. */
osh_status osh_cuda_finite(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base);
/* Extends the range [*low, *high], in GPU memory, so that it contains all elements of rows [row,
 * row + n) of x [N, D]. NaN is ignored. */
osh_status osh_cuda_minmax(osh_ctx *cx, float *low, float *high, const osh_tensor *x, int64_t row,
                           int64_t n);

/* ---- factors of Hessians ---- */
/* Replaces n Hessians [I, I] of I <= OSH_FACTORS_MOST columns by the factors U of the op
 * gptq_factor. Reads only the lower triangles. failed[k] becomes 1 if Hessian k is not positive
 * definite; that Hessian is then unchanged. U of a Hessian does not depend on the other Hessians.
 * The free bytes of the arena limit how many Hessians are computed at a time. Waits for the GPU
 * once. */
enum { OSH_FACTORS_MOST = 1024 };
typedef struct osh_gptq_hessians {
    /* Pointers to Hessians in GPU memory, [n]; the list h and the lists below are in host
     * memory. */
    float *const *h;
    /* Column at each position of the solving order, [n, I]; NULL: position j is column j. */
    const int32_t *perm;
    /* Diagonals of the Hessians in solving order, [n, I]; NULL: the diagonals of h are used. */
    const float *diag;
    int64_t I;
    int n;
} osh_gptq_hessians;
osh_status osh_gptq_factors_cuda(osh_ctx *cx, osh_device *d, int *failed,
                                 const osh_gptq_hessians *x);
/* Returns the number of bytes that osh_gptq_factors_cuda allocates in the arena for n Hessians, if
 * it computes as many at a time as fit in `room` bytes, at least one. */
size_t osh_gptq_factors_cuda_bytes(int64_t I, int n, size_t room);
/* Copies the diagonals of the Hessians from GPU memory to diag [n, I] in host memory. */
osh_status osh_gptq_diags_cuda(osh_ctx *cx, osh_device *d, float *diag, const osh_gptq_hessians *x);
size_t osh_gptq_diags_cuda_bytes(int64_t I, int n);

#ifdef __cplusplus
}
#endif

/* OSH_CUDA_FN(f) is f if the binary has CUDA, else NULL. The tables of ops use it. */
#ifdef OSH_CUDA_BUILT
#define OSH_CUDA_FN(f) f
#else
#define OSH_CUDA_FN(f) NULL
#endif
#endif
