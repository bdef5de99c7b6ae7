/* gradients.c - decides whether a survey can use gradients. A survey is a run that only measures
 * the losses of candidate schemes. For gradients, every op between a Linear and the output head
 * must be able to compute them. */
#include "plan/gradients.h"

#include "graph/back.h"
#include "modifiers/survey.h"
#include "match/lookup.h"

static osh_status gradients_refuse(osh_ctx *cx, osh_plan *p, const char *why, const char *module)
{
    p->gradients_not = osh_sprintf(cx, "%s%s%s", module ? module : "", module ? " " : "", why);
    return p->gradients_not ? OSH_OK : OSH_E_NOMEM;
}

/* Sets seen[v] to true for each value v that is the output of a Linear. Sets p->gradients_not if
 * the gradient of one of these values cannot be used. */
static osh_status gradients_find_outputs(osh_ctx *cx, osh_plan *p, bool *seen)
{
    const osh_graph *g = p->in.graph;
    if (p->in.by_route)
        return gradients_refuse(cx, p, "experts are calibrated on their own tokens", NULL);
    for (int i = 0; i < p->match.n_linears; i++) {
        const osh_linear *l = &p->match.linears[i];
        if (l->node == g->head) return gradients_refuse(cx, p, "is the output head", l->name);
        if (l->node < 0 || g->values[g->nodes[l->node].out[0]].width != l->O)
            return gradients_refuse(cx, p, "is a part of a layer's weight", l->name);
        seen[g->nodes[l->node].out[0]] = true;
    }
    return OSH_OK;
}

static osh_status gradients_check_ops(osh_ctx *cx, osh_plan *p, const bool *seen)
{
    osh_status rc = OSH_OK;
    bool *weights = NULL, *in = NULL; // own: arrays in which all elements are false
    OSH_NEW(cx, weights, p->in.graph->n_weights);
    OSH_NEW(cx, in, p->in.graph->n_values);
    osh_back all = {
        .g = p->in.graph, .n = p->in.graph->head, .weights = weights, .in = in, .seen = seen};
    rc = osh_back_check(cx, &all);
    if (rc == OSH_E_UNSUPPORTED) {
        rc = gradients_refuse(cx, p, osh_error_text(cx), NULL);
        osh_error_clear(cx);
    }
done:
    osh_free(cx, in);
    osh_free(cx, weights);
    return rc;
}

/* True if all readers of the value are Linears, so that its gradient comes only from Linears. */
static bool read_by_linears(const osh_plan *p, int value)
{
    const osh_value *v = &p->in.graph->values[value];
    for (int i = v->first_use; i >= 0 && i <= v->last_use; i++) {
        const osh_node *n = &p->in.graph->nodes[i];
        for (int k = 0; k < n->op->n_in; k++)
            if (n->in[k] == value && !osh_node_is(n, OSH_OP_LINEAR)) return false;
    }
    return v->producer >= 0;
}

osh_status osh_plan_gradients(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    bool *seen = NULL; // own
    if (!p->in.graph) goto done;
    OSH_NEW(cx, seen, p->in.graph->n_values);
    OSH_TRY(gradients_find_outputs(cx, p, seen));
    if (!p->gradients_not) OSH_TRY(gradients_check_ops(cx, p, seen));
    p->gradients = !p->gradients_not;
    for (int i = 0; p->gradients && i < p->match.n_linears; i++)
        OSH_TRY(osh_tensor_new(cx, &p->match.linears[i].gradients.outputs, OSH_F64, 1,
                               &p->match.linears[i].O));
    for (int i = 0; p->gradients && i < p->match.n_linears; i++) {
        osh_linear *l = &p->match.linears[i];
        bool wanted = p->in.recipe && osh_survey_of_inputs(&p->in.recipe->modifiers[l->modifier]);
        if (wanted && osh_first_reader(&p->match, l->input) == i && read_by_linears(p, l->input))
            OSH_TRY(osh_tensor_new(cx, &l->gradients.inputs, OSH_F64, 1, &l->I));
    }
done:
    osh_free(cx, seen);
    return rc;
}
