/* modifier.c - the table of modifiers, and what all of them share: matching, the error of a quantized weight. */
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

osh_status osh_modifier_match(osh_ctx *cx, int *scheme, osh_modifier *m, const char *name, const char *cls)
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

static void strs_deinit(osh_ctx *cx, osh_strs *s)
{
    for (size_t i = 0; i < s->n; i++) osh_free(cx, s->items[i]);
    osh_free(cx, s->items);
    *s = (osh_strs){0};
}

void osh_modifier_deinit(osh_ctx *cx, osh_modifier *m)
{
    for (size_t i = 0; i < m->n_schemes; i++) osh_q_scheme_deinit(cx, &m->schemes[i]);
    osh_free(cx, m->schemes);
    strs_deinit(cx, &m->ignore);
    osh_matcher_free(cx, m->ignored);
    osh_matcher_free(cx, m->targets);
    osh_free(cx, m->target_scheme);
    if (m->args && m->type && m->type->fields) osh_fields_deinit(cx, m->type->fields, m->args);
    osh_free(cx, m->args);
    *m = (osh_modifier){0};
}

void osh_linear_job_deinit(osh_ctx *cx, osh_linear_job *j)
{
    osh_free(cx, j->codes);
    osh_qparams_deinit(cx, &j->params);
    j->codes = NULL;
}

osh_status osh_job_nmse(osh_ctx *cx, osh_linear_job *j, const osh_tensor *w)
{
    osh_status rc = OSH_OK;
    osh_tensor *dq = NULL; // own
    float *row = NULL;     // own: a row of w, a row of dq
    int64_t O = w->shape[0], I = w->shape[1];
    double err = 0, ref = 0;
    size_t step = (size_t)I * osh_dtype_bytes(w->dtype);

    OSH_TRY(osh_tensor_new(cx, &dq, w->dtype, 2, w->shape));
    OSH_TRY(osh_q_decode(cx, dq, j->codes, &j->params, &j->scheme->weights));
    OSH_NEW(cx, row, 2 * I);
    for (int64_t o = 0; o < O; o++) {
        osh_to_f32(row, (const char *)w->data + (size_t)o * step, w->dtype, I);
        osh_to_f32(row + I, (const char *)dq->data + (size_t)o * step, w->dtype, I);
        for (int64_t i = 0; i < I; i++) {
            double d = (double)row[i] - row[I + i];
            err += d * d, ref += (double)row[i] * row[i];
        }
    }
    j->nmse = ref > 0 ? err / ref : 0;
done:
    osh_tensor_free(cx, dq);
    osh_free(cx, row);
    return rc;
}
