/* best.c - makes the decisions of `quality best` for settings that no option gives (best.h). */
#include "plan/best.h"

#include <stdio.h>

enum { MOST_TOKENS = 2048 };

void osh_best_begin(osh_inputs *in)
{
    static char linear[] = "Linear", *items[] = {linear};
    static const osh_strs linears = {items, 1};
    bool layers = false; // true if any modifier learns from the output of decoder layers
    in->best = false;
    for (size_t i = 0; i < in->recipe->n; i++) {
        const osh_modifier *m = &in->recipe->modifiers[i];
        in->best |= m->best;
        layers |= osh_modifier_blocks(m) != NULL;
    }
    bool decides = in->best && !layers && !in->opt->sequential_targets.n;
    in->targets = decides ? &linears : &in->opt->sequential_targets;
}

void osh_best_length(osh_inputs *in)
{
    if (in->best && in->opt->max_seq_length < 0 && in->max_seq_length > MOST_TOKENS)
        in->max_seq_length = MOST_TOKENS;
}

/* Appends `flag` and `value` to b. If b already has more than `from` bytes, first appends a
 * comma. */
static osh_status best_put(osh_ctx *cx, osh_buf *b, size_t from, const char *flag,
                           const char *value)
{
    return osh_buf_printf(cx, b, "%s--%s %s", b->len > from ? ", " : "", flag, value);
}

osh_status osh_best_tell(osh_ctx *cx, osh_buf *b, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_inputs *in = &p->in;
    const osh_options *o = in->opt;
    size_t from = b->len;
    osh_q_scheme preset = {0}; // the strings of the preset are views
    char text[96];
    if (!in->best) goto done;
    if (in->targets != &o->sequential_targets)
        OSH_TRY(best_put(cx, b, from, "sequential-targets", "Linear"));
    if (in->group_size) {
        OSH_TRY(osh_q_preset(cx, &preset, o->scheme));
        snprintf(text, sizeof text, "%lld (%lld does not divide all columns)",
                 (long long)in->group_size, (long long)preset.weights.group_size);
        OSH_TRY(best_put(cx, b, from, "group-size", text));
    }
    if (o->max_seq_length < 0 && in->max_seq_length == MOST_TOKENS) {
        snprintf(text, sizeof text, "%d", MOST_TOKENS);
        OSH_TRY(best_put(cx, b, from, "max-seq-length", text));
    }
done:
    return rc;
}
