/* fold_rules.c - describes how a fold changes weights, and from which statistics its factors are
 * computed. */
#include "match/lookup.h"
#include "rewrite/folds.h"

static int64_t fold_row_width(const osh_rewrites *p, int weight)
{
    const osh_weight *w = &p->in->graph->weights[weight];
    return w->ndim > 1 ? w->shape[1] : 1;
}

osh_fold_rule osh_fold_giving(const osh_rewrites *p, const osh_fold *f, int k)
{
    return (osh_fold_rule){OSH_FOLD_ROWS, f->s, fold_row_width(p, f->gives[k]), k ? 0 : f->offset};
}

osh_fold_rule osh_fold_taking(const osh_rewrites *p, const osh_fold *f, int k)
{
    return (osh_fold_rule){OSH_FOLD_COLUMNS, f->s, fold_row_width(p, f->takes[k]), 0};
}

osh_status osh_fold_known(osh_ctx *cx, const osh_rewrites *p, int fold)
{
    osh_status rc = OSH_OK;
    osh_fold *f = &p->folds[fold];
    const osh_graph *g = p->in->graph;
    if (f->known) goto done;
    for (int k = 0; k < f->n_takes; k++) {
        osh_fold_rule r = osh_fold_taking(p, f, k);
        OSH_TRY(osh_checkpoint_change(cx, p->in->ck, g->weights[f->takes[k]].tensor, &r));
    }
    for (int k = 0; k < f->n_gives; k++) {
        osh_fold_rule r = osh_fold_giving(p, f, k);
        OSH_TRY(osh_checkpoint_change(cx, p->in->ck, g->weights[f->gives[k]].tensor, &r));
    }
    f->known = true;
done:
    return rc;
}

bool osh_fold_searches(const osh_rewrites *p, const osh_fold *f)
{
    return p->in->recipe->modifiers[f->modifier].type->transform->search != NULL;
}

int osh_fold_search_points(const osh_rewrites *p, const osh_fold *f)
{
    const osh_modifier *m = &p->in->recipe->modifiers[f->modifier];
    return osh_fold_searches(p, f) ? m->type->transform->search_points(m) : 0;
}

osh_status osh_fold_balance(osh_ctx *cx, osh_balance **out, const osh_rewrites *p,
                            const osh_fold *f)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    osh_balance *b = NULL; // own
    OSH_NEW(cx, b, f->n_takes);
    for (int k = 0; k < f->n_takes; k++) {
        const osh_weight *w = &g->weights[f->takes[k]];
        /* Only one Linear uses the weight: a fold refuses weights that several nodes use. */
        int i = osh_first_user(p->match, f->takes[k]);
        const osh_linear *l = i < 0 ? NULL : &p->match->linears[i];
        b[k] = (osh_balance){.name = l ? l->name : w->name,
                             .scheme = l && l->scheme_index >= 0 ? l->scheme : NULL,
                             .dtype = p->in->ck->tensors[w->tensor].e->dtype, .O = w->shape[0]};
    }
    *out = b;
done:
    return rc;
}

osh_fold_types osh_fold_types_of(const osh_rewrites *p, const osh_fold *f)
{
    if (!osh_fold_searches(p, f)) return (osh_fold_types){&osh_stat_channel_range, NULL};
    return (osh_fold_types){&osh_stat_channel_sum, &osh_stat_hessian};
}
