/* ngram.c - computes embeddings of the last tokens (n-grams), and the gate of their values.
 *
 *   ngram_embedding  in[0] ids I32 [N]  in[1] table [V, d]  in[2] multipliers [G]  in[3] sizes [T]
 *                    in[4] offsets [T]                                  out y [N, T*d]
 *   ngram_gate       in[0] k [N, S*D]  in[1] q [N, S*D]  in[2] v [N, D]  out y [N, S*D]
 *
 * For each token, ngram_embedding copies T rows of the table. Each of the T rows is chosen by
 * another hash function, called head 0, ..., T-1. A head hashes n-grams of g tokens. g is 2 for the
 * first T/(G-1) heads, 3 for the next T/(G-1) heads, and so on up to G. t_0 is the token, t_1 is
 * the token before it, and so on; m are the multipliers. Head j chooses the row
 *
 *   row_j = (t_0 m_0 xor ... xor t_{g-1} m_{g-1}) mod sizes_j + offsets_j
 *
 * If token t_i would be before the sample, or is at or before an earlier end-of-text token, it is
 * replaced by the end-of-text token. If in[2] is absent, in[0] has the row numbers, I32 [N*T],
 * which row_ids has computed from the ids.
 *
 *   ngram_gate   y_s = sigmoid(sign(c) sqrt(max(|c|, 1e-6))) v,   c = (k_s . q_s) / sqrt(D)
 *
 * The ops compute transformers' Qwen4ExpTextNGramEmbedding and Qwen4ExpTextPLELayer. ngram_gate
 * rounds each step to the dtype of y. For k_s . q_s, it adds rounded products in double. Shapes: N
 * tokens of the batch, V rows of d elements in the table, S streams, D elements per token and
 * stream. */
#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

/* LONGEST: largest number of tokens of an n-gram (G).
 * HEADS: largest number of hash functions (T).
 * STREAMS: largest number of streams (S).
 * PIECE: number of elements that are converted to f32 at a time.
 * ROWS: number of rows in a chunk of parallel work. */
enum { LONGEST = 8, HEADS = 256, STREAMS = 8, PIECE = 512, ROWS = 4 };

static const osh_field embedding_attrs[] = {
    {"longest", OSH_F_INT, offsetof(osh_ngram_attr, longest), NULL, 2, LONGEST,
     "G, tokens of the longest n-gram", NULL, NULL},
    {"heads", OSH_F_INT, offsetof(osh_ngram_attr, heads), NULL, 1, HEADS,
     "T, rows of the table for a token", NULL, NULL},
    {"width", OSH_F_INT, offsetof(osh_ngram_attr, width), NULL, 1, 1e7, "d, elements of a row",
     NULL, NULL},
    {"end", OSH_F_INT, offsetof(osh_ngram_attr, end), NULL, 0, 2147483647,
     "the end-of-text token", NULL, NULL},
    {0},
};
static const osh_field gate_attrs[] = {
    {"streams", OSH_F_INT, offsetof(osh_stream_read_attr, streams), NULL, 1, STREAMS, "S", NULL,
     NULL},
    {0},
};

static osh_status embedding_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                  int *w_ndim, const int64_t *in_width, const void *attr)
{
    const osh_ngram_attr *at = attr;
    (void)in_width;
    if (at->heads % (at->longest - 1))
        return osh_fail(cx, OSH_E_FORMAT,
                        "ngram_embedding: %lld heads, want a multiple of the %lld lengths",
                        (long long)at->heads, (long long)at->longest - 1);
    out_width[0] = at->heads * at->width;
    // w_shape[0][0] = 0: the table may have any number of rows
    w_ndim[0] = 2, w_shape[0][0] = 0, w_shape[0][1] = at->width;
    w_ndim[1] = 1, w_shape[1][0] = at->longest;
    w_ndim[2] = 1, w_shape[2][0] = at->heads;
    w_ndim[3] = 1, w_shape[3][0] = at->heads;
    return OSH_OK;
}

static int64_t whole_at(const osh_tensor *t, int64_t i)
{
    return t->dtype == OSH_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

typedef struct gram_tables {
    uint64_t by[LONGEST];
    int64_t size[HEADS], offset[HEADS];
} gram_tables;

static osh_status tables_load(osh_ctx *cx, gram_tables *g, const osh_op_args *a)
{
    const osh_ngram_attr *at = a->attr;
    for (int64_t i = 0; i < at->longest; i++) g->by[i] = (uint64_t)whole_at(a->in[2], i);
    for (int64_t j = 0; j < at->heads; j++) {
        g->size[j] = whole_at(a->in[3], j), g->offset[j] = whole_at(a->in[4], j);
        if (g->size[j] < 1 || g->offset[j] < 0 || g->offset[j] > a->in[1]->shape[0] - g->size[j])
            return osh_fail(cx, OSH_E_FORMAT,
                            "ngram_embedding: head %lld has the rows %lld to %lld, want rows of "
                            "the table with %lld rows",
                            (long long)j, (long long)g->offset[j],
                            (long long)(g->offset[j] + g->size[j] - 1),
                            (long long)a->in[1]->shape[0]);
    }
    return OSH_OK;
}

/* Computes the row numbers of the table for one token.
 * rows [T]: the row numbers.
 * ids: ids[0] is the token; ids[-1], ids[-2] and so on are the earlier tokens of its sample in this
 * call.
 * here: number of these earlier tokens.
 * past: the tokens of the sample before this call, or NULL if there are none. */
static void rows_of_token(int32_t *rows, const gram_tables *g, const osh_ngram_attr *at,
                          const int32_t *ids, int64_t here, const osh_op_past *past)
{
    const int32_t *state = past ? past->state : NULL;
    int64_t back = here + (past ? past->n : 0); // number of earlier tokens of the sample
    int64_t per = at->heads / (at->longest - 1);
    uint64_t mix = (uint64_t)ids[0] * g->by[0];
    bool ended = false;
    for (int64_t i = 1; i < at->longest; i++) {
        int32_t id = (int32_t)at->end;
        if (!ended && i <= back) id = i <= here ? ids[-i] : state[at->longest - 1 - (i - here)];
        ended |= id == at->end;
        mix ^= (uint64_t)id * g->by[i];
        for (int64_t j = (i - 1) * per; j < i * per; j++)
            rows[j] = (int32_t)((int64_t)mix % g->size[j] + g->offset[j]);
    }
}

/* Copies the last G - 1 tokens of the sample to the state, for the sample's next tokens. */
static void tokens_keep(const osh_op_args *a)
{
    int64_t N = osh_rows(a->in[0]), keep = ((const osh_ngram_attr *)a->attr)->longest - 1;
    int64_t old = osh_max64(0, keep - N), fresh = keep - old;
    int32_t *state = a->past->state;
    memmove(state, state + fresh, (size_t)old * sizeof *state);
    memcpy(state + old, (const int32_t *)a->in[0]->data + (N - fresh),
           (size_t)fresh * sizeof *state);
}

static osh_status ngram_row_ids(osh_ctx *cx, const osh_op_args *a, int32_t *rows)
{
    osh_status rc = OSH_OK;
    const osh_ngram_attr *at = a->attr;
    const int32_t *ids = a->in[0]->data;
    osh_tile *seq = NULL; // own: for each sample, the range of its rows
    int64_t N = osh_rows(a->in[0]), n_seqs = 0;
    gram_tables g;
    OSH_TRY(tables_load(cx, &g, a));
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t t = 0; t < seq[s].n; t++) {
            int64_t n = seq[s].row + t;
            rows_of_token(rows + n * at->heads, &g, at, ids + n, t, a->past);
        }
    if (a->past) tokens_keep(a);
done:
    osh_free(cx, seq);
    return rc;
}

static osh_status embedding_ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_ngram_attr *at = a->attr;
    const osh_tensor *w = a->in[1], *y = a->out[0];
    int64_t n = osh_rows(y) * at->heads, d = at->width;
    int32_t *own = NULL; // own [N, T]: row numbers of the table
    float *row = NULL;   // own: [d]
    OSH_NEW(cx, row, d);
    if (a->in[2]) {
        OSH_NEW(cx, own, n);
        OSH_TRY(ngram_row_ids(cx, a, own));
    }
    const int32_t *rows = own ? own : a->in[0]->data;
    for (int64_t i = 0; i < n; i++) {
        if (w->dtype == y->dtype) {
            memcpy(osh_elem(y, i * d), osh_elem(w, rows[i] * d),
                   (size_t)d * osh_dtype_bytes(w->dtype));
        } else {
            osh_to_f32(row, osh_elem(w, rows[i] * d), w->dtype, d);
            osh_from_f32(osh_elem(y, i * d), y->dtype, row, d);
        }
    }
done:
    osh_free(cx, own);
    osh_free(cx, row);
    return rc;
}

/* Returns the size in bytes of three arrays: the list of row numbers, the tiles of the samples, and
 * one row. */
static size_t embedding_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                int64_t n_tokens, int n_threads)
{
    const osh_ngram_attr *at = attr;
    (void)in_width, (void)out_width, (void)n_threads;
    return (size_t)(n_tokens * at->heads) * sizeof(int32_t) +
           (size_t)(n_tokens + 1) * sizeof(osh_tile) + (size_t)at->width * sizeof(float);
}

static size_t embedding_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                              osh_dtype dt)
{
    (void)in_width, (void)n_tokens, (void)dt;
    return (size_t)(((const osh_ngram_attr *)attr)->longest - 1) * sizeof(int32_t);
}

static osh_status ngram_gate_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                   int *w_ndim, const int64_t *in_width, const void *attr)
{
    int64_t S = ((const osh_stream_read_attr *)attr)->streams;
    (void)w_shape, (void)w_ndim;
    if (in_width[0] != in_width[1] || in_width[0] != S * in_width[2])
        return osh_fail(cx, OSH_E_FORMAT, "ngram_gate: widths %lld, %lld, %lld, want %lld streams",
                        (long long)in_width[0], (long long)in_width[1], (long long)in_width[2],
                        (long long)S);
    out_width[0] = in_width[0];
    return OSH_OK;
}

/* Returns the gate of one stream of one token. The elements of the stream begin at index `first` in
 * k and q. */
static float gram_gate(const osh_op_args *a, int64_t first)
{
    const osh_tensor *k = a->in[0], *q = a->in[1];
    osh_dtype dt = a->out[0]->dtype;
    int64_t D = osh_width(a->in[2]);
    float x[PIECE], y[PIECE];
    double sum = 0;
    for (int64_t from = 0, n; from < D; from += n) {
        n = osh_min64(PIECE, D - from);
        osh_to_f32(x, osh_elem(k, first + from), k->dtype, n);
        osh_to_f32(y, osh_elem(q, first + from), q->dtype, n);
        for (int64_t i = 0; i < n; i++) sum += osh_round_to(x[i] * y[i], dt);
    }
    float c = osh_round_to((float)(osh_round_to((float)sum, dt) / sqrt((double)D)), dt);
    float least = osh_round_to(1e-6f, dt), size = fabsf(c) < least ? least : fabsf(c);
    size = osh_round_to(sqrtf(size), dt);
    c = c > 0 ? size : c < 0 ? -size : 0;
    return osh_round_to((float)(1 / (1 + osh_math_exp(-(double)c))), dt);
}

static osh_status ngram_gate_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_tensor *v = a->in[2], *out = a->out[0];
    int64_t S = ((const osh_stream_read_attr *)a->attr)->streams, D = osh_width(v);
    int64_t end = osh_min64(osh_rows(v), (chunk + 1) * ROWS);
    float x[PIECE];
    (void)cx, (void)worker;
    for (int64_t i = chunk * ROWS * S; i < end * S; i++) {
        float gate = gram_gate(a, i * D);
        for (int64_t from = 0, n; from < D; from += n) {
            n = osh_min64(PIECE, D - from);
            osh_to_f32(x, osh_elem(v, i / S * D + from), v->dtype, n);
            for (int64_t e = 0; e < n; e++) x[e] *= gate;
            osh_from_f32(osh_elem(out, i * D + from), out->dtype, x, n);
        }
    }
    return OSH_OK;
}

static osh_status ngram_gate_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[2]), ROWS, ngram_gate_chunk);
}

const osh_op osh_op_ngram_embedding = {
    .name = "ngram_embedding", .n_in = 1, .n_weights = 4, .n_out = 1,
    .attrs = embedding_attrs, .attr_bytes = sizeof(osh_ngram_attr), .infer = embedding_infer,
    .run = {[OSH_REF] = embedding_ref}, .tol = 0, .scratch = embedding_scratch,
    .whole_numbers = 14, .next = embedding_ref, .state = embedding_state,
    .traits = OSH_OP_LOOKUP | OSH_OP_HOST_ONLY, .row_ids = ngram_row_ids,
};
const osh_op osh_op_ngram_gate = {
    .name = "ngram_gate", .n_in = 3, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = gate_attrs, .attr_bytes = sizeof(osh_stream_read_attr), .infer = ngram_gate_infer,
    .run = {[OSH_REF] = ngram_gate_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
