/* indivisible.c - handles modules whose number of columns is not a multiple of the group size.
 * Depending on --indivisible, the plan refuses such modules or leaves them dense. */
#include "match/indivisible.h"

#include <string.h>

#include "match/padding.h"
#include "match/parallel.h"
#include "tensor/scalar.h"

/* True if the number I of columns is a multiple of the group size of `a`, or if `a` has no
 * groups. */
static bool groups_divide(const osh_q_args *a, int64_t I)
{
    return !a->present || !osh_q_in_groups(a) || I % a->group_size == 0;
}

void osh_indivisible_leave(const osh_matching *p, osh_plan_module *c, int *modifier)
{
    const osh_options *o = p->in->opt;
    const osh_q_scheme *s = *modifier >= 0 ? &p->schemes[c->scheme] : NULL;
    int64_t I = p->in->ck->tensors[c->tensor].e->shape[1];
    if (!s || !s->weights.present || !o->indivisible || strcmp(o->indivisible, "dense")) return;
    I = osh_parallel_columns(o, c->name, I);
    if (groups_divide(&s->weights, I) && groups_divide(&s->inputs, I)) return;
    c->scheme = *modifier = -1, c->why = "its groups do not divide its columns";
}

/* Returns the greatest common divisor of the numbers of columns of all modules with scheme `s`. */
static int64_t common_columns(const osh_matching *p, const osh_q_scheme *s)
{
    int64_t common = 0;
    for (int i = 0; i < p->n_linears; i++)
        if (p->linears[i].scheme == s) common = osh_gcd64(p->linears[i].I, common);
    return common;
}

/* Fails because the group size of the scheme of Linear l does not divide the number of columns of
 * l. The message lists the group sizes that divide the columns of all modules with this scheme. */
static osh_status refuse_groups(osh_ctx *cx, const osh_matching *p, const osh_linear *l)
{
    osh_status rc = OSH_OK;
    const osh_q_args *a = &l->scheme->weights;
    int64_t common = common_columns(p, l->scheme);
    const char *pad = !osh_padding_asked(p->in->opt) ? ""
                      : p->in->graph ? ", and pad adds zeros only to MLPs of decoder layers"
                                     : ", and pad needs the architecture's template";
    osh_buf sizes;
    osh_buf_init(&sizes, 0);
    for (int64_t n = 16; n <= 256; n += 16)
        if (common % n == 0)
            OSH_TRY(osh_buf_printf(cx, &sizes, "%s%lld", sizes.len ? ", " : "", (long long)n));
    if (a->scale_dtype != OSH_Q_SCALE_PLAIN)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s has %lld input features, which groups of %lld do not divide%s, and the format "
                 "has no others: want it in ignore, or --indivisible dense",
                 l->name, (long long)l->I, (long long)a->group_size, pad);
    OSH_FAIL(cx, OSH_E_USAGE,
             "%s has %lld input features, which groups of %lld do not divide%s: want %s%s%s%s, or "
             "it in ignore, or --indivisible dense",
             l->name, (long long)l->I, (long long)a->group_size, pad,
             p->in->opt->scheme ? "--group-size " : "group_size ", sizes.len ? sizes.data : "",
             sizes.len ? ", which divide those of all modules, or " : "",
             p->in->opt->scheme ? "-1 (one scale a row)" : "none with strategy channel");
done:
    osh_buf_deinit(cx, &sizes);
    return rc;
}

/* `quality best` replaces the group size of the scheme by 64 or 32, if no option sets a group size
 * and the new size divides `common`. Returns the new size, or 0 if the size is not replaced.
 * common: greatest common divisor of the numbers of columns of all modules with this scheme. */
static int64_t smaller_groups(const osh_matching *p, const osh_q_args *a, int64_t common)
{
    const osh_options *o = p->in->opt;
    if (!p->in->best || !o->scheme || o->chosen || o->group_size || p->in->group_size ||
        a->type != OSH_Q_INT || a->scale_dtype != OSH_Q_SCALE_PLAIN)
        return 0;
    for (int64_t n = 64; n >= 32; n /= 2)
        if (n < a->group_size && common % n == 0) return n;
    return 0;
}

osh_status osh_indivisible_check(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < p->n_linears && !p->smaller_groups; i++) {
        const osh_linear *l = &p->linears[i];
        const osh_q_args *a = &l->scheme->weights;
        if (l->scheme_index >= 0 && !groups_divide(&l->scheme->inputs, l->I))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s has %lld input features, which the groups of %lld of its quantized input "
                     "do not divide: want it in ignore, or --indivisible dense",
                     l->name, (long long)l->I, (long long)l->scheme->inputs.group_size);
        if (!osh_q_in_groups(a) || l->I % a->group_size == 0) continue;
        p->smaller_groups = smaller_groups(p, a, common_columns(p, p->linears[i].scheme));
        if (!p->smaller_groups) OSH_TRY(refuse_groups(cx, p, &p->linears[i]));
    }
done:
    return rc;
}
