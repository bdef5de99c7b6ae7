/* report_mixed.c - adds the choice of a scheme for each Linear (plan/mixed.h) to the JSON and the
 * HTML report. The curve of the chart shows the least loss that is possible at each size; a point
 * shows the loss and the size of the choice. */
#include "report/report_mixed.h"
#include "report/labels.h"

#include <math.h>
#include <stdio.h>

static bool mixed_add_row(cJSON *list, const double *v, int n)
{
    cJSON *row = cJSON_CreateDoubleArray(v, n);
    return row && cJSON_AddItemToArray(list, row);
}

static bool mixed_add_unit(cJSON *list, const osh_mixed_unit *u)
{
    cJSON *o = cJSON_CreateObject(), *c = NULL;
    bool ok = o && cJSON_AddItemToArray(list, o) && cJSON_AddStringToObject(o, "name", u->name) &&
              cJSON_AddNumberToObject(o, "weights", (double)u->n_weights) &&
              cJSON_AddNumberToObject(o, "bits", u->bits[u->chosen]) &&
              cJSON_AddStringToObject(o, "chosen", u->label[u->chosen]) &&
              cJSON_AddNumberToObject(o, "effect", u->effect) &&
              (c = cJSON_AddArrayToObject(o, "candidates"));
    for (int k = 0; ok && k < u->n; k++)
        ok = mixed_add_row(c, (double[]){u->bits[k], (double)u->bytes[k], u->loss[k]}, 3);
    ok = ok && (c = cJSON_AddArrayToObject(o, "labels"));
    for (int k = 0; ok && k < u->n; k++) {
        cJSON *label = cJSON_CreateString(u->label[k]);
        ok = label && cJSON_AddItemToArray(c, label);
    }
    return ok;
}

bool osh_mixed_json(cJSON *root, const osh_mixed *m)
{
    if (!m) return true;
    cJSON *o = cJSON_AddObjectToObject(root, "choice"), *units = NULL, *curve = NULL;
    bool ok =
        o && cJSON_AddNumberToObject(o, "limit_bytes", (double)m->limit) &&
        cJSON_AddNumberToObject(o, "bytes", (double)m->bytes) &&
        cJSON_AddNumberToObject(o, "bits", 8.0 * (double)m->bytes / (double)m->n_weights) &&
        cJSON_AddNumberToObject(o, "loss", m->loss) &&
        cJSON_AddStringToObject(o, "weighed_by", m->gradients_not ? "effects" : "gradients") &&
        (!m->gradients_not || cJSON_AddStringToObject(o, "not_by_gradients", m->gradients_not)) &&
        cJSON_AddNumberToObject(o, "bound", m->bound) &&
        (units = cJSON_AddArrayToObject(o, "units")) &&
        (curve = cJSON_AddArrayToObject(o, "curve"));
    for (int i = 0; ok && i < m->n_units; i++) ok = mixed_add_unit(units, &m->units[i]);
    for (int i = 0; ok && i < m->n_curve; i++)
        ok = mixed_add_row(curve, (double[]){(double)m->curve[i].bytes, m->curve[i].loss}, 2);
    return ok;
}

typedef struct scale { // axes of the chart; losses are logarithmic
    double x0, x1, y0, y1;
} scale;

static double scale_x(const scale *s, double bytes)
{
    double share = s->x1 > s->x0 ? (bytes - s->x0) / (s->x1 - s->x0) : 0;
    return OSH_CHART_LEFT + share * (OSH_CHART_W - OSH_CHART_LEFT - 8);
}

static double scale_y(const scale *s, double loss)
{
    double share = s->y1 > s->y0 && loss > 0 ? (log10(loss) - s->y0) / (s->y1 - s->y0) : 0;
    return OSH_CHART_H - OSH_CHART_BOTTOM -
           (share > 0 ? share : 0) * (OSH_CHART_H - OSH_CHART_BOTTOM - OSH_CHART_TOP);
}

static double mixed_bits(const osh_mixed *m, double bytes)
{
    return 8 * bytes / (double)m->n_weights;
}

static void mixed_draw(osh_page *pg, const osh_mixed *m)
{
    scale s = {(double)m->curve[0].bytes, (double)m->curve[m->n_curve - 1].bytes, 1e9, -1e9};
    for (int i = 0; i < m->n_curve; i++) {
        double y = m->curve[i].loss > 0 ? log10(m->curve[i].loss) : 1e9;
        if (y < 1e9) s.y0 = y < s.y0 ? y : s.y0, s.y1 = y > s.y1 ? y : s.y1;
    }
    OSH_PUT(pg, "<div class=\"wide\"><svg id=\"choice\" viewBox=\"0 0 %d %d\" role=\"img\" "
                "aria-label=\"loss against size\">\n", OSH_CHART_W, OSH_CHART_H);
    OSH_PUT(pg, "<polyline fill=\"none\" stroke=\"currentColor\" points=\"");
    for (int i = 0; i < m->n_curve; i++)
        OSH_PUT(pg, "%.1f,%.1f ", scale_x(&s, (double)m->curve[i].bytes),
                scale_y(&s, m->curve[i].loss));
    OSH_PUT(pg,
            "\"/>\n<circle r=\"4\" fill=\"currentColor\" cx=\"%.1f\" cy=\"%.1f\"><title>%.4f bits, "
            "loss %.4g</title></circle>\n",
            scale_x(&s, (double)m->bytes), scale_y(&s, m->loss), mixed_bits(m, (double)m->bytes),
            m->loss);
    osh_labels labels = {.pg = pg};
    char text[32];
    osh_label_put(&labels, 0, 12, OSH_AT_START, "loss");
    /* If both ends of the loss axis are equal, osh_label_put drops the second text. */
    for (int i = 0; i < 2 && s.y0 <= s.y1; i++) {
        double loss = pow(10, i ? s.y1 : s.y0);
        snprintf(text, sizeof text, "%.2g", loss);
        osh_label_put(&labels, OSH_CHART_LEFT - 6, scale_y(&s, loss) + 4, OSH_AT_END, text);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "%.2f bits", mixed_bits(m, i ? s.x1 : s.x0));
        osh_label_put(&labels, i ? OSH_CHART_W : OSH_CHART_LEFT, OSH_CHART_H - 8,
                      i ? OSH_AT_END : OSH_AT_START, text);
    }
    OSH_PUT(pg, "</svg></div>\n");
}

void osh_mixed_page(osh_page *pg, const osh_mixed *m)
{
    if (!m || !m->n_curve) return;
    OSH_PUT(pg,
            "<h2>Bits for each module</h2>\n<p class=\"soft\">%.4f bits a weight; loss %.4g. No "
            "choice of this size has a loss below %.4g. The line shows the least loss at each "
            "size, logarithmic.</p>\n",
            mixed_bits(m, (double)m->bytes), m->loss, m->bound);
    if (m->gradients_not) {
        OSH_PUT(
            pg,
            "<p class=\"soft\">Losses are weighted by the effects of rounding, not by gradients: ");
        osh_page_escape(pg, m->gradients_not);
        OSH_PUT(pg, ".</p>\n");
    }
    mixed_draw(pg, m);
    OSH_PUT(pg,
            "<details><summary>%d units</summary><div class=\"wide\"><table "
            "id=\"units\"><tr><th>unit</th>"
            "<th class=\"n\">weights</th><th class=\"n\">loss</th><th class=\"n\">effect of 3 "
            "bits</th></tr>\n",
            m->n_units);
    for (int i = 0; i < m->n_units; i++) {
        const osh_mixed_unit *u = &m->units[i];
        OSH_PUT(pg, "<tr><td>");
        osh_page_name(pg, u->name);
        OSH_PUT(
            pg,
            "</td><td class=\"n\">%s</td><td class=\"n\">%.3g</td><td class=\"n\">%.3g</td></tr>\n",
            u->label[u->chosen], u->loss[u->chosen], u->effect);
    }
    OSH_PUT(pg, "</table></div></details>\n");
}
