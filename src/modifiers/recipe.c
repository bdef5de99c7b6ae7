/* recipe.c - reads the stages of a recipe, the modifiers of each stage, and the keys of each
 * modifier (llmcompressor/recipe/recipe.py). Keys of the top level end in _stage. Keys of a stage
 * end in _modifiers. Modifiers keep the order of the file. All other keys, and an empty recipe, are
 * errors, although LLM Compressor ignores them. */
#include "modifiers/recipe.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/name.h"
#include "base/near.h"
#include "modifiers/recipe_files.h"
#include "modifiers/recipe_quant.h"

/* Keys of modifiers of LLM Compressor that have no effect in this program. The keys are accepted,
 * with a message. */
static const char *const without_effect[] = {
    "batched_quantization",
    "requires_calibration_data",
    "offload_hessians",
    "sequential_update",
    "index",
    "start",
    "end",
    "update",
    "sequential_targets",
    "initialized_",
    "finalized_",
    "started_",
    "ended_",
    "group",
    "enabled_",
    "parameterized_layers_",
    "scheduler_function_",
    "mask_creator_function_",
    "current_sparsity_",
    "resolved_mappings_",
    "scales_",
    NULL,
};

/* Modifiers of LLM Compressor that this program does not support. */
static const char *const absent[] = {"PruningSparseGPTModifier", NULL};

static const struct quality {
    const char *name, *type;
    bool best;
} qualities[] = {
    {"fast", "QuantizationModifier", false},
    {"gptq", "GPTQModifier", false},
    {"best", "GPTQModifier", true},
    {0},
};

static const struct quality *find_quality(const char *name)
{
    for (const struct quality *q = qualities; q->name; q++)
        if (!strcmp(q->name, name)) return q;
    return NULL;
}

static bool is_of_quality(const osh_modifier_type *t)
{
    for (const struct quality *q = qualities; q->name; q++)
        if (!strcmp(q->type, t->name)) return true;
    return false;
}

static bool is_in_list(const char *const *list, const char *s)
{
    for (; *list; list++)
        if (!strcmp(*list, s)) return true;
    return false;
}

static osh_status set_field(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                            bool *known, const char *what)
{
    osh_status rc = OSH_OK;
    const osh_field *f = osh_field_find(m->type->fields, key);
    *known = f != NULL;
    if (!f) goto done;
    if (!v->text || v->kind == OSH_Y_NULL)
        OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: %s: want a single value", what, v->line, v->column,
                 key);
    rc = osh_field_set(cx, f, m->args, v->text);
    if (rc) osh_note(cx, "reading %s:%d:%d", what, v->line, v->column);
done:
    return rc;
}

static osh_status unknown_key(osh_ctx *cx, const osh_modifier *m, const osh_yaml *k,
                              const char *what)
{
    static const char *const shared[] = {"config_groups", "scheme",          "targets",   "ignore",
                                         "quality",       "kv_cache_scheme", "candidates"};
    osh_buf b;
    osh_near near;
    osh_buf_init(&b, 4096);
    // true: the modifier is no quantizer, so it lacks the keys that all quantizers have
    bool own = !osh_modifier_quantizes(m);
    osh_near_init(&near, k->text ? k->text : "");
    for (size_t i = 0; i < sizeof shared / sizeof *shared && !own; i++)
        osh_near_see(&near, shared[i]);
    if (own)
        osh_near_see(&near, "mappings"), osh_near_see(&near, "ignore"),
            osh_near_see(&near, "targets");
    for (const osh_field *f = m->type->fields; f->name; f++) {
        osh_buf_printf(cx, &b, ", %s", f->name);
        osh_near_see(&near, f->name);
    }
    osh_status rc = osh_fail(
        cx, OSH_E_USAGE, "%s:%d:%d: unknown key '%s' of %s: want %s%s%s%s%s%s", what, k->line,
        k->column, near.word, m->type->name,
        own ? m->type->keys
            : "config_groups, scheme, targets, ignore, observer, kv_cache_scheme, candidates",
        b.data ? b.data : "", own || !m->type->keys ? "" : ", ",
        own || !m->type->keys ? "" : m->type->keys, own ? "" : ", quality",
        osh_near_hint(&near, ""));
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Sets *out to the quality of a modifier: the value of its key `quality`, or `dflt` if it does not
 * have this key. If `dflt` is NULL, *out becomes NULL. */
static osh_status modifier_quality(osh_ctx *cx, const struct quality **out, const osh_yaml *body,
                                   const char *dflt, const char *what)
{
    osh_status rc = OSH_OK;
    *out = dflt ? find_quality(dflt) : NULL;
    for (size_t i = 0; body->kind == OSH_Y_MAP && i < body->n; i++) {
        const osh_yaml *v = body->items[i];
        if (!body->keys[i]->text || strcmp(body->keys[i]->text, "quality")) continue;
        if (!(*out = find_quality(v->text ? v->text : "")))
            OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: quality '%s': want fast, gptq or best", what,
                     v->line, v->column, v->text ? v->text : "");
    }
done:
    return rc;
}

/* Fails if a whole number begins with 0, because YAML 1.1 reads 0200 as 128 and YAML 1.2 reads it
 * as 200. (08 and 09 are strings in YAML 1.1.) */
static osh_status recipe_check_numbers(osh_ctx *cx, const osh_yaml *y, const char *what)
{
    osh_status rc = OSH_OK;
    const char *s = y->kind == OSH_Y_INT && y->text ? y->text : "";
    s += *s == '-' || *s == '+';
    if (s[0] == '0' && s[1] && strchr("0123456789_", s[1]))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s:%d:%d: the number %s has a leading zero, so YAML 1.1 reads it in octal: want "
                 "%lld for its value there, or the number without the zero",
                 what, y->line, y->column, y->text, (long long)y->i);
    for (size_t i = 0; i < y->n; i++) OSH_TRY(recipe_check_numbers(cx, y->items[i], what));
done:
    return rc;
}

/* Turns a modifier that would do 0 learning steps into a QuantizationModifier with the same
 * schemes. The caller has already read all keys of the modifier. */
static osh_status become_nearest(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    osh_fields_deinit(cx, m->type->fields, m->args);
    osh_free(cx, m->args);
    m->args = NULL, m->type = osh_modifier_nearest();
    if (!(m->args = osh_calloc(cx, 1, m->type->bytes)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", m->type->name);
done:
    return rc;
}

static osh_status read_modifier(osh_ctx *cx, osh_modifier *m, const osh_yaml *name,
                                const osh_yaml *body, const char *quality, const char *what)
{
    osh_status rc = OSH_OK;
    osh_recipe_quant q = {0};
    const struct quality *level = NULL;
    m->type = osh_modifier_find(name->text ? name->text : "");
    if (!m->type && is_in_list(absent, name->text ? name->text : ""))
        OSH_FAIL(
            cx, OSH_E_UNSUPPORTED,
            "%s:%d:%d: %s is not supported; `oneshot help modifiers` lists the supported modifiers",
            what, name->line, name->column, name->text);
    if (!m->type) {
        osh_buf b;
        osh_buf_init(&b, 4096);
        osh_near near;
        osh_near_init(&near, name->text ? name->text : "");
        for (size_t i = 0; i < osh_modifier_count(); i++) {
            osh_buf_printf(cx, &b, "%s%s", i ? ", " : "", osh_modifier_at(i)->name);
            osh_near_see(&near, osh_modifier_at(i)->name);
        }
        rc = osh_fail(cx, OSH_E_UNSUPPORTED, "%s:%d:%d: unknown modifier '%s': want %s%s", what,
                      name->line, name->column, near.word, b.data ? b.data : "",
                      osh_near_hint(&near, ""));
        osh_buf_deinit(cx, &b);
        goto done;
    }
    if (osh_modifier_quantizes(m)) OSH_TRY(modifier_quality(cx, &level, body, quality, what));
    if (level && !is_of_quality(m->type))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s:%d:%d: quality '%s' chooses between QuantizationModifier and GPTQModifier, "
                 "got %s: want one of the two",
                 what, name->line, name->column, level->name, m->type->name);
    if (level) m->type = osh_modifier_find(level->type);
    m->args = osh_calloc(cx, 1, m->type->bytes);
    if (!m->args) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", m->type->name);
    OSH_TRY(osh_fields_default(cx, m->type->fields, m->args));
    m->best = level && level->best;
    if (m->best) OSH_TRY(m->type->quantizer->best(cx, m));
    if (body->kind != OSH_Y_MAP && body->kind != OSH_Y_NULL)
        OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: %s: want a map", what, body->line, body->column,
                 m->type->name);
    for (size_t i = 0; body->kind == OSH_Y_MAP && i < body->n; i++) {
        const osh_yaml *k = body->keys[i], *v = body->items[i];
        const char *key = k->text ? k->text : "";
        bool known = false;
        if (!strcmp(key, "quality") && osh_modifier_quantizes(m)) continue;
        if (is_in_list(without_effect, key)) {
            osh_log(cx, OSH_LOG_INFO, "%s:%d: %s has no effect here", what, k->line, key);
            continue;
        }
        if (osh_modifier_quantizes(m)) OSH_TRY(osh_recipe_quant_key(cx, &q, key, v, &known, what));
        if (!known && m->type->key) OSH_TRY(m->type->key(cx, m, key, v, &known, what));
        if (!known) OSH_TRY(set_field(cx, m, key, v, &known, what));
        if (!known) OSH_TRY(unknown_key(cx, m, k, what));
    }
    OSH_TRY(osh_recipe_quant_build(cx, m, &q, what));
    const osh_quantizer *quantizer = m->type->quantizer;
    if (quantizer && quantizer->is_nearest && quantizer->is_nearest(m)) {
        osh_log(cx, OSH_LOG_INFO,
                "%s:%d: %s without steps rounds to nearest, as QuantizationModifier does", what,
                name->line, m->type->name);
        OSH_TRY(become_nearest(cx, m));
    }
done:
    return rc;
}

static osh_status copy_strs(osh_ctx *cx, osh_strs *to, const osh_strs *from)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, to->items, from->n);
    for (size_t i = 0; i < from->n; i++) {
        if (!(to->items[i] = osh_strdup(cx, from->items[i])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a list of names");
        to->n = i + 1;
    }
done:
    return rc;
}

/* `to` is a GPTQModifier without schemes, and `from` is an earlier QuantizationModifier. Copies the
 * schemes (with their actorder) and the ignore list of `from` to `to`. Marks `from` as replaced. */
static osh_status take_schemes_over(osh_ctx *cx, osh_modifier *to, osh_modifier *from)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, to->schemes, from->n_schemes);
    for (size_t i = 0; i < from->n_schemes; i++) {
        osh_q_scheme *s = &to->schemes[i];
        *s = from->schemes[i];
        s->group_name = NULL, s->targets = (osh_strs){0};
        to->n_schemes = i + 1;
        if (!(s->group_name = osh_strdup(cx, from->schemes[i].group_name)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a group's name");
        OSH_TRY(copy_strs(cx, &s->targets, &from->schemes[i].targets));
    }
    OSH_TRY(copy_strs(cx, &to->ignore, &from->ignore));
    from->replaced = true;
done:
    return rc;
}

static bool modifier_is_first(const osh_modifier *m)
{
    return m->type->rewriter && m->type->rewriter->first;
}

static osh_status recipe_finish(osh_ctx *cx, osh_recipe *r, const char *what)
{
    osh_status rc = OSH_OK;
    bool does = false;
    for (size_t i = 0; i < r->n; i++) {
        osh_modifier *m = &r->modifiers[i];
        // view: the last quantizer before m that has schemes and is not replaced
        osh_modifier *earlier = NULL;
        const osh_modifier *pruner = NULL, *transform = NULL;
        for (size_t k = 0; k < i; k++) {
            if (r->modifiers[k].type->pruner) pruner = &r->modifiers[k];
            else if (osh_modifier_changes_others(&r->modifiers[k])) transform = &r->modifiers[k];
            else if (!osh_modifier_quantizes(&r->modifiers[k])) continue;
            else if (r->modifiers[k].n_schemes && !r->modifiers[k].replaced)
                earlier = &r->modifiers[k];
        }
        if (modifier_is_first(m) && i)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s: %s comes after %s: want it first, because it changes the model for all "
                     "other modifiers",
                     what, m->type->name, r->modifiers[0].type->name);
        if (transform && osh_modifier_changes_others(m) &&
            (m->type->rewriter || transform->type->rewriter))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: %s together with %s is not supported: want one of them", what,
                     m->type->name, transform->type->name);
        if (!osh_modifier_quantizes(m)) {
            const osh_modifier *before = earlier ? earlier : m->type->pruner ? NULL : pruner;
            // A modifier must not change weights that an earlier modifier has quantized or pruned,
            // because the plan cannot compute such weights.
            if (before && !(earlier && m->type->transform))
                OSH_FAIL(cx, OSH_E_USAGE,
                         "%s: %s comes after %s, which %s the weights: want it before", what,
                         m->type->name, before->type->name, earlier ? "quantizes" : "prunes");
            if (m->type->resolve) OSH_TRY(m->type->resolve(cx, m));
        } else if (m->has_config || m->cache.present) {
            if (m->type->resolve) OSH_TRY(m->type->resolve(cx, m));
        } else if (earlier && m->type->solver->propagates && !m->ignore.n) {
            OSH_TRY(take_schemes_over(cx, m, earlier));
        } else {
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s: %s has no scheme and no config_groups: want one of them",
                     what, m->type->name);
        }
        OSH_TRY(osh_recipe_files_check(cx, m, what));
        OSH_TRY(osh_recipe_quant_matchers(cx, m));
        // a rotation alone is allowed, and makes a dense model
        does |= !m->type->transform;
    }
    if (!does)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: %s alone quantizes nothing: want a QuantizationModifier or GPTQModifier "
                 "after it",
                 what, r->modifiers[0].type->name);
done:
    return rc;
}

static osh_status recipe_append(osh_ctx *cx, osh_recipe *r, const osh_yaml *list, const char *what)
{
    osh_status rc = OSH_OK;
    if (list->kind != OSH_Y_MAP)
        OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: want a map of modifiers", what, list->line,
                 list->column);
    osh_modifier *grown = osh_realloc(cx, r->modifiers, (r->n + list->n + 1) * sizeof *grown);
    if (!grown) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the recipe's modifiers");
    r->modifiers = grown;
    for (size_t i = 0; i < list->n; i++) {
        r->modifiers[r->n] = (osh_modifier){0};
        r->n++;
        OSH_TRY(read_modifier(cx, &r->modifiers[r->n - 1], list->keys[i], list->items[i],
                              r->quality, what));
    }
done:
    return rc;
}

static osh_status read_stages(osh_ctx *cx, osh_recipe *r, const osh_yaml *y, const char *what)
{
    osh_status rc = OSH_OK;
    if (y->kind != OSH_Y_MAP)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: want a map of stages, got %s", what,
                 y->n ? "a list" : "nothing");
    for (size_t s = 0; s < y->n; s++) {
        const osh_yaml *k = y->keys[s], *stage = y->items[s];
        const char *key = k->text ? k->text : "";
        // a recipe without stages has the list of modifiers at the top level
        if (osh_ends_with(key, strlen(key), "_modifiers")) {
            OSH_TRY(recipe_append(cx, r, stage, what));
            continue;
        }
        if (!osh_ends_with(key, strlen(key), "_stage"))
            OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: unknown key '%s': want a name ending in _stage",
                     what, k->line, k->column, key);
        if (stage->kind != OSH_Y_MAP)
            OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: stage %s: want a map", what, stage->line,
                     stage->column, key);
        for (size_t i = 0; i < stage->n; i++) {
            const osh_yaml *g = stage->keys[i];
            const char *group = g->text ? g->text : "";
            if (!strcmp(group, "run_type")) continue;
            if (!osh_ends_with(group, strlen(group), "modifiers"))
                OSH_FAIL(cx, OSH_E_USAGE,
                         "%s:%d:%d: unknown key '%s': want a name ending in _modifiers", what,
                         g->line, g->column, group);
            OSH_TRY(recipe_append(cx, r, stage->items[i], what));
        }
    }
    if (!r->n) OSH_FAIL(cx, OSH_E_USAGE, "%s names no modifier: nothing would be done", what);
done:
    return rc;
}

static osh_status recipe_parse_text(osh_ctx *cx, osh_recipe **out, const char *text, size_t n,
                                    const char *quality, const char *what)
{
    osh_status rc = OSH_OK;
    osh_recipe *r = NULL; // own
    osh_yaml *y = NULL;   // own
    OSH_NEW(cx, r, 1);
    if (quality) {
        const struct quality *q = find_quality(quality);
        if (!q) OSH_FAIL(cx, OSH_E_USAGE, "quality '%s': want fast, gptq or best", quality);
        r->quality = q->name;
    }
    OSH_TRY(osh_yaml_parse(cx, &y, text, n, what));
    OSH_TRY(recipe_check_numbers(cx, y, what));
    OSH_TRY(read_stages(cx, r, y, what));
    OSH_TRY(recipe_finish(cx, r, what));
    OSH_NEW(cx, r->text, n + 1);
    memcpy(r->text, text, n);
    r->n_text = n;
    *out = r, r = NULL;
done:
    osh_yaml_free(cx, y);
    osh_recipe_free(cx, r);
    return rc;
}

osh_status osh_recipe_parse(osh_ctx *cx, osh_recipe **out, const char *text, size_t n,
                            const char *what)
{
    return recipe_parse_text(cx, out, text, n, NULL, what);
}

osh_status osh_recipe_parse_as(osh_ctx *cx, osh_recipe **out, const char *text, size_t n,
                               const char *quality, const char *what)
{
    return recipe_parse_text(cx, out, text, n, quality, what);
}

osh_status osh_recipe_open(osh_ctx *cx, osh_recipe **out, const char *path, const char *quality)
{
    osh_status rc = OSH_OK;
    char *text = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, 1u << 20));
    OSH_TRY(recipe_parse_text(cx, out, text, n, quality, path));
done:
    osh_free(cx, text);
    return rc;
}

void osh_recipe_free(osh_ctx *cx, osh_recipe *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n; i++) osh_modifier_deinit(cx, &r->modifiers[i]);
    osh_free(cx, r->modifiers);
    osh_free(cx, r->text);
    osh_free(cx, r);
}
