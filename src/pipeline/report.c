/* report.c - what a run did, as JSON: error per module, time per phase, bytes, fallbacks. */
#include "pipeline/run.h"

static bool add_number(cJSON *o, const char *key, double v) { return cJSON_AddNumberToObject(o, key, v) != NULL; }
static bool add_string(cJSON *o, const char *key, const char *s) { return cJSON_AddStringToObject(o, key, s) != NULL; }

static bool add_modules(cJSON *root, const osh_run *r)
{
    bool ok = true;
    cJSON *list = cJSON_AddArrayToObject(root, "modules");
    for (int i = 0; list && i < r->plan->n_linears; i++) {
        const osh_linear *l = &r->plan->linears[i];
        cJSON *o = cJSON_CreateObject();
        ok = ok && o && add_string(o, "name", l->name) && add_string(o, "group", l->scheme->group_name) &&
             add_string(o, "format", l->format->name) && add_number(o, "relative_squared_error", r->results[i].nmse);
        if (ok && r->results[i].objective >= 0) ok = add_number(o, "objective", r->results[i].objective);
        if (ok && r->results[i].fallback) ok = add_string(o, "fallback", r->results[i].fallback);
        cJSON_AddItemToArray(list, o);
    }
    return ok && list;
}

osh_status osh_run_report(osh_ctx *cx, char **json, const osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = r->plan;
    cJSON *root = cJSON_CreateObject(); // own
    bool ok = root && add_string(root, "program", "oneshot") &&
              add_string(root, "version", osh_version()) &&
              add_string(root, "pipeline", osh_pipeline_name(p->pipeline)) &&
              add_number(root, "samples", (double)p->data.n) &&
              add_number(root, "tokens", p->data.n ? (double)p->data.offsets[p->data.n] : 0) &&
              add_number(root, "output_bytes", (double)p->total_bytes) && add_modules(root, r);
    cJSON *t = ok ? cJSON_AddObjectToObject(root, "seconds") : NULL;
    ok = t && add_number(t, "observe", r->seconds_observe) && add_number(t, "solve", r->seconds_solve) &&
         add_number(t, "propagate", r->seconds_propagate) && add_number(t, "write", r->seconds_write) &&
         add_number(t, "total", osh_now() - r->started);
    if (!ok) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the report");
    OSH_TRY(osh_json_print(cx, json, root, 0));
done:
    cJSON_Delete(root);
    return rc;
}
