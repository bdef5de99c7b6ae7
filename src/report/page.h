/* page.h - writes an HTML page without script, network or fonts. Text from a file or the command
 * line is escaped with osh_page_escape. After the first failure, osh_page.rc has the status, and
 * all later text is dropped. */
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

#define OSH_PUT(pg, ...)                                                                           \
    ((pg)->rc = (pg)->rc ? (pg)->rc : osh_buf_printf((pg)->cx, &(pg)->b, __VA_ARGS__))

enum {
    OSH_CHART_W = 920,
    OSH_CHART_H = 240,
    OSH_CHART_LEFT = 64,
    OSH_CHART_BOTTOM = 28,
    OSH_CHART_TOP = 24
};

/* Appends the head of the page, up to the heading. */
void osh_page_begin(osh_page *pg, osh_ctx *cx, const char *title);
/* Ends the page and passes its text to the caller: *html (own). If pg->rc is a failure, *html is
 * not changed. */
void osh_page_end(osh_page *pg, char **html);
/* Begins a text without the head and the end of a page. */
void osh_page_bare(osh_page *pg, osh_ctx *cx);
/* Appends the style sheet of a page. */
void osh_page_style(osh_page *pg);
/* Appends text. Characters with a meaning in HTML are escaped. */
void osh_page_escape(osh_page *pg, const char *text);
/* Appends a name of a module or tensor, escaped. A line may break after each dot of the name, but
 * not inside a word. */
void osh_page_name(osh_page *pg, const char *name);
void osh_page_command(osh_page *pg, const char *command); // appends a command that can be copied
void osh_page_percent(osh_page *pg, double share);        // appends a share such as "42.3 %"
void osh_bytes_text(char to[32], double n);    // writes "1.2 MB"
void osh_seconds_text(char to[32], double s);  // writes a duration such as "3 min 05 s"
void osh_page_bytes(osh_page *pg, double n);   // appends a number of bytes such as "1.2 MB"
/* Appends a table cell with a number of bytes. The cell is empty if the number is negative. */
void osh_page_bytes_cell(osh_page *pg, int64_t n);
void osh_page_seconds(osh_page *pg, double s); // appends a duration such as "3 min 05 s"
/* Returns the name of the CSS variable with the colour of a phase. */
const char *osh_page_colour(const char *phase);

/* profile_html.c: appends the times of the stages and phases: a bar and two tables. */
void osh_page_times(osh_page *pg, const osh_profile_data *d);
/* Draws memory over time as a separate SVG, with stages, names of subgraphs and checkpoints. */
void osh_page_picture(osh_page *pg, const osh_profile_data *d);
/* Draws memory over time in a page, with a line for the predicted peak and a line for the budget
 * (0: no line). */
void osh_page_memory(osh_page *pg, const osh_profile_data *d, int64_t predicted, int64_t budget);
#endif
