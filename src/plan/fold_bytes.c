/* fold_bytes.c - memory of a fold's factors while they are collected and made, and the descriptions
 * of Linears for a search. */
#include "plan/folds.h"
#include "plan/lookup.h"

bool osh_fold_searches(const osh_plan *p, const osh_fold *f)
{
    return p->recipe->modifiers[f->modifier].type->search != NULL;
}

osh_status osh_fold_balance(osh_ctx *cx, osh_balance **out, const osh_plan *p, const osh_fold *f)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->graph;
    osh_balance *b = NULL; // own
    OSH_NEW(cx, b, f->n_takes);
    for (int k = 0; k < f->n_takes; k++) {
        const osh_weight *w = &g->weights[f->takes[k]];
        int i = osh_first_user(p, f->takes[k]); // at most one
        const osh_linear *l = i < 0 ? NULL : &p->linears[i];
        b[k] = (osh_balance){.name = l ? l->name : w->name,
                             .scheme = l && l->scheme_index >= 0 ? l->scheme : NULL,
                             .dtype = p->ck->tensors[w->tensor].e->dtype, .O = w->shape[0]};
    }
    *out = b;
done:
    return rc;
}

osh_fold_types osh_fold_types_of(const osh_plan *p, const osh_fold *f)
{
    if (!osh_fold_searches(p, f)) return (osh_fold_types){&osh_stat_channel_range, NULL};
    return (osh_fold_types){&osh_stat_channel_sum, &osh_stat_hessian};
}

int64_t osh_fold_seen_bytes(const osh_plan *p, const osh_fold *f, const osh_groups *groups)
{
    osh_fold_types types = osh_fold_types_of(p, f);
    size_t bytes = osh_stat_bytes(types.channels, groups, f->n);
    if (types.squares) bytes += osh_stat_bytes(types.squares, groups, f->n);
    return (int64_t)bytes;
}

osh_status osh_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_plan *p, const osh_fold *f,
                            bool reads)
{
    osh_status rc = OSH_OK;
    const osh_modifier *m = &p->recipe->modifiers[f->modifier];
    int n = osh_threads(cx);
    osh_balance *b = NULL; // own
    *bytes = (int64_t)(osh_mem_gross((size_t)(n * f->n) * sizeof(float)) +
                       (reads ? (size_t)n * osh_mem_gross(OSH_FOLD_PIECE) : 0));
    if (!m->type->search) goto done;
    OSH_TRY(osh_fold_balance(cx, &b, p, f));
    osh_search j = {.n = f->n, .balance = b, .n_balance = f->n_takes};
    *bytes =
        (int64_t)(osh_mem_gross((size_t)f->n_takes * sizeof *b) + m->type->search_bytes(m, &j, n));
done:
    osh_free(cx, b);
    return rc;
}
