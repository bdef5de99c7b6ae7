/* marks.c - parses the option --checkpoint: finds the subgraphs that its items name. */
#include "plan/marks.h"

#include <string.h>

const char *osh_mark_pattern(const char *item)
{
    const char *eq = strchr(item, '=');
    return eq && strncmp(item, "re:", 3) ? eq + 1 : item;
}

/* Returns the i-th name that an item of --checkpoint may match, or NULL if there are at most i
 * names. These are the names of the subgraphs, or of the Linears if the run has no graph. */
static const char *mark_target(const osh_plan *p, int i)
{
    if (p->in.pipeline == OSH_PIPELINE_BASIC) return i ? NULL : "the whole model";
    if (p->in.pipeline == OSH_PIPELINE_SEQUENTIAL)
        return i < p->schedule.parts->n ? p->schedule.parts->parts[i].name : NULL;
    return i < p->match.n_linears ? p->match.linears[i].name : NULL;
}

int osh_mark_name_length(const char *item)
{
    const char *pattern = osh_mark_pattern(item);
    return pattern > item ? (int)(pattern - item) - 1 : 0;
}

static int mark_target_index(const osh_plan *p, const char *subgraph, size_t n)
{
    const char *name;
    for (int i = 0; (name = mark_target(p, i)); i++)
        if (strlen(name) == n && !memcmp(name, subgraph, n)) return i;
    return -1;
}

int osh_mark_index(const osh_plan *p, const char *subgraph)
{
    return mark_target_index(p, subgraph, strlen(subgraph));
}

static osh_status mark_refuse(osh_ctx *cx, const char *item, const char *pattern, size_t n)
{
    return osh_fail(
        cx, OSH_E_USAGE,
        "--checkpoint %s: %.*s matches no subgraph of this run; `oneshot plan` lists the subgraphs",
        item, (int)n, pattern);
}

static osh_status mark_stage(osh_ctx *cx, const osh_plan *p, osh_mark *m, const char *item,
                             const char *dots)
{
    osh_status rc = OSH_OK;
    const char *first = osh_mark_pattern(item), *last = dots + 2;
    size_t n = (size_t)(dots - first);
    if (p->in.pipeline == OSH_PIPELINE_DATAFREE)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "--checkpoint %s: a run without data rounds modules in parallel, so a stage has no "
            "beginning: want NAME=MODULE",
            item);
    if (!osh_mark_name_length(item))
        OSH_FAIL(cx, OSH_E_USAGE, "--checkpoint %s: want a name for the stage, as NAME=%s", item,
                 first);
    if ((m->first = mark_target_index(p, first, n)) < 0) OSH_TRY(mark_refuse(cx, item, first, n));
    if ((m->last = osh_mark_index(p, last)) < 0) OSH_TRY(mark_refuse(cx, item, last, strlen(last)));
    if (m->last < m->first)
        OSH_FAIL(cx, OSH_E_USAGE, "--checkpoint %s: %s comes before %.*s", item, last, (int)n,
                 first);
done:
    return rc;
}

static osh_status mark_point(osh_ctx *cx, const osh_plan *p, osh_mark *m, const char *item)
{
    osh_status rc = OSH_OK;
    const char *pattern = osh_mark_pattern(item), *name;
    int64_t which, n = 0;
    OSH_TRY(osh_matcher_new(cx, &m->match, &pattern, 1));
    for (int i = 0; (name = mark_target(p, i)); i++) {
        OSH_TRY(osh_matcher_find(cx, &which, m->match, name, NULL));
        n += which >= 0;
    }
    if (!n) OSH_TRY(mark_refuse(cx, item, pattern, strlen(pattern)));
done:
    return rc;
}

osh_status osh_plan_marks(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_strs *items = &p->in.opt->checkpoint;
    OSH_NEW(cx, p->marks, items->n);
    for (size_t k = 0; k < items->n; k++) {
        const char *item = items->items[k], *pattern = osh_mark_pattern(item);
        const char *dots = strncmp(pattern, "re:", 3) ? strstr(pattern, "..") : NULL;
        OSH_TRY(dots ? mark_stage(cx, p, &p->marks[k], item, dots)
                     : mark_point(cx, p, &p->marks[k], item));
    }
done:
    return rc;
}

void osh_plan_marks_free(osh_ctx *cx, osh_plan *p)
{
    for (size_t k = 0; p->marks && k < p->in.opt->checkpoint.n; k++)
        osh_matcher_free(cx, p->marks[k].match);
    osh_free(cx, p->marks);
}
