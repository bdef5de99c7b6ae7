/* match_config.c - what the output's config.json says of the modules: the groups, which of them are ignored, and
 * whether vLLM finds the same scheme for each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "graph/kind.h"
#include "plan/experts.h"
#include "plan/modules.h"
#include "plan/only.h"
#include "plan/rotations.h"
#include "quant/source.h"

/* "model.layers.3.mlp.experts.gate_up_proj" to "re:.*\.mlp\.experts\..*" */
static osh_status experts_pattern(osh_ctx *cx, osh_buf *b, const char *name)
{
    osh_status rc = OSH_OK;
    size_t n = strlen(name);
    if (osh_ends_with(name, n, ".weight")) n -= strlen(".weight");
    while (n > 0 && name[--n] != '.') continue; // the last part goes
    size_t at = n;
    while (at > 0 && (name[at - 1] < '0' || name[at - 1] > '9')) at--; // behind the number of the block
    osh_buf_clear(b);
    OSH_TRY(osh_buf_printf(cx, b, "re:.*"));
    for (; at < n; at++) OSH_TRY(osh_buf_printf(cx, b, name[at] == '.' ? "\\%c" : "%c", name[at]));
    OSH_TRY(osh_buf_printf(cx, b, osh_ends_with(name, n, ".experts") ? "\\..*" : "\\.experts\\..*"));
done:
    return rc;
}

static osh_status ignore_once(osh_ctx *cx, osh_plan *p, const char *text)
{
    for (size_t k = 0; k < p->ignore.n; k++)
        if (!strcmp(p->ignore.items[k], text)) return OSH_OK;
    if (!(p->ignore.items[p->ignore.n] = osh_strdup(cx, text)))
        return osh_fail(cx, OSH_E_NOMEM, "no memory for the ignore list");
    p->ignore.n++;
    return OSH_OK;
}

/* Whether a module with codes has these n bytes in its name. */
static bool has_codes_inside(const osh_plan_modules *cs, const char *text, size_t n)
{
    for (int64_t i = 0; i < cs->n; i++)
        for (const char *s = cs->c[i].name; cs->c[i].scheme >= 0 && strlen(s) >= n; s++)
            if (!memcmp(s, text, n)) return true;
    return false;
}

/* Heads, towers and what else is outside the blocks: transformers may know them by other names than the file. Of a
 * tower with codes each module that has none. */
static osh_status ignore_renamed(osh_ctx *cx, osh_plan *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    const char *last = ""; // n_last bytes: looked at before, as towers have many modules
    size_t n_last = 0;
    bool partly = false;   // some of what has it in its name has codes
    osh_buf b;
    osh_buf_init(&b, 0);
    for (int64_t i = 0; (!p->graph || p->graph->wrapped) && i < cs->n; i++) {
        size_t n = 0;
        const char *text = osh_kind_lasting_name(cs->c[i].name, &n), *block = strstr(cs->c[i].name, "layers.");
        if (cs->c[i].scheme >= 0 || osh_is_embedding(&cs->c[i]) || !strcmp(cs->c[i].name, "lm_head")) continue;
        if (!text && !(p->graph && block)) continue;
        if (text && (n != n_last || strncmp(text, last, n)))
            last = text, n_last = n, partly = has_codes_inside(cs, text, n);
        osh_buf_clear(&b);
        if (text && !partly) OSH_TRY(osh_buf_printf(cx, &b, "re:.*%.*s.*", (int)n, text));
        else if (text) OSH_TRY(osh_buf_printf(cx, &b, "re:.*%s$", strstr(cs->c[i].name, text) ? text : cs->c[i].name));
        else OSH_TRY(osh_buf_printf(cx, &b, "re:.*language_model.*%s$", block)); // a tower has layers, too
        OSH_TRY(ignore_once(cx, p, b.data));
    }
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Experts in one tensor stay dense, and vLLM makes a layer of them that the class Linear reaches. */
static osh_status ignore_experts(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    for (int64_t i = 0; i < p->ck->n_tensors; i++) {
        const osh_st_entry *e = p->ck->tensors[i].e;
        bool experts = e->ndim == 3 && e->shape[0] > 1 && e->shape[1] > 1 && e->shape[2] > 1;
        if (!experts || !osh_in_decoder_block(e->name) || strstr(e->name, "conv")) continue;
        OSH_TRY(experts_pattern(cx, &b, e->name));
        OSH_TRY(ignore_once(cx, p, b.data));
    }
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_match_ignore(osh_ctx *cx, osh_plan *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    bool linear = false, embedding = false;
    for (int64_t i = 0; i < cs->n; i++) {
        if (cs->c[i].scheme < 0) continue;
        if (osh_is_embedding(&cs->c[i])) embedding = true;
        else linear = true;
    }
    OSH_NEW(cx, p->ignore.items, 2 * cs->n + p->ck->n_tensors); // and regexes
    for (int64_t i = 0; i < cs->n; i++) {
        const osh_plan_module *c = &cs->c[i];
        if (c->scheme >= 0 || !(c->reached || (osh_is_embedding(c) ? embedding : linear))) continue;
        if (!(p->ignore.items[p->ignore.n] = osh_strdup(cx, cs->c[i].name)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the ignore list");
        p->ignore.n++;
    }
    if (linear) OSH_TRY(ignore_experts(cx, p));
    if (linear) OSH_TRY(ignore_renamed(cx, p, cs));
done:
    return rc;
}

/* How many experts each decoder layer is left with; NULL: a recipe leaves none out. */
static osh_status count_experts(osh_ctx *cx, int **out, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    int n = p->graph ? (int)p->graph->n_layers : 0;
    *out = NULL;
    if (!p->experts || !n) goto done;
    OSH_NEW(cx, *out, n);
    for (int i = 0; i < n; i++) (*out)[i] = -1;
    for (int i = 0; i < p->experts->n; i++) {
        const char *at = p->experts->layers[i].name; // "model.layers.3.mlp"
        while (*at && !(at[0] == '.' && at[1] >= '0' && at[1] <= '9')) at++;
        int64_t layer = *at ? strtoll(at + 1, NULL, 10) : n;
        if (layer < n) (*out)[layer] = p->experts->n_kept;
    }
done:
    return rc;
}

osh_status osh_match_config(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const char *top = NULL;
    bool stacked = false;
    int *experts = NULL; // own
    const osh_q_args *cache = p->cache.present ? &p->cache : p->only ? osh_source_cache(p->source) : NULL;
    for (size_t i = 0; i < p->n_kept_schemes; i++)
        top = !top || !strcmp(top, p->schemes[i].format) ? p->schemes[i].format : "mixed-precision";
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (l->scheme_index < 0) continue;
        snprintf(p->schemes[l->scheme_index].format, sizeof p->schemes[0].format, "%s", l->format->name);
        if (!top) top = l->format->name;
        else if (strcmp(top, l->format->name)) top = "mixed-precision";
    }
    for (size_t i = 0; i < p->n_schemes; i++)
        if (osh_q_of_attention(&p->schemes[i])) snprintf(p->schemes[i].format, sizeof p->schemes[i].format, "dense");
    if (!(p->format = osh_strdup(cx, top ? top : "dense"))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the format");
    if (!p->n_schemes && p->ck->n_parts) OSH_TRY(osh_graph_is_stacked(cx, &stacked, p->ck, p->opt->models_dir));
    if (stacked)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s has its experts in one tensor, and transformers takes those of a quantized "
                 "model alone apart: want a recipe that quantizes", p->ck->dir);
    bool any = p->n_schemes || p->cache.present; // else pruned alone: a dense model's config
    OSH_TRY(count_experts(cx, &experts, p));
    const osh_q_beside beside = {cache, p->rotated ? &p->rotated->transforms : NULL, experts,
                                 p->graph ? (int)p->graph->n_layers : 0};
    if (!any && p->rotated && p->rotated->transforms.n) {
        rc = osh_q_transforms_print(cx, &p->quantization_json, &p->rotated->transforms);
        goto done;
    }
    if (!any && !(p->quantization_json = osh_strdup(cx, ""))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a config");
    if (!any) goto done;
    osh_q_groups groups = osh_q_groups_of(p->schemes, p->n_schemes, &p->ignore);
    OSH_TRY(osh_q_config_print_with(cx, &p->quantization_json, &groups, p->format, &beside));
done:
    osh_free(cx, experts);
    return rc;
}

osh_status osh_match_names(osh_ctx *cx, osh_plan *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    const char **names = NULL; // own; items are views
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

osh_status osh_match_vllm(osh_ctx *cx, osh_plan *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    const char **names = NULL, **classes = NULL; // own; items are views
    int *which = NULL;                           // own
    OSH_NEW(cx, names, cs->n);
    OSH_NEW(cx, classes, cs->n);
    OSH_NEW(cx, which, cs->n);
    for (int64_t i = 0; i < cs->n; i++) names[i] = cs->c[i].name, classes[i] = cs->c[i].cls, which[i] = cs->c[i].scheme;
    osh_q_groups groups = osh_q_groups_of(p->schemes, p->n_schemes, &p->ignore);
    OSH_TRY(osh_q_vllm_check(cx, &groups, &(osh_q_modules){names, classes, which, (size_t)cs->n}));
done:
    osh_free(cx, names);
    osh_free(cx, classes);
    osh_free(cx, which);
    return rc;
}
