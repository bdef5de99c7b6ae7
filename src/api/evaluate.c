/* evaluate.c - evaluates a finished output on the text of --eval, or on those rows of the data set
 * that the calibration does not use. Adds the perplexity of the output and of its source to the
 * reports of the output. */
#include "api/evaluate.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mute.h"
#include "base/name.h"
#include "report/rows.h"
#include "report/verdict.h"
#include "text/json.h"

/* HTML comments around the results in the report. Without results the second comment is absent. */
static const char marker[] = "<!-- evaluation -->", marker_end[] = "<!-- end of evaluation -->";
enum { MAX_REPORT_BYTES = 1 << 30 };

typedef struct json_report { // oneshot-report.json of the output
    char *path, *text; // own
    size_t n;          // number of bytes of `text`
} json_report;

typedef struct kept {
    char text[1024];
    size_t n;
} kept;

static void keep_text(void *user, const char *text, size_t n)
{
    kept *k = user;
    if (k->n + n < sizeof k->text) memcpy(k->text + k->n, text, n), k->n += n;
}

/* Returns the path of the data that is evaluated. */
static const char *evaluated_path(const osh_options *opt)
{
    return opt->eval ? opt->eval : opt->dataset.items[0];
}

/* Returns the name of the evaluated data for messages (own), or NULL if there is no memory. */
static char *evaluated_name(osh_ctx *cx, const osh_options *opt)
{
    if (opt->eval) return osh_strdup(cx, opt->eval);
    return osh_sprintf(cx, "%s of %s", opt->held_name, osh_path_last(evaluated_path(opt)));
}

/* Fills the options for the evaluation of `model`. The caller frees the options with
 * osh_fields_deinit, even on failure. */
static osh_status eval_options(osh_ctx *cx, osh_eval_options *e, const char *model,
                               const osh_options *opt)
{
    osh_status rc = OSH_OK;
    /* If --text-column or --text-template has one item for all data sets, the evaluated data gets
     * this item, too. */
    const char *column = opt->text_column.n == 1 ? opt->text_column.items[0] : NULL;
    const char *template = opt->text_template.n == 1 ? opt->text_template.items[0] : NULL;
    OSH_TRY(osh_fields_default(cx, osh_eval_fields, e));
    const char *const values[][2] = {
        {"model", model}, {"reference", opt->model}, {"adapter", opt->adapter},
        {"dataset", evaluated_path(opt)}, {"splits", opt->eval ? NULL : opt->held_splits},
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

/* Evaluates the output. Appends the JSON that `oneshot eval --reference --json` prints, and adds
 * the name of the data to the JSON. */
static osh_status evaluation_measure(osh_ctx *cx, osh_buf *out, const osh_options *opt,
                                     const char *name)
{
    osh_status rc = OSH_OK;
    osh_eval_options e = {0}; // own
    kept k = {.n = 0};
    OSH_TRY(eval_options(cx, &e, opt->output, opt));
    OSH_TRY(osh_eval(cx, &e, keep_text, &k));
    while (k.n && strchr("}\n", k.text[k.n - 1])) k.n--;
    OSH_TRY(osh_buf_printf(cx, out, "%.*s, \"data\": ", (int)k.n, k.text));
    OSH_TRY(osh_json_put_string(cx, out, name));
    OSH_TRY(osh_buf_printf(cx, out, "}"));
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

/* Appends the tiles (boxes with one number each) of the evaluation. */
static void evaluation_tiles(osh_page *pg, const osh_verdict *v)
{
    OSH_PUT(pg,
            "<div><b id=\"perplexity\">%.2f → %.2f</b><span>perplexity, source and "
            "output</span></div>\n<div><b>%.4f</b><span>KL divergence; ",
            v->before, v->after, v->kl);
    osh_page_percent(pg, v->agreement);
    OSH_PUT(pg, " agree on the next token</span></div>\n");
}

/* Copies the page `text` of n bytes, and adds the verdict and the tiles of the evaluation. */
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
    OSH_PUT(&pg, "%s", marker);
    evaluation_tiles(&pg, v);
    OSH_PUT(&pg, "%s", marker_end);
    /* End of the results of an earlier evaluation; NULL: there are none. */
    const char *end = strstr(at, marker_end);
    at = end ? end + sizeof marker_end - 1 : at + sizeof marker - 1;
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

static osh_status evaluation_say(osh_ctx *cx, const osh_options *opt, const cJSON *e,
                                 const char *name, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    double after = evaluation_number(e, "perplexity"),
           before = evaluation_number(e, "reference_perplexity"),
           kl = evaluation_number(e, "kl_divergence"), n = evaluation_number(e, "scored_tokens");
    osh_buf b; // own
    osh_buf_init(&b, 0);
    if (opt->eval)
        OSH_TRY(osh_buf_line(
            cx, &b, "%s: perplexity %.4f, of the source %.4f; KL divergence %.6f; %.0f tokens",
            opt->eval, after, before, kl, n));
    else if (opt->guide)
        OSH_TRY(osh_row(cx, &b, "perplexity",
                        "%.2f, of the source %.2f (%+.2f %%), KL %.4f: %.0f tokens of %s, which "
                        "were not used for calibration",
                        after, before, 100 * (after / before - 1), kl, n, name));
    if (sink && b.len) sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Returns the evaluation in the report `root` if that evaluation used the data `name`. Returns NULL
 * if there is no such evaluation. If the report does not name the data, an earlier version has
 * evaluated the text of --eval. */
static const cJSON *evaluation_known(const cJSON *root, const osh_options *opt, const char *name)
{
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(root, "evaluation"),
                *data = cJSON_GetObjectItemCaseSensitive(e, "data");
    if (cJSON_IsString(data) ? !strcmp(data->valuestring, name) : opt->eval != NULL) return e;
    return NULL;
}

/* Evaluates the output, and writes the results to its reports. Writes the page before the JSON. So
 * if the JSON has an evaluation, the page has it, too, and the output need not be evaluated again.
 * Sets *made (own) to the JSON of the evaluation. */
static osh_status evaluation_make(osh_ctx *cx, cJSON **made, const osh_options *opt,
                                  const char *name, const json_report *r)
{
    osh_status rc = OSH_OK;
    char *with = NULL, *html = osh_path_join(cx, opt->output, "oneshot-report.html"); // own
    osh_buf b;                                                                        // own
    osh_buf_init(&b, 0);
    if (!html) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(evaluation_measure(cx, &b, opt, name));
    OSH_TRY(osh_json_parse(cx, made, b.data, b.len, "the evaluation", 0));
    const osh_json_member member = {"evaluation", b.data};
    OSH_TRY(osh_json_edit(cx, &with, r->text, r->n, member, r->path));
    OSH_TRY(evaluation_into_html(cx, html, *made, name));
    OSH_TRY(osh_file_write_all(cx, r->path, with, strlen(with)));
done:
    osh_buf_deinit(cx, &b);
    osh_free(cx, with);
    osh_free(cx, html);
    return rc;
}

osh_status osh_evaluate(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    cJSON *root = NULL, *made = NULL; // own
    json_report r = {.path = osh_path_join(cx, opt->output, "oneshot-report.json")}; // own
    char *name = evaluated_name(cx, opt);                                            // own
    if (!r.path || !name) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_read_all(cx, &r.text, &r.n, r.path, MAX_REPORT_BYTES));
    OSH_TRY(osh_json_parse(cx, &root, r.text, r.n, r.path, 0));
    const cJSON *e = evaluation_known(root, opt, name);
    if (!e) {
        OSH_TRY(evaluation_make(cx, &made, opt, name, &r));
        e = made;
    }
    OSH_TRY(evaluation_say(cx, opt, e, name, sink, user));
done:
    if (rc) osh_note(cx, "evaluating %s, which is finished", opt->output);
    cJSON_Delete(root);
    cJSON_Delete(made);
    osh_free(cx, r.text);
    osh_free(cx, r.path);
    osh_free(cx, name);
    return rc;
}

/* True if the report has an evaluation whose data has a name other than `name`. */
static bool evaluation_of_other(const cJSON *root, const char *name)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(root, "evaluation"), "data");
    return cJSON_IsString(data) && strcmp(data->valuestring, name);
}

osh_status osh_evaluate_held(osh_ctx *cx, const osh_options *opt, const char *not, osh_sink sink,
                             void *user)
{
    osh_status rc = OSH_OK;
    cJSON *root = NULL;                                                 // own
    char *path = osh_path_join(cx, opt->output, "oneshot-report.json"); // own
    char *name = not ? NULL : evaluated_name(cx, opt);                  // own
    const osh_json_taken lists[] = {{.key = "modules"}, {.key = NULL}};
    osh_buf b; // own
    osh_buf_init(&b, 0);
    if (!path || (!name && !not)) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_json_read_lists(cx, &root, path, lists, NULL));
    const cJSON *pipeline = cJSON_GetObjectItemCaseSensitive(root, "pipeline");
    if (cJSON_IsString(pipeline) && !strcmp(pipeline->valuestring, "datafree")) goto done;
    if (!not && !evaluation_of_other(root, name)) {
        osh_progress_mute(cx, true); // the progress of the run has ended
        rc = osh_evaluate(cx, opt, sink, user);
        osh_progress_mute(cx, false);
    } else if (not && opt->guide)
        OSH_TRY(osh_row(cx, &b, "perplexity", "not measured: %s; --eval TEXT measures it", not));
    if (sink && b.len) sink(user, b.data, b.len);
done:
    /* the output is complete, so the failure is only a warning */
    if (rc && rc != OSH_E_NOMEM && rc != OSH_E_INTERRUPTED) {
        osh_log(cx, OSH_LOG_WARN, "%s: the perplexity is not measured: %s", opt->output,
                osh_error_text(cx));
        osh_error_clear(cx);
        rc = OSH_OK;
    }
    osh_buf_deinit(cx, &b);
    cJSON_Delete(root);
    osh_free(cx, name);
    osh_free(cx, path);
    return rc;
}
