/* largest.c - finds the subgraph with the highest predicted memory, and runs it alone. */
#include "api/largest.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "output/stream.h"
#include "budget/memory.h"

/* Finds the Linear with the most weights, for a run without data. */
static osh_status largest_linear(osh_ctx *cx, osh_largest *out, const osh_plan *p)
{
    if (!p->match.n_linears)
        return osh_fail(cx, OSH_E_USAGE,
                        "the recipe matches no module, so there is no largest subgraph");
    *out = (osh_largest){.host_bytes = p->budget.memory.peak.host,
                         .device_bytes = p->budget.memory.peak.device};
    for (int i = 1; i < p->match.n_linears; i++)
        if (p->match.linears[i].O * p->match.linears[i].I >
            p->match.linears[out->index].O * p->match.linears[out->index].I)
            out->index = i;
    out->name = p->match.linears[out->index].name;
    return OSH_OK;
}

static osh_status largest_find(osh_ctx *cx, osh_largest *out, const osh_plan *p)
{
    const osh_schedule *s = &p->schedule;
    if (p->in.pipeline == OSH_PIPELINE_DATAFREE) return largest_linear(cx, out, p);
    int at = 0;
    for (int i = 1; i < s->n_visits; i++)
        if (s->visits[i].peak.host > s->visits[at].peak.host) at = i;
    *out = (osh_largest){.index = at,
                         .name = osh_range_at(s, at).name,
                         .device_bytes = s->visits[at].peak.device,
                         .host_bytes = s->visits[at].peak.host + p->budget.memory.base_bytes};
    return OSH_OK;
}

static double mb(int64_t n) { return (double)n / 1e6; }

osh_status osh_print_largest(osh_ctx *cx, char **out, const osh_plan *p, bool json)
{
    osh_status rc = OSH_OK;
    osh_largest l;
    cJSON *o = NULL;   // own
    char *text = NULL; // own
    OSH_TRY(largest_find(cx, &l, p));
    if (!json) {
        *out = osh_sprintf(cx,
                           "%s: host memory %.1f MB (%.1f MB of it the base), device memory "
                           "%.1f MB, predicted\n",
                           l.name, mb(l.host_bytes), mb(p->budget.memory.base_bytes),
                           mb(l.device_bytes));
        if (!*out) rc = OSH_E_NOMEM;
        goto done;
    }
    if (!(o = cJSON_CreateObject()) || !cJSON_AddStringToObject(o, "name", l.name) ||
        !cJSON_AddNumberToObject(o, "host_bytes", (double)l.host_bytes) ||
        !cJSON_AddNumberToObject(o, "base_bytes", (double)p->budget.memory.base_bytes) ||
        !cJSON_AddNumberToObject(o, "device_bytes", (double)l.device_bytes))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the plan");
    OSH_TRY(osh_json_print(cx, &text, o, 0));
    if (!(*out = osh_sprintf(cx, "%s\n", text))) rc = OSH_E_NOMEM;
done:
    osh_free(cx, text);
    cJSON_Delete(o);
    return rc;
}

static osh_status largest_say(osh_ctx *cx, const osh_run *r, const osh_largest *l, osh_sink sink,
                              void *user)
{
    osh_status rc = OSH_OK;
    int64_t peak = osh_mem_sampled_peak(cx);
    double seconds = osh_now() - r->started;
    osh_buf b;
    osh_buf_init(&b, 0);
    if (r->plan->in.opt->json)
        OSH_TRY(osh_buf_printf(
            cx, &b,
            "{\"name\": \"%s\", \"predicted_bytes\": %lld, \"measured_bytes\": %lld, "
            "\"seconds\": %.3f}\n",
            l->name, (long long)l->host_bytes, (long long)peak, seconds));
    else
        OSH_TRY(osh_buf_printf(
            cx, &b,
            "%s: predicted peak %.1f MB, measured %.1f MB (%.2f of it), %.1f s; nothing is kept\n",
            l->name, mb(l->host_bytes), mb(peak), (double)peak / (double)l->host_bytes, seconds));
    sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status largest_run(osh_ctx *cx, osh_run *r, const osh_largest *l)
{
    osh_status rc = OSH_OK;
    osh_pace *pace = &r->pace;
    osh_tensor *w = NULL; // own
    bool datafree = r->plan->in.pipeline == OSH_PIPELINE_DATAFREE;
    for (int s = 0; s < pace->n; s++) // the progress must not count the work of other subgraphs
        if (datafree || s != l->index) pace->cost[s] = (osh_cost){0};
    if (!datafree) {
        OSH_TRY(osh_run_visit_alone(cx, r, l->index));
        goto done;
    }
    if (osh_stream_takes(r->plan->budget.schedule, l->index)) {
        OSH_TRY(
            osh_stream_linears(cx, r->emitter, &(osh_stream_job){.linears = &l->index, .n = 1}));
        goto done;
    }
    OSH_TRY(osh_linear_read(cx, &w, &r->plan->budget, l->index));
    OSH_TRY(osh_run_round(cx, r, l->index, &w));
    OSH_TRY(osh_emit_wait(cx, r->emitter));
done:
    osh_tensor_free(cx, w);
    return rc;
}

osh_status osh_try_largest(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_plan *p = NULL;              // own
    char *output = NULL;             // own
    osh_options trial = *opt;        // its strings are views of `output` and of the strings in opt
    osh_largest l;
    bool finished = false;
    osh_run r = {.started = osh_now()};
    size_t n = opt->output ? strlen(opt->output) : 0;
    while (n > 1 && opt->output[n - 1] == '/') n--;
    if (!(output = osh_sprintf(cx, "%.*s.oneshot-trial", (int)n, opt->output ? opt->output : "")))
        OSH_TRY(OSH_E_NOMEM);
    /* A trial that was killed may have left files in the directory. */
    trial.output = output, trial.restart = trial.overwrite = true;
    OSH_TRY(osh_output_claim(cx, &trial));
    OSH_TRY(osh_run_watch(cx, &r, &trial));
    OSH_TRY(osh_plan_new(cx, &p, &trial));
    r.plan = p, r.budget = &p->budget;
    OSH_TRY(largest_find(cx, &l, p));
    OSH_TRY(osh_plan_open_device(cx, p));
    osh_memory_enforce(cx, &p->budget);
    r.progress.budget_bytes = opt->host_memory;
    OSH_NEW(cx, r.results, p->match.n_linears);
    OSH_TRY(osh_emitter_new(cx, &r.emitter, p, r.results, &finished));
    osh_emitter_discard(r.emitter);
    OSH_TRY(osh_run_start(cx, &r));
    OSH_TRY(largest_run(cx, &r, &l));
    OSH_TRY(largest_say(cx, &r, &l, sink, user));
done:
    osh_run_unwatch(cx, &r, rc);
    osh_emitter_free(cx, r.emitter);
    osh_free(cx, r.results);
    osh_plan_free(cx, p);
    osh_free(cx, output);
    return rc;
}
