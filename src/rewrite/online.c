/* online.c - finds the rotations that act while the model runs, and inserts nodes for them into a
 * graph. */
#include "rewrite/online.h"

#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "graph/insert.h"

typedef struct finding {
    osh_online *o;
    const osh_graph *g;
    const osh_checkpoint *ck;
    const osh_q_transforms *t;
    const int64_t *seed;
} finding;

/* Searches the checkpoint for a tensor [n, n] whose name ends with `leaf`. Returns the index of the
 * tensor, or -1 if there is none. All modules of a group store equal matrices, so the first such
 * tensor is returned. */
static int64_t stored_matrix(const finding *f, const char *leaf, int64_t n)
{
    for (int64_t i = 0; i < f->ck->n_tensors; i++) {
        const osh_entry *e = f->ck->tensors[i].e;
        if (osh_ends_with(e->name, strlen(e->name), leaf) && e->ndim == 2 && e->shape[0] == n &&
            e->shape[1] == n && osh_dtype_is_float(e->dtype))
            return i;
    }
    return -1;
}

static osh_status matrix_new(osh_ctx *cx, const finding *f, osh_online_matrix *m,
                             const char *module)
{
    osh_status rc = OSH_OK;
    const osh_q_transform *t = &f->t->of[m->group];
    bool fixed = !strcmp(t->type, "hadamard");
    char *leaf = osh_sprintf(cx, ".%s_%s.weight", t->name, osh_q_place_name(m->at)); // own
    m->name = leaf ? osh_sprintf(cx, "%s%s", module, leaf) : NULL;
    if (!m->name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of a matrix");
    if (fixed || f->seed) {
        OSH_TRY(osh_rotation_init(cx, &m->r,
                                  fixed ? OSH_ROTATION_HADAMARD : OSH_ROTATION_RANDOM_HADAMARD,
                                  m->n, f->seed ? (uint64_t)*f->seed : 0, module));
    } else if ((m->tensor = stored_matrix(f, leaf, m->n)) < 0) {
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: want a tensor *%s of [%lld, %lld], because it rotates %s",
                 f->ck->dir, leaf, (long long)m->n, (long long)m->n, module);
    }
done:
    osh_free(cx, leaf);
    return rc;
}

static osh_status matrix_find(osh_ctx *cx, const finding *f, int *index,
                              const osh_online_matrix *like, const char *module)
{
    osh_status rc = OSH_OK;
    osh_online *o = f->o;
    for (*index = 0; *index < o->n_matrices; ++*index) {
        const osh_online_matrix *m = &o->matrices[*index];
        // the queries and the keys of a group share a matrix
        if (m->group == like->group && m->n == like->n) goto done;
    }
    osh_online_matrix *grown =
        osh_realloc(cx, o->matrices, (size_t)(o->n_matrices + 1) * sizeof *grown);
    if (!grown) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a matrix");
    o->matrices = grown;
    grown[o->n_matrices] = *like;
    OSH_TRY(matrix_new(cx, f, &grown[o->n_matrices++], module));
done:
    return rc;
}

/* One place where a group of transform_config acts: input, output, queries or keys of modules. */
typedef struct placing {
    int group;
    const osh_q_apply *of;
    osh_matcher *targets, *ignore; // own
} placing;

/* Adds a rotation if a target matches the node's module. The rotation applies to an input or to the
 * output of the node, which must be a Linear or an attention. */
static osh_status placing_match_node(osh_ctx *cx, const finding *f, const placing *by, int node)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = f->g;
    const osh_node *n = &g->nodes[node];
    const osh_module *m = &g->modules[n->module];
    const osh_q_transform *t = &f->t->of[by->group];
    bool output = by->of->at == OSH_AT_OUTPUT;
    int in = by->of->at == OSH_AT_KEYS;
    int64_t hit = -1, spared = -1, width = g->values[output ? n->out[0] : n->in[in]].width;
    OSH_TRY(osh_matcher_find(cx, &hit, by->targets, m->name, m->cls));
    OSH_TRY(osh_matcher_find(cx, &spared, by->ignore, m->name, m->cls));
    if (hit < 0 || spared >= 0) goto done;
    if (t->block && width % t->block)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: %s has %lld channels, and blocks of %lld do not divide them",
                 t->name, m->name, (long long)width, (long long)t->block);
    osh_online_turn *to = &f->o->turns[f->o->n_turns];
    *to =
        (osh_online_turn){.node = node, .in = in, .output = output, .transposed = by->of->inverse};
    const osh_online_matrix like = {
        .group = by->group, .at = by->of->at, .n = t->block ? t->block : width, .tensor = -1};
    OSH_TRY(matrix_find(cx, f, &to->matrix, &like, m->name));
    f->o->n_turns++;
done:
    return rc;
}

static osh_status placing_find(osh_ctx *cx, const finding *f, int group, const osh_q_apply *a)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = f->g;
    placing by = {.group = group, .of = a};
    bool attends = osh_q_place_attends(a->at);
    OSH_TRY(osh_matcher_new(cx, &by.targets, (const char *const *)a->targets.items, a->targets.n));
    OSH_TRY(osh_matcher_new(cx, &by.ignore, (const char *const *)a->ignore.items, a->ignore.n));
    for (int i = 0; i < g->n_modules && !attends; i++)
        if (g->modules[i].node >= 0 && osh_node_is(&g->nodes[g->modules[i].node], OSH_OP_LINEAR))
            OSH_TRY(placing_match_node(cx, f, &by, g->modules[i].node));
    for (int i = 0; i < g->n_nodes && attends; i++)
        if (osh_node_is(&g->nodes[i], OSH_OP_ATTENDS)) OSH_TRY(placing_match_node(cx, f, &by, i));
done:
    osh_matcher_free(cx, by.targets);
    osh_matcher_free(cx, by.ignore);
    return rc;
}

static int compare_turns(const void *a, const void *b)
{
    const osh_online_turn *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return x->output != y->output ? (int)x->output - (int)y->output : x->in - y->in;
}

static osh_status turns_check_once(osh_ctx *cx, const finding *f)
{
    osh_status rc = OSH_OK;
    const osh_online_turn *t = f->o->turns;
    for (int i = 1; i < f->o->n_turns; i++)
        if (!compare_turns(&t[i], &t[i - 1]))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "transform_config: %s and %s both rotate the %s of %s: want one of them",
                     f->t->of[f->o->matrices[t[i - 1].matrix].group].name,
                     f->t->of[f->o->matrices[t[i].matrix].group].name,
                     t[i].output ? "output" : "input",
                     f->g->modules[f->g->nodes[t[i].node].module].name);
done:
    return rc;
}

osh_status osh_online_find(osh_ctx *cx, osh_online *o, const osh_graph *g, const osh_checkpoint *ck,
                           const osh_q_transforms *t, const int64_t *seed)
{
    osh_status rc = OSH_OK;
    finding f = {o, g, ck, t, seed};
    int places = 0;
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->of[i].n; k++) places += osh_q_place_acts(t->of[i].apply[k].at);
    OSH_NEW(cx, o->turns, (int64_t)places * g->n_modules);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->of[i].n; k++)
            if (osh_q_place_acts(t->of[i].apply[k].at))
                OSH_TRY(placing_find(cx, &f, (int)i, &t->of[i].apply[k]));
    if (o->n_turns) qsort(o->turns, (size_t)o->n_turns, sizeof *o->turns, compare_turns);
    OSH_TRY(turns_check_once(cx, &f));
done:
    return rc;
}

/* Looks for a rotation with an index below i that rotates the same input value as rotation i, by
 * the same matrix. Returns its index, or -1 if there is none. */
static int turn_find_same(const osh_online *o, const osh_graph *g, int i)
{
    const osh_online_turn *t = &o->turns[i];
    for (int k = i - 1; k >= 0 && !t->output; k--) {
        const osh_online_turn *u = &o->turns[k];
        if (!u->output && u->matrix == t->matrix && u->transposed == t->transposed &&
            g->nodes[u->node].in[u->in] == g->nodes[t->node].in[t->in])
            return k;
    }
    return -1;
}

static osh_status matrix_weight(osh_ctx *cx, int *weight, int *of, const osh_online_matrix *m,
                                osh_graph *g, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    if (*of < 0 && !m->r.n) OSH_TRY(osh_graph_add_weight(cx, g, of, ck, m->tensor));
    *weight = *of;
done:
    return rc;
}

osh_status osh_online_insert(osh_ctx *cx, const osh_online *o, osh_graph *g,
                             const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    osh_insertion *list = NULL; // own
    int *weights = NULL; // own [matrices]: index of each matrix in the graph's weights; -1: none
    if (!o->n_turns) goto done;
    OSH_NEW(cx, list, o->n_turns);
    OSH_NEW(cx, weights, o->n_matrices);
    for (int m = 0; m < o->n_matrices; m++) weights[m] = -1;
    for (int i = 0; i < o->n_turns; i++) {
        const osh_online_turn *t = &o->turns[i];
        const osh_online_matrix *m = &o->matrices[t->matrix];
        list[i] = (osh_insertion){.node = t->node, .in = t->in, .after = t->output,
                                  .op = &osh_op_rotate, .weight = -1,
                                  .same_as = turn_find_same(o, g, i)};
        if (list[i].same_as >= 0) continue;
        OSH_TRY(matrix_weight(cx, &list[i].weight, &weights[t->matrix], m, g, ck));
        osh_rotate_attr *at = NULL; // own
        OSH_NEW(cx, at, 1);
        *at = (osh_rotate_attr){.n = m->n, .r = m->r.n ? &m->r : NULL, .transposed = t->transposed};
        list[i].attr = at; // passes ownership
    }
    // on success, osh_graph_insert takes all attributes, and sets each `attr` in the list to NULL;
    // after a failure, the loop below frees the attributes
    rc = osh_graph_insert(cx, g, list, o->n_turns);
done:
    for (int i = 0; list && i < o->n_turns; i++) osh_free(cx, list[i].attr);
    osh_free(cx, list);
    osh_free(cx, weights);
    return rc;
}

void osh_online_deinit(osh_ctx *cx, osh_online *o)
{
    for (int i = 0; i < o->n_matrices; i++) {
        osh_free(cx, o->matrices[i].name);
        if (o->matrices[i].r.n) osh_rotation_deinit(cx, &o->matrices[i].r);
    }
    osh_free(cx, o->matrices);
    osh_free(cx, o->turns);
    *o = (osh_online){0};
}
