/* attention_windows.c - computes attention with sinks. A query sees the last tokens, and one entry
 * (compress.c) for each earlier window. Keys are also values, and all heads share them.
 *
 *   in[0] q [N, H*D]     in[1] kv [N, D]     in[2] c [N, D]     in[3] sinks [H]     out y [N, H*D]
 *
 * Query i of a sample sees the rows j of kv with i - sliding_window < j <= i. It also sees the
 * entries of all full windows up to token i. A window has m tokens, and its entry is row j of c,
 * where j is the last token of the window. The softmax of head h has one more score, sinks[h],
 * whose probability is not used:
 *
 *   s_j = q k_j / sqrt(D)
 *   p_j = exp(s_j) / (exp(sinks[h]) + sum of exp(s))
 *   y   = sum over the seen rows of p_j k_j
 *
 * k_j is a seen row of kv or c. This is transformers' DeepseekV4Attention with eager attention, for
 * samples of at most m * index_topk tokens. (The indexer of that class then selects all entries.)
 * Scores are summed in double, and y in f32. The probabilities are rounded to the dtype of q.
 * Shapes: N tokens of the batch, H heads, D head_dim. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/dot.h"
#include "ops/kernel.h"

static const osh_field attrs[] = {
    {"n_heads", OSH_F_INT, offsetof(osh_attention_windows_attr, n_heads), NULL, 1, 1e6, "H", NULL,
     NULL},
    {"head_dim", OSH_F_INT, offsetof(osh_attention_windows_attr, head_dim), NULL, 1, 1e6, "D", NULL,
     NULL},
    {"sliding_window", OSH_F_INT, offsetof(osh_attention_windows_attr, sliding_window), NULL, 1,
     1e12, "rows of kv that a query sees", NULL, NULL},
    {"window", OSH_F_INT, offsetof(osh_attention_windows_attr, window), NULL, 1, 1e12, "m", NULL,
     NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_attention_windows_attr *at = attr;
    int64_t D = at->head_dim;
    if (in_width[0] != at->n_heads * D || in_width[1] != D || in_width[2] != D)
        return osh_fail(cx, OSH_E_FORMAT,
                        "attention_windows: widths %lld, %lld, %lld, want %lld, %lld, %lld",
                        (long long)in_width[0], (long long)in_width[1], (long long)in_width[2],
                        (long long)(at->n_heads * D), (long long)D, (long long)D);
    w_ndim[0] = 1, w_shape[0][0] = at->n_heads;
    out_width[0] = in_width[0];
    return OSH_OK;
}

typedef struct windows_job {
    const osh_op_args *a;
    /* Tiles, each with at most 4 queries of one sample; chunk i of the parallel work computes tile
     * i. */
    const osh_tile *seqs;
    /* Own, in f32: inputs kv and c, with the sample's earlier tokens if there is a state. */
    const float *kv, *c;
    const float *sinks;    // [H]; own
    float *room;           // own: scratch, `most` + 2 D floats for each thread
    int64_t most;          // largest number of rows that a query sees
} windows_job;

/* The rows of kv and c that query i of a sample sees; all pointers are views. */
typedef struct seen_rows {
    const osh_attention_windows_attr *at;
    const float *kv, *c; // the sample's first row in kv, and in c
    int64_t i;
} seen_rows;

/* Returns the k-th row that the query sees: first the rows of kv, then the rows of c. */
static const float *seen_row(const seen_rows *s, int64_t k)
{
    int64_t first = osh_max64(0, s->i - s->at->sliding_window + 1), own = s->i - first + 1;
    return k < own ? s->kv + (first + k) * s->at->head_dim
                   : s->c + ((k - own + 1) * s->at->window - 1) * s->at->head_dim;
}

/* Computes y [D] for query q [D] of one head. p: scratch for the scores. sink: score of the head's
 * sink. */
static void windows_attend(float *y, const seen_rows *s, const float *q, float *p, double sink,
                           osh_dtype dt)
{
    int64_t D = s->at->head_dim;
    int64_t n = osh_min64(s->i + 1, s->at->sliding_window) + (s->i + 1) / s->at->window;
    double scale = (float)(1 / sqrt((double)D)), max = sink, sum;

    for (int64_t k = 0; k < n; k++) {
        p[k] = (float)(osh_dot(q, seen_row(s, k), D) * scale);
        max = p[k] > max ? p[k] : max;
    }
    sum = osh_math_exp(sink - max);
    for (int64_t k = 0; k < n; k++) sum += osh_math_exp(p[k] - max);
    memset(y, 0, (size_t)D * sizeof *y);
    for (int64_t k = 0; k < n; k++) {
        const float *row = seen_row(s, k);
        float by = osh_round_to((float)(osh_math_exp(p[k] - max) / sum), dt);
        for (int64_t d = 0; d < D; d++) y[d] += by * row[d];
    }
}

/* A chunk of parallel work: computes some queries of one sample, for all heads. */
static osh_status windows_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const windows_job *j = user;
    const osh_attention_windows_attr *at = j->a->attr;
    const osh_tensor *q = j->a->in[0];
    const osh_tile *t = &j->seqs[chunk];
    int64_t D = at->head_dim, H = at->n_heads, start = j->a->past ? 0 : t->row - t->pos;
    seen_rows seen = {.at = at, .kv = j->kv + start * D, .c = j->c + start * D};
    float *one = j->room + worker * (j->most + 2 * D), *y = one + D, *p = y + D;

    (void)cx;
    for (int64_t r = 0; r < t->n; r++)
        for (int64_t h = 0; h < H; h++) {
            int64_t from = ((t->row + r) * H + h) * D;
            seen.i = t->pos + r;
            osh_to_f32(one, osh_elem(q, from), q->dtype, D);
            windows_attend(y, &seen, one, p, j->sinks[h], q->dtype);
            osh_from_f32(osh_elem(j->a->out[0], from), j->a->out[0]->dtype, y, D);
        }
    return OSH_OK;
}

static int64_t windows_most(const osh_attention_windows_attr *at, int64_t n_tokens)
{
    return osh_min64(n_tokens, at->sliding_window) + n_tokens / at->window + 1;
}

/* Computes the op. kv and c: the inputs of the op, or the rows of its state. The state also has
 * rows of earlier tokens. */
static osh_status windows_run(osh_ctx *cx, const osh_op_args *a, const osh_tensor *kv,
                              const osh_tensor *c)
{
    osh_status rc = OSH_OK;
    const osh_attention_windows_attr *at = a->attr;
    int64_t n_tiles = 0;
    osh_tile *tiles = NULL;                      // own
    float *x = NULL, *y = NULL, *sinks = NULL;   // own
    windows_job j = {.a = a, .most = windows_most(at, osh_rows(kv))};

    OSH_TRY(osh_f32_copy(cx, &x, kv));
    OSH_TRY(osh_f32_copy(cx, &y, c));
    OSH_TRY(osh_f32_weight(cx, &sinks, a->in[3], a->in[0]->dtype));
    OSH_NEW(cx, j.room, osh_threads(cx) * (j.most + 2 * at->head_dim));
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), 4));
    osh_tiles_move(tiles, n_tiles, a->past);
    j.kv = x, j.c = y, j.sinks = sinks, j.seqs = tiles;
    OSH_TRY(osh_parallel_for(cx, n_tiles, windows_chunk, &j));
done:
    osh_free(cx, tiles);
    osh_free(cx, j.room);
    osh_free(cx, sinks);
    osh_free(cx, y);
    osh_free(cx, x);
    return rc;
}

static osh_status windows_ref(osh_ctx *cx, const osh_op_args *a)
{
    return windows_run(cx, a, a->in[1], a->in[2]);
}

/* Appends kv and c of a sample's next tokens to the state. Then attends to all rows of the
 * state. */
static osh_status windows_next(osh_ctx *cx, const osh_op_args *a)
{
    const osh_op_past *past = a->past;
    osh_tensor all[2]; // views: kv and c in the state
    for (int k = 0; k < 2; k++) {
        const osh_tensor *x = a->in[1 + k];
        int64_t n = osh_rows(x), shape[2] = {past->n + n, osh_width(x)};
        size_t row = (size_t)shape[1] * osh_dtype_bytes(x->dtype);
        char *state = (char *)past->state + (size_t)k * (size_t)past->room * row;
        assert(shape[0] <= past->room);
        memcpy(state + (size_t)past->n * row, x->data, (size_t)n * row);
        all[k] = osh_tensor_view(x->dtype, 2, shape, state);
    }
    return windows_run(cx, a, &all[0], &all[1]);
}

static size_t windows_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                            osh_dtype dt)
{
    (void)attr;
    return (size_t)(2 * n_tokens * in_width[1]) * osh_dtype_bytes(dt);
}

static size_t windows_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                              int64_t n_tokens, int n_threads)
{
    const osh_attention_windows_attr *at = attr;
    int64_t rows = 2 * n_tokens * in_width[1] + at->n_heads,
            room = n_threads * (windows_most(at, n_tokens) + 2 * at->head_dim);
    (void)out_width;
    return (size_t)(rows + room + 8) * sizeof(float) + (size_t)(n_tokens + 2) * sizeof(osh_tile);
}

static double windows_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                            const osh_op_load *load)
{
    const osh_attention_windows_attr *at = attr;
    double pairs = 0, m = (double)at->window, w = (double)at->sliding_window;
    (void)in_width;
    for (int64_t s = 0; s < load->samples->n; s++) {
        double t = (double)(load->samples->offsets[s + 1] - load->samples->offsets[s]);
        pairs += (t <= w ? t * (t + 1) / 2 : w * (w + 1) / 2 + (t - w) * w) + t * t / (2 * m);
    }
    return 4 * (double)out_width * pairs;
}

const osh_op osh_op_attention_windows = {
    .name = "attention_windows", .n_in = 3, .n_weights = 1, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_attention_windows_attr), .infer = infer,
    .run = {[OSH_REF] = windows_ref}, .tol = 1e-11, .scratch = windows_scratch,
    .next = windows_next, .state = windows_state, .traits = OSH_OP_HOST_ONLY,
    .flops = windows_flops,
};
