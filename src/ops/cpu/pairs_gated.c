/* pairs_gated.c - computes gate, up and glu as one kernel (ops/gated.h) with math/pairs.h. The
 * kernel multiplies x by the weights of gate and up, and applies the glu. The two products are not
 * stored as tensors.
 *
 * The weights for COLS columns of the result are packed into panels, which serve up to ROWS rows of
 * x. A band of x (32 rows) is multiplied by two panels of each weight. The two matrix products are
 * rounded to BF16, as in the op linear. Then act(gate) * up gives one block of the result. */
#include "ops/gated.h"

#include <stdatomic.h>
#include <string.h>

#include "ops/cpu/pairs_flow.h"
#include "ops/kernel.h"

enum {
    BAND = OSH_PAIRS_BAND,
    SIDE = OSH_PAIRS_SIDE,
    PAIR = OSH_FLOW_COLS,
    /* Number of columns of the result that are computed together. Both weights, packed for COLS
     * columns and I channels, fit in the L2 cache. */
    COLS = 96,
    ROWS = 512,
    /* Largest I (number of in_features). The results must have the same bytes as the results of the
     * op `linear`, which adds several partial sums if I is larger. */
    DEPTH = 2048
};

typedef struct worker {
    uint32_t *packed[2]; // packed weights of gate and of up, for COLS columns of the result
    /* scratch for a band of x (32 rows) that cannot be read in place */
    uint32_t *blocks;
    int64_t first; // first column of the result for which `packed` has the weights; -1: none
} worker;

typedef struct job {
    const osh_gated *g;
    const float *bias[2]; // views [F]: biases of gate and up; NULL: no bias
    int64_t N, I, F, n_parts;
    osh_act_kind act;
    worker *workers;
    _Atomic bool bad;
} job;

bool osh_gated_takes(osh_dtype dt, int64_t I, const osh_glu_attr *glu)
{
    bool act = !strcmp(glu->act, "silu") || osh_act_is_tanh(glu->act);
    return dt == OSH_BF16 && osh_pairs_used() && I <= DEPTH && act && !(glu->limit > 0);
}

static void pack_weights(worker *me, const job *j, int64_t col, int64_t n)
{
    if (me->first == col) return;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < n; i += SIDE)
            osh_pairs_pack_rows(me->packed[k] + i / SIDE * osh_pairs_panel(j->I),
                                osh_elem(j->g->w[k], (col + i) * j->I), j->I,
                                osh_min64(SIDE, n - i), j->I);
    me->first = col;
}

/* Computes the rows [row, row + m) and columns [col, col + n) of the result. m is at->m, and n is
 * at->n, at most PAIR. at->a must have the packed rows of x. */
static void add_block(const job *j, const worker *me, osh_flow *f, osh_flow_block *at, int64_t row,
                      int64_t col)
{
    int64_t each = osh_pairs_panel(j->I), from = (col - me->first) / SIDE * each,
            n = osh_div_up(at->n, SIDE);
    at->b = (osh_pairs_b){me->packed[0] + from, n, j->I, each};
    at->up = (osh_pairs_b){me->packed[1] + from, n, j->I, each};
    at->y = osh_elem(j->g->out, row * j->F + col);
    for (int k = 0; k < 2; k++) at->bias[k] = j->bias[k] ? j->bias[k] + col : NULL;
    osh_flow_add(f, at);
}

static osh_status gated_chunk(osh_ctx *cx, void *user, int64_t chunk, int self)
{
    job *j = user;
    worker *me = &j->workers[self];
    int64_t col = chunk / j->n_parts * COLS, n = osh_min64(COLS, j->F - col);
    int64_t row = chunk % j->n_parts * ROWS, end = osh_min64(j->N, row + ROWS);

    (void)cx;
    if (atomic_load(&j->bad)) return OSH_OK;
    pack_weights(me, j, col, n);
    osh_flow f;
    osh_flow_block at = {.ld = j->F, .act = j->act};
    osh_flow_begin(&f);
    for (; row < end; row += BAND) {
        at.m = osh_min64(BAND, end - row);
        at.a = osh_pairs_rows(me->blocks, osh_elem(j->g->x, row * j->I), j->I, at.m, j->I);
        for (int64_t c = 0; c < n; c += PAIR) {
            at.n = osh_min64(PAIR, n - c);
            add_block(j, me, &f, &at, row, col + c);
        }
    }
    osh_flow_end(&f);
    if (f.bad) atomic_store(&j->bad, true);
    return OSH_OK;
}

static int64_t gated_worker_words(int64_t I) { return (2 * COLS / SIDE + 2) * osh_pairs_panel(I); }

osh_status osh_gated_run(osh_ctx *cx, bool *finite, const osh_gated *g)
{
    osh_status rc = OSH_OK;
    job j = {.g = g, .N = osh_rows(g->x), .I = osh_width(g->x), .F = osh_width(g->out),
             .act = osh_act_is_tanh(g->glu->act) ? OSH_ACT_GELU_TANH : OSH_ACT_SILU};
    int n = osh_threads(cx);
    int64_t panels = COLS / SIDE * osh_pairs_panel(j.I);
    uint32_t *room = NULL;           // scratch of all workers; own
    float *bias[2] = {NULL, NULL};   // biases in f32, [F]; NULL: no bias; own

    OSH_NEW(cx, j.workers, n);
    if (!(room = osh_alloc(cx, (size_t)(n * gated_worker_words(j.I)) * sizeof *room)))
        OSH_TRY(OSH_E_NOMEM);
    for (int k = 0; k < 2; k++) {
        if (g->bias[k]) OSH_TRY(osh_f32_weight(cx, &bias[k], g->bias[k], g->x->dtype));
        j.bias[k] = bias[k];
    }
    for (int i = 0; i < n; i++) {
        uint32_t *p = room + i * gated_worker_words(j.I);
        j.workers[i] = (worker){{p, p + panels}, p + 2 * panels, -1};
    }
    j.n_parts = osh_div_up(j.N, ROWS);
    OSH_TRY(osh_parallel_for(cx, osh_div_up(j.F, COLS) * j.n_parts, gated_chunk, &j));
    *finite = !atomic_load(&j.bad);
done:
    osh_free(cx, bias[0]);
    osh_free(cx, bias[1]);
    osh_free(cx, j.workers);
    osh_free(cx, room);
    return rc;
}

size_t osh_gated_scratch(int64_t I, int64_t F, int n_threads)
{
    return osh_mem_gross((size_t)(n_threads * gated_worker_words(I)) * sizeof(uint32_t)) +
           2 * osh_mem_gross((size_t)F * sizeof(float)) +
           osh_mem_gross((size_t)n_threads * sizeof(worker));
}
