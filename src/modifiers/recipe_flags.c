/* recipe_flags.c - makes a recipe with one modifier from command line flags. The output gets a copy
 * of the recipe. If flags change a preset, the recipe has a config group instead of the name of the
 * preset, so that LLM Compressor can read the recipe. */
#include <string.h>

#include "base/buf.h"
#include "modifiers/recipe.h"

/* Writes `indent` spaces, the key, and the list s as its value. `more`: an additional last item;
 * NULL: none. */
static osh_status put_list(osh_ctx *cx, osh_buf *b, int indent, const char *key, const osh_strs *s,
                           const char *more)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(cx, b, "%*s%s: [", indent, "", key));
    for (size_t i = 0; i < s->n + (more != NULL); i++) {
        if (i) OSH_TRY(osh_buf_append(cx, b, ", ", 2));
        OSH_TRY(osh_yaml_quote(cx, b, i < s->n ? s->items[i] : more));
    }
    OSH_TRY(osh_buf_printf(cx, b, "]\n"));
done:
    return rc;
}

static osh_status list_finds(osh_ctx *cx, bool *found, const osh_strs *s, const char *name,
                             const char *cls)
{
    osh_status rc = OSH_OK;
    osh_matcher *m = NULL; // own
    int64_t at = -1;
    OSH_TRY(osh_matcher_new(cx, &m, (const char *const *)s->items, s->n));
    OSH_TRY(osh_matcher_find(cx, &at, m, name, cls));
    *found = at >= 0;
done:
    osh_matcher_free(cx, m);
    return rc;
}

/* Sets *spared to true if the output head must be added to the ignore list. The head is quantized
 * only if a target matches its name. If only the class name Linear matches it, the head is added to
 * the list, unless the list already has it. */
static osh_status spare_head(osh_ctx *cx, bool *spared, const osh_recipe_flags *f)
{
    osh_status rc = OSH_OK;
    bool named = false, ignored = false;
    *spared = false;
    if (!f->head) goto done;
    OSH_TRY(list_finds(cx, &named, f->targets, f->head, NULL));
    OSH_TRY(list_finds(cx, &ignored, f->ignore, f->head, "Linear"));
    *spared = !named && !ignored;
    if (*spared && f->targets->n) OSH_TRY(list_finds(cx, spared, f->targets, f->head, "Linear"));
done:
    return rc;
}

static osh_status change_scheme(osh_ctx *cx, osh_q_scheme *s, const osh_recipe_flags *f)
{
    osh_status rc = OSH_OK;
    osh_q_args *w = &s->weights;
    if (w->type != OSH_Q_INT || !w->present)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--num-bits, --group-size and --symmetric change schemes of integer weights, and "
                 "%s is not such a scheme: want one such as W4A16",
                 f->scheme);
    if (f->num_bits) w->bits = (int)f->num_bits;
    if (f->group_size > 0) w->strategy = OSH_Q_GROUP, w->group_size = f->group_size;
    if (f->group_size < 0) w->strategy = OSH_Q_CHANNEL, w->group_size = 0;
    if (f->symmetric) w->symmetric = !strcmp(f->symmetric, "true");
    OSH_TRY(osh_q_scheme_check(cx, s, "--scheme"));
done:
    return rc;
}

static osh_status flags_put_group(osh_ctx *cx, osh_buf *b, const osh_q_scheme *s,
                                  const osh_strs *targets)
{
    osh_status rc = OSH_OK;
    const osh_q_args *w = &s->weights, *in = &s->inputs;
    OSH_TRY(osh_buf_printf(cx, b, "      config_groups:\n        group_0:\n"));
    OSH_TRY(put_list(cx, b, 10, "targets", targets, targets->n ? NULL : "Linear"));
    OSH_TRY(osh_buf_printf(
        cx, b, "          weights: {num_bits: %d, type: int, symmetric: %s, strategy: %s", w->bits,
        w->symmetric ? "true" : "false", w->strategy == OSH_Q_GROUP ? "group" : "channel"));
    if (w->strategy == OSH_Q_GROUP)
        OSH_TRY(osh_buf_printf(cx, b, ", group_size: %lld", (long long)w->group_size));
    OSH_TRY(osh_buf_printf(cx, b, "}\n"));
    // presets with integer weights quantize inputs dynamically, with strategy token
    if (in->present)
        OSH_TRY(osh_buf_printf(
            cx, b,
            "          input_activations: {num_bits: %d, type: %s, symmetric: true, strategy: "
            "token, dynamic: true}\n",
            in->bits, in->type == OSH_Q_FLOAT ? "float" : "int"));
done:
    return rc;
}

osh_status osh_recipe_of_flags(osh_ctx *cx, osh_recipe **out, bool *spared,
                               const osh_recipe_flags *f)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_q_scheme scheme = {0};
    bool changed = f->num_bits || f->group_size || f->symmetric;
    bool best = f->method && !strcmp(f->method, "best"),
         gptq = best || (f->method && !strcmp(f->method, "gptq"));
    osh_buf_init(&b, 1u << 20);
    OSH_TRY(spare_head(cx, spared, f));
    // An unknown preset is reported here, because a later error would name a line of a recipe that
    // the user has not written.
    OSH_TRY(osh_q_preset(cx, &scheme, f->scheme));
    OSH_TRY(osh_buf_printf(cx, &b, "default_stage:\n  default_modifiers:\n    %s:\n",
                           gptq ? "GPTQModifier" : "QuantizationModifier"));
    if (changed) {
        OSH_TRY(change_scheme(cx, &scheme, f));
        OSH_TRY(flags_put_group(cx, &b, &scheme, f->targets));
    } else {
        OSH_TRY(osh_buf_printf(cx, &b, "      scheme: "));
        OSH_TRY(osh_yaml_quote(cx, &b, f->scheme));
        OSH_TRY(osh_buf_append(cx, &b, "\n", 1));
    }
    if (best) OSH_TRY(osh_buf_printf(cx, &b, "      quality: best\n"));
    if (!changed && f->targets->n)
        OSH_TRY(put_list(cx, &b, 6, "targets", f->targets, NULL));
    OSH_TRY(put_list(cx, &b, 6, "ignore", f->ignore, *spared ? f->head : NULL));
    OSH_TRY(osh_recipe_parse(cx, out, b.data, b.len, "--scheme"));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}
