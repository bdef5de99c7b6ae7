/* steps.c - stores the steps of a visit compactly. One array has the sets of values of all steps,
 * each set as a list of indices. Another array has the node flags of all steps. osh_steps_at writes
 * the sets of one step into arrays with an entry for each value of the graph.
 *
 *   of[k]    {kind, nodes, flags, end of each set in `values`, start in `nodes`}
 *   values   the sets `in`, `out`, `consume`, `values` of step 0 | those of step 1 | ...
 *   nodes    the flags `run` and `routed` of step 0 | those of step 1 | ... */
#include "schedule/steps.h"

#include <string.h>

#include "graph/picked.h"

enum { IN, OUT, CONSUME, VALUES, N_SETS };

typedef struct stored { // a step in the list
    osh_step step;      // the step; its pointers to arrays are not used
    bool has_values, has_run, has_routed;
    size_t set[N_SETS + 1]; // set k consists of values[set[k]] to values[set[k + 1] - 1]
    /* index in osh_steps.nodes of the first flag of `run`; the flags of `routed` follow these
     * flags */
    size_t nodes;
} stored;

struct osh_steps {
    osh_range r;
    stored *of;     // own [room]
    int n, room;
    int *values;    // own [values_room]
    size_t n_values, values_room;
    bool *nodes;    // own [nodes_room]
    size_t n_nodes, nodes_room;
    /* The arrays 0 to N_SETS - 1 are the sets of step number `at`. In all other arrays, entries are
     * false while no caller uses them. */
    bool *set[OSH_STEP_LISTS]; // own [graph values]
    int *numbers;      // own [graph values]: all entries are -1 while no caller uses them
    int at;            // index of the step that osh_steps_at returned last; -1: none
    osh_step now;      // the step that osh_steps_at returned last
};

osh_status osh_steps_new(osh_ctx *cx, osh_steps **out, const osh_graph *g)
{
    osh_status rc = OSH_OK;
    osh_steps *s = NULL; // own
    OSH_NEW(cx, s, 1);
    s->at = -1;
    for (int k = 0; k < OSH_STEP_LISTS; k++) OSH_NEW(cx, s->set[k], g->n_values);
    OSH_NEW(cx, s->numbers, g->n_values);
    for (int v = 0; v < g->n_values; v++) s->numbers[v] = -1;
    *out = s, s = NULL; // passes ownership
done:
    osh_steps_free(cx, s);
    return rc;
}

void osh_steps_free(osh_ctx *cx, osh_steps *s)
{
    if (!s) return;
    for (int k = 0; k < OSH_STEP_LISTS; k++) osh_free(cx, s->set[k]);
    osh_free(cx, s->numbers);
    osh_free(cx, s->of);
    osh_free(cx, s->values);
    osh_free(cx, s->nodes);
    osh_free(cx, s);
}

int osh_steps_n(const osh_steps *s) { return s->n; }
const osh_range *osh_steps_range(const osh_steps *s) { return &s->r; }
bool *osh_steps_list(osh_steps *s, int k) { return s->set[k]; }
int *osh_steps_numbers(osh_steps *s) { return s->numbers; }

size_t osh_steps_bytes(const osh_steps *s)
{
    return osh_mem_gross((size_t)s->room * sizeof *s->of) +
           osh_mem_gross(s->values_room * sizeof *s->values) + osh_mem_gross(s->nodes_room);
}

const char *osh_step_name(osh_step_kind kind)
{
    static const char *const names[OSH_N_STEP_KINDS] = {
        "open", "load", "pass", "solve", "reload", "release", "drop", "open_factors", "fold",
    };
    return names[kind];
}

/* Sets s->set[k][v] to `on` for each set k of the step s->at, and for each value v of this set. */
static void steps_mark(osh_steps *s, bool on)
{
    const stored *t = &s->of[s->at];
    for (int k = 0; k < N_SETS; k++)
        for (size_t i = t->set[k]; i < t->set[k + 1]; i++) s->set[k][s->values[i]] = on;
}

const osh_step *osh_steps_at(osh_steps *s, int k)
{
    const stored *t = &s->of[k];
    if (s->at >= 0) steps_mark(s, false);
    s->at = k;
    steps_mark(s, true);
    s->now = t->step;
    s->now.in = s->set[IN], s->now.out = s->set[OUT], s->now.consume = s->set[CONSUME];
    s->now.values = t->has_values ? s->set[VALUES] : NULL;
    s->now.run = t->has_run ? s->nodes + t->nodes : NULL;
    s->now.routed = t->has_routed ? s->nodes + t->nodes + t->step.n : NULL;
    return &s->now;
}

const osh_step *osh_steps_first(osh_steps *s, osh_step_kind kind)
{
    for (int k = 0; k < s->n; k++)
        if (s->of[k].step.kind == kind) return osh_steps_at(s, k);
    return NULL;
}

void osh_steps_begin(osh_steps *s, const osh_range *r)
{
    if (s->at >= 0) steps_mark(s, false);
    s->r = *r, s->at = -1, s->n = 0, s->n_values = s->n_nodes = 0;
}

/* Makes room for `more` elements in an array that has n elements. *room: number of elements that
 * are allocated. */
static osh_status steps_grow(osh_ctx *cx, void **array, size_t *room, size_t n, size_t more,
                             size_t element_bytes)
{
    osh_status rc = OSH_OK;
    size_t want = *room ? *room : 64;
    if (n + more <= *room) goto done;
    while (want < n + more) want *= 2;
    void *grown = osh_realloc(cx, *array, want * element_bytes);
    if (!grown) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the steps of a visit");
    *array = grown, *room = want;
done:
    return rc;
}

/* Appends to s->values the values v of the visit's range for which set[v] is true. */
static osh_status steps_add_set(osh_ctx *cx, osh_steps *s, const bool *set)
{
    osh_status rc = OSH_OK;
    void *values = s->values;
    for (int v = set ? osh_next_set(set, s->r.v0, s->r.v1) : s->r.v1; v < s->r.v1;
         v = osh_next_set(set, v + 1, s->r.v1)) {
        rc = steps_grow(cx, &values, &s->values_room, s->n_values, 1, sizeof *s->values);
        s->values = values;
        if (rc) break;
        s->values[s->n_values++] = v;
    }
    return rc;
}

static osh_status steps_add_nodes(osh_ctx *cx, osh_steps *s, const bool *run, int n)
{
    osh_status rc = OSH_OK;
    void *nodes = s->nodes;
    if (!run) goto done;
    rc = steps_grow(cx, &nodes, &s->nodes_room, s->n_nodes, (size_t)n, sizeof *s->nodes);
    s->nodes = nodes;
    if (rc) goto done;
    if (n) memcpy(s->nodes + s->n_nodes, run, (size_t)n * sizeof *run);
    s->n_nodes += (size_t)n;
done:
    return rc;
}

osh_status osh_steps_add(osh_ctx *cx, osh_steps *s, const osh_step *step)
{
    osh_status rc = OSH_OK;
    const bool *sets[N_SETS] = {step->in, step->out, step->consume, step->values};
    size_t room = (size_t)s->room;
    void *of = s->of;
    rc = steps_grow(cx, &of, &room, (size_t)s->n, 1, sizeof *s->of);
    s->of = of, s->room = (int)room;
    if (rc) goto done;
    stored *t = &s->of[s->n];
    *t = (stored){.step = *step, .has_values = step->values, .has_run = step->run,
                  .has_routed = step->routed, .nodes = s->n_nodes};
    for (int k = 0; k < N_SETS; k++) {
        t->set[k] = s->n_values;
        OSH_TRY(steps_add_set(cx, s, sets[k]));
    }
    t->set[N_SETS] = s->n_values;
    OSH_TRY(steps_add_nodes(cx, s, step->run, step->n));
    OSH_TRY(steps_add_nodes(cx, s, step->routed, step->n));
    s->n++;
done:
    return rc;
}

/* If the step `s` is the fold pass over the whole range, sets want[w] to true for the weights that
 * the folds multiply. The later passes of the visit then use the multiplied weights in memory. */
static void fold_wants(bool *want, const osh_schedule *p, const osh_range *r, const osh_step *s)
{
    // true if the step has all nodes of the range; otherwise the fold reads the weights from the
    // checkpoint
    bool whole = s->n == r->n_nodes;
    for (int i = 0; s->fold && whole && i < p->rewrites->n_folds; i++)
        for (int k = 0;
             osh_fold_inside(p, r, &p->rewrites->folds[i]) && k < p->rewrites->folds[i].n_takes;
             k++)
            want[p->rewrites->folds[i].takes[k]] = true;
}

void osh_step_wants(bool *want, const osh_schedule *p, const osh_range *r, const osh_step *s)
{
    const osh_graph *g = p->in->graph;
    for (int i = s->first; i < s->first + s->n; i++)
        for (int k = 0; s->run[i - s->first] && k < g->nodes[i].op->n_weights; k++)
            if (g->nodes[i].w[k] >= 0 && !osh_is_picked(g, &g->nodes[i], k))
                want[g->nodes[i].w[k]] = true;
    for (int i = r->l0; s->values && i < r->l1; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (osh_wants(p, l) && s->values[l->input]) want[l->weight] = true;
    }
    fold_wants(want, p, r, s);
}
