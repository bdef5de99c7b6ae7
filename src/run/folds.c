/* folds.c - collects statistics of a layer's output (ranges or sums of channels). Computes factors
 * from the statistics, with the rule or the search of a modifier. Then folds the factors into
 * weights.
 *
 * With a GPU, the GPU collects the statistics. The host copies the statistics and computes the
 * factors. It folds the factors into the host copies of weights, and copies these weights to the
 * GPU again. */
#include "run/folds.h"

#include <math.h>
#include <string.h>

#include "graph/counted.h"
#include "match/lookup.h"
#include "plan/division.h"
#include "plan/exchange.h"
#include "budget/layout.h"

typedef struct seen { // statistics of one fold; the pointers are own
    int fold;
    /* Statistic of the channels. With a search, it is the sum of each channel
     * (osh_stat_channel_sum). Without one, it is the range of each channel
     * (osh_stat_channel_range). */
    osh_stat *channels;
    osh_stat *squares;  // Hessian, which a search for factors needs; NULL: there is no search
    int64_t n_tokens;
} seen;

struct osh_folding {
    const osh_budget *plan; // view
    osh_range range;
    seen *of; // own [n]: one item for each fold of the range, in the order of the plan
    int n;
    osh_ranks *ranks; // view: the ranks that collect statistics; NULL: there is only this process
    int *owner; // own [n]: rank that computes the factors of the fold; NULL: rank 0 for all folds
};

/* Allocates a statistic for the fold with index `fold`. The members `all` and `part` of the
 * statistic use GPU memory of the kinds kind[0] and kind[1]. */
static osh_status folding_new_stat(osh_ctx *cx, osh_stat **out, const osh_folding *f, int fold,
                                   const osh_stat_type *type, const osh_layout_kind kind[2])
{
    osh_status rc = OSH_OK;
    const osh_budget *p = f->plan;
    const osh_where where = {p->in->device, OSH_LIFE_LONG};
    int visit = p->in->pipeline == OSH_PIPELINE_BASIC ? 0 : f->range.first_subgraph;
    osh_places_aim(p, visit, OSH_WAY_FOLD, kind[0], fold);
    OSH_TRY(osh_stat_new(cx, out, type, p->in->groups, p->rewrites->folds[fold].n, where));
    if (osh_stat_is_grouped(type, &p->in->groups))
        osh_places_aim(p, visit, OSH_WAY_FOLD, kind[1], fold);
    OSH_TRY(osh_stat_new_part(cx, *out, where));
done:
    return rc;
}

/* Begins the statistics of fold number `fold`. */
static osh_status folding_begin(osh_ctx *cx, osh_folding *f, int fold)
{
    static const osh_layout_kind channels[] = {OSH_LAYOUT_FOLD, OSH_LAYOUT_FOLD_PART},
                                 squares[] = {OSH_LAYOUT_FOLD_HESSIAN,
                                              OSH_LAYOUT_FOLD_HESSIAN_PART};
    osh_status rc = OSH_OK;
    const osh_rewrites *w = f->plan->rewrites;
    osh_fold_types types = osh_fold_types_of(w, &w->folds[fold]);
    seen *s = &f->of[f->n++];
    s->fold = fold;
    OSH_TRY(folding_new_stat(cx, &s->channels, f, fold, types.channels, channels));
    if (types.squares)
        OSH_TRY(folding_new_stat(cx, &s->squares, f, fold, types.squares, squares));
done:
    return rc;
}

osh_status osh_folding_new(osh_ctx *cx, osh_folding **out, const osh_budget *p, const osh_range *r)
{
    osh_status rc = OSH_OK;
    osh_folding *f = NULL; // own
    OSH_NEW(cx, f, 1);
    f->plan = p, f->range = *r;
    int n_inside = 0;
    for (int i = 0; i < p->rewrites->n_folds; i++)
        n_inside += osh_fold_inside(p->schedule, r, &p->rewrites->folds[i]);
    OSH_NEW(cx, f->of, n_inside);
    for (int i = 0; i < p->rewrites->n_folds; i++) {
        if (!osh_fold_inside(p->schedule, r, &p->rewrites->folds[i])) continue;
        OSH_TRY(folding_begin(cx, f, i));
    }
    *out = f, f = NULL; // passes ownership
done:
    osh_folding_free(cx, f);
    return rc;
}

void osh_folding_free(osh_ctx *cx, osh_folding *f)
{
    if (!f) return;
    for (int i = 0; i < f->n; i++)
        osh_stat_free(cx, f->of[i].channels), osh_stat_free(cx, f->of[i].squares);
    osh_free(cx, f->of);
    osh_free(cx, f->owner);
    osh_free(cx, f);
}

osh_status osh_folding_divide(osh_ctx *cx, osh_folding *f, osh_ranks *ranks)
{
    osh_status rc = OSH_OK;
    double *cost = NULL; // own [n]
    if (!ranks) goto done;
    f->ranks = ranks;
    OSH_NEW(cx, cost, f->n);
    OSH_NEW(cx, f->owner, f->n);
    for (int i = 0; i < f->n; i++) {
        cost[i] = 1 + osh_cost_of_fold(f->plan, &f->plan->rewrites->folds[f->of[i].fold]);
        f->of[i].channels->open = true;
        if (f->of[i].squares) f->of[i].squares->open = true;
    }
    OSH_TRY(osh_divide_costs(cx, f->owner, cost, f->n, osh_ranks_n(ranks)));
done:
    osh_free(cx, cost);
    return rc;
}

static int folding_owner(const osh_folding *f, int i) { return f->owner ? f->owner[i] : 0; }

osh_status osh_folding_exchange(osh_ctx *cx, osh_folding *f, int64_t round)
{
    osh_status rc = OSH_OK;
    for (int i = 0; f->ranks && i < f->n; i++) {
        osh_stat *squares = f->of[i].squares;
        int owner = folding_owner(f, i);
        OSH_TRY(osh_exchange_groups(cx, f->ranks, f->of[i].channels, owner, round));
        if (squares) OSH_TRY(osh_exchange_groups(cx, f->ranks, squares, owner, round));
    }
done:
    return rc;
}

osh_status osh_folding_feed(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                            const osh_batch *b)
{
    osh_status rc = OSH_OK;
    osh_folding *f = user;
    const osh_dataset *d = &f->plan->in->data;
    osh_counted c = {0}; // own
    for (seen *s = f->of; s < f->of + f->n; s++) {
        if (f->plan->rewrites->folds[s->fold].value != value) continue;
        // the pass of an earlier segment (osh_phases.segments) has already added this batch
        if (b->first_sample < s->channels->next) continue;
        if (d->counted && !c.x) {
            osh_counting which = {.counted = d->counted + d->offsets[b->first_sample]};
            OSH_TRY(osh_counted_new(cx, &c, x, NULL, b, &which));
        }
        const osh_tensor *rows = c.x ? c.x : x;
        osh_op_args a = {.in = {rows}, .seqs = c.x ? &c.part.seqs : &b->seqs};
        OSH_TRY(osh_stat_feed(cx, s->channels, &a, b->first_sample));
        s->n_tokens += rows->shape[0];
        if (s->squares) OSH_TRY(osh_stat_feed(cx, s->squares, &a, b->first_sample));
    }
done:
    osh_counted_deinit(cx, &c);
    return rc;
}

/* ---- parallel work on chunks of weights ---- */

typedef struct piece_work {
    const osh_budget *p;
    /* view: the weight in host memory; NULL: chunks are read from the checkpoint */
    const osh_tensor *w;
    int64_t tensor, I, n; // tensor: index in the source; I: columns; n: elements of the weight
    /* Number of elements of a chunk. A chunk consists of whole rows, or of a part of one row if a
     * row is larger than OSH_FOLD_PIECE. */
    int64_t piece;
    float *most; // view [threads, I]: for each thread, largest magnitude of each column so far
    /* Buffers for reading chunks. They are unused if `w` is not NULL. */
    uint8_t *rooms;       // view [threads, OSH_FOLD_PIECE]
    osh_fold_rule rule;   // describes how factors are folded into the weight
} piece_work;

/* Reads elements [first, first + n) of a source tensor to the buffer `to`. Factors that are known
 * already are folded into these elements. */
static osh_status fold_read_elements(osh_ctx *cx, const osh_budget *p, int64_t tensor, void *to,
                                     int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t = &p->in->ck->tensors[tensor];
    int64_t size = (int64_t)osh_dtype_bytes(t->e->dtype);
    OSH_TRY(osh_checkpoint_read_part(cx, to, p->in->ck, t, first * size, (size_t)(n * size)));
    OSH_TRY(osh_checkpoint_apply(cx, p->in->ck, tensor, to, first, n));
done:
    return rc;
}

/* Reads one chunk of the weight. Row number `worker` of the array `most` has the largest magnitude
 * of each column so far. Updates this row. */
static osh_status fold_most_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const piece_work *k = user;
    const osh_ckpt_tensor *t = &k->p->in->ck->tensors[k->tensor];
    size_t size = osh_dtype_bytes(t->e->dtype);
    int64_t first = chunk * k->piece, n = k->n - first < k->piece ? k->n - first : k->piece;
    const uint8_t *from = k->w ? (const uint8_t *)k->w->data + (size_t)first * size : NULL;
    if (!from) {
        uint8_t *room = k->rooms + (size_t)worker * OSH_FOLD_PIECE;
        OSH_TRY(fold_read_elements(cx, k->p, k->tensor, room, first, n));
        from = room;
    }
    osh_fold_most(k->most + (int64_t)worker * k->I, from, t->e->dtype, k->I, first, n);
done:
    return rc;
}

static osh_status fold_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const piece_work *k = user;
    int64_t first = chunk * k->piece, n = k->n - first < k->piece ? k->n - first : k->piece;
    (void)worker;
    void *at = (char *)k->w->data + (size_t)first * osh_dtype_bytes(k->w->dtype);
    osh_fold_factors(at, k->w->dtype, &k->rule, first, n);
    if (osh_find_nonfinite(at, k->w->dtype, n) >= 0)
        return osh_fail(cx, OSH_E_NUMERIC, "%s is not finite as %s after the factors are folded in",
                        k->p->in->ck->tensors[k->tensor].e->name, osh_dtype_name(k->w->dtype));
    return OSH_OK;
}

/* Returns a weight in host memory (view), or NULL if the weight is not loaded. With a GPU, loaded
 * weights have copies in host memory until the visit solves Linears. A visit does the folds before
 * it solves Linears. */
static osh_tensor *weight_on_host(const osh_weights *w, int weight)
{
    return w->device ? w->host[weight] : w->w[weight];
}

static piece_work piece_work_of(const osh_budget *p, const osh_weights *w, int weight)
{
    const osh_weight *g = &p->in->graph->weights[weight];
    piece_work k = {.p = p,
                    .w = weight_on_host(w, weight),
                    .tensor = g->tensor,
                    .I = g->ndim > 1 ? g->shape[1] : 1};
    k.n = g->shape[0] * k.I;
    k.piece = OSH_FOLD_PIECE / (int64_t)osh_dtype_bytes(p->in->ck->tensors[g->tensor].e->dtype);
    if (k.I < k.piece) k.piece -= k.piece % k.I;
    return k;
}

static int64_t piece_work_chunks(const piece_work *k) { return (k->n + k->piece - 1) / k->piece; }

/* Finds the largest magnitude of each column in all weights that the fold multiplies by factors.
 * All these weights have f->n columns. Writes the results to the first row of `most` [threads,
 * f->n]. The other rows are scratch. */
static osh_status fold_find_most(osh_ctx *cx, float *most, const osh_budget *p, const osh_fold *f,
                                 const osh_weights *w)
{
    osh_status rc = OSH_OK;
    uint8_t *rooms = NULL; // own
    bool reads = false;
    for (int i = 0; i < f->n_takes; i++) reads |= !weight_on_host(w, f->takes[i]);
    if (reads && !(rooms = osh_alloc(cx, (size_t)osh_threads(cx) * OSH_FOLD_PIECE)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory to look through weights");
    memset(most, 0, (size_t)(osh_threads(cx) * f->n) * sizeof *most);
    for (int i = 0; i < f->n_takes; i++) {
        piece_work k = piece_work_of(p, w, f->takes[i]);
        k.most = most, k.rooms = rooms;
        OSH_TRY(osh_parallel_for(cx, piece_work_chunks(&k), fold_most_chunk, &k));
    }
    for (int64_t c = f->n; c < osh_threads(cx) * f->n; c++)
        if (most[c] > most[c % f->n]) most[c % f->n] = most[c];
done:
    osh_free(cx, rooms);
    return rc;
}

/* Folds the factors into the weight in w->w or w->host, and into its copy on a GPU. Does nothing if
 * the weight is not loaded. */
static osh_status fold_into(osh_ctx *cx, const osh_budget *p, const osh_weights *w, int weight,
                            osh_fold_rule rule)
{
    osh_status rc = OSH_OK;
    piece_work k = piece_work_of(p, w, weight);
    k.rule = rule;
    if (!k.w && w->w[weight])
        OSH_FAIL(cx, OSH_E_INTERNAL, "%s has no copy in host memory, and the factors need one",
                 p->in->graph->weights[weight].name);
    if (!k.w) goto done;
    OSH_TRY(osh_parallel_for(cx, piece_work_chunks(&k), fold_chunk, &k));
    if (w->device && w->w[weight]) OSH_TRY(osh_tensor_copy(cx, w->w[weight], k.w));
done:
    return rc;
}

static osh_status factors_by_range(osh_ctx *cx, const osh_budget *p, const seen *s,
                                   const osh_weights *w)
{
    osh_status rc = OSH_OK;
    osh_fold *f = &p->rewrites->folds[s->fold];
    const osh_modifier *m = &p->in->recipe->modifiers[f->modifier];
    float *most = osh_alloc(cx, (size_t)(osh_threads(cx) * f->n) * sizeof *most); // own
    const float *lo = s->channels->all->data;
    if (!most)
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the factors of %s",
                 p->in->graph->modules[f->module].name);
    OSH_TRY(fold_find_most(cx, most, p, f, w));
    osh_channels c = {
        .lo = lo, .hi = lo + f->n, .most = most, .n = f->n, .dtype = p->in->graph->dtype};
    m->type->transform->factors(m, f->s, &c);
done:
    osh_free(cx, most);
    return rc;
}

typedef struct source { // weights that the search for factors reads; the pointers are views
    const osh_budget *p;
    const osh_fold *f;
    const osh_weights *w;
} source;

/* Reads rows [first, first + n) of the k-th weight that the fold multiplies by factors. Callback
 * for the member `rows` of osh_search. */
static osh_status fold_source_rows(osh_ctx *cx, const osh_search *j, int k, void *to, int64_t first,
                                   int64_t n)
{
    const source *s = j->user;
    int weight = s->f->takes[k];
    const osh_tensor *w = weight_on_host(s->w, weight);
    if (!w)
        return fold_read_elements(cx, s->p, s->p->in->graph->weights[weight].tensor, to,
                                  first * j->n, n * j->n);
    size_t row = (size_t)j->n * osh_dtype_bytes(w->dtype);
    memcpy(to, (const char *)w->data + (size_t)first * row, (size_t)n * row);
    return OSH_OK;
}

/* Doubles the elements of h below the diagonal. Sets the elements above it to 0, because a GPU
 * leaves them undefined. */
static void hessian_double_lower(float *h, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++) h[i * n + k] *= 2;
        memset(h + i * n + i + 1, 0, (size_t)(n - 1 - i) * sizeof *h);
    }
}

/* Searches the factors with which a fold has the smallest error. First brings the statistics into
 * the form that osh_search expects: turns the sums of |x| into means over tokens, and doubles X^T X
 * below the diagonal. */
static osh_status factors_by_search(osh_ctx *cx, const osh_budget *p, const seen *s,
                                    const osh_weights *w)
{
    osh_status rc = OSH_OK;
    osh_fold *f = &p->rewrites->folds[s->fold];
    const osh_modifier *m = &p->in->recipe->modifiers[f->modifier];
    const char *name = p->in->graph->modules[f->module].name;
    source from = {p, f, w};
    osh_balance *balance = NULL; // own
    float *mean = s->channels->all->data, *h = s->squares->all->data;
    OSH_TRY(osh_fold_balance(cx, &balance, p->rewrites, f));
    for (int64_t c = 0; c < f->n; c++) mean[c] /= (float)s->n_tokens;
    hessian_double_lower(h, f->n);
    osh_search j = {.name = name,
                    .n = f->n,
                    .mean = mean,
                    .h = h,
                    .balance = balance,
                    .n_balance = f->n_takes,
                    .rows = fold_source_rows,
                    .user = &from};
    OSH_TRY(m->type->transform->search(cx, m, f->s, &j));
    osh_log(cx, OSH_LOG_INFO, "%s of %s: %.4f of the error without factors", m->type->name, name,
            j.before > 0 ? j.after / j.before : 1);
done:
    osh_free(cx, balance);
    return rc;
}

static osh_status fold_make_factors(osh_ctx *cx, const osh_budget *p, const seen *s,
                                    const osh_weights *w)
{
    osh_status rc = OSH_OK;
    osh_fold *f = &p->rewrites->folds[s->fold];
    const osh_modifier *m = &p->in->recipe->modifiers[f->modifier];
    const char *name = p->in->graph->modules[f->module].name;
    const float *lo = s->channels->all->data;
    if (!s->n_tokens || (!s->squares && !(lo[0] <= lo[f->n])))
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s saw no token: its factors are unknown", name);
    OSH_TRY(s->squares ? factors_by_search(cx, p, s, w) : factors_by_range(cx, p, s, w));
    for (int64_t i = 0; i < f->n; i++)
        if (!(f->s[i] > 0 && isfinite(f->s[i])))
            OSH_FAIL(cx, OSH_E_NUMERIC, "%s: the factor of channel %ld of %s is %g", m->type->name,
                     (long)i, name, (double)f->s[i]);
done:
    return rc;
}

/* Completes the statistics of all folds: copies them from the GPU, adds the sums of the last group
 * of samples (ops/stat.h), and merges the statistics of all ranks. */
static osh_status folding_finish(osh_ctx *cx, const osh_folding *f)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < f->n; i++) {
        const osh_stat *c = f->of[i].channels;
        OSH_TRY(osh_stat_fetch(cx, f->of[i].channels));
        if (f->of[i].squares) OSH_TRY(osh_stat_fetch(cx, f->of[i].squares));
        OSH_TRY(osh_exchange_count(cx, f->ranks, &f->of[i].n_tokens));
        if (c->type->exact) OSH_TRY(osh_exchange_exact(cx, f->ranks, c->type, c->all));
        OSH_TRY(osh_stat_finish(cx, f->of[i].channels));
        if (f->of[i].squares) OSH_TRY(osh_stat_finish(cx, f->of[i].squares));
    }
done:
    return rc;
}

/* True if one of the folds [first, end) changes a weight from which the factors of fold `of` are
 * computed. */
static bool folding_changes(const osh_folding *g, int first, int end, const osh_fold *of)
{
    for (int i = first; i < end; i++) {
        const osh_fold *f = &g->plan->rewrites->folds[g->of[i].fold];
        for (int k = 0; k < of->n_takes; k++) {
            for (int n = 0; n < f->n_takes; n++)
                if (f->takes[n] == of->takes[k]) return true;
            for (int n = 0; n < f->n_gives; n++)
                if (f->gives[n] == of->takes[k]) return true;
        }
    }
    return false;
}

/* Returns the end of the batch of folds that begins with fold `first`. The ranks compute the
 * factors of a batch at the same time. If the factors of a fold depend on weights that an earlier
 * fold of the batch changes, this fold begins the next batch. Without ranks, every batch is one
 * fold. */
static int folding_batch_end(const osh_folding *g, int first)
{
    int end = first + 1;
    while (g->ranks && end < g->n &&
           !folding_changes(g, first, end, &g->plan->rewrites->folds[g->of[end].fold]))
        end++;
    return end;
}

/* Sends the factors of fold i to all ranks, folds them into the weights in memory, and registers
 * them for weights that are read later. */
static osh_status folding_apply(osh_ctx *cx, const osh_folding *g, int i, const osh_weights *w)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = g->plan;
    osh_fold *f = &p->rewrites->folds[g->of[i].fold];
    OSH_TRY(osh_ranks_broadcast(cx, g->ranks, f->s, (size_t)f->n * sizeof *f->s,
                                folding_owner(g, i)));
    for (int k = 0; k < f->n_takes; k++)
        OSH_TRY(fold_into(cx, p, w, f->takes[k], osh_fold_taking(p->rewrites, f, k)));
    for (int k = 0; k < f->n_gives; k++)
        OSH_TRY(fold_into(cx, p, w, f->gives[k], osh_fold_giving(p->rewrites, f, k)));
    OSH_TRY(osh_fold_known(cx, p->rewrites, g->of[i].fold));
done:
    return rc;
}

osh_status osh_run_fold(osh_ctx *cx, osh_run *r, const osh_folding *g, const osh_weights *w)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = r->budget;
    double all = 0, work = 0;
    OSH_TRY(folding_finish(cx, g));
    for (int i = 0; i < g->n; i++) all += osh_cost_of_fold(p, &p->rewrites->folds[g->of[i].fold]);
    double phase = r->pace.cost[g->range.first_subgraph].work[OSH_PHASE_SOLVE];
    osh_scope scope = 0;
    if (all > 0) // a search takes time, so it counts as a part of the phase solve
        scope = osh_run_begin_part(cx, r, OSH_PHASE_SOLVE, g->range.first_subgraph,
                                   phase > all ? all / phase : 1);
    for (int i = 0, end; i < g->n; i = end) {
        end = folding_batch_end(g, i);
        for (int k = i; k < end; k++) {
            osh_fold *f = &p->rewrites->folds[g->of[k].fold];
            OSH_TRY(osh_check_interrupt(cx));
            r->progress.name = p->in->graph->modules[f->module].name;
            if (all > 0) osh_run_step(cx, r, work / all);
            work += osh_cost_of_fold(p, f);
            if (folding_owner(g, k) == osh_ranks_me(g->ranks))
                OSH_TRY(fold_make_factors(cx, p, &g->of[k], w));
        }
        for (int k = i; k < end; k++) OSH_TRY(folding_apply(cx, g, k, w));
    }
    if (all > 0) osh_run_end(cx, r, scope);
    OSH_TRY(osh_emit_folds(cx, r->emitter, r->budget->schedule, g->range.first_subgraph,
                           g->range.n_subgraphs));
done:
    return rc;
}
