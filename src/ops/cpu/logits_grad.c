/* logits_grad.c - computes the gradients of kl and nll with respect to x. A chunk of parallel work
 * is a tile of up to 32 tokens of one sample. Its scratch has all logits of the tile. OpenBLAS
 * multiplies x by blocks of 192 rows of the vocabulary, in order. */
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/cpu/gemm_linear.h"
#include "math/span.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 32, COLS = OSH_GEMM_COLS };

typedef struct logits_grad_job {
    const osh_grad_args *a;
    const osh_tile *tiles;
    bool kl;
    /* V: vocabulary size.
     * D, D2: hidden_size of the two models.
     * ld: V, padded to a multiple of 8. */
    int64_t V, D, D2, ld;
    float *room;          // own: scratch, logits_grad_floats floats for each thread
} logits_grad_job;

static int64_t logits_grad_floats(int64_t V, int64_t D, int64_t D2)
{
    return (2 * TOKENS + 1) * osh_pad8(V) + (TOKENS + COLS) * (D > D2 ? D : D2);
}

/* Computes logit [n, ld] = rule(x W^T + bias) of one model. The rule divides and caps logits
 * (osh_logits_rule). Elements from V on become -inf, so that their probability is 0. block: scratch
 * [COLS, D]. side: 0 for the model, 1 for the reference model. */
static void tile_logits(const logits_grad_job *j, float *logit, const float *x, float *block,
                        int64_t n, int side)
{
    const osh_tensor *w = j->a->in[2 * side + 1];
    int64_t D = side ? j->D2 : j->D;
    const osh_vocab_attr *at = j->a->attr;
    float divide = at ? (float)at->rule[side].divide : 0, cap = at ? (float)at->rule[side].cap : 0,
          bias[COLS];

    for (int64_t v = 0; v < j->V; v += COLS) {
        int64_t m = osh_min64(COLS, j->V - v);
        osh_load_weight(block, w, v * D, m * D, j->a->in[2 * side]->dtype);
        osh_gemm_nt((osh_into){logit + v, j->ld, false}, (osh_mat){x, D}, (osh_mat){block, D},
                    (osh_mnk){n, m, D});
        if (!at || !at->bias[side]) continue;
        osh_load_weight(bias, at->bias[side], v, m, j->a->in[2 * side]->dtype);
        for (int64_t r = 0; r < n; r++)
            for (int64_t k = 0; k < m; k++) logit[r * j->ld + v + k] += bias[k];
    }
    for (int64_t r = 0; r < n; r++) {
        float *row = logit + r * j->ld;
        for (int64_t v = j->V; v < j->ld; v++) row[v] = 0;
        for (int64_t v = 0; divide > 0 && v < j->V; v++) row[v] /= divide;
        if (cap > 0) osh_span_softcap(row, j->ld, 1, cap, OSH_F32);
        for (int64_t v = j->V; v < j->ld; v++) row[v] = -INFINITY;
    }
}

/* On entry `row` has the logits of token n. Overwrites them with the gradients of the elements of
 * x W^T. other: the reference model's logits of the token, only for kl. keep: scratch [ld]. */
static void logits_row_grad(const logits_grad_job *j, float *row, float *other, float *keep,
                            int64_t n)
{
    const osh_grad_args *a = j->a;
    const osh_vocab_attr *at = a->attr;
    float divide = at && at->rule[0].divide > 0 ? (float)at->rule[0].divide : 1,
          cap = at ? (float)at->rule[0].cap : 0;
    float g = ((const float *)a->dout[0]->data)[n];
    int32_t target = j->kl ? -1 : ((const int32_t *)a->in[2]->data)[n];

    if (!j->kl && target < 0) g = 0;
    memcpy(keep, row, (size_t)j->ld * sizeof *keep);
    osh_span_softmax(row, j->ld, 1, OSH_F32);
    if (j->kl) osh_span_softmax(other, j->ld, 1, OSH_F32);
    for (int64_t v = 0; v < j->V; v++) {
        float t = cap > 0 ? keep[v] / cap : 0;
        row[v] = g * (row[v] - (j->kl ? other[v] : v == target)) * (1 - t * t) / divide;
    }
}

static osh_status logits_grad_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const logits_grad_job *j = user;
    const osh_tile *t = &j->tiles[chunk];
    float *logit = j->room + worker * logits_grad_floats(j->V, j->D, j->D2),
          *other = logit + TOKENS * j->ld;
    float *keep = other + TOKENS * j->ld, *x = keep + j->ld,
          *block = x + TOKENS * (j->D > j->D2 ? j->D : j->D2);
    float *dx = (float *)j->a->din[0]->data + t->row * j->D;

    (void)cx;
    for (int side = j->kl; side >= 0; side--) {
        const osh_tensor *in = j->a->in[2 * side];
        osh_to_f32(x, osh_elem(in, t->row * osh_width(in)), in->dtype, t->n * osh_width(in));
        tile_logits(j, side ? other : logit, x, block, t->n, side);
    }
    for (int64_t r = 0; r < t->n; r++)
        logits_row_grad(j, logit + r * j->ld, other + r * j->ld, keep, t->row + r);
    for (int64_t v = 0; v < j->V; v += COLS) {
        int64_t m = osh_min64(COLS, j->V - v);
        osh_load_weight(block, j->a->in[1], v * j->D, m * j->D, j->a->in[0]->dtype);
        osh_gemm_nn((osh_into){dx, j->D, true}, (osh_mat){logit + v, j->ld}, (osh_mat){block, j->D},
                    (osh_mnk){t->n, j->D, m});
    }
    return OSH_OK;
}

static osh_status logits_grad(osh_ctx *cx, const osh_grad_args *a, bool kl)
{
    osh_status rc = OSH_OK;
    int64_t n_tiles = 0, V = a->in[1]->shape[0];
    osh_tile *tiles = NULL; // own
    logits_grad_job j = {.a = a, .kl = kl, .V = V, .D = osh_width(a->in[0]),
                         .D2 = kl ? osh_width(a->in[2]) : 0, .ld = osh_pad8(V)};

    OSH_TRY(osh_blas_open(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), TOKENS));
    j.tiles = tiles;
    OSH_NEW(cx, j.room, osh_threads(cx) * logits_grad_floats(V, j.D, j.D2));
    OSH_TRY(osh_parallel_for(cx, n_tiles, logits_grad_chunk, &j));
done:
    osh_free(cx, j.room);
    osh_free(cx, tiles);
    return rc;
}

osh_status osh_kl_grad_cpu(osh_ctx *cx, const osh_grad_args *a) { return logits_grad(cx, a, true); }
osh_status osh_nll_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    return logits_grad(cx, a, false);
}

static size_t logits_grad_bytes(int64_t V, int64_t D, int64_t D2, int64_t n_tokens, int n_threads)
{
    return (size_t)(n_threads * logits_grad_floats(V, D, D2)) * sizeof(float) +
           (size_t)(n_tokens + 1) * sizeof(osh_tile);
}

size_t osh_kl_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                           int64_t n_tokens, int n_threads)
{
    (void)attr;
    return logits_grad_bytes(out_width, in_width[0], in_width[2], n_tokens, n_threads);
}

size_t osh_nll_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, int n_threads)
{
    (void)attr;
    return logits_grad_bytes(out_width, in_width[0], 0, n_tokens, n_threads);
}
