/* report_mixed.h - puts the choice of bits (plan/mixed.h) into both reports. The argument m is NULL
 * if the run had no such choice. */
#ifndef OSH_REPORT_MIXED_H
#define OSH_REPORT_MIXED_H
#include "plan/mixed.h"
#include "report/page.h"

bool osh_mixed_json(cJSON *root, const osh_mixed *m); // returns false if there was no memory
void osh_mixed_page(osh_page *pg, const osh_mixed *m);
#endif
