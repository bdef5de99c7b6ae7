/* plan_print.h - prints a plan: as a summary for a screen, in full, or as JSON. */
#ifndef OSH_PLAN_PRINT_H
#define OSH_PLAN_PRINT_H
#include "base/buf.h"
#include "plan/plan.h"

/* Prints the whole plan to *out (own), as text or as JSON. */
osh_status osh_plan_print(osh_ctx *cx, char **out, const osh_plan *p, bool json);
/* Prints a summary of the job and of the memory and time that it needs to *out (own), in at most 12
 * lines of at most 80 columns. The last line says how many rows are left out. The first line of
 * `before` (NULL: none) names work that precedes the job. */
osh_status osh_plan_summary(osh_ctx *cx, char **out, const osh_plan *p, const char *before);
/* Appends how several ranks divide the work, and how many GPUs can serve the output. */
osh_status osh_plan_devices(osh_ctx *cx, osh_buf *b, const osh_plan *p);
/* Appends the first lines of a run: its decisions, and a lack of samples. */
osh_status osh_run_opening(osh_ctx *cx, osh_buf *b, const osh_plan *p);
/* Estimates the seconds of the job on the threads of this process. cost.c counts for one core with
 * AVX2; all bytes go to one disk. */
osh_status osh_plan_seconds(osh_ctx *cx, double *seconds, const osh_plan *p);
#endif
