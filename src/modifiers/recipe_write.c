/* recipe_write.c - writes the text of a recipe in which new config groups replace those of the
 * original text. Stages, modifiers, other keys and their order do not change. Comments are lost. */
#include <string.h>

#include "base/buf.h"
#include "modifiers/recipe.h"

typedef struct writer {
    osh_buf b; // own
    const osh_recipe *r;
    const osh_recipe_group *groups;
    size_t n;
    int more_of;      // index of the modifier that gets an additional line; -1: none
    const char *more; // view: the additional line
    size_t at; // index of the modifier that is written next
} writer;

/* Writes a YAML value on one line (flow style). Python's yaml module writes an enum as a list with
 * a tag. Such an enum becomes a plain value here. */
static osh_status put_value(osh_ctx *cx, osh_buf *b, const osh_yaml *y)
{
    osh_status rc = OSH_OK;
    bool map = y->kind == OSH_Y_MAP;
    if (y->kind == OSH_Y_NULL) return osh_buf_append(cx, b, "null", 4);
    if (y->kind == OSH_Y_STR) return osh_yaml_quote(cx, b, y->text);
    if (!map && y->kind != OSH_Y_SEQ) return osh_buf_append(cx, b, y->text, strlen(y->text));
    if (!map && y->tag && y->n == 1) return put_value(cx, b, y->items[0]);
    OSH_TRY(osh_buf_append(cx, b, map ? "{" : "[", 1));
    for (size_t i = 0; i < y->n; i++) {
        if (i) OSH_TRY(osh_buf_append(cx, b, ", ", 2));
        if (map) OSH_TRY(put_value(cx, b, y->keys[i]));
        if (map) OSH_TRY(osh_buf_append(cx, b, ": ", 2));
        OSH_TRY(put_value(cx, b, y->items[i]));
    }
    OSH_TRY(osh_buf_append(cx, b, map ? "}" : "]", 1));
done:
    return rc;
}

/* Writes a key without its value, which is a map. The caller writes the map on the next lines. */
static osh_status put_name(osh_ctx *cx, osh_buf *b, int indent, const char *name)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(cx, b, "%*s", indent, ""));
    OSH_TRY(osh_yaml_name(cx, b, name));
    OSH_TRY(osh_buf_append(cx, b, ":\n", 2));
done:
    return rc;
}

static osh_status put_args(osh_ctx *cx, osh_buf *b, int indent, const char *key,
                           const osh_q_args *a, bool is_weight)
{
    osh_status rc = OSH_OK;
    char *text = NULL; // own
    if (!a->present) goto done;
    OSH_TRY(osh_q_args_print(cx, &text, a, is_weight));
    OSH_TRY(osh_buf_printf(cx, b, "%*s%s: ", indent, "", key));
    OSH_TRY(osh_buf_append(cx, b, text, strlen(text)));
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    osh_free(cx, text);
    return rc;
}

static osh_status writer_put_group(osh_ctx *cx, osh_buf *b, int indent, const osh_recipe_group *g)
{
    osh_status rc = OSH_OK;
    OSH_TRY(put_name(cx, b, indent, g->name));
    OSH_TRY(osh_buf_printf(cx, b, "%*stargets:\n", indent + 2, ""));
    for (size_t i = 0; i < g->n; i++) {
        OSH_TRY(osh_buf_printf(cx, b, "%*s- ", indent + 2, ""));
        OSH_TRY(osh_yaml_quote(cx, b, g->modules[i]));
        OSH_TRY(osh_buf_append(cx, b, "\n", 1));
    }
    OSH_TRY(put_args(cx, b, indent + 2, "weights", &g->scheme->weights, true));
    OSH_TRY(put_args(cx, b, indent + 2, "input_activations", &g->scheme->inputs, false));
    OSH_TRY(put_args(cx, b, indent + 2, "output_activations", &g->scheme->outputs, false));
    if (!g->scheme->format[0]) goto done;
    OSH_TRY(osh_buf_printf(cx, b, "%*sformat: ", indent + 2, ""));
    OSH_TRY(osh_yaml_name(cx, b, g->scheme->format));
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    return rc;
}

static bool is_replaced_key(const char *key)
{
    static const char *const keys[] = {"config_groups", "scheme", "targets", "candidates"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

static osh_status put_modifier(osh_ctx *cx, writer *w, int indent, const osh_yaml *name,
                               const osh_yaml *body)
{
    osh_status rc = OSH_OK;
    const int which = (int)w->at++;
    const osh_modifier *m = &w->r->modifiers[which];
    osh_buf *b = &w->b;
    bool own = false;
    // a modifier is not written if a later modifier uses its schemes
    if (w->groups && m->replaced) goto done;
    OSH_TRY(osh_buf_printf(cx, b, "%*s", indent, ""));
    OSH_TRY(put_value(cx, b, name));
    OSH_TRY(osh_buf_append(cx, b, ":\n", 2));
    for (size_t i = 0; i < w->n; i++) {
        if (w->groups[i].modifier != which) continue;
        if (!own) OSH_TRY(osh_buf_printf(cx, b, "%*sconfig_groups:\n", indent + 2, ""));
        own = true;
        OSH_TRY(writer_put_group(cx, b, indent + 4, &w->groups[i]));
    }
    // A modifier without the key `ignore` may have an ignore list: that of the QuantizationModifier
    // whose schemes it uses.
    if (own && m->ignore.n && !osh_yaml_get(body, "ignore")) {
        OSH_TRY(osh_buf_printf(cx, b, "%*signore: [", indent + 2, ""));
        for (size_t i = 0; i < m->ignore.n; i++) {
            if (i) OSH_TRY(osh_buf_append(cx, b, ", ", 2));
            OSH_TRY(osh_yaml_quote(cx, b, m->ignore.items[i]));
        }
        OSH_TRY(osh_buf_append(cx, b, "]\n", 2));
    }
    for (size_t i = 0; body->kind == OSH_Y_MAP && i < body->n; i++) {
        const char *key = body->keys[i]->text ? body->keys[i]->text : "";
        if (w->groups && osh_modifier_quantizes(m) && is_replaced_key(key)) continue;
        OSH_TRY(osh_buf_printf(cx, b, "%*s", indent + 2, ""));
        OSH_TRY(put_value(cx, b, body->keys[i]));
        OSH_TRY(osh_buf_append(cx, b, ": ", 2));
        OSH_TRY(put_value(cx, b, body->items[i]));
        OSH_TRY(osh_buf_append(cx, b, "\n", 1));
    }
    if (which == w->more_of) OSH_TRY(osh_buf_printf(cx, b, "%*s", indent + 2, ""));
    if (which == w->more_of) OSH_TRY(osh_buf_append(cx, b, w->more, strlen(w->more)));
    if (which == w->more_of) OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    return rc;
}

static osh_status put_modifiers(osh_ctx *cx, writer *w, int indent, const osh_yaml *name,
                                const osh_yaml *list)
{
    osh_status rc = OSH_OK;
    OSH_TRY(put_name(cx, &w->b, indent, name->text));
    for (size_t i = 0; i < list->n; i++)
        OSH_TRY(put_modifier(cx, w, indent + 2, list->keys[i], list->items[i]));
done:
    return rc;
}

static osh_status put_stages(osh_ctx *cx, writer *w, const osh_yaml *y)
{
    static const char stage[] = "_stage";
    osh_status rc = OSH_OK;
    for (size_t s = 0; s < y->n; s++) {
        const char *key = y->keys[s]->text;
        size_t n = strlen(key);
        if (n < sizeof stage - 1 || strcmp(key + n - (sizeof stage - 1), stage)) {
            OSH_TRY(put_modifiers(cx, w, 0, y->keys[s], y->items[s]));
            continue;
        }
        OSH_TRY(put_name(cx, &w->b, 0, key));
        for (size_t i = 0; i < y->items[s]->n; i++)
            if (strcmp(y->items[s]->keys[i]->text, "run_type"))
                OSH_TRY(put_modifiers(cx, w, 2, y->items[s]->keys[i], y->items[s]->items[i]));
    }
done:
    return rc;
}

static osh_status write_all(osh_ctx *cx, char **out, writer *w, const char *head)
{
    osh_status rc = OSH_OK;
    osh_yaml *y = NULL; // own
    osh_buf_init(&w->b, 1u << 24);
    OSH_TRY(osh_yaml_parse(cx, &y, w->r->text, w->r->n_text, "the recipe"));
    OSH_TRY(osh_buf_append(cx, &w->b, head, strlen(head)));
    OSH_TRY(put_stages(cx, w, y));
    if (!(*out = osh_strdup(cx, w->b.data))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_yaml_free(cx, y);
    osh_buf_deinit(cx, &w->b);
    return rc;
}

osh_status osh_recipe_with_groups(osh_ctx *cx, char **out, const osh_recipe *r, const char *head,
                                  const osh_recipe_group *groups, size_t n)
{
    return write_all(cx, out, &(writer){.r = r, .groups = groups, .n = n, .more_of = -1}, head);
}

osh_status osh_recipe_with_line(osh_ctx *cx, char **out, const osh_recipe *r, const char *head,
                                int modifier, const char *line)
{
    return write_all(cx, out, &(writer){.r = r, .more_of = modifier, .more = line}, head);
}
