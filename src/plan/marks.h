/* marks.h - reads the option --checkpoint. The item NAME=PATTERN writes a record when a subgraph
 * that matches the pattern is finished. The item NAME=FIRST..LAST defines a stage with this name,
 * from subgraph FIRST to subgraph LAST. */
#ifndef OSH_MARKS_H
#define OSH_MARKS_H
#include "plan/plan.h"

typedef struct osh_mark {
    osh_matcher *match; // own: PATTERN of NAME=PATTERN; NULL: the item is NAME=FIRST..LAST
    int first, last;    // NAME=FIRST..LAST: indices of the subgraphs FIRST and LAST
} osh_mark;

/* Returns a view of PATTERN in NAME=PATTERN, or of the whole item if it has no NAME. */
const char *osh_mark_pattern(const char *item);
/* Returns the length of NAME in bytes, or 0 if the item has no NAME. */
int osh_mark_name_length(const char *item);
/* Returns the index of the subgraph with this name, or -1 if no subgraph has the name. */
int osh_mark_index(const osh_plan *p, const char *subgraph);
/* Sets p->marks from --checkpoint. Fails if a pattern matches nothing. */
osh_status osh_plan_marks(osh_ctx *cx, osh_plan *p);
void osh_plan_marks_free(osh_ctx *cx, osh_plan *p);
#endif
