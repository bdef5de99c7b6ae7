/* device_ops.h - declares functions that work on the memory of a device but are not in ops.def.
 * Also declares the sizes of their scratch.
 *
 * Tensors are in device memory (osh_tensor.device), unless a comment says otherwise. Scratch comes
 * from the device's arena (OSH_LIFE_SHORT), and is freed before the call returns. A call does not
 * wait for the device, unless its comment says so. op.h explains the letters of shapes. */
#ifndef OSH_DEVICE_OPS_H
#define OSH_DEVICE_OPS_H
#include "ops/op.h"

/* Functions that measure the speed of a device for about `seconds`. */
typedef struct osh_device_speed {
    /* Measures floating-point operations per second of products of [side, side] matrices. The arena
     * must have space for three matrices. */
    osh_status (*product)(osh_ctx *cx, double *flops_per_s, osh_device *d, osh_dtype dtype,
                          int64_t side, double seconds);
    /* Measures floating-point operations per second of causal attention: BF16, 32 heads of 128
     * elements on 8 kv heads, n_samples samples of n_tokens tokens. Operations on masked keys are
     * not counted. */
    osh_status (*attention)(osh_ctx *cx, double *flops_per_s, osh_device *d, int64_t n_samples,
                            int64_t n_tokens, double seconds);
    /* Measures bytes per second of copies: inside of device memory, and from page-locked host
     * memory to the device. A copied byte counts once. */
    osh_status (*copies)(osh_ctx *cx, double *inside_per_s, double *put_per_s, osh_device *d,
                         int64_t n_bytes, double seconds);
} osh_device_speed;
/* Returns the number of bytes that osh_device_speed.attention allocates in the arena. */
size_t osh_peak_attention_bytes(int64_t n_samples, int64_t n_tokens);

typedef struct osh_mixture_expert { // an expert of a mixture; all pointers are views
    /* Weights: gate and up [F, D], down [D, F] or NULL, in the dtype of x. */
    const osh_tensor *gate, *up, *down;
    osh_op_rows rows;
    int32_t column; // column of the expert in `route`
    /* NULL: no search for NaN or infinity. Otherwise, *found (in device memory) becomes the
     * index of the first NaN or infinity of the activations [N, F], if this index is smaller
     * than *found. */
    int64_t *found;
} osh_mixture_expert;
typedef struct osh_mixture { // arguments of a mixture of experts; all pointers are views
    /* [n_experts]: the experts, in the order in which their outputs are added */
    const osh_mixture_expert *experts;
    int n_experts;
    /* x [N, D]: the input. route [N, E]: the router's weights. sum [N, D]: added to the output. */
    const osh_tensor *x, *route, *sum;
    osh_tensor *out;                   // output [N, D]; may be the same tensor as `sum`
    const osh_glu_attr *glu;
    /* True if outputs of experts are added without multiplication by the router's weights
     * (osh_moe_combine_attr). */
    bool plain;
} osh_mixture;
/* Returns the number of bytes that osh_device_ops.mixture allocates in the arena, with the
 * allocator's overhead. */
size_t osh_mixture_bytes(int64_t N, int64_t D, int64_t F, int n_experts);
/* True if osh_device_ops.mixture supports the dtype and the widths. */
bool osh_mixture_takes(osh_dtype dt, int64_t D, int64_t F);
/* Returns the number of elements of the argument `lists` of osh_device_ops.routes. */
static inline int64_t osh_routes_n(int64_t E, int64_t N) { return E + E * N; }

/* Returns the number of rows that `gather` must write if n rows are gathered for statistics: n,
 * rounded up so that a Hessian (hessian_accum) needs no other padding. */
int64_t osh_gathered_rows(int64_t n);

typedef struct osh_sampled_rows { // rows of a value of an expert, and their samples
    osh_op_rows rows; // row numbers in the value; rows.at NULL: the first rows
    /* View [rows.n], in device memory: for each row, the index of its token in the batch. */
    const int32_t *tokens;
    const osh_seqs *seqs; // view: samples of the batch
} osh_sampled_rows;
/* Returns the number of bytes that osh_device_ops.minmax_rows allocates in the arena. */
size_t osh_minmax_rows_bytes(int64_t n_samples);

enum { OSH_FACTORS_MOST = 1024 };
typedef struct osh_gptq_hessians {
    /* List [n] of the Hessians, which are in device memory. This list and the two lists below are
     * in host memory. */
    float *const *h;
    /* [n, I]: the column at each position of the solving order. NULL: column j is at position j. */
    const int32_t *perm;
    /* [n, I]: diagonals of the Hessians, in solving order. NULL: the diagonals of h are used. */
    const float *diag;
    int64_t I;
    int n;
} osh_gptq_hessians;
/* Returns the number of bytes that osh_device_ops.factors allocates in the arena for n Hessians.
 * `factors` computes as many Hessians at a time as fit in `room` bytes, but at least one. */
size_t osh_gptq_factors_device_bytes(int64_t I, int n, size_t room);
/* Returns the number of bytes that osh_gptq_column.diags allocates in the arena for n Hessians. */
size_t osh_gptq_diags_device_bytes(int64_t I, int n);
/* Returns the number of bytes that the op gptq_factor allocates in the arena. */
size_t osh_gptq_factor_device_bytes(int64_t I);

/* The functions for one kind of device. */
typedef struct osh_device_ops {
    /* Computes the checksum osh_wordsum (ops/wordsum.h) of n_bytes bytes of device memory at p.
     * Writes it to *sum, which is also in device memory. */
    osh_status (*wordsum)(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p, size_t n_bytes);
    /* Finds the first NaN or infinity of x. Let i be `base` plus its index in x. If i is smaller
     * than *first (in device memory), sets *first to i. */
    osh_status (*finite)(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base);
    /* Does the work of `finite`, but only for the rows of x in the list `rows`. `base` is 0. */
    osh_status (*finite_rows)(osh_ctx *cx, int64_t *first, const osh_tensor *x,
                              const osh_op_rows *rows);
    /* Finds the first of n tensors that has a NaN or infinity. Sets *first to the index of this
     * tensor, or to n if all values are finite. Needs a stage (osh_device_files). Waits for the
     * device. */
    osh_status (*all_finite)(osh_ctx *cx, int *first, osh_device *d,
                             const osh_tensor *const *tensors, int n);
    /* Extends the range [*low, *high] so that it contains all elements of rows [row, row + n) of
     * the matrix x. The range is in device memory. Ignores NaN. */
    osh_status (*minmax)(osh_ctx *cx, float *low, float *high, const osh_tensor *x, int64_t row,
                         int64_t n);
    /* For sample k of of->seqs: extends the range [low[k], high[k]] so that it contains all
     * elements of those rows of x that belong to the sample. low, high: in device memory. Ignores
     * NaN. */
    osh_status (*minmax_rows)(osh_ctx *cx, float *low, float *high, const osh_tensor *x,
                              const osh_sampled_rows *of);
    /* Lists the rows (tokens) of each expert. `route` [N, E] has the router weights of N tokens and
     * E experts. The array `lists`, in device memory, gets two parts: the number of rows of each
     * expert, [E], then the row numbers of each expert in ascending order, [E, N]. Also copies the
     * numbers of rows to n [E], in host memory. Waits for the device. */
    osh_status (*routes)(osh_ctx *cx, int32_t *n, int32_t *lists, const osh_tensor *route);
    /* Counts the rows (tokens) of each expert. Writes the numbers to n [experts], in host memory.
     * Waits for the device. */
    osh_status (*count_routes)(osh_ctx *cx, int32_t *n, const osh_tensor *route);
    /* Computes out = sum + the outputs of the experts. An expert computes only the rows that are
     * routed to it. The bytes are those of running these ops for one expert after the other: linear
     * (gate, up), glu, linear (down), moe_combine. hidden_size (D) and intermediate_size (F) must
     * be multiples of 8. If the member `down` of the experts is NULL, only computes their
     * activations: out [rows, F] gets the routed rows of one expert after the other, and `sum` is
     * not read. */
    osh_status (*mixture)(osh_ctx *cx, const osh_mixture *m);
    /* Replaces n Hessians [I, I] by the factors U of the op gptq_factor. `I` must not exceed
     * OSH_FACTORS_MOST. Reads only the lower triangles. If Hessian k is not positive definite, sets
     * failed[k] to 1 and leaves the Hessian unchanged. The free bytes of the arena limit how many
     * Hessians are computed at a time. The factor of a Hessian does not depend on the other
     * Hessians. Waits for the device once. */
    osh_status (*factors)(osh_ctx *cx, osh_device *d, int *failed, const osh_gptq_hessians *x);
    /* Copies some rows of x to the first rows of `out`. The list `rows` has the numbers of these
     * rows, in the order in which they are copied. If rows->at is NULL, copies the first rows of x.
     * Fills the other rows of `out` with zeros. */
    osh_status (*gather)(osh_ctx *cx, const osh_tensor *out, const osh_tensor *x,
                         const osh_op_rows *rows);
    const osh_device_speed *speed;
} osh_device_ops;
const osh_device_ops *osh_device_ops_of(const osh_device *d); // d must not be NULL
#endif
