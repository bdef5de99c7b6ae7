/* evaluate.c - evaluates a finished output (--eval): adds the perplexity of the output and of its
 * source to the reports of the output. */
#include "api/evaluate.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/name.h"
#include "report/verdict.h"
#include "text/json.h"

/* A comment in the page, which the results replace. */
static const char marker[] = "<!-- evaluation -->";
enum { MAX_REPORT_BYTES = 1 << 30 };

typedef struct kept {
    char text[1024];
    size_t n;
} kept;

static void keep_text(void *user, const char *text, size_t n)
{
    kept *k = user;
    if (k->n + n < sizeof k->text) memcpy(k->text + k->n, text, n), k->n += n;
}

/* Fills the options for the evaluation of `model`. The caller frees the options with
 * osh_fields_deinit, even on failure. */
static osh_status eval_options(osh_ctx *cx, osh_eval_options *e, const char *model,
                               const osh_options *opt)
{
    osh_status rc = OSH_OK;
    /* A column for all data sets is also for the text of the evaluation. */
    const char *column = opt->text_column.n == 1 ? opt->text_column.items[0] : NULL;
    const char *template = opt->text_template.n == 1 ? opt->text_template.items[0] : NULL;
    OSH_TRY(osh_fields_default(cx, osh_eval_fields, e));
    const char *const values[][2] = {
        {"model", model}, {"reference", opt->model}, {"adapter", opt->adapter},
        {"dataset", opt->eval},
        {"models_dir", opt->models_dir}, {"device", opt->device}, {"isa", opt->isa},
        {"text_column", column}, {"text_template", template},
        {"chat_date", opt->chat_date}, {"use_gds", opt->use_gds}, {"json", "true"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i][1] && *values[i][1])
            OSH_TRY(osh_argument_set(cx, NULL, osh_eval_fields, e, values[i][0], values[i][1]));
    e->max_seq_length = opt->max_seq_length > 0 ? opt->max_seq_length : 0;
    e->batch_size = opt->batch_size;
    e->host_memory = opt->host_memory, e->device_memory = opt->device_memory;
done:
    return rc;
}

/* Evaluates the output. Sets *out to the JSON that `oneshot eval --reference --json` prints. */
static osh_status evaluation_measure(osh_ctx *cx, kept *out, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_eval_options e = {0}; // own
    OSH_TRY(eval_options(cx, &e, opt->output, opt));
    OSH_TRY(osh_eval(cx, &e, keep_text, out));
    while (out->n && out->text[out->n - 1] == '\n') out->text[--out->n] = 0;
done:
    osh_fields_deinit(cx, osh_eval_fields, &e);
    return rc;
}

osh_status osh_evaluate_least(osh_ctx *cx, int64_t *host, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_eval_options e = {0}; // own
    OSH_TRY(eval_options(cx, &e, opt->model, opt));
    e.host_memory = 0;
    OSH_TRY(osh_eval_predict(cx, host, &e));
done:
    osh_fields_deinit(cx, osh_eval_fields, &e);
    return rc;
}

static double evaluation_number(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

/* Appends the tiles of the evaluation. */
static void evaluation_tiles(osh_page *pg, const osh_verdict *v)
{
    OSH_PUT(pg,
            "<div><b id=\"perplexity\">%.2f → %.2f</b><span>perplexity, source and "
            "output</span></div>\n<div><b>%.4f</b><span>KL divergence; ",
            v->before, v->after, v->kl);
    osh_page_percent(pg, v->agreement);
    OSH_PUT(pg, " agree on the next token</span></div>\n");
}

/* Copies the page `text` of n bytes, with the verdict and the tiles of the evaluation. */
static osh_status evaluation_page(osh_ctx *cx, char **out, const char *text, size_t n,
                                  const char *path, const osh_verdict *v)
{
    osh_status rc = OSH_OK;
    osh_page pg;
    osh_page_bare(&pg, cx);
    const char *from = strstr(text, OSH_VERDICT_BEGINS), *to = from ? strstr(from, OSH_VERDICT_ENDS)
                                                                    : NULL;
    const char *at = to ? strstr(to, marker) : NULL;
    if (!at)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: has no comments " OSH_VERDICT_BEGINS ", "
                 OSH_VERDICT_ENDS " and %s for the evaluation", path, marker);
    from += sizeof OSH_VERDICT_BEGINS - 1;
    OSH_TRY(osh_buf_append(cx, &pg.b, text, (size_t)(from - text)));
    osh_verdict_page(&pg, v);
    if (!pg.rc) OSH_TRY(osh_buf_append(cx, &pg.b, to, (size_t)(at - to)));
    evaluation_tiles(&pg, v);
    at += sizeof marker - 1;
    if (!pg.rc) OSH_TRY(osh_buf_append(cx, &pg.b, at, n - (size_t)(at - text)));
done:
    pg.rc = rc ? rc : pg.rc;
    osh_page_end(&pg, out);
    return pg.rc;
}

static osh_status evaluation_into_html(osh_ctx *cx, const char *path, const cJSON *e,
                                       const char *name)
{
    osh_status rc = OSH_OK;
    char *text = NULL, *page = NULL; // own
    size_t n = 0;
    const osh_verdict v = {.kl = evaluation_number(e, "kl_divergence"),
                           .agreement = evaluation_number(e, "top1_agreement"),
                           .before = evaluation_number(e, "reference_perplexity"),
                           .after = evaluation_number(e, "perplexity"),
                           .n_tokens = (int64_t)evaluation_number(e, "scored_tokens"),
                           .text = name};
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, MAX_REPORT_BYTES));
    OSH_TRY(evaluation_page(cx, &page, text, n, path, &v));
    OSH_TRY(osh_file_write_all(cx, path, page, strlen(page)));
done:
    osh_free(cx, page);
    osh_free(cx, text);
    return rc;
}

static osh_status evaluation_say(osh_ctx *cx, const osh_options *opt, const cJSON *e, osh_sink sink,
                                 void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_line(
        cx, &b, "%s: perplexity %.4f, of the source %.4f; KL divergence %.6f; %.0f tokens",
        opt->eval, evaluation_number(e, "perplexity"), evaluation_number(e, "reference_perplexity"),
        evaluation_number(e, "kl_divergence"), evaluation_number(e, "scored_tokens")));
    if (sink) sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Writes the page before the JSON report. So if the JSON report has an evaluation, the page has it
 * too, and no new evaluation is made. */
osh_status osh_evaluate(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    cJSON *root = NULL, *made = NULL; // own
    char *json = osh_path_join(cx, opt->output, "oneshot-report.json"), *text = NULL,
         *with = NULL;                                                  // own
    char *html = osh_path_join(cx, opt->output, "oneshot-report.html"); // own
    size_t n = 0;
    if (!json || !html) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_read_all(cx, &text, &n, json, MAX_REPORT_BYTES));
    OSH_TRY(osh_json_parse(cx, &root, text, n, json, 0));
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(root, "evaluation");
    if (!e) {
        kept k = {.n = 0};
        OSH_TRY(evaluation_measure(cx, &k, opt));
        OSH_TRY(osh_json_parse(cx, &made, k.text, k.n, "the evaluation", 0));
        OSH_TRY(osh_json_edit(cx, &with, text, n, (osh_json_member){"evaluation", k.text}, json));
        OSH_TRY(evaluation_into_html(cx, html, made, osh_path_last(opt->eval)));
        OSH_TRY(osh_file_write_all(cx, json, with, strlen(with)));
        e = made;
    }
    OSH_TRY(evaluation_say(cx, opt, e, sink, user));
done:
    if (rc) osh_note(cx, "evaluating %s, which is finished", opt->output);
    cJSON_Delete(root);
    cJSON_Delete(made);
    osh_free(cx, with);
    osh_free(cx, text);
    osh_free(cx, json);
    osh_free(cx, html);
    return rc;
}
