/* by_route.c - checks recipes if the job has `--moe-calibrate-all-experts false`. Each expert then
 * gets only the tokens that the router sends to it. Refuses recipes that need all tokens in each
 * expert. */
#include <string.h>

#include "match/matching.h"

/* An expert gets only the tokens that the router sends to it. In its inputs, the rows of all other
 * tokens are 0. Fails if a modifier needs all tokens in an expert. Also fails if the input of a
 * Linear would not be 0 for the other tokens, because the expert has biases. */
osh_status osh_plan_by_route(osh_ctx *cx, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    if (!p->in->by_route) goto done;
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        const char *name = strstr(l->name, ".experts.");
        if (!l->wants || !name) continue;
        if (l->wants & OSH_STAT_SHIFT)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: target 'original' compares all tokens: want it without "
                     "--moe-calibrate-all-experts false",
                     l->name);
        if (!osh_is_by_route(p->in->graph, l->input))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: its expert has biases, so its output for other tokens is not zero: want "
                     "--moe-calibrate-all-experts true",
                     l->name);
    }
    for (size_t m = 0; m < p->in->recipe->n; m++)
        if (osh_modifier_sees_all_tokens(&p->in->recipe->modifiers[m]))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s sees all tokens: want --moe-calibrate-all-experts true",
                     p->in->recipe->modifiers[m].type->name);
done:
    return rc;
}
