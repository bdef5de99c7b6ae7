/* simulate_weights.c - counts the weights that a simulated visit loads, and allocates simulated
 * blocks of GPU memory for the weights that the next visit loads first. */
#include <string.h>

#include "rewrite/folds.h"
#include "match/lookup.h"
#include "budget/simulate_bytes.h"
#include "budget/simulate_solve.h"
#include "budget/simulate_weights.h"

int64_t osh_sim_weight_bytes(const osh_sim *s, int w)
{
    if (s->gpu) return osh_layout_bytes(s->gpu, OSH_LAYOUT_WEIGHT, w);
    return (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, w);
}

static void sim_load_one(osh_sim *s, int w)
{
    const osh_st_entry *e = osh_weight_entry(s->p->in->graph, s->p->in->ck, w);
    s->weights.loaded[w] = s->weights.ever[w] = true;
    s->weights.bytes += osh_sim_weight_bytes(s, w);
    if (!s->weights.began)
        s->to->first_load += (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, w);
    s->to->read_bytes += e->end - e->begin;
}

void osh_sim_drop_copy(osh_sim *s, int weight)
{
    if (!s->weights.kept[weight]) return;
    s->weights.kept[weight] = false;
    s->weights.copies -= (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, weight);
}

void osh_sim_drop_copies(osh_sim *s)
{
    for (int w = s->r->w0; s->gpu && w < s->r->w1; w++) {
        bool waits = !s->weights.kept[w];
        for (int i = osh_first_user(s->p->match, w); i >= 0 && !waits;
             i = osh_next_user(s->p->match, i))
            waits = osh_wants(s->p->schedule, &s->p->match->linears[i]) && !s->solved[i];
        if (!waits) osh_sim_drop_copy(s, w);
    }
}

/* State of the walk through the next visit, which finds the weights that this visit loads first. */
typedef struct ahead {
    osh_sim *s;
    bool seen;
} ahead;

/* Sets want[w] to true if the step needs weight w and the weight is not in memory. */
static void sim_want_weights(const osh_sim *s, bool *want, const osh_range *r, const osh_step *st,
                             const bool *values)
{
    memset(want + r->w0, 0, (size_t)(r->w1 - r->w0) * sizeof *want);
    osh_step_wants(want, s->p->schedule, r, st, values);
    for (int w = r->w0; w < r->w1; w++) want[w] &= !s->weights.loaded[w];
}

static osh_status ahead_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st,
                             const bool *values)
{
    osh_status rc = OSH_OK;
    ahead *a = user;
    if (a->seen) goto done;
    sim_want_weights(a->s, a->s->weights.want, r, st, values);
    for (int w = r->w0; w < r->w1; w++)
        if (a->s->weights.want[w]) OSH_TRY(osh_layout_take(cx, a->s->gpu, OSH_LAYOUT_WEIGHT, w));
    a->seen = true;
done:
    return rc;
}

static osh_status sim_ahead(osh_ctx *cx, osh_sim *s)
{
    ahead a = {.s = s};
    osh_sim_enter(s, s->index + 1, OSH_WAY_AHEAD);
    osh_visitor v = {.load = ahead_load, .user = &a};
    osh_status rc = osh_visit_walk(cx, s->p->schedule, s->index + 1, &v);
    if (!rc) osh_sim_note(s, 0, 0, s->values.bytes);
    return rc;
}

void osh_sim_note_reload(osh_sim *s, const osh_linear *l)
{
    int64_t way = s->gpu ? (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, l->weight) : 0;
    int64_t codes = (int64_t)osh_mem_gross((size_t)(l->O * l->I));
    osh_sim_note(s, 0, way + osh_memory_pack_bytes(s->p, l) + codes, s->values.bytes);
}

osh_status osh_sim_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st,
                        const bool *values)
{
    osh_status rc = OSH_OK;
    osh_sim *s = user;
    osh_sim_enter(s, s->index, st->again ? OSH_WAY_AGAIN : OSH_WAY_FIRST);
    sim_want_weights(s, s->weights.want, r, st, values);
    for (int w = r->w0; w < r->w1; w++) {
        if (!s->weights.want[w]) continue;
        sim_load_one(s, w);
        if (!s->gpu) continue;
        s->weights.kept[w] = true;
        s->weights.copies += (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, w);
        OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_WEIGHT, w));
    }
    osh_sim_note(s, 0, 0, s->values.bytes);
    for (int i = r->l0; i < r->l1; i++)
        if (s->weights.want[s->p->match->linears[i].weight] &&
            osh_is_done_before(s->p->schedule, &s->p->match->linears[i]))
            osh_sim_note_reload(s, &s->p->match->linears[i]);
    if (s->gpu && !s->weights.began && s->to->prefetch_device) OSH_TRY(sim_ahead(cx, s));
    s->weights.began = true;
done:
    return rc;
}
