/* hf_rope.c - reads rope_theta and rope_scaling (transformers 4) or rope_parameters (5) into one
 * osh_rope.
 *
 * The rules are those of RotaryEmbeddingConfigMixin and ROPE_INIT_FUNCTIONS of transformers 5:
 *   - The dict is rope_scaling if it is not empty, else rope_parameters.
 *   - The type is "rope_type" of the dict, else "type" of the dict.
 *   - rope_theta and partial_rotary_factor are read from the dict, else from the top level. Their
 *     defaults are those of the family, else 10000 and 1.
 *   - llama3, yarn and longrope use original_max_position_embeddings. It is read from the top
 *     level, else from the dict. Its default is that of the family, else max_position_embeddings.
 *   - For yarn, a factor of null is replaced by the quotient of max_position_embeddings and
 *     original_max_position_embeddings. beta_fast and beta_slow count as absent if they are 0.
 *
 * rope_parameters may have one object for each layer type. These objects are accepted if all of
 * them are equal, or if the sliding layers of the family have a rope of their own (Gemma 3, OLMo
 * 3). In a family with two ropes, keys outside of the objects are for the layers with full
 * attention. */
#include "io/hf_rope.h"

#include <math.h>
#include <string.h>

/* State while the parameters are read. A missing or invalid parameter (a problem) gets a default
 * value. The text of the first problem is stored. */
typedef struct reader {
    osh_ctx *cx;
    /* dict: the object rope_scaling or rope_parameters; NULL if config.json has neither. */
    const cJSON *config, *dict;
    const osh_rope_defaults *family;
    const char *type;           // rope type, for messages
    char *problem;              // own
    osh_status rc;              // OSH_OK, or OSH_E_NOMEM
} reader;

static const cJSON *rope_member(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
    return v && !cJSON_IsNull(v) ? v : NULL;
}

/* If config.json has no member `key` and the family has another name for this key, returns the
 * other name. Otherwise returns `key`. */
static const char *top_key(const reader *r, const char *key)
{
    const char *other =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(r->family->keys, key));
    return other && !rope_member(r->config, key) ? other : key;
}

static void set_problem(reader *r, const char *key, const char *text)
{
    if (r->problem || r->rc) return;
    r->problem = osh_sprintf(r->cx, "%s: '%s' %s", r->type, key, text);
    if (!r->problem) r->rc = OSH_E_NOMEM;
}

/* Returns the finite number that the JSON object o has under `key`, or `dflt` if o does not have
 * the key. */
static double take_num(reader *r, const cJSON *o, const char *key, double dflt)
{
    const cJSON *v = rope_member(o, key);

    if (!v) return dflt;
    if (!cJSON_IsNumber(v) || !isfinite(v->valuedouble)) {
        set_problem(r, key, "is not a finite number");
        return dflt;
    }
    return v->valuedouble;
}

static double need_positive(reader *r, const char *key)
{
    double d;

    if (!rope_member(r->dict, key)) {
        set_problem(r, key, "is missing");
        return 1;
    }
    d = take_num(r, r->dict, key, 1);
    if (d <= 0) set_problem(r, key, "is not above 0");
    return d;
}

/* Returns the number that the JSON object o has under `key`, or `dflt` if o does not have the key.
 * If the number is not whole or is less than 1, stores this fault in r->problem. */
static int64_t take_length(reader *r, const cJSON *o, const char *key, int64_t dflt)
{
    double d = take_num(r, o, key, (double)dflt);

    if (d != floor(d) || d > 1e15 || (rope_member(o, key) && d < 1)) {
        set_problem(r, key, "is not a whole number above 0");
        return dflt;
    }
    return (int64_t)d;
}

/* Returns the object with the rope parameters of layers of type `type`. `types` has such an object
 * for each type. In some families, the name of the object is not `type`, but the value of `type` in
 * r->family->keys. In these families, `types` may instead be the object for full attention. */
static const cJSON *type_dict(const reader *r, const cJSON *types, const char *type)
{
    const char *own = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(r->family->keys, type));
    bool whole = own && (rope_member(types, "rope_type") || rope_member(types, "type"));
    if (whole) return strcmp(type, "full_attention") ? NULL : types;
    return rope_member(types, own ? own : type);
}

/* Sets r->dict to the object of config.json with rope_type and its parameters, or to NULL if there
 * is none. */
static void find_dict(reader *r, bool sliding)
{
    const cJSON *d = rope_member(r->config, "rope_scaling"), *first = NULL,
                *types = rope_member(r->config, "rope_parameters");
    bool by_type = r->family->sliding_theta != 0;

    if (types && !cJSON_IsObject(types))
        set_problem(r, "rope_parameters", "is not an object"), types = NULL;
    if (!d || (cJSON_IsObject(d) && !d->child))
        d = by_type ? type_dict(r, types, "full_attention") : types;
    if (sliding) d = type_dict(r, types, "sliding_attention");
    r->dict = d;
    if (!d) return;
    if (!cJSON_IsObject(d)) {
        r->dict = NULL;
        set_problem(r, "rope_scaling", "is not an object");
        return;
    }
    if (rope_member(d, "rope_type") || rope_member(d, "type")) return;
    // `d` may have one member for each layer type: an object with the parameters of this type
    for (const cJSON *v = d->child; v; v = v->next)
        if (cJSON_IsObject(v)) first = first ? first : v;
    if (!first) return;
    r->dict = first;
    for (const cJSON *v = d->child; v; v = v->next)
        if (!cJSON_Compare(v, first, 1))
            set_problem(r, "rope_parameters", "differ between layer types");
}

static osh_rope_type find_type(reader *r)
{
    static const struct {
        const char *name;
        osh_rope_type type;
    } types[] = {{"default", OSH_ROPE_DEFAULT},
                 /* mrope has three positions per token. For text these positions are equal, and
                  * mrope computes the same as the type "default". */
                 {"mrope", OSH_ROPE_DEFAULT},
                 {"linear", OSH_ROPE_LINEAR},
                 {"llama3", OSH_ROPE_LLAMA3},
                 {"dynamic", OSH_ROPE_DYNAMIC},
                 {"yarn", OSH_ROPE_YARN},
                 {"longrope", OSH_ROPE_LONGROPE},
                 {"proportional", OSH_ROPE_PROPORTIONAL}};
    const cJSON *v = rope_member(r->dict, "rope_type");

    if (!v) v = rope_member(r->dict, "type");
    const char *name = cJSON_IsString(v) ? v->valuestring : "";
    if (r->family->longrope && (!strcmp(name, "su") || !strcmp(name, "yarn"))) {
        r->type = "longrope";
        return OSH_ROPE_LONGROPE;
    }
    if (!v) return OSH_ROPE_DEFAULT;
    if (!cJSON_IsString(v)) {
        set_problem(r, "rope_type", "is not a string");
        return OSH_ROPE_DEFAULT;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(v->valuestring, types[i].name)) {
            r->type = types[i].name;
            return types[i].type;
        }
    if (!r->problem && !r->rc) {
        r->problem = osh_strdup(r->cx, v->valuestring);
        if (!r->problem) r->rc = OSH_E_NOMEM;
    }
    return OSH_ROPE_DEFAULT;
}

static void read_original_max(reader *r, osh_rope *p)
{
    static const char key[] = "original_max_position_embeddings";
    const cJSON *from = rope_member(r->config, key) ? r->config : r->dict;
    int64_t dflt = r->family->original_max_position_embeddings;

    p->original_max_position_embeddings =
        take_length(r, from, key, dflt ? dflt : p->max_position_embeddings);
    if (p->original_max_position_embeddings < 1) set_problem(r, key, "is missing");
}

static void read_llama3(reader *r, osh_rope *p)
{
    p->factor = need_positive(r, "factor");
    p->low_freq_factor = need_positive(r, "low_freq_factor");
    p->high_freq_factor = need_positive(r, "high_freq_factor");
    if (p->high_freq_factor <= p->low_freq_factor)
        set_problem(r, "high_freq_factor", "is not above low_freq_factor");
    read_original_max(r, p);
}

static void read_yarn(reader *r, osh_rope *p)
{
    const cJSON *truncate = rope_member(r->dict, "truncate");
    double d;

    read_original_max(r, p);
    if (!cJSON_GetObjectItemCaseSensitive(r->dict, "factor"))
        set_problem(r, "factor", "is missing");
    if (rope_member(r->dict, "factor"))
        p->factor = need_positive(r, "factor");
    else if (p->max_position_embeddings > 0 && p->original_max_position_embeddings > 0)
        p->factor =
            (double)p->max_position_embeddings / (double)p->original_max_position_embeddings;
    else
        set_problem(r, "factor", "is missing");
    d = take_num(r, r->dict, "beta_fast", 0);
    if (d != 0) p->beta_fast = d;
    d = take_num(r, r->dict, "beta_slow", 0);
    if (d != 0) p->beta_slow = d;
    if (!(p->beta_slow > 0 && p->beta_fast > 0))
        set_problem(r, "beta_fast", "or beta_slow is below 0");
    if (r->family->attention_factor > 0) p->attention_factor = r->family->attention_factor;
    if (rope_member(r->dict, "attention_factor")) {
        p->attention_factor = take_num(r, r->dict, "attention_factor", 0);
        if (p->attention_factor < 0) set_problem(r, "attention_factor", "is below 0");
    }
    p->mscale = take_num(r, r->dict, "mscale", 0);
    p->mscale_all_dim = take_num(r, r->dict, "mscale_all_dim", 0);
    if (truncate && !cJSON_IsBool(truncate)) set_problem(r, "truncate", "is not true or false");
    p->truncate = !truncate || cJSON_IsTrue(truncate);
}

static const cJSON *need_numbers(reader *r, const char *key)
{
    const cJSON *list = rope_member(r->dict, key), *v;

    if (!cJSON_IsArray(list) || !list->child) {
        set_problem(r, key, "is not a list of numbers");
        return NULL;
    }
    cJSON_ArrayForEach(v, list)
        if (!cJSON_IsNumber(v) || !isfinite(v->valuedouble) || v->valuedouble <= 0)
            set_problem(r, key, "is not a list of numbers above 0");
    return list;
}

static void read_longrope(reader *r, osh_rope *p)
{
    read_original_max(r, p);
    p->short_factor = need_numbers(r, "short_factor");
    p->long_factor = need_numbers(r, "long_factor");
    p->factor = (double)p->max_position_embeddings / (double)p->original_max_position_embeddings;
    if (rope_member(r->dict, "factor")) p->factor = need_positive(r, "factor");
    if (rope_member(r->dict, "attention_factor"))
        p->attention_factor = take_num(r, r->dict, "attention_factor", 0);
}

static void read_theta(reader *r, osh_rope *p, bool sliding)
{
    const osh_rope_defaults *f = r->family;
    const char *key = top_key(r, sliding ? "sliding_rope_theta" : "rope_theta");
    double dflt = sliding ? f->sliding_theta : f->theta;

    if (dflt == 0) dflt = 10000;
    p->none = !sliding && cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(
                              r->dict ? r->dict : r->config, "rope_theta"));
    if (rope_member(r->dict, "rope_theta")) p->theta = take_num(r, r->dict, "rope_theta", dflt);
    else p->theta = take_num(r, r->config, key, dflt);
}

static osh_status read_rope(osh_ctx *cx, osh_rope *rope, char **unknown, const cJSON *config,
                            const osh_rope_defaults *family, bool sliding)
{
    reader r = {.cx = cx, .config = config, .family = family, .type = "rope"};
    osh_rope p = {
        .factor = 1, .beta_fast = 32, .beta_slow = 1, .attention_factor = -1, .truncate = true};
    const cJSON *from;

    find_dict(&r, sliding);
    p.max_position_embeddings =
        take_length(&r, config, top_key(&r, "max_position_embeddings"),
                    family->max_position_embeddings);
    p.type = find_type(&r);
    if (!r.dict && family->required) set_problem(&r, "rope_parameters", "is missing");
    read_theta(&r, &p, sliding);
    if (p.theta <= 0) set_problem(&r, "rope_theta", "is not above 0");
    // true: the family has parameters for each layer type and does not read the top-level key
    bool by_type = family->sliding_theta != 0;
    from = by_type || rope_member(r.dict, "partial_rotary_factor") ? r.dict : config;
    const char *partial = "partial_rotary_factor";
    if (from == config) partial = top_key(&r, partial);
    bool rotates_part =
        family->partial_rotary_factor > 0 && !(family->whole && (sliding || r.dict));
    p.partial_rotary_factor =
        take_num(&r, from, partial, rotates_part ? family->partial_rotary_factor : 1);
    p.llama_4_scaling_beta = take_num(&r, r.dict, "llama_4_scaling_beta", 0);
    if (p.partial_rotary_factor <= 0 || p.partial_rotary_factor > 1)
        set_problem(&r, "partial_rotary_factor", "is not in (0, 1]");

    if (!r.dict && family->proportional > 0 && !sliding)
        p.type = OSH_ROPE_PROPORTIONAL, p.partial_rotary_factor = family->proportional;
    if (p.type == OSH_ROPE_DYNAMIC && family->alpha && rope_member(r.dict, "alpha"))
        p.alpha = need_positive(&r, "alpha"), p.type = OSH_ROPE_DEFAULT;
    if (p.type == OSH_ROPE_PROPORTIONAL) p.factor = take_num(&r, r.dict, "factor", 1);
    if (p.type == OSH_ROPE_LINEAR || p.type == OSH_ROPE_DYNAMIC)
        p.factor = need_positive(&r, "factor");
    if (p.type == OSH_ROPE_LLAMA3) read_llama3(&r, &p);
    if (p.type == OSH_ROPE_YARN) read_yarn(&r, &p);
    if (p.type == OSH_ROPE_LONGROPE) read_longrope(&r, &p);
    if (p.type == OSH_ROPE_DYNAMIC && p.max_position_embeddings < 1)
        set_problem(&r, "max_position_embeddings", "is missing");
    *rope = p;
    if (r.rc || *unknown) { // only the problem of the first rope is reported
        osh_free(cx, r.problem);
        return r.rc;
    }
    *unknown = r.problem; // give
    return OSH_OK;
}

osh_status osh_hf_rope_read(osh_ctx *cx, osh_rope *rope, char **unknown, const cJSON *config,
                            const osh_rope_defaults *family)
{
    *unknown = NULL;
    osh_status rc = read_rope(cx, &rope[0], unknown, config, family, false);
    rope[1] = rope[0];
    if (!rc && family->sliding_theta != 0)
        rc = read_rope(cx, &rope[1], unknown, config, family, true);
    return rc;
}
