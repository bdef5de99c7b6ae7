/* marks.h - reads the option --checkpoint. NAME=PATTERN writes a record when a subgraph that
 * matches the pattern is finished. NAME=FIRST..LAST defines a stage with this name, from subgraph
 * FIRST to subgraph LAST. */
#ifndef OSH_MARKS_H
#define OSH_MARKS_H
#include "plan/plan.h"

typedef struct osh_mark {
    osh_matcher *match; // own: pattern of NAME=PATTERN; NULL: the item is a stage NAME=FIRST..LAST
    int first, last;    // indices of the first and last subgraph of the stage
} osh_mark;

/* Returns a view: the pattern of NAME=PATTERN, or the whole item if it has no NAME. */
const char *osh_mark_pattern(const char *item);
/* Returns the length of NAME in bytes; 0: the item has no NAME. */
int osh_mark_name_length(const char *item);
/* Returns the index of the subgraph with this name; -1: there is none. */
int osh_mark_index(const osh_plan *p, const char *subgraph);
/* Sets p->marks from --checkpoint. Fails if a pattern matches nothing. */
osh_status osh_plan_marks(osh_ctx *cx, osh_plan *p);
void osh_plan_marks_free(osh_ctx *cx, osh_plan *p);
#endif
