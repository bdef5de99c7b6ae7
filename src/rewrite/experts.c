/* experts.c - removes experts from a model: from the tensors of the checkpoint, from the routers
 * and from config.json. */
#include "rewrite/experts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "modifiers/experts.h"
#include "quant/source.h"

/* State of a virtual tensor, which is computed when it is read. It has those rows of a router's
 * weight or bias that belong to kept experts. */
typedef struct osh_kept_rows {
    const osh_checkpoint *ck; // view
    osh_ckpt_tensor from;
    const int *kept;          // view
} osh_kept_rows;
/* upper bound of the number of tensors that a router has (weight, bias) */
enum { ROUTER_TENSORS = 4 };

/* Returns the name of the modifier that removes experts. The name is used in messages. */
static const char *experts_modifier_name(const osh_rewrites *p)
{
    size_t m = 0;
    while (m + 1 < p->in->recipe->n && !osh_reap_of(&p->in->recipe->modifiers[m])) m++;
    return p->in->recipe->modifiers[m].type->name;
}

/* ---- layers with experts ---- */

static osh_status experts_add_layer(osh_ctx *cx, osh_rewrites *p, const osh_reap *a,
                                    const osh_node *combine)
{
    osh_status rc = OSH_OK;
    osh_experts *x = p->experts;
    const osh_graph *g = p->in->graph;
    const osh_node *route = &g->nodes[g->values[combine->in[2]].producer];
    const osh_node *down = &g->nodes[g->values[combine->in[1]].producer];
    const char *expert = g->modules[down->module].name;
    const char *end = strstr(expert, ".experts.");
    osh_expert_layer *l = &x->layers[x->n];
    if (!osh_node_routes(route) || osh_node_is(route, OSH_OP_COLUMNS) || !end)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: %s: its router (%s) does not take a softmax over all experts, and this "
                 "version supports no other router",
                 experts_modifier_name(p), expert, route->op->name);
    if (down->w[0] >= 0 && g->weights[down->w[0]].part)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: %s has experts that lie in one tensor: want weights of each expert",
                 experts_modifier_name(p), p->in->ck->dir);
    int n_all = (int)g->values[combine->in[2]].width,
        top_k = (int)((const osh_moe_router_attr *)route->attr)->top_k;
    int n_drop = (int)(n_all * a->sparsity);
    if (x->n && n_all != x->n_all)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %s has %d experts, layers before it %d",
                 experts_modifier_name(p), expert, n_all, x->n_all);
    if (!n_drop)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: sparsity %g of %d experts drops no expert: want %g or more",
                 experts_modifier_name(p), a->sparsity, n_all, 1.0 / n_all);
    if (n_all - n_drop < top_k)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: sparsity %g leaves %d of %d experts, and a token goes to %d: want less",
                 experts_modifier_name(p), a->sparsity, n_all - n_drop, n_all, top_k);
    x->n_all = n_all, x->n_kept = n_all - n_drop;
    l->route = combine->in[2], l->logits = route->in[0];
    x->n++;
    l->name = osh_sprintf(cx, "%.*s", (int)(end - expert), expert);
    l->router = osh_strdup(cx, g->modules[g->nodes[g->values[l->logits].producer].module].name);
    if (!l->name || !l->router) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a layer's name");
    OSH_NEW(cx, l->kept, x->n_kept);
    for (int k = 0; k < x->n_kept; k++) l->kept[k] = k;
done:
    return rc;
}

static osh_status experts_find_layers(osh_ctx *cx, osh_rewrites *p, const osh_reap *a)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    OSH_NEW(cx, p->experts->layers, g->n_nodes);
    for (int i = 0; i < g->n_nodes; i++) {
        const osh_node *n = &g->nodes[i];
        if (!osh_node_is(n, OSH_OP_COMBINES)) continue;
        if (p->experts->n && p->experts->layers[p->experts->n - 1].route == n->in[2]) continue;
        OSH_TRY(experts_add_layer(cx, p, a, n));
    }
    if (!p->experts->n)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: %s has no layer with experts", experts_modifier_name(p),
                 p->in->ck->dir);
done:
    return rc;
}

static osh_status experts_take_kept(osh_ctx *cx, osh_rewrites *p, const osh_reap *a)
{
    osh_status rc = OSH_OK;
    osh_experts *x = p->experts;
    for (int i = 0; i < x->n; i++) {
        const osh_kept_experts *k = NULL;
        for (size_t j = 0; j < a->n_kept; j++)
            if (!strcmp(a->kept[j].layer, x->layers[i].name)) k = &a->kept[j];
        if (!k) OSH_FAIL(cx, OSH_E_USAGE, "retained has no entry for %s", x->layers[i].name);
        if (k->n != x->n_kept || k->which[k->n - 1] >= x->n_all)
            OSH_FAIL(cx, OSH_E_USAGE, "retained: %s: %d experts up to %d, want %d of %d", k->layer,
                     k->n, k->which[k->n - 1], x->n_kept, x->n_all);
        memcpy(x->layers[i].kept, k->which, (size_t)k->n * sizeof *k->which);
    }
    if ((size_t)x->n != a->n_kept)
        OSH_FAIL(cx, OSH_E_USAGE, "retained has %zu layers, and %d have experts", a->n_kept, x->n);
    x->known = true;
done:
    return rc;
}

/* ---- checkpoint without the removed experts ---- */

static osh_status kept_rows_read(osh_ctx *cx, void *to, void *user, const osh_entry *e,
                                 int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_kept_rows *r = user;
    size_t element = osh_dtype_bytes(e->dtype),
           each = element * (e->ndim > 1 ? (size_t)osh_ckpt_columns(e) : 1);
    /* a bias has one element for each expert, so each element is a row */
    if (e->ndim < 2) first = 0, n = e->shape[0];
    for (int64_t i = 0; i < n; i++)
        OSH_TRY(osh_checkpoint_read_part(cx, (char *)to + (size_t)i * each, r->ck, &r->from,
                                         (int64_t)each * r->kept[first + i], each));
done:
    return rc;
}

typedef struct renaming {
    osh_rewrites *p;
    /* by[i]: index of the tensor that replaces tensor i (argument `by` of osh_checkpoint_hide). */
    int64_t *by; // own [tensors of the source, then added tensors]
    int64_t n;   // number of tensors of the source
    int n_rows;
} renaming;

/* Replaces a tensor of the layer's router by a virtual tensor that has only the rows of the kept
 * experts. */
static osh_status router_cut(osh_ctx *cx, renaming *r, const osh_expert_layer *l, int64_t tensor)
{
    osh_status rc = OSH_OK;
    osh_checkpoint *ck = r->p->in->ck;
    const osh_experts *x = r->p->experts;
    const osh_ckpt_tensor from = ck->tensors[tensor];
    osh_kept_rows *rows = &x->rows[r->n_rows++];
    osh_entry like = *from.e;
    if (from.e->shape[0] != x->n_all || from.e->ndim > 2 || r->n_rows > x->n * ROUTER_TENSORS)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %s is not a weight or bias of a router of %d experts",
                 experts_modifier_name(r->p), from.e->name, x->n_all);
    like.shape[0] = x->n_kept;
    *rows = (osh_kept_rows){ck, from, l->kept};
    r->by[tensor] = ck->n_tensors;
    OSH_TRY(osh_checkpoint_add_virtual(cx, ck, from.e->name, &like, kept_rows_read, rows));
    osh_ckpt_virtual *v = &ck->virtuals[ck->n_virtuals - 1];
    v->first_shard = v->last_shard = from.shard;
done:
    return rc;
}

/* Renames a tensor of an expert, because kept experts get new numbers. If the expert is removed,
 * hides the tensor. rest: the part of the tensor's name after ".experts.", such as
 * "7.gate_proj.weight". */
static osh_status expert_renumber(osh_ctx *cx, renaming *r, const osh_expert_layer *l,
                                  int64_t tensor, const char *rest)
{
    osh_status rc = OSH_OK;
    char *name = NULL; // own
    char *leaf = NULL;
    long expert = strtol(rest, &leaf, 10);
    int at = 0, n = r->p->experts->n_kept;
    // a tensor without a number in its name has the weights of all experts
    if (!isdigit((unsigned char)*rest) || *leaf != '.') goto done;
    while (at < n && l->kept[at] != expert) at++;
    r->by[tensor] = at < n ? -1 : -2;
    if (at == n)
        r->p->experts->dropped[r->p->experts->n_dropped++] = r->p->in->ck->tensors[tensor].e->name;
    if (at == n || at == expert) goto done;
    if (!(name = osh_sprintf(cx, "%s.experts.%d%s", l->name, at, leaf)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for an expert's name");
    r->by[tensor] = r->p->in->ck->n_tensors;
    OSH_TRY(osh_checkpoint_add_alias(cx, r->p->in->ck, name, tensor));
done:
    osh_free(cx, name);
    return rc;
}

static osh_status renaming_take_tensor(osh_ctx *cx, renaming *r, int64_t tensor)
{
    const osh_experts *x = r->p->experts;
    const char *name = r->p->in->ck->tensors[tensor].e->name;
    for (int i = 0; i < x->n; i++) {
        const osh_expert_layer *l = &x->layers[i];
        size_t n = strlen(l->name), router = strlen(l->router);
        if (!strncmp(name, l->router, router) && name[router] == '.')
            return router_cut(cx, r, l, tensor);
        if (!strncmp(name, l->name, n) && !strncmp(name + n, ".experts.", 9))
            return expert_renumber(cx, r, l, tensor, name + n + 9);
    }
    return OSH_OK;
}

static osh_status experts_leave_out(osh_ctx *cx, osh_rewrites *p, osh_inputs *in)
{
    osh_status rc = OSH_OK;
    osh_checkpoint *ck = p->in->ck;
    renaming r = {.p = p, .n = ck->n_tensors};
    OSH_NEW(cx, p->experts->rows, p->experts->n * ROUTER_TENSORS + 1);
    OSH_NEW(cx, r.by, 2 * r.n);
    OSH_NEW(cx, p->experts->dropped, r.n);
    for (int64_t i = 0; i < 2 * r.n; i++) r.by[i] = -1;
    for (int64_t i = 0; i < r.n; i++) OSH_TRY(renaming_take_tensor(cx, &r, i));
    OSH_TRY(osh_checkpoint_hide(cx, ck, r.by));
    OSH_TRY(osh_hf_config_set_experts(cx, ck->config, p->experts->n_all, p->experts->n_kept));
    OSH_TRY(osh_inputs_build_graph(cx, in));
done:
    osh_free(cx, r.by);
    return rc;
}

osh_status osh_experts_print(osh_ctx *cx, char **out, const osh_experts *x)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    for (int l = 0; l < x->n; l++) {
        OSH_TRY(osh_buf_printf(cx, &b, "%s\"%s\": [", l ? ", " : "{", x->layers[l].name));
        for (int k = 0; k < x->n_kept; k++)
            OSH_TRY(osh_buf_printf(cx, &b, "%s%d", k ? ", " : "", x->layers[l].kept[k]));
        OSH_TRY(osh_buf_printf(cx, &b, "]"));
    }
    OSH_TRY(osh_buf_printf(cx, &b, "}"));
    if (!(*out = osh_strdup(cx, b.data))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static const osh_reap *reap_of_plan(const osh_rewrites *p)
{
    const osh_reap *a = NULL;
    for (size_t m = 0; m < p->in->recipe->n && !a; m++)
        a = osh_reap_of(&p->in->recipe->modifiers[m]);
    return a;
}

const char *osh_experts_file(const osh_rewrites *p)
{
    const osh_reap *a = p->experts && p->experts->known ? reap_of_plan(p) : NULL;
    return a ? a->report_path : NULL;
}

/* Fails if the output would get two files of one name: a copy of a source file, and the file that
 * lists the kept experts. */
static osh_status experts_check_file(osh_ctx *cx, const osh_rewrites *p, const osh_reap *a)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    if (!a->report_path) goto done;
    OSH_TRY(osh_checkpoint_side_files(cx, &names, &n, p->in->ck));
    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(names[i], a->report_path))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s: report_path %s: the model has a file %s, which is copied to the output: "
                     "want another name",
                     experts_modifier_name(p), a->report_path, names[i]);
done:
    osh_strings_free(cx, names, n);
    return rc;
}

osh_status osh_plan_experts(osh_ctx *cx, osh_rewrites *p, osh_inputs *in)
{
    osh_status rc = OSH_OK;
    const osh_reap *a = reap_of_plan(p);
    if (!a) goto done;
    OSH_TRY(experts_check_file(cx, p, a));
    if (!p->in->graph || p->in->graph->wrapped)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: %s has an architecture whose experts are not supported",
                 experts_modifier_name(p), p->in->ck->dir);
    if (osh_source_n_quantized(p->in->source) || p->in->ck->n_parts)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: %s has %s: want BF16, F16 or F32 weights of each expert",
                 experts_modifier_name(p), p->in->ck->dir,
                 p->in->ck->n_parts ? "experts that lie in one tensor" : "quantized weights");
    if (p->in->only)
        OSH_FAIL(cx, OSH_E_USAGE, "--only copies all other tensors unchanged, but %s drops experts",
                 experts_modifier_name(p));
    OSH_NEW(cx, p->experts, 1);
    OSH_TRY(experts_find_layers(cx, p, a));
    if (a->n_kept) OSH_TRY(experts_take_kept(cx, p, a));
    if (!p->in->opt->measure) OSH_TRY(experts_leave_out(cx, p, in));
done:
    return rc;
}

osh_status osh_experts_left(osh_ctx *cx, int **out, const osh_rewrites *p)
{
    osh_status rc = OSH_OK;
    int n = p->in->graph ? (int)p->in->graph->n_layers : 0;
    *out = NULL;
    if (!p->experts || !n) goto done;
    OSH_NEW(cx, *out, n);
    for (int i = 0; i < n; i++) (*out)[i] = -1;
    for (int i = 0; i < p->experts->n; i++) {
        const char *at = p->experts->layers[i].name; // name: such as "model.layers.3.mlp"
        while (*at && !(at[0] == '.' && at[1] >= '0' && at[1] <= '9')) at++;
        int64_t layer = *at ? strtoll(at + 1, NULL, 10) : n;
        if (layer < n) (*out)[layer] = p->experts->n_kept;
    }
done:
    return rc;
}

void osh_plan_experts_free(osh_ctx *cx, osh_rewrites *p)
{
    osh_experts *x = p->experts;
    for (int i = 0; x && x->layers && i < x->n; i++) {
        osh_free(cx, x->layers[i].name);
        osh_free(cx, x->layers[i].router);
        osh_free(cx, x->layers[i].kept);
    }
    if (x) osh_free(cx, x->layers), osh_free(cx, x->rows), osh_free(cx, (void *)x->dropped);
    osh_free(cx, x);
    p->experts = NULL;
}
