/* simulate_bytes.c - computes the bytes of values, of statistics, of folds, and of the values that
 * are kept for two-pass observers. Also raises the peaks of a simulated visit. */
#include "budget/bytes.h"
#include "budget/sim.h"
#include "graph/counted.h"
#include "ops/device_ops.h"
#include "rewrite/folds.h"
#include "quant/observer.h"
#include "store/activations.h"
#include "store/loaders.h"
#include "store/slots.h"

void osh_sim_note(osh_sim *s, int64_t device, int64_t host)
{
    int64_t values = s->values.bytes;
    bool disk = s->tier == OSH_TIER_DISK,
         looks_disk = s->looks.now && s->p->schedule->looks == OSH_LOOK_DISK;
    int64_t dev =
        s->weights.bytes + s->stats.bytes + device + s->values.kept +
        (s->tier == OSH_TIER_DEVICE ? values : 0);
    int64_t lists = s->stats.lists + s->stats.ranges + s->stats.histograms;
    host += s->weights.copies + lists;
    if (s->looks.now)
        host += osh_acts_own_bytes(s->p->in->graph) + (looks_disk ? s->frame : s->looks.now);
    if (s->gpu) dev = osh_layout_extent(s->gpu) + device;
    else dev += lists, host += dev - lists;
    max_into(&s->to->weight_bytes, s->weights.bytes);
    max_into(&s->to->stats_bytes, s->stats.bytes);
    max_into(&s->to->live_bytes, values + s->values.kept);
    max_into(&s->peak->device, dev);
    max_into(&s->values.most, values);
    if (s->tier == OSH_TIER_HOST) host += s->gpu ? s->values.most : values;
    max_into(&s->peak->host, host + (disk ? s->frame : 0) + s->values.ahead);
    max_into(&s->peak->scratch, (disk ? values : 0) + (looks_disk ? s->looks.now : 0));
}

int64_t osh_sim_batch_rest(const osh_sim *s, int v, int64_t b)
{
    if (v == s->p->in->graph->input_ids) return 0;
    if (s->tier == OSH_TIER_DEVICE)
        return osh_layout_bytes(s->gpu, OSH_LAYOUT_ROWS, v * s->p->schedule->n_batches + b);
    return osh_acts_batch_bytes(s->p->in->graph, v, osh_batch_tokens(s->p->schedule, b));
}

int64_t osh_sim_list_rest(const osh_sim *s, int v)
{
    bool any = s->tier == OSH_TIER_HOST && v != s->p->in->graph->input_ids;
    return any ? (int64_t)osh_mem_gross((size_t)s->p->in->data.n * sizeof(void *)) : 0;
}

int64_t osh_sim_value_rest(const osh_sim *s, int v)
{
    const osh_budget *p = s->p;
    int64_t sum = 0;
    if (v == p->in->graph->input_ids || s->values.n_kept == p->schedule->n_batches) return 0;
    if (s->gpu && s->tier == OSH_TIER_DISK)
        return osh_slots_bytes(p->in->graph, &p->in->data, v, 0,
                               !osh_scratch_is_packed(p->in->opt));
    if (!s->gpu)
        return osh_acts_bytes(p->in->graph, &p->in->data, s->tier, v,
                              p->schedule->batch_at[s->values.n_kept]);
    for (int64_t b = 0; b < p->schedule->n_batches; b++) sum += osh_sim_batch_rest(s, v, b);
    return sum + osh_sim_list_rest(s, v);
}

int64_t osh_sim_value_kept(const osh_sim *s, int v)
{
    const osh_budget *p = s->p;
    if (v == p->in->graph->input_ids) return 0;
    return osh_acts_kept_bytes(p->in->graph, &p->in->data, v, p->schedule->batch_at,
                               s->values.n_kept);
}

int64_t osh_sim_batch_bytes(const osh_sim *s, int v)
{
    return (int64_t)osh_value_gross(s->p->in->graph, v, s->batch_tokens);
}

int64_t osh_sim_longest(const osh_sim *s)
{
    const osh_dataset *d = &s->p->in->data;
    int64_t tokens = 0;
    for (int64_t k = 0; k < d->n; k++) max_into(&tokens, d->offsets[k + 1] - d->offsets[k]);
    return tokens;
}

static bool sim_is_masked(const osh_sim *s) { return s->p->in->data.counted != NULL; }

bool osh_sim_is_routed(const osh_sim *s, int value)
{
    return s->gpu && s->p->in->by_route && osh_is_by_route(s->p->in->graph, value);
}

size_t osh_sim_listed_bytes(const osh_sim *s)
{
    return sim_is_masked(s) ? osh_expert_counted_device_bytes(s->counted_tokens) : 0;
}

size_t osh_sim_gathered_bytes(const osh_sim *s, int value)
{
    const osh_graph *g = s->p->in->graph;
    size_t row = osh_value_bytes(g, value);
    if (osh_sim_is_routed(s, value))
        return osh_arena_gross((size_t)osh_gathered_rows(s->counted_tokens) * row) +
               osh_sim_listed_bytes(s);
    if (!s->gpu || !sim_is_masked(s)) return 0;
    bool original = g->values[value].original >= 0 && osh_observed(g, s->r->same, value) == value;
    return osh_counted_device_bytes(row, s->counted_tokens, original);
}

size_t osh_sim_accum_scratch(const osh_sim *s, const osh_op *op, int64_t I)
{
    int64_t width[OSH_OP_MAX_IN] = {I}, n = s->counted_tokens;
    if (s->p->in->by_route) n = osh_gathered_rows(n);
    if (s->gpu)
        return op->arena_bytes ? op->arena_bytes(NULL, width, 0, n, s->p->in->graph->dtype) : 0;
    if (!op->scratch) return 0;
    return op->scratch(NULL, width, 0, s->batch_tokens, s->n_threads);
}

int64_t osh_sim_sum_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l)
{
    const osh_sum_type *t = &osh_sums[sum];
    if (s->gpu && t->on_gpu) return osh_layout_bytes(s->gpu, t->layout, l->input);
    return osh_sum_bytes(sum, l->I) +
           (t->solving ? (int64_t)osh_mem_gross((size_t)l->I * t->solving) : 0);
}

int64_t osh_sim_part_bytes(const osh_sim *s, osh_sum sum, const osh_linear *l)
{
    const osh_sum_type *t = &osh_sums[sum];
    if (!osh_stat_is_grouped(t->type, &s->p->in->groups)) return 0;
    if (s->gpu && t->on_gpu) return osh_layout_bytes(s->gpu, t->part, l->input);
    return osh_sum_bytes(sum, l->I);
}

int64_t osh_sim_measured_bytes(const osh_sim *s, const osh_range *r, const bool *values)
{
    const osh_measured *m = s->p->schedule->measured;
    int64_t sum = 0;
    for (int i = r->first; m && i < r->first + r->n_nodes; i++)
        if (m[i].value >= 0 && values[m[i].value]) sum += m[i].bytes;
    return sum;
}

size_t *osh_sim_hook(const osh_sim *s, int value)
{
    return &s->stats.hook[osh_observed(s->p->in->graph, s->r->same, value)];
}

int64_t *osh_sim_histograms(osh_sim *s)
{
    return s->gpu ? &s->stats.histograms : &s->stats.bytes;
}

int64_t osh_sim_looked_bytes(const osh_sim *s)
{
    osh_tier tier = s->p->schedule->looks == OSH_LOOK_DISK ? OSH_TIER_DISK : OSH_TIER_HOST;
    int64_t n = 0;
    for (int v = s->r->v0; v < s->r->v1; v++) {
        if (!s->looks.of[v]) continue;
        n += osh_acts_bytes(s->p->in->graph, &s->p->in->data, tier, v, 0);
        if (s->p->memory.looks_f16)
            n -= 2 * s->p->in->data.offsets[s->p->in->data.n] * s->p->in->graph->values[v].width;
    }
    return n;
}

size_t osh_sim_narrow_bytes(const osh_sim *s, const osh_q_args *a, int value, int64_t n_tokens)
{
    if (!s->p->memory.looks_f16 || !osh_observer_twice(a)) return 0;
    return osh_tensor_gross((size_t)(n_tokens * s->p->in->graph->values[value].width) * 2);
}

int64_t osh_sim_loaders_bytes(const osh_sim *s)
{
    return osh_loaders_own_bytes(s->p->memory.n_loaders,
                                 osh_scratch_is_packed(s->p->in->opt) ? s->frame : 0);
}

void osh_sim_look(osh_sim *s)
{
    const osh_budget *p = s->p;
    int64_t tokens = osh_sim_longest(s),
            n_loaders = p->schedule->looks == OSH_LOOK_DISK ? p->memory.n_loaders : 0,
            // on a GPU, the blocks for prefetched values still exist
            ahead = s->gpu ? s->values.ahead : 0;
    for (int v = s->r->v0; s->looks.now && v < s->r->v1; v++) {
        int64_t sample = (int64_t)osh_value_gross(p->in->graph, v, tokens);
        // the rows that count are copied in host memory, also in a job on a GPU
        int64_t counted = s->gpu && sim_is_masked(s) ? sample : 0;
        if (n_loaders)
            s->values.ahead = ahead + osh_sim_loaders_bytes(s) +
                       osh_loaders_value_bytes(p->in->graph, v, n_loaders, tokens, false);
        if (s->looks.of[v] && s->gpu) osh_sim_note(s, 0, counted + s->stats.copied);
        else if (s->looks.of[v]) osh_sim_note(s, sample + (int64_t)*osh_sim_hook(s, v), 0);
        s->looks.of[v] = false;
    }
    s->values.ahead = ahead, s->looks.now = 0;
}

int64_t osh_sim_fold_bytes(const osh_sim *s, const osh_fold *f, const osh_groups *groups)
{
    osh_fold_types types = osh_fold_types_of(s->p->rewrites, f);
    size_t bytes = osh_stat_bytes(types.channels, groups, f->n);
    if (types.squares) bytes += osh_stat_bytes(types.squares, groups, f->n);
    return (int64_t)bytes;
}

osh_status osh_sim_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_sim *s, const osh_fold *f)
{
    osh_status rc = OSH_OK;
    const osh_modifier *m = &s->p->in->recipe->modifiers[f->modifier];
    // true if the computation of the factors may read weights from the checkpoint
    bool reads = s->to->how.segments;
    int n = s->n_threads;
    osh_balance *b = NULL; // own
    *bytes = (int64_t)(osh_mem_gross((size_t)(n * f->n) * sizeof(float)) +
                       (reads ? (size_t)n * osh_mem_gross(OSH_FOLD_PIECE) : 0));
    if (!m->type->transform->search) goto done;
    OSH_TRY(osh_fold_balance(cx, &b, s->p->rewrites, f));
    osh_search j = {.n = f->n, .balance = b, .n_balance = f->n_takes};
    *bytes = (int64_t)(osh_mem_gross((size_t)f->n_takes * sizeof *b) +
                       m->type->transform->search_bytes(m, &j, n));
done:
    osh_free(cx, b);
    return rc;
}
