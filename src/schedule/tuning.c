/* tuning.c - decides whether tuning runs, and counts its operations. Tuning optimizes codes, scales
 * and norms by gradients after all solves. */
#include "schedule/tuning.h"

#include <string.h>

/* Largest number of floating-point operations that `quality best` spends on tuning. A CPU needs
 * some minutes for them. */
#define MOST_WORK 2e13
/* Limits for tuning with `quality best`.
 * MOST_PASSES: largest number of passes over all samples.
 * LEAST_ROWS: smallest number of samples. */
enum { MOST_PASSES = 7, LEAST_ROWS = 128 };

static const osh_tune_rule *tuning_rule(const osh_schedule *p, int linear)
{
    const osh_modifier *m = &p->in->recipe->modifiers[p->match->linears[linear].modifier];
    const osh_tune_rule *r = osh_modifier_tunes(m);
    return r && r->steps ? r : NULL;
}

bool osh_tuning_asked(const osh_schedule *p)
{
    for (int i = 0; i < p->match->n_linears; i++)
        if (tuning_rule(p, i)) return true;
    return false;
}

static int64_t tuning_tokens(const osh_schedule *p)
{
    return p->in->data.n ? p->in->data.offsets[p->in->data.n] : 0;
}

double osh_tuning_flops(const osh_schedule *p)
{
    double weights = 0, rows = p->in->data.n ? (double)p->in->data.n : 1;
    for (int i = 0; i < p->match->n_linears; i++)
        weights += (double)p->match->linears[i].O * (double)p->match->linears[i].I;
    return 6 * weights * (double)tuning_tokens(p) / rows * (double)(p->tune.rows * p->tune.steps);
}

/* Returns the reason why the run cannot tune with this model, recipe or data. Returns NULL if
 * tuning is possible. */
static const char *tuning_hindrance(const osh_schedule *p, const osh_graph *g)
{
    if (p->in->pipeline == OSH_PIPELINE_DATAFREE || !g)
        return "it needs data and a known architecture";
    if (g->headless) return "the model has no output head";
    if (!osh_tune_held(&p->in->data)) return "it needs at least two samples";
    if (!osh_tune_can_judge(&p->in->data))
        return "the held-back samples have no prediction that counts";
    if (p->rewrites->n_folds) return "factors are folded into weights";
    if (p->rewrites->rotated) return "weights are rotated";
    if (p->match->cache.present) return "it does not support quantized keys and values";
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (l->prune.modifier >= 0 || l->scheme_index < 0) return "weights are pruned";
        if (l->scheme->inputs.present || l->scheme->outputs.present)
            return "it does not support quantized activations";
        if (!osh_tune_can(&l->scheme->weights))
            return "not all weights are integers by group or channel";
        if (!tuning_rule(p, i) || memcmp(tuning_rule(p, i), tuning_rule(p, 0), sizeof p->tune))
            return "the modules have different tuning settings";
        if (l->node < 0) return "a module outside the text model is quantized";
        if (!strcmp(l->name, g->modules[g->nodes[g->head].module].name))
            return "the output head is quantized";
    }
    return NULL;
}

/* Sets p->tune_graph. Checks that each op of this graph has the gradients that tuning needs. */
static osh_status tuning_check_model(osh_ctx *cx, osh_schedule *p)
{
    osh_status rc = OSH_OK;
    bool *linear = NULL; // own
    OSH_TRY(osh_graph_new(cx, &p->tune_graph, p->in->ck, p->in->opt->models_dir));
    OSH_NEW(cx, linear, p->tune_graph->n_weights);
    for (int i = 0; i < p->match->n_linears; i++)
        if (p->match->linears[i].weight >= 0) linear[p->match->linears[i].weight] = true;
    OSH_TRY(osh_tune_check(cx, p->tune_graph, linear, p->in->on_device));
done:
    osh_free(cx, linear);
    return rc;
}

/* For `quality best`: limits the number of tuning steps to MOST_PASSES passes over the samples.
 * Returns the reason why the run does not tune, or NULL if it tunes. */
static const char *tuning_shorten(osh_schedule *p)
{
    int64_t most = MOST_PASSES * (p->in->data.n - osh_tune_held(&p->in->data)) / p->tune.rows;
    if (p->in->data.n < LEAST_ROWS) return "quality best tunes only with 128 or more samples";
    if (p->tune.steps > most) p->tune.steps = most;
    if (osh_tuning_flops(p) <= MOST_WORK) return NULL;
    return "quality best limits it to 2e13 operations, and this model needs more";
}

osh_status osh_plan_tune(osh_ctx *cx, osh_schedule *p)
{
    osh_status rc = OSH_OK;
    const char *why = NULL;
    for (int i = 0; i < p->match->n_linears && !p->tune.steps; i++)
        if (tuning_rule(p, i)) p->tune = *tuning_rule(p, i);
    if (!p->tune.steps) goto done;
    why = tuning_hindrance(p, p->in->graph);
    if (!why) {
        rc = tuning_check_model(cx, p);
        if (rc == OSH_E_UNSUPPORTED) rc = OSH_OK, why = osh_error_text(cx);
        if (rc) goto done;
    }
    if (why && !p->tune.may) {
        if (!osh_error_text(cx)[0]) osh_fail(cx, OSH_E_UNSUPPORTED, "%s", why);
        osh_note(cx, "planning to tune codes, scales and norms (key tune)");
        rc = OSH_E_UNSUPPORTED;
        goto done;
    }
    if (!why && p->tune.may) why = tuning_shorten(p);
    if (!why) goto done;
    if (!(p->tune_not = osh_strdup(cx, why))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a text");
    osh_error_clear(cx);
    p->tune.steps = 0;
    osh_graph_free(cx, p->tune_graph), p->tune_graph = NULL;
done:
    return rc;
}

osh_status osh_tuning_kept(osh_ctx *cx, osh_manifest *p)
{
    osh_status rc = OSH_OK;
    bool *norms = NULL; // own
    if (p->tuned) goto done;
    OSH_NEW(cx, norms, p->in->graph->n_weights);
    OSH_NEW(cx, p->tuned, p->in->ck->n_tensors);
    osh_tune_norms(norms, p->in->graph);
    for (int w = 0; w < p->in->graph->n_weights; w++)
        if (norms[w] && p->in->graph->weights[w].tensor >= 0)
            p->tuned[p->in->graph->weights[w].tensor] = true;
done:
    osh_free(cx, norms);
    return rc;
}
