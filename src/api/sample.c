/* sample.c - gives a prompt to the source and to the output after a run, and shows both answers. */
#include "api/sample.h"

#include <string.h>

#include "api/mixed.h"
#include "base/buf.h"
#include "base/file.h"
#include "eval/answers.h"
#include "report/page.h"
#include "text/json.h"

/* HTML comments around the answers in the report. */
static const char begins[] = "<!-- sample -->", ends[] = "<!-- end of sample -->";
enum { MOST_REPORT_BYTES = 1 << 30 };

static osh_question sample_question(const osh_options *opt)
{
    return (osh_question){.prompt = opt->sample,
                          .adapter = opt->adapter,
                          .models_dir = opt->models_dir,
                          .chat_date = opt->chat_date,
                          .isa = opt->isa,
                          .host_memory = opt->host_memory};
}

osh_status osh_sample_least(osh_ctx *cx, int64_t *host, const osh_options *opt)
{
    const osh_question q = sample_question(opt);
    osh_status rc = osh_answer_least(cx, host, opt->model, &q);
    /* The answer of the output comes after two passes: the run, and the answer of the source. Each
     * pass may leave OSH_PASS_LEFT_BYTES in use. */
    if (!rc) *host += 2 * OSH_PASS_LEFT_BYTES;
    return rc;
}

/* Appends a text, escaped except for its line ends. Changes `text` and restores it. */
static void sample_put_lines(osh_page *pg, char *text)
{
    for (char *end; (end = strchr(text, '\n')); text = end + 1) {
        *end = 0;
        osh_page_escape(pg, text);
        *end = '\n';
        OSH_PUT(pg, "\n");
    }
    osh_page_escape(pg, text);
}

/* Sets *out (own) to the HTML of the prompt and the answers. texts: the two answers as text. */
static osh_status sample_page(osh_ctx *cx, char **out, const osh_answers *a, char *const texts[2])
{
    osh_page pg;
    osh_page_bare(&pg, cx);
    OSH_PUT(&pg, "%s<h2>Sample</h2>\n<p>", begins);
    osh_page_escape(&pg, a->prompt);
    OSH_PUT(&pg, "</p>\n<div class=\"wide\"><table id=\"sample\"><tr><th>%s</th><th>%s</th></tr>\n",
            a->names[0], a->names[1]);
    OSH_PUT(&pg, "<tr>");
    for (int i = 0; i < 2; i++) {
        OSH_PUT(&pg, "<td style=\"white-space:pre-wrap\">");
        sample_put_lines(&pg, texts[i]);
        OSH_PUT(&pg, "</td>");
    }
    OSH_PUT(&pg, "</tr></table></div>%s", ends);
    osh_page_end(&pg, out);
    return pg.rc;
}

static osh_status sample_into_html(osh_ctx *cx, const char *path, const osh_answers *a,
                                   char *const texts[2])
{
    osh_status rc = OSH_OK;
    char *text = NULL, *part = NULL; // own
    size_t n = 0;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, MOST_REPORT_BYTES));
    char *from = strstr(text, begins), *to = from ? strstr(from, ends) : NULL;
    if (!to)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: has no comments %s%s for the answers", path, begins, ends);
    OSH_TRY(sample_page(cx, &part, a, texts));
    OSH_TRY(osh_buf_append(cx, &b, text, (size_t)(from - text)));
    OSH_TRY(osh_buf_append(cx, &b, part, strlen(part)));
    to += sizeof ends - 1;
    OSH_TRY(osh_buf_append(cx, &b, to, n - (size_t)(to - text)));
    OSH_TRY(osh_file_write_all(cx, path, b.data, b.len));
done:
    osh_buf_deinit(cx, &b);
    osh_free(cx, part);
    osh_free(cx, text);
    return rc;
}

static const char *sample_text(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(v) ? v->valuestring : NULL;
}

/* Makes the answers of source and output, and writes them to the two reports. The HTML report is
 * written before the JSON report. So if the JSON report has the answers, the HTML report has them,
 * too. Sets made[0] and made[1] (own) to the answers. `json` [n] is the text of the JSON report,
 * and `path` is its file. */
static osh_status answers_make(osh_ctx *cx, char *made[2], const osh_options *opt, const char *path,
                              const char *json, size_t n)
{
    osh_status rc = OSH_OK;
    const osh_question q = sample_question(opt);
    osh_question of_output = q;
    char *with = NULL, *html = osh_path_join(cx, opt->output, "oneshot-report.html"); // own
    osh_buf b;                                                                        // own
    osh_buf_init(&b, 0);
    if (!html) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_answer(cx, &made[0], opt->model, &q));
    of_output.adapter = NULL;
    OSH_TRY(osh_answer(cx, &made[1], opt->output, &of_output));
    const osh_answers a = {
        .prompt = opt->sample, .names = {"source", "output"}, .texts = {made[0], made[1]}};
    OSH_TRY(osh_answers_json(cx, &b, &a));
    OSH_TRY(osh_json_edit(cx, &with, json, n, (osh_json_member){"sample", b.data}, path));
    OSH_TRY(sample_into_html(cx, html, &a, made));
    OSH_TRY(osh_file_write_all(cx, path, with, strlen(with)));
done:
    osh_buf_deinit(cx, &b);
    osh_free(cx, html);
    osh_free(cx, with);
    return rc;
}

osh_status osh_sample_run(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    cJSON *root = NULL;            // own
    char *made[2] = {NULL, NULL};  // own
    char *path = osh_path_join(cx, opt->output, "oneshot-report.json"), *text = NULL; // own
    size_t n = 0;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    if (!path) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, MOST_REPORT_BYTES));
    OSH_TRY(osh_json_parse(cx, &root, text, n, path, 0));
    const cJSON *had = cJSON_GetObjectItemCaseSensitive(root, "sample");
    const char *prompt = sample_text(had, "prompt"), *source = sample_text(had, "source"),
               *output = sample_text(had, "output");
    if (!prompt || strcmp(prompt, opt->sample) || !source || !output) {
        OSH_TRY(answers_make(cx, made, opt, path, text, n));
        source = made[0], output = made[1];
    }
    OSH_TRY(osh_answers_print(cx, &b,
                              &(osh_answers){.prompt = opt->sample,
                                             .names = {"source", "output"},
                                             .texts = {source, output}}));
    if (sink) sink(user, b.data, b.len);
done:
    if (rc) osh_note(cx, "sampling %s, which is finished", opt->output);
    cJSON_Delete(root);
    osh_buf_deinit(cx, &b);
    osh_free(cx, made[0]);
    osh_free(cx, made[1]);
    osh_free(cx, path);
    osh_free(cx, text);
    return rc;
}
