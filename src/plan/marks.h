/* marks.h - reads the option --checkpoint. NAME=PATTERN: a record is written when a subgraph that
 * the pattern matches is finished. NAME=FIRST..LAST: a stage with this name, from its first to its
 * last subgraph. */
#ifndef OSH_MARKS_H
#define OSH_MARKS_H
#include "plan/plan.h"

typedef struct osh_mark {
    osh_matcher *match; // own; NULL: this is a stage
    int first, last;    // first and last subgraph of the stage
} osh_mark;

const char *osh_mark_pattern(const char *item); // view: pattern of NAME=PATTERN, or of an item
                                                // without NAME
int osh_mark_name_length(const char *item);     // bytes of NAME; 0: the item has no NAME
int osh_mark_index(const osh_plan *p, const char *subgraph); // -1: no such subgraph
/* Sets p->marks. A pattern that matches nothing is an error. */
osh_status osh_plan_marks(osh_ctx *cx, osh_plan *p);
void osh_plan_marks_free(osh_ctx *cx, osh_plan *p);
#endif
