/* transforms.c - makes the transform_config of a recipe's rotations. It has the same groups as in
 * llmcompressor/modifiers/transform:
 *
 *   R1  weight_output of embed_tokens, o_proj, down_proj    weight_input (T) of the readers of the
 *                                                           stream
 *   R2  weight_output of v_proj                             weight_input (T) of o_proj
 *   R3  q_attn of self_attn                                 k_cache of self_attn
 *   R4  input of down_proj                                  weight_input (T) of down_proj
 *   v   input of all targets                                weight_input (T) of all targets
 *   u   weight_output of all targets                        output (T) of all targets
 *
 * The first column is the name of the group. The other columns are the two positions at which the
 * group acts. At a position with (T), the transposed matrix acts ("inverse" in config.json). */
#include "rewrite/transforms.h"

#include <assert.h>
#include <string.h>

/* ---- names of targets ---- */

static bool strs_have(const osh_strs *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->items[i], name)) return true;
    return false;
}

/* Adds a target that matches the last part of the module's name. For model.layers.3.mlp.down_proj,
 * the target is "re:.*down_proj$". A name without a dot is itself the target. */
static osh_status target_add(osh_ctx *cx, osh_strs *to, const char *module)
{
    osh_status rc = OSH_OK;
    const char *dot = strrchr(module, '.');
    char *name = dot ? osh_sprintf(cx, "re:.*%s$", dot + 1) : osh_strdup(cx, module); // own
    if (!name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a target");
    if (strs_have(to, name)) goto done;
    char **grown = osh_realloc(cx, to->items, (to->n + 1) * sizeof *grown);
    if (!grown) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a target");
    to->items = grown;
    grown[to->n++] = name, name = NULL; // passes ownership
done:
    osh_free(cx, name);
    return rc;
}

/* Adds targets for the nodes i for which nodes[i] is true. The names in `first` come first, as in
 * LLM Compressor. Other names are in the order of the modules. */
static osh_status targets_of_nodes(osh_ctx *cx, osh_strs *to, const osh_graph *g, const bool *nodes)
{
    static const char *const first[] = {"q_proj", "k_proj", "v_proj", "up_proj"};
    osh_status rc = OSH_OK;
    for (size_t k = 0; k <= sizeof first / sizeof *first; k++)
        for (int i = 0; i < g->n_modules; i++) {
            const osh_module *m = &g->modules[i];
            const char *dot = strrchr(m->name, '.'), *last = dot ? dot + 1 : m->name;
            bool all = k == sizeof first / sizeof *first;
            if (m->node >= 0 && nodes[m->node] && (all || !strcmp(last, first[k])))
                OSH_TRY(target_add(cx, to, m->name));
        }
    // The module of an attention contains other modules, so the loop above does not find it.
    for (int i = 0; i < g->n_nodes; i++)
        if (nodes[i] && osh_node_is(&g->nodes[i], OSH_OP_ATTENDS))
            OSH_TRY(target_add(cx, to, g->modules[g->nodes[i].module].name));
done:
    return rc;
}

/* ---- groups of transform_config ---- */

typedef struct grouping {
    osh_rewrites *p;
    const osh_turned *t;
    /* values: true for each v_proj.
     * contexts: true for each o_proj.
     * wide: true for each down_proj.
     * attends: true for each attention. */
    bool *values, *contexts, *wide, *attends; // own [nodes]
} grouping;

static osh_status grouping_add(osh_ctx *cx, const grouping *d, const char *name, int64_t block,
                               osh_q_transform **out)
{
    osh_q_transforms *all = &d->p->rotated->transforms;
    osh_status rc = osh_q_transforms_add(cx, all, name, d->t->args->type, block, d->t->args->f32);
    if (!rc) *out = &all->of[all->n - 1];
    return rc;
}

typedef struct place {
    osh_q_place at;
    bool inverse;
} place;

static osh_status grouping_add_positions(osh_ctx *cx, const grouping *d, osh_q_transform *to,
                                         const place *at, const bool *const *of)
{
    osh_status rc = OSH_OK;
    osh_strs names = {0}, none = {0}; // own
    for (int k = 0; k < 2; k++) {
        osh_strs_deinit(cx, &names);
        OSH_TRY(targets_of_nodes(cx, &names, d->p->in->graph, of[k]));
        OSH_TRY(osh_q_apply_add(cx, to, at[k].at, at[k].inverse, &names, &none));
    }
done:
    osh_strs_deinit(cx, &names);
    return rc;
}

static osh_status groups_of_spinquant(osh_ctx *cx, const grouping *d)
{
    static const place folded[] = {{OSH_AT_WEIGHT_OUTPUT, false}, {OSH_AT_WEIGHT_INPUT, true}};
    static const place heads[] = {{OSH_AT_QUERIES, false}, {OSH_AT_KEYS, false}};
    static const place acts[] = {{OSH_AT_INPUT, false}, {OSH_AT_WEIGHT_INPUT, true}};
    osh_status rc = OSH_OK;
    const osh_rotate *a = d->t->args;
    osh_q_transform *to = NULL;
    for (int i = 0; i < d->p->rotated->n; i++) {
        bool r1 = !strcmp(d->p->rotated->names[i], "R1");
        const bool *of[] = {r1 ? d->t->makes : d->values, r1 ? d->t->reads : d->contexts};
        OSH_TRY(grouping_add(cx, d, d->p->rotated->names[i], r1 ? a->block : d->p->rotated->of[i].n,
                             &to));
        OSH_TRY(grouping_add_positions(cx, d, to, folded, of));
    }
    if (a->which & OSH_ROTATE_R3) {
        OSH_TRY(grouping_add(cx, d, "R3", osh_head_dim(d->p->in->graph), &to));
        OSH_TRY(grouping_add_positions(cx, d, to, heads,
                                       (const bool *const[]){d->attends, d->attends}));
    }
    if (a->which & OSH_ROTATE_R4) {
        OSH_TRY(grouping_add(cx, d, "R4", a->block, &to));
        OSH_TRY(grouping_add_positions(cx, d, to, acts, (const bool *const[]){d->wide, d->wide}));
    }
done:
    return rc;
}

static osh_status groups_of_quip(osh_ctx *cx, const grouping *d)
{
    static const place of_v[] = {{OSH_AT_INPUT, false}, {OSH_AT_WEIGHT_INPUT, true}};
    static const place of_u[] = {{OSH_AT_WEIGHT_OUTPUT, false}, {OSH_AT_OUTPUT, true}};
    osh_status rc = OSH_OK;
    const osh_rotate *a = d->t->args;
    for (int i = 0; i < 2; i++) {
        osh_q_transform *to = NULL;
        if (!(a->which & (i ? OSH_ROTATE_U : OSH_ROTATE_V))) continue;
        OSH_TRY(grouping_add(cx, d, i ? "u" : "v", a->block, &to));
        for (int k = 0; k < 2; k++) {
            const place *at = i ? &of_u[k] : &of_v[k];
            OSH_TRY(osh_q_apply_add(cx, to, at->at, at->inverse, &a->targets, &a->ignore));
        }
    }
done:
    return rc;
}

static void grouping_mark_nodes(grouping *d)
{
    const osh_graph *g = d->p->in->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const osh_node *n = &g->nodes[i];
        d->attends[i] = osh_node_is(n, OSH_OP_ATTENDS);
        int from = osh_node_is(n, OSH_OP_ATTENDS) ? g->values[n->in[2]].producer : -1;
        int to = osh_node_is(n, OSH_OP_ATTENDS) ? g->values[n->out[0]].first_use : -1;
        if (from >= 0) d->values[from] = true;
        if (to >= 0) d->contexts[to] = true;
        from = osh_node_is(n, OSH_OP_LINEAR) ? g->values[n->in[0]].producer : -1;
        d->wide[i] = from >= 0 && osh_node_is(&g->nodes[from], OSH_OP_ACTIVATES);
    }
}

/* ---- checks ---- */

static osh_status turn_refuse(osh_ctx *cx, const grouping *d, const osh_online_turn *t,
                              const char *why)
{
    const osh_rotated *r = d->p->rotated;
    const osh_graph *g = d->p->in->graph;
    return osh_fail(cx, OSH_E_UNSUPPORTED, "%s: %s acts on %s while the model runs, and %s",
                    d->t->modifier, r->transforms.of[r->online.matrices[t->matrix].group].name,
                    g->modules[g->nodes[t->node].module].name, why);
}

static bool rotates_input(const osh_online *o, int node)
{
    for (int i = 0; i < o->n_turns; i++)
        if (o->turns[i].node == node && !o->turns[i].output) return true;
    return false;
}

static osh_status turn_check(osh_ctx *cx, const grouping *d, const osh_online_turn *t)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = d->p->in->graph;
    const osh_node *n = &g->nodes[t->node];
    int64_t size = d->p->rotated->online.matrices[t->matrix].n;
    if (osh_node_is(n, OSH_OP_ATTENDS) && ((const osh_attention_attr *)n->attr)->head_dim != size)
        OSH_FAIL(
            cx, OSH_E_UNSUPPORTED,
            "%s: R3 rotates heads of %ld channels, and the heads of %s have %ld: want one size",
            d->t->modifier, (long)size, g->modules[n->module].name,
            (long)((const osh_attention_attr *)n->attr)->head_dim);
    if (osh_node_is(n, OSH_OP_ATTENDS)) goto done;
    if (t->node == g->head)
        OSH_TRY(turn_refuse(cx, d, t,
                            "no loader rotates the input of the output head: want it in ignore"));
    if (n->op->n_weights > 1 && n->w[1] >= 0)
        OSH_TRY(turn_refuse(
            cx, d, t,
            "vLLM does not rotate at a Linear with a bias: want it in ignore"));
    if (strstr(g->modules[n->module].name, ".experts."))
        OSH_TRY(turn_refuse(
            cx, d, t,
            "the kernels of vLLM for experts do not rotate: want it in ignore, and no R4"));
    for (int i = 0; i < g->n_nodes && !t->output; i++) {
        const osh_node *other = &g->nodes[i];
        if (osh_node_is(other, OSH_OP_LINEAR) && other->in[0] == n->in[0] &&
            !rotates_input(&d->p->rotated->online, i))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: %s and %s have the same input, but only the second rotates it while the "
                     "model runs: vLLM runs both as one, so want both as targets, or none of them",
                     d->t->modifier, g->modules[other->module].name, g->modules[n->module].name);
    }
done:
    return rc;
}

static osh_status turns_check(osh_ctx *cx, const grouping *d)
{
    osh_status rc = OSH_OK;
    const osh_online *o = &d->p->rotated->online;
    int wanted = 0;
    if (!o->n_turns)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: the rotations that run with the model match no Linear and no attention of %s",
                 d->t->modifier, d->p->in->ck->dir);
    for (int i = 0; i < o->n_turns; i++) OSH_TRY(turn_check(cx, d, &o->turns[i]));
    if (!(d->t->args->which & (OSH_ROTATE_R3 | OSH_ROTATE_R4))) goto done;
    for (int i = 0; i < d->p->in->graph->n_nodes; i++) {
        if (d->t->args->which & OSH_ROTATE_R3) wanted += 2 * d->attends[i];
        if (d->t->args->which & OSH_ROTATE_R4) wanted += d->wide[i];
    }
    for (int i = 0; i < o->n_turns; i++)
        if (!d->attends[o->turns[i].node] && !d->wide[o->turns[i].node])
            OSH_TRY(turn_refuse(cx, d, &o->turns[i], "another layer has the same name"));
    assert(wanted == o->n_turns);
done:
    return rc;
}

/* ---- tensors with the matrices ---- */

static osh_status matrix_make_rows(osh_ctx *cx, void *to, void *user, const osh_entry *e,
                                   int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_online_matrix *m = user;
    double *row = NULL; // own [m->n]: one row of the matrix, in F64
    if (e->dtype == OSH_F64) {
        osh_rotation_rows(to, &m->r, first, n);
        goto done;
    }
    OSH_NEW(cx, row, m->n);
    for (int64_t i = 0; i < n; i++) {
        osh_rotation_rows(row, &m->r, first + i, 1);
        for (int64_t k = 0; k < m->n; k++) ((float *)to)[i * m->n + k] = (float)row[k];
    }
done:
    osh_free(cx, row);
    return rc;
}

static osh_status matrices_add_tensors(osh_ctx *cx, const grouping *d)
{
    osh_status rc = OSH_OK;
    osh_rewrites *p = d->p;
    const osh_online *o = &p->rotated->online;
    for (int i = 0; i < o->n_matrices; i++) {
        osh_online_matrix *m = &o->matrices[i];
        if (osh_checkpoint_find(p->in->ck, m->name))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s has %s already", p->in->ck->dir, m->name);
        m->tensor = p->in->ck->n_tensors;
        osh_entry like = {
            .dtype = d->t->args->f32 ? OSH_F32 : OSH_F64, .ndim = 2, .shape = {m->n, m->n}};
        OSH_TRY(osh_checkpoint_add_virtual(cx, p->in->ck, m->name, &like, matrix_make_rows, m));
    }
done:
    return rc;
}

osh_status osh_plan_transforms(osh_ctx *cx, osh_rewrites *p, const osh_turned *t)
{
    osh_status rc = OSH_OK;
    grouping d = {.p = p, .t = t};
    osh_rotated *r = p->rotated;
    if (!(t->args->which & OSH_ROTATE_ONLINE)) goto done;
    OSH_NEW(cx, d.values, p->in->graph->n_nodes);
    OSH_NEW(cx, d.contexts, p->in->graph->n_nodes);
    OSH_NEW(cx, d.wide, p->in->graph->n_nodes);
    OSH_NEW(cx, d.attends, p->in->graph->n_nodes);
    grouping_mark_nodes(&d);
    OSH_TRY((t->args->which & (OSH_ROTATE_R3 | OSH_ROTATE_R4)
                 ? groups_of_spinquant : groups_of_quip)(cx, &d));
    OSH_TRY(osh_online_find(cx, &r->online, p->in->graph, p->in->ck, &r->transforms,
                            &t->args->seed));
    OSH_TRY(turns_check(cx, &d));
    OSH_TRY(matrices_add_tensors(cx, &d));
done:
    osh_free(cx, d.values);
    osh_free(cx, d.contexts);
    osh_free(cx, d.wide);
    osh_free(cx, d.attends);
    return rc;
}

bool osh_online_attends(const osh_rewrites *p)
{
    for (int i = 0; p->rotated && i < p->rotated->online.n_matrices; i++)
        if (osh_q_place_attends(p->rotated->online.matrices[i].at)) return true;
    return false;
}

void osh_online_warn(osh_ctx *cx, const osh_rewrites *p)
{
    if (!p->rotated || !p->rotated->online.n_turns) return;
    osh_buf b;
    osh_buf_init(&b, 0);
    const osh_q_transforms *t = &p->rotated->transforms;
    bool fixed = false;
    for (size_t i = 0; i < t->n; i++) {
        const osh_q_transforms one = {.of = &t->of[i], .n = 1};
        if (!osh_q_transforms_act(&one) || osh_q_place_attends(t->of[i].apply[0].at)) continue;
        fixed |= !strcmp(t->of[i].type, "hadamard");
        osh_buf_printf(cx, &b, "%s%s", b.len ? " and " : "", t->of[i].name);
    }
    if (osh_online_attends(p))
        osh_log(cx, OSH_LOG_WARN,
                "R3: queries and keys are rotated while the model runs. vLLM cannot rotate them. "
                "transformers loads the model without the rotation and gives the same output%s",
                !p->match->cache.present
                    ? ""
                    : ", but the scales of keys do not fit the keys that it caches");
    if (b.len)
        osh_log(cx, OSH_LOG_WARN,
                "%s: rotated while the model runs. vLLM supports this rotation on one NVIDIA "
                "GPU%s, but its CPU build stops. transformers loads the model without the "
                "rotation, and its output is noise",
                b.data, fixed ? " by its Hadamard kernel" : "");
    osh_buf_deinit(cx, &b);
}
