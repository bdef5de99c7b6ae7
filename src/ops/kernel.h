/* kernel.h - helper functions of the kernels: loads, activations, tiles, loops over channels and
 * heads.
 *
 * Kernels round where transformers' eager Llama code rounds in the dtype of the model. The graph
 * checks all shapes before a kernel runs. A wrong shape in a kernel is a programmer's error
 * (assert). */
#ifndef OSH_KERNEL_H
#define OSH_KERNEL_H
#include "ops/op.h"
#include "tensor/scalar.h"

/* The backward pass of a recurrence keeps the state of every C-th token. Returns C, the smallest
 * number with C * C >= n_tokens. */
static inline int64_t osh_state_span(int64_t n_tokens)
{
    int64_t C = 1;
    while (C * C < n_tokens) C++;
    return C;
}

/* Reads n weights from element `first` on as f32 values, rounded to the compute dtype as
 * from_pretrained does on loading. */
void osh_load_weight(float *to, const osh_tensor *w, int64_t first, int64_t n, osh_dtype compute);
/* The infer function of ops that have no weights and whose output has the width of in[0]. */
osh_status osh_infer_same(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                          const int64_t *in_width, const void *attr);
/* For the reference kernels: copies a whole tensor to f32. The caller frees *out (osh_free). */
osh_status osh_f32_copy(osh_ctx *cx, float **out, const osh_tensor *t);
osh_status osh_f32_weight(osh_ctx *cx, float **out, const osh_tensor *w, osh_dtype compute);

/* For the reference kernels: computes an activation with the formulas of glu.c. */
double osh_act_ref(const char *act, double x);
double osh_act_slope(const char *act, double x); // derivative of osh_act_ref
/* Turns an f32 sum into a logit: applies `rule`, unless it is NULL, and rounds to dt after each
 * step. */
float osh_logit_of(float sum, const osh_logits_rule *rule, osh_dtype dt);

/* For the reference kernels: the gradient of kl or nll for in[0]. Logits are not rounded. */
osh_status osh_logits_grad_ref(osh_ctx *cx, const osh_grad_args *a, bool kl);
/* For the reference kernels: adds `more` to element `at` of a gradient. Does nothing if din is
 * NULL. */
void osh_grad_add(osh_tensor *din, int64_t at, double more);
/* Sets the gradients that a->fresh marks to zero, and clears a->fresh. */
osh_status osh_grad_zero(osh_ctx *cx, osh_grad_args *a);

typedef struct osh_tile {
    int64_t row, n;    // rows [row, row + n) of the batch
    int64_t pos, len;  // pos: index of the first row inside its sample; len: tokens of the sample
} osh_tile;
/* Cuts N rows into tiles of at most tile_rows rows. No tile has rows of two samples. The caller
 * frees the list (osh_free). */
osh_status osh_tiles_new(osh_ctx *cx, osh_tile **out, int64_t *n_tiles, const osh_seqs *seqs,
                         int64_t N, int64_t tile_rows);
/* Moves the tiles of a piece to their positions in the whole sample. past NULL: does nothing. */
void osh_tiles_move(osh_tile *tiles, int64_t n_tiles, const osh_op_past *past);
/* Returns the end of the longest range of tiles that begins at `first` and has at most max_rows
 * rows. The range has at least one tile. */
int64_t osh_tiles_panel(const osh_tile *tiles, int64_t n_tiles, int64_t first, int64_t max_rows);
/* Computes a statistic of each channel of in[0] x [N, D]. `step` adds columns [c, c + n) of one row
 * to out[0]. Each thread computes some columns, and adds the rows of a column in order: the result
 * does not depend on batches or threads. */
typedef void (*osh_channel_step)(const osh_tensor *out, const float *x, int64_t c, int64_t n);
osh_status osh_by_channel(osh_ctx *cx, const osh_op_args *a, osh_channel_step step);
/* Calls fn once for each head of each sample, on all threads (cpu/by_head.c). fn works on rows
 * [seq->row, seq->row + seq->n). `room` has `floats` floats, all 0. */
typedef void (*osh_head_fn)(const osh_op_args *a, const osh_tile *seq, int64_t head, float *room);
osh_status osh_by_head(osh_ctx *cx, const osh_op_args *a, int64_t heads, int64_t floats,
                       osh_head_fn fn);
size_t osh_by_head_scratch(int64_t floats, int64_t n_tokens, int n_threads);
/* Memory of a call of the backward pass over heads. The pass goes sample by sample, so that the
 * gradients of weights are summed in order. */
typedef struct osh_head_room {
    int64_t longest; // tokens of the longest sample
    float *own;      // [floats] memory of the thread, set to 0
    float *shared;   // [shared] memory of the head, which `after` reads
} osh_head_room;
typedef struct osh_head_back {
    int64_t heads, wave;                                   // wave: heads that run at a time; 0: all
    int64_t (*floats)(const void *attr, int64_t n_tokens); // returns the floats of scratch of a
                                                           // thread
    int64_t (*shared)(const void *attr, int64_t n_tokens); // returns the floats of a head in
                                                           // `shared`; NULL: none
    void (*back)(const osh_grad_args *a, const osh_tile *seq, int64_t head, const osh_head_room *r);
    /* One thread calls it after each wave. It reads the values that heads [first, first + n) wrote
     * to `shared`. NULL: not called. */
    void (*after)(const osh_grad_args *a, const osh_tile *seq, int64_t first, int64_t n,
                  const osh_head_room *r);
} osh_head_back;
osh_status osh_back_by_head(osh_ctx *cx, const osh_grad_args *a, const osh_head_back *way);
size_t osh_back_by_head_scratch(const void *attr, const osh_head_back *way, int64_t n_tokens,
                                int n_threads);
#endif
