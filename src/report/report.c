/* report.c - collects the results of a run and writes them as JSON. docs/how-to/report.md explains
 * the keys. */
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/available.h"
#include "base/file.h"
#include "base/name.h"
#include "base/shell.h"
#include "output/tuned.h"
#include "match/dense.h"
#include "match/padding.h"
#include "report/report_lists.h"
#include "report/report_mix.h"
#include "report/report_mixed.h"

/* ---- options ---- */

static bool option_is_path(const char *name)
{
    static const char *const paths[] = {"model",    "recipe",      "dataset",
                                        "output",   "models_dir",  "profile",
                                        "log_file", "scratch_dir", "eval", "adapter"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!strcmp(name, paths[i])) return true;
    return false;
}

static bool option_add_strs(cJSON *o, const osh_field *f, const osh_strs *s)
{
    bool path = option_is_path(f->name), any = false;
    for (size_t i = 0; i < s->n; i++) any |= *s->items[i] != 0;
    if (!any) return true;
    if (f->whole && s->n == 1)
        return osh_report_string(o, f->name, path ? osh_path_last(s->items[0]) : s->items[0]);
    cJSON *list = cJSON_AddArrayToObject(o, f->name);
    for (size_t i = 0; list && i < s->n; i++)
        if (!cJSON_AddItemToArray(list, cJSON_CreateString(path ? osh_path_last(s->items[i])
                                                                : s->items[i])))
            return false;
    return list != NULL;
}

static bool options_add(cJSON *o, const osh_field *f, const void *v, const void *dflt)
{
    static const size_t sizes[] = {[OSH_F_INT] = sizeof(int64_t), [OSH_F_FLOAT] = sizeof(double),
                                   [OSH_F_BOOL] = sizeof(bool), [OSH_F_BYTES] = sizeof(int64_t)};
    const char *text;
    switch (f->type) {
    case OSH_F_STRS: return option_add_strs(o, f, v);
    case OSH_F_STR:
        text = *(char *const *)v;
        if (!text || (*(char *const *)dflt && !strcmp(text, *(char *const *)dflt))) return true;
        /* The report may be published with the output, so only the last part of a path is
         * written. */
        return osh_report_string(o, f->name, option_is_path(f->name) ? osh_path_last(text) : text);
    default: break;
    }
    if (!memcmp(v, dflt, sizes[f->type])) return true;
    if (f->type == OSH_F_BOOL) return cJSON_AddBoolToObject(o, f->name, *(const bool *)v) != NULL;
    return osh_report_number(
        o, f->name, f->type == OSH_F_FLOAT ? *(const double *)v : (double)*(const int64_t *)v);
}

/* Returns the options that differ from their defaults as a JSON object (own). */
static osh_status options_json(osh_ctx *cx, cJSON **out, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_options dflt = {0}; // own
    cJSON *o = cJSON_CreateObject(); // own
    bool ok = o != NULL;
    OSH_TRY(osh_fields_default(cx, osh_option_fields, &dflt));
    for (const osh_field *f = osh_option_fields; ok && f->name; f++)
        ok = options_add(o, f, (const char *)opt + f->offset, (const char *)&dflt + f->offset);
    if (!ok) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the report");
    *out = o, o = NULL;
done:
    cJSON_Delete(o);
    osh_fields_deinit(cx, osh_option_fields, &dflt);
    return rc;
}

/* ---- identity of the run ---- */

static osh_status command_put_word(osh_ctx *cx, osh_buf *b, const char *s)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_append(cx, b, " ", 1));
    OSH_TRY(osh_shell_word(cx, b, s));
done:
    return rc;
}

/* Appends the flags of the command line that set the option. */
static osh_status command_put_flag(osh_ctx *cx, osh_buf *b, const cJSON *o)
{
    osh_status rc = OSH_OK;
    char flag[80] = "--";
    char *text = cJSON_IsString(o) || cJSON_IsArray(o) ? NULL : cJSON_PrintUnformatted(o); // own
    for (size_t i = 0; o->string[i] && i < sizeof flag - 3; i++)
        flag[i + 2] = o->string[i] == '_' ? '-' : o->string[i];
    if (cJSON_IsArray(o)) {
        for (const cJSON *c = o->child; c; c = c->next) {
            OSH_TRY(command_put_word(cx, b, flag));
            OSH_TRY(command_put_word(cx, b, cJSON_IsString(c) ? c->valuestring : ""));
        }
        goto done;
    }
    OSH_TRY(command_put_word(cx, b, flag));
    if (!cJSON_IsTrue(o))
        OSH_TRY(command_put_word(cx, b, cJSON_IsString(o) ? o->valuestring : text ? text : ""));
done:
    cJSON_free(text);
    return rc;
}

static osh_status command_find(osh_ctx *cx, char **out, const cJSON *options)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_append(cx, &b, "oneshot", 7));
    for (const cJSON *o = options->child; o; o = o->next) OSH_TRY(command_put_flag(cx, &b, o));
    *out = b.data, b.data = NULL; // give
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Sets *out (own) to a text with the processor, the threads and the memory of the machine. */
static osh_status machine_find(osh_ctx *cx, char **out)
{
    static const char key[] = "model name";
    char text[16384], *at, *end;
    FILE *f = fopen("/proc/cpuinfo", "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    at = strstr(text, key);
    at = at ? strchr(at, ':') : NULL;
    if (at) at += 1 + strspn(at + 1, " \t");
    if (at && (end = strchr(at, '\n'))) *end = 0;
    *out = osh_sprintf(cx, "%.100s, %d threads, %.1f GiB",
                       at ? at : "a processor that is not known", osh_threads(cx),
                       (double)osh_mem_machine() / (1 << 30));
    return *out ? OSH_OK : OSH_E_NOMEM;
}

static bool report_add_identity(cJSON *root, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    const char *arch = p->in.ck->config ? p->in.ck->config->architecture : NULL;
    bool ok = osh_report_string(root, "model", r->model) &&
              osh_report_string(root, "architecture", arch ? arch : "") &&
              (!p->in.ck->adapter ||
               osh_report_string(root, "adapter", osh_path_last(p->in.ck->adapter))) &&
              osh_padding_json(root, &p->in) &&
              osh_report_string(root, "command", r->command) &&
              osh_report_string(root, "date", r->date) &&
              osh_report_string(root, "machine", r->machine);
    return ok && (!r->n_experts || osh_report_number(root, "expert_modules", r->n_experts));
}

/* ---- measurements ---- */

/* Adds the seconds of each phase on the job's own thread. The phases and "other" add up to
 * "total". */
static bool report_add_seconds(cJSON *root, const osh_report *r)
{
    cJSON *o = cJSON_AddObjectToObject(root, "seconds");
    double other = r->d.seconds;
    bool ok = o != NULL;
    for (size_t i = 0; ok && i < r->d.n_rows; i++) {
        const osh_profile_row *row = &r->d.rows[i];
        if (row->background) continue;
        cJSON *have = cJSON_GetObjectItemCaseSensitive(o, row->phase);
        if (have) cJSON_SetNumberValue(have, round((have->valuedouble + row->seconds) * 1e6) / 1e6);
        else ok = osh_report_seconds(o, row->phase, row->seconds);
        other -= row->seconds;
    }
    return ok && osh_report_seconds(o, "other", other > 0 ? other : 0) &&
           osh_report_seconds(o, "total", r->d.seconds);
}

static bool report_add_memory(osh_ctx *cx, cJSON *root, const osh_report *r)
{
    cJSON *o = cJSON_AddObjectToObject(root, "memory"), *list = NULL;
    bool ok = o && osh_report_string(o, "measure", "RssAnon + RssShmem") &&
              osh_report_number(o, "peak_bytes", (double)r->d.peak_bytes) &&
              osh_report_number(o, "allocated_peak_bytes", (double)osh_mem_peak(cx)) &&
              osh_report_number(o, "used_peak_bytes", (double)r->d.live_peak);
    if (ok && r->budget_bytes) ok = osh_report_number(o, "budget_bytes", (double)r->budget_bytes);
    if (ok && r->predicted_bytes)
        ok = osh_report_number(o, "predicted_peak_bytes", (double)r->predicted_bytes);
    ok = ok && (list = cJSON_AddArrayToObject(o, "points"));
    for (size_t i = 0; ok && i < r->d.n_points; i++) {
        char triple[80]; // one point of the memory curve as JSON
        const osh_profile_point *x = &r->d.points[i];
        snprintf(triple, sizeof triple, "[%.3f, %lld, %lld]", x->seconds, (long long)x->bytes,
                 (long long)x->live);
        cJSON *item = cJSON_CreateRaw(triple);
        ok = item && cJSON_AddItemToArray(list, item);
    }
    return ok;
}

static bool device_add_copies(cJSON *o, const char *key, int64_t bytes, double seconds)
{
    cJSON *c = cJSON_AddObjectToObject(o, key);
    bool ok = c && osh_report_number(c, "bytes", (double)bytes) &&
              osh_report_seconds(c, "seconds", seconds);
    if (ok && seconds > 0)
        ok = osh_report_number(c, "bytes_per_second", round((double)bytes / seconds));
    return ok;
}

/* Adds the number of fallbacks of the GPU, for each kind of fallback. */
static bool device_add_detours(cJSON *o, const osh_device_counters *c)
{
    cJSON *list = cJSON_AddObjectToObject(o, "fallbacks");
    bool ok = list != NULL;
    for (int k = 0; ok && k < OSH_N_DETOURS; k++)
        if (c->detours[k])
            ok = osh_report_number(list, osh_detour_name((osh_detour)k),
                                   (double)c->detours[k]);
    return ok;
}

/* Adds the object "values". It has the tier (GPU, host or disk) in which values are stored between
 * subgraphs, and how many bytes of values were copied to and from the GPU. */
static bool device_add_values(cJSON *o, const osh_plan *p, const osh_device_counters *c)
{
    cJSON *v = cJSON_AddObjectToObject(o, "values");
    return v && osh_report_string(v, "rest_in", osh_tier_name(p->budget.memory.tier)) &&
           osh_report_number(v, "to_device_bytes", (double)c->value_in_bytes) &&
           osh_report_number(v, "from_device_bytes", (double)c->value_out_bytes);
}

static bool report_add_device(cJSON *root, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    const osh_device_counters *c = &r->copies;
    if (!p->in.device) return true;
    cJSON *o = cJSON_AddObjectToObject(root, "device"), *t = NULL;
    bool ok = o && osh_report_string(o, "name", p->in.device->text) &&
              osh_report_number(o, "peak_bytes", (double)osh_arena_peak(p->in.device->arena)) &&
              osh_report_number(o, "predicted_peak_bytes", (double)p->budget.memory.peak.device) &&
              (r->d.driver_peak < 0 ||
               osh_report_number(o, "driver_peak_bytes", (double)r->d.driver_peak)) &&
              (!p->in.opt->device_memory ||
               osh_report_number(o, "budget_bytes", (double)p->in.opt->device_memory)) &&
              device_add_copies(o, "to_device", c->put_bytes, c->put_s) &&
              device_add_copies(o, "to_device_ahead", c->ahead_bytes, c->ahead_s) &&
              device_add_copies(o, "from_device", c->get_bytes, c->get_s) &&
              osh_report_number(o, "read_by_device_bytes", (double)c->file_bytes);
    double to = c->put_s + c->ahead_s;
    if (ok && to > 0)
        ok = osh_report_number(o, "hidden_share", round(c->hidden_s / to * 1e4) / 1e4);
    if (ok && c->get_s > 0)
        ok = osh_report_number(o, "hidden_share_from",
                               round(c->get_hidden_s / c->get_s * 1e4) / 1e4);
    ok = ok && device_add_values(o, p, c) && device_add_detours(o, c) &&
         (t = cJSON_AddObjectToObject(o, "seconds"));
    for (int k = OSH_PHASE_OBSERVE; ok && k <= OSH_PHASE_PROPAGATE; k++)
        ok = osh_report_seconds(t, osh_phase_name((osh_phase)k), r->run->device_seconds[k]);
    return ok;
}

/* Adds the times of the ranks of a divided job. */
static bool report_add_ranks(cJSON *root, const osh_run *r)
{
    osh_ranks *ranks = r->plan->in.opt->ranks;
    int n = osh_ranks_n(ranks);
    if (!r->times) return true;
    cJSON *list = cJSON_AddArrayToObject(root, "ranks"), *of = NULL;
    bool ok = list != NULL;
    for (int k = 0; ok && k < n; k++) {
        const osh_rank_time *t = &r->times[k];
        cJSON *o = cJSON_CreateObject(), *seconds = NULL, *waited = NULL;
        cJSON_AddItemToArray(list, o);
        ok = o && osh_report_string(o, "node", osh_ranks_at(ranks, k)->node) &&
             osh_report_number(o, "tokens", (double)t->n_tokens) &&
             osh_report_number(o, "sent_bytes", (double)t->sent) &&
             (seconds = cJSON_AddObjectToObject(o, "seconds")) &&
             (waited = cJSON_AddObjectToObject(o, "waited_seconds"));
        for (osh_phase p = 0; ok && p < OSH_N_PHASES; p++)
            if (t->seconds[p] > 0)
                ok = osh_report_seconds(seconds, osh_phase_name(p), t->seconds[p]) &&
                     osh_report_seconds(waited, osh_phase_name(p), t->waited[p]);
    }
    ok = ok && (of = cJSON_AddObjectToObject(root, "imbalance"));
    for (osh_phase p = 0; ok && p < OSH_N_PHASES; p++) {
        double x = osh_time_imbalance(r->times, n, p);
        if (x > 0) ok = osh_report_number(of, osh_phase_name(p), round(x * 1e3) / 1e3);
    }
    return ok;
}

static bool report_add_io(cJSON *root, const osh_report *r)
{
    const osh_memory *m = &r->run->plan->budget.memory;
    cJSON *o = cJSON_AddObjectToObject(root, "io");
    bool ok = o && osh_report_number(o, "read_bytes", (double)r->d.io.read_bytes) &&
              osh_report_number(o, "written_bytes", (double)r->d.io.written_bytes) &&
              osh_report_number(o, "source_bytes", (double)r->source_bytes) &&
              osh_report_number(o, "output_bytes", (double)r->run->plan->manifest.total_bytes) &&
              osh_report_number(o, "planned_read_bytes", (double)m->read_bytes) &&
              osh_report_number(o, "planned_write_bytes", (double)m->write_bytes) &&
              osh_report_number(o, "planned_reread_bytes", (double)m->reread_bytes);
    if (ok && r->storage_read >= 0)
        ok = osh_report_number(o, "storage_read_bytes", (double)r->storage_read);
    if (ok && r->storage_written >= 0)
        ok = osh_report_number(o, "storage_written_bytes", (double)r->storage_written);
    return ok;
}

/* Adds the result of tuning codes, scales and norms, or the reason why they were not tuned. */
static bool report_add_tuned(cJSON *root, const osh_run *r)
{
    const osh_tune_rule *rule = &r->plan->schedule.tune;
    const osh_tuned none = {0}, *t = r->emitter ? osh_emit_tuned(r->emitter) : &none;
    cJSON *o = t->known ? cJSON_AddObjectToObject(root, "tuned") : NULL;
    if (!t->known)
        return !r->plan->schedule.tune_not ||
               osh_report_string(root, "not_tuned", r->plan->schedule.tune_not);
    return o && osh_report_number(o, "steps", (double)rule->steps) &&
           osh_report_number(o, "rows", (double)rule->rows) &&
           osh_report_number(o, "kl_divergence_before", t->before) &&
           osh_report_number(o, "kl_divergence", t->after) &&
           osh_report_number(o, "codes", (double)t->n_codes) &&
           osh_report_number(o, "codes_changed", (double)t->n_changed) &&
           cJSON_AddBoolToObject(o, "kept", t->kept);
}

static bool report_add_checkpoints(cJSON *root, const osh_report *r)
{
    cJSON *list = cJSON_AddArrayToObject(root, "checkpoints");
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < r->d.n_marks; i++) {
        const osh_profile_mark *m = &r->d.marks[i];
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        ok = o && osh_report_string(o, "name", m->name) &&
             osh_report_seconds(o, "seconds", m->seconds) &&
             osh_report_number(o, "memory_bytes", (double)m->bytes);
    }
    return ok;
}

/* ---- both reports ---- */

static int64_t number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    int64_t v = 0;
    if (!at) return -1;
    for (at += strlen(key); *at >= '0' && *at <= '9'; at++) v = 10 * v + (*at - '0');
    return v;
}

/* Adds the traversals, if each modifier has a traversal of its own. The time of a traversal is
 * unknown if an earlier process ran the traversal. */
static bool report_add_traversals(cJSON *root, const osh_plan *p)
{
    cJSON *list = p->n_traversals ? cJSON_AddArrayToObject(root, "traversals") : NULL;
    bool ok = list || !p->n_traversals;
    for (int t = 0; ok && t < p->n_traversals; t++) {
        const osh_traversal *v = &p->traversals[t];
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        ok = o &&
             osh_report_string(o, "modifier",
                               p->in.recipe->modifiers[v->schedule.modifier].type->name) &&
             (v->seconds <= 0 || osh_report_number(o, "seconds", v->seconds));
    }
    return ok;
}

/* Adds the number of copied tensors that contain a NaN or an infinity, and the names of some of
 * them. */
static bool report_add_not_finite(cJSON *root, const osh_run *r)
{
    cJSON *o = NULL, *list = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < r->plan->manifest.n_out; i++) {
        if (!osh_emit_not_finite(r->emitter, i)) continue;
        if (!o && (!(o = cJSON_AddObjectToObject(root, "not_finite")) ||
                   !(list = cJSON_AddArrayToObject(o, "tensors"))))
            return false;
        if (n++ < 10 &&
            !cJSON_AddItemToArray(list, cJSON_CreateString(r->plan->manifest.out[i].name)))
            return false;
    }
    return !o || osh_report_number(o, "n", (double)n);
}

static osh_status report_collect(osh_ctx *cx, osh_report *out, const osh_run *r)
{
    osh_status rc = OSH_OK;
    char *io = NULL; // own
    size_t n;
    const osh_plan *p = r->plan;
    *out = (osh_report){.run = r,
                        .storage_read = -1,
                        .storage_written = -1,
                        .n_resumed = r->emitter ? osh_emitter_n_resumed(r->emitter) : 0,
                        .budget_bytes = r->progress.budget_bytes,
                        .predicted_bytes = r->plan->budget.memory.peak.host};
    rc = osh_file_read_all(cx, &io, &n, "/proc/self/io", 1 << 16);
    if (rc && rc != OSH_E_IO) goto done;
    if (rc) osh_error_clear(cx); // some systems do not let a process read its counters
    else {
        out->storage_read = number_after(io, "\nread_bytes: ");
        out->storage_written = number_after(io, "\nwrite_bytes: ");
    }
    out->source_bytes = osh_checkpoint_stored_bytes(p->in.ck);
    for (int i = 0; i < p->match.n_linears; i++) {
        out->n_fallbacks += r->results[i].fallback != NULL;
        out->n_experts += strstr(p->match.linears[i].name, ".experts.") != NULL;
    }
    out->model = p->in.opt->model ? osh_path_last(p->in.opt->model) : "";
    time_t now = time(NULL);
    struct tm day;
    if (gmtime_r(&now, &day)) strftime(out->date, sizeof out->date, "%Y-%m-%d %H:%M UTC", &day);
    OSH_TRY(machine_find(cx, &out->machine));
    if (p->in.device) OSH_TRY(p->in.device->type->count(cx, p->in.device, &out->copies));
    OSH_TRY(osh_profile_read(cx, &out->d));
    out->seconds = out->d.seconds;
done:
    osh_free(cx, io);
    return rc;
}

osh_status osh_run_report(osh_ctx *cx, osh_report *out, char **html, const osh_run *run)
{
    osh_status rc = OSH_OK;
    osh_report r = {0}; // own
    OSH_TRY(report_collect(cx, &r, run));
    OSH_TRY(options_json(cx, &r.options, run->plan->in.opt));
    OSH_TRY(command_find(cx, &r.command, r.options));
    OSH_TRY(osh_report_html(cx, html, &r, r.options));
    *out = r, r = (osh_report){0}; // give
done:
    osh_report_deinit(cx, &r);
    return rc;
}

void osh_report_deinit(osh_ctx *cx, osh_report *r)
{
    osh_profile_data_deinit(cx, &r->d);
    osh_free(cx, r->command);
    osh_free(cx, r->machine);
    cJSON_Delete(r->options);
    *r = (osh_report){0};
}

osh_status osh_report_write(osh_ctx *cx, void *report, osh_file *f)
{
    osh_status rc = OSH_OK;
    const osh_report *r = report;
    const osh_run *run = r->run;
    const osh_plan *p = run->plan;
    osh_report_lists lists = {0};       // own
    cJSON *root = cJSON_CreateObject(); // own
    OSH_TRY(osh_report_lists_init(cx, &lists, r));
    bool ok = root && cJSON_AddItemReferenceToObject(root, "options", r->options);
    ok = ok && osh_report_string(root, "program", "oneshot") &&
         osh_report_string(root, "version", osh_version()) && report_add_identity(root, r) &&
         osh_report_string(root, "pipeline", osh_plan_pipeline(p)) &&
         report_add_traversals(root, p) &&
         osh_report_number(root, "samples", (double)p->in.data.n) &&
         osh_report_number(root, "tokens",
                           p->in.data.n ? (double)p->in.data.offsets[p->in.data.n] : 0) &&
         osh_mix_json(root, &p->in.mix) &&
         osh_report_number(root, "resumed", r->n_resumed) &&
         osh_report_number(root, "output_bytes", (double)p->manifest.total_bytes) &&
         osh_mixed_json(root, p->in.opt->mixed) && report_add_tuned(root, run) &&
         report_add_not_finite(root, run) && osh_dense_json(root, &p->match) &&
         report_add_seconds(root, r) && report_add_memory(cx, root, r) &&
         report_add_device(root, r) && report_add_ranks(root, run) &&
         report_add_io(root, r) && report_add_checkpoints(root, r);
    if (!ok) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the report");
    OSH_TRY(osh_json_write(cx, f, root, lists.lists, &lists));
done:
    osh_report_lists_deinit(cx, &lists);
    cJSON_Delete(root);
    return rc;
}
