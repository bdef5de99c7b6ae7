/* nll.c - computes nll and kl in blocks of the vocabulary. A chunk of parallel work computes the
 * logits for one tile of tokens and 192 vocabulary entries.
 *
 * For each token and block, the chunk stores the largest logit m and the sum of e^(logit - m). The
 * results for all blocks of a token are then combined in order, in double. kl has the logits r of
 * the reference model and the logits x of the model. For kl, the chunk also stores the sum of e^(r
 * - m) (r - x), where m is the largest r:
 *
 *   KL = sum over v of p_v (r_v - x_v) - lse(r) + lse(x), p = softmax(r) */
#include "base/elementary.h"
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/cpu/gemm_linear.h"
#include "math/span.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <math.h>

enum { PANEL = 512, COLS = OSH_GEMM_COLS };
/* FAR: the logit of the padding in the last block. e^FAR is 0, and 0 * FAR is 0, not NaN. */
#define FAR (-1e30f)

/* Partial result for one token and one block of the vocabulary. In arrays, index 0 is the model and
 * index 1 the reference model. */
typedef struct part {
    float max[2], sum[2], diff;
    int32_t best[2];
} part;

typedef struct side { // inputs and scratch for one model (the model itself or the reference model)
    const osh_tensor *x, *w;
    float *rows;  // rows of x in f32, [PANEL, D]; NULL if x is F32; own
    const float *panel;
    float *block; // rows of w in f32, [threads, COLS, D]; own
    float *logit; // logits, [threads, OSH_GEMM_ROWS, COLS]; own
    osh_logits_rule rule;
    const osh_tensor *bias; // bias of lm_head, [V]; NULL: none; view
} side;

typedef struct vocab_job {
    side s[2];
    int n_sides;
    int64_t V, n_blocks;
    const osh_tile *tiles;
    int64_t n_tiles, first_row;
    /* Partial results of a panel, [PANEL, n_blocks]. The tokens of a panel are processed
     * together. */
    part *parts;   // own
    /* [threads]: index of the block of rows of w that the thread has loaded; -1: none. */
    int64_t *held; // own
    const int32_t *target; // view: the target of each token, as a token id; NULL for kl
    float *at_target;      // for nll: logit of each token's target; own [tokens]
} vocab_job;

static void apply_rule(float *row, int64_t n, const osh_logits_rule *rule, osh_dtype dt)
{
    float by = (float)rule->divide;
    if (by > 0) {
        for (int64_t v = 0; v < n; v++) row[v] /= by;
        osh_span_round(row, n, dt);
    }
    if (rule->cap > 0) osh_span_softcap(row, n, 1, (float)rule->cap, dt);
}

/* Adds the elements [first, first + n) of the bias to `rows` rows of logits. n must be at most
 * COLS. */
static void logits_add_bias(float *logit, const side *s, int64_t first, int64_t n, int64_t rows)
{
    float bias[COLS];
    osh_load_weight(bias, s->bias, first, n, s->x->dtype);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t v = 0; v < n; v++) logit[r * COLS + v] += bias[v];
}

static void block_logits(const vocab_job *j, int m, const osh_tile *t, int64_t block, int worker,
                         bool load)
{
    const side *s = &j->s[m];
    int64_t D = osh_width(s->x), n = osh_min64(COLS, j->V - block * COLS), padded = osh_pad8(n);
    float *w = s->block + worker * COLS * D,
          *logit = s->logit + (int64_t)worker * OSH_GEMM_ROWS * COLS;

    if (load) osh_load_weight(w, s->w, block * COLS * D, n * D, s->x->dtype);
    osh_gemm_nt((osh_into){logit, COLS, false},
                (osh_mat){s->panel + (t->row - j->first_row) * D, D}, (osh_mat){w, D},
                (osh_mnk){t->n, n, D});
    if (s->bias) logits_add_bias(logit, s, block * COLS, n, t->n);
    for (int64_t r = 0; r < t->n; r++) {
        float *row = logit + r * COLS;
        osh_span_round(row, padded, s->x->dtype);
        apply_rule(row, padded, &s->rule, s->x->dtype);
        for (int64_t v = n; v < padded; v++)
            row[v] = FAR; // the padding is set after the rounding, because f16 cannot represent FAR
    }
}

/* Returns the index of the first element that equals `value`. Returns 0 if there is none, because
 * all elements are then NaN. */
static int32_t first_equal(const float *x, float value, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] == value) return (int32_t)i;
    return 0;
}

static osh_status vocab_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const vocab_job *j = user;
    const osh_tile *t = &j->tiles[chunk % j->n_tiles];
    int64_t block = chunk / j->n_tiles, first = block * COLS,
            padded = osh_pad8(osh_min64(COLS, j->V - first));
    const float *logit[2] = {0};

    (void)cx;
    for (int m = 0; m < j->n_sides; m++) {
        block_logits(j, m, t, block, worker, j->held[worker] != block);
        logit[m] = j->s[m].logit + (int64_t)worker * OSH_GEMM_ROWS * COLS;
    }
    j->held[worker] = block;
    for (int64_t r = 0; r < t->n; r++) {
        int64_t row = t->row + r;
        part *p = &j->parts[(row - j->first_row) * j->n_blocks + block];
        for (int m = 0; m < j->n_sides; m++) {
            const float *x = logit[m] + r * COLS;
            p->max[m] = osh_span_max(x, padded);
            p->sum[m] = osh_span_sum_exp(x, padded, p->max[m]);
            if (j->n_sides == 2) p->best[m] = (int32_t)first + first_equal(x, p->max[m], padded);
        }
        if (j->n_sides == 2)
            p->diff =
                osh_span_sum_exp_diff(logit[1] + r * COLS, logit[0] + r * COLS, padded, p->max[1]);
        if (j->target && j->target[row] >= first && j->target[row] < first + padded)
            j->at_target[row] = logit[0][r * COLS + j->target[row] - first];
    }
    return OSH_OK;
}

/* Results for one token over all blocks of the vocabulary.
 * lse: log of the sum of e^logit.
 * diff: mean of r - x with the weights softmax(r).
 * best: index of the largest logit. */
typedef struct joined {
    double lse, diff;
    int32_t best;
} joined;

static joined part_join(const part *p, int64_t n_blocks, int m)
{
    double max = -INFINITY, sum = 0, diff = 0;
    joined out = {0};

    for (int64_t b = 0; b < n_blocks; b++)
        if (p[b].max[m] > max) max = p[b].max[m], out.best = p[b].best[m];
    for (int64_t b = 0; b < n_blocks; b++) {
        double share = osh_math_exp(p[b].max[m] - max);
        sum += p[b].sum[m] * share;
        diff += p[b].diff * share;
    }
    out.lse = max + osh_math_log(sum);
    out.diff = diff / sum;
    return out;
}

/* These functions return sizes for osh_nll_scratch and osh_kl_scratch. The first three return the
 * numbers of floats of side.rows, side.block and side.logit of one model. The last returns the
 * number of partial results of a panel. */
static int64_t vocab_rows_floats(int64_t N, int64_t D) { return osh_min64(N, PANEL) * D; }
static int64_t vocab_block_floats(int64_t D, int n_threads) { return n_threads * COLS * D; }
static int64_t vocab_logit_floats(int n_threads)
{
    return (int64_t)n_threads * OSH_GEMM_ROWS * COLS;
}
static int64_t vocab_parts(int64_t N, int64_t V)
{
    return osh_min64(N, PANEL) * osh_div_up(V, COLS);
}

static osh_status side_open(osh_ctx *cx, side *s, const osh_tensor *x, const osh_tensor *w)
{
    osh_status rc = OSH_OK;
    int64_t D = osh_width(x);

    s->x = x, s->w = w;
    if (x->dtype != OSH_F32) {
        s->rows = osh_alloc(cx, (size_t)vocab_rows_floats(osh_rows(x), D) * sizeof(float));
        if (!s->rows) return OSH_E_NOMEM;
    }
    s->block = osh_alloc(cx, (size_t)vocab_block_floats(D, osh_threads(cx)) * sizeof(float));
    if (!s->block) return OSH_E_NOMEM;
    OSH_NEW(cx, s->logit, vocab_logit_floats(osh_threads(cx)));
done:
    return rc;
}

static void vocab_close(osh_ctx *cx, vocab_job *j, osh_tile *tiles)
{
    for (int m = 0; m < 2; m++) {
        osh_free(cx, j->s[m].logit);
        osh_free(cx, j->s[m].block);
        osh_free(cx, j->s[m].rows);
    }
    osh_free(cx, j->at_target);
    osh_free(cx, j->held);
    osh_free(cx, j->parts);
    osh_free(cx, tiles);
}

static void vocab_finish_rows(const vocab_job *j, const osh_op_args *a, int64_t row, int64_t n_rows)
{
    float *out = a->out[0]->data, *same = j->n_sides == 2 ? a->out[1]->data : NULL;

    for (int64_t r = row; r < row + n_rows; r++) {
        const part *p = j->parts + (r - row) * j->n_blocks;
        joined x = part_join(p, j->n_blocks, 0);
        if (same) {
            joined ref = part_join(p, j->n_blocks, 1);
            out[r] = (float)(ref.diff - ref.lse + x.lse);
            same[r] = x.best == ref.best;
        } else {
            out[r] = j->target[r] < 0 ? 0 : (float)(x.lse - j->at_target[r]);
        }
    }
}

static osh_status vocab_run(osh_ctx *cx, const osh_op_args *a, vocab_job *j)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), n_tiles = 0, end = 0;
    osh_tile *tiles = NULL; // own

    OSH_TRY(osh_blas_open(cx));
    j->V = a->in[1]->shape[0];
    j->n_blocks = osh_div_up(j->V, COLS);
    for (int m = 0; m < j->n_sides; m++) {
        const osh_vocab_attr *at = a->attr;
        if (at) j->s[m].rule = at->rule[m], j->s[m].bias = at->bias[m];
        OSH_TRY(side_open(cx, &j->s[m], a->in[2 * m], a->in[2 * m + 1]));
    }
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, N, OSH_GEMM_ROWS));
    OSH_NEW(cx, j->parts, vocab_parts(N, j->V));
    OSH_NEW(cx, j->held, osh_threads(cx));
    OSH_NEW(cx, j->at_target, N);
    for (int64_t first = 0; first < n_tiles; first = end) {
        end = osh_tiles_panel(tiles, n_tiles, first, PANEL);
        int64_t row = tiles[first].row, n_rows = tiles[end - 1].row + tiles[end - 1].n - row;
        for (int m = 0; m < j->n_sides; m++) {
            side *s = &j->s[m];
            s->panel = s->rows ? s->rows : (float *)s->x->data + row * osh_width(s->x);
            if (s->rows) OSH_TRY(osh_widen_rows(cx, s->rows, s->x, row, n_rows));
        }
        for (int i = 0; i < osh_threads(cx); i++) j->held[i] = -1;
        j->tiles = tiles + first, j->n_tiles = end - first, j->first_row = row;
        OSH_TRY(osh_parallel_for(cx, j->n_blocks * j->n_tiles, vocab_chunk, j));
        vocab_finish_rows(j, a, row, n_rows);
    }
done:
    vocab_close(cx, j, tiles);
    return rc;
}

osh_status osh_nll_cpu(osh_ctx *cx, const osh_op_args *a)
{
    vocab_job j = {.n_sides = 1, .target = a->in[2]->data};
    return vocab_run(cx, a, &j);
}

osh_status osh_kl_cpu(osh_ctx *cx, const osh_op_args *a)
{
    vocab_job j = {.n_sides = 2};
    return vocab_run(cx, a, &j);
}

static size_t vocab_side_bytes(int64_t D, int64_t n_tokens, int n_threads)
{
    return (size_t)(vocab_rows_floats(n_tokens, D) + vocab_block_floats(D, n_threads) +
                    vocab_logit_floats(n_threads)) *
           sizeof(float);
}

size_t osh_nll_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                       int64_t n_tokens, int n_threads)
{
    (void)attr;
    return vocab_side_bytes(in_width[0], n_tokens, n_threads) +
           (size_t)n_tokens * (sizeof(osh_tile) + sizeof(float)) +
           (size_t)vocab_parts(n_tokens, out_width) * sizeof(part);
}

size_t osh_kl_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads)
{
    return osh_nll_scratch(attr, in_width, out_width, n_tokens, n_threads) +
           vocab_side_bytes(in_width[2], n_tokens, n_threads);
}
