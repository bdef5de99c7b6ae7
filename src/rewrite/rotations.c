/* rotations.c - finds the residual stream in the graph, and registers how rotations change weights.
 * The formulas are in rotations.h. */
#include "rewrite/rotations.h"

#include <string.h>

#include "modifiers/rotate.h"
#include "rewrite/transforms.h"

typedef struct turning {
    osh_rewrites *p;
    osh_inputs *in;  // if the output head gets its own weight, in->graph is replaced
    const osh_modifier *m;
    const osh_rotate *args;
    bool *residual; // own [graph values]: true for values of the residual stream
    /* For each value that a norm of the residual stream computes: index of the norm's node. For all
     * other values -1. */
    int *normed;    // own [graph values]
    bool *outs;     // own [nodes]: true for Linears whose output is added to the residual stream
    /* views: rotations R1 and R2; NULL: the recipe does not have the rotation */
    const osh_rotation *r1, *r2;
} turning;

static const char *turning_module(const turning *t, const osh_node *n)
{
    const char *name = t->p->in->graph->modules[n->module].name;
    return *name ? name : "the model";
}

static osh_status stream_refuse_node(osh_ctx *cx, const turning *t, const osh_node *n,
                                     const char *why)
{
    return osh_fail(cx, OSH_E_UNSUPPORTED, "%s: the residual stream cannot be rotated: %s (%s) %s",
                    t->m->type->name, turning_module(t, n), n->op->name, why);
}

/* ---- the residual stream ---- */

/* Finds the Linears that compute `value`, which is added to the residual stream. Sets t->outs for
 * these Linears. */
static osh_status stream_follow_outs(osh_ctx *cx, turning *t, int value)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = t->p->in->graph;
    int at = g->values[value].producer;
    const osh_node *n = at < 0 ? NULL : &g->nodes[at];
    if (!n) OSH_FAIL(cx, OSH_E_INTERNAL, "no node computes %s", g->values[value].name);
    if (g->values[value].first_use != g->values[value].last_use)
        OSH_TRY(stream_refuse_node(cx, t, n,
                                   "computes a value that is added to it and also read elsewhere"));
    if (osh_node_is(n, OSH_OP_LINEAR)) {
        t->outs[at] = true;
    } else if (osh_node_is(n, OSH_OP_SCALES)) {
        OSH_TRY(stream_follow_outs(cx, t, n->in[0]));
    /* in[0] of a gate is not rotated, because it has one number per token */
    } else if (osh_node_is(n, OSH_OP_GATES)) {
        OSH_TRY(stream_follow_outs(cx, t, n->in[1]));
    } else if (osh_node_is(n, OSH_OP_ADDS | OSH_OP_COMBINES)) {
        OSH_TRY(stream_follow_outs(cx, t, n->in[0]));
        OSH_TRY(stream_follow_outs(cx, t, n->in[1]));
    } else if (!osh_node_is(n, OSH_OP_ZEROS)) {
        OSH_TRY(stream_refuse_node(cx, t, n, "is between a Linear and the residual stream"));
    }
done:
    return rc;
}

static osh_status stream_mark_node(osh_ctx *cx, turning *t, const osh_node *n)
{
    osh_status rc = OSH_OK;
    int n_residual = 0, n_normed = 0, norm = -1, out = n->out[0];
    for (int k = 0; k < n->op->n_in; k++) {
        if (n->in[k] < 0) continue;
        n_residual += t->residual[n->in[k]];
        if (t->normed[n->in[k]] >= 0) n_normed++, norm = t->normed[n->in[k]];
    }
    if (osh_node_is(n, OSH_OP_LOOKUP) && n->out[0] >= 0) {
        t->residual[out] = true;
    } else if (osh_node_is(n, OSH_OP_ZEROS) || !(n_residual + n_normed)) {
        goto done;
    } else if (osh_node_is(n, OSH_OP_ADDS) && n_residual && !n_normed) {
        for (int k = 0; k < 2; k++)
            if (!t->residual[n->in[k]]) OSH_TRY(stream_follow_outs(cx, t, n->in[k]));
        t->residual[out] = true;
    } else if (osh_node_is(n, OSH_OP_SCALES)) {
        t->residual[out] = n_residual > 0, t->normed[out] = norm;
    } else if (osh_node_is(n, OSH_OP_CENTRES)) {
        OSH_TRY(stream_refuse_node(cx, t, n, "subtracts means, and a rotation changes the means"));
    } else if (osh_node_is(n, OSH_OP_NORM) && n_residual && !osh_node_norm(n).head_dim) {
        t->normed[out] = (int)(n - t->p->in->graph->nodes);
    } else if (!osh_node_is(n, OSH_OP_COLUMNS) || n_residual) {
        OSH_TRY(stream_refuse_node(cx, t, n, "reads it"));
    }
done:
    return rc;
}

/* ---- changes of weights ---- */

static osh_status rotation_add_step(osh_ctx *cx, const turning *t, int weight, const osh_rewrite *w)
{
    osh_status rc = OSH_OK;
    osh_rewrites *p = t->p;
    int64_t tensor = p->in->graph->weights[weight].tensor;
    if (p->in->graph->weights[weight].part)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %s is a part of a tensor that must not change",
                 t->m->type->name, p->in->graph->weights[weight].name);
    OSH_TRY(osh_checkpoint_rewrite(cx, p->in->ck, tensor, w));
    p->rotated->n_weights += !p->folded[tensor];
    p->folded[tensor] = true;
done:
    return rc;
}

/* Registers the rotation of a Linear's output by the matrix M: the weight W becomes M^T W, and the
 * bias b becomes M^T b. */
static osh_status rotate_output(osh_ctx *cx, const turning *t, const osh_node *n,
                                const osh_rotation *r)
{
    osh_status rc = OSH_OK;
    osh_rewrite w = {.kind = OSH_REWRITE_COLUMNS, .r = r};
    for (int k = 0; k < n->op->n_weights; k++)
        if (n->w[k] >= 0) OSH_TRY(rotation_add_step(cx, t, n->w[k], &w));
done:
    return rc;
}

static osh_status rotate_input(osh_ctx *cx, const turning *t, const osh_node *n,
                               const osh_rotation *r)
{
    return rotation_add_step(cx, t, n->w[0], &(osh_rewrite){.kind = OSH_REWRITE_ROWS, .r = r});
}

static osh_status rotation_fuse_norm(osh_ctx *cx, const turning *t, const osh_node *n)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = t->p->in->graph;
    const osh_node *norm = &g->nodes[t->normed[n->in[0]]];
    double offset = ((const osh_rms_norm_attr *)norm->attr)->offset;
    if (norm->w[0] < 0) goto done;
    osh_rewrite w = {
        .kind = OSH_REWRITE_NORM, .norm = g->weights[norm->w[0]].tensor, .value = offset};
    OSH_TRY(rotation_add_step(cx, t, n->w[0], &w));
    if (t->p->folded[w.norm]) goto done;
    OSH_TRY(rotation_add_step(cx, t, norm->w[0],
                              &(osh_rewrite){.kind = OSH_REWRITE_FILL, .value = 1 - offset}));
done:
    return rc;
}

/* Registers the changes that R1 makes, in the order of LLM Compressor. First come embeddings and
 * norms, then the Linears that add to the residual stream, then the Linears that read it. */
static osh_status rotate_stream(osh_ctx *cx, turning *t)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = t->p->in->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const osh_node *n = &g->nodes[i];
        if (osh_node_is(n, OSH_OP_LOOKUP)) {
            if (t->args->centre)
                OSH_TRY(
                    rotation_add_step(cx, t, n->w[0], &(osh_rewrite){.kind = OSH_REWRITE_CENTRE}));
            if (t->r1) OSH_TRY(rotate_input(cx, t, n, t->r1));
        }
        if (osh_node_is(n, OSH_OP_COLUMNS) && t->normed[n->in[0]] >= 0)
            OSH_TRY(rotation_fuse_norm(cx, t, n));
    }
    for (int i = 0; i < g->n_nodes && t->r1; i++)
        if (t->outs[i]) OSH_TRY(rotate_output(cx, t, &g->nodes[i], t->r1));
    for (int i = 0; i < g->n_nodes && t->r1; i++) {
        const osh_node *n = &g->nodes[i];
        if (osh_node_is(n, OSH_OP_COLUMNS) && t->normed[n->in[0]] >= 0)
            OSH_TRY(rotate_input(cx, t, n, t->r1));
    }
done:
    return rc;
}

static osh_status rotation_refuse_values(osh_ctx *cx, const turning *t, const osh_node *n)
{
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s: R2 cannot rotate the values of %s: the values must come from one Linear "
                    "and go through the attention to another Linear",
                    t->m->type->name, turning_module(t, n));
}

static osh_status rotate_values(osh_ctx *cx, turning *t)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = t->p->in->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const osh_node *n = &g->nodes[i];
        if (!osh_node_is(n, OSH_OP_ATTENDS)) continue;
        const osh_value *v = &g->values[n->in[2]], *c = &g->values[n->out[0]];
        const osh_node *from = v->producer < 0 ? n : &g->nodes[v->producer];
        const osh_node *to = c->first_use < 0 ? n : &g->nodes[c->first_use];
        bool right = osh_node_is(from, OSH_OP_LINEAR) && osh_node_is(to, OSH_OP_LINEAR) &&
                     c->last_use == c->first_use;
        if (!right || v->first_use != i || v->last_use != i || n->in[0] == n->in[2] ||
            n->in[1] == n->in[2] || v->width % t->r2->n || c->width % t->r2->n)
            OSH_TRY(rotation_refuse_values(cx, t, n));
        OSH_TRY(rotate_output(cx, t, from, t->r2));
        OSH_TRY(rotate_input(cx, t, to, t->r2));
    }
done:
    return rc;
}

/* ---- matrices ---- */

int64_t osh_head_dim(const osh_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (osh_node_is(&g->nodes[i], OSH_OP_ATTENDS))
            return ((const osh_attention_attr *)g->nodes[i].attr)->head_dim;
    return 0;
}

static osh_status rotation_make(osh_ctx *cx, turning *t, const osh_rotation **out, int64_t n,
                                const char *what)
{
    osh_status rc = OSH_OK;
    osh_rotated *r = t->p->rotated;
    osh_rotation *one = &r->of[r->n];
    rc = osh_rotation_init(cx, one, osh_rotate_kind(t->args), n, (uint64_t)t->args->seed, what);
    if (rc == OSH_E_USAGE && n > 0 && !strcmp(what, "R1"))
        osh_note(cx, "transform_block_size is not given; %ld divides them", (long)(n & -n));
    if (rc) osh_note(cx, "making the rotation of %s", t->m->type->name);
    if (rc) goto done;
    r->names[r->n++] = what;
    *out = one;
done:
    return rc;
}

static osh_status rotations_make(osh_ctx *cx, turning *t)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = t->p->in->graph;
    int64_t D = g->values[g->hidden].width, block = t->args->block ? t->args->block : D;
    OSH_NEW(cx, t->p->rotated->of, 2);
    if (D % block)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: transform_block_size %ld does not divide the hidden size %ld",
                 t->m->type->name, (long)block, (long)D);
    if (t->args->which & OSH_ROTATE_R1) OSH_TRY(rotation_make(cx, t, &t->r1, block, "R1"));
    if (t->args->which & OSH_ROTATE_R2)
        OSH_TRY(rotation_make(cx, t, &t->r2, osh_head_dim(g), "R2"));
done:
    return rc;
}

/* ---- checks and preparation ---- */

/* Fails if the source has a weight that no node of the graph uses, such as a weight of a vision
 * tower or of a head for multi-token prediction. The module of such a weight may read the residual
 * stream, so the weight would also have to be rotated. */
static osh_status rotation_check_strangers(osh_ctx *cx, const turning *t)
{
    osh_status rc = OSH_OK;
    const osh_rewrites *p = t->p;
    bool *known = NULL; // own [source tensors]: true if a weight of the graph is the tensor
    if (p->in->graph->wrapped)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: %s has a tower whose outputs join the residual stream: rotations of such "
                 "models are not supported",
                 t->m->type->name, p->in->ck->dir);
    OSH_NEW(cx, known, p->in->ck->n_tensors);
    for (int w = 0; w < p->in->graph->n_weights; w++)
        if (p->in->graph->weights[w].tensor >= 0) known[p->in->graph->weights[w].tensor] = true;
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++)
        if (!known[i] && p->in->ck->tensors[i].e->ndim > 1)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: %s is not in the architecture's template and would read a rotated stream",
                     t->m->type->name, p->in->ck->tensors[i].e->name);
done:
    osh_free(cx, known);
    return rc;
}

/* If the head shares the weight of the embedding, gives the head a weight of its own, under the
 * head's name. A source may have a tensor for the head although its config ties the head. Then that
 * tensor becomes the weight of the head, and is written to the output. */
static osh_status rotation_untie_head(osh_ctx *cx, turning *t)
{
    osh_status rc = OSH_OK;
    osh_rewrites *p = t->p;
    const osh_graph *g = p->in->graph;
    char *name = osh_sprintf(cx, "%s.weight", g->modules[g->nodes[g->head].module].name); // own
    const osh_weight *w = &g->weights[g->nodes[g->head].w[0]];
    if (!name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a tensor's name");
    OSH_TRY(osh_graph_need_head(cx, g, p->in->ck, "rotations"));
    bool tied = false;
    for (int i = 0; i < g->n_nodes; i++)
        tied |= osh_node_is(&g->nodes[i], OSH_OP_LOOKUP) && &g->weights[g->nodes[i].w[0]] == w;
    p->rotated->untied = tied || p->in->ck->config->tie_word_embeddings;
    if (!tied) goto done;
    OSH_TRY(osh_checkpoint_add_alias(cx, p->in->ck, name, w->tensor));
    osh_graph_free(cx, t->in->graph), t->in->graph = NULL;
    OSH_TRY(osh_graph_new(cx, &t->in->graph, p->in->ck, p->in->opt->models_dir));
done:
    osh_free(cx, name);
    return rc;
}

/* Finds the nodes that add to the residual stream, and the nodes that read it. Makes
 * transform_config from these nodes. */
static osh_status online_nodes_find(osh_ctx *cx, turning *t)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = t->p->in->graph;
    bool *makes = NULL, *reads = NULL; // own [nodes]
    OSH_NEW(cx, makes, g->n_nodes);
    OSH_NEW(cx, reads, g->n_nodes);
    for (int i = 0; i < g->n_nodes && t->normed; i++) {
        makes[i] = t->outs[i] || osh_node_is(&g->nodes[i], OSH_OP_LOOKUP);
        reads[i] = osh_node_is(&g->nodes[i], OSH_OP_COLUMNS) && t->normed[g->nodes[i].in[0]] >= 0;
    }
    const osh_turned of = {
        .modifier = t->m->type->name, .args = t->args, .makes = makes, .reads = reads};
    OSH_TRY(osh_plan_transforms(cx, t->p, &of));
done:
    osh_free(cx, makes);
    osh_free(cx, reads);
    return rc;
}

/* Some Linears have inputs or outputs that are rotated while the model runs. Rotates the weights of
 * these Linears, too, so that the function of the model stays the same. */
static osh_status rotate_online_weights(osh_ctx *cx, const turning *t)
{
    osh_status rc = OSH_OK;
    const osh_online *o = &t->p->rotated->online;
    for (int i = 0; i < o->n_turns; i++) {
        const osh_node *n = &t->p->in->graph->nodes[o->turns[i].node];
        // The rotations of queries and keys cancel each other in the scores, so no weight changes.
        if (osh_node_is(n, OSH_OP_ATTENDS)) continue;
        OSH_TRY((o->turns[i].output ? rotate_output : rotate_input)(
            cx, t, n, &o->matrices[o->turns[i].matrix].r));
    }
done:
    return rc;
}

static osh_status stream_find(osh_ctx *cx, turning *t)
{
    osh_status rc = OSH_OK;
    OSH_TRY(rotation_untie_head(cx, t));
    const osh_graph *g = t->p->in->graph;
    OSH_TRY(rotation_check_strangers(cx, t));
    OSH_NEW(cx, t->residual, g->n_values);
    OSH_NEW(cx, t->normed, g->n_values);
    OSH_NEW(cx, t->outs, g->n_nodes);
    for (int i = 0; i < g->n_values; i++) t->normed[i] = -1;
    for (int i = 0; i < g->n_nodes; i++) OSH_TRY(stream_mark_node(cx, t, &g->nodes[i]));
    OSH_TRY(rotations_make(cx, t));
done:
    return rc;
}

static osh_status rotate_model(osh_ctx *cx, turning *t)
{
    osh_status rc = OSH_OK;
    osh_rewrites *p = t->p;
    bool quip = t->args->which & (OSH_ROTATE_V | OSH_ROTATE_U);
    if (!p->in->graph)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: the architecture of %s is not known: rotations need it", t->m->type->name,
                 p->in->ck->dir);
    if (!quip) OSH_TRY(stream_find(cx, t));
    OSH_TRY(online_nodes_find(cx, t)); // also adds the matrices to the checkpoint, as tensors
    OSH_NEW(cx, p->folded, p->in->ck->n_tensors);
    OSH_TRY(osh_checkpoint_expect_changes(cx, p->in->ck));
    if (!quip) OSH_TRY(rotate_stream(cx, t));
    if (t->r2) OSH_TRY(rotate_values(cx, t));
    OSH_TRY(rotate_online_weights(cx, t));
    OSH_TRY(osh_online_insert(cx, &p->rotated->online, p->in->graph, p->in->ck));
done:
    osh_free(cx, t->residual);
    osh_free(cx, t->normed);
    osh_free(cx, t->outs);
    return rc;
}

osh_status osh_plan_rotations(osh_ctx *cx, osh_rewrites *p, osh_inputs *in)
{
    osh_status rc = OSH_OK;
    for (size_t m = 0; m < p->in->recipe->n; m++) {
        turning t = {.p = p, .in = in, .m = &p->in->recipe->modifiers[m]};
        if (!(t.args = osh_rotate_of(t.m))) continue;
        // a recipe has at most one modifier with rotations, so this runs at most once
        OSH_NEW(cx, p->rotated, 1);
        p->rotated->modifier = (int)m;
        OSH_TRY(rotate_model(cx, &t));
    }
done:
    return rc;
}

void osh_plan_rotations_free(osh_ctx *cx, osh_rewrites *p)
{
    for (int i = 0; p->rotated && i < p->rotated->n; i++)
        osh_rotation_deinit(cx, &p->rotated->of[i]);
    if (p->rotated) osh_free(cx, p->rotated->of);
    if (p->rotated)
        osh_online_deinit(cx, &p->rotated->online),
            osh_q_transforms_deinit(cx, &p->rotated->transforms);
    osh_free(cx, p->rotated);
    p->rotated = NULL;
}
