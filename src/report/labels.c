/* labels.c - places the texts of an SVG chart so that no two texts touch. */
#include "report/labels.h"

#include <stdio.h>
#include <string.h>

static const double gap = 5; // smallest horizontal distance of two texts

/* Returns an upper bound of a character's width at a font size of 11: the widths of Verdana and
 * DejaVu Sans, which are wider than other sans-serif fonts. Each byte of a multi-byte character has
 * a width of its own. */
static double char_width(char c)
{
    if ((unsigned char)c >= 0x80) return 6;
    if (strchr("iljtfrI.,:;'|!()[] -/", c)) return 5;
    if (strchr("mwMW@%", c)) return 11.5;
    return c >= 'A' && c <= 'Z' ? 9 : 7.2;
}

double osh_label_width(const char *text)
{
    double width = 0;
    for (; *text; text++) width += char_width(*text);
    return width;
}

bool osh_label_put(osh_labels *l, double x, double y, osh_anchor anchor, const char *text)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    double width = osh_label_width(text);
    double left = anchor == OSH_AT_START ? x : anchor == OSH_AT_END ? x - width : x - width / 2;
    double top = y - OSH_LABEL_H, bottom = y + 3, right = left + width;
    if (left < 0 || right > OSH_CHART_W + 1 || l->n == OSH_MAX_LABELS) return false;
    for (int i = 0; i < l->n; i++)
        if (left < l->box[i].right + gap && right + gap > l->box[i].left &&
            top < l->box[i].bottom && bottom > l->box[i].top)
            return false;
    l->box[l->n].left = left, l->box[l->n].right = right;
    l->box[l->n].top = top, l->box[l->n++].bottom = bottom;
    OSH_PUT(l->pg, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, anchors[anchor]);
    osh_page_escape(l->pg, text);
    OSH_PUT(l->pg, "</text>\n");
    return true;
}

void osh_label_name(char *to, size_t room, const char *name, int most)
{
    int n = (int)strlen(name);
    const char *from = n > most ? name + n - most : name;
    const char *dot = from == name ? NULL : strchr(from, '.');
    if (dot && dot[1]) from = dot + 1;
    while ((*from & 0xc0) == 0x80) from++; // `from` must be at the start of a UTF-8 character
    snprintf(to, room, "%s%s", from == name ? "" : "…", from);
}
