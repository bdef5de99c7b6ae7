/* report_mixed.h - adds the choice of a scheme for each Linear (plan/mixed.h) to the JSON and the
 * HTML report. The argument m is NULL if the run had no such choice. */
#ifndef OSH_REPORT_MIXED_H
#define OSH_REPORT_MIXED_H
#include "plan/mixed.h"
#include "report/page.h"

bool osh_mixed_json(cJSON *root, const osh_mixed *m); // returns false if an allocation fails
/* Writes the section with the choice to the page. A failure is stored in pg. */
void osh_mixed_page(osh_page *pg, const osh_mixed *m);
#endif
