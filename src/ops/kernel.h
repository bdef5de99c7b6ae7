/* kernel.h - helpers of the kernels: loads, activations, tiles that start at the first token of each sample.
 *
 * Rounding points are those of transformers' eager Llama code in the model's dtype. Shapes are
 * checked by the graph before any kernel runs, so that a wrong shape here is a programmer's error
 * (assert). */
#ifndef OSH_KERNEL_H
#define OSH_KERNEL_H
#include "ops/op.h"
#include "tensor/scalar.h"

/* Tokens from one kept state to the next, on the way back through a recurrence: the least C with C C >= n. */
static inline int64_t osh_state_span(int64_t n_tokens)
{
    int64_t C = 1;
    while (C * C < n_tokens) C++;
    return C;
}

/* n weights from element `first`, as f32 values of the compute dtype (from_pretrained casts other
 * dtypes on loading). */
void osh_load_weight(float *to, const osh_tensor *w, int64_t first, int64_t n, osh_dtype compute);
/* infer of ops whose output has the width of in[0], and that have no weights. */
osh_status osh_infer_same(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim, const int64_t *in_width,
                          const void *attr);
/* A whole tensor in f32: own. For the reference kernels. */
osh_status osh_f32_copy(osh_ctx *cx, float **out, const osh_tensor *t);
osh_status osh_f32_weight(osh_ctx *cx, float **out, const osh_tensor *w, osh_dtype compute);

/* silu, gelu, gelu_pytorch_tanh as glu.c says them, for the reference kernels. */
double osh_act_ref(const char *act, double x);
double osh_act_slope(const char *act, double x); // its derivative
/* What the logit of an f32 sum is under a rule (NULL: none): rounded after each step. */
float osh_logit_of(float sum, const osh_logits_rule *rule, osh_dtype dt);

/* The gradient of kl, or of nll: of in[0]; logits are not rounded. For the reference kernels. */
osh_status osh_logits_grad_ref(osh_ctx *cx, const osh_grad_args *a, bool kl);
/* Gradients, for the references: what a tensor gets (NULL: nothing). */
void osh_grad_add(osh_tensor *din, int64_t at, double more);
osh_status osh_grad_zero(osh_ctx *cx, osh_grad_args *a); // what is fresh becomes zeros

typedef struct osh_tile {
    int64_t row, n;    // rows [row, row + n) of the batch
    int64_t pos, len;  // index of the first row inside its sample; tokens of the sample
} osh_tile;
/* Cuts N rows into tiles of at most tile_rows that never cross from one sample into the next. own: osh_free. */
osh_status osh_tiles_new(osh_ctx *cx, osh_tile **out, int64_t *n_tiles, const osh_seqs *seqs,
                         int64_t N, int64_t tile_rows);
/* Tiles [first, return) hold at most max_rows rows together, and at least one tile. */
int64_t osh_tiles_panel(const osh_tile *tiles, int64_t n_tiles, int64_t first, int64_t max_rows);
/* A statistic of each channel of in[0] x [N, D]: rows one after the other, columns in chunks on all threads. step adds
 * to out[0] what columns [c, c + n) of a row hold, so neither batches nor threads show. */
typedef void (*osh_channel_step)(const osh_tensor *out, const float *x, int64_t c, int64_t n);
osh_status osh_by_channel(osh_ctx *cx, const osh_op_args *a, osh_channel_step step);
/* A head of a sample at a time, on all threads: rows [seq->row, seq->row + seq->n), room [floats] 0. cpu/by_head.c */
typedef void (*osh_head_fn)(const osh_op_args *a, const osh_tile *seq, int64_t head, float *room);
osh_status osh_by_head(osh_ctx *cx, const osh_op_args *a, int64_t heads, int64_t floats, osh_head_fn fn);
size_t osh_by_head_scratch(int64_t floats, int64_t n_tokens, int n_threads);
/* The way back through such heads, sample by sample, so that what weights get is summed in order. */
typedef struct osh_head_room {
    int64_t longest; // tokens of a sample
    float *own;      // [floats] of the thread, 0
    float *shared;   // [shared] of the head, for after
} osh_head_room;
typedef struct osh_head_back {
    int64_t heads, wave;                                    // wave: heads at a time; 0: all
    int64_t (*floats)(const void *attr, int64_t n_tokens);  // of a thread
    int64_t (*shared)(const void *attr, int64_t n_tokens);  // of a head of a wave; NULL: none
    void (*back)(const osh_grad_args *a, const osh_tile *seq, int64_t head, const osh_head_room *r);
    /* What n heads from `first` on left in shared, by one thread; NULL: nothing. */
    void (*after)(const osh_grad_args *a, const osh_tile *seq, int64_t first, int64_t n, const osh_head_room *r);
} osh_head_back;
osh_status osh_back_by_head(osh_ctx *cx, const osh_grad_args *a, const osh_head_back *way);
size_t osh_back_by_head_scratch(const void *attr, const osh_head_back *way, int64_t n_tokens, int n_threads);
#endif
