/* report_mix.c - names the data sets of a run in plan, report and README.md. Only the last part of
 * a path is named, because these files may be published with the output. */
#include "report/report_mix.h"

#include <stdio.h>
#include <string.h>

#include "base/quote.h"
#include "report/report_lists.h"
#include "report/rows.h"

/* Writes the number of samples and tokens of a data set, and its share if there are several data
 * sets. */
static void set_text(char to[120], const osh_mix *m, const osh_data_set *s)
{
    int n = snprintf(to, 120, "%lld samples, %lld tokens", (long long)s->n_samples,
                     (long long)s->n_tokens);
    if (m->n > 1) snprintf(to + n, (size_t)(120 - n), ", a share of %.4g", osh_mix_share(m, s));
}

bool osh_mix_json(cJSON *root, const osh_mix *m)
{
    cJSON *list = m->n ? cJSON_AddArrayToObject(root, "data_sets") : NULL;
    for (size_t i = 0; list && i < m->n; i++) {
        const osh_data_set *s = &m->sets[i];
        cJSON *o = cJSON_CreateObject();
        if (!o || !cJSON_AddItemToArray(list, o)) return cJSON_Delete(o), false;
        if (!osh_report_string(o, "name", s->name) ||
            !osh_report_number(o, "share", osh_mix_share(m, s)) ||
            !osh_report_number(o, "samples", (double)s->n_samples) ||
            !osh_report_number(o, "tokens", (double)s->n_tokens))
            return false;
    }
    return (list || !m->n) &&
           (!m->n_counted || osh_report_number(root, "answer_tokens", (double)m->n_counted));
}

/* Writes the number of tokens that statistics count, or an empty text if statistics count all
 * tokens. */
static void counted_text(char to[120], const osh_mix *m)
{
    *to = 0;
    if (m->n_counted)
        snprintf(to, 120, "statistics count the %lld tokens of answers", (long long)m->n_counted);
}

osh_status osh_mix_rows(osh_ctx *cx, osh_buf *b, const osh_mix *m)
{
    osh_status rc = OSH_OK;
    char text[120];
    for (size_t i = 0; m->n > 1 && i < m->n; i++) {
        set_text(text, m, &m->sets[i]);
        OSH_TRY(osh_row(cx, b, "", "%s: %s", m->sets[i].name, text));
    }
    counted_text(text, m);
    if (*text) OSH_TRY(osh_row(cx, b, "", "%s", text));
done:
    return rc;
}

osh_status osh_mix_shares(osh_ctx *cx, osh_buf *b, const osh_mix *m)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; m->n > 1 && i < m->n; i++)
        OSH_TRY(osh_buf_printf(cx, b, "%s%s (%.3g %%)", i ? ", " : "", m->sets[i].name,
                               100 * osh_mix_share(m, &m->sets[i])));
done:
    return rc;
}

osh_status osh_mix_markdown(osh_ctx *cx, osh_buf *b, const osh_mix *m)
{
    osh_status rc = OSH_OK;
    char text[120], shown[600];
    for (size_t i = 0; i < m->n; i++) {
        set_text(text, m, &m->sets[i]);
        osh_show(shown, sizeof shown, m->sets[i].name, NULL);
        OSH_TRY(osh_buf_printf(cx, b, "| Data set | "));
        for (const char *c = shown; *c; c++)
            OSH_TRY(osh_buf_printf(cx, b, strchr("|\\`*_<>[]", *c) ? "\\%c" : "%c", *c));
        OSH_TRY(osh_buf_printf(cx, b, ": %s |\n", text));
    }
    counted_text(text, m);
    if (*text) OSH_TRY(osh_buf_printf(cx, b, "| Loss mask | %s |\n", text));
done:
    return rc;
}

void osh_mix_page(osh_page *pg, const osh_mix *m)
{
    char text[120];
    if (!m->n) return;
    OSH_PUT(pg, "<h2>Calibration data</h2>\n<div class=\"wide\"><table id=\"data-sets\">\n");
    for (size_t i = 0; i < m->n; i++) {
        set_text(text, m, &m->sets[i]);
        OSH_PUT(pg, "<tr><td>");
        osh_page_escape(pg, m->sets[i].name);
        OSH_PUT(pg, "</td><td>%s</td></tr>\n", text);
    }
    counted_text(text, m);
    if (*text) OSH_PUT(pg, "<tr><td>loss mask</td><td>%s</td></tr>\n", text);
    OSH_PUT(pg, "</table></div>\n");
}
