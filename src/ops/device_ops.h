/* device_ops.h - functions on the memory of a device that are no ops of ops.def, and sizes of their
 * scratch.
 *
 * Tensors are in device memory (osh_tensor.device) unless an argument says otherwise. Scratch comes
 * from the device's arena (OSH_LIFE_SHORT) and is freed before the call returns. Unless a comment
 * says otherwise, a call does not wait for the device. Shape letters: op.h. */
#ifndef OSH_DEVICE_OPS_H
#define OSH_DEVICE_OPS_H
#include "ops/op.h"

/* Functions that measure the speed of a device for about `seconds`. */
typedef struct osh_device_speed {
    /* Floating-point operations per second in products of [side, side] matrices. The arena must
     * have space for three matrices. */
    osh_status (*product)(osh_ctx *cx, double *flops_per_s, osh_device *d, osh_dtype dtype,
                          int64_t side, double seconds);
    /* Floating-point operations per second in causal attention, BF16, 32 heads of 128 on 8 kv
     * heads, n_samples samples of n_tokens tokens; masked keys are not counted. */
    osh_status (*attention)(osh_ctx *cx, double *flops_per_s, osh_device *d, int64_t n_samples,
                            int64_t n_tokens, double seconds);
    /* Bytes per second copied inside device memory (counted once), and from page-locked memory of
     * the host. */
    osh_status (*copies)(osh_ctx *cx, double *inside_per_s, double *put_per_s, osh_device *d,
                         int64_t n_bytes, double seconds);
} osh_device_speed;
/* Returns the number of bytes that osh_device_speed.attention allocates in the arena. */
size_t osh_peak_attention_bytes(int64_t n_samples, int64_t n_tokens);

typedef struct osh_mixture_expert { // an expert of a mixture; all pointers are views
    /* Weights: gate and up [F, D], down [D, F], in the dtype of x. */
    const osh_tensor *gate, *up, *down;
    osh_op_rows rows;
    int32_t column; // column of the expert in `route`
    /* *found, in device memory, becomes the index of the first NaN or infinity of the activations
     * [N, F] if that is smaller than its old value. NULL: no search. */
    int64_t *found;
} osh_mixture_expert;
typedef struct osh_mixture { // arguments of a mixture of experts; all pointers are views
    /* experts, in the order in which their outputs are added, [n_experts]. */
    const osh_mixture_expert *experts;
    int n_experts;
    /* x [N, D]: input; route [N, E]: the router's weights; sum [N, D]: added to the output. */
    const osh_tensor *x, *route, *sum;
    osh_tensor *out;                   // output [N, D]; may be the same tensor as `sum`
    const osh_glu_attr *glu;
    /* True: the outputs of the experts are added without multiplication by the router's weights
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

enum { OSH_FACTORS_MOST = 1024 };
typedef struct osh_gptq_hessians {
    /* Pointers to Hessians in device memory, [n]; the list h and the lists below are in host
     * memory. */
    float *const *h;
    /* Column at each position of the solving order, [n, I]; NULL: position j is column j. */
    const int32_t *perm;
    /* Diagonals of the Hessians in solving order, [n, I]; NULL: the diagonals of h are used. */
    const float *diag;
    int64_t I;
    int n;
} osh_gptq_hessians;
/* Returns the number of bytes that osh_device_ops.factors allocates in the arena for n Hessians, if
 * it computes as many at a time as fit in `room` bytes, at least one. */
size_t osh_gptq_factors_device_bytes(int64_t I, int n, size_t room);
size_t osh_gptq_diags_device_bytes(int64_t I, int n); // for osh_gptq_column.diags
/* Returns the number of bytes that the op gptq_factor allocates in the arena. */
size_t osh_gptq_factor_device_bytes(int64_t I);

/* A row of the table: the functions of one kind of device. */
typedef struct osh_device_ops {
    /* Computes osh_wordsum (ops/wordsum.h) of n_bytes bytes of device memory at p. Writes the
     * result to *sum, which is also in device memory. */
    osh_status (*wordsum)(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p, size_t n_bytes);
    /* Sets *first, in device memory, to `base` plus the index of the first NaN or infinity of x if
     * that number is smaller than *first. */
    osh_status (*finite)(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base);
    /* Works like `finite` for the rows of x that `rows` lists, with base 0. */
    osh_status (*finite_rows)(osh_ctx *cx, int64_t *first, const osh_tensor *x,
                              const osh_op_rows *rows);
    /* Finds the first of n tensors that contains a NaN or infinity. Sets *first to its index, or to
     * n if all values are finite. Requires a stage (osh_device_files). Waits for the device. */
    osh_status (*all_finite)(osh_ctx *cx, int *first, osh_device *d,
                             const osh_tensor *const *tensors, int n);
    /* Extends the range [*low, *high], in device memory, so that it contains all elements of rows
     * [row, row + n) of x [N, D]. NaN is ignored. */
    osh_status (*minmax)(osh_ctx *cx, float *low, float *high, const osh_tensor *x, int64_t row,
                         int64_t n);
    /* Lists the rows (tokens) of each expert in route [N, E]. Writes to `lists`, in device memory,
     * the number of rows of each expert [E], then the row numbers of each expert in ascending order
     * [E, N]. Also copies the numbers of rows [E] to n, in host memory. Waits for the device. */
    osh_status (*routes)(osh_ctx *cx, int32_t *n, int32_t *lists, const osh_tensor *route);
    /* Counts the rows of each expert: n [E], on the host. Waits for the device. */
    osh_status (*count_routes)(osh_ctx *cx, int32_t *n, const osh_tensor *route);
    /* Computes out = sum + the outputs of the experts, where an expert computes only the rows that
     * are routed to it. The result has the same bytes as the ops linear (gate, up), glu, linear
     * (down) and moe_combine for one expert after the other. D and F must be multiples of 8. */
    osh_status (*mixture)(osh_ctx *cx, const osh_mixture *m);
    /* Replaces n Hessians [I, I] of I <= OSH_FACTORS_MOST columns by the factors U of the op
     * gptq_factor. Reads only the lower triangles. failed[k] becomes 1 if Hessian k is not positive
     * definite; that Hessian is then unchanged. U of a Hessian does not depend on the other
     * Hessians. The free bytes of the arena limit how many Hessians are computed at a time. Waits
     * for the device once. */
    osh_status (*factors)(osh_ctx *cx, osh_device *d, int *failed, const osh_gptq_hessians *x);
    const osh_device_speed *speed;
} osh_device_ops;
const osh_device_ops *osh_device_ops_of(const osh_device *d); // d must not be NULL
#endif
