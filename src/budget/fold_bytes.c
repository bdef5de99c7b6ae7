/* fold_bytes.c - computes the memory for a fold: for its statistics, and for computing its
 * factors. */
#include "budget/fold_bytes.h"
#include "rewrite/folds.h"

int64_t osh_fold_seen_bytes(const osh_budget *p, const osh_fold *f, const osh_groups *groups)
{
    osh_fold_types types = osh_fold_types_of(p->rewrites, f);
    size_t bytes = osh_stat_bytes(types.channels, groups, f->n);
    if (types.squares) bytes += osh_stat_bytes(types.squares, groups, f->n);
    return (int64_t)bytes;
}

osh_status osh_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_budget *p, const osh_fold *f,
                            bool reads)
{
    osh_status rc = OSH_OK;
    const osh_modifier *m = &p->in->recipe->modifiers[f->modifier];
    int n = osh_threads(cx);
    osh_balance *b = NULL; // own
    *bytes = (int64_t)(osh_mem_gross((size_t)(n * f->n) * sizeof(float)) +
                       (reads ? (size_t)n * osh_mem_gross(OSH_FOLD_PIECE) : 0));
    if (!m->type->transform->search) goto done;
    OSH_TRY(osh_fold_balance(cx, &b, p->rewrites, f));
    osh_search j = {.n = f->n, .balance = b, .n_balance = f->n_takes};
    *bytes = (int64_t)(osh_mem_gross((size_t)f->n_takes * sizeof *b) +
                       m->type->transform->search_bytes(m, &j, n));
done:
    osh_free(cx, b);
    return rc;
}
