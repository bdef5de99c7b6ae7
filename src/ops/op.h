/* op.h - all arithmetic of the project lives behind osh_op: one name, a shape rule, a column of kernels.
 *
 * A batch is ragged: the tokens of all its samples stand behind each other in [N, ...] and osh_seqs
 * says where each sample begins. There is no padding. No result may depend on which samples share a
 * batch or on the number of threads: every kernel works on a grid of tiles that starts anew at each
 * sample's first token and is independent of threads.
 *
 * Activations have the model's compute dtype (BF16, F16 or F32): a kernel widens to f32, computes,
 * and rounds where transformers rounds. Where transformers keeps f32 up to the next op, so does the value between
 * (f32_out). Weights come in their stored dtype. */
#ifndef OSH_OP_H
#define OSH_OP_H
#include <string.h>

#include "base/field.h"
#include "tensor/rotation.h"

typedef enum { OSH_REF, OSH_CPU, OSH_CUDA, OSH_N_BACKENDS } osh_backend_id;

typedef struct osh_seqs {
    int64_t n;
    const int64_t *offsets; // [n + 1] tokens; view
} osh_seqs;

/* Rows of a batch, ascending, where its tensors lie. */
typedef struct osh_op_rows {
    const int32_t *at; // [n]; view
    int64_t n;
} osh_op_rows;

enum { OSH_OP_MAX_IN = 8, OSH_OP_MAX_OUT = 4 };
typedef struct osh_op_args {
    const osh_tensor *in[OSH_OP_MAX_IN]; // activations first, then weights; NULL where an optional one is absent
    osh_tensor *out[OSH_OP_MAX_OUT];     // allocated by the caller; in place ops say so in their essay
    const void *attr;                    // of the op's attr type
    const osh_seqs *seqs;                // NULL: one sample
    const osh_op_rows *rows;             // of an op with by_rows, on a device: no others are wanted; NULL: all
} osh_op_args;

typedef osh_status (*osh_op_fn)(osh_ctx *cx, const osh_op_args *a);

/* Of a scalar loss L: dout holds dL/dout, F32 [N, width]; dL/din is added to din, F32, of values and of weights. The
 * derivative is that of the formula at what in[] holds: roundings of the forward pass count as none. What a weight gets
 * is summed sample by sample, so that a batch gives what its samples give one after the other; on a card, whose batches
 * follow from the data alone, over all rows of the batch, in an order that follows from their number. */
typedef struct osh_grad_args {
    const osh_tensor *in[OSH_OP_MAX_IN];
    const osh_tensor *dout[OSH_OP_MAX_OUT];
    osh_tensor *din[OSH_OP_MAX_IN]; // NULL: not wanted
    const void *attr;
    const osh_seqs *seqs;
    bool rough; // dout may be rounded to the dtype of in[0] for a product
    unsigned fresh; // bit k: din[k] holds nothing, not even zeros: it becomes what it would be as zeros
} osh_grad_args;
typedef osh_status (*osh_grad_fn)(osh_ctx *cx, const osh_grad_args *a);
typedef struct osh_op {
    const char *name;
    int n_in, n_weights, n_out;   // in[0..n_in) are values, in[n_in..n_in+n_weights) weights (trailing ones optional)
    const osh_field *attrs;       // NULL: none. Filled by the graph template from config.json
    size_t attr_bytes;
    /* Width (elements per token) of each output and the wanted shape of each weight, from the input
     * widths, the output width given by the template (0: to be inferred) and attr. ndim 0: this
     * weight is not used. */
    osh_status (*infer)(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr);
    osh_op_fn run[OSH_N_BACKENDS]; // run[OSH_CPU] NULL: the reference serves
    double tol;                    // NMSE of fast kernels against the reference
    /* Host bytes of scratch that one call takes for n_tokens tokens, an upper bound; NULL: none. */
    size_t (*scratch)(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens, int n_threads);
    /* The same of the device's arena, gross, for run[OSH_CUDA] with x of dtype dt; NULL: none. */
    size_t (*scratch_cuda)(const void *attr, const int64_t *in_width, int64_t out_width,
                           int64_t n_tokens, osh_dtype dt);
    osh_grad_fn grad[OSH_N_BACKENDS]; // [OSH_REF] NULL: it has no gradient; [OSH_CPU] NULL: the reference serves;
                                      // [OSH_CUDA]: of tensors on a device
    /* As scratch, of its gradients; NULL: what the reference takes, which copies values to f32. */
    size_t (*grad_scratch)(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                           int n_threads);
    /* As scratch_cuda, of grad[OSH_CUDA]. */
    size_t (*grad_scratch_cuda)(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                osh_dtype dt);
    bool writes;     // grad[OSH_CPU] knows osh_grad_args.fresh; the others find zeros (osh_op_grad)
    bool in_place_grad; // there din[0] may be dout[0], where it is fresh
    unsigned masked; // bit k: rows of in[k] may be passed over, so that what is not finite there means nothing
    bool in_place;   // on the host out[0] may be in[0]
    bool by_rows;    // row r of what it makes comes from row r of what it reads
    /* bit k: on a card, where in[k] is not finite something in out[0] is not either (osh_op_spreads). */
    unsigned spreads;
    bool lookup;     // in[0] are numbers of rows of in[1]: it needs no others
    bool host_only;  // there is none for a card, and no plan puts it there
    bool attends;    // in[0..2] are q, k, v, attr is osh_attention_attr
    bool passes;     // what it makes is of in[0], nothing else but zeros: that one's range holds it
    bool f32_out;    // out[0] is F32, whatever the compute dtype: the op that reads it rounds
    unsigned f32_in; // bit k: in[k] may be such a value
} osh_op;

bool osh_op_spreads(const osh_op *op, const void *attr, int k); // but for attributes that bound what comes in
const osh_op *osh_op_find(const char *name); // NULL: unknown
size_t osh_op_count(void);
const osh_op *osh_op_at(size_t i);
/* The fastest CPU column, or where out[0] lies on a device the CUDA column; OSH_E_INTERNAL: it has none. */
osh_status osh_op_run(osh_ctx *cx, const osh_op *op, const osh_op_args *a);
/* Bytes that its gradients take for n_tokens tokens, an upper bound: net, in up to 8 blocks. */
size_t osh_op_grad_scratch(const osh_op *op, const void *attr, const int64_t *in_width, int64_t out_width,
                           int64_t n_tokens, int n_threads);
/* Adds to a->din, where dout lies. OSH_E_UNSUPPORTED: the op has no gradient, or none there. */
osh_status osh_op_grad(osh_ctx *cx, const osh_op *op, const osh_grad_args *a);
/* Index of the first element that is a NaN or an infinity, -1: there is none. On all threads. */
osh_status osh_first_nonfinite(osh_ctx *cx, int64_t *at, const osh_tensor *x);

/* Adds to *sum what op kl makes of a->in, without its outputs, in the first n rows. */
osh_status osh_kl_sum(osh_ctx *cx, double *sum, const osh_op_args *a, int64_t n);
size_t osh_kl_sum_lists(int64_t N); // what that takes beside the op, for N rows: gross

/* ---- attributes of the model ops ---- */
typedef struct {
    double eps;
    int64_t head_dim; /* 0: the whole row; else each slice of head_dim (q_norm, k_norm) */
    double offset;    /* added to the weight (Gemma: 1) */
    bool late;        /* rounded once, after the product with the weight (Gemma, OLMo) */
    bool plain;       /* there is no weight (Llama 4) */
} osh_rms_norm_attr;
typedef struct { double eps; bool bias; } osh_layer_norm_attr;
typedef struct { int64_t out_features; bool bias; } osh_linear_attr;
typedef struct { int64_t hidden_size, vocab_size; } osh_embedding_attr;
typedef struct { int64_t first, width, period, pad; } osh_slice_attr; /* period 0: the whole row */
typedef struct { int64_t width, second; } osh_join_attr;
typedef struct { double by; bool rounded; } osh_scale_attr;      /* rounded: by, to the compute dtype */
typedef struct { int64_t rows, offset; } osh_positions_attr;
#define OSH_ROPE_MAX_FREQS 512
typedef struct { // inverse frequencies are computed by the graph from osh_rope, so that the op
                 // knows no rope type but dynamic
    int64_t head_dim, rotary_dim;
    float inv_freq[OSH_ROPE_MAX_FREQS];  // [rotary_dim / 2]
    float long_freq[OSH_ROPE_MAX_FREQS]; // those of samples of more than long_from tokens; long_from 0: none
    int64_t long_from;
    double attention_scaling;            // multiplies cos and sin
    bool dynamic;                        // NTK: frequencies depend on the sample's length L when L > max_pos
    double theta, factor; int64_t max_pos;
    bool interleaved; // pairs are neighbours, not the two halves
    bool f32;         // cos, sin and products stay f32: one rounding
    double position_beta; int64_t position_original; // result times 1 + beta ln(1 + floor(position / original))
} osh_rope_attr;
typedef struct {
    int64_t n_heads, n_kv_heads, head_dim, sliding_window; /* 0: none */
    double scale;
    double softcap; /* 0: none; else c tanh(score / c) */
    int64_t chunk;  /* 0: none; else query i sees its own of the chunks of so many keys (Llama 4) */
} osh_attention_attr;
/* The first key of its sample that query i sees. */
static inline int64_t osh_first_key(const osh_attention_attr *at, int64_t i)
{
    int64_t window = at->sliding_window, first = window && i >= window ? i - window + 1 : 0;
    int64_t chunk = at->chunk ? i - i % at->chunk : 0;
    return first > chunk ? first : chunk;
}
typedef struct { double beta, original; } osh_position_scale_attr;
float osh_position_scale(const osh_position_scale_attr *at, int64_t pos); // position_scale.c
typedef struct {
    char *act;    /* silu | gelu | gelu_pytorch_tanh | gelu_new */
    double limit; /* 0: none; else clamped, as glu.c says */
    double alpha; /* of the sigmoid then */
} osh_glu_attr;
static inline bool osh_act_is_tanh(const char *act)
{
    return !strcmp(act, "gelu_pytorch_tanh") || !strcmp(act, "gelu_new");
}
typedef struct { char *act; /* as osh_glu_attr, and relu, relu2 */ } osh_act_attr;
enum { OSH_MOE_MAX_EXPERTS = 1024 };
typedef struct { int64_t top_k; bool norm_topk_prob, sigmoid, scaled; } osh_moe_router_attr;
typedef struct {
    osh_moe_router_attr route;
    int64_t experts, n_group, topk_group;
    double scale; // of the weights
    bool sigmoid, bias;
    char *method; /* greedy: groups mean nothing */
} osh_moe_gate_attr;
bool osh_moe_gate_is_grouped(const osh_moe_gate_attr *at); // not every group is left
typedef struct { int64_t expert; bool plain; } osh_moe_combine_attr; /* plain: the weight is 1 */
typedef struct { int64_t expert; } osh_routed_scale_attr; /* < 0: the one that a token has */
typedef struct { // no template has it: nodes are put between others (graph/insert.h)
    int64_t n;
    const osh_rotation *r; // view; NULL: the weight says it
    bool transposed;
} osh_rotate_attr;
typedef struct { // of mix
    uint64_t key;
    double share;           // of elements that are in[0]'s
    const int64_t *samples; // view: numbers of the batch's; NULL: from first_sample on
    int64_t first_sample;
} osh_mix_attr;
uint64_t osh_mix_key(uint64_t seed, uint64_t what, uint64_t step);
/* What becomes of logits behind the head: rounded, divided, capped as scores are; 0: not. */
typedef struct { double divide, cap; } osh_logits_rule;
typedef struct { osh_logits_rule rule[2]; } osh_vocab_attr; // of nll and kl: of the model, of the reference
/* Model ops (in ops.def):
 *   embedding   in ids I32 [N], w [V, D]                             out [N, D]
 *   rms_norm    in x [N, D], w [D] (or [head_dim])                   out [N, D]
 *   linear      in x [N, I], w [O, I], bias [O] optional             out [N, O]     f32 sums, one rounding
 *   rope        in q [N, H*Dh]                                       out [N, H*Dh]  halves or neighbours are turned;
 *                                                                                   position = index in the sample
 *   attention   in q [N, H*Dh], k [N, K*Dh], v [N, K*Dh]             out [N, H*Dh]  causal, eager's rounding points
 *   attention_sinks  the same, and sinks [H]                         out [N, H*Dh]  a key of no value to each head
 *   glu         in gate [N, F], up [N, F]                            out [N, F]     act(gate) * up
 *   add         in a [N, D], b [N, D]                                out [N, D]
 *   add_f32     in a [N, D], b [N, D]                                out [N, D] F32 a residual that is not rounded
 *   layer_norm  in x [N, D], w [D], bias [D] optional                out [N, D]
 *   slice       in x [N, W]                                          out [N, S]     some columns of each period
 *   join        in a [N, H*A], b [N, H*B] or [N, B]                  out [N, H*(A+B)]  head by head
 *   scale       in x [N, D]                                          out [N, D]     x * by
 *   act         in x [N, F]                                          out [N, F]     act(x)
 *   positions   in x [N, D], w [P, D]                                out [N, D]     x + w[position + offset]
 *   sigmoid_gate in gate [N, 1], x [N, D]                            out [N, D]     sigmoid(gate) x
 *   zeros       in x [N, D], for its shape                           out [N, D]
 *   moe_router  in logits [N, E], w [E] if scaled                    out [N, E]     weights of the experts chosen
 *   moe_gate    in x [N, D], w [E, D], b [E] optional                out [N, E]     the same, of logits in f32
 *   routed_scale in x [N, D], route or logits [N, E]                 out [N, D]     x times an expert's weight
 *   gain        in x [N, D], w [1]                                   out [N, D]     x * w
 *   position_scale in x [N, D]                                       out [N, D]     x * 1 + beta ln(...) by position
 *   routed_rows in x [N, D], route [N, E]                            out [N, D]     x where route[:, expert] is not 0
 *   rotate      in x [N, D], T [n, n] optional                       out [N, D]     x M, n channels by themselves
 *   moe_combine in sum [N, D], y [N, D], route [N, E]                out [N, D]     sum + y * route[:, expert]
 * Statistics and solver ops:
 *   hessian_accum  in x [N, I]; H F32 [I, I] in place: H += X^T X, lower triangle, sample by sample in order
 *   shift_accum    in x [N, I], x0 [N, I]; D F32 [I, I] in place: D += (X0 - X)^T X, sample by sample in order
 *   mix            in x [N, D], x0 [N, D]; out y [N, D], of each element one of both, drawn (mix.c)
 *   nll            in x [N, D], w [V, D], targets I32 [N] (< 0: not scored); out nll F32 [N]. Logits rounded to the
 *                  compute dtype, log-softmax in f32; by blocks, never N x V logits
 *   kl             in x, w and the reference's x, w; out kl F32 [N], same top token F32 [N]
 *   gptq_factor    H F32 [I, I] in place (lower triangle, damped, dead columns set): becomes U upper with
 *                  U^T U = H^-1. OSH_E_NUMERIC: not positive definite
 *   gptq_shift     in u [I, I], perm I32 [I]; D F32 [I, I] in place: becomes S = D H^-1
 *   gptq_target    in w [O, I], s [I, I]; out t F32 [O, I] = W + W S
 *   gptq_solve     see solver/gptq_solve.h */
#endif
