/* verify_pruned.c - checks a pruned weight. It must have the zeros that the pruning method makes,
 * and the error that the run recorded. If the method keeps the other values, they must equal those
 * of the source. If the pruned weight is also quantized, only the zeros are checked. */
#include <math.h>
#include <stdio.h>

#include "verify/verify.h"


typedef struct pruned_seen {
    int64_t zeros, bad_groups, bad_values;
    /* group_row, group_at: row and column of the first group with too few zeros.
     * value_row, value_at: row and column of the first wrong value. */
    int64_t group_row, group_at, value_row, value_at;
} pruned_seen;

static void pruned_look_at_row(pruned_seen *s, const osh_prune_rule *rule, const float *row,
                               const float *was, int64_t r, int64_t I)
{
    for (int64_t i = 0; i < I; i++) {
        s->zeros += row[i] == 0;
        if (!was || !rule->exact || row[i] == 0 || row[i] == was[i]) continue;
        if (!s->bad_values++) s->value_row = r, s->value_at = i;
    }
    for (int64_t i = 0; rule->m && i + rule->m <= I; i += rule->m) {
        int64_t n = 0;
        for (int64_t k = 0; k < rule->m; k++) n += row[i + k] == 0;
        if (n < rule->n && !s->bad_groups++) s->group_row = r, s->group_at = i;
    }
}

static osh_status pruned_say(osh_ctx *cx, osh_verify *v, const osh_linear *l,
                             const osh_prune_rule *rule, const pruned_seen *s)
{
    osh_status rc = OSH_OK;
    char text[96];
    double n = (double)(l->O * l->I);
    if (s->bad_groups) {
        snprintf(text, sizeof text, "%lld zeros in each %lld", (long long)rule->n,
                 (long long)rule->m);
        OSH_TRY(osh_verify_add(
            cx, v, l->name, text,
            "row %lld has fewer from column %lld on, and so have %lld other groups",
            (long long)s->group_row, (long long)s->group_at, (long long)s->bad_groups - 1));
    }
    /* The pruner rounds numbers of zeros down, so up to O + I zeros may be missing. */
    if (!rule->m && (double)s->zeros + (double)(l->O + l->I) < n * rule->sparsity) {
        snprintf(text, sizeof text, "%g", rule->sparsity);
        OSH_TRY(osh_verify_add(cx, v, l->name, text, "a share of %g of the weights is 0",
                               (double)s->zeros / n));
    }
    if (s->bad_values)
        OSH_TRY(osh_verify_add(cx, v, l->name, "the source's value, or 0",
                               "row %lld, column %lld has another value, and so have %lld other "
                               "weights",
                               (long long)s->value_row, (long long)s->value_at,
                               (long long)s->bad_values - 1));
done:
    return rc;
}

/* Returns the pruning rule of a Linear that a modifier prunes. */
static osh_prune_rule pruned_rule(const osh_verify *v, const osh_linear *l)
{
    int pruner = l->prune.modifier >= 0 ? l->prune.modifier : l->modifier;
    return osh_modifier_prune_rule(&v->plan->in.recipe->modifiers[pruner], l->prune.sparsity);
}

/* True if the recipe prunes all weights of the Linear. */
static bool pruned_whole(const osh_verify *v, const osh_linear *l)
{
    if (l->prune.modifier < 0 && l->scheme_index >= 0) return false;
    osh_prune_rule rule = pruned_rule(v, l);
    return rule.m ? rule.n >= rule.m : rule.sparsity >= 1;
}

osh_status osh_verify_lost(osh_ctx *cx, bool *lost, osh_verify *v, const osh_linear *l)
{
    *lost = !pruned_whole(v, l);
    return *lost ? osh_verify_add(cx, v, l->name, "values that are not 0, as the source's",
                                  "all weights are 0")
                 : OSH_OK;
}

osh_status osh_verify_zeros(osh_ctx *cx, osh_verify *v, int linear, const osh_tensor *w,
                            const osh_tensor *source)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &v->plan->match.linears[linear];
    osh_prune_rule rule = pruned_rule(v, l);
    pruned_seen seen = {0};
    float *row = NULL; // own [2, I]: a row of the output, followed by the same row of the source
    OSH_NEW(cx, row, 2 * l->I);
    for (int64_t r = 0; r < l->O; r++) {
        size_t at = (size_t)(r * l->I) * osh_dtype_bytes(w->dtype);
        osh_to_f32(row, (const char *)w->data + at, w->dtype, l->I);
        if (source) osh_to_f32(row + l->I, (const char *)source->data + at, source->dtype, l->I);
        pruned_look_at_row(&seen, &rule, row, source ? row + l->I : NULL, r, l->I);
    }
    OSH_TRY(pruned_say(cx, v, l, &rule, &seen));
done:
    osh_free(cx, row);
    return rc;
}

osh_status osh_verify_pruned(osh_ctx *cx, osh_verify *v, int linear)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = v->plan;
    const osh_linear *l = &p->match.linears[linear];
    const osh_ckpt_tensor *t = osh_checkpoint_find(v->ck, p->manifest.out[l->out.first].name);
    osh_tensor *w = NULL, *source = NULL; // own
    double err = 0, all = 0, square = 0, was = osh_verify_recorded(v, l->name);
    char text[64];
    bool lost;
    OSH_TRY(osh_tensor_new(cx, &w, t->e->dtype, 2, (int64_t[]){l->O, l->I}));
    OSH_TRY(osh_tensor_new(cx, &source, l->dtype, 2, (int64_t[]){l->O, l->I}));
    OSH_TRY(osh_checkpoint_read(cx, w->data, v->ck, t));
    OSH_TRY(osh_checkpoint_read(cx, source->data, p->in.ck, &p->in.ck->tensors[l->tensor]));
    OSH_TRY(osh_verify_zeros(cx, v, linear, w, source));
    v->n_modules++;
    for (int64_t r = 0; r < l->O; r++) {
        size_t at = (size_t)(r * l->I) * osh_dtype_bytes(l->dtype);
        double sum[2], kept[2];
        osh_q_row_error(sum, (char *)source->data + at, (char *)w->data + at, l->dtype, l->I);
        osh_q_row_error(kept, (char *)w->data + at, (char *)w->data + at, l->dtype, l->I);
        err += sum[0], all += sum[1], square += kept[1];
    }
    // ConstantPruningModifier also replaces small weights (up to 1e-8) by 0
    if (!(square > 0) && all > 1e-16 * (double)(l->O * l->I))
        OSH_TRY(osh_verify_lost(cx, &lost, v, l));
    double nmse = all > 0 ? err / all : 0;
    if (v->manifest && !(fabs(nmse - was) <= 1e-9 * was + 1e-30)) {
        snprintf(text, sizeof text, "%.9g, which the run recorded", was);
        OSH_TRY(osh_verify_add(cx, v, l->name, text, "the relative squared error is %.9g", nmse));
    }
done:
    osh_tensor_free(cx, w);
    osh_tensor_free(cx, source);
    return rc;
}
