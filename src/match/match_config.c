/* match_config.c - makes two parts of the output's config.json: the targets of the groups, and the
 * ignore list. Also checks that vLLM finds the planned scheme for each module. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/name.h"
#include "graph/kind.h"
#include "match/modules.h"
#include "match/only.h"
#include "quant/source.h"

/* Writes a regex to b that matches the experts of all layers. name: a tensor that contains all
 * experts of one layer. For example, "model.layers.3.mlp.experts.gate_up_proj" becomes
 * "re:.*\.mlp\.experts\..*". */
static osh_status experts_pattern(osh_ctx *cx, osh_buf *b, const char *name)
{
    osh_status rc = OSH_OK;
    size_t n = strlen(name);
    if (osh_ends_with(name, n, ".weight")) n -= strlen(".weight");
    while (n > 0 && name[--n] != '.') continue; // removes the part after the last dot
    size_t at = n;
    /* Moves `at` back to the end of the layer's number in the name. */
    while (at > 0 && (name[at - 1] < '0' || name[at - 1] > '9')) at--;
    osh_buf_clear(b);
    OSH_TRY(osh_buf_printf(cx, b, "re:.*"));
    for (; at < n; at++) OSH_TRY(osh_buf_printf(cx, b, name[at] == '.' ? "\\%c" : "%c", name[at]));
    OSH_TRY(
        osh_buf_printf(cx, b, osh_ends_with(name, n, ".experts") ? "\\..*" : "\\.experts\\..*"));
done:
    return rc;
}

static osh_status strs_put(osh_ctx *cx, osh_strs *list, const char *text)
{
    osh_status rc = OSH_OK;
    char **more = osh_realloc(cx, list->items, (list->n + 1) * sizeof *more);
    if (!more) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a list of modules");
    list->items = more;
    if (!(more[list->n] = osh_strdup(cx, text)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a list of modules");
    list->n++;
done:
    return rc;
}

/* Results of earlier searches through the names of quantized modules. */
typedef struct renamed_seen {
    /* The first n bytes of `text` are the string that the last call of has_codes_inside looked for.
     * The result of this call is kept, because names of many modules begin with the same string. */
    const char *text; // view
    size_t n;
    bool partly; // result of the last call of has_codes_inside
    /* Own: the names of quantized modules, and all ends of these names that begin after a dot. For
     * the name "a.b.c", these ends are "b.c" and "c". NULL: not made yet. */
    osh_map *ends;
} renamed_seen;

static osh_status ignore_once(osh_ctx *cx, osh_matching *p, const char *text)
{
    for (size_t k = 0; k < p->ignore.n; k++)
        if (!strcmp(p->ignore.items[k], text)) return OSH_OK;
    return strs_put(cx, &p->ignore, text);
}

/* True if the name of a quantized module contains the first n bytes of `text`. */
static bool has_codes_inside(const osh_plan_modules *cs, const char *text, size_t n)
{
    for (int64_t i = 0; i < cs->n; i++)
        for (const char *s = cs->c[i].name; cs->c[i].scheme >= 0 && strlen(s) >= n; s++)
            if (!memcmp(s, text, n)) return true;
    return false;
}

/* Sets *yes to true if the name of a quantized module is `name` or ends in ".name". */
static osh_status has_codes_at_end(osh_ctx *cx, bool *yes, renamed_seen *seen,
                                   const osh_plan_modules *cs, const char *name)
{
    osh_status rc = OSH_OK;
    int64_t at;
    if (!seen->ends) {
        OSH_TRY(osh_map_new_views(cx, &seen->ends, (size_t)cs->n));
        for (int64_t i = 0; i < cs->n; i++)
            for (const char *s = cs->c[i].scheme < 0 ? NULL : cs->c[i].name; s;
                 s = strchr(s, '.'), s = s ? s + 1 : NULL)
                OSH_TRY(osh_map_put(cx, seen->ends, s, strlen(s), i));
    }
    *yes = osh_map_get(seen->ends, name, strlen(name), &at);
done:
    return rc;
}

/* Appends to `b` a regex that matches `name` after any prefix. For example, "proj_out" becomes
 * "re:(.*\.)?proj_out$". */
static osh_status named_pattern(osh_ctx *cx, osh_buf *b, const char *name)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(cx, b, "re:(.*\\.)?"));
    for (; *name; name++) OSH_TRY(osh_buf_printf(cx, b, *name == '.' ? "\\%c" : "%c", *name));
    OSH_TRY(osh_buf_printf(cx, b, "$"));
done:
    return rc;
}

/* Prints a regex for dense module i if its name in transformers may differ from its name in the
 * checkpoint. This is so for heads, for modules of towers and for other modules outside of decoder
 * blocks. It is also so for blocks whose names may get a prefix in transformers. Prints nothing for
 * other modules.
 * If all modules of a tower are dense, one regex matches all of them. If some are quantized, each
 * dense module of the tower gets its own regex. */
static osh_status renamed_pattern(osh_ctx *cx, osh_buf *b, const osh_matching *p,
                                  const osh_plan_modules *cs, int64_t i, renamed_seen *seen)
{
    osh_status rc = OSH_OK;
    const char *name = cs->c[i].name;
    size_t n = 0, inner = p->in->graph ? strlen(p->in->graph->inner) : 0;
    const char *text = osh_kind_lasting_name(name, &n);
    if (!text && !(inner && !strncmp(name, p->in->graph->inner, inner))) {
        bool yes = true;
        // the entry "re:^mtp.*" already matches layers for multi-token prediction
        if (strncmp(name, "model.", strlen("model.")) && strncmp(name, "mtp.", strlen("mtp.")))
            OSH_TRY(has_codes_at_end(cx, &yes, seen, cs, name));
        if (!yes) OSH_TRY(named_pattern(cx, b, name));
        goto done;
    }
    if (text && (n != seen->n || strncmp(text, seen->text, n)))
        seen->text = text, seen->n = n, seen->partly = has_codes_inside(cs, text, n);
    if (text && !seen->partly)
        OSH_TRY(osh_buf_printf(cx, b, "re:.*%.*s.*", (int)n, text));
    else if (text)
        OSH_TRY(osh_buf_printf(cx, b, "re:.*%s$", strstr(name, text) ? text : name));
    else
        OSH_TRY(osh_buf_printf(cx, b, "re:.*language_model.*%s$",
                               // layers of a vision tower do not match: they lack "language_model"
                               name + inner));
done:
    return rc;
}

static osh_status ignore_renamed(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    renamed_seen seen = {.text = ""};
    bool any = !p->in->graph || p->in->graph->wrapped;
    osh_buf b;
    osh_buf_init(&b, 0);
    for (int64_t i = 0; i < cs->n; i++) {
        const osh_plan_module *c = &cs->c[i];
        if (c->scheme >= 0 || osh_is_embedding(c)) continue;
        osh_buf_clear(&b);
        if (c->absent)
            OSH_TRY(named_pattern(cx, &b, c->name));
        else if (any && strcmp(c->name, "lm_head"))
            OSH_TRY(renamed_pattern(cx, &b, p, cs, i, &seen));
        if (b.len) OSH_TRY(ignore_once(cx, p, b.data));
    }
done:
    osh_map_free(cx, seen.ends);
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Adds experts to the ignore list if one tensor has the weights of all experts of a layer. These
 * experts stay dense. But vLLM makes them one layer, and the target "Linear" matches this layer. */
static osh_status ignore_experts(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++) {
        const osh_entry *e = p->in->ck->tensors[i].e;
        bool experts = e->ndim == 3 && e->shape[0] > 1 && e->shape[1] > 1 && e->shape[2] > 1;
        if (!experts || !osh_in_decoder_block(e->name) || strstr(e->name, "conv")) continue;
        OSH_TRY(experts_pattern(cx, &b, e->name));
        OSH_TRY(ignore_once(cx, p, b.data));
    }
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Looks up all quantized modules in the matcher `m`, under every name that loaders use for them.
 * The matcher then knows for each of its entries how many modules match. */
static osh_status entries_try(osh_ctx *cx, osh_matcher *m, const osh_matching *p,
                              const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    const osh_q_family family = osh_q_family_of(p->in->ck->config);
    char *fused = NULL; // own
    int64_t unused;
    for (int64_t i = 0; i < cs->n; i++) {
        const osh_plan_module *c = &cs->c[i];
        const osh_q_fusion f = osh_q_fusion_find(family, c->name);
        if (c->scheme < 0) continue;
        OSH_TRY(osh_matcher_find(cx, &unused, m, c->name, c->cls));
        if (c->loaded) OSH_TRY(osh_matcher_find(cx, &unused, m, c->loaded, NULL));
        if (!f.fused) continue;
        osh_free(cx, fused);
        if (!(fused = osh_q_fusion_name(cx, c->name, f.fused)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a module's name");
        OSH_TRY(osh_matcher_find(cx, &unused, m, fused, NULL));
    }
done:
    osh_free(cx, fused);
    return rc;
}

/* Adds `entries` to the ignore list of the output, except entries that match a quantized module. If
 * such an entry also matches dense modules, these modules are in the list under their own names.
 * Entries that match no module of the source are added, because loaders create modules that the
 * source does not have. */
static osh_status ignore_entries(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs,
                                 const osh_strs *entries)
{
    osh_status rc = OSH_OK;
    osh_matcher *m = NULL; // own
    /* index in the matcher; entries that occur several times are in the matcher only once */
    size_t k = 0;
    if (!entries->n) goto done;
    OSH_TRY(osh_matcher_new(cx, &m, (const char *const *)entries->items, entries->n));
    OSH_TRY(entries_try(cx, m, p, cs));
    for (size_t i = 0; i < entries->n; i++) {
        bool again = false;
        for (size_t h = 0; h < i; h++) again |= !strcmp(entries->items[h], entries->items[i]);
        if (again) continue;
        if (!osh_matcher_hits(m, k++))
            OSH_TRY(ignore_once(cx, p, entries->items[i]));
        else
            osh_log(
                cx, OSH_LOG_INFO,
                "ignore %s is not in the output's config.json, because it also matches quantized "
                "modules there; config.json has the names of its dense modules instead",
                entries->items[i]);
    }
done:
    osh_matcher_free(cx, m);
    return rc;
}

/* In some families, dense modules have other names in transformers than in the checkpoint. Adds
 * these names to the ignore list. The modules are of the class Linear or of a subclass, so the
 * target "Linear" would match them. */
static osh_status ignore_other_names(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    osh_other_names o = osh_modules_other_names(p->in->ck->config);
    const cJSON *lists[] = {o.tower, o.dense}, *v;
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach(v, lists[i]) {
            char *entry[] = {v->valuestring};
            if (cJSON_IsString(v)) OSH_TRY(ignore_entries(cx, p, cs, &(osh_strs){entry, 1}));
        }
done:
    return rc;
}

/* Adds the ignore lists of the recipe's modifiers to the output's ignore list. With --only, also
 * adds the ignore list of the source's config. */
static osh_status ignore_given(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    const osh_q_config *kept = p->in->only ? osh_source_config(p->in->source) : NULL;
    char all_mtp[] = "re:^mtp.*",
         // LLM Compressor writes "re:^mtp.*" if it copies layers for multi-token prediction
         *mtp[] = {all_mtp};
    bool has_mtp = false;
    for (size_t m = 0; m < p->in->recipe->n; m++)
        if (osh_modifier_quantizes(&p->in->recipe->modifiers[m]) &&
            !p->in->recipe->modifiers[m].replaced)
            OSH_TRY(ignore_entries(cx, p, cs, &p->in->recipe->modifiers[m].ignore));
    if (kept) OSH_TRY(ignore_entries(cx, p, cs, &kept->ignore));
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++)
        has_mtp |= !strncmp(p->in->ck->tensors[i].e->name, "mtp.", 4);
    if (has_mtp) OSH_TRY(ignore_entries(cx, p, cs, &(osh_strs){mtp, 1}));
done:
    return rc;
}

/* Adds names of modules in transformers to the targets and to the ignore list, if they differ from
 * the names in the checkpoint. If the text model is inside another model, the regexes of
 * renamed_pattern already match these names. */
static osh_status name_loaded(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    osh_matcher *m = NULL; // own
    for (size_t s = p->n_kept_schemes; s < p->n_schemes; s++) {
        osh_strs *targets = &p->schemes[s].targets, more = {0}; // more: own; targets: view
        OSH_TRY(osh_matcher_new(cx, &m, (const char *const *)targets->items, targets->n));
        for (int64_t i = 0; !rc && i < cs->n; i++) {
            int64_t at = 0;
            if (cs->c[i].scheme != (int)s || !cs->c[i].loaded) continue;
            rc = osh_matcher_find(cx, &at, m, cs->c[i].loaded, cs->c[i].cls);
            if (!rc && at < 0) rc = strs_put(cx, &more, cs->c[i].loaded);
        }
        for (size_t i = 0; !rc && i < more.n; i++) rc = strs_put(cx, targets, more.items[i]);
        osh_strs_deinit(cx, &more);
        osh_matcher_free(cx, m), m = NULL;
        if (rc) goto done;
    }
    for (int64_t i = 0; p->in->graph && !p->in->graph->wrapped && i < cs->n; i++)
        if (cs->c[i].scheme < 0 && cs->c[i].loaded && !osh_is_embedding(&cs->c[i]))
            OSH_TRY(ignore_once(cx, p, cs->c[i].loaded));
done:
    osh_matcher_free(cx, m);
    return rc;
}

/* Completes the fused layer of module c in the output's config. (A fused layer consists of several
 * modules, such as q_proj, k_proj and v_proj.) If the checkpoint lacks a module of this layer, the
 * module gets the group of the other modules, or an entry of the ignore list. vLLM looks up all
 * modules of a fused layer, even if the model has fewer. (Some layers of Gemma 4 have no v_proj,
 * because their keys are also the values.) */
static osh_status name_lacking_parts(osh_ctx *cx, osh_matching *p, const osh_plan_module *c,
                                     osh_map *known)
{
    osh_status rc = OSH_OK;
    const osh_q_fusion f = osh_q_fusion_find(osh_q_family_of(p->in->ck->config), c->name);
    osh_strs *targets = c->scheme >= (int)p->n_kept_schemes ? &p->schemes[c->scheme].targets : NULL;
    osh_matcher *m = NULL; // own
    char *part = NULL;     // own
    for (int k = 0; f.fused && k < f.n; k++) {
        int64_t at = -1;
        osh_free(cx, part);
        if (!(part = osh_q_fusion_name(cx, c->name, f.parts[k])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a module's name");
        if (osh_map_get(known, part, strlen(part), &at)) continue;
        if (k < f.enough) break; // the checkpoint lacks a module of the fused layer
        if (c->scheme < 0) OSH_TRY(ignore_once(cx, p, part));
        if (!targets) continue;
        if (!m) OSH_TRY(osh_matcher_new(cx, &m, (const char *const *)targets->items, targets->n));
        OSH_TRY(osh_matcher_find(cx, &at, m, part, "Linear"));
        if (at < 0) OSH_TRY(strs_put(cx, targets, part));
        osh_matcher_free(cx, m), m = NULL;
    }
done:
    osh_matcher_free(cx, m);
    osh_free(cx, part);
    return rc;
}

static osh_status name_all_lacking(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs,
                                   bool linear)
{
    osh_status rc = OSH_OK;
    osh_map *known = NULL; // own
    OSH_TRY(osh_map_new(cx, &known, (size_t)cs->n));
    for (int64_t i = 0; i < cs->n; i++)
        OSH_TRY(osh_map_put(cx, known, cs->c[i].name, strlen(cs->c[i].name), i));
    for (int64_t i = 0; linear && i < cs->n; i++)
        if (!osh_is_embedding(&cs->c[i])) OSH_TRY(name_lacking_parts(cx, p, &cs->c[i], known));
done:
    osh_map_free(cx, known);
    return rc;
}

osh_status osh_match_ignore(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    bool linear = false, embedding = false;
    for (int64_t i = 0; i < cs->n; i++) {
        if (cs->c[i].scheme < 0) continue;
        if (osh_is_embedding(&cs->c[i])) embedding = true;
        else linear = true;
    }
    for (int64_t i = 0; i < cs->n; i++) {
        const osh_plan_module *c = &cs->c[i];
        if (c->scheme >= 0 || !(c->reached || (osh_is_embedding(c) ? embedding : linear))) continue;
        OSH_TRY(strs_put(cx, &p->ignore, c->name));
    }
    if (linear) OSH_TRY(ignore_experts(cx, p));
    if (linear) OSH_TRY(ignore_other_names(cx, p, cs));
    if (linear) OSH_TRY(ignore_renamed(cx, p, cs));
    OSH_TRY(name_all_lacking(cx, p, cs, linear));
    if (linear) OSH_TRY(name_loaded(cx, p, cs));
    OSH_TRY(ignore_given(cx, p, cs));
done:
    return rc;
}

osh_status osh_match_config(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    const char *top = NULL;
    bool stacked = false;
    const osh_q_args *cache =
        p->cache.present ? &p->cache : p->in->only ? osh_source_cache(p->in->source) : NULL;
    for (size_t i = 0; i < p->n_kept_schemes; i++)
        top = !top || !strcmp(top, p->schemes[i].format) ? p->schemes[i].format : "mixed-precision";
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (l->scheme_index < 0) continue;
        snprintf(p->schemes[l->scheme_index].format, sizeof p->schemes[0].format, "%s",
                 l->format->name);
        if (!top) top = l->format->name;
        else if (strcmp(top, l->format->name)) top = "mixed-precision";
    }
    for (size_t i = 0; i < p->n_schemes; i++)
        if (osh_q_of_attention(&p->schemes[i]))
            snprintf(p->schemes[i].format, sizeof p->schemes[i].format, "dense");
    if (!(p->format = osh_strdup(cx, top ? top : "dense")))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the format");
    if (!p->n_schemes && p->in->ck->n_parts)
        OSH_TRY(osh_graph_is_stacked(cx, &stacked, p->in->ck, p->in->opt->models_dir));
    if (stacked)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s has its experts in one tensor, and transformers splits them only if the model "
                 "is quantized: want a recipe that quantizes",
                 p->in->ck->dir);
    // false if the model is only pruned or rotated, so that its config has no groups
    bool any = p->n_schemes || p->cache.present;
    const osh_q_beside beside = {cache, p->transforms, p->experts_left,
                                 p->in->graph ? (int)p->in->graph->n_layers : 0};
    if (!any && p->transforms && p->transforms->n) {
        rc = osh_q_transforms_print(cx, &p->quantization_json, p->transforms);
        goto done;
    }
    if (!any && !(p->quantization_json = osh_strdup(cx, "")))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a config");
    if (!any) goto done;
    osh_q_groups groups = osh_q_groups_of(p->schemes, p->n_schemes, &p->ignore);
    OSH_TRY(osh_q_config_print_with(cx, &p->quantization_json, &groups, p->format, &beside));
done:
    return rc;
}

osh_status osh_match_names(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    const char **names = NULL; // own: names of modules; the strings are views
    int *which = NULL;         // own
    OSH_NEW(cx, names, cs->n);
    OSH_NEW(cx, which, cs->n);
    for (int64_t i = 0; i < cs->n; i++) names[i] = cs->c[i].name, which[i] = cs->c[i].scheme;
    OSH_TRY(osh_only_name(cx, p, names, which, cs->n));
done:
    osh_free(cx, names);
    osh_free(cx, which);
    return rc;
}

osh_status osh_match_vllm(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    // own: names and classes of modules; the strings are views
    const char **names = NULL, **classes = NULL;
    int *which = NULL;                           // own
    OSH_NEW(cx, names, cs->n);
    OSH_NEW(cx, classes, cs->n);
    OSH_NEW(cx, which, cs->n);
    for (int64_t i = 0; i < cs->n; i++)
        names[i] = cs->c[i].name, classes[i] = cs->c[i].cls, which[i] = cs->c[i].scheme;
    osh_q_groups groups = osh_q_groups_of(p->schemes, p->n_schemes, &p->ignore);
    OSH_TRY(osh_q_vllm_check(cx, &groups,
                             &(osh_q_modules){names, classes, which, (size_t)cs->n,
                                              osh_q_family_of(p->in->ck->config)}));
done:
    osh_free(cx, names);
    osh_free(cx, classes);
    osh_free(cx, which);
    return rc;
}
