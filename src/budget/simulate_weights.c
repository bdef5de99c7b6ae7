/* simulate_weights.c - counts the weights that a simulated visit loads. Also allocates simulated
 * blocks of GPU memory for weights that are loaded in advance for the next visit. */
#include <string.h>

#include "match/lookup.h"
#include "budget/sim.h"
#include "budget/simulate_solve.h"

int64_t osh_sim_weight_bytes(const osh_sim *s, int w)
{
    if (s->gpu) return osh_layout_bytes(s->gpu, OSH_LAYOUT_WEIGHT, w);
    return (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, w);
}

static void sim_load_one(osh_sim *s, int w)
{
    const osh_entry *e = osh_weight_entry(s->p->in->graph, s->p->in->ck, w);
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

/* Sets want[w] to true if the step needs weight w and the weight is not in memory. */
static void sim_want_weights(const osh_sim *s, bool *want, const osh_range *r, const osh_step *st)
{
    memset(want + r->w0, 0, (size_t)(r->w1 - r->w0) * sizeof *want);
    osh_step_wants(want, s->p->schedule, r, st);
    for (int w = r->w0; w < r->w1; w++) want[w] &= !s->weights.loaded[w];
}

/* Allocates simulated blocks of GPU memory for those weights of the next visit that are loaded in
 * advance: its first weights. */
static osh_status sim_ahead(osh_ctx *cx, osh_sim *s)
{
    osh_status rc = OSH_OK;
    osh_steps *next = s->ahead; // view
    osh_layout_enter(s->gpu, s->index + 1, OSH_WAY_AHEAD);
    OSH_TRY(osh_visit_list(cx, next, s->p->schedule, s->index + 1, NULL));
    const osh_range *r = osh_steps_range(next);
    const osh_step *load = osh_steps_first(next, OSH_STEP_LOAD);
    if (load) sim_want_weights(s, s->weights.want, r, load);
    for (int w = r->w0; load && w < r->w1; w++)
        if (s->weights.want[w]) OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_WEIGHT, w));
    osh_sim_note(s, 0, 0, s->values.bytes);
done:
    return rc;
}

void osh_sim_note_reload(osh_sim *s, const osh_linear *l)
{
    int64_t way = s->gpu ? (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, l->weight) : 0;
    int64_t codes = (int64_t)osh_mem_gross((size_t)(l->O * l->I));
    osh_sim_note(s, 0, way + osh_memory_pack_bytes(s->p, l) + codes, s->values.bytes);
}

osh_status osh_sim_load(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st)
{
    osh_status rc = OSH_OK;
    osh_layout_enter(s->gpu, s->index, osh_way_of(st));
    sim_want_weights(s, s->weights.want, r, st);
    for (int w = r->w0; w < r->w1; w++) {
        if (!s->weights.want[w]) continue;
        sim_load_one(s, w);
        if (!s->gpu) continue;
        s->weights.kept[w] = true;
        s->weights.copies += (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, w);
        OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_WEIGHT, w));
    }
    osh_sim_note(s, s->p->memory.reading, 0, s->values.bytes);
    for (int i = r->l0; i < r->l1; i++)
        if (s->weights.want[s->p->match->linears[i].weight] &&
            osh_is_done_before(s->p->schedule, &s->p->match->linears[i]))
            osh_sim_note_reload(s, &s->p->match->linears[i]);
    if (s->gpu && !s->weights.began && s->to->how.prefetch_device) OSH_TRY(sim_ahead(cx, s));
    s->weights.began = true;
done:
    return rc;
}
