/* labels.h - places the texts of an SVG chart so that no two texts touch. */
#ifndef OSH_LABELS_H
#define OSH_LABELS_H
#include "report/page.h"

typedef enum { OSH_AT_START, OSH_AT_MIDDLE, OSH_AT_END } osh_anchor;
enum { OSH_MAX_LABELS = 128, OSH_LABEL_H = 11 };
typedef struct osh_labels {
    osh_page *pg; // view
    struct { double left, right, top, bottom; } box[OSH_MAX_LABELS];
    int n;
} osh_labels;

double osh_label_width(const char *text); // returns an upper bound for the width of the text
/* Draws the text with its baseline at y. Draws nothing and returns false if the text would touch an
 * earlier text or leave the chart. */
bool osh_label_put(osh_labels *l, double x, double y, osh_anchor anchor, const char *text);
/* Writes a name of at most `most` characters: the whole name, or its end after a dot. */
void osh_label_name(char *to, size_t room, const char *name, int most);
#endif
