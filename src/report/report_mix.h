/* report_mix.h - names the data sets of a run (data/mix.h) in plan, report and README.md. */
#ifndef OSH_REPORT_MIX_H
#define OSH_REPORT_MIX_H
#include "plan/plan.h"
#include "report/page.h"
#include "text/json.h"

/* Adds the list "data_sets". Returns false if an allocation fails. */
bool osh_mix_json(cJSON *root, const osh_mix *m);
/* If there are several data sets, appends a row of the plan for each data set. */
osh_status osh_mix_rows(osh_ctx *cx, osh_buf *b, const osh_mix *m);
/* If there are several data sets, appends their names and their shares in percent. */
osh_status osh_mix_shares(osh_ctx *cx, osh_buf *b, const osh_mix *m);
/* Appends a row of a Markdown table for each data set. */
osh_status osh_mix_markdown(osh_ctx *cx, osh_buf *b, const osh_mix *m);
/* Appends the data sets to the page. */
void osh_mix_page(osh_page *pg, const osh_mix *m);
#endif
