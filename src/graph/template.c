/* template.c - finds the template (models/<name>.json) of an architecture. Also evaluates the
 * expressions in a template, such as dims and attributes.
 *
 * An expression has sums, differences, products and quotients. Their operands are names, numbers,
 * and square roots, floors and ceilings of names. */
#include "graph/template.h"

#include "base/file.h"
#include "base/name.h"
#include "graph/extends.h"
#include "graph/models.h"
#include "graph/rope_freq.h"
#include "graph/templates.h"
#include "io/model_types.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16, MAX_NAME = 64, MAX_TEMPLATE_BYTES = 1 << 20 };

void osh_template_free(osh_ctx *cx, osh_template *t)
{
    if (!t) return;
    osh_free(cx, t->name);
    cJSON_Delete(t->json);
    osh_free(cx, t);
}

osh_status osh_template_parse(osh_ctx *cx, osh_template **out, const char *name, const char *text,
                              size_t n)
{
    osh_status rc = OSH_OK;
    osh_template *t = NULL; // own
    OSH_NEW(cx, t, 1);
    t->name = osh_strdup(cx, name);
    if (!t->name) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(osh_json_parse(cx, &t->json, text, n, name, 0));
    if (!cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(t->json, "architectures")))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: no list \"architectures\"", name);
    *out = t, t = NULL; // give
done:
    osh_template_free(cx, t);
    return rc;
}

/* Takes ownership of `t`. If the template `t` is for the architecture, sets *out to it. Otherwise
 * frees `t`. */
static void offer_take(osh_ctx *cx, osh_template **out, osh_template *t, const char *architecture)
{
    const cJSON *a;
    cJSON_ArrayForEach(a, cJSON_GetObjectItemCaseSensitive(t->json, "architectures"))
    {
        if (!cJSON_IsString(a)) continue;
        if (!*out && strcmp(a->valuestring, architecture) == 0) {
            *out = t, t = NULL; // give
            break;
        }
    }
    osh_template_free(cx, t);
}

/* Reads the template file `name` of the directory `dir`. Sets *out to NULL if `name` does not end
 * in ".json". */
static osh_status template_read(osh_ctx *cx, osh_template **out, const char *dir, const char *name)
{
    osh_status rc = OSH_OK;
    char *path = NULL, *text = NULL; // own
    size_t n = 0;
    *out = NULL;
    if (!osh_ends_with(name, strlen(name), ".json")) goto done;
    if (!(path = osh_path_join(cx, dir, name))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, MAX_TEMPLATE_BYTES));
    OSH_TRY(osh_template_parse(cx, out, path, text, n));
done:
    osh_free(cx, text);
    osh_free(cx, path);
    return rc;
}

static osh_status offer_dir(osh_ctx *cx, osh_template **out, const char *architecture,
                            const char *dir)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n && !*out; i++) {
        osh_template *t = NULL;
        OSH_TRY(template_read(cx, &t, dir, names[i]));
        if (t) offer_take(cx, out, t, architecture);
    }
done:
    osh_strings_free(cx, names, n);
    return rc;
}

/* Searches the embedded templates for the architecture. Parsing all templates takes milliseconds,
 * so this function parses only those that contain the name of the architecture. */
static osh_status offer_embedded(osh_ctx *cx, osh_template **out, const char *architecture)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < osh_n_embedded_models && !*out; i++) {
        const osh_embedded_model *m = &osh_embedded_models[i];
        osh_template *t = NULL;
        if (!memmem(m->text, m->n, architecture, strlen(architecture))) continue;
        OSH_TRY(osh_template_parse(cx, &t, m->name, m->text, m->n));
        offer_take(cx, out, t, architecture);
    }
done:
    return rc;
}

static osh_status template_extend(osh_ctx *cx, osh_template *t, const char *models_dir, int depth);

static osh_status template_find(osh_ctx *cx, osh_template **out, const char *architecture,
                                const char *models_dir, int depth)
{
    osh_status rc = OSH_OK;
    osh_template *found = NULL; // own
    *out = NULL;
    if (models_dir) OSH_TRY(offer_dir(cx, &found, architecture, models_dir));
    if (!found) OSH_TRY(offer_embedded(cx, &found, architecture));
    if (found) OSH_TRY(template_extend(cx, found, models_dir, depth));
done:
    if (rc)
        osh_template_free(cx, found);
    else
        *out = found;
    return rc;
}

static osh_status template_extend(osh_ctx *cx, osh_template *t, const char *models_dir, int depth)
{
    osh_status rc = OSH_OK;
    osh_template *base = NULL; // own
    const cJSON *extends = cJSON_GetObjectItemCaseSensitive(t->json, "extends");
    if (!extends) return OSH_OK;
    if (!cJSON_IsString(extends))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"extends\" is not the name of an architecture", t->name);
    if (depth >= MAX_DEPTH)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: more than %d templates extend each other", t->name,
                 MAX_DEPTH);
    OSH_TRY(template_find(cx, &base, extends->valuestring, models_dir, depth + 1));
    if (!base)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: no template has the architecture %s, which it extends",
                 t->name, extends->valuestring);
    OSH_TRY(osh_template_extend(cx, t->json, base->json, t->name));
    cJSON_Delete(t->json);
    t->json = base->json, base->json = NULL; // give
done:
    osh_template_free(cx, base);
    return rc;
}

osh_status osh_template_complete(osh_ctx *cx, osh_template *t, const char *models_dir)
{
    return template_extend(cx, t, models_dir, 0);
}

osh_status osh_templates_check(osh_ctx *cx, const char *models_dir)
{
    osh_status rc = OSH_OK;
    char **names = NULL;    // own
    osh_template *t = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, models_dir));
    for (size_t i = 0; i < n; i++) {
        OSH_TRY(template_read(cx, &t, models_dir, names[i]));
        if (!t) continue;
        OSH_TRY(osh_model_types_check(cx, t->json, t->name));
        OSH_TRY(osh_template_complete(cx, t, models_dir));
        osh_template_free(cx, t), t = NULL;
    }
done:
    osh_template_free(cx, t);
    osh_strings_free(cx, names, n);
    return rc;
}

osh_status osh_template_find(osh_ctx *cx, osh_template **out, const char *architecture,
                             const char *models_dir)
{
    return template_find(cx, out, architecture, models_dir, 0);
}

/* Returns the member of `object` whose key is `number`. The key may begin with zeros, because
 * transformers 5 writes "05" for 5 if the largest number is 11. */
static const cJSON *member_numbered(const cJSON *object, int64_t number)
{
    const cJSON *m;
    cJSON_ArrayForEach(m, object)
    {
        size_t n = strspn(m->string, "0123456789");
        if (n && n < 10 && !m->string[n] && strtoll(m->string, NULL, 10) == number) return m;
    }
    return NULL;
}

/* Evaluates {"layers", "key", "same", "else"}. "layers" names an object of config.json that has a
 * member for some layers, with the layer's number as its key. *out is the value of `key` in the
 * member of the current layer. *out is `same` if there is no such value, and `else` if config.json
 * has no such object. */
static osh_status layer_item_at(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row,
                                int depth)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(row, "layers"), *own,
                *key = cJSON_GetObjectItemCaseSensitive(row, "key");
    if (!cJSON_IsString(name) || !cJSON_IsString(key))
        return osh_fail(cx, OSH_E_FORMAT, "%s: \"layers\" and \"key\" are not words", s->tpl->name);
    const cJSON *all = osh_scope_member(s, name->valuestring);
    if (!cJSON_IsObject(all))
        return osh_scope_num_at(cx, out, s, cJSON_GetObjectItemCaseSensitive(row, "else"), depth);
    own = cJSON_GetObjectItemCaseSensitive(member_numbered(all, s->layer), key->valuestring);
    if (!own)
        return osh_scope_num_at(cx, out, s, cJSON_GetObjectItemCaseSensitive(row, "same"), depth);
    if (!cJSON_IsNumber(own) || !isfinite(own->valuedouble))
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s.%lld.%s is not a number", s->config->path,
                        name->valuestring, (long long)s->layer, key->valuestring);
    *out = own->valuedouble;
    return OSH_OK;
}

/* Evaluates {"list", "at", "else"}. *out is item `at` of the list of config.json that "list" names.
 * If config.json has a number instead of this list, *out is the number. *out is `else` if the list
 * is absent, if config.json has the word "auto" instead, or if the item is infinite. (transformers
 * 5 writes {"__float__": "Infinity"}.) */
static osh_status item_at(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row, int depth)
{
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(row, "list"),
                *at = cJSON_GetObjectItemCaseSensitive(row, "at");
    const char *name = cJSON_IsString(key) ? key->valuestring : "";
    const cJSON *list = osh_scope_member(s, name);
    double number = 0;
    osh_status rc = osh_scope_num_at(cx, &number, s, at, depth);
    if (rc) return rc;
    int index = number >= 0 && number < 1e9 ? (int)number : -1;
    const cJSON *item = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, index) : list;
    const cJSON *named = cJSON_GetObjectItemCaseSensitive(item, "__float__");
    bool infinite = cJSON_IsNumber(item)
                        ? isinf(item->valuedouble)
                        : cJSON_IsString(named) && !strcmp(named->valuestring, "Infinity");
    bool automatic = cJSON_IsString(list) && !strcmp(list->valuestring, "auto");
    if (!list || cJSON_IsNull(list) || infinite || automatic)
        return osh_scope_num_at(cx, out, s, cJSON_GetObjectItemCaseSensitive(row, "else"), depth);
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s[%d] is not a number", s->config->path, name,
                        index);
    *out = item->valuedouble;
    return OSH_OK;
}

const cJSON *osh_scope_member(const osh_scope *s, const char *name)
{
    const cJSON *sets = cJSON_GetObjectItemCaseSensitive(s->tpl->wrap, "sets"),
                *set = cJSON_GetObjectItemCaseSensitive(sets, name);
    return set ? set : osh_hf_config_member(s->config, name);
}

/* Returns the template's default for a key that config.json does not have, or NULL if there is no
 * default. If another template wraps the text model, the defaults of that template have
 * precedence. */
static const cJSON *scope_default(const osh_scope *s, const char *name)
{
    const cJSON *json = s->tpl->json, *around = s->tpl->wrap;
    const cJSON *tables[] = {cJSON_GetObjectItemCaseSensitive(around, "defaults"),
                             cJSON_GetObjectItemCaseSensitive(json, "defaults"),
                             around ? cJSON_GetObjectItemCaseSensitive(json, "wrapped_defaults")
                                    : NULL};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const cJSON *found = cJSON_GetObjectItemCaseSensitive(tables[i], name);
        if (found) return found;
    }
    return NULL;
}

static osh_status name_at(osh_ctx *cx, double *out, const osh_scope *s, const char *name, int depth)
{
    const cJSON *row = NULL, *json = s->tpl->json;
    if (depth > MAX_DEPTH)
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s is defined by itself", s->tpl->name, name);
    const struct { const char *name; double value; } own[] = {
        {"window", (double)s->window}, {"sliding", s->sliding}, {"sparse", s->sparse},
        {"apart", s->apart},
        {"e", (double)s->e}, {"i", (double)s->layer},
        {"rope_mscale", osh_rope_mscale(&s->config->rope)},
        {"no_rope", s->config->rope.none}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i].name) == 0) {
            *out = own[i].value;
            return OSH_OK;
        }
    row = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "flags"), name);
    if (row) return osh_scope_flag(cx, out, s, row, depth + 1);
    row = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "dims"), name);
    if (row) return osh_scope_num_at(cx, out, s, row, depth + 1);
    row = osh_scope_member(s, name);
    if (cJSON_IsNumber(row) && !isfinite(row->valuedouble))
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s is not finite", s->config->path, name);
    if (cJSON_IsNumber(row) || cJSON_IsBool(row)) {
        *out = cJSON_IsNumber(row) ? row->valuedouble : cJSON_IsTrue(row);
        return OSH_OK;
    }
    if (row && !cJSON_IsNull(row))
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s is not a number", s->config->path, name);
    const cJSON *nulls = cJSON_GetObjectItemCaseSensitive(json, "nulls");
    const cJSON *dflt =
        row ? cJSON_GetObjectItemCaseSensitive(nulls, name) : scope_default(s, name);
    if (!dflt)
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s is %s", s->config->path, name,
                        row ? "null" : "missing");
    return osh_scope_num_at(cx, out, s, dflt, depth + 1);
}

static double root_of(double x) { return x >= 0 ? sqrt(x) : 0; }

/* Functions that an expression can apply to a name, such as sqrt(head_dim). */
static const struct { const char *call; double (*of)(double); } functions[] = {
    {"sqrt(", root_of}, {"floor(", floor}, {"ceil(", ceil}};

/* Evaluates the operand at *p: a name, a number, or a function of a name. Moves *p to the end of
 * the operand. */
static osh_status expression_factor(osh_ctx *cx, double *out, const osh_scope *s, const char **p,
                                    int depth)
{
    const char *text = *p;
    char name[MAX_NAME], *end;
    size_t n = 0;
    double (*function)(double) = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions && !function; i++)
        if (!strncmp(*p, functions[i].call, strlen(functions[i].call)))
            function = functions[i].of, *p += strlen(functions[i].call);
    while (n + 1 < sizeof name && (isalnum((unsigned char)(*p)[n]) || (*p)[n] == '_' ||
                                   (n && (*p)[n] == '.')))
        n++;
    memcpy(name, *p, n), name[n] = 0, *p += n;
    if (n == 0 || (function && *(*p)++ != ')'))
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: '%s' does not begin with a name, a number, or sqrt, floor or ceil of "
                        "a name",
                        s->tpl->name, text);
    if (isdigit((unsigned char)name[0])) {
        *out = strtod(name, &end);
        if (*end) return osh_fail(cx, OSH_E_FORMAT, "%s: '%s' is not a number", s->tpl->name, name);
    } else {
        osh_status rc = name_at(cx, out, s, name, depth + 1);
        if (rc) return rc;
    }
    if (function) *out = function(*out);
    return OSH_OK;
}

static osh_status text_at(osh_ctx *cx, double *out, const osh_scope *s, const char *text, int depth)
{
    osh_status rc = OSH_OK;
    double sum = 0, product = 0;
    char op = '+';
    for (const char *p = text;;) {
        double x = 0;
        const char *at = p;
        rc = expression_factor(cx, &x, s, &p, depth);
        if (rc) goto done;
        if (op == '/' && x == 0)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.*s is 0", s->config->path, (int)(p - at), at);
        if (op == '+' || op == '-') sum += product, product = op == '+' ? x : -x;
        else product = op == '*' ? product * x : product / x;
        if (!*p) break;
        op = *p++;
        if (op != '*' && op != '/' && op != '+' && op != '-')
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: '%s' is not a sum of products of names and numbers",
                     s->tpl->name, text);
    }
    *out = sum + product;
done:
    return rc;
}

/* Evaluates {"items": key}: sets *out to the number of items of the list `key` of config.json. */
static osh_status count_items(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *key)
{
    const char *name = cJSON_IsString(key) ? key->valuestring : "";
    const cJSON *list = osh_scope_member(s, name);
    if (!cJSON_IsArray(list))
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s is not a list", s->config->path, name);
    *out = cJSON_GetArraySize(list);
    return OSH_OK;
}

osh_status osh_scope_num_at(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *expr,
                            int depth)
{
    if (cJSON_IsNumber(expr) || cJSON_IsBool(expr)) {
        *out = cJSON_IsNumber(expr) ? expr->valuedouble : cJSON_IsTrue(expr);
        return OSH_OK;
    }
    if (cJSON_IsString(expr)) return text_at(cx, out, s, expr->valuestring, depth);
    if (cJSON_IsObject(expr) && depth <= MAX_DEPTH) {
        const cJSON *items = cJSON_GetObjectItemCaseSensitive(expr, "items");
        if (items) return count_items(cx, out, s, items);
        if (cJSON_GetObjectItemCaseSensitive(expr, "count") ||
            cJSON_GetObjectItemCaseSensitive(expr, "find"))
            return osh_scope_words(cx, out, s, expr, depth + 1);
        bool by_layer = cJSON_GetObjectItemCaseSensitive(expr, "layers") != NULL;
        return (by_layer ? layer_item_at : item_at)(cx, out, s, expr, depth + 1);
    }
    return osh_fail(cx, OSH_E_FORMAT,
                    "%s: a value has the wrong type, want a number or an expression",
                    s->tpl->name);
}

osh_status osh_scope_num(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *expr)
{
    return osh_scope_num_at(cx, out, s, expr, 0);
}

osh_status osh_scope_name(osh_ctx *cx, double *out, const osh_scope *s, const char *name)
{
    return name_at(cx, out, s, name, 0);
}

/* Returns a word that stands for `expr` in messages. A row of "dims" has a name and a key of
 * config.json. If `expr` is such a name, returns the key, because the user knows the key. */
static const char *expression_words(const osh_scope *s, const cJSON *expr)
{
    const cJSON *dims = cJSON_GetObjectItemCaseSensitive(s->tpl->json, "dims"), *row;
    if (!cJSON_IsString(expr)) return "a number";
    row = cJSON_GetObjectItemCaseSensitive(dims, expr->valuestring);
    return cJSON_IsString(row) ? row->valuestring : expr->valuestring;
}

osh_status osh_scope_int(osh_ctx *cx, int64_t *out, const osh_scope *s, const cJSON *expr,
                         int64_t min)
{
    double x = 0;
    osh_status rc = osh_scope_num_at(cx, &x, s, expr, 0);
    if (rc) return rc;
    if (!(x >= (double)min && x <= OSH_TEMPLATE_MOST && x == floor(x)))
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s is %g, want a whole number of at least %lld",
                        s->config->path, expression_words(s, expr), x, (long long)min);
    *out = (int64_t)x;
    return OSH_OK;
}

osh_status osh_scope_str(osh_ctx *cx, const char **out, const osh_scope *s, const char *key)
{
    const cJSON *row = osh_scope_member(s, key);
    if (!row) row = scope_default(s, key);
    if (!row) return osh_fail(cx, OSH_E_FORMAT, "%s: %s is missing", s->config->path, key);
    if (!cJSON_IsString(row))
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s is not a string", s->config->path, key);
    *out = row->valuestring;
    return OSH_OK;
}
