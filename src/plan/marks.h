/* marks.h - --checkpoint NAME=SUBGRAPH: subgraphs that leave a record when they are finished;
 * NAME=FIRST..LAST: first and last subgraph of a stage that the user names. */
#ifndef OSH_MARKS_H
#define OSH_MARKS_H
#include "plan/plan.h"

typedef struct osh_mark {
    osh_matcher *match; // own; NULL: a stage
    int first, last;    // subgraphs of the stage
} osh_mark;

const char *osh_mark_pattern(const char *item); // view: of NAME=PATTERN, or of a pattern alone
int osh_mark_name_length(const char *item);     // bytes of NAME; 0: none is given
int osh_mark_index(const osh_plan *p, const char *subgraph); // -1: no such subgraph
/* Fills p->marks. A pattern without a match is an error. */
osh_status osh_plan_marks(osh_ctx *cx, osh_plan *p);
void osh_plan_marks_free(osh_ctx *cx, osh_plan *p);
#endif
