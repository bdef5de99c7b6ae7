/* report_modules.h - declares the parts of oneshot-report.html that list modules. */
#ifndef OSH_REPORT_MODULES_H
#define OSH_REPORT_MODULES_H
#include "report/page.h"
#include "report/report.h"

enum { OSH_PAGE_BARS = 1500 }; // largest number of bars of a chart

/* Appends the chart and the table of the errors of all modules. */
osh_status osh_report_errors(osh_ctx *cx, osh_page *pg, const osh_run *r);
/* Appends the experts, the fallbacks, and the modules that stay dense. */
void osh_report_modules(osh_page *pg, const osh_report *r);
#endif
