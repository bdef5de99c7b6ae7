/* cuda.h - the CUDA column of ops.def, callable from C.
 *
 * Tensors lie on the device (osh_tensor.device) but for where an argument says otherwise; scratch comes from the
 * device's arena, OSH_LIFE_SHORT, and is freed before the call returns: the stream keeps the order. No call waits for
 * the device unless it gives something to the host. Results depend on the shapes and the card, never on the size of
 * the arena. A failed CUDA call is OSH_E_IO with the call's name and CUDA's text; an allocation that the arena cannot
 * make is OSH_E_NOMEM. */
#ifndef OSH_OPS_CUDA_H
#define OSH_OPS_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
#include "solver/gptq_refine.h"
#include "solver/gptq_solve.h"
#include "tensor/device.h"

#include "base/file.h"

/* Bytes of the arena's first block, the workspace of all products. The same for every card and every size of the
 * arena, since it decides which algorithms cuBLASLt may choose: so much it wants for its fastest ones on compute
 * capability 9. */
enum { OSH_CUDA_WORKSPACE = 32 << 20 };
enum { OSH_CUDA_PLAN_BYTES = 9 << 18 }; // of host memory, for how products are made: an open card has them
enum { OSH_CUDA_RESERVE = 512 << 20 }; // of a card without a budget: code, libraries' handles
/* Opens card `ordinal` and takes n_bytes of its memory, all that it will take, OSH_CUDA_WORKSPACE of it for itself.
 * OSH_E_UNSUPPORTED naming what is missing: the binary was built without CUDA, no driver, too old a driver, no card, a
 * card of a generation that the binary has no code for, no cuBLASLt or cuSOLVER. n_bytes 0: nothing is taken yet
 * (osh_cuda_free_bytes tells what there is), tensors cannot be made. */
osh_status osh_cuda_open(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes);
bool osh_cuda_built(void); // this binary has the kernels
bool osh_cuda_present(void); // built with CUDA, and a driver with a card is there
osh_status osh_cuda_free_bytes(osh_ctx *cx, size_t *n_bytes, int ordinal);
/* In use on the whole card, whoever uses it, as its driver reports it (NVML); from any thread. < 0: it does not. */
int64_t osh_cuda_driver_bytes(const osh_device *d);

/* What went another way than it should: the output is right, and takes longer. */
typedef enum osh_cuda_detour {
    OSH_DETOUR_F32,       // products of F32 without a pedantic algorithm
    OSH_DETOUR_BATCH,     // products one by one: the algorithm takes no batch of this size
    OSH_DETOUR_PAGEABLE,  // copies of values whose memory is not page-locked
    OSH_DETOUR_ELSEWHERE, // blocks of the arena that do not lie where the plan saw them
    OSH_DETOUR_FILE,      // reads of files that cuFile was to do
    OSH_N_DETOURS
} osh_cuda_detour;
const char *osh_cuda_detour_name(osh_cuda_detour which); // "products_one_by_one", ...
const char *osh_cuda_detour_text(osh_cuda_detour which); // a sentence's worth
bool osh_cuda_detour_add(osh_device *d, osh_cuda_detour which, int64_t n); // true: the first; who adds it logs it
void osh_cuda_values_add(osh_device *d, size_t in_bytes, size_t out_bytes); // to value_in_bytes and value_out_bytes

/* Of the device since it was opened. */
typedef struct osh_cuda_counters {
    int64_t put_bytes, get_bytes, ahead_bytes; // copied to the card, from it, and to it beside other work
    double put_s, get_s, ahead_s;              // seconds on the card's clock
    double hidden_s, get_hidden_s;             // of ahead_s and get_s: the work did not wait for it
    int64_t detours[OSH_N_DETOURS];
    int64_t value_in_bytes, value_out_bytes;   // of values between subgraphs: from where they rest, and to there
    int64_t file_bytes;                        // that cuFile read; not among the copies
} osh_cuda_counters;
osh_status osh_cuda_count(osh_ctx *cx, osh_device *d, osh_cuda_counters *out);
/* Time on the compute stream between two points, from events. A mark is taken in order with the work. */
typedef struct osh_cuda_mark osh_cuda_mark;
osh_status osh_cuda_mark_new(osh_ctx *cx, osh_device *d, osh_cuda_mark **out);
osh_status osh_cuda_mark_between(osh_ctx *cx, double *seconds, osh_cuda_mark *from, osh_cuda_mark *to); // waits
void osh_cuda_mark_free(osh_ctx *cx, osh_cuda_mark *m);

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

/* Page-locked memory of the host; an open card has OSH_CUDA_HOST_BYTES of it, that pieces of copies pass through. */
enum { OSH_CUDA_HOST_BYTES = 32 << 20 };
osh_status osh_cuda_host_alloc(osh_ctx *cx, osh_device *d, void **out, size_t n_bytes);
void osh_cuda_host_free(osh_ctx *cx, osh_device *d, void *p);
/* Page-locks memory that is there, whole pages of it, until unlock, which waits for the card's copies. *why: NULL, or
 * what the system or the driver has against it: the memory serves as it is, only slower. */
osh_status osh_cuda_host_lock(osh_ctx *cx, osh_device *d, const char **why, void *p, size_t n_bytes);
void osh_cuda_host_unlock(osh_ctx *cx, osh_device *d, void *p);

/* From files to the card: by cuFile (base/cufile.h) into OSH_CUDA_STAGE bytes of the arena, in whole blocks of the
 * file, and from there to their place; or through page-locked pieces of host memory. The bytes are the same. */
enum { OSH_CUDA_STAGE = (16 << 20) + 8192 };
/* Whether cuFile is there for a card: wish auto, true, false (as NULL); room: so many bytes are to spare. Why not is
 * logged, where it was wished for as a warning. */
bool osh_cuda_direct(osh_ctx *cx, int ordinal, const char *wish, bool room);
/* Takes it, where osh_cuda_direct said so for this wish: the first block behind osh_cuda_open. */
osh_status osh_cuda_stage_open(osh_ctx *cx, osh_device *d, const char *wish);
typedef struct osh_cuda_file osh_cuda_file;
/* f: a view, told osh_file_use_direct. Without a stage, or where cuFile does not take it, the host reads it. */
osh_status osh_cuda_file_open(osh_ctx *cx, osh_cuda_file **out, osh_device *d, osh_file *f);
void osh_cuda_file_close(osh_ctx *cx, osh_cuda_file *f); // NULL is fine
/* n_bytes from byte `at` of the file; in order with the work, or ahead: as put_ahead, from any thread. What cuFile
 * fails to read the host reads, and the file from then on. */
osh_status osh_cuda_file_read(osh_ctx *cx, osh_cuda_file *f, void *to, size_t n_bytes, int64_t at, bool ahead);
/* What it read is not what the file has: the host reads it from now on. */
void osh_cuda_file_distrust(osh_ctx *cx, osh_cuda_file *f, const char *why);
/* *sum, of the card: osh_wordsum (ops/wordsum.h) of bytes of the card. One with a stage has OSH_CUDA_SUMS of them. */
enum { OSH_CUDA_SUMS = 512 };
osh_status osh_cuda_wordsum(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p, size_t n_bytes);
uint64_t *osh_cuda_sums(const osh_device *d);
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
size_t osh_cuda_triangle_bytes(int64_t n); // of it, gross: what a Cholesky factor and its inverse take

/* Index of the first non-finite element of x into *first (device memory, int64): the lowest of what is there already
 * and this one plus `base`; untouched where all are finite. Does not wait. */
osh_status osh_cuda_finite(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base);
/* Smallest and largest element of rows [row, row + n) of x [N, D]: minmax, two f32 of device memory, is widened. */
osh_status osh_cuda_minmax(osh_ctx *cx, float *minmax, const osh_tensor *x, int64_t row, int64_t n);

/* ops/gptq_solve.h on the device: weights with one input in one call, or of several inputs, those of each behind each
 * other and with as many panels. I, block_size, dq_dtype and the dtype of w are those of the first, perm and dead those
 * of the first with the same u; what a job gets does not depend on the others. h [I, I] f32 and diag stay on the
 * device; a->w (stored dtype), a->target, a->u and a->w_out lie there, the other members in host memory; codes,
 * loss and squares are there when solve returns. Worked on are as many rows at a time as the arena has room for. */
osh_status osh_gptq_solve_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n);
typedef struct osh_gptq_group { // of jobs, for what they take
    int64_t I, block_size; // given; the others begin with 0
    int64_t n_jobs, n_panels, n_scales, n_scale_cols;
    int64_t n_inputs; // of their jobs, all together; add makes 1 of 0
} osh_gptq_group;
void osh_gptq_group_add(osh_gptq_group *g, int64_t O, int64_t n_scale_cols);
size_t osh_gptq_solve_cuda_bytes(const osh_gptq_group *g, size_t room); // of the arena; more than `room`: the least
size_t osh_gptq_solve_cuda_host_bytes(const osh_gptq_group *g);
/* ops/gptq_scales.h and ops/gptq_refine.h: w and h lie on the device, the other members in host memory, where the
 * results are when the call returns. Rows are worked on in tiles that follow from the shape. */
osh_status osh_gptq_scales_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a);
size_t osh_gptq_scales_cuda_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block); // of the arena
osh_status osh_gptq_refine_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a);
size_t osh_gptq_refine_cuda_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block);
size_t osh_gptq_refine_cuda_host_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block, int n_threads);
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
osh_status osh_gptq_permute_cuda(osh_ctx *cx, osh_tensor *h, const int32_t *perm); // perm: host
osh_status osh_gptq_restore_cuda(osh_ctx *cx, osh_tensor *h, const float *diag);   // diag: host
size_t osh_gptq_permute_cuda_bytes(int64_t I);
osh_status osh_gptq_diag_cuda(osh_ctx *cx, float *diag, const osh_tensor *h);        // to the host
osh_status osh_gptq_set_diag_cuda(osh_ctx *cx, osh_tensor *h, const float *diag);    // from the host

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
