/* pairs_linear.c - computes the linear layer y = x W^T + b of BF16 tensors with math/pairs.h. If x
 * has more than FEW rows, W is packed for each block of columns of y, at most once for every 512
 * rows of y. If x has at most FEW rows, x is packed once, and W is read in place. Both methods give
 * the same bytes. */
#include "ops/cpu/pairs_ops.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_flow.h"
#include "ops/kernel.h"

#include <stdatomic.h>

enum {
    /* Number of columns of y that are computed together. W, packed for COLS columns and DEPTH
     * in_features, fits in the L2 cache. */
    COLS = 192,
    /* Number of rows of y that are computed together. The sums, ROWS x COLS elements, also fit in
     * the L2 cache. */
    ROWS = 512,
    BAND = OSH_PAIRS_BAND,
    PAIR = OSH_FLOW_COLS,
    FEW = 64,     // largest number of rows of x for which x is packed instead of W
    DEPTH = 2048, // largest number of in_features in one partial sum
    SIDE = OSH_PAIRS_SIDE
};

typedef struct worker {
    uint32_t *packed;      // packed W: panels for COLS columns of y and DEPTH in_features
    uint32_t *blocks;      // scratch for a band (BAND rows of x) that cannot be read in place
    /* Scratch.
     * If I > DEPTH: y [BAND, PAIR], sums [ROWS, COLS].
     * If x has at most FEW rows: y and sums are [BAND, FEW]. */
    float *y, *sums;
    /* `packed` has W for columns [first, first + n_cols) of y. If n_cols is 0, `packed` is
     * empty. */
    int64_t first, n_cols;
} worker;

typedef struct job {
    const osh_tensor *w, *x;
    osh_tensor *y;
    const float *bias; // bias in f32, [O]; NULL: no bias; view
    /* Packed x, only if x has at most FEW rows. It is cut into parts of `depth` in_features, which
     * follow each other. */
    uint32_t *tokens;  // view
    /* depth: number of in_features of one partial sum.
     * rows: number of rows of y in a chunk of parallel work.
     * n_parts: number of chunks for each block of columns. */
    int64_t N, I, O, depth, n_parts, rows;
    worker *workers;
    _Atomic bool bad;  // true if a value of y is not finite; unused if x has at most FEW rows
} job;

/* Operands of one matrix product: a band of x (at most BAND rows) and two panels of W. */
typedef struct band {
    int64_t row, m;   // rows [row, row + m) of x and y
    int64_t at, col;  // at: first row in worker.sums. col: first column in worker.packed.
    int64_t k0, k;    // in_features [k0, k0 + k)
} band;

/* Returns the number of in_features of one partial sum. It is a multiple of 32 and at most DEPTH.
 * The last partial sum may have fewer. */
static int64_t pairs_linear_depth(int64_t I)
{
    return osh_pairs_pad(osh_div_up(I, osh_div_up(I, DEPTH)));
}

static const uint16_t *at(const osh_tensor *t, int64_t row, int64_t col)
{
    return (const uint16_t *)t->data + row * osh_width(t) + col;
}

static void panels_pack(uint32_t *to, const osh_tensor *t, int64_t row, int64_t n, int64_t k0,
                        int64_t k)
{
    for (int64_t i = 0; i < n; i += SIDE, to += osh_pairs_panel(k))
        osh_pairs_pack_rows(to, at(t, row + i, k0), osh_width(t), osh_min64(SIDE, n - i), k);
}

/* y [n] has the sums for row `row` and columns [col, col + n). Adds the bias to these sums, rounds
 * the results to the dtype of the output, and stores them. */
static void few_finish(const job *j, float *y, int64_t row, int64_t col, int64_t n)
{
    for (int64_t o = 0; j->bias && o < n; o++) y[o] += j->bias[col + o];
    osh_from_f32(osh_elem(j->y, row * j->O + col), j->y->dtype, y, n);
}

/* Adds the product over in_features [k0, k0 + k) to the sums of t->m rows and two panels of
 * columns. After the last in_features, rounds the sums and stores them in y. */
static void linear_add_part(job *j, const worker *me, osh_pairs_a a, const band *t)
{
    int64_t n = osh_min64(PAIR, me->n_cols - t->col), each = osh_pairs_panel(t->k);
    osh_pairs_b b = {me->packed + t->col / SIDE * each, osh_div_up(n, SIDE), t->k, each, true};
    float *sums = me->sums + t->at * COLS + t->col;

    osh_pairs_product(t->k0 ? me->y : sums, t->k0 ? PAIR : COLS, a, t->m, b);
    if (t->k0)
        osh_pairs_add_rows((osh_pairs_sums){sums, COLS}, (osh_pairs_sums){me->y, PAIR}, t->m, n, 0);
    if (t->k0 + t->k < j->I) return;
    osh_pairs_y y = {osh_elem(j->y, t->row * j->O + me->first + t->col), j->O, n,
                     j->bias ? j->bias + me->first + t->col : NULL};
    if (!osh_pairs_narrow(&y, sums, COLS, t->m)) atomic_store(&j->bad, true);
}

/* Adds the products of one partial sum to the sums of rows [first, first + m) and all packed
 * columns. k0 is the first of the in_features of the partial sum. */
static void part_bands(job *j, worker *me, int64_t first, int64_t m, int64_t k0)
{
    band t = {.k0 = k0, .k = osh_min64(j->depth, j->I - k0)};
    osh_pairs_begin();
    for (t.at = 0; t.at < m; t.at += BAND) {
        t.row = first + t.at, t.m = osh_min64(BAND, m - t.at);
        osh_pairs_a a = osh_pairs_rows(me->blocks, at(j->x, t.row, k0), j->I, t.m, t.k);
        for (t.col = 0; t.col < me->n_cols; t.col += PAIR) linear_add_part(j, me, a, &t);
    }
    osh_pairs_end();
}

/* Computes rows [first, first + m) of y for all packed columns. May be called only if I <= DEPTH,
 * so that one sum covers all in_features. */
static void whole_bands(job *j, worker *me, int64_t first, int64_t m)
{
    int64_t each = osh_pairs_panel(j->I);
    osh_flow_block t = {.ld = j->O};
    osh_flow f;
    osh_flow_begin(&f);
    for (int64_t row = first; row < first + m; row += BAND) {
        t.m = osh_min64(BAND, first + m - row);
        t.a = osh_pairs_rows(me->blocks, at(j->x, row, 0), j->I, t.m, j->I);
        for (int64_t c = 0; c < me->n_cols; c += PAIR) {
            t.n = osh_min64(PAIR, me->n_cols - c);
            t.b = (osh_pairs_b){me->packed + c / SIDE * each, osh_div_up(t.n, SIDE), j->I, each};
            t.y = osh_elem(j->y, row * j->O + me->first + c);
            t.bias[0] = j->bias ? j->bias + me->first + c : NULL;
            osh_flow_add(&f, &t);
        }
    }
    osh_flow_end(&f);
    if (f.bad) atomic_store(&j->bad, true);
}

static osh_status many_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    job *j = user;
    worker *me = &j->workers[self];
    int64_t col = chunk / j->n_parts * COLS, first = chunk % j->n_parts * j->rows,
            m = osh_min64(j->rows, j->N - first);
    bool has = me->n_cols && me->first == col && j->depth >= j->I;

    (void)cx;
    me->first = col, me->n_cols = osh_min64(COLS, j->O - col);
    for (int64_t k0 = 0; k0 < j->I; k0 += j->depth) {
        if (!has)
            panels_pack(me->packed, j->w, col, me->n_cols, k0, osh_min64(j->depth, j->I - k0));
        if (j->depth < j->I) part_bands(j, me, first, m, k0);
        else whole_bands(j, me, first, m);
    }
    return OSH_OK;
}

/* ---- few rows of x ---- */

static int64_t linear_panels(int64_t n) { return osh_div_up(n, SIDE); }

static osh_status tokens_pack_chunk(osh_ctx *cx, void *user, int64_t panel, int self)
{
    const job *j = user;
    (void)cx, (void)self;
    for (int64_t k0 = 0; k0 < j->I; k0 += j->depth) {
        int64_t k = osh_min64(j->depth, j->I - k0), first = panel * SIDE;
        uint32_t *to = j->tokens + linear_panels(j->N) * k0 / 2 * SIDE + panel * osh_pairs_panel(k);
        panels_pack(to, j->x, first, osh_min64(SIDE, j->N - first), k0, k);
    }
    return OSH_OK;
}

/* Computes BAND columns of y for all rows of x: multiplies BAND rows of W by the transpose of
 * packed x. */
static osh_status few_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    const job *j = user;
    worker *me = &j->workers[self];
    int64_t col = chunk * BAND, n = osh_min64(BAND, j->O - col),
            tokens = linear_panels(j->N) * SIDE;

    (void)cx;
    osh_pairs_begin();
    for (int64_t k0 = 0; k0 < j->I; k0 += j->depth) {
        int64_t k = osh_min64(j->depth, j->I - k0);
        osh_pairs_b b = {j->tokens + linear_panels(j->N) * k0 / 2 * SIDE, linear_panels(j->N), k,
                         osh_pairs_panel(k), true};
        osh_pairs_a a = osh_pairs_rows(me->blocks, at(j->w, col, k0), j->I, n, k);
        osh_pairs_product(k0 ? me->y : me->sums, tokens, a, n, b);
        if (k0)
            osh_pairs_add_rows((osh_pairs_sums){me->sums, tokens}, (osh_pairs_sums){me->y, tokens},
                               n, tokens, 0);
    }
    osh_pairs_end();
    for (int64_t t = 0; t < j->N; t += SIDE) {
        // rows: 16 rows x 32 columns of y. They are the transpose of `from`.
        float *rows = me->y, *from = me->sums + t;
        for (int64_t o = 0; o < BAND; o += SIDE)
            osh_pairs_turn_sums(rows + o, BAND, from + o * tokens, tokens);
        for (int64_t r = 0; r < osh_min64(SIDE, j->N - t); r++)
            few_finish(j, rows + r * BAND, t + r, col, n);
    }
    return OSH_OK;
}

/* ---- both cases: few and many rows of x ---- */

/* Returns the number of 32-bit words of a thread's scratch. */
static int64_t pairs_worker_words(int64_t I, bool few)
{
    int64_t depth = pairs_linear_depth(I), blocks = 2 * osh_pairs_panel(depth);
    if (few) return blocks + 2 * BAND * FEW;
    return blocks + COLS / SIDE * osh_pairs_panel(depth) +
           (depth < I ? BAND * PAIR + ROWS * COLS : 0);
}

static int64_t token_words(int64_t N, int64_t I) { return linear_panels(N) * osh_pairs_panel(I); }

osh_status osh_pairs_linear(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    job j = {.w = a->in[1], .x = a->in[0], .y = a->out[0], .N = osh_rows(a->in[0]),
             .I = osh_width(a->in[0]), .O = a->in[1]->shape[0]};
    int n = osh_threads(cx);
    bool few = j.N <= FEW;
    int64_t each = pairs_worker_words(j.I, few);
    // Each is own.
    // room: scratch of all workers.
    // tokens: packed x, if x has at most FEW rows.
    uint32_t *room = NULL, *tokens = NULL;
    worker *workers = NULL;                // own
    float *bias = NULL;                    // own [O], in f32: the bias; NULL: no bias

    OSH_NEW(cx, workers, n);
    if (!(room = osh_alloc(cx, (size_t)(n * each) * sizeof *room))) OSH_TRY(OSH_E_NOMEM);
    if (few && !(tokens = osh_alloc(cx, (size_t)token_words(j.N, j.I) * sizeof *tokens)))
        OSH_TRY(OSH_E_NOMEM);
    if (a->in[2]) OSH_TRY(osh_f32_weight(cx, &bias, a->in[2], a->in[0]->dtype));
    j.depth = pairs_linear_depth(j.I), j.rows = ROWS;
    if (!few && j.depth >= j.I && osh_div_up(j.O, COLS) % n == 0)
        /* Here the blocks of columns can be divided equally among the threads. So a chunk can
         * compute all rows of its block. */
        j.rows = j.N;
    j.n_parts = osh_div_up(j.N, j.rows);
    for (int i = 0; i < n; i++) {
        worker *w = &workers[i];
        w->blocks = room + i * each;
        w->y = (float *)(void *)(w->blocks + 2 * osh_pairs_panel(j.depth));
        w->sums = w->y + BAND * (few ? FEW : PAIR);
        if (!few) w->packed = room + (i + 1) * each - COLS / SIDE * osh_pairs_panel(j.depth);
    }
    j.workers = workers, j.bias = bias, j.tokens = tokens;
    if (few) OSH_TRY(osh_parallel_for(cx, linear_panels(j.N), tokens_pack_chunk, &j));
    if (few) OSH_TRY(osh_parallel_for(cx, osh_div_up(j.O, BAND), few_chunk, &j));
    else OSH_TRY(osh_parallel_for(cx, osh_div_up(j.O, COLS) * j.n_parts, many_chunk, &j));
    if (a->finite) *a->finite = !few && !j.bad;
done:
    osh_free(cx, bias);
    osh_free(cx, workers);
    osh_free(cx, tokens);
    osh_free(cx, room);
    return rc;
}

size_t osh_pairs_linear_scratch(int64_t I, int64_t O, int64_t n_tokens, int n_threads)
{
    size_t few =
        osh_mem_gross((size_t)(n_threads * pairs_worker_words(I, true)) * sizeof(uint32_t)) +
        osh_mem_gross((size_t)token_words(osh_min64(FEW, n_tokens), I) * sizeof(uint32_t));
    size_t many =
        osh_mem_gross((size_t)(n_threads * pairs_worker_words(I, false)) * sizeof(uint32_t));
    return (n_tokens > FEW && many > few ? many : few) + osh_mem_gross((size_t)O * sizeof(float)) +
           osh_mem_gross((size_t)n_threads * sizeof(worker));
}
