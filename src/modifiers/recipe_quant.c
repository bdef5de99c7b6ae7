/* recipe_quant.c - reads the quantization keys of a recipe into schemes: config_groups, scheme,
 * targets, ignore, and the keys that name observers. The rules are those of llmcompressor's
 * mixin.py. The keys scheme and config_groups exclude each other. The default observer is
 * memoryless_minmax for weights, minmax for static activations, none for dynamic activations. */
#include "modifiers/recipe_quant.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "quant/observer.h"

static const char *yaml_kind_name(const osh_yaml *y)
{
    static const char *const names[] = {"null",     "a bool", "a whole number", "a number",
                                        "a string", "a list", "a map"};
    return names[y->kind];
}

/* Python's yaml module writes an enum as !!python/object/apply:... [value]. Returns the value if y
 * is such an enum. Otherwise returns y. */
static const osh_yaml *yaml_plain(const osh_yaml *y)
{
    return y->kind == OSH_Y_SEQ && y->tag && y->n == 1 ? y->items[0] : y;
}

static osh_status yaml_bad(osh_ctx *cx, const osh_yaml *y, const char *what, const char *key,
                           const char *want)
{
    return osh_fail(cx, OSH_E_USAGE, "%s:%d:%d: %s: want %s, got %s%s%s", what, y->line, y->column,
                    key, want, y->text ? "'" : "", y->text ? y->text : yaml_kind_name(y),
                    y->text ? "'" : "");
}

osh_status osh_recipe_strs(osh_ctx *cx, osh_strs *out, const osh_yaml *y, const char *key,
                           const char *what)
{
    osh_status rc = OSH_OK;
    size_t n = y->kind == OSH_Y_SEQ ? y->n : y->kind == OSH_Y_NULL ? 0 : 1;
    OSH_NEW(cx, out->items, n);
    for (size_t i = 0; i < n; i++) {
        const osh_yaml *s = y->kind == OSH_Y_SEQ ? y->items[i] : y;
        if (s->kind != OSH_Y_STR) {
            rc = yaml_bad(cx, s, what, key, "a string or a list of strings");
            goto done;
        }
        if (!(out->items[i] = osh_strdup(cx, s->text)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", key);
        out->n = i + 1;
    }
done:
    return rc;
}

static osh_status as_bool(osh_ctx *cx, bool *out, const osh_yaml *y, const char *key,
                          const char *what)
{
    if (y->kind != OSH_Y_BOOL) return yaml_bad(cx, y, what, key, "true or false");
    *out = y->b;
    return OSH_OK;
}

/* Sets *out to the index of the text of y in the list `names`. The list ends with NULL. Ignores
 * case. Fails if the text is not in the list; the error message lists all names. */
static osh_status as_choice(osh_ctx *cx, int *out, const osh_yaml *y, const char *const *names,
                            const char *key, const char *what)
{
    char want[256] = "one of";
    for (int i = 0; names[i]; i++) {
        if (y->kind == OSH_Y_STR && !strcasecmp(y->text, names[i])) {
            *out = i;
            return OSH_OK;
        }
        size_t n = strlen(want);
        snprintf(want + n, sizeof want - n, "%s %s", i ? "," : "", names[i]);
    }
    return yaml_bad(cx, y, what, key, want);
}

/* Reads the name of an observer, and ignores its case, as LLM Compressor does. */
static osh_status recipe_set_observer(osh_ctx *cx, char out[32], const osh_yaml *y, const char *key,
                                      const char *what)
{
    osh_status rc = OSH_OK;
    osh_q_args a = {0};
    char where[160];
    if (y->kind != OSH_Y_STR) OSH_TRY(yaml_bad(cx, y, what, key, "the name of an observer"));
    snprintf(where, sizeof where, "%.100s:%d:%d: %s", what, y->line, y->column, key);
    OSH_TRY(osh_q_args_set(cx, &a, "observer", y->text, where));
    OSH_TRY(osh_q_observer_known(cx, a.observer, where));
    snprintf(out, 32, "%s", a.observer);
done:
    return rc;
}

static osh_status read_kwargs(osh_ctx *cx, osh_q_args *a, const osh_yaml *y, const char *what)
{
    osh_status rc = OSH_OK;
    char where[160];
    if (y->kind == OSH_Y_NULL) goto done;
    if (y->kind != OSH_Y_MAP) OSH_TRY(yaml_bad(cx, y, what, "observer_kwargs", "a map"));
    for (size_t i = 0; i < y->n; i++) {
        const osh_yaml *k = y->keys[i], *v = yaml_plain(y->items[i]);
        osh_q_kwarg given = {.kind = v->kind == OSH_Y_BOOL  ? OSH_Q_KWARG_BOOL
                                     : v->kind == OSH_Y_INT ? OSH_Q_KWARG_INT
                                                            : OSH_Q_KWARG_FLOAT};
        snprintf(where, sizeof where, "%.100s:%d:%d", what, k->line, k->column);
        if (k->kind != OSH_Y_STR || strlen(k->text) >= sizeof given.name)
            OSH_TRY(yaml_bad(cx, k, what, "observer_kwargs", "names such as maxshrink"));
        if (v->kind != OSH_Y_BOOL && v->kind != OSH_Y_INT && v->kind != OSH_Y_FLOAT)
            OSH_TRY(yaml_bad(cx, v, what, k->text, "a number, true or false"));
        snprintf(given.name, sizeof given.name, "%s", k->text);
        given.value = v->kind == OSH_Y_BOOL ? v->b : v->f;
        OSH_TRY(osh_q_observer_kwarg(cx, a, &given, where));
    }
done:
    return rc;
}

/* Returns the value of y as the text that osh_q_args_set reads, or NULL for null. `buf`: memory for
 * the text. */
static const char *yaml_text_of(const osh_yaml *y, char *buf, size_t cap)
{
    if (y->kind == OSH_Y_NULL) return NULL;
    if (y->kind == OSH_Y_BOOL) return y->b ? "true" : "false";
    if (y->kind == OSH_Y_INT) // the text may be 0x10 or 1_000, so the number is printed in decimal
        snprintf(buf, cap, "%lld", (long long)y->i);
    else if (y->kind == OSH_Y_SEQ && y->n == 2 && y->items[0]->kind == OSH_Y_INT &&
             y->items[1]->kind == OSH_Y_INT)
        snprintf(buf, cap, "%lldx%lld", (long long)y->items[0]->i, (long long)y->items[1]->i);
    else if (y->kind == OSH_Y_SEQ || y->kind == OSH_Y_MAP)
        snprintf(buf, cap, y->kind == OSH_Y_SEQ ? "[...]" : y->n ? "{...}" : "{}");
    else
        return y->text;
    return buf;
}

static osh_status read_args(osh_ctx *cx, osh_q_args *a, const osh_yaml *y, const char *key,
                            bool is_weight, const char *what)
{
    osh_status rc = OSH_OK;
    char where[160], buf[64];
    *a = (osh_q_args){0};
    if (y->kind == OSH_Y_NULL) goto done;
    if (y->kind != OSH_Y_MAP) OSH_TRY(yaml_bad(cx, y, what, key, "a map"));
    osh_q_args_init(a);
    for (size_t i = 0; i < y->n; i++) {
        const osh_yaml *k = y->keys[i], *v = yaml_plain(y->items[i]);
        if (k->kind != OSH_Y_STR) OSH_TRY(yaml_bad(cx, k, what, key, "string keys"));
        snprintf(where, sizeof where, "%.100s:%d:%d", what, k->line, k->column);
        if (!strcmp(k->text, "observer_kwargs")) OSH_TRY(read_kwargs(cx, a, v, what));
        else OSH_TRY(osh_q_args_set(cx, a, k->text, yaml_text_of(v, buf, sizeof buf), where));
    }
    snprintf(where, sizeof where, "%.100s:%d:%d: %s", what, y->line, y->column, key);
    OSH_TRY(osh_q_args_check(cx, a, where, is_weight));
done:
    return rc;
}

static osh_status read_group(osh_ctx *cx, osh_q_scheme *s, const osh_yaml *name, const osh_yaml *y,
                             const char *what)
{
    osh_status rc = OSH_OK;
    if (!(s->group_name = osh_strdup(cx, name->text)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a group's name");
    if (y->kind == OSH_Y_SEQ) { // a config group of the form PRESET: [targets]
        OSH_TRY(osh_q_preset(cx, s, name->text));
        OSH_TRY(osh_recipe_strs(cx, &s->targets, y, "targets", what));
        goto done;
    }
    if (y->kind != OSH_Y_MAP)
        OSH_TRY(yaml_bad(cx, y, what, name->text, "a map (targets, weights, ...)"));
    for (size_t i = 0; i < y->n; i++) {
        const char *key = y->keys[i]->text ? y->keys[i]->text : "";
        const osh_yaml *v = yaml_plain(y->items[i]);
        if (!strcmp(key, "targets")) OSH_TRY(osh_recipe_strs(cx, &s->targets, v, key, what));
        else if (!strcmp(key, "weights")) OSH_TRY(read_args(cx, &s->weights, v, key, true, what));
        else if (!strcmp(key, "input_activations"))
            OSH_TRY(read_args(cx, &s->inputs, v, key, false, what));
        else if (!strcmp(key, "output_activations"))
            OSH_TRY(read_args(cx, &s->outputs, v, key, false, what));
        else if (!strcmp(key, "format")) {
            if (v->kind == OSH_Y_NULL) continue;
            if (v->kind != OSH_Y_STR) OSH_TRY(yaml_bad(cx, v, what, key, "a format's name"));
            snprintf(s->format, sizeof s->format, "%s", v->text);
        } else
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s:%d:%d: unknown key '%s': want targets, weights, input_activations, "
                     "output_activations or format",
                     what, y->keys[i]->line, y->keys[i]->column, key);
    }
    if (!s->targets.n) OSH_TRY(yaml_bad(cx, y, what, name->text, "targets"));
    char where[160];
    snprintf(where, sizeof where, "%.100s:%d:%d: %s", what, y->line, y->column, s->group_name);
    OSH_TRY(osh_q_scheme_check(cx, s, where));
done:
    return rc;
}

osh_status osh_recipe_quant_key(osh_ctx *cx, osh_recipe_quant *q, const char *key,
                                const osh_yaml *value, bool *known, const char *what)
{
    static const char *const observer_keys[] = {"weight_observer", "input_observer",
                                                "output_observer"};
    static const char *const observer_of[] = {"weights", "input", "output"};
    osh_status rc = OSH_OK;
    bool null = value->kind == OSH_Y_NULL;
    *known = true;
    if (!strcmp(key, "config_groups")) q->config_groups = null ? NULL : value;
    else if (!strcmp(key, "scheme")) q->scheme = null ? NULL : value;
    else if (!strcmp(key, "targets")) q->targets = null ? NULL : value;
    else if (!strcmp(key, "ignore")) q->ignore = null ? NULL : value;
    else if (!strcmp(key, "kv_cache_scheme")) q->cache = null ? NULL : value;
    else if (!strcmp(key, "candidates")) q->candidates = null ? NULL : value;
    else if (!strcmp(key, "bypass_divisibility_checks")) {
        bool on = false;
        if (!null) OSH_TRY(as_bool(cx, &on, value, key, what));
        if (on)
            osh_log(cx, OSH_LOG_WARN,
                    "%s:%d: bypass_divisibility_checks has no effect: a group that does not divide "
                    "a row cannot be stored",
                    what, value->line);
    } else if (!strcmp(key, "observer")) {
        for (size_t i = 0; value->kind == OSH_Y_MAP && i < value->n; i++) {
            int which = 0;
            static const char *const names[] = {"weights", "input", "output", NULL};
            OSH_TRY(as_choice(cx, &which, value->keys[i], names, key, what));
            OSH_TRY(recipe_set_observer(cx, q->observers[which], value->items[i],
                                        observer_of[which], what));
        }
        if (!null && value->kind != OSH_Y_MAP)
            OSH_TRY(yaml_bad(cx, value, what, key, "a map of weights, input, output"));
    } else {
        *known = false;
        for (int i = 0; i < 3; i++)
            if (!strcmp(key, observer_keys[i])) {
                *known = true;
                if (!null) OSH_TRY(recipe_set_observer(cx, q->observers[i], value, key, what));
            }
    }
done:
    return rc;
}

static osh_status fill_observers(osh_ctx *cx, osh_q_scheme *s, const osh_recipe_quant *q,
                                 const char *what)
{
    static const char *const keys[] = {"weights", "input_activations", "output_activations"};
    osh_status rc = OSH_OK;
    osh_q_args *args[] = {&s->weights, &s->inputs, &s->outputs};
    for (int k = 0; k < 3; k++) {
        osh_q_args *a = args[k];
        char where[160];
        if (!a->present) continue;
        if (q->observers[k][0]) snprintf(a->observer, sizeof a->observer, "%s", q->observers[k]);
        if (a->dynamic == OSH_Q_DYNAMIC) a->observer[0] = 0, a->n_kwargs = 0;
        if (a->dynamic == OSH_Q_DYNAMIC) continue;
        osh_q_observer_default(a, k == 0);
        snprintf(where, sizeof where, "%.80s: %.40s.%s", what, s->group_name, keys[k]);
        OSH_TRY(osh_q_observer_check(cx, a, where));
    }
done:
    return rc;
}

static osh_status targets_or_linear(osh_ctx *cx, osh_strs *out, const osh_yaml *targets,
                                    const char *what)
{
    static const osh_yaml linear = {.kind = OSH_Y_STR, .text = "Linear"};
    return osh_recipe_strs(cx, out, targets ? targets : &linear, "targets", what);
}

static osh_status build_groups(osh_ctx *cx, osh_modifier *m, const osh_recipe_quant *q,
                               const char *what)
{
    osh_status rc = OSH_OK;
    const osh_yaml *map = q->config_groups ? q->config_groups : q->scheme;
    if (map->kind != OSH_Y_MAP || !map->n)
        OSH_TRY(yaml_bad(cx, map, what, q->config_groups ? "config_groups" : "scheme",
                         "a map with at least one group"));
    OSH_NEW(cx, m->schemes, map->n);
    for (size_t i = 0; i < map->n; i++) {
        m->n_schemes = i + 1;
        if (map->keys[i]->kind != OSH_Y_STR)
            OSH_TRY(yaml_bad(cx, map->keys[i], what, "group", "a name"));
        OSH_TRY(read_group(cx, &m->schemes[i], map->keys[i], map->items[i], what));
        if (q->scheme) { // with the key `scheme`, the groups get the names group_0, group_1, ...
            osh_free(cx, m->schemes[i].group_name);
            if (!(m->schemes[i].group_name = osh_sprintf(cx, "group_%zu", i)))
                OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a group's name");
        }
    }
done:
    return rc;
}

static osh_status read_cache(osh_ctx *cx, osh_modifier *m, const osh_yaml *y, const char *what)
{
    osh_status rc = OSH_OK;
    char where[160];
    snprintf(where, sizeof where, "%.100s:%d:%d", what, y->line, y->column);
    OSH_TRY(read_args(cx, &m->cache, y, "kv_cache_scheme", false, what));
    OSH_TRY(osh_q_cache_check(cx, &m->cache, where));
    // True if the recipe names an observer. If it names none, the observer in config.json is null,
    // as in LLM Compressor, and minmax finds the scales.
    bool named = false;
    for (size_t i = 0; y->kind == OSH_Y_MAP && i < y->n; i++)
        named |= y->keys[i]->text && !strcmp(y->keys[i]->text, "observer") &&
                 y->items[i]->kind == OSH_Y_STR;
    if (!named) m->cache.observer[0] = 0;
    OSH_TRY(osh_q_observer_check(cx, &m->cache, where));
done:
    return rc;
}

/* Copies the arguments of a config group for attention (queries, keys and values) to m->cache. */
static osh_status take_attention(osh_ctx *cx, osh_modifier *m, const char *what)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < m->n_schemes; i++) {
        const osh_q_scheme *s = &m->schemes[i];
        if (!osh_q_of_attention(s)) continue;
        if (m->cache.present)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s: %s and %s both quantize the inputs of attention: want one of them",
                     what, s->group_name, m->queries ? "another group" : "kv_cache_scheme");
        m->cache = s->inputs, m->queries = true;
    }
done:
    return rc;
}

/* Reads a candidate of a survey from the name of a preset. The candidate gets the observers of the
 * modifier. */
static osh_status read_candidate(osh_ctx *cx, osh_candidate *c, const osh_yaml *y,
                                 const osh_recipe_quant *q, const char *what)
{
    osh_status rc = OSH_OK;
    osh_q_scheme s = {0}; // s is not freed, because its strings are views
    rc = osh_q_preset(cx, &s, y->text);
    if (rc) osh_note(cx, "reading %s:%d:%d: candidates", what, y->line, y->column);
    if (rc) goto done;
    if (!s.weights.present || (s.inputs.present && s.inputs.dynamic != OSH_Q_DYNAMIC))
        OSH_TRY(yaml_bad(
            cx, y, what, "candidates",
            "schemes for weights without static inputs, so that their loss can be predicted"));
    s.group_name = y->text;
    OSH_TRY(fill_observers(cx, &s, q, what));
    snprintf(c->name, sizeof c->name, "%s", y->text);
    for (char *at = c->name; *at; at++) *at = (char)toupper((unsigned char)*at);
    c->weights = s.weights, c->inputs = s.inputs;
done:
    return rc;
}

/* Reads the candidates of a survey: numbers of bits in ascending order, then names of presets. */
static osh_status read_candidates(osh_ctx *cx, osh_modifier *m, const osh_recipe_quant *q,
                                  const char *what)
{
    osh_status rc = OSH_OK;
    const osh_yaml *y = q->candidates;
    bool has[9] = {false};
    if (y->kind != OSH_Y_SEQ || !y->n || y->n > OSH_CANDIDATES)
        OSH_TRY(yaml_bad(cx, y, what, "candidates",
                         "a list of bits, such as [3, 4, 8], or of schemes, 7 at most"));
    OSH_NEW(cx, m->candidates, OSH_CANDIDATES);
    for (size_t i = 0; i < y->n; i++) {
        const osh_yaml *v = y->items[i];
        if (v->kind == OSH_Y_STR) continue;
        if (v->kind != OSH_Y_INT || v->i < 2 || v->i > 8 || has[v->i])
            OSH_TRY(yaml_bad(cx, v, what, "candidates", "bits from 2 to 8, each once, or schemes"));
        has[v->i] = true;
    }
    for (int b = 2; b <= 8; b++)
        if (has[b]) m->candidates[m->n_candidates++].bits = b;
    for (size_t i = 0; i < y->n; i++) {
        if (y->items[i]->kind != OSH_Y_STR) continue;
        osh_candidate *c = &m->candidates[m->n_candidates++];
        OSH_TRY(read_candidate(cx, c, y->items[i], q, what));
        for (osh_candidate *o = m->candidates; o < c; o++)
            if (!strcmp(o->name, c->name))
                OSH_TRY(yaml_bad(cx, y->items[i], what, "candidates", "each scheme once"));
    }
done:
    return rc;
}

osh_status osh_recipe_quant_build(osh_ctx *cx, osh_modifier *m, const osh_recipe_quant *q,
                                  const char *what)
{
    osh_status rc = OSH_OK;
    if (q->scheme && q->config_groups)
        OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: scheme and config_groups exclude each other", what,
                 q->scheme->line, q->scheme->column);
    if (q->ignore) OSH_TRY(osh_recipe_strs(cx, &m->ignore, q->ignore, "ignore", what));
    if (q->cache) OSH_TRY(read_cache(cx, m, q->cache, what));
    if (q->candidates) OSH_TRY(read_candidates(cx, m, q, what));
    m->has_config = q->scheme || q->config_groups;
    if (q->config_groups || (q->scheme && q->scheme->kind == OSH_Y_MAP)) {
        OSH_TRY(build_groups(cx, m, q, what));
    } else if (q->scheme) {
        if (q->scheme->kind != OSH_Y_STR)
            OSH_TRY(yaml_bad(cx, q->scheme, what, "scheme", "a preset's name or a map of them"));
        OSH_NEW(cx, m->schemes, 1);
        m->n_schemes = 1;
        if (!(m->schemes[0].group_name = osh_strdup(cx, "group_0")))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a group's name");
        rc = osh_q_preset(cx, &m->schemes[0], q->scheme->text);
        if (rc) osh_note(cx, "reading %s:%d:%d", what, q->scheme->line, q->scheme->column);
        if (rc) goto done;
        OSH_TRY(targets_or_linear(cx, &m->schemes[0].targets, q->targets, what));
    } else if (q->targets &&
               !(q->targets->kind == OSH_Y_SEQ && q->targets->n == 1 &&
                 q->targets->items[0]->text && !strcmp(q->targets->items[0]->text, "Linear"))) {
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s:%d:%d: targets without scheme or config_groups: want one of them", what,
                 q->targets->line, q->targets->column);
    }
    for (size_t i = 0; i < m->n_schemes; i++) OSH_TRY(fill_observers(cx, &m->schemes[i], q, what));
    OSH_TRY(take_attention(cx, m, what));
done:
    return rc;
}

osh_status osh_recipe_quant_matchers(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    const char **all = NULL; // own array; its items are views
    size_t n = 0, k = 0;
    for (size_t i = 0; i < m->n_schemes; i++) n += m->schemes[i].targets.n;
    OSH_NEW(cx, all, n);
    OSH_NEW(cx, m->target_scheme, n);
    for (size_t i = 0; i < m->n_schemes; i++)
        for (size_t t = 0; t < m->schemes[i].targets.n; t++) {
            // if a target occurs twice, it belongs to the later group, as in a Python dict
            size_t at = k;
            for (size_t p = 0; p < k; p++)
                if (!strcmp(all[p], m->schemes[i].targets.items[t])) at = p;
            all[at] = m->schemes[i].targets.items[t];
            m->target_scheme[at] = (int)i;
            if (at == k) k++;
        }
    OSH_TRY(osh_matcher_new(cx, &m->targets, all, k));
    OSH_TRY(osh_matcher_new(cx, &m->ignored, (const char *const *)m->ignore.items, m->ignore.n));
done:
    osh_free(cx, all);
    return rc;
}
