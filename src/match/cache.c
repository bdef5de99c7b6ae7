/* cache.c - finds the scales of kv_cache_scheme for the keys and values of each attention. These
 * scales are the tensors `k_scale` and `v_scale` of the module that contains the attention. A scale
 * tensor has one number (shape [1]) or one number for each head ([heads, 1, 1]). With an asymmetric
 * scheme there are also zero points.
 *
 * Keys and values are observed as inputs of the attention, after rope. Their scales are written
 * together with the Linear that reads the output of the attention, directly or through a gate. The
 * scales are complete when this Linear is solved, and its record in the journal contains them. If
 * no modifier quantizes the Linear, it is in the list p->linears only because of the scales, and
 * its weight does not change.
 *
 * If a scheme has static output_activations, the Linear gets the tensors `output_scale` and
 * `output_zero_point`, [1]. They are computed from the Linear's output with the original weight.
 * The pass that observes the input also computes this output. */
#include "match/cache.h"

#include <stdio.h>
#include <string.h>

#include "quant/observer.h"

static char kept_name[] = "kept";
const osh_q_scheme osh_kept_scheme = {.group_name = kept_name};

const osh_q_args *osh_ranged_args(const osh_matching *p, const osh_linear *l, int k)
{
    return k == OSH_INPUT ? &l->scheme->inputs : k == OSH_OUTPUT ? &l->scheme->outputs : &p->cache;
}

int osh_cache_leaves(osh_cache_leaf out[OSH_CACHE_LEAVES], const osh_matching *p,
                     const osh_linear *l)
{
    int n = 0;
    for (int k = 0; k < OSH_INPUT; k++)
        for (int zero = 0; l->ranged[k] >= 0 && zero < 2 - osh_ranged_args(p, l, k)->symmetric;
             zero++) {
            osh_cache_leaf *t = &out[n++];
            *t = (osh_cache_leaf){.of = k, .zero = zero, .dtype = zero ? OSH_I8 : l->dtype,
                                  .ndim = 1, .shape = {l->heads[k], 1, 1},
                                  .bytes = (size_t)l->heads[k]};
            if (osh_ranged_args(p, l, k)->strategy == OSH_Q_ATTN_HEAD) t->ndim = 3;
            t->bytes *= osh_dtype_bytes(t->dtype);
            static const char *const of[OSH_INPUT] = {"k", "v", "q", "output"};
            snprintf(t->name, sizeof t->name, "%s_%s", of[k], zero ? "zero_point" : "scale");
        }
    return n;
}

int osh_cache_attention(const osh_graph *g, int node)
{
    if (node < 0 || !osh_node_is(&g->nodes[node], OSH_OP_LINEAR)) return -1;
    int from = g->values[g->nodes[node].in[0]].producer;
    while (from >= 0) {
        const osh_node *n = &g->nodes[from];
        bool gate =
            osh_node_is(n, OSH_OP_GATES); // input 1 of a gate is the output of the attention
        if (!gate && !osh_node_is(n, OSH_OP_ROTATES)) break;
        from = g->values[n->in[gate]].producer;
    }
    return from >= 0 && osh_node_is(&g->nodes[from], OSH_OP_ATTENDS) ? from : -1;
}

int osh_cache_modifier(const osh_matching *p, int node)
{
    if (osh_cache_attention(p->in->graph, node) < 0) return -1;
    for (size_t m = 0; m < p->in->recipe->n; m++)
        if (p->in->recipe->modifiers[m].cache.present) return (int)m;
    return -1;
}

bool osh_range_is_copied(const osh_matching *p, const osh_linear *l, int k)
{
    return p->in->on_device &&
           (l->heads[k] > 1 || osh_observer_searches(osh_ranged_args(p, l, k)));
}

size_t osh_ranged_scratch(const osh_matching *p, const osh_linear *l, int k, int64_t tokens)
{
    return osh_act_observe_bytes(osh_ranged_args(p, l, k), tokens,
                                 p->in->graph->values[l->ranged[k]].width, l->heads[k],
                                 p->in->graph->dtype);
}

/* The k-th observed value of this Linear has a range (smallest and largest element). True if no
 * Linear before `linear` needs this range with the same quantization arguments. Linears with the
 * same input are adjacent in p->linears, so only these are compared. */
bool osh_leads_range(const osh_matching *p, int linear, int k)
{
    const osh_linear *l = &p->linears[linear];
    if (l->ranged[k] < 0) return false;
    for (int j = linear - 1; j >= 0 && p->linears[j].input == l->input; j--)
        if (p->linears[j].ranged[k] == l->ranged[k] &&
            osh_ranged_args(p, &p->linears[j], k) == osh_ranged_args(p, l, k))
            return false;
    return true;
}

size_t osh_ranged_counts(const osh_matching *p, int linear)
{
    const osh_linear *l = &p->linears[linear];
    size_t sum = 0;
    for (int k = 0; k < OSH_RANGED; k++)
        if (osh_leads_range(p, linear, k))
            sum += (size_t)l->heads[k] *
                   osh_act_observer_bytes(osh_ranged_args(p, l, k), &p->in->groups);
    return sum;
}

static osh_linear *cache_reader(osh_matching *p, int attention)
{
    for (int i = 0; i < p->n_linears; i++)
        if (osh_cache_attention(p->in->graph, p->linears[i].node) == attention)
            return &p->linears[i];
    return NULL;
}

static void cache_point(const osh_matching *p, osh_linear *l, const osh_node *attention)
{
    for (int k = 0; k < OSH_CACHED; k++) {
        /* inputs 0, 1, 2 of the attention are queries, keys, values */
        int from = (k + 1) % OSH_CACHED;
        if (from || p->queries) l->ranged[k] = attention->in[from];
    }
}

void osh_cache_follow(const osh_matching *p, osh_linear *l)
{
    if (l->ranged[0] >= 0)
        cache_point(p, l, &p->in->graph->nodes[osh_cache_attention(p->in->graph, l->node)]);
    if (l->ranged[OSH_OUTPUT] >= 0) l->ranged[OSH_OUTPUT] = p->in->graph->nodes[l->node].out[0];
}

/* True for multi-head latent attention (DeepSeek) and for ALiBi. Their values have fewer elements
 * per head than their keys, so a slice follows the attention. */
static bool is_latent(const osh_graph *g, const osh_node *attention)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (osh_node_is(&g->nodes[i], OSH_OP_PASSES) && g->nodes[i].in[0] == attention->out[0])
            return true;
    return false;
}

static osh_status cache_attach(osh_ctx *cx, osh_matching *p, const osh_node *n)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = n->attr;
    osh_linear *l = cache_reader(p, (int)(n - p->in->graph->nodes));
    const char *name = p->in->graph->modules[n->module].name;
    if (!l && is_latent(p->in->graph, n))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "kv_cache_scheme: %s computes keys and values from a latent, or has ALiBi: scales "
                 "of such caches are not supported, want no kv_cache_scheme",
                 name);
    if (!l)
        OSH_FAIL(
            cx, OSH_E_UNSUPPORTED,
            "kv_cache_scheme: no quantized Linear reads the output of %s, and the scales are "
            "written with the tensors of that Linear: want it as a target, or no kv_cache_scheme",
            name);
    bool head = p->cache.strategy == OSH_Q_ATTN_HEAD;
    for (int k = 0; k < OSH_CACHED; k++) {
        /* inputs 0, 1, 2 of the attention are queries, keys, values */
        int from = (k + 1) % OSH_CACHED;
        if (head) l->heads[k] = from ? at->n_kv_heads : at->n_heads;
    }
    cache_point(p, l, n);
    l->wants |= OSH_STAT_CACHE;
done:
    return rc;
}

/* Fails if the modifier has a config group for attentions, and no target of the group matches this
 * attention. Inference engines apply such a group to all attentions, so its targets must match all
 * of them. */
static osh_status match_attention(osh_ctx *cx, osh_matching *p, osh_modifier *m, const osh_node *n)
{
    osh_status rc = OSH_OK;
    const osh_module *mod = &p->in->graph->modules[n->module];
    const osh_q_scheme *s = NULL;
    int which = -1;
    for (size_t i = 0; i < m->n_schemes; i++)
        if (osh_q_of_attention(&m->schemes[i])) s = &m->schemes[i];
    OSH_TRY(osh_modifier_match(cx, &which, m, mod->name, mod->cls));
    if (which < 0 || &m->schemes[which] != s)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s quantizes the inputs of attention, and none of its targets matches %s, a %s, "
                 "but engines need scales there: want %s as its target",
                 s->group_name, mod->name, mod->cls, mod->cls);
done:
    return rc;
}

/* Sets l->ranged[OSH_OUTPUT] for each Linear whose scheme has static output_activations, so that
 * the output of the Linear is observed. */
static osh_status observe_outputs(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < p->n_linears; i++) {
        osh_linear *l = &p->linears[i];
        const osh_q_args *a = &l->scheme->outputs;
        if (!a->present || a->dynamic != OSH_Q_STATIC) continue;
        if (l->node < 0 || l->node == p->in->graph->head)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: output_activations of %s are not supported: want it in ignore",
                     l->name, l->node < 0 ? "a module without a template" : "the output head");
        if (l->wants & OSH_STAT_SHIFT)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: output_activations together with target 'original' (quality best) are "
                     "not supported: want one of them",
                     l->name);
        if (p->in->by_route)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: output_activations together with --moe-calibrate-all-experts false are "
                     "not supported: want one of them",
                     l->name);
        if (osh_observer_twice(a))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: observer %s with exact: true reads values twice, and the output of a "
                     "Linear can be read only once: want another observer for output_activations",
                     l->name, a->observer);
        l->ranged[OSH_OUTPUT] = p->in->graph->nodes[l->node].out[0];
        p->outputs = true;
    }
done:
    return rc;
}

osh_status osh_plan_cache(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_modifier *of = NULL; // view
    int n = 0;
    for (int i = 0; i < p->n_linears; i++)
        for (int k = 0; k < OSH_RANGED; k++)
            p->linears[i].ranged[k] = -1, p->linears[i].heads[k] = 1;
    OSH_TRY(observe_outputs(cx, p));
    for (size_t m = 0; m < p->in->recipe->n; m++) {
        if (!p->in->recipe->modifiers[m].cache.present) continue;
        if (p->cache.present)
            OSH_FAIL(cx, OSH_E_USAGE, "two modifiers have a kv_cache_scheme: want one of them");
        of = &p->in->recipe->modifiers[m];
        p->cache = of->cache, p->queries = of->queries;
    }
    if (!p->cache.present) goto done;
    for (int i = 0; i < p->n_linears; i++)
        if (p->linears[i].wants & OSH_STAT_SHIFT)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "kv_cache_scheme together with target 'original' (quality best) is not "
                     "supported: want one of them");
    if (!p->in->graph)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "kv_cache_scheme needs a known architecture and calibration data");
    for (int i = 0; i < p->in->graph->n_nodes; i++) {
        if (!osh_node_is(&p->in->graph->nodes[i], OSH_OP_ATTENDS)) continue;
        if (p->queries) OSH_TRY(match_attention(cx, p, of, &p->in->graph->nodes[i]));
        OSH_TRY(cache_attach(cx, p, &p->in->graph->nodes[i]));
        n++;
    }
    if (!n)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "kv_cache_scheme: the model has no attention with keys and values");
    if (p->cache.type != OSH_Q_FLOAT)
        osh_log(cx, OSH_LOG_WARN,
                "caches of integers%s: transformers loads them; vLLM does not, because its caches "
                "are FP8",
                p->cache.symmetric ? "" : " with zero points");
done:
    return rc;
}
