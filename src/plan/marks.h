/* marks.h - reads the option --checkpoint. With the item NAME=PATTERN, the run writes a record when
 * it has finished a subgraph that matches the pattern. The item NAME=FIRST..LAST defines a stage
 * with this name, from subgraph FIRST to subgraph LAST. */
#ifndef OSH_MARKS_H
#define OSH_MARKS_H
#include "plan/plan.h"

typedef struct osh_mark {
    osh_matcher *match; // own: matches PATTERN; NULL: the item has the form NAME=FIRST..LAST
    /* indices of the subgraphs FIRST and LAST, if the item has the form NAME=FIRST..LAST */
    int first, last;
} osh_mark;

/* Returns a view of the text after "NAME=", or of the whole item if it has no NAME. */
const char *osh_mark_pattern(const char *item);
/* Returns the length of NAME in bytes, or 0 if the item has no NAME. */
int osh_mark_name_length(const char *item);
/* Returns the index of the subgraph with this name, or -1 if no subgraph has the name. */
int osh_mark_index(const osh_plan *p, const char *subgraph);
/* Sets p->marks from --checkpoint. Fails if a pattern matches no name. */
osh_status osh_plan_marks(osh_ctx *cx, osh_plan *p);
void osh_plan_marks_free(osh_ctx *cx, osh_plan *p);
#endif
