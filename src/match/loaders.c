/* loaders.c - finds experts that transformers or vLLM does not load correctly. The plan refuses
 * such experts if --target names the engine.
 *
 * transformers 5.17 stacks the experts of a quantized model in one tensor, and uses one scheme for
 * all of them (integrations/compressed_tensors.py, get_experts_scheme). It takes the scheme of the
 * first of these groups that exists:
 * - the first group with a target "re:..." that contains "experts"
 * - the first group with a target that is no regex
 * - the first group
 * If this scheme is FP8, experts may also be dense. With any other scheme, transformers loads no
 * dense experts. */
#include "match/loaders.h"

#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "graph/kind.h"
#include "quant/groups.h"
#include "quant/joint.h"
#include "quant/source.h"

/* This verb phrase completes the message "transformers 5.17 ... experts". */
static const char another_group[] = "takes another group's scheme for";

/* True if experts of the source are separate modules, and only vLLM finds their codes. transformers
 * does not find them. */
static bool experts_need_vllm(const osh_checkpoint *ck)
{
    return osh_checkpoint_parts_for_vllm(ck) ||
           osh_hf_config_has_flag(ck->config, "experts_for_vllm");
}

/* True if a group fits rule number `rule` of the three rules by which transformers selects a group
 * for all experts.
 * Rule 0: a target of the group is a regex that contains "experts".
 * Rule 1: a target is no regex.
 * Rule 2: every group fits. */
static bool group_has_rule(const osh_q_scheme *s, int rule)
{
    bool yes = rule == 2;
    for (size_t t = 0; t < s->targets.n && !yes; t++) {
        bool regex = !strncmp(s->targets.items[t], "re:", 3);
        yes = rule ? !regex : regex && strstr(s->targets.items[t], "experts");
    }
    return yes;
}

/* True if group `a` comes before group `b` in the config.json of the output. */
static bool group_is_before(const osh_q_scheme *schemes, size_t a, size_t b)
{
    char names[2][32];
    const char *name_a = schemes[a].group_name, *name_b = schemes[b].group_name;
    snprintf(names[0], sizeof names[0], "group_%zu", a);
    snprintf(names[1], sizeof names[1], "group_%zu", b);
    return strcmp(name_a ? name_a : names[0], name_b ? name_b : names[1]) < 0;
}

/* Returns the group whose scheme transformers uses for all experts, or NULL if n is 0. If `sorted`
 * is true, config.json has the groups in the byte order of their names, as in an output. Otherwise
 * config.json has the groups in the order of `schemes`. */
static const osh_q_scheme *group_taken(const osh_q_scheme *schemes, size_t n, bool sorted)
{
    for (int rule = 0; n && rule < 3; rule++) {
        size_t first = n;
        for (size_t i = 0; i < n; i++)
            if (group_has_rule(&schemes[i], rule) &&
                (first == n || (sorted && group_is_before(schemes, i, first))))
                first = i;
        if (first < n) return &schemes[first];
    }
    return NULL;
}

static bool weights_are_fp8(const osh_q_scheme *s)
{
    return s->weights.present && s->weights.type == OSH_Q_FLOAT && s->weights.bits == 8;
}

/* True if transformers decodes the weight of an expert correctly. `s` is the expert's scheme, and
 * `taken` is the scheme that transformers uses for it. The format of integer codes depends on
 * whether a scheme has `inputs`, so either both schemes must have `inputs`, or neither. */
static bool experts_decode(const osh_q_scheme *s, const osh_q_scheme *taken)
{
    const osh_q_args *a = &s->weights, *b = &taken->weights;
    if (!a->present || !b->present) return false;
    /* the stored scales decode FP8 weights, whatever FP8 scheme transformers uses */
    if (weights_are_fp8(s) && weights_are_fp8(taken)) return true;
    return a->type == b->type && a->bits == b->bits && a->strategy == b->strategy &&
           a->symmetric == b->symmetric && a->scale_dtype == b->scale_dtype &&
           (!osh_q_in_groups(a) || a->group_size == b->group_size) &&
           (a->strategy != OSH_Q_BLOCK || !memcmp(a->block, b->block, sizeof a->block)) &&
           (a->type != OSH_Q_INT || s->inputs.present == taken->inputs.present);
}

typedef struct experts_loader { // how transformers loads the experts of a model
    /* scheme that transformers uses for all experts; NULL: config.json has no groups */
    const osh_q_scheme *taken;
    /* need_vllm: true if only vLLM finds the codes of experts in separate tensors.
     * modules: true if each expert is a module in transformers. */
    bool need_vllm, modules;
    osh_kinds kinds;
} experts_loader;

static void experts_loader_init(experts_loader *of, const osh_checkpoint *ck,
                                const osh_q_scheme *taken)
{
    *of = (experts_loader){taken, experts_need_vllm(ck),
                           osh_hf_config_has_flag(ck->config, "expert_modules")};
    osh_kinds_init(&of->kinds, ck);
}

/* Returns a verb phrase that says what transformers does wrong with an expert in scheme s, such as
 * "finds no codes of". Returns NULL if transformers loads the expert correctly. */
static const char *codes_fault(const experts_loader *of, const osh_q_scheme *s, const char *name)
{
    if (of->modules) return NULL;
    const char *fault = of->need_vllm ? "finds no codes of" : osh_q_experts_fault(s);
    if (fault || osh_after_blocks(&of->kinds, name)) return fault;
    return of->taken && experts_decode(s, of->taken) ? NULL : another_group;
}

/* True if transformers finds dense experts whose weights are in separate tensors. */
static bool dense_is_found(const experts_loader *of)
{
    if (of->modules) return true;
    return !of->need_vllm && (!of->taken || weights_are_fp8(of->taken));
}

/* True if the tensor is the weight of an expert. The expert must be in a decoder block that
 * transformers loads. */
static bool is_expert_weight(const experts_loader *of, const char *name)
{
    return osh_expert_prefix(name) && osh_ends_with(name, strlen(name), ".weight") &&
           !osh_after_blocks(&of->kinds, name);
}

/* Does the work of osh_experts_fault (loaders.h). of: how transformers loads experts. */
static const char *fault_of(int *at, const osh_matching *p, int from, const experts_loader *of)
{
    for (int i = from; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (l->scheme_index < 0 || !osh_expert_prefix(l->name)) continue;
        const char *fault = codes_fault(of, l->scheme, l->name);
        *at = i;
        if (fault) return fault;
    }
    return NULL;
}

static experts_loader experts_loader_of(const osh_matching *p)
{
    experts_loader of;
    experts_loader_init(&of, p->in->ck, group_taken(p->schemes, p->n_schemes, true));
    return of;
}

const char *osh_experts_fault(int *at, const osh_matching *p, int from)
{
    experts_loader of = experts_loader_of(p);
    return fault_of(at, p, from, &of);
}

osh_status osh_match_kept_experts(osh_ctx *cx, const char **fault, const char **name,
                                  const osh_matching *p)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = p->in->ck;
    experts_loader of = experts_loader_of(p);
    char *module = NULL; // own
    bool *coded = NULL;  // own
    *fault = *name = NULL;
    OSH_NEW(cx, coded, ck->n_tensors);
    for (int i = 0; i < p->n_linears; i++)
        coded[p->linears[i].tensor] |= p->linears[i].scheme_index >= 0;
    for (int64_t i = 0; i < ck->n_tensors && !*fault; i++) {
        const osh_tensor *scale, *zero;
        /* scheme of the expert's codes in the source, if the output keeps the codes */
        const osh_q_scheme *s = NULL;
        *name = ck->tensors[i].e->name;
        if (coded[i] || !is_expert_weight(&of, *name)) continue;
        osh_free(cx, module);
        module = osh_sprintf(cx, "%.*s", (int)osh_before_tail(*name, ".weight"), *name);
        if (!module) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of an expert");
        if (osh_checkpoint_is_kept(ck, i))
            s = osh_source_scheme(p->in->source, module, &scale, &zero);
        *fault = s ? codes_fault(&of, s, *name) : dense_is_found(&of) ? NULL : "finds no dense";
    }
done:
    osh_free(cx, module);
    osh_free(cx, coded);
    return rc;
}

osh_status osh_experts_of_file(osh_ctx *cx, const char **fault, const char **name,
                               const osh_checkpoint *ck, const osh_q_config *q)
{
    osh_status rc = OSH_OK;
    experts_loader of;
    osh_groups *groups = NULL; // own
    char *module = NULL;       // own
    int group;
    experts_loader_init(&of, ck, group_taken(q->schemes, q->n, false));
    *fault = *name = NULL;
    OSH_TRY(osh_groups_new(cx, &groups, q));
    for (int64_t i = 0; i < ck->n_tensors && !*fault; i++) {
        const osh_entry *e = ck->tensors[i].e;
        size_t codes = osh_before_tail(e->name, ".weight_packed");
        bool dense = !codes && is_expert_weight(&of, e->name) &&
                     osh_dtype_is_float(e->dtype) && e->dtype != OSH_FP8;
        bool part = osh_checkpoint_is_part(ck, e);
        *name = e->name;
        if (!codes) codes = osh_before_tail(e->name, ".weight");
        if (dense && !part && !dense_is_found(&of)) *fault = "finds no dense";
        if (dense || !codes || !osh_expert_prefix(e->name)) continue;
        osh_free(cx, module);
        module = osh_sprintf(cx, "%.*s", (int)codes, e->name);
        if (!module) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of an expert");
        OSH_TRY(osh_groups_find(cx, &group, groups, module, "Linear"));
        if (group >= 0) *fault = codes_fault(&of, &q->schemes[group], e->name);
    }
done:
    osh_groups_free(cx, groups);
    osh_free(cx, module);
    return rc;
}

/* Fails if vLLM would load the experts of gpt-oss wrongly (GptOssRoutedExperts,
 * _load_weights_other). vLLM's loader ignores zero points and global scales without a message. For
 * dense experts, the loader expects a layout that the output does not have. */
static osh_status refuse_joint(osh_ctx *cx, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    int64_t dense = 0; // number of weights of experts that stay dense
    if (!osh_experts_are_joint(p->in->ck)) goto done;
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (l->scheme_index < 0 || !osh_expert_prefix(l->name)) continue;
        dense--;
        if (!osh_q_joint_loads(l->scheme, l->format))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: vLLM 0.32 takes experts of gpt-oss only as packed symmetric integers, "
                     "and this is %s%s: want such a scheme%s",
                     l->name, l->scheme->weights.symmetric ? "" : "asymmetric ", l->format->name,
                     osh_target_is(p->in->opt, "vllm") ? ", or --target both" : "");
    }
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++) {
        const osh_entry *e = p->in->ck->tensors[i].e;
        dense += osh_expert_prefix(e->name) && osh_ends_with(e->name, strlen(e->name), ".weight") &&
                 !osh_checkpoint_is_kept(p->in->ck, i);
    }
    if (dense > 0)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "in vLLM, either all experts of gpt-oss are quantized or none: want them all "
                 "among the targets%s",
                 osh_target_is(p->in->opt, "vllm")
                     ? ", or --target both, which leaves them all dense"
                     : "");
done:
    return rc;
}

/* Fails if experts have global scales of their inputs (NVFP4), but the loader of vLLM has no
 * parameter for such scales. */
static osh_status refuse_input_scales(osh_ctx *cx, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    bool without = osh_hf_config_has_flag(p->in->ck->config, "experts_without_input_scales");
    for (int i = 0; without && i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (l->scheme_index < 0 || !osh_expert_prefix(l->name)) continue;
        if (l->scheme->inputs.present && l->scheme->inputs.dynamic == OSH_Q_LOCAL)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: vLLM 0.32 stops at input_global_scale of the experts of this model: want "
                     "a scheme without it, such as NVFP4A16",
                     l->name);
    }
done:
    return rc;
}

/* Fails if bits are chosen by measurements (--target-bits, --target-size), and the output has
 * experts that are split for vLLM. The measurements read the source, in which the experts are not
 * split. */
static osh_status refuse_measured(osh_ctx *cx, const osh_matching *p)
{
    const osh_options *o = p->in->opt;
    if (!osh_wants_survey(o) || !p->in->ck->n_parts || !osh_checkpoint_parts_for_vllm(p->in->ck))
        return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "--target vllm: --target-bits and --target-size measure a model whose experts "
                    "are in one tensor: want --target both, or a --scheme without a target");
}

osh_status osh_match_experts(osh_ctx *cx, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    OSH_TRY(refuse_measured(cx, p));
    OSH_TRY(refuse_joint(cx, p));
    OSH_TRY(refuse_input_scales(cx, p));
done:
    return rc;
}

osh_embedding osh_match_embedding(const osh_matching *p, int scheme)
{
    osh_kinds kinds;
    const char *why;
    osh_kinds_init(&kinds, p->in->ck);
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (l->scheme_index < 0 || (scheme >= 0 && l->scheme_index != scheme)) continue;
        if (osh_kind_of(&kinds, l->name, strlen(l->name), l->O, l->I, &why) == OSH_KIND_EMBEDDING)
            return (osh_embedding){l, osh_q_transformers_embeds(l->scheme, l->format),
                                   osh_q_vllm_embeds(l->scheme, l->format)};
    }
    return (osh_embedding){NULL, true, true};
}

/* Looks for a quantized embedding, and reports or refuses it, because no quantized embedding is
 * loaded by both transformers and vLLM. */
static osh_status match_embedding(osh_ctx *cx, const osh_matching *p)
{
    static const char *const engines[] = {"transformers", "vllm"};
    osh_status rc = OSH_OK;
    osh_embedding table = osh_match_embedding(p, -1);
    const osh_linear *l = table.l;
    if (!l) goto done;
    const bool loads[] = {table.transformers, table.vllm};
    const char *const names[] = {"transformers 5.17", "vLLM 0.32"};
    const char *what = "want it dense, or weight-only integers (packed for vLLM, int-quantized for "
                       "transformers)";
    for (int i = 0; i < 2; i++)
        if (osh_target_is(p->in->opt, engines[i]) && !loads[i])
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s does not load the embedding %s (%s): %s", names[i],
                     l->name, l->format->name, what);
    if (!loads[0] && !loads[1])
        osh_log(cx, OSH_LOG_WARN, "%s and %s do not load the embedding %s (%s): %s", names[0],
                names[1], l->name, l->format->name, what);
    else
        osh_log(cx, osh_target_is(p->in->opt, "both") ? OSH_LOG_WARN : OSH_LOG_INFO,
                "%s does not load the embedding %s (%s): load the output with %s", names[loads[0]],
                l->name, l->format->name, names[!loads[0]]);
done:
    return rc;
}

osh_status osh_match_transformers(osh_ctx *cx, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    OSH_TRY(match_embedding(cx, p));
    int at = -1, warned = -1; // warned: index of the last scheme about which there was a warning
    const char *fault, *name;
    experts_loader of = experts_loader_of(p);
    osh_log_level level = osh_target_is(p->in->opt, "vllm") ? OSH_LOG_INFO : OSH_LOG_WARN;
    bool strict = osh_target_is(p->in->opt, "transformers");
    while ((fault = fault_of(&at, p, at + 1, &of))) {
        const osh_linear *l = &p->linears[at];
        if (strict)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "transformers 5.17 %s experts in %s (%s, such as %s): want %s, or --target "
                     "vllm",
                     fault, l->scheme->group_name, l->format->name, l->name,
                     fault == another_group
                         ? "all experts in one group, the first by name with a target such as "
                           "re:.*mlp.experts.*"
                         : "another scheme");
        if (l->scheme_index <= warned) continue;
        warned = l->scheme_index;
        osh_log(cx, level,
                "transformers 5.17 %s experts in %s (%s, such as %s): load the output with vLLM",
                fault, l->scheme->group_name, l->format->name, l->name);
    }
    OSH_TRY(osh_match_kept_experts(cx, &fault, &name, p));
    if (fault && strict)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "transformers 5.17 %s experts (such as %s): want all experts quantized in one "
                 "group, or --target vllm",
                 fault, name);
    if (fault)
        osh_log(cx, level,
                "transformers 5.17 %s experts (such as %s): load the output with vLLM", fault,
                name);
done:
    return rc;
}

char *osh_match_who_loads(osh_ctx *cx, const osh_matching *p, size_t scheme, const char *stranger)
{
    char *who = osh_q_who_loads(cx, &p->schemes[scheme], stranger), *out = who; // own
    int at = -1;
    const char *fault, *name;
    char *end = who ? strstr(who, "; transformers") : NULL; // the text about transformers
    osh_embedding table = osh_match_embedding(p, (int)scheme);
    experts_loader of = experts_loader_of(p);
    do fault = fault_of(&at, p, at + 1, &of);
    while (fault && p->linears[at].scheme_index != (int)scheme);
    if (!end) return who;
    if (!fault && osh_match_kept_experts(cx, &fault, &name, p)) {
        out = NULL;
    } else if (fault || table.l) {
        const char *why = fault ? fault : table.transformers ? NULL : "does not load embeddings";
        *end = 0; // `who` becomes the text about vLLM
        out = osh_sprintf(cx, "%s; %s%s%s", table.vllm ? who : "vLLM 0.32 does not load embeddings",
                          why ? "transformers 5.17 " : end + 2, why ? why : "",
                          fault ? " experts" : "");
    }
    if (out != who) osh_free(cx, who);
    return out;
}
