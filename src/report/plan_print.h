/* plan_print.h - prints a plan: as a summary for a screen, in full, or as JSON. */
#ifndef OSH_PLAN_PRINT_H
#define OSH_PLAN_PRINT_H
#include "base/buf.h"
#include "plan/plan.h"

/* Prints the whole plan to *out (own), as text or as JSON. */
osh_status osh_plan_print(osh_ctx *cx, char **out, const osh_plan *p, bool json);
/* Prints a summary to *out (own): the job, and the memory and time that it needs. The summary has
 * at most 12 lines of at most 80 columns. The last line says how many rows are left out, if any.
 * `before` (NULL: none) describes work that precedes the job. Only the first line of `before` is
 * printed. */
osh_status osh_plan_summary(osh_ctx *cx, char **out, const osh_plan *p, const char *before);
/* Appends lines about several devices: the division of the work among ranks, and the number of GPUs
 * that can serve the output. */
osh_status osh_plan_devices(osh_ctx *cx, osh_buf *b, const osh_plan *p);
/* Appends the first lines of a run: its decisions, and the number of samples if there are fewer
 * than asked for. */
osh_status osh_run_opening(osh_ctx *cx, osh_buf *b, const osh_plan *p);
/* Estimates the seconds of the job on the threads of this process. cost.c estimates the work for
 * one core with AVX2. The estimate assumes that one disk does all reads and writes. */
osh_status osh_plan_seconds(osh_ctx *cx, double *seconds, const osh_plan *p);
#endif
