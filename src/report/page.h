/* page.h - an HTML page without script, network or fonts. What came from a file or the command line goes through
 * osh_page_escape. A failure is kept in rc, and what is put behind it is not. */
#ifndef OSH_PAGE_H
#define OSH_PAGE_H
#include "base/buf.h"
#include "base/profile.h"

typedef struct osh_page {
    osh_ctx *cx;
    osh_buf b; // own
    osh_status rc;
    bool bare;
} osh_page;

#define OSH_PUT(pg, ...) ((pg)->rc = (pg)->rc ? (pg)->rc : osh_buf_printf((pg)->cx, &(pg)->b, __VA_ARGS__))

enum { OSH_CHART_W = 920, OSH_CHART_H = 240, OSH_CHART_LEFT = 64, OSH_CHART_BOTTOM = 28, OSH_CHART_TOP = 24 };

void osh_page_begin(osh_page *pg, osh_ctx *cx, const char *title); // up to the heading
void osh_page_end(osh_page *pg, char **html);                      // own; untouched where rc is set
void osh_page_bare(osh_page *pg, osh_ctx *cx);    // nothing yet, and nothing comes with its end
void osh_page_style(osh_page *pg);
void osh_page_escape(osh_page *pg, const char *text);
void osh_page_bytes(osh_page *pg, double n);   // "1.2 MB"
void osh_page_bytes_cell(osh_page *pg, int64_t n); // of a table; < 0: nothing in it
void osh_page_seconds(osh_page *pg, double s); // "3 min 05 s"
const char *osh_page_colour(const char *phase); // a variable of the page's style

/* profile_html.c */
void osh_page_times(osh_page *pg, const osh_profile_data *d); // a bar, stages, phases
/* Memory against time, with stages, names of subgraphs and checkpoints. 0: nothing predicted, no budget. */
void osh_page_picture(osh_page *pg, const osh_profile_data *d); // the same as an SVG that stands alone
void osh_page_memory(osh_page *pg, const osh_profile_data *d, int64_t predicted, int64_t budget);
#endif
