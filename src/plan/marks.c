/* marks.c - see marks.h. */
#include "plan/marks.h"

#include <string.h>

const char *osh_mark_pattern(const char *item)
{
    const char *eq = strchr(item, '=');
    return eq && strncmp(item, "re:", 3) ? eq + 1 : item;
}

/* What a pattern may name: subgraphs, or without a graph the modules that are rounded. */
static const char *stop_name(const osh_plan *p, int i)
{
    if (p->pipeline == OSH_PIPELINE_BASIC) return i ? NULL : "the whole model";
    if (p->pipeline == OSH_PIPELINE_SEQUENTIAL) return i < p->parts->n ? p->parts->parts[i].name : NULL;
    return i < p->n_linears ? p->linears[i].name : NULL;
}

osh_status osh_plan_marks(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_strs *items = &p->opt->checkpoint;
    OSH_NEW(cx, p->marks, items->n);
    for (size_t k = 0; k < items->n; k++) {
        const char *pattern = osh_mark_pattern(items->items[k]), *name;
        int64_t which, n = 0;
        OSH_TRY(osh_matcher_new(cx, &p->marks[k], &pattern, 1));
        for (int i = 0; (name = stop_name(p, i)); i++) {
            OSH_TRY(osh_matcher_find(cx, &which, p->marks[k], name, NULL));
            n += which >= 0;
        }
        if (!n)
            OSH_FAIL(cx, OSH_E_USAGE, "--checkpoint %s: %s names no subgraph of this run; `oneshot plan` lists them",
                     items->items[k], pattern);
    }
done:
    return rc;
}

void osh_plan_marks_free(osh_ctx *cx, osh_plan *p)
{
    for (size_t k = 0; p->marks && k < p->opt->checkpoint.n; k++) osh_matcher_free(cx, p->marks[k]);
    osh_free(cx, p->marks);
}
