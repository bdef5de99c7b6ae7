/* modifier.c - defines the table of modifiers, and functions for all modifiers. The functions
 * return properties of a modifier, or match modules. */
#include "modifiers/modifier.h"

#include <string.h>

#define OSH_MODIFIER(x) extern const osh_modifier_type osh_modifier_##x;
#include "modifiers/modifiers.def"
#undef OSH_MODIFIER

static const osh_modifier_type *const types[] = {
#define OSH_MODIFIER(x) &osh_modifier_##x,
#include "modifiers/modifiers.def"
#undef OSH_MODIFIER
};

size_t osh_modifier_count(void) { return sizeof types / sizeof *types; }
const osh_modifier_type *osh_modifier_at(size_t i) { return types[i]; }

const osh_modifier_type *osh_modifier_find(const char *name)
{
    for (size_t i = 0; i < osh_modifier_count(); i++)
        if (!strcmp(types[i]->name, name)) return types[i];
    return NULL;
}

const osh_modifier_type *osh_modifier_nearest(void) { return &osh_modifier_quantization; }

osh_status osh_modifier_match(osh_ctx *cx, int *scheme, osh_modifier *m, const char *name,
                              const char *cls)
{
    osh_status rc = OSH_OK;
    int64_t which = -1;
    *scheme = -1;
    if (!m->targets) goto done;
    OSH_TRY(osh_matcher_find(cx, &which, m->targets, name, cls));
    if (which < 0) goto done;
    if (m->ignored) {
        int64_t out = -1;
        OSH_TRY(osh_matcher_find(cx, &out, m->ignored, name, cls));
        if (out >= 0) goto done;
    }
    *scheme = m->target_scheme[which];
done:
    return rc;
}

bool osh_modifier_wants_data(const osh_modifier *m)
{
    bool any = m->type->transform || m->cache.present;
    for (size_t i = 0; !m->replaced && i < m->n_schemes; i++)
        any |= m->type->solver->wants(m, &m->schemes[i]) != 0;
    return any;
}

bool osh_modifier_changes_others(const osh_modifier *m)
{
    return m->type->transform || (m->type->rewriter && m->type->rewriter->alone);
}

const osh_block_rule *osh_modifier_blocks(const osh_modifier *m)
{
    return m->type->learner ? m->type->learner->blocks(m) : NULL;
}

double osh_modifier_share(const osh_modifier *m)
{
    return m->type->learner ? m->type->learner->share(m) : 1;
}

unsigned osh_modifier_freedom(const osh_modifier *m)
{
    const osh_quantizer *q = m->type->quantizer;
    return q && q->freedom ? q->freedom(m) : 0;
}

const struct osh_tune_rule *osh_modifier_tunes(const osh_modifier *m)
{
    const osh_quantizer *q = m->type->quantizer;
    return q && q->tunes ? q->tunes(m) : NULL;
}

const char *osh_modifier_step(const osh_modifier *m, int k)
{
    const osh_quantizer *q = m->type->quantizer;
    return q && q->step ? q->step(m, k) : NULL;
}

osh_status osh_modifier_round(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n)
{
    osh_modifier rounding = *m;
    rounding.type = osh_modifier_nearest();
    return rounding.type->solver->compress(cx, &rounding, jobs, n, NULL, 0);
}

void osh_modifier_deinit(osh_ctx *cx, osh_modifier *m)
{
    if (m->surveyed) m->type = m->surveyed;
    if (m->args && m->type && m->type->end) m->type->end(cx, m);
    for (size_t i = 0; i < m->n_schemes; i++) osh_q_scheme_deinit(cx, &m->schemes[i]);
    osh_free(cx, m->schemes);
    osh_strs_deinit(cx, &m->ignore);
    osh_matcher_free(cx, m->ignored);
    osh_matcher_free(cx, m->targets);
    osh_free(cx, m->target_scheme);
    osh_free(cx, m->candidates);
    if (m->args && m->type && m->type->fields) osh_fields_deinit(cx, m->type->fields, m->args);
    osh_free(cx, m->args);
    *m = (osh_modifier){0};
}
