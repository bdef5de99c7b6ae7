/* compare.h - makes a table of several outputs, and of several evaluations of the same tokens. */
#ifndef OSH_COMPARE_H
#define OSH_COMPARE_H
#include "eval/panel.h"

/* Reads the results in the output directory `dir` to *p, and the evaluation if there is one. */
osh_status osh_compare_output(osh_ctx *cx, osh_panel *p, const char *dir);
/* Fails with OSH_E_USAGE if two panels with scores differ in their tokens or in their reference. */
osh_status osh_compare_check(osh_ctx *cx, const osh_panel *of, int n);
osh_status osh_compare_text(osh_ctx *cx, char **text, const osh_panel *of, int n); // *text: own
osh_status osh_compare_html(osh_ctx *cx, char **html, const osh_panel *of, int n); // *html: own
#endif
