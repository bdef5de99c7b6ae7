/* match.c - finds the target that claims a module: exact names, then regexes, then classes, each in
 * string order.
 *
 * The result must agree with match_targets, match_name and _match_class of
 * compressed_tensors/utils/match.py, whose order is sorted(targets, key=lambda x: ("re:" in x, x)):
 * the condition is "in", not "startswith". */
#include "text/match.h"
#include "text/python_regex.h"
#include <stdlib.h>
#include <string.h>

typedef struct target {
    char *text;       // own
    osh_regex *regex; // own: compiled regex; NULL: the target is a name or a class
    /* True if the text of the target contains "re:"; such targets are sorted after all others. */
    bool late;
    size_t index;     // index of the target in the caller's list
    int64_t hits;
} target;

struct osh_matcher {
    target *sorted; // own [n]
    size_t *where;  // own [n]: where[i] is the index in `sorted` of target i of the caller's list
    size_t n;
};

static int targets_in_order(const void *a, const void *b)
{
    const target *x = a, *y = b;
    int by_text;

    if (x->late != y->late) return x->late ? 1 : -1;
    by_text = strcmp(x->text, y->text);
    if (by_text) return by_text;
    return x->index < y->index ? 1 : -1; // equal targets: the last one is sorted first, so it wins
}

osh_status osh_matcher_new(osh_ctx *cx, osh_matcher **out, const char *const *targets, size_t n)
{
    osh_status rc = OSH_OK;
    osh_matcher *m = NULL; // own

    OSH_NEW(cx, m, 1);
    OSH_NEW(cx, m->sorted, n);
    OSH_NEW(cx, m->where, n);
    for (; m->n < n; m->n++) {
        target *t = &m->sorted[m->n];
        t->index = m->n;
        t->text = osh_strdup(cx, targets[m->n]);
        if (!t->text) {
            rc = OSH_E_NOMEM;
            goto done;
        }
        t->late = strstr(t->text, "re:") != NULL;
    }
    qsort(m->sorted, n, sizeof *m->sorted, targets_in_order);
    for (size_t i = 0; i < n; i++) {
        target *t = &m->sorted[i];
        m->where[t->index] = i;
        if (strncmp(t->text, "re:", 3)) continue;
        OSH_TRY(osh_regex_new(cx, &t->regex, t->text + 3, strlen(t->text + 3)));
        OSH_TRY(osh_python_regex_check(cx, t->text + 3));
    }
    *out = m, m = NULL; // give
done:
    if (rc) osh_note(cx, "reading the targets");
    osh_matcher_free(cx, m);
    return rc;
}

void osh_matcher_free(osh_ctx *cx, osh_matcher *m)
{
    if (!m) return;
    for (size_t i = 0; m->sorted && i < m->n; i++) {
        osh_regex_free(cx, m->sorted[i].regex);
        osh_free(cx, m->sorted[i].text);
    }
    osh_free(cx, m->sorted);
    osh_free(cx, m->where);
    osh_free(cx, m);
}

static bool class_matches(const char *target_text, const char *cls)
{
    if (!cls) return false;
    return !strcmp(cls, target_text) ||
           (!strcmp(cls, "LinearBase") && !strcmp(target_text, "Linear"));
}

osh_status osh_matcher_find(osh_ctx *cx, int64_t *which, osh_matcher *m, const char *name,
                            const char *cls)
{
    osh_status rc = OSH_OK;
    int64_t by_name = -1, by_class = -1;

    for (size_t i = 0; i < m->n; i++) {
        target *t = &m->sorted[i];
        bool named = false;
        if (t->regex)
            OSH_TRY(osh_regex_match(cx, t->regex, name, strlen(name), &named));
        else
            named = !strcmp(t->text, name);
        bool classed = !named && class_matches(t->text, cls);
        t->hits += named || classed;
        if (named && by_name < 0) by_name = (int64_t)t->index;
        if (classed && by_class < 0) by_class = (int64_t)t->index;
    }
    *which = by_name >= 0 ? by_name : by_class;
done:
    if (rc) osh_note(cx, "matching the module %s", name);
    return rc;
}

int64_t osh_matcher_hits(const osh_matcher *m, size_t target_index)
{
    return target_index < m->n ? m->sorted[m->where[target_index]].hits : 0;
}
