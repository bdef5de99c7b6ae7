/* kernel.h - declares functions that several kernels use. The functions load weights, compute
 * activations, make tiles, and run loops over channels and heads.
 *
 * Kernels round to the dtype of the model at the points where transformers' eager Llama code
 * rounds. The graph checks all shapes before a kernel runs, so kernels only assert shapes. */
#ifndef OSH_KERNEL_H
#define OSH_KERNEL_H
#include "ops/op.h"
#include "tensor/scalar.h"

/* The backward pass of a recurrent op stores the state of every C-th token. Returns C, the smallest
 * number with C * C >= n_tokens. */
static inline int64_t osh_state_span(int64_t n_tokens)
{
    int64_t C = 1;
    while (C * C < n_tokens) C++;
    return C;
}

/* Reads elements [first, first + n) of w as f32. Rounds them to the dtype `compute`, as
 * transformers' from_pretrained does when it loads a model. */
void osh_load_weight(float *to, const osh_tensor *w, int64_t first, int64_t n, osh_dtype compute);
/* Implements osh_op.infer for ops without weights whose output has the width of in[0]. */
osh_status osh_infer_same(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                          const int64_t *in_width, const void *attr);
/* For reference kernels: osh_f32_copy copies a whole tensor to f32. osh_f32_weight also rounds it
 * to the dtype `compute`. The caller must free *out (osh_free). */
osh_status osh_f32_copy(osh_ctx *cx, float **out, const osh_tensor *t);
osh_status osh_f32_weight(osh_ctx *cx, float **out, const osh_tensor *w, osh_dtype compute);

/* For reference kernels: computes the activation `act` of x with the formulas of glu.c. */
double osh_act_ref(const char *act, double x);
double osh_act_slope(const char *act, double x); // derivative of osh_act_ref with respect to x
/* Returns the logit for the f32 sum x w. If `rule` is not NULL, divides and caps the sum as
 * `rule` says. Rounds to dt after each step. */
float osh_logit_of(float sum, const osh_logits_rule *rule, osh_dtype dt);

/* For reference kernels: computes the gradient of the op kl (if `kl` is true) or nll with respect
 * to in[0]. Logits are not rounded. */
osh_status osh_logits_grad_ref(osh_ctx *cx, const osh_grad_args *a, bool kl);
/* For reference kernels: adds `more` to element `at` of the gradient din. Does nothing if din is
 * NULL. */
void osh_grad_add(osh_tensor *din, int64_t at, double more);
/* Sets the gradient a->din[k] of each input k to zeros if bit k of a->fresh is set. Then clears
 * a->fresh. */
osh_status osh_grad_zero(osh_ctx *cx, osh_grad_args *a);

typedef struct osh_tile {
    int64_t row, n;    // rows [row, row + n) of the batch
    /* pos: position of the first row in its sample.
     * len: number of tokens of the sample. */
    int64_t pos, len;
} osh_tile;
/* Cuts N rows into tiles of at most tile_rows rows. All rows of a tile belong to one sample. The
 * caller must free *out (osh_free). */
osh_status osh_tiles_new(osh_ctx *cx, osh_tile **out, int64_t *n_tiles, const osh_seqs *seqs,
                         int64_t N, int64_t tile_rows);
/* For a sample that is computed in several calls (osh_op_past): increases `pos` and `len` of each
 * tile by the number of earlier tokens. Does nothing if `past` is NULL. */
void osh_tiles_move(osh_tile *tiles, int64_t n_tiles, const osh_op_past *past);
/* Returns the end of consecutive tiles [first, end) that have at most max_rows rows together. Takes
 * as many tiles as possible, and at least one, even if this tile has more than max_rows rows. */
int64_t osh_tiles_panel(const osh_tile *tiles, int64_t n_tiles, int64_t first, int64_t max_rows);
/* Divides n items into parts of `each` items; the last part may have fewer. Calls fn(cx, args, k,
 * worker) for each part k, on all threads. args: the arguments of the op, which fn only reads. */
typedef osh_status (*osh_part_fn)(osh_ctx *cx, void *args, int64_t k, int worker);
osh_status osh_by_part(osh_ctx *cx, const void *args, int64_t n, int64_t each, osh_part_fn fn);
/* Computes a statistic of each channel of in[0] x [N, D] (N tokens, D channels). The function
 * `step` adds the columns [c, c + n) of one row `x` to the statistic in out[0]. Each thread
 * computes some columns, and adds the rows in order. So the result does not depend on batches or
 * threads. */
typedef void (*osh_channel_step)(const osh_tensor *out, const float *x, int64_t c, int64_t n);
osh_status osh_by_channel(osh_ctx *cx, const osh_op_args *a, osh_channel_step step);
/* Calls fn once for each head of each sample, on all threads (cpu/by_head.c). fn works on rows
 * [seq->row, seq->row + seq->n) of the batch. room: scratch of `floats` floats, which are 0. */
typedef void (*osh_head_fn)(const osh_op_args *a, const osh_tile *seq, int64_t head, float *room);
osh_status osh_by_head(osh_ctx *cx, const osh_op_args *a, int64_t heads, int64_t floats,
                       osh_head_fn fn);
/* Returns the number of bytes of scratch of osh_by_head. */
size_t osh_by_head_scratch(int64_t floats, int64_t n_tokens, int n_threads);
/* Scratch for one call of osh_head_back.back, which computes the gradients for one head of one
 * sample. Samples run one after the other, so that the gradients of weights are summed in the order
 * of the samples. */
typedef struct osh_head_room {
    int64_t longest; // number of tokens of the longest sample
    float *own;      // scratch of the thread: osh_head_back.floats floats, which are 0
    /* Results of the head, for osh_head_back.after. osh_head_back.shared returns their number. */
    float *shared;
} osh_head_room;
typedef struct osh_head_back {
    /* heads: number of heads.
     * wave: number of heads that are computed in parallel (a wave); 0: all heads. */
    int64_t heads, wave;
    /* Returns the number of floats of osh_head_room.own. */
    int64_t (*floats)(const void *attr, int64_t n_tokens);
    /* Returns the number of floats of osh_head_room.shared. If `shared` is NULL, the number is
     * 0. */
    int64_t (*shared)(const void *attr, int64_t n_tokens);
    void (*back)(const osh_grad_args *a, const osh_tile *seq, int64_t head, const osh_head_room *r);
    /* One thread calls `after` after each wave, for the heads [first, first + n) of the wave. The
     * function reads the values that these heads have written to osh_head_room.shared. `after` may
     * be NULL. */
    void (*after)(const osh_grad_args *a, const osh_tile *seq, int64_t first, int64_t n,
                  const osh_head_room *r);
} osh_head_back;
osh_status osh_back_by_head(osh_ctx *cx, const osh_grad_args *a, const osh_head_back *way);
size_t osh_back_by_head_scratch(const void *attr, const osh_head_back *way, int64_t n_tokens,
                                int n_threads);
/* Returns the number of floating-point operations of a product with a weight [out_width,
 * in_width[0]]. */
double osh_product_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                         const osh_op_load *load);
#endif
