/* plan_print.c - prints the plan as text: subgraphs (weights, live values, passes), schemes with
 * the programs that load them, and output files. */
#include <string.h>

#include "base/buf.h"
#include "base/isa.h"
#include "base/live.h"
#include "base/map.h"
#include "output/manifest_text.h"
#include "graph/picked.h"
#include "match/lookup.h"
#include "budget/bytes.h"
#include "budget/gpus.h"
#include "budget/cost.h"
#include "budget/memory.h"
#include "budget/memory_rest.h"
#include "match/dense.h"
#include "match/loaders.h"
#include "match/padding.h"
#include "plan/best.h"
#include "schedule/looks.h"
#include "rewrite/passthrough.h"
#include "rewrite/rotations.h"
#include "report/plan_json.h"
#include "report/plan_print.h"
#include "report/report_mix.h"
#include "schedule/tuning.h"

int64_t osh_range_weight_bytes(const osh_plan *p, const osh_range *r)
{
    const osh_graph *g = p->in.graph;
    int64_t bytes = 0;
    for (int n = r->first; n < r->first + r->n_nodes; n++)
        /* A node of the original model has the same weights as the node after it. The weights are
         * counted for the later node. */
        for (int k = 0; k < OSH_OP_MAX_IN && !g->nodes[n].original; k++) {
            int w = g->nodes[n].w[k];
            if (w < 0 || osh_is_picked(g, &g->nodes[n], k)) continue;
            const osh_entry *e = osh_weight_entry(g, p->in.ck, w);
            bytes += e->end - e->begin;
        }
    return bytes;
}

int osh_range_n_linears(const osh_plan *p, const osh_range *r)
{
    int n = 0;
    osh_span own = osh_linears_of(&p->schedule, r->first_subgraph, r->n_subgraphs);
    for (int i = own.first; i < own.end; i++) {
        int s = p->match.linears[i].subgraph;
        n += s >= r->first_subgraph && s < r->first_subgraph + r->n_subgraphs;
    }
    return n;
}

const char *osh_range_passes_text(const osh_range *r)
{
    if (r->fold && r->merged) return "smooth, observe and propagate in one pass";
    if (r->fold && r->observe)
        return r->propagate ? "smooth, observe, propagate" : "smooth, observe";
    if (r->fold) return r->propagate ? "smooth, propagate" : "smooth";
    if (r->merged) return "observe and propagate in one pass";
    if (r->observe && r->propagate) return "observe, propagate";
    return r->observe ? "observe" : r->propagate ? "propagate" : "none";
}

static double bytes_to_mb(int64_t n) { return (double)n / 1e6; }

const char *osh_visit_way_text(const osh_visit *v)
{
    return v->how.segments      ? "one group of modules at a time"
           : v->how.round_bytes ? "statistics in several rounds"
                            : "whole";
}

static osh_status print_value_names(osh_ctx *cx, osh_buf *b, const osh_plan *p, const int *v, int n)
{
    osh_status rc = OSH_OK;
    for (int k = 0; k < n; k++)
        OSH_TRY(osh_buf_printf(cx, b, " %s", p->in.graph->values[v[k]].name));
done:
    return rc;
}

static osh_status print_visit(osh_ctx *cx, osh_buf *b, const osh_visit *v)
{
    return osh_buf_printf(
        cx, b,
        "          weights %.1f MB, statistics %.1f MB, stored values %.1f MB, device %.1f MB, "
        "host %.1f MB above the base; %s%s%s%s\n",
        bytes_to_mb(v->weight_bytes), bytes_to_mb(v->stats_bytes), bytes_to_mb(v->live_bytes),
        bytes_to_mb(v->peak.device), bytes_to_mb(v->peak.host), osh_visit_way_text(v),
        v->how.prefetch ? ", reads weights ahead" : "",
        v->how.values_ahead ? ", copies values during the work" : "",
        v->how.apart ? ", solves several small Linears at a time" : "");
}

/* Prints the weights, live values and passes of a subgraph. The caller prints the number and the
 * name of the subgraph. */
static osh_status print_subgraph(osh_ctx *cx, osh_buf *b, const osh_plan *p, const osh_range *r,
                                 int i)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(
        cx, b, " %3d nodes, %d quantized, weights %.2f MB, Hessians %.2f MB, passes: %s; live in:",
        r->n_nodes, osh_range_n_linears(p, r), (double)osh_range_weight_bytes(p, r) / 1e6,
        (double)osh_range_hessians(&p->schedule, r, NULL) / 1e6, osh_range_passes_text(r)));
    OSH_TRY(print_value_names(cx, b, p, r->live_in, r->n_live_in));
    OSH_TRY(osh_buf_printf(cx, b, "; live out:"));
    OSH_TRY(print_value_names(cx, b, p, r->live_out, r->n_live_out));
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
    if (i < p->schedule.n_visits) OSH_TRY(print_visit(cx, b, &p->schedule.visits[i]));
done:
    return rc;
}

/* Replaces numbers in names by *, so "model.layers.3.h" becomes "model.layers.*.h". The caller
 * frees *to. */
static osh_status text_without_numbers(osh_ctx *cx, char **to, const char *text)
{
    osh_status rc = OSH_OK;
    size_t n = 0;
    OSH_NEW(cx, *to, strlen(text) + 1);
    for (const char *s = text; *s; n++) {
        size_t digits = s > text && s[-1] == '.' ? strspn(s, "0123456789") : 0;
        bool part = digits && (!s[digits] ||
                               (s[digits] == '.' && (s[digits + 1] < '0' || s[digits + 1] > '9')));
        (*to)[n] = part ? '*' : *s;
        s += part ? digits : 1;
    }
done:
    return rc;
}

typedef struct fold { // subgraphs whose texts differ only in numbers
    int first, n;
    char *name, *text; // own: name and text of a subgraph, with * in the place of numbers
} fold;

static osh_status fold_subgraphs(osh_ctx *cx, fold *folds, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_map *rows = NULL; // own
    osh_buf text, key;
    int n = 0;
    osh_buf_init(&text, 0), osh_buf_init(&key, 0);
    OSH_TRY(osh_map_new(cx, &rows, 64));
    for (int i = 0; i < osh_n_ranges(&p->schedule); i++) {
        const osh_range r = osh_range_at(&p->schedule, i);
        int64_t at = n;
        fold *f = &folds[n];
        osh_buf_clear(&text), osh_buf_clear(&key);
        OSH_TRY(print_subgraph(cx, &text, p, &r, i));
        OSH_TRY(text_without_numbers(cx, &f->name, r.name));
        OSH_TRY(text_without_numbers(cx, &f->text, text.data));
        OSH_TRY(osh_buf_printf(cx, &key, "%s%s", f->name, f->text));
        if (osh_map_get(rows, key.data, key.len, &at)) {
            osh_free(cx, f->name), osh_free(cx, f->text);
            f->name = f->text = NULL;
            folds[at].n++;
            continue;
        }
        OSH_TRY(osh_map_put(cx, rows, key.data, key.len, n));
        f->first = i, f->n = 1, n++;
    }
done:
    osh_map_free(cx, rows);
    osh_buf_deinit(cx, &text);
    osh_buf_deinit(cx, &key);
    return rc;
}

/* Prints a row for each subgraph. Subgraphs whose rows differ only in numbers share the row of the
 * first such subgraph. */
static osh_status print_subgraphs(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    int all = osh_n_ranges(&p->schedule);
    fold *folds = NULL; // own
    OSH_NEW(cx, folds, all);
    OSH_TRY(fold_subgraphs(cx, folds, p));
    for (int k = 0; k < all && folds[k].n; k++) {
        const osh_range r = osh_range_at(&p->schedule, folds[k].first);
        OSH_TRY(osh_buf_printf(cx, b, "[%3d/%d] ", folds[k].first + 1, all));
        if (folds[k].n == 1) {
            OSH_TRY(osh_buf_printf(cx, b, "%-40s", r.name));
            OSH_TRY(print_subgraph(cx, b, p, &r, folds[k].first));
        } else {
            OSH_TRY(osh_buf_printf(cx, b, "%s, %d alike, each:%s", folds[k].name, folds[k].n,
                                   folds[k].text));
        }
    }
done:
    for (int k = 0; folds && k < all; k++) osh_free(cx, folds[k].name), osh_free(cx, folds[k].text);
    osh_free(cx, folds);
    return rc;
}

osh_status osh_plan_seconds(osh_ctx *cx, double *seconds, const osh_plan *p)
{
    /* Speed of matrix multiplications by instruction set, relative to AVX2. */
    static const double faster[OSH_N_ISAS] = {0.15, 1, 1.5, 3, 5};
    osh_status rc = OSH_OK;
    double threads = osh_threads(cx), products = threads * faster[osh_isa_used()];
    osh_cost *cost = NULL; // own
    int n = 0;
    *seconds = 0;
    OSH_TRY(osh_cost_new(cx, &cost, &n, &p->budget));
    for (int s = 0; s < n; s++)
        for (int k = 0; k < OSH_N_PHASES; k++)
            *seconds += cost[s].work[k] / (k < OSH_PHASE_ROUND    ? products
                                           : k == OSH_PHASE_ROUND ? threads
                                                                  : 1);
done:
    osh_free(cx, cost);
    return rc;
}

/* Prints the memory and time that the job needs. They are at the end of the plan, where a terminal
 * shows them without scrolling. */
static osh_status print_needs(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_memory *m = &p->budget.memory;
    double seconds = 0;
    char time[32];
    OSH_TRY(osh_buf_printf(cx, b, "needs: host memory %.1f MB", bytes_to_mb(m->peak.host)));
    if (p->in.on_device)
        OSH_TRY(osh_buf_printf(cx, b, ", memory of the GPU %.1f MB", bytes_to_mb(m->peak.device)));
    OSH_TRY(osh_buf_printf(cx, b, ", disk %.1f MB", bytes_to_mb(p->manifest.total_bytes)));
    if (m->peak.scratch)
        OSH_TRY(osh_buf_printf(cx, b, " and %.1f MB of scratch", bytes_to_mb(m->peak.scratch)));
    if (!p->in.on_device) {
        OSH_TRY(osh_plan_seconds(cx, &seconds, p));
        osh_show_time(time, sizeof time, seconds < 1 ? 1 : seconds);
        OSH_TRY(osh_buf_printf(cx, b,
                               "; about %s with %d threads, counted from operations and bytes",
                               time, osh_threads(cx)));
    }
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    return rc;
}

static osh_status print_memory(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_memory *m = &p->budget.memory;
    const osh_schedule *s = &p->schedule;
    int ahead = 0;
    for (int i = 0; i < s->n_visits; i++) ahead += s->visits[i].how.prefetch;
    if (s->n_visits)
        OSH_TRY(
            osh_buf_printf(cx, b, "values between subgraphs are in: %s", osh_tier_name(m->tier)));
    if (m->n_kept)
        OSH_TRY(osh_buf_printf(cx, b, ", those of %lld of %lld batches in memory",
                               (long long)m->n_kept, (long long)s->n_batches));
    if (s->n_visits)
        OSH_TRY(osh_buf_printf(cx, b, ", read ahead in %d of %d subgraphs\n", ahead, s->n_visits));
    if (s->n_visits && osh_looks_twice(s))
        OSH_TRY(osh_buf_line(cx, b, "values that observers read twice: %s",
                             s->looks == OSH_LOOK_AGAIN  ? "made again"
                             : m->looks_f16              ? "kept on the disk as F16"
                             : s->looks == OSH_LOOK_DISK ? "kept on the disk"
                                                         : "kept in memory"));
    if (m->n_loaders)
        OSH_TRY(
            osh_buf_line(cx, b, "threads that read values ahead from the disk: %d", m->n_loaders));
    OSH_TRY(osh_buf_printf(
        cx, b,
        "peaks: device memory %.1f MB, host memory %.1f MB (%.1f MB of it the base), scratch %.1f "
        "MB\n",
        bytes_to_mb(m->peak.device), bytes_to_mb(m->peak.host), bytes_to_mb(m->base_bytes),
        bytes_to_mb(m->peak.scratch)));
    OSH_TRY(osh_buf_printf(cx, b, "smallest budgets: device memory %.1f MB, host memory %.1f MB\n",
                           bytes_to_mb(m->least.device), bytes_to_mb(m->least.host)));
    OSH_TRY(osh_buf_printf(
        cx, b, "reads %.1f MB of the source, writes %.1f MB, reads these again to check them\n",
        bytes_to_mb(m->read_bytes), bytes_to_mb(m->write_bytes)));
done:
    return rc;
}

/* Prints two numbers for each transform: how many layers have weights that are divided by the
 * factors of the transform, and how many weights are multiplied by these factors. */
static osh_status print_factors(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    for (size_t m = 0; m < p->in.recipe->n; m++) {
        int layers = 0, modules = 0;
        for (int i = 0; i < p->rewrites.n_folds; i++)
            if (p->rewrites.folds[i].modifier == (int)m)
                layers++, modules += p->rewrites.folds[i].n_takes;
        if (layers)
            OSH_TRY(osh_buf_line(cx, b, "%s: factors of %d layers, such as %s, for %d weights",
                                 p->in.recipe->modifiers[m].type->name, layers,
                                 p->in.graph->modules[p->rewrites.folds[0].module].name, modules));
    }
done:
    return rc;
}

static osh_status print_rotations(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_rotated *r = p->rewrites.rotated;
    if (!r) goto done;
    OSH_TRY(osh_buf_printf(cx, b, "%s: ", p->in.recipe->modifiers[r->modifier].type->name));
    for (int i = 0; i < r->n; i++)
        OSH_TRY(
            osh_buf_printf(cx, b, "%s in blocks of %lld, ", r->names[i], (long long)r->of[i].n));
    for (int i = 0; i < r->online.n_matrices; i++)
        OSH_TRY(osh_buf_printf(
            cx, b, "%s in blocks of %lld at %s%s while the model runs, ",
            r->transforms.of[r->online.matrices[i].group].name, (long long)r->online.matrices[i].n,
            osh_q_place_name(r->online.matrices[i].at),
            osh_q_place_attends(r->online.matrices[i].at) ? " and k_cache" : ""));
    OSH_TRY(osh_buf_line(cx, b, "%d weights rotated or fused with norms%s", r->n_weights,
                         r->untied ? "; the head is not tied in the output" : ""));
done:
    return rc;
}

/* Prints each value that is not observed because it gets the range of another value. Also prints
 * the name of the other value. Lines that differ only in numbers are printed once. */
static osh_status print_inherits(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_map *seen = NULL; // own
    char *text = NULL;    // own
    OSH_TRY(osh_map_new(cx, &seen, 64));
    for (int i = 0; i < p->rewrites.n_inherits; i++) {
        const osh_inherit *h = &p->rewrites.inherits[i];
        static const char *const kinds[OSH_RANGED] = {"keys", "values",
                                                      "queries", [OSH_INPUT] = "the input"};
        osh_buf line;
        osh_buf_init(&line, 0);
        rc = osh_buf_printf(cx, &line, "not observed: %s of %s, %s: the range is that of %s",
                            kinds[h->k], p->match.linears[h->linear].name,
                            p->in.graph->values[h->value].name, p->in.graph->values[h->from].name);
        if (!rc) rc = text_without_numbers(cx, &text, line.data);
        osh_buf_deinit(cx, &line);
        if (rc) goto done;
        if (!osh_map_get(seen, text, strlen(text), &(int64_t){0})) {
            OSH_TRY(osh_buf_line(cx, b, "%s", text));
            OSH_TRY(osh_map_put(cx, seen, text, strlen(text), i));
        }
        osh_free(cx, text), text = NULL;
    }
done:
    osh_free(cx, text);
    osh_map_free(cx, seen);
    return rc;
}

/* Prints a line for each kind of weight that stays dense. The line has the reason. */
static osh_status print_dense(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_buf warning;
    osh_buf_init(&warning, 0);
    for (int64_t i = 0; i < p->match.n_dense; i++)
        OSH_TRY(osh_buf_line(cx, b, "dense: %s (%lld, %.2f MB%s): %s", p->match.dense[i].names,
                             (long long)p->match.dense[i].n, bytes_to_mb(p->match.dense[i].bytes),
                             p->match.dense[i].decoded ? ", codes in the source" : "",
                             p->match.dense[i].why));
    OSH_TRY(osh_dense_warning(cx, &warning, &p->match));
    if (warning.len) OSH_TRY(osh_buf_line(cx, b, "warning: %s", warning.data));
    osh_buf_clear(&warning);
    OSH_TRY(osh_dense_grown(cx, &warning, &p->match, p->manifest.total_bytes));
    if (warning.len) OSH_TRY(osh_buf_line(cx, b, "warning: %s", warning.data));
done:
    osh_buf_deinit(cx, &warning);
    return rc;
}

/* Prints the GPU model that the plan assumes: its usable memory and the estimated times. */
static osh_status print_gpu_model(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_gpu_model *m = p->in.gpu_model;
    osh_estimate e;
    int64_t gives = p->in.opt->device_memory > 0 ? p->in.opt->device_memory
                                                 : osh_memory_of_gpu(m->memory_bytes);
    OSH_TRY(osh_buf_printf(cx, b, "planned for %s, with %.1f of its %.1f GB\n", m->title,
                           (double)gives / 1e9, (double)m->memory_bytes / 1e9));
    if (!p->in.on_device) {
        OSH_TRY(osh_buf_printf(
            cx, b, "a GPU has nothing to do: all Linears are rounded on the host, without data\n"));
        goto done;
    }
    OSH_TRY(osh_plan_estimate(cx, &e, &p->budget, m));
    OSH_TRY(osh_buf_printf(
        cx, b,
        "estimate from the data sheet of the GPU, without the disk: observe %.1f s, solve %.1f s, "
        "propagate %.1f s, together %.1f s; copies from and to the host take %.1f s\n",
        e.phase[OSH_PHASE_OBSERVE], e.phase[OSH_PHASE_SOLVE], e.phase[OSH_PHASE_PROPAGATE],
        e.phase[OSH_PHASE_OBSERVE] + e.phase[OSH_PHASE_SOLVE] + e.phase[OSH_PHASE_PROPAGATE],
        e.copies));
    if (e.search_flops > 0)
        OSH_TRY(osh_buf_printf(
            cx, b, "not in the estimate: the host searches for the factors of AWQ (%.3g TFLOP)\n",
            e.search_flops / 1e12));
    if (e.pruned_flops > 0)
        OSH_TRY(osh_buf_printf(
            cx, b, "not in the estimate: the host solves pruned weights with GPTQ (%.3g TFLOP)\n",
            e.pruned_flops / 1e12));
    if (e.learned_flops > 0)
        OSH_TRY(osh_buf_printf(
            cx, b, "not in the estimate: the host learns the codes of Linears (%.3g TFLOP)\n",
            e.learned_flops / 1e12));
    if (p->schedule.tune.steps)
        OSH_TRY(osh_buf_printf(cx, b, "not in the estimate: tuning (%.3g TFLOP)\n",
                               osh_tuning_flops(&p->schedule) / 1e12));
done:
    return rc;
}

/* Prints a line for each traversal. The subgraphs that are printed next belong to the traversal
 * with the highest host memory. */
static osh_status print_traversals(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    for (int t = 0; t < p->n_traversals; t++)
        OSH_TRY(osh_buf_line(cx, b, "traversal %d of %d: %s, host memory %.1f MB%s", t + 1,
                             p->n_traversals,
                             p->in.recipe->modifiers[p->traversals[t].schedule.modifier].type->name,
                             bytes_to_mb(p->traversals[t].budget.memory.peak.host),
                             t == p->schedule.traversal ? "; its subgraphs:" : ""));
done:
    return rc;
}

static osh_status print_best(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_buf text; // own
    osh_buf_init(&text, 0);
    OSH_TRY(osh_best_tell(cx, &text, p));
    if (text.len) OSH_TRY(osh_buf_line(cx, b, "quality best sets %s", text.data));
done:
    osh_buf_deinit(cx, &text);
    return rc;
}

/* Prints the files of the source that are not read, and the zeros that are added to the MLPs of the
 * source. */
static osh_status print_source(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < p->in.ck->n_aside; i++)
        OSH_TRY(osh_buf_line(cx, b,
                             "not used: %s: the run does not read and does not copy this file",
                             p->in.ck->aside[i]));
    if (!p->in.ck->config->n_sizes) goto done;
    OSH_TRY(osh_buf_printf(cx, b, "padding: "));
    OSH_TRY(osh_padding_print(cx, b, &p->in));
    OSH_TRY(osh_buf_printf(cx, b, " of all MLPs of this size\n"));
done:
    return rc;
}

static osh_status plan_as_text(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const char *arch = p->in.ck->config->architecture ? p->in.ck->config->architecture : "(none)";
    OSH_TRY(osh_buf_line(cx, b,
                         "pipeline %s, architecture %s, %d modules quantized, %zu left dense",
                         osh_plan_pipeline(p), arch, p->match.n_linears, p->match.ignore.n));
    for (size_t i = 0; i < p->match.n_schemes; i++) {
        bool acts = p->rewrites.rotated && p->rewrites.rotated->online.n_turns;
        char *who =
            osh_online_attends(&p->rewrites)
                ? osh_strdup(cx, "only compressed-tensors, which rotates queries and keys")
            : acts
                ? osh_strdup(
                      cx, "only vLLM on one NVIDIA GPU, which rotates values while the model runs")
                : osh_match_who_loads(cx, &p->match, i, p->in.graph ? NULL : arch); // own
        if (!who) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the plan");
        bool attention = osh_q_of_attention(&p->match.schemes[i]);
        const osh_q_args *a =
            attention ? &p->match.schemes[i].inputs : &p->match.schemes[i].weights;
        rc = osh_buf_line(cx, b, "%s: %s, %d-bit %s %s; %s", p->match.schemes[i].group_name,
                          p->match.schemes[i].format, a->bits,
                          a->type == OSH_Q_FLOAT ? "float" : "int",
                          attention ? "attention" : "weights", who);
        osh_free(cx, who);
        if (rc) goto done;
    }
    if (p->in.spared)
        OSH_TRY(osh_buf_line(
            cx, b, "%s, the output head, stays dense; --targets Linear,%s would quantize it",
            p->in.spared, p->in.spared));
    OSH_TRY(print_rotations(cx, b, p));
    OSH_TRY(print_factors(cx, b, p));
    OSH_TRY(print_inherits(cx, b, p));
    OSH_TRY(print_source(cx, b, p));
    OSH_TRY(print_dense(cx, b, p));
    if (p->in.pipeline != OSH_PIPELINE_DATAFREE)
        OSH_TRY(osh_buf_printf(cx, b, "%ld samples, %ld tokens, at most %ld tokens a sample",
                               (long)p->in.data.n, (long)p->in.data.offsets[p->in.data.n],
                               (long)p->in.max_seq_length));
    if (p->in.pipeline != OSH_PIPELINE_DATAFREE && !p->in.on_device && p->schedule.batch_size > 1)
        OSH_TRY(osh_buf_printf(cx, b, ", %ld at a time", (long)p->schedule.batch_size));
    if (p->in.pipeline != OSH_PIPELINE_DATAFREE) OSH_TRY(osh_buf_printf(cx, b, "\n"));
    OSH_TRY(osh_mix_rows(cx, b, &p->in.mix));
    if (p->in.on_device)
        OSH_TRY(osh_buf_printf(cx, b, "on the GPU %s:%d, in %ld batches of at most %ld tokens\n",
                               osh_plan_kind(&p->in)->name, p->in.ordinal,
                               (long)p->schedule.n_batches, (long)p->schedule.batch_tokens));
    OSH_TRY(print_best(cx, b, p));
    OSH_TRY(print_traversals(cx, b, p));
    OSH_TRY(print_subgraphs(cx, b, p));
    if (p->schedule.tune.steps)
        OSH_TRY(osh_buf_line(
            cx, b,
            "then codes, scales and norms are tuned: %lld steps of %lld samples, %lld held back",
            (long long)p->schedule.tune.steps, (long long)p->schedule.tune.rows,
            (long long)osh_tune_held(&p->in.data)));
    if (p->schedule.tune_not)
        OSH_TRY(
            osh_buf_line(cx, b, "codes, scales and norms are not tuned: %s", p->schedule.tune_not));
    OSH_TRY(print_memory(cx, b, p));
    if (p->in.gpu_model) OSH_TRY(print_gpu_model(cx, b, p));
    for (int s = 0; s < p->manifest.n_shards; s++)
        OSH_TRY(osh_buf_printf(cx, b, "%s %ld bytes\n", p->manifest.shards[s].name,
                               (long)p->manifest.shards[s].n_bytes));
    OSH_TRY(osh_buf_printf(cx, b, "output %ld tensors, %ld bytes\n", (long)p->manifest.n_out,
                           (long)p->manifest.total_bytes));
    OSH_TRY(print_needs(cx, b, p));
    OSH_TRY(osh_plan_devices(cx, b, p));
done:
    return rc;
}

osh_status osh_plan_print(osh_ctx *cx, char **out, const osh_plan *p, bool json)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    char *text = NULL;  // own
    osh_buf_init(&b, 0);
    if (!json) {
        OSH_TRY(plan_as_text(cx, &b, p));
    } else {
        OSH_TRY(osh_plan_print_json(cx, &text, p));
        OSH_TRY(osh_buf_printf(cx, &b, "%s\n", text));
    }
    if (!(*out = osh_strdup(cx, b.data))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the plan");
done:
    osh_buf_deinit(cx, &b);
    osh_free(cx, text);
    return rc;
}
