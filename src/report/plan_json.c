/* plan_json.c - prints the plan as JSON, with the same contents as the text of plan_print.c. */
#include "report/plan_json.h"

#include <string.h>

#include "budget/cost.h"
#include "budget/gpus.h"
#include "budget/memory_rest.h"
#include "match/dense.h"
#include "match/padding.h"
#include "output/manifest_text.h"
#include "plan/division.h"
#include "report/report_mix.h"
#include "rewrite/passthrough.h"
#include "schedule/looks.h"
#include "schedule/tuning.h"
#include "schedule/visit.h"

static bool json_values(cJSON *o, const char *key, const osh_plan *p, const int *v, int n)
{
    cJSON *list = cJSON_AddArrayToObject(o, key);
    for (int i = 0; list && i < n; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(p->in.graph->values[v[i]].name));
    return list != NULL;
}

static bool json_number(cJSON *o, const char *key, int64_t v)
{
    return cJSON_AddNumberToObject(o, key, (double)v) != NULL;
}

static bool json_visit(cJSON *o, const osh_visit *v)
{
    return cJSON_AddStringToObject(o, "phases", osh_visit_way_text(v)) &&
           cJSON_AddBoolToObject(o, "prefetch", v->how.prefetch) &&
           cJSON_AddBoolToObject(o, "values_ahead", v->how.values_ahead) &&
           cJSON_AddBoolToObject(o, "solved_apart", v->how.apart) &&
           json_number(o, "peak_weight_bytes", v->weight_bytes) &&
           json_number(o, "statistics_bytes", v->stats_bytes) &&
           json_number(o, "value_bytes", v->live_bytes) &&
           json_number(o, "device_bytes", v->peak.device) &&
           json_number(o, "host_bytes", v->peak.host) &&
           json_number(o, "scratch_bytes", v->peak.scratch) &&
           json_number(o, "read_bytes", v->read_bytes);
}

static bool json_memory(cJSON *root, const osh_plan *p)
{
    const osh_memory *m = &p->budget.memory;
    const osh_schedule *s = &p->schedule;
    cJSON *o = cJSON_AddObjectToObject(root, "memory"), *least = NULL;
    int ahead = 0;
    const char *looks = m->looks_f16 ? "disk_f16" : osh_look_name(s->looks);
    for (int i = 0; i < s->n_visits; i++) ahead |= s->visits[i].how.prefetch;
    bool ok = o && cJSON_AddStringToObject(o, "activation_tier", osh_tier_name(m->tier)) &&
              (!osh_looks_twice(s) || cJSON_AddStringToObject(o, "calib_cache", looks)) &&
              (p->in.on_device || json_number(o, "batch_size", s->batch_size)) &&
              json_number(o, "batches_in_memory", osh_memory_kept(&p->budget, m->tier)) &&
              json_number(o, "num_workers", m->n_loaders) &&
              json_number(o, "batches_ahead", m->n_ahead) &&
              json_number(o, "prefetch_depth", ahead) &&
              json_number(o, "base_bytes", m->base_bytes) &&
              json_number(o, "device_bytes", m->peak.device) &&
              json_number(o, "host_bytes", m->peak.host) &&
              json_number(o, "scratch_bytes", m->peak.scratch) &&
              json_number(o, "read_bytes", m->read_bytes) &&
              json_number(o, "write_bytes", m->write_bytes) &&
              json_number(o, "reread_bytes", m->reread_bytes) &&
              (least = cJSON_AddObjectToObject(o, "smallest_budgets"));
    return ok && json_number(least, "device_bytes", m->least.device) &&
           json_number(least, "host_bytes", m->least.host);
}

static bool json_gpu_model(osh_ctx *cx, cJSON *root, const osh_plan *p)
{
    const osh_gpu_model *m = p->in.gpu_model;
    if (!m) return true;
    cJSON *o = cJSON_AddObjectToObject(root, "device_model"), *t = NULL;
    osh_estimate e = {0};
    if (p->in.on_device && osh_plan_estimate(cx, &e, &p->budget, m)) return false;
    bool ok = o && cJSON_AddStringToObject(o, "name", m->name) &&
              cJSON_AddStringToObject(o, "title", m->title) &&
              json_number(o, "memory_bytes", m->memory_bytes) &&
              json_number(o, "batches", p->schedule.n_batches) &&
              json_number(o, "batch_tokens", p->schedule.batch_tokens) &&
              (t = cJSON_AddObjectToObject(o, "estimated_seconds")) &&
              cJSON_AddNumberToObject(t, "copies", e.copies);
    for (int k = OSH_PHASE_OBSERVE; ok && k <= OSH_PHASE_PROPAGATE; k++)
        ok = cJSON_AddNumberToObject(t, osh_phase_name((osh_phase)k), e.phase[k]) != NULL;
    return ok;
}

/* Adds an item for the step to the list. If the step is a pass, the item has the flags of the pass
 * and the number of nodes that run. If the step opens or solves inputs, the item has the number of
 * these inputs. */
static bool json_step(cJSON *list, const osh_step *s, const osh_range *r)
{
    cJSON *o = cJSON_CreateObject();
    int n = 0, of_values = 0;
    cJSON_AddItemToArray(list, o);
    for (int i = 0; s->run && i < s->n; i++) n += s->run[i];
    for (int v = r->v0; s->values && v < r->v1; v++) of_values += s->values[v];
    bool ok = o && cJSON_AddStringToObject(o, "kind", osh_step_name(s->kind));
    if (ok && s->kind == OSH_STEP_PASS)
        ok = json_number(o, "nodes", n) && cJSON_AddBoolToObject(o, "observe", s->observe) &&
             cJSON_AddBoolToObject(o, "solved_weights", s->again) &&
             cJSON_AddBoolToObject(o, "factors", s->fold);
    if (ok && (s->kind == OSH_STEP_OPEN || s->kind == OSH_STEP_SOLVE))
        ok = json_number(o, "inputs", of_values);
    return ok;
}

static bool json_steps(osh_ctx *cx, cJSON *o, osh_steps *steps, const osh_plan *p, int index)
{
    cJSON *list = cJSON_AddArrayToObject(o, "steps");
    bool ok = list && !osh_visit_list(cx, steps, &p->schedule, index, NULL);
    for (int k = 0; ok && k < osh_steps_n(steps); k++)
        ok = json_step(list, osh_steps_at(steps, k), osh_steps_range(steps));
    return ok;
}

/* Adds the number of bytes that the ranks send each other for subgraph i. */
static bool json_wire(osh_ctx *cx, cJSON *o, const osh_plan *p, int i)
{
    int n = osh_plan_n_ranks(p);
    int64_t bytes = 0;
    if (n < 2 || osh_divide(p).kind != OSH_DIVIDE_SAMPLES) return true;
    return !osh_divide_wire(cx, &bytes, p, i, n) && json_number(o, "wire_bytes", bytes);
}

/* Adds the numbers that say how the work is divided among ranks. Adds nothing for one process. */
static bool json_ranks(cJSON *root, const osh_plan *p)
{
    osh_division d = osh_divide(p);
    int n = osh_plan_n_ranks(p), here = osh_plan_ranks_per_node(p);
    if (n < 2) return true;
    cJSON *o = cJSON_AddObjectToObject(root, "ranks");
    static const char *const kinds[] = {"nothing", "files", "samples"};
    return o && json_number(o, "n", n) && json_number(o, "per_node", here) &&
           cJSON_AddStringToObject(o, "divided", kinds[d.kind]) &&
           (!d.not || cJSON_AddStringToObject(o, "not_divided", d.not)) &&
           json_number(o, "host_bytes", p->budget.memory.peak.host) &&
           json_number(o, "node_bytes", p->budget.memory.peak.host * here);
}

static bool json_subgraphs(osh_ctx *cx, cJSON *root, const osh_plan *p)
{
    cJSON *list = cJSON_AddArrayToObject(root, "subgraphs");
    osh_steps *steps = NULL; // own
    bool ok = list && (!osh_n_ranges(&p->schedule) || !osh_steps_new(cx, &steps, p->in.graph));
    for (int i = 0; ok && i < osh_n_ranges(&p->schedule); i++) {
        const osh_range r = osh_range_at(&p->schedule, i);
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        ok = o && cJSON_AddStringToObject(o, "name", r.name) &&
             json_number(o, "nodes", r.n_nodes) &&
             json_number(o, "quantized", osh_range_n_linears(p, &r)) &&
             json_number(o, "weight_bytes", osh_range_weight_bytes(p, &r)) &&
             json_number(o, "hessian_bytes", osh_range_hessians(&p->schedule, &r, NULL)) &&
             cJSON_AddStringToObject(o, "passes", osh_range_passes_text(&r)) &&
             json_values(o, "live_in", p, r.live_in, r.n_live_in) &&
             json_values(o, "live_out", p, r.live_out, r.n_live_out) && json_wire(cx, o, p, i) &&
             (i >= p->schedule.n_visits || (json_visit(o, &p->schedule.visits[i]) &&
                                            json_steps(cx, o, steps, p, i)));
    }
    osh_steps_free(cx, steps);
    return ok;
}

static bool json_factors(cJSON *root, const osh_plan *p)
{
    cJSON *list = cJSON_AddArrayToObject(root, "factors");
    bool ok = list != NULL;
    for (int i = 0; ok && i < p->rewrites.n_folds; i++) {
        const osh_fold *f = &p->rewrites.folds[i];
        cJSON *o = cJSON_CreateObject(), *weights = NULL;
        cJSON_AddItemToArray(list, o);
        ok = o && cJSON_AddStringToObject(o, "layer", p->in.graph->modules[f->module].name) &&
             cJSON_AddStringToObject(o, "modifier",
                                     p->in.recipe->modifiers[f->modifier].type->name) &&
             (weights = cJSON_AddArrayToObject(o, "weights"));
        for (int k = 0; ok && k < f->n_takes; k++)
            ok = cJSON_AddItemToArray(weights,
                                      cJSON_CreateString(p->in.graph->weights[f->takes[k]].name));
    }
    return ok;
}

static bool json_inherits(cJSON *root, const osh_plan *p)
{
    cJSON *list = p->rewrites.n_inherits ? cJSON_AddArrayToObject(root, "not_observed") : NULL;
    bool ok = list || !p->rewrites.n_inherits;
    for (int i = 0; ok && i < p->rewrites.n_inherits; i++) {
        const osh_inherit *h = &p->rewrites.inherits[i];
        static const char *const kinds[OSH_RANGED] = {"keys", "values",
                                                      "queries", [OSH_INPUT] = "input"};
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        ok = o && cJSON_AddStringToObject(o, "module", p->match.linears[h->linear].name) &&
             cJSON_AddStringToObject(o, "what", kinds[h->k]) &&
             cJSON_AddStringToObject(o, "value", p->in.graph->values[h->value].name) &&
             cJSON_AddStringToObject(o, "range_of", p->in.graph->values[h->from].name);
    }
    return ok;
}

static bool json_tune(cJSON *root, const osh_plan *p)
{
    cJSON *o = p->schedule.tune.steps || p->schedule.tune_not
                   ? cJSON_AddObjectToObject(root, "tune")
                   : NULL;
    if (!p->schedule.tune.steps)
        return !p->schedule.tune_not ||
               (o && cJSON_AddStringToObject(o, "left_out", p->schedule.tune_not));
    return o && json_number(o, "steps", p->schedule.tune.steps) &&
           json_number(o, "rows", p->schedule.tune.rows) &&
           json_number(o, "held_back", osh_tune_held(&p->in.data));
}

static bool json_rest(cJSON *root, const osh_plan *p)
{
    cJSON *q =
        *p->match.quantization_json ? cJSON_Parse(p->match.quantization_json) : cJSON_CreateNull();
    cJSON *mods = NULL, *files = NULL;
    bool ok = q && cJSON_AddItemToObject(root, "quantization_config", q);
    ok = ok && (mods = cJSON_AddArrayToObject(root, "modules")) &&
         (files = cJSON_AddArrayToObject(root, "files"));
    for (int i = 0; ok && i < p->match.n_linears; i++)
        ok = cJSON_AddItemToArray(mods, cJSON_CreateString(p->match.linears[i].name));
    for (int s = 0; ok && s < p->manifest.n_shards; s++) {
        cJSON *o = cJSON_CreateObject();
        ok = o && cJSON_AddStringToObject(o, "name", p->manifest.shards[s].name) &&
             cJSON_AddNumberToObject(o, "bytes", (double)p->manifest.shards[s].n_bytes);
        cJSON_AddItemToArray(files, o);
    }
    return ok;
}

osh_status osh_plan_print_json(osh_ctx *cx, char **out, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    cJSON *root = NULL; // own
    root = cJSON_CreateObject();
    bool ok = root && cJSON_AddStringToObject(root, "pipeline", osh_plan_pipeline(p)) &&
              cJSON_AddStringToObject(root, "device", osh_plan_kind(&p->in)->name) &&
              cJSON_AddNumberToObject(root, "samples", (double)p->in.data.n) &&
              cJSON_AddNumberToObject(root, "output_bytes", (double)p->manifest.total_bytes) &&
              cJSON_AddNumberToObject(root, "output_tensors", (double)p->manifest.n_out) &&
              osh_padding_json(root, &p->in) &&
              (!p->rewrites.n_folds || json_factors(root, p)) && json_inherits(root, p) &&
              json_ranks(root, p) && json_subgraphs(cx, root, p) && json_memory(root, p) &&
              json_gpu_model(cx, root, p) &&
              json_tune(root, p) && json_rest(root, p) && osh_dense_json(root, &p->match) &&
              osh_mix_json(root, &p->in.mix);
    if (!ok) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the plan");
    OSH_TRY(osh_manifest_list(cx, cJSON_AddArrayToObject(root, "tensors"), &p->manifest));
    OSH_TRY(osh_json_print(cx, out, root, 0));
done:
    cJSON_Delete(root);
    return rc;
}
