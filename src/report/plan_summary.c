/* plan_summary.c - prints a plan on a terminal, in at most SUMMARY_LINES lines. Each row has a
 * label and one or two lines of text:
 *
 *   quantized  28 modules: weights 8-bit integer, a scale for each row; inputs
 *              8-bit integer, a scale for each token
 *   memory     196.9 MB of 25.2 GB; the smallest --host-memory is 182.1MB */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/available.h"
#include "base/file.h"
#include "base/live.h"
#include "base/name.h"
#include "base/quote.h"
#include "budget/gpus.h"
#include "match/dense.h"
#include "match/loaders.h"
#include "match/padding.h"
#include "plan/best.h"
#include "plan/division.h"
#include "quant/source.h"
#include "report/plan_print.h"
#include "report/report_mix.h"
#include "report/rows.h"
#include "rewrite/rotations.h"
#include "schedule/tuning.h"

enum { SUMMARY_LINES = 12, DENSE_KINDS = 2, SCHEME_ROWS = 2 };

/* Kinds of rows, most important first. If there are too many rows, the rows of the last kinds are
 * left out first. */
enum {
    ROW_ALWAYS,
    ROW_WARNING,
    ROW_RANKS,
    ROW_ADAPTER,
    ROW_PADDING,
    ROW_SCHEME,
    ROW_DATA_SETS,
    ROW_PARALLEL,
    ROW_TRANSFERS,
    ROW_MASK,
    ROW_BEST,
    ROW_SCHEMES_MORE,
    ROW_LOADERS
};

/* Writes "25.2 GB" or "3.3 MB". */
static const char *size_text(char to[32], int64_t n)
{
    double unit = n >= 1000000000 ? 1e9 : 1e6;
    snprintf(to, 32, "%.1f %s", (double)n / unit, unit == 1e9 ? "GB" : "MB");
    return to;
}

/* Writes a size, rounded up, in the form that the command line accepts: "182.1MB". */
static const char *flag_text(char to[32], int64_t n)
{
    snprintf(to, 32, "%.1fMB", ceil((double)n / 1e6 * 10) / 10);
    return to;
}

static osh_status summary_quantized(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_matching *m = &p->match;
    osh_buf text;
    osh_buf_init(&text, 0);
    if (!m->n_schemes) OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "quantized", "no module"));
    for (size_t i = 0; i < m->n_schemes && i < SCHEME_ROWS; i++) {
        const osh_q_scheme *s = &m->schemes[i];
        int n = 0;
        for (int l = 0; l < m->n_linears; l++) n += m->linears[l].scheme_index == (int)i;
        osh_buf_clear(&text);
        OSH_TRY(osh_q_args_tell(cx, &text, "weights", &s->weights));
        OSH_TRY(osh_q_args_tell(cx, &text, s->weights.present ? "; inputs" : "inputs", &s->inputs));
        OSH_TRY(osh_rows_add(cx, r, i ? ROW_SCHEME : ROW_ALWAYS, i ? "" : "quantized",
                             "%d modules: %s", n, text.data ? text.data : s->format));
    }
    if (m->n_schemes > SCHEME_ROWS)
        OSH_TRY(osh_rows_add(cx, r, ROW_SCHEMES_MORE, "", "and %zu more schemes",
                             m->n_schemes - SCHEME_ROWS));
done:
    osh_buf_deinit(cx, &text);
    return rc;
}

/* Prints kinds of modules that stay dense, with the reasons. */
static osh_status summary_dense(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_matching *m = &p->match;
    osh_buf text;
    osh_buf_init(&text, 0);
    for (int64_t i = 0; i < m->n_dense && i < DENSE_KINDS; i++)
        OSH_TRY(osh_buf_printf(cx, &text, "%s%s (%s)", text.len ? ", " : "", m->dense[i].names,
                               m->dense[i].why));
    if (m->n_dense > DENSE_KINDS)
        OSH_TRY(osh_buf_printf(cx, &text, " and %lld more kinds",
                               (long long)(m->n_dense - DENSE_KINDS)));
    if (p->in.spared)
        OSH_TRY(osh_buf_printf(cx, &text, "%s%s (--targets Linear,%s quantizes it)",
                               text.len ? ", " : "", p->in.spared, p->in.spared));
    if (text.len) OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "dense", "%s", text.data));
done:
    osh_buf_deinit(cx, &text);
    return rc;
}

static osh_status summary_warnings(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_buf text;
    osh_buf_init(&text, 0);
    if (p->schedule.tune_not)
        OSH_TRY(osh_rows_add(cx, r, ROW_WARNING, "warning", "nothing is tuned: %s",
                             p->schedule.tune_not));
    OSH_TRY(osh_dense_grown(cx, &text, &p->match, p->manifest.total_bytes));
    if (text.len) OSH_TRY(osh_rows_add(cx, r, ROW_WARNING, "warning", "%s", text.data));
    osh_buf_clear(&text);
    OSH_TRY(osh_dense_warning(cx, &text, &p->match));
    if (text.len) OSH_TRY(osh_rows_add(cx, r, ROW_WARNING, "warning", "%s", text.data));
done:
    osh_buf_deinit(cx, &text);
    return rc;
}

/* With --tensor-parallel: prints the number of modules that can be split. */
static osh_status summary_parallel(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    const osh_matching *m = &p->match;
    char other[80] = "";
    if (p->in.opt->tensor_parallel < 2) return OSH_OK;
    if (m->n_split_other)
        snprintf(other, sizeof other, "; %d have names without a known role", m->n_split_other);
    return osh_rows_add(cx, r, ROW_PARALLEL, "parallel",
                        "%d modules can be split among %lld GPUs%s", m->n_split,
                        (long long)p->in.opt->tensor_parallel, other);
}

/* Prints the flags that give the settings of `--quality best`. */
static osh_status summary_best(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_buf text; // own
    osh_buf_init(&text, 0);
    OSH_TRY(osh_best_tell(cx, &text, p));
    if (text.len) OSH_TRY(osh_rows_add(cx, r, ROW_BEST, "best", "sets %s", text.data));
done:
    osh_buf_deinit(cx, &text);
    return rc;
}

/* Writes " of 512 asked for" if the data has fewer samples than the user asked for, else "". */
static const char *samples_asked(char to[48], const osh_plan *p)
{
    int64_t asked = p->in.opt->num_calibration_tokens ? 0 : osh_samples_asked(p->in.opt);
    *to = 0;
    if (p->in.data.n < asked) snprintf(to, 48, " of %lld asked for", (long long)asked);
    return to;
}

/* Prints the division of the work among ranks; nothing for one process. */
static osh_status summary_ranks(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_division d = osh_divide(p);
    int n = osh_plan_n_ranks(p), here = osh_plan_ranks_per_node(p);
    int64_t all = 0, most = 0, bytes, host = p->budget.memory.peak.host;
    char rank[32], node[32], total[32];
    if (n < 2) goto done;
    OSH_TRY(osh_rows_add(cx, r, ROW_RANKS, "ranks", "%d, %d on a node: %s%s", n, here,
                         osh_division_text(&d), d.not ? d.not : ""));
    if (d.kind == OSH_DIVIDE_NOTHING) goto done;
    for (int i = 0; d.kind == OSH_DIVIDE_SAMPLES && i < osh_n_ranges(&p->schedule); i++) {
        OSH_TRY(osh_divide_wire(cx, &bytes, p, i, n));
        all += bytes, most = bytes > most ? bytes : most;
    }
    OSH_TRY(osh_rows_add(cx, r, ROW_TRANSFERS, "", "%s of memory for a rank, %s for a node",
                         size_text(rank, host), size_text(node, host * here)));
    if (all)
        OSH_TRY(osh_rows_add(cx, r, ROW_TRANSFERS, "",
                             "%s between ranks, at most %s for a subgraph", size_text(total, all),
                             size_text(rank, most)));
done:
    return rc;
}

osh_status osh_plan_devices(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_rows r = {0}; // own
    OSH_TRY(summary_parallel(cx, &r, p));
    OSH_TRY(summary_ranks(cx, &r, p));
    OSH_TRY(osh_rows_print(cx, b, NULL, &r, SUMMARY_LINES));
done:
    osh_rows_deinit(cx, &r);
    return rc;
}

osh_status osh_run_opening(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    char asked[48], shown[600];
    osh_rows r = {0}; // own
    if (p->in.opt->named) {
        osh_show(shown, sizeof shown, p->in.opt->output, NULL);
        OSH_TRY(osh_buf_printf(cx, b, "%-*s%s, in the current directory\n", OSH_ROW_LABEL, "output",
                               shown));
    }
    OSH_TRY(summary_best(cx, &r, p));
    if (p->in.pipeline != OSH_PIPELINE_DATAFREE && *samples_asked(asked, p))
        OSH_TRY(osh_rows_add(cx, &r, ROW_ALWAYS, "data", "%lld samples%s", (long long)p->in.data.n,
                             asked));
    OSH_TRY(summary_ranks(cx, &r, p));
    OSH_TRY(osh_rows_print(cx, b, NULL, &r, SUMMARY_LINES));
done:
    osh_rows_deinit(cx, &r);
    return rc;
}

static osh_status summary_data(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_mix *m = &p->in.mix;
    char asked[48] = "";
    osh_buf sets; // own
    osh_buf_init(&sets, 0);
    if (p->in.pipeline == OSH_PIPELINE_DATAFREE) {
        OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "data",
                             "none: weights are rounded from their values alone"));
        goto done;
    }
    OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "data",
                         "%lld samples%s, %lld tokens, at most %lld each", (long long)p->in.data.n,
                         samples_asked(asked, p), (long long)p->in.data.offsets[p->in.data.n],
                         (long long)p->in.max_seq_length));
    OSH_TRY(osh_mix_shares(cx, &sets, m));
    if (sets.len) OSH_TRY(osh_rows_add(cx, r, ROW_DATA_SETS, "data sets", "%s", sets.data));
    if (m->n_counted)
        OSH_TRY(osh_rows_add(cx, r, ROW_MASK, "loss mask",
                             "statistics count the %lld tokens of answers",
                             (long long)m->n_counted));
    if (p->in.opt->held_splits)
        OSH_TRY(osh_rows_add(cx, r, ROW_MASK, "held back",
                             "%s, on which perplexity is measured after the run",
                             p->in.opt->held_name));
    OSH_TRY(summary_best(cx, r, p));
done:
    osh_buf_deinit(cx, &sets);
    return rc;
}

static osh_status summary_pipeline(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    char tune[64] = "";
    if (p->in.pipeline == OSH_PIPELINE_DATAFREE) return OSH_OK;
    if (p->schedule.tune.steps)
        snprintf(tune, sizeof tune, ", then %lld steps of tuning",
                 (long long)p->schedule.tune.steps);
    return osh_rows_add(cx, r, ROW_ALWAYS, "pipeline", "%s, %d subgraphs%s, on the %s",
                        osh_plan_pipeline(p), osh_n_ranges(&p->schedule), tune,
                        p->in.on_device ? "GPU" : "CPU");
}

/* Prints the estimated time on the GPU model of the plan. The estimate uses the data sheet of the
 * GPU. */
static osh_status summary_estimate(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_gpu_model *m = p->in.gpu_model;
    osh_estimate e;
    char time[32];
    if (!p->in.on_device) {
        OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "GPU",
                             "has nothing to do: weights are rounded on the host"));
        goto done;
    }
    OSH_TRY(osh_plan_estimate(cx, &e, &p->budget, m));
    double seconds =
        e.phase[OSH_PHASE_OBSERVE] + e.phase[OSH_PHASE_SOLVE] + e.phase[OSH_PHASE_PROPAGATE];
    osh_show_time(time, sizeof time, seconds < 1 ? 1 : seconds);
    OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "time",
                         "about %s without the disk%s%s%s%s, by the data sheet of %s", time,
                         e.search_flops > 0 ? " and the search of AWQ" : "",
                         e.pruned_flops > 0 ? " and GPTQ on the host" : "",
                         e.learned_flops > 0 ? " and learning on the host" : "",
                         p->schedule.tune.steps ? " and tuning" : "", m->title));
done:
    return rc;
}

static osh_status summary_needs(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_memory *m = &p->budget.memory;
    char needs[32], has[32], least[32], scratch[48] = "", time[32];
    int64_t room = osh_disk_free(p->in.opt->output ? p->in.opt->output : ".");
    double seconds = 0;
    OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "memory", "%s of %s; the smallest --host-memory is %s",
                         size_text(needs, m->peak.host), size_text(has, osh_mem_machine()),
                         flag_text(least, m->least.host)));
    if (p->in.on_device)
        OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "GPU", "%s%s%s; the smallest --device-memory is %s",
                             size_text(needs, m->peak.device), p->in.gpu_model ? " of " : "",
                             p->in.gpu_model ? size_text(has, p->in.gpu_model->memory_bytes) : "",
                             flag_text(least, m->least.device)));
    if (m->peak.scratch)
        snprintf(scratch, sizeof scratch, " and %s of scratch files",
                 size_text(needs, m->peak.scratch));
    OSH_TRY(summary_ranks(cx, r, p));
    OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "disk", "%s%s; %s are free",
                         size_text(least, p->manifest.total_bytes), scratch,
                         room < 0 ? "an unknown number of bytes" : size_text(has, room)));
    if (p->in.gpu_model)
        OSH_TRY(summary_estimate(cx, r, p));
    else if (!p->in.on_device) {
        OSH_TRY(osh_plan_seconds(cx, &seconds, p));
        osh_show_time(time, sizeof time, seconds < 1 ? 1 : seconds);
        OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "time", "about %s with %d threads", time,
                             osh_threads(cx)));
    }
done:
    return rc;
}

/* Prints the format of the first scheme, and the inference engines that load this format. */
static osh_status summary_loaders(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const char *arch = p->in.ck->config->architecture ? p->in.ck->config->architecture : "(none)";
    char *who = NULL; // own: text such as "pack-quantized: vLLM on ..."
    if (!p->match.n_schemes || (p->rewrites.rotated && p->rewrites.rotated->online.n_turns))
        goto done;
    if (!(who = osh_match_who_loads(cx, &p->match, 0, p->in.graph ? NULL : arch)))
        OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_rows_add(cx, r, ROW_LOADERS, "loads in", "%s", who));
done:
    osh_free(cx, who);
    return rc;
}

static osh_status summary_padding(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_padding_print(cx, &b, &p->in));
    OSH_TRY(osh_rows_add(cx, r, ROW_PADDING, "padding", "%s of all MLPs of this size", b.data));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status summary_model(osh_ctx *cx, osh_rows *r, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = p->in.ck;
    char source[32], result[32];
    int64_t in = osh_checkpoint_stored_bytes(ck), made = p->manifest.total_bytes;
    OSH_TRY(osh_rows_add(cx, r, ROW_ALWAYS, "model", "%s, %s to %s (%.2f times smaller)",
                         ck->config->architecture ? ck->config->architecture : "(none)",
                         size_text(source, in), size_text(result, made),
                         made ? (double)in / (double)made : 0));
    if (ck->config->n_sizes) OSH_TRY(summary_padding(cx, r, p));
    if (ck->adapter)
        OSH_TRY(osh_rows_add(cx, r, ROW_ADAPTER, "adapter", "LoRA %s, merged into %d tensors",
                             osh_path_last(ck->adapter), osh_source_n_merged(p->in.source)));
done:
    return rc;
}

osh_status osh_plan_summary(osh_ctx *cx, char **out, const osh_plan *p, const char *before)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_rows r = {0}; // own
    int left = 0;
    char rows[32] = "";
    osh_buf_init(&b, 0);
    if (before)
        OSH_TRY(
            osh_rows_add(cx, &r, ROW_ALWAYS, "before", "%.*s", (int)strcspn(before, "\n"), before));
    OSH_TRY(summary_model(cx, &r, p));
    OSH_TRY(summary_quantized(cx, &r, p));
    OSH_TRY(summary_dense(cx, &r, p));
    OSH_TRY(summary_warnings(cx, &r, p));
    OSH_TRY(summary_parallel(cx, &r, p));
    OSH_TRY(summary_loaders(cx, &r, p));
    OSH_TRY(summary_data(cx, &r, p));
    OSH_TRY(summary_pipeline(cx, &r, p));
    OSH_TRY(summary_needs(cx, &r, p));
    OSH_TRY(osh_rows_print(cx, &b, &left, &r, SUMMARY_LINES - 1));
    if (left) snprintf(rows, sizeof rows, "%d more rows: ", left);
    OSH_TRY(osh_row(cx, &b, "more", "%soneshot plan ... --verbose, or --json", rows));
    if (!(*out = osh_strdup(cx, b.data))) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &b);
    osh_rows_deinit(cx, &r);
    return rc;
}
