/* vllm.c - repeats two decisions of vLLM 0.32 for the quantization_config of the output: the lookup
 * of a module's scheme (compressed_tensors/utils.py find_matched_target, should_ignore_layer) and
 * the choice of a kernel. In this file a shard is one of the modules that vLLM fuses into one
 * layer.
 *
 * A layer is ignored if an entry of the ignore list matches its (fused) name, or if the entries
 * match all its shards. It is an error if they match only some shards. All other layers get the
 * scheme of a target. vLLM looks for this target in three steps:
 *
 *   1. the first target that is the (fused) name of the layer or a regex that matches this name
 *   2. if the layer is fused and every shard matches a target: the target of the first shard
 *   3. a target that the name of the layer's class contains (case is ignored)
 *
 * config.json contains the config groups in the byte order of their names. If a target occurs
 * twice, its position is that of the first occurrence, and its scheme is that of the later
 * group. */
#include "quant/scheme.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "base/name.h"
#include "quant/format.h"
#include "quant/fusion.h"
#include "text/regex.h"

typedef struct pattern {
    const char *text; // view
    osh_regex *regex; // own: compiled regex; NULL: a name must be equal to `text`
    int scheme;
} pattern;

typedef struct lookup {
    pattern *targets, *ignores; // own
    size_t n_targets, n_ignores;
    osh_map *names; // own: maps the name of a module to its index in osh_q_modules
} lookup;

static osh_status pattern_init(osh_ctx *cx, pattern *p, const char *text, int scheme)
{
    *p = (pattern){.text = text, .scheme = scheme};
    return strncmp(text, "re:", 3) ? OSH_OK
                                   : osh_regex_new(cx, &p->regex, text + 3, strlen(text + 3));
}

static osh_status pattern_matches(osh_ctx *cx, bool *yes, const pattern *p, const char *name)
{
    if (p->regex) return osh_regex_match(cx, p->regex, name, strlen(name), yes);
    *yes = !strcmp(p->text, name);
    return OSH_OK;
}

/* Sets *which to the index of the first pattern that matches `name`, or to -1 if none does. */
static osh_status first_pattern(osh_ctx *cx, int64_t *which, const pattern *p, size_t n,
                                const char *name)
{
    osh_status rc = OSH_OK;
    bool yes = false;
    *which = -1;
    for (size_t i = 0; i < n && *which < 0; i++) {
        OSH_TRY(pattern_matches(cx, &yes, &p[i], name));
        if (yes) *which = (int64_t)i;
    }
done:
    return rc;
}

static void lookup_deinit(osh_ctx *cx, lookup *l)
{
    for (size_t i = 0; i < l->n_targets; i++) osh_regex_free(cx, l->targets[i].regex);
    for (size_t i = 0; i < l->n_ignores; i++) osh_regex_free(cx, l->ignores[i].regex);
    osh_free(cx, l->targets);
    osh_free(cx, l->ignores);
    osh_map_free(cx, l->names);
}

static const char *group_name(const osh_q_scheme *s)
{
    return s->group_name ? s->group_name : "";
}

/* Adds the targets of all config groups to l, in the order in which vLLM tries them. */
static osh_status add_targets(osh_ctx *cx, lookup *l, const osh_q_scheme *schemes, size_t n)
{
    osh_status rc = OSH_OK;
    size_t total = 0;
    const char *last = NULL; // name of the config group that was added last

    // An upper bound: it also counts the targets of config groups for attention, although they are
    // not added.
    for (size_t i = 0; i < n; i++) total += schemes[i].targets.n;
    OSH_NEW(cx, l->targets, total);
    for (size_t done_groups = 0; done_groups < n; done_groups++) {
        size_t k = n;
        for (size_t i = 0; i < n; i++)
            if ((!last || strcmp(group_name(&schemes[i]), last) > 0) &&
                (k == n || strcmp(group_name(&schemes[i]), group_name(&schemes[k])) < 0))
                k = i;
        if (k == n)
            OSH_FAIL(cx, OSH_E_USAGE, "two config groups have the name '%s'", last ? last : "");
        last = group_name(&schemes[k]);
        if (osh_q_of_attention(&schemes[k])) continue;
        for (size_t t = 0; t < schemes[k].targets.n; t++) {
            const char *text = schemes[k].targets.items[t];
            size_t at = 0;
            while (at < l->n_targets && strcmp(l->targets[at].text, text)) at++;
            if (at < l->n_targets)
                l->targets[at].scheme = (int)k;
            else {
                OSH_TRY(pattern_init(cx, &l->targets[l->n_targets], text, (int)k));
                l->n_targets++;
            }
        }
    }
done:
    return rc;
}

static osh_status lookup_init(osh_ctx *cx, lookup *l, const osh_q_groups *g, const osh_q_modules *m)
{
    osh_status rc = OSH_OK;
    OSH_TRY(add_targets(cx, l, g->schemes, g->n));
    OSH_NEW(cx, l->ignores, g->n_ignore);
    for (size_t i = 0; i < g->n_ignore; i++) {
        OSH_TRY(pattern_init(cx, &l->ignores[i], g->ignore[i], -1));
        l->n_ignores++;
    }
    OSH_TRY(osh_map_new(cx, &l->names, m->n));
    for (size_t i = 0; i < m->n; i++)
        OSH_TRY(osh_map_put(cx, l->names, m->names[i], strlen(m->names[i]), (int64_t)i));
done:
    return rc;
}

typedef struct layer { // a layer of vLLM: one module, or several fused modules
    char name[512];
    char shard[OSH_FUSION_PARTS][512];
    /* Index of the module of each shard; -1: the checkpoint does not have this module. */
    int64_t module[OSH_FUSION_PARTS];
    int n; // number of shards; 1 if the layer is not fused
    const char *cls;
} layer;

static const char *module_leaf(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Sets l to the fused layer that contains module i, and returns true. If vLLM does not fuse module
 * i, returns false; l then contains nothing useful. */
static bool layer_fuse(layer *l, const lookup *k, const osh_q_modules *all, size_t i)
{
    const char *name = all->names[i], *leaf = module_leaf(name);
    int parent = (int)(leaf - name);
    const osh_q_fusion f = osh_q_fusion_find(all->family, name);
    if (!f.fused) return false;
    for (int s = 0; s < f.n; s++) {
        int len = snprintf(l->shard[s], sizeof l->shard[s], "%.*s%s", parent, name, f.parts[s]);
        bool there = osh_map_get(k->names, l->shard[s], (size_t)len, &l->module[s]);
        if (!there && s < f.enough) return false;
        if (!there) l->module[s] = -1;
    }
    snprintf(l->name, sizeof l->name, "%.*s%s", parent, name, f.fused);
    l->n = f.n, l->cls = f.cls;
    return true;
}

/* Sets l to the layer of vLLM that contains module i. The layer is fused, or has only module i. */
static void layer_of(layer *l, const lookup *k, const osh_q_modules *all, size_t i)
{
    const char *const *classes = all->classes;
    l->cls = classes && classes[i] ? classes[i] : "Linear";
    if (!strcmp(l->cls, "Linear") && layer_fuse(l, k, all, i)) return;
    l->n = 1, l->module[0] = (int64_t)i;
    snprintf(l->name, sizeof l->name, "%s", all->names[i]);
    if (!strcmp(l->cls, "Embedding")) l->cls = "VocabParallelEmbedding";
    if (!strcmp(l->cls, "Linear"))
        l->cls = !strcmp(module_leaf(l->name), "lm_head") ? "ParallelLMHead" : "RowParallelLinear";
}

/* Writes the last parts of the names of some shards to `to`, separated by commas. Bit s of `which`
 * is set if shard s is written. */
static void layer_parts(char *to, size_t cap, const layer *l, unsigned which)
{
    size_t at = 0;
    *to = 0;
    for (int s = 0; s < l->n && at < cap; s++)
        if (which >> s & 1)
            at += (size_t)snprintf(to + at, cap - at, "%s%s", at ? ", " : "",
                                   module_leaf(l->shard[s]));
}

static osh_status layer_is_ignored(osh_ctx *cx, bool *yes, const lookup *k, const layer *l)
{
    osh_status rc = OSH_OK;
    int64_t hit;
    int n = 0;
    unsigned taken = 0;
    char parts[120], others[120];
    OSH_TRY(first_pattern(cx, &hit, k->ignores, k->n_ignores, l->name));
    if ((*yes = hit >= 0) || l->n == 1) goto done;
    for (int s = 0; s < l->n; s++) {
        OSH_TRY(first_pattern(cx, &hit, k->ignores, k->n_ignores, l->shard[s]));
        n += hit >= 0;
        taken |= (unsigned)(hit >= 0) << s;
    }
    layer_parts(parts, sizeof parts, l, taken);
    layer_parts(others, sizeof others, l, ~taken);
    if (n && n < l->n)
        OSH_FAIL(
            cx, OSH_E_UNSUPPORTED,
            "%s: ignore takes %d of its %d parts, and vLLM fuses them: want all or none of them "
            "ignored; %s would be ignored, %s would not",
            l->name, n, l->n, parts, others);
    *yes = n > 0;
done:
    return rc;
}

static bool contains_without_case(const char *text, const char *part)
{
    size_t n = strlen(part);
    for (; *text; text++)
        if (!strncasecmp(text, part, n)) return true;
    return false;
}

static osh_status find_scheme(osh_ctx *cx, int *scheme, const lookup *k, const layer *l)
{
    osh_status rc = OSH_OK;
    int64_t hit, first = -1;
    bool ignored, yes;

    *scheme = -1;
    OSH_TRY(layer_is_ignored(cx, &ignored, k, l));
    if (ignored) goto done;
    OSH_TRY(first_pattern(cx, &hit, k->targets, k->n_targets, l->name));
    if (hit < 0 && l->n > 1) {
        for (int s = 0; s < l->n; s++) {
            OSH_TRY(first_pattern(cx, &hit, k->targets, k->n_targets, l->shard[s]));
            if (s == 0) first = hit;
            if (hit < 0) break;
        }
        if (hit >= 0) hit = first;
    }
    for (size_t t = 0; hit < 0 && t < k->n_targets; t++) {
        if (k->targets[t].regex) {
            OSH_TRY(pattern_matches(cx, &yes, &k->targets[t], l->cls));
            if (yes) hit = (int64_t)t;
        } else if (contains_without_case(l->cls, k->targets[t].text))
            hit = (int64_t)t;
    }
    if (hit >= 0) *scheme = k->targets[hit].scheme;
done:
    return rc;
}

static const char *scheme_name(const osh_q_scheme *schemes, int i)
{
    return i < 0 ? "no scheme" : group_name(&schemes[i]);
}

/* Fails if the experts of one decoder layer have different schemes. vLLM puts them into one layer
 * (FusedMoE), which can have only one scheme. */
static osh_status check_experts(osh_ctx *cx, const osh_q_scheme *schemes, const osh_q_modules *all)
{
    osh_status rc = OSH_OK;
    const char *const *modules = all->names;
    const int *which = all->which;
    osh_map *first = NULL; // own: maps a decoder layer to the index of its first expert module
    int64_t m;
    OSH_TRY(osh_map_new(cx, &first, 64));
    for (size_t i = 0; i < all->n; i++) {
        size_t len = osh_expert_prefix(modules[i]);
        if (!len) continue;
        if (!osh_map_get(first, modules[i], len, &m))
            OSH_TRY(osh_map_put(cx, first, modules[i], len, m = (int64_t)i));
        if (which[m] != which[i])
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s has %s and %s has %s, and vLLM makes one layer of them: want one scheme "
                     "for all experts, or all of them in ignore",
                     modules[m], scheme_name(schemes, which[m]), modules[i],
                     scheme_name(schemes, which[i]));
    }
done:
    osh_map_free(cx, first);
    return rc;
}

osh_status osh_q_vllm_check(osh_ctx *cx, const osh_q_groups *g, const osh_q_modules *all)
{
    osh_status rc = OSH_OK;
    const osh_q_scheme *schemes = g->schemes;
    const char *const *modules = all->names;
    const int *which = all->which;
    lookup k = {0}; // own
    layer l;

    OSH_TRY(lookup_init(cx, &k, g, all));
    OSH_TRY(check_experts(cx, schemes, all));
    for (size_t i = 0; i < all->n; i++) {
        int scheme;
        if (strlen(modules[i]) > sizeof l.name - 24)
            OSH_FAIL(cx, OSH_E_FORMAT, "a module's name has %zu bytes", strlen(modules[i]));
        layer_of(&l, &k, all, i);
        // a fused layer is looked up only once, for its first shard
        if (l.module[0] != (int64_t)i) continue;
        OSH_TRY(find_scheme(cx, &scheme, &k, &l));
        for (int s = 0; s < l.n; s++) {
            if (l.module[s] < 0) continue;
            size_t m = (size_t)l.module[s];
            if (which[m] == scheme) continue;
            char parts[120];
            layer_parts(parts, sizeof parts, &l, l.n > 1 ? ~0u : 0);
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s has %s, but vLLM looks it up as %s (%s) and would take %s%s%s%s",
                     modules[m], scheme_name(schemes, which[m]), l.name, l.cls,
                     scheme_name(schemes, scheme), *parts ? "; want one scheme for " : "", parts,
                     !strcmp(l.cls, "ParallelLMHead") && scheme < 0
                         ? "; hint: put lm_head in ignore, or its name in targets: its class does "
                           "not match there"
                         : "");
        }
    }
done:
    lookup_deinit(cx, &k);
    return rc;
}

/* ---- choice of a kernel ---- */
typedef struct engines {
    /* cuda: names the GPUs for which vLLM has a kernel. cpu: names the CPUs for which it has one.
     * NULL: there is no kernel. */
    const char *cuda, *cpu;
    const char *why;        // if `cuda` and `cpu` are NULL: reason why vLLM has no kernel
} engines;

static bool is_one_of_three(int64_t v, int a, int b, int c)
{
    return v == a || v == b || v == c;
}

static engines int_weight_only(const osh_q_args *w, bool packed)
{
    int64_t g = w->strategy == OSH_Q_CHANNEL ? 0 : w->group_size;
    bool usual = g == 0 || is_one_of_three(g, 32, 64, 128);
    if (!packed)
        return (engines){.why = "integer weights without activations load as pack-quantized only"};
    if (w->strategy == OSH_Q_TENSOR || w->strategy == OSH_Q_BLOCK)
        return (engines){.why = "want groups or channels"};
    if (w->bits == 4)
        return (engines){usual || g == 256 ? "CUDA 7.5 and later" : "CUDA with Humming",
                         g % 2 ? NULL : "CPU (in and out features divisible by 32)", NULL};
    if (w->bits == 8 && usual)
        return (engines){w->symmetric ? "CUDA 7.5 and later" : "CUDA 9.0", NULL, NULL};
    return (engines){"CUDA with Humming", NULL, NULL};
}

static engines int_with_activations(const osh_q_args *w, const osh_q_args *in, bool packed)
{
    bool rows = w->strategy == OSH_Q_CHANNEL || w->strategy == OSH_Q_TENSOR;
    bool groups = w->strategy == OSH_Q_CHANNEL || w->strategy == OSH_Q_GROUP;
    bool token = in->dynamic == OSH_Q_DYNAMIC && in->strategy == OSH_Q_TOKEN;
    bool fixed = in->dynamic == OSH_Q_STATIC && in->strategy == OSH_Q_TENSOR;
    bool dynamic_sym = in->dynamic == OSH_Q_DYNAMIC && in->symmetric &&
                       (in->strategy == OSH_Q_TOKEN || in->strategy == OSH_Q_GROUP);

    if (in->type == OSH_Q_FLOAT) {
        if (packed && w->bits == 4 && w->strategy == OSH_Q_GROUP && w->group_size == 128 &&
            w->symmetric && token)
            return (engines){"CUDA 9.0 (in and out features divisible by 128)", NULL, NULL};
        return (engines){.why = "FP8 activations with integer weights load as 4-bit pack-quantized "
                                "groups of 128 only"};
    }
    if (packed && groups && dynamic_sym && (in->bits == 8 || in->bits == 4))
        return (engines){"CUDA with Humming", NULL, NULL};
    if (packed)
        return (engines){
            .why = "pack-quantized wants dynamic symmetric activations per token or group"};
    if (!w->symmetric) return (engines){.why = "int-quantized wants symmetric weights"};
    if (w->bits == 8 && in->bits == 8 && rows && (token || fixed))
        return (engines){"CUDA", "CPU", NULL};
    if (w->bits == 4 && in->bits == 8 && groups && token)
        return (engines){"CUDA with Humming", "CPU", NULL};
    return (engines){.why = "int-quantized wants W8A8 with weights per channel or tensor, or W4A8; "
                            "force format: pack-quantized"};
}

/* Returns the kernels of vLLM for weights in NVFP4, MXFP4 and MXFP8. Inputs must be dense or
 * have the arguments of the weights. Inputs of MXFP4 weights may also be FP8. For other inputs,
 * there are no kernels. */
static engines micro_engines(const osh_q_args *w, const osh_q_args *in)
{
    if (w->bits == 6) return (engines){.why = "it does not know MXFP6"};
    if (!in->present || (in->type == w->type && in->bits == w->bits &&
                         in->strategy == w->strategy && in->scale_dtype == w->scale_dtype))
        return (engines){"CUDA", NULL, NULL};
    if (w->bits == 4 && w->scale_dtype == OSH_Q_SCALE_E8M0 && in->type == OSH_Q_FLOAT &&
        in->bits == 8)
        return (engines){"CUDA", NULL, NULL};
    return (engines){.why = "these weights want activations of the same kind, or none"};
}

static engines fp8_engines(const osh_q_args *w, const osh_q_args *in)
{
    if (w->strategy == OSH_Q_GROUP)
        return (engines){.why = "FP8 weights want strategy tensor, channel or block"};
    if (!in->present)
        return w->strategy == OSH_Q_BLOCK && (w->block[0] != 128 || w->block[1] != 128)
                   ? (engines){.why = "weight-only FP8 blocks want 128 x 128"}
                   : (engines){"CUDA", NULL, NULL};
    if (in->type != OSH_Q_FLOAT) return (engines){.why = "FP8 weights want FP8 activations"};
    if (w->strategy == OSH_Q_BLOCK) return (engines){"CUDA", "CPU with AMX", NULL};
    return (engines){"CUDA (activations quantized from 8.9)", "CPU", NULL};
}

/* Returns the kernels of vLLM for a scheme whose outputs may be quantized. `e`: the kernels if
 * outputs are not quantized.
 * vLLM ignores dynamic outputs. Static outputs need static inputs, and both must be 8-bit integers
 * with one scale for the tensor. */
static engines engines_with_outputs(const osh_q_scheme *s, const char *format, engines e)
{
    const osh_q_args *w = &s->weights, *both[] = {&s->inputs, &s->outputs};
    bool ok = w->type == OSH_Q_INT && strcmp(format, "naive-quantized") &&
              is_one_of_three(w->bits, 2, 4, 8) &&
              (w->strategy == OSH_Q_CHANNEL || w->strategy == OSH_Q_GROUP);
    if (!s->outputs.present || s->outputs.dynamic) return e;
    for (int k = 0; k < 2; k++)
        ok &= both[k]->present && both[k]->type == OSH_Q_INT && both[k]->bits == 8 &&
              !both[k]->dynamic && both[k]->strategy == OSH_Q_TENSOR && both[k]->symmetric;
    return ok ? (engines){"CUDA (inputs and outputs rounded before and after a weight-only "
                          "product)",
                          NULL, NULL}
              : (engines){.why = "static outputs want static inputs too, both 8-bit integers by "
                                 "tensor, and weights of 2, 4 or 8 bits by channel or group"};
}

char *osh_q_who_loads(osh_ctx *cx, const osh_q_scheme *s, const char *stranger)
{
    const osh_format *f = NULL; // storage format; view of an entry of osh_formats
    if (osh_q_of_attention(s))
        return osh_strdup(
            cx, s->inputs.type == OSH_Q_FLOAT
                    ? "vLLM quantizes cached keys and values but not queries; transformers "
                      "quantizes all three"
                    : "not by vLLM, whose caches are FP8; transformers with compressed-tensors");
    if (osh_format_infer(cx, &f, s, group_name(s))) return NULL;
    if (stranger)
        return osh_sprintf(
            cx,
            "%s: it is unknown if vLLM and transformers load %s in this form (it has no template)",
            f->name, stranger);
    bool packed = !strcmp(f->name, "pack-quantized");
    engines e = s->weights.scale_dtype           ? micro_engines(&s->weights, &s->inputs)
                : s->weights.type == OSH_Q_FLOAT ? fp8_engines(&s->weights, &s->inputs)
                : s->inputs.present ? int_with_activations(&s->weights, &s->inputs, packed)
                                    : int_weight_only(&s->weights, packed);

    e = engines_with_outputs(s, f->name, e);

    if (!e.cuda && !e.cpu)
        return osh_sprintf(cx, "%s: no kernel of vLLM (%s); transformers with compressed-tensors%s",
                           f->name, e.why, osh_q_is_fp6(&s->weights) ? " 0.20" : "");
    return osh_sprintf(
        cx, "%s: vLLM on %s%s%s%s; transformers with compressed-tensors", f->name,
        e.cuda ? e.cuda : e.cpu, e.cuda && e.cpu ? ", " : "", e.cuda && e.cpu ? e.cpu : "",
        s->outputs.present && s->outputs.dynamic ? ", which leaves outputs as they are" : "");
}

const char *osh_q_experts_fault(const osh_q_scheme *s)
{
    const osh_q_args *w = &s->weights;
    if (!w->present) return NULL;
    if (w->type == OSH_Q_INT && s->inputs.present) return "does not load";
    if (w->type == OSH_Q_INT) return w->symmetric ? NULL : "does not load";
    if (w->scale_dtype == OSH_Q_SCALE_E8M0) return w->bits == 4 ? NULL : "does not load";
    if (w->scale_dtype) return "drops the global scales of";
    // transformers multiplies FP8 codes by scales that must broadcast: one for each row, or one for
    // all
    if (w->strategy == OSH_Q_BLOCK || w->strategy == OSH_Q_GROUP) return "does not load";
    return s->inputs.present && !s->inputs.dynamic ? "drops the input scales of" : NULL;
}
