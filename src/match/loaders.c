/* loaders.c - finds quantized experts that transformers or vLLM does not load. The plan refuses
 * them if --target names the engine. */
#include "match/loaders.h"

#include <string.h>

#include "base/name.h"
#include "quant/joint.h"

const char *osh_experts_fault(int *at, const osh_matching *p, int from)
{
    bool apart = osh_checkpoint_parts_for_vllm(p->in->ck);
    for (int i = from; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (l->scheme_index < 0 || !osh_expert_prefix(l->name)) continue;
        const char *fault = apart ? "finds no codes of" : osh_q_experts_fault(l->scheme);
        *at = i;
        if (fault) return fault;
    }
    return NULL;
}

/* Fails if vLLM's loader of joint experts (gpt-oss) does not take them. The loader leaves out zero
 * points and global scales without a message, and reads a dense expert in another layout
 * (GptOssRoutedExperts, _load_weights_other). */
static osh_status refuse_joint(osh_ctx *cx, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    int64_t dense = 0; // number of experts' weights that stay dense
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

/* Fails for experts of granitemoehybrid with global scales of inputs (NVFP4), for which the loader
 * of vLLM (GraniteMoeHybridModel.load_weights) finds no parameter. */
static osh_status refuse_input_scales(osh_ctx *cx, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    const char *type = osh_hf_config_str(p->in->ck->config, "model_type");
    for (int i = 0; type && !strcmp(type, "granitemoehybrid") && i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (l->scheme_index < 0 || !osh_expert_prefix(l->name)) continue;
        if (l->scheme->inputs.present && l->scheme->inputs.dynamic == OSH_Q_LOCAL)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: vLLM 0.32 stops at input_global_scale of experts of granitemoehybrid: "
                     "want a scheme without it, such as NVFP4A16",
                     l->name);
    }
done:
    return rc;
}

/* Fails if experts are split for vLLM and a choice of bits measures the model, because the
 * measurements read the source, whose experts are not split. */
static osh_status refuse_measured(osh_ctx *cx, const osh_matching *p)
{
    const osh_options *o = p->in->opt;
    bool measured = o->survey || o->target_bits > 0 || o->target_size;
    if (!measured || !p->in->ck->n_parts || !osh_checkpoint_parts_for_vllm(p->in->ck))
        return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "--target vllm: --target-bits and --target-size measure a model whose experts "
                    "are in one tensor: want --target both, or a --scheme without a target");
}

osh_status osh_match_experts(osh_ctx *cx, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    int at = -1, warned = -1; // warned: index of the last scheme with a warning
    const char *fault;
    OSH_TRY(refuse_measured(cx, p));
    OSH_TRY(refuse_joint(cx, p));
    OSH_TRY(refuse_input_scales(cx, p));
    while ((fault = osh_experts_fault(&at, p, at + 1))) {
        const osh_linear *l = &p->linears[at];
        if (osh_target_is(p->in->opt, "transformers"))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "transformers 5.17 %s experts in %s (%s, such as %s): want another scheme, "
                     "or --target vllm",
                     fault, l->scheme->group_name, l->format->name, l->name);
        if (l->scheme_index <= warned) continue;
        warned = l->scheme_index;
        osh_log(cx, osh_target_is(p->in->opt, "vllm") ? OSH_LOG_INFO : OSH_LOG_WARN,
                "transformers 5.17 %s experts in %s (%s, such as %s): load the output with vLLM",
                fault, l->scheme->group_name, l->format->name, l->name);
    }
done:
    return rc;
}

char *osh_match_who_loads(osh_ctx *cx, const osh_matching *p, size_t scheme, const char *stranger)
{
    char *who = osh_q_who_loads(cx, &p->schemes[scheme], stranger), *out = who; // own
    int at = -1;
    const char *fault, *end = who ? strstr(who, "; transformers") : NULL;
    do fault = osh_experts_fault(&at, p, at + 1);
    while (fault && p->linears[at].scheme_index != (int)scheme);
    if (!fault || !end) return who;
    out = osh_sprintf(cx, "%.*s; transformers 5.17 %s experts", (int)(end - who), who, fault);
    osh_free(cx, who);
    return out;
}
