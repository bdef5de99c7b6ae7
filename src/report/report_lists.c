/* report_lists.c - makes the items of the arrays of the report. */
#include "report/report_lists.h"

#include <math.h>
#include <string.h>

#include "base/map.h"

bool osh_report_number(cJSON *o, const char *key, double v)
{
    return (isfinite(v) ? cJSON_AddNumberToObject(o, key, v) : cJSON_AddNullToObject(o, key)) !=
           NULL;
}

bool osh_report_seconds(cJSON *o, const char *key, double s)
{
    return osh_report_number(o, key, round(s * 1e6) / 1e6);
}

bool osh_report_string(cJSON *o, const char *key, const char *s)
{
    return cJSON_AddStringToObject(o, key, s) != NULL;
}

/* Passes ownership of the item to *out. If `ok` is false, because an allocation has failed, frees
 * the item and fails. */
static osh_status item_give(osh_ctx *cx, cJSON **out, cJSON *o, bool ok)
{
    if (ok) return *out = o, OSH_OK;
    cJSON_Delete(o);
    return osh_fail(cx, OSH_E_NOMEM, "no memory for the report");
}

/* Adds the loss after each step of a solve. Also adds the last loss, divided by the loss that a
 * weight of zeros has. */
static bool module_add_losses(cJSON *o, const osh_run *r, int i)
{
    const osh_losses *x = &r->results[i].losses;
    const osh_modifier *m =
        x->n ? &r->plan->in.recipe->modifiers[r->plan->match.linears[i].modifier] : NULL;
    cJSON *list = x->n ? cJSON_AddArrayToObject(o, "losses") : NULL;
    bool ok = !x->n || list;
    for (int k = 0; ok && k < x->n; k++) {
        cJSON *step = cJSON_CreateObject();
        ok = step && osh_report_string(step, "step", osh_modifier_step(m, k)) &&
             osh_report_number(step, "loss", x->of[k]);
        cJSON_AddItemToArray(list, step);
    }
    return ok && (!(x->all > 0) ||
                  osh_report_number(o, "relative_output_error", x->of[x->n - 1] / x->all));
}

static osh_status module_item(osh_ctx *cx, cJSON **out, const void *user, int64_t i)
{
    const osh_run *r = ((const osh_report_lists *)user)->r->run;
    const osh_linear *l = &r->plan->match.linears[i];
    const osh_result *x = &r->results[i];
    cJSON *o = cJSON_CreateObject(); // own
    bool ok = o && osh_report_string(o, "name", l->name) &&
              osh_report_string(o, "group", l->scheme->group_name) &&
              osh_report_string(o, "format", l->format->name) &&
              osh_report_number(o, "relative_squared_error", x->nmse);
    if (ok && x->objective >= 0) ok = osh_report_number(o, "objective", x->objective);
    if (ok && x->nearest >= 0) ok = osh_report_number(o, "nearest_objective", x->nearest);
    ok = ok && module_add_losses(o, r, (int)i) &&
         (!x->fallback || osh_report_string(o, "fallback", x->fallback));
    return item_give(cx, out, o, ok);
}

static osh_status fallback_item(osh_ctx *cx, cJSON **out, const void *user, int64_t i)
{
    const osh_run *r = ((const osh_report_lists *)user)->r->run;
    if (!r->results[i].fallback) return OSH_OK;
    cJSON *o = cJSON_CreateObject(); // own
    return item_give(cx, out, o,
                     o && osh_report_string(o, "name", r->plan->match.linears[i].name) &&
                         osh_report_string(o, "fallback", r->results[i].fallback));
}

/* Makes the item of a router: the number of tokens that the router sent to each expert, counted
 * since the run was last started. */
static osh_status router_item(osh_ctx *cx, cJSON **out, const void *user, int64_t i)
{
    const osh_run *r = ((const osh_report_lists *)user)->r->run;
    const osh_router_tokens *x = &r->coverage->routers[i];
    const osh_graph *g = r->plan->in.graph;
    if (!x->n_tokens) return OSH_OK;
    cJSON *o = cJSON_CreateObject(), *tokens = NULL; // o: own; tokens: view of a member of `o`
    bool ok = o && osh_report_string(o, "router", g->modules[g->nodes[x->node].module].name) &&
              osh_report_number(o, "tokens", (double)x->n_tokens) &&
              (tokens = cJSON_AddArrayToObject(o, "tokens_of_experts"));
    for (int64_t e = 0; ok && e < x->n_experts; e++)
        ok = cJSON_AddItemToArray(tokens, cJSON_CreateNumber((double)x->tokens[e]));
    return item_give(cx, out, o, ok);
}

static osh_status subgraph_item(osh_ctx *cx, cJSON **out, const void *user, int64_t i)
{
    const osh_report_lists *l = user;
    cJSON *o = cJSON_CreateObject(), *t = NULL, *f = NULL; // o: own; t, f: views, members of o
    bool ok = o && osh_report_string(o, "name", l->r->run->plan->schedule.parts->parts[i].name) &&
              (t = cJSON_AddObjectToObject(o, "seconds")) &&
              (f = cJSON_AddObjectToObject(o, "gflop"));
    if (ok && l->worst[i] >= 0) ok = osh_report_number(o, "relative_squared_error", l->worst[i]);
    for (int k = l->row_of[i]; ok && k >= 0; k = l->next_row[k]) {
        const osh_profile_row *row = &l->r->d.rows[k];
        ok = osh_report_seconds(t, row->phase, row->seconds);
        if (ok && row->flops > 0) ok = osh_report_number(f, row->phase, row->flops / 1e9);
    }
    return item_give(cx, out, o, ok);
}

/* Finds the rows of the profile for each subgraph. Also finds the largest error of a Linear in each
 * subgraph. */
static osh_status lists_find_rows(osh_ctx *cx, osh_report_lists *l, int n)
{
    osh_status rc = OSH_OK;
    const osh_report *r = l->r;
    const osh_plan *p = r->run->plan;
    osh_map *names = NULL; // own: maps the name of a subgraph to its index
    int64_t s;
    OSH_NEW(cx, l->row_of, n);
    OSH_NEW(cx, l->worst, n);
    OSH_NEW(cx, l->next_row, (int)r->d.n_rows);
    OSH_TRY(osh_map_new(cx, &names, (size_t)n));
    for (int i = 0; i < n; i++) {
        l->row_of[i] = -1, l->worst[i] = -1;
        OSH_TRY(osh_map_put(cx, names, p->schedule.parts->parts[i].name,
                            strlen(p->schedule.parts->parts[i].name), i));
    }
    /* The loop inserts rows at the front of a list. It runs backwards, so that the rows of each
     * list are in ascending order. */
    for (int k = (int)r->d.n_rows - 1; k >= 0; k--) {
        const osh_profile_row *row = &r->d.rows[k];
        if (row->background || !row->of || !osh_map_get(names, row->of, strlen(row->of), &s))
            continue;
        l->next_row[k] = l->row_of[s], l->row_of[s] = k;
    }
    for (int i = 0; i < p->match.n_linears; i++) {
        int at = p->match.linears[i].subgraph;
        if (at >= 0 && at < n && r->run->results[i].nmse > l->worst[at])
            l->worst[at] = r->run->results[i].nmse;
    }
done:
    osh_map_free(cx, names);
    return rc;
}

osh_status osh_report_lists_init(osh_ctx *cx, osh_report_lists *l, const osh_report *r)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = r->run->plan;
    const osh_coverage *c = r->run->coverage;
    int n = p->schedule.parts && p->in.pipeline == OSH_PIPELINE_SEQUENTIAL ? p->schedule.parts->n
                                                                           : 0,
        k = 0;
    *l = (osh_report_lists){.r = r};
    l->lists[k++] = (osh_json_list){"modules", p->match.n_linears, module_item};
    l->lists[k++] = (osh_json_list){"fallbacks", p->match.n_linears, fallback_item};
    l->lists[k++] = (osh_json_list){"subgraphs", n, subgraph_item};
    if (c) l->lists[k++] = (osh_json_list){"experts", c->n, router_item};
    OSH_TRY(lists_find_rows(cx, l, n));
done:
    return rc;
}

void osh_report_lists_deinit(osh_ctx *cx, osh_report_lists *l)
{
    osh_free(cx, l->row_of);
    osh_free(cx, l->next_row);
    osh_free(cx, l->worst);
}
