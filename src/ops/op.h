/* op.h - declares the operations (ops). An osh_op has a name, a rule for shapes, and one kernel for
 * each backend.
 *
 * A batch is ragged: [N, ...] has the tokens of all samples of the batch, one sample after the
 * other and without padding. osh_seqs has the row at which each sample begins. A result must not
 * depend on the other samples of the batch, or on the number of threads. So every kernel cuts each
 * sample into tiles, beginning with its first token. The size of a tile does not depend on threads.
 *
 * Activations have the compute dtype of the model (BF16, F16 or F32). A kernel widens them to f32,
 * computes, and rounds at the points where transformers rounds. If transformers keeps f32 up to the
 * next op, the value between the two ops is F32 (OSH_OP_F32_OUT). Weights have their stored dtype.
 *
 * Letters in shapes: N tokens of the batch; D hidden_size (elements of a token); F
 * intermediate_size; H heads; K kv heads; Dh head_dim; V vocabulary size; O, I out and in features
 * of a Linear; E experts. */
#ifndef OSH_OP_H
#define OSH_OP_H
#include <string.h>

#include "base/field.h"
#include "tensor/device.h"
#include "tensor/rotation.h"

typedef struct osh_seqs {
    int64_t n;
    /* [n + 1]: the first row of each sample, then the end of the last sample's rows. offsets[0] is
     * 0, except if the samples are one group of a batch (stat.h). */
    const int64_t *offsets; // view
} osh_seqs;

/* Row numbers of a batch, in ascending order. The array `at` is in the same memory as the tensors
 * of the call (host or device). */
typedef struct osh_op_rows {
    const int32_t *at; // view [n]
    int64_t n;
} osh_op_rows;

/* The earlier tokens of a sample that is computed in several calls. Each call gets a piece, which
 * is some of the tokens: row r of in[] is token n + r of the sample. The state has the values of
 * earlier tokens that the op needs, such as keys and values. The caller sets the state to 0 before
 * the first piece, and the op updates it. */
typedef struct osh_op_past {
    int64_t n;    // number of earlier tokens
    int64_t room; // largest number of tokens that all pieces may have together
    void *state;  // view: the state, of osh_op.state bytes; NULL: the op has no state
} osh_op_past;

enum { OSH_OP_MAX_IN = 8, OSH_OP_MAX_OUT = 4 };
typedef struct osh_op_args {
    /* First activations, then weights; NULL: the input is absent. */
    const osh_tensor *in[OSH_OP_MAX_IN];
    /* Outputs, which the caller allocates. The file of the op says which output may be the same
     * tensor as an input. */
    osh_tensor *out[OSH_OP_MAX_OUT];
    const void *attr;                    // attributes of the op, such as an osh_rms_norm_attr
    const osh_seqs *seqs;                // samples of the batch; NULL: the batch is one sample
    /* Only for ops with `by_rows` on a device: the rows to compute; NULL: all rows. */
    const osh_op_rows *rows;
    /* NULL: in[] has whole samples. Not NULL: in[] has the next tokens of one sample, and `past`
     * describes the earlier tokens of this sample. Only kernels on the host support this. */
    const osh_op_past *past;
    /* NULL, or a bool that is false on entry. A kernel on the host may set it to true if all values
     * of out[0] are finite. */
    bool *finite;
} osh_op_args;

typedef osh_status (*osh_op_fn)(osh_ctx *cx, const osh_op_args *a);

/* Arguments for the gradient of a scalar loss L. dout is dL/dout, F32 [N, width]. The kernel adds
 * dL/din to din (F32). The inputs are values and weights. The kernel computes the derivative of the
 * formula at the values of in[], and ignores roundings of the forward pass.
 *
 * On the host, the gradient of a weight is summed sample by sample. So a batch gives the same
 * result as its samples one after the other. On a GPU, the gradient of a weight is summed over all
 * rows of the batch, in an order that depends only on the number of rows. This sum is reproducible,
 * too, because on a GPU the rows of a batch depend only on the data. */
typedef struct osh_grad_args {
    const osh_tensor *in[OSH_OP_MAX_IN];
    const osh_tensor *dout[OSH_OP_MAX_OUT];
    osh_tensor *din[OSH_OP_MAX_IN]; // gradients of in[], in F32; NULL: not computed
    const void *attr;
    const osh_seqs *seqs;
    /* True if the kernel may round gradients to the dtype of in[0] before it multiplies them. These
     * gradients are dout, or are computed from dout. */
    bool rough;
    /* Bit k: din[k] is fresh, which means not initialized. The kernel overwrites a fresh din[k]
     * instead of adding. */
    unsigned fresh;
} osh_grad_args;
typedef osh_status (*osh_grad_fn)(osh_ctx *cx, const osh_grad_args *a);
typedef struct osh_op_grads {
    /* run[OSH_REF]: NULL if the op has no gradient.
     * run[OSH_CPU]: NULL if the CPU uses the reference kernel.
     * run[OSH_CUDA]: for tensors on a GPU. */
    osh_grad_fn run[OSH_N_BACKENDS];
    /* Returns an upper bound of the host bytes that the gradient kernel on the host needs as
     * scratch. If `scratch` is NULL, osh_op_grad_scratch assumes the reference kernel, which copies
     * all values to f32. */
    size_t (*scratch)(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads);
    /* Returns an upper bound of the bytes that run[OSH_CUDA] allocates in the device's arena, with
     * the allocator's overhead. `arena_bytes` is NULL if the kernel allocates nothing. */
    size_t (*arena_bytes)(const void *attr, const int64_t *in_width, int64_t out_width,
                           int64_t n_tokens, osh_dtype dt);
    /* True if run[OSH_CPU] handles osh_grad_args.fresh. If false, osh_op_grad sets fresh gradients
     * to zero before run[OSH_CPU] runs. Before all other kernels, osh_op_grad always sets fresh
     * gradients to zero. */
    bool writes;
    /* True if run[OSH_CPU] supports a din[0] that is the same tensor as dout[0]. din[0] must then
     * be fresh. */
    bool in_place;
} osh_op_grads;

enum { // Traits of an op. They are bits that can be combined.
    OSH_OP_LINEAR = 1,         // a Linear: out[0] = in[0] w[0]^T + w[1]; w[0] can be quantized
    /* out[0] depends on in[0] only through in[0] w[0]^T, so the columns of w[0] are the channels of
     * in[0]. */
    OSH_OP_COLUMNS = 1 << 1,
    /* The op divides in[0] by a norm of its channels, and multiplies channel i by w[0][i]. */
    OSH_OP_NORM = 1 << 2,
    OSH_OP_CENTRES = 1 << 3,   // with OSH_OP_NORM: the op first subtracts the channels' mean
    OSH_OP_ADDS = 1 << 4,      // out[0] = in[0] + in[1]
    OSH_OP_SCALES = 1 << 5,    // out[0] is in[0] times a constant
    /* out[0] is in[1] times gates. The gates of a token are computed from in[0]. */
    OSH_OP_GATES = 1 << 6,
    OSH_OP_ROTATES = 1 << 7,   // out[0] is in[0] times an orthogonal matrix
    OSH_OP_ZEROS = 1 << 8,     // out[0] is 0; only the shape of in[0] is read
    OSH_OP_GLU = 1 << 9,       // out[0] = act(in[0]) in[1]; attr is an osh_glu_attr
    OSH_OP_ACTIVATES = 1 << 10, // out[0] is computed by an activation function
    /* attr is an osh_rope_attr, which the graph makes from the model's osh_rope. */
    OSH_OP_ROPE = 1 << 11,
    /* Attention: in[0], in[1], in[2] are q, k, v; attr is an osh_attention_attr. */
    OSH_OP_ATTENDS = 1 << 12,
    OSH_OP_LOOKUP = 1 << 13, // in[0] has row numbers of w[0], and only these rows are read
    /* A router: out[0] has the weights of the experts for each token. attr begins with an
     * osh_moe_router_attr. */
    OSH_OP_ROUTES = 1 << 14,
    /* out[0] = in[0] + weight * in[1]. in[1] is the output of an expert, and in[2] has the weight
     * of this expert for each token. */
    OSH_OP_COMBINES = 1 << 15,
    /* Rows of out[0] are 0 for tokens that the router does not send to the expert of the op. */
    OSH_OP_PICKS_ROWS = 1 << 16,
    /* If a row of in[0] has only zeros, the row of out[0] has only zeros. */
    OSH_OP_KEEPS_ZEROS = 1 << 17,
    /* out[0] has only elements of in[0] and zeros. So the values of out[0] have no larger range
     * than the values of in[0]. */
    OSH_OP_PASSES = 1 << 18,
    OSH_OP_IN_PLACE = 1 << 19, // on the host out[0] may be the same tensor as in[0]
    /* out[0] is F32, whatever the compute dtype is. The op that reads out[0] rounds. */
    OSH_OP_F32_OUT = 1 << 20,
    OSH_OP_HOST_ONLY = 1 << 21 // the op has no GPU kernel, so a plan runs it on the host
};

/* The size of a batch, for which osh_op.flops counts floating-point operations. */
typedef struct osh_op_load {
    double tokens;           // number of tokens; may be a fraction
    const osh_seqs *samples; // lengths of all samples; only attention needs them
} osh_op_load;

typedef struct osh_op_norm {
    double offset;    // number that is added to the weight
    int64_t head_dim; // length of a normalized slice of a row; 0: the whole row
} osh_op_norm;

typedef struct osh_op {
    const char *name;
    /* in[] first has n_in values, then n_weights weights. The last weight may be absent. */
    int n_in, n_weights, n_out;
    /* Table of the attributes that graph templates and config.json set. NULL: the op has no such
     * table. */
    const osh_field *attrs;
    size_t attr_bytes;
    /* Computes the width (elements per token) of each output, and the shape of each weight.
     * in_width: widths of the inputs.
     * out_width: on entry the widths that the template gives, or 0; on return the computed widths.
     * w_ndim: number of dimensions of each weight; 0 for a weight that is not used. */
    osh_status (*infer)(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr);
    osh_op_fn run[OSH_N_BACKENDS]; // run[OSH_CPU] is NULL if the CPU uses run[OSH_REF]
    /* Tests compare the outputs of the other kernels with those of run[OSH_REF]. They allow an NMSE
     * (normalized mean squared error) of at most this value. */
    double tol;
    /* Returns an upper bound of the host bytes of scratch of one call for n_tokens tokens.
     * `scratch` is NULL if the op needs no scratch. */
    size_t (*scratch)(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads);
    /* Returns an upper bound of the bytes that run[OSH_CUDA] allocates in the device's arena, with
     * the allocator's overhead. dt is the dtype of in[0]. `arena_bytes` is NULL if the kernel
     * allocates nothing. */
    size_t (*arena_bytes)(const void *attr, const int64_t *in_width, int64_t out_width,
                           int64_t n_tokens, osh_dtype dt);
    osh_op_grads grad;             // kernels of the gradient
    /* Bit k: the op may skip rows of in[k]. Skipped rows may have NaN or infinities. */
    unsigned masked;
    /* Only with OSH_OP_LOOKUP. Sets `rows` [N, rows per token] to the numbers of the rows of w[0]
     * that the op reads, and updates the state of a->past. Runs on the host, and reads only the
     * shape of w[0]. If `row_ids` is NULL, in[0] has the row numbers. */
    osh_status (*row_ids)(osh_ctx *cx, const osh_op_args *a, int32_t *rows);
    bool by_rows;       // true if row r of the output depends only on row r of the inputs
    /* Bit k: on a GPU, a NaN or infinity in in[k] gives a NaN or infinity in out[0]. */
    unsigned spreads;
    unsigned whole_numbers; // bit k: weight k has whole numbers, I32 or I64
    unsigned f32_in;    // bit k: in[k] may be F32, if an op with OSH_OP_F32_OUT makes it
    /* The next three members are for samples that are computed in several calls. Each call gets
     * some tokens of the sample (a piece). A graph can be computed in this way if each of its ops
     * has `each_token` or `next`. */
    /* True if the output of a token depends neither on other tokens nor on the position of the
     * token. */
    bool each_token;
    /* Runs the op on the next tokens of a sample, on the host. a->past describes the earlier
     * tokens. */
    osh_op_fn next;
    /* Returns how many bytes the state (osh_op_past) of a sample needs. The sample has at most
     * n_tokens tokens. dt is the dtype of in[0]. `state` is NULL if `next` needs no state. */
    size_t (*state)(const void *attr, const int64_t *in_width, int64_t n_tokens, osh_dtype dt);

    unsigned traits;    // OSH_OP_* bits: properties of the op for code outside of src/ops
    /* Returns the number of floating-point operations for `load`. If `flops` is NULL, the
     * operations are not counted. */
    double (*flops)(const void *attr, const int64_t *in_width, int64_t out_width,
                    const osh_op_load *load);
    /* Returns true if the op passes factors on. This means: if the channels of in[k] are multiplied
     * by factors, the channels of out[0] are multiplied by the same factors. If `passes_factors` is
     * NULL, the op does not pass factors on. */
    bool (*passes_factors)(const void *attr, int k);
    /* Returns true if the attributes of the op limit its result, so that an infinity in in[k] may
     * give a finite result. If `limits` is NULL, the op has no such attributes. */
    bool (*limits)(const void *attr, int k);
    /* With OSH_OP_NORM: describes the norm. NULL: the norm is over whole rows, and the weight has
     * no offset. */
    osh_op_norm (*norm)(const void *attr);
} osh_op;
/* True if the op has one of the traits. */
static inline bool osh_op_is(const osh_op *op, unsigned traits)
{
    return (op->traits & traits) != 0;
}
/* Declares the rows of the table of ops (osh_op_NAME), for code that runs an op without a graph. */
#define OSH_OP(x) extern const osh_op osh_op_##x;
#include "ops/ops.def"
#undef OSH_OP

/* True if, on a GPU, a NaN or infinity in in[k] always gives a NaN or infinity in out[0]: bit k of
 * op->spreads is set, and op->limits does not return true for k. */
bool osh_op_spreads(const osh_op *op, const void *attr, int k);
/* Returns the op of this name, or NULL if there is none. */
const osh_op *osh_op_find(const char *name);
/* osh_op_count returns the number of ops. osh_op_at returns op i in the order of ops.def. */
size_t osh_op_count(void);
const osh_op *osh_op_at(size_t i);
/* Runs the kernel for the device of out[0]. If out[0] is in host memory, runs the fastest kernel of
 * the host. If a->past is set, runs osh_op.next instead, except for ops with `each_token`. Fails
 * with OSH_E_INTERNAL if the op does not have the needed function. */
osh_status osh_op_run(osh_ctx *cx, const osh_op *op, const osh_op_args *a);
/* Returns an upper bound of the host bytes that osh_op_grad allocates for n_tokens tokens. They are
 * in at most 8 blocks. The allocator's overhead for each block is not included. */
size_t osh_op_grad_scratch(const osh_op *op, const void *attr, const int64_t *in_width,
                           int64_t out_width, int64_t n_tokens, int n_threads);
bool osh_op_has_grad(const osh_op *op, bool on_device); // true if osh_op_grad supports the op
/* OSH_CUDA_GRAD(f) is the gradient kernel f if the binary has CUDA, else a function that fails. So
 * a plan for a GPU knows which ops have a gradient there, even if the binary has no CUDA. */
#ifdef OSH_CUDA_BUILT
#define OSH_CUDA_GRAD(f) f
#else
#define OSH_CUDA_GRAD(f) osh_grad_absent
#endif
osh_status osh_grad_absent(osh_ctx *cx, const osh_grad_args *a);
/* Computes the gradients and adds them to a->din, on the device of dout or on the host. Fails with
 * OSH_E_UNSUPPORTED if the op has no gradient. Also fails if dout is on a device and the op has no
 * gradient for GPUs. */
osh_status osh_op_grad(osh_ctx *cx, const osh_op *op, const osh_grad_args *a);
/* Finds the first NaN or infinity of x, on all threads. Sets *at to its index, or to -1 if all
 * values are finite. */
osh_status osh_first_nonfinite(osh_ctx *cx, int64_t *at, const osh_tensor *x);

/* Runs the op kl on a->in, which may be on a device. Adds the divergences of the first n rows to
 * *sum. counted [n]: if not NULL, only rows with counted[row] != 0 are added. Ignores a->out. */
osh_status osh_kl_sum(osh_ctx *cx, double *sum, const osh_op_args *a, int64_t n,
                      const uint8_t *counted);
/* Returns the number of host bytes that osh_kl_sum allocates for N rows, with the allocator's
 * overhead. The scratch of the op is not included. */
size_t osh_kl_sum_lists(int64_t N);
/* Returns the number of bytes that osh_kl_sum allocates in the arena of a device for N rows. The
 * scratch of the op is not included. */
size_t osh_kl_sum_arena_bytes(int64_t N);

/* ---- attributes of the model ops ---- */
typedef struct {
    double eps;
    int64_t head_dim; /* length of a normalized slice, as for q_norm and k_norm; 0: the whole row */
    double offset;    /* number added to the weight (Gemma: 1) */
    /* True if the op rounds once, after the product with w (Gemma, OLMo). If false, it also rounds
     * before the product. */
    bool late;
    bool plain;       /* true: the op has no weight (Llama 4's L2 norm) */
} osh_rms_norm_attr;
typedef struct {
    double eps;
    bool bias;
    int64_t head_dim; /* length of a normalized slice, as for q and k; 0: the whole row */
    double offset;    /* number added to the weight (Nemotron: 1) */
    bool plain;       /* true: the op has neither weight nor bias (OLMo 1) */
} osh_layer_norm_attr;
typedef struct { int64_t out_features; bool bias; } osh_linear_attr;
typedef struct { int64_t hidden_size, vocab_size; } osh_embedding_attr;
/* Numbers of columns, described in slice.c. period 0: the period is the whole row. */
typedef struct { int64_t first, width, period, pad; } osh_slice_attr;
typedef struct { int64_t width, second; } osh_join_attr;
typedef struct { int64_t times; } osh_repeat_attr; /* number of copies */
/* Attributes of the ops for hyper-connections (streams.c has the formulas). */
typedef struct {
    int64_t streams, iterations; // iterations: steps of Sinkhorn-Knopp; 0: no mixing
    double eps, norm_eps;
    double magnitude; // factor of the sigmoid of `post`
    double post_eps;  // number that is added to `post`
    bool head;        // true if only the weights `pre` are computed
} osh_stream_weights_attr;
typedef struct { int64_t streams; } osh_stream_read_attr;
/* mixes: true if each stream also gets a weighted sum of all streams (`mix` in streams.c). */
typedef struct { int64_t streams; bool mixes; } osh_stream_write_attr;
/* width: number of elements of a group. offset: number that is added to the weight. */
typedef struct { double eps, offset; int64_t width; } osh_grouped_norm_attr;
/* longest: number of tokens of the longest n-gram.
 * heads: number of rows of the table that are read for each token.
 * width: number of elements of a row of the table.
 * end: id of the end-of-text token. */
typedef struct { int64_t longest, heads, width, end; } osh_ngram_attr;
typedef struct { int64_t kernel, dilation; } osh_dilated_conv_attr;
/* by: the factor.
 * rounded: true if the factor is first rounded to the dtype of x. */
typedef struct { double by; bool rounded; } osh_scale_attr;
typedef struct { int64_t rows, offset; } osh_positions_attr;
#define OSH_ROPE_MAX_FREQS 512
/* Attributes of rope. The graph computes the inverse frequencies from the model's osh_rope. Only
 * for the type `dynamic`, the op itself computes frequencies. */
typedef struct {
    int64_t head_dim, rotary_dim;
    float inv_freq[OSH_ROPE_MAX_FREQS];  // [rotary_dim / 2]: inverse frequencies
    /* [rotary_dim / 2]: inverse frequencies for samples longer than long_from tokens. If long_from
     * is 0, no sample uses them. */
    float long_freq[OSH_ROPE_MAX_FREQS];
    int64_t long_from;
    double attention_scaling;            // factor of cos and sin
    /* True for dynamic NTK: the frequencies of a sample of L > max_pos tokens depend on L. */
    bool dynamic;
    double theta, factor; int64_t max_pos;
    bool interleaved; // true: pairs are (2i, 2i + 1); false: (i, i + rotary_dim / 2)
    /* True if cos, sin and the products stay f32, and only the sum is rounded. If false, cos, sin,
     * products and sum are rounded. */
    bool f32;
    /* If beta is not 0, the result is multiplied by 1 + beta ln(1 + floor(position / original)). */
    double position_beta;
    int64_t position_original;
    int64_t back; // number that is subtracted from the position of a token
} osh_rope_attr;
typedef struct { int64_t groups, out_features; } osh_grouped_linear_attr;
/* window: number of tokens of a window.
 * overlaps: true if an entry also uses the tokens of the previous window. */
typedef struct { int64_t window; bool overlaps; } osh_compress_attr;
typedef struct { int64_t n_heads, head_dim, sliding_window, window; } osh_attention_windows_attr;
typedef struct {
    int64_t n_heads, n_kv_heads, head_dim, sliding_window; /* sliding_window 0: no window */
    double scale;
    double softcap; /* limit c of the scores: a score becomes c tanh(score / c); 0: no limit */
    /* Number of keys per chunk (Llama 4). A query sees only keys of its own chunk. 0: all keys are
     * one chunk. */
    int64_t chunk;
} osh_attention_attr;
/* Returns the position of the first key that query i of a sample sees. */
static inline int64_t osh_first_key(const osh_attention_attr *at, int64_t i)
{
    int64_t window = at->sliding_window, first = window && i >= window ? i - window + 1 : 0;
    int64_t chunk = at->chunk ? i - i % at->chunk : 0;
    return first > chunk ? first : chunk;
}
typedef struct {
    int64_t head_dim;
    bool keys;   /* true: the op appends positions to k; false: it appends slopes to q */
    double by;   /* factor of the slopes */
    double most; /* MPT's alibi_bias_max; 0: the op uses the slopes of Bloom */
} osh_alibi_attr;
typedef struct { double beta, original; } osh_position_scale_attr;
typedef struct {
    char *act;    /* activation: silu | gelu | gelu_pytorch_tanh | gelu_new */
    double limit; /* `gate` becomes at most limit, `up` is clamped to [-limit, limit]; 0: none */
    double alpha; /* with a limit: factor of `gate` inside of the sigmoid */
    double plus;  /* with a limit: number that is added to the clamped `up` */
} osh_glu_attr;
static inline bool osh_act_is_tanh(const char *act)
{
    return !strcmp(act, "gelu_pytorch_tanh") || !strcmp(act, "gelu_new");
}
typedef struct { char *act; /* relu, relu2, or a name of osh_glu_attr.act */ } osh_act_attr;
typedef struct { double limit; } osh_clamp_attr; /* largest absolute value */
/* softplus: true if the gate is softplus(x), false if it is sigmoid(x). */
typedef struct { bool softplus; } osh_sigmoid_gate_attr;
enum { OSH_MOE_MAX_EXPERTS = 1024 };
typedef struct { int64_t top_k; bool norm_topk_prob, sigmoid, scaled; } osh_moe_router_attr;
typedef struct {
    osh_moe_router_attr route;
    int64_t experts, n_group, topk_group;
    double scale; // factor of the weights of the experts
    bool sigmoid, bias;
    char *method; /* method for choosing groups; "greedy": groups are ignored */
    bool root;     // true: the score of an expert is sqrt(softplus(logit))
    int64_t vocab; // number of rows of the table of moe_hash
} osh_moe_gate_attr;
typedef struct {
    osh_moe_router_attr route; // only top_k is used; it must be 2
    double jitter;             // router_jitter_noise of config.json
} osh_moe_sparsemixer_attr;
/* True if a token can use only experts of some groups. */
bool osh_moe_gate_is_grouped(const osh_moe_gate_attr *at);
/* expert: index of the expert.
 * plain: true if outputs of the expert are added without the router's weights. */
typedef struct { int64_t expert; bool plain; } osh_moe_combine_attr;
/* expert: index of the expert; -1: each token has only one expert. */
typedef struct { int64_t expert; } osh_routed_scale_attr;
/* Attributes of rotate. No model template contains this op: graph/insert.h inserts it. */
typedef struct {
    int64_t n;
    const osh_rotation *r; // view: the matrix M; NULL: the weight T of the node gives the matrix
    bool transposed;
} osh_rotate_attr;
typedef struct { // attributes of the op mix (mix.c)
    uint64_t key;
    double share;           // probability that an element comes from in[0]
    /* [samples]: numbers of the samples of the batch. NULL: first_sample, first_sample + 1, ... */
    const int64_t *samples; // view
    int64_t first_sample;
} osh_mix_attr;
/* Returns a key for random numbers. The key depends only on the arguments. */
uint64_t osh_mix_key(uint64_t seed, uint64_t what, uint64_t step);
/* A rule that changes the logits of a model: logit = cap tanh(logit / divide / cap). If `divide` is
 * 0, logits are not divided. If `cap` is 0, they are not capped. */
typedef struct { double divide, cap; } osh_logits_rule;
/* Attributes of nll and kl. rule[0] and bias[0] belong to the model, rule[1] and bias[1] to the
 * reference model. A bias is added to the logits before the logits are rounded. Then the rule
 * changes the logits. */
typedef struct {
    osh_logits_rule rule[2];
    const osh_tensor *bias[2]; // view [V], on the device of the logits; NULL: no bias
} osh_vocab_attr;
/* Model ops (in ops.def):
 *   embedding       in ids I32 [N], w [V, D]               out [N, D]
 *   rms_norm        in x [N, D], w [D] (or [head_dim])     out [N, D]
 *   linear          in x [N, I], w [O, I], bias [O] optional out [N, O]       x W^T + bias
 *   rope            in q [N, H*Dh]                         out [N, H*Dh]      rotates pairs
 *   attention       in q [N, H*Dh], k [N, K*Dh], v [N, K*Dh] out [N, H*Dh]    causal
 *   attention_sinks in q, k, v, sinks [H]                  out [N, H*Dh]      softmax with sinks
 *   attention_windows  in q, kv, c [N, D], sinks [H]       out [N, H*D]       entries of windows
 *   compress        in kv, gate [N, C*D], bias [m, C*D]    out [N, D]         entries of windows
 *   grouped_linear  in x [N, G*I], w [G*R, I]              out [N, G*R]       group by group
 *   alibi           in x [N, H*Dh]                         out [N, H*(Dh+2)] x and two channels
 *   glu             in gate [N, F], up [N, F]              out [N, F]         act(gate) * up
 *   add             in a [N, D], b [N, D]                  out [N, D]
 *   add_f32         in a [N, D], b [N, D]                  out [N, D] F32     sum in F32
 *   layer_norm      in x [N, D], w [D], bias [D] optional  out [N, D]
 *   slice           in x [N, W]                            out [N, S]         some columns
 *   join            in a [N, H*A], b [N, H*B] or [N, B]    out [N, H*(A+B)]   head by head
 *   repeat          in x [N, D]                            out [N, S*D]       S copies of x
 *   stream_weights  in h [N, S*D], fn [M, S*D], base [M], scale  out [N, M] F32 (streams.c)
 *   stream_read     in w [N, M], h [N, S*D]                out [N, D]         weighted sum
 *   stream_write    in w [N, M], h [N, S*D], y [N, D]      out [N, S*D]       adds y to h
 *   stream_mean     in h [N, S*D]                          out [N, D]         mean of the streams
 *   scale           in x [N, D]                            out [N, D]         x * by
 *   act             in x [N, F]                            out [N, F]         act(x)
 *   clamp           in x [N, D]                            out [N, D]         within the limit
 *   xielu           in x [N, F], four weights [1]          out [N, F]         xIELU(x)
 *   positions       in x [N, D], w [P, D]                  out [N, D]         x + w[pos + offset]
 *   sigmoid_gate    in gate [N, G], x [N, D]               out [N, D]         sigmoid(gate) x
 *   product         in a [N, D], b [N, D]                  out [N, D]         a * b; a may be F32
 *   zeros           in x [N, D], for its shape             out [N, D]
 *   moe_router      in logits [N, E], w [E] if scaled      out [N, E]         weights of experts
 *   moe_sparsemixer in logits [N, E]                       out [N, E]         weights of experts
 *   moe_gate        in x [N, D], w [E, D], b [E] optional  out [N, E]         weights of experts
 *   moe_hash        in x [N, D], ids I32 [N], w [E, D], table [V, K]  out [N, E]
 *   routed_scale    in x [N, D], route or logits [N, E]    out [N, D]         x * expert's weight
 *   gain            in x [N, D], w [1]                     out [N, D]         x * w
 *   position_scale  in x [N, D]                            out [N, D]         x * factor of row
 *   routed_rows     in x [N, D], route [N, E]              out [N, D]         x, or 0 if not routed
 *   rotate          in x [N, D], T [n, n] optional         out [N, D]         x M, see rotate.c
 *   moe_combine     in sum [N, D], y [N, D], route [N, E]  out [N, D]         sum + y * weight
 * Statistics and solver ops:
 *   hessian_accum  in x [N, I]; H F32 [I, I] in place: H += X^T X, only the lower triangle
 *   shift_accum    in x [N, I], x0 [N, I]; D F32 [I, I] in place: D += (X0 - X)^T X
 *   mix            in x [N, D], x0 [N, D]; out y [N, D]: each element from x or x0, at random
 *   count_routes   in route [N, E]; count I64 [E] in place: elements that are not 0
 *   merge_lower, merge_sums, merge_channel_sum, merge_ranges: merge two states of a statistic
 *   nll            in x [N, D], w [V, D], targets I32 [N] (< 0: none); out nll F32 [N]. The
 *                  logits are rounded to the compute dtype, log-softmax is f32. The bias of lm_head
 *                  is an attribute
 *   kl             in x, w of two models; out kl F32 [N], same F32 [N]: 1 if top tokens are equal
 *   gptq_factor    H F32 [I, I] in place (lower triangle, damped): becomes the
 *                  upper U with U^T U = H^-1. OSH_E_NUMERIC: not positive definite
 *   gptq_shift     in u [I, I], perm I32 [I]; D F32 [I, I] in place: becomes S = D H^-1
 *   gptq_target    in w [O, I], s [I, I]; out t F32 [O, I] = W + W S
 *   gptq_solve     see solver/gptq_solve.h */
#endif
