/* marks.h - --checkpoint NAME=SUBGRAPH: which subgraphs leave a record when they are finished. */
#ifndef OSH_MARKS_H
#define OSH_MARKS_H
#include "plan/plan.h"

const char *osh_mark_pattern(const char *item); // view: of NAME=PATTERN, or of a pattern alone
/* Fills p->marks; a pattern that names nothing is an error. */
osh_status osh_plan_marks(osh_ctx *cx, osh_plan *p);
void osh_plan_marks_free(osh_ctx *cx, osh_plan *p);
#endif
