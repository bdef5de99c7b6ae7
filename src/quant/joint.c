/* joint.c - repeats the rules of vLLM 0.32 for loading the experts of gpt-oss (models/gpt_oss.py).
 * vLLM copies weight_packed, weight_scale and bias, and ignores zero points and global scales. Also
 * has the rules of vLLM and transformers for embeddings. */
#include "quant/joint.h"

#include <string.h>

bool osh_q_joint_loads(const osh_q_scheme *s, const osh_format *f)
{
    return !strcmp(f->name, "pack-quantized") && s->weights.symmetric;
}

bool osh_q_vllm_embeds(const osh_q_scheme *s, const osh_format *f)
{
    return !strcmp(f->name, "pack-quantized") && !s->inputs.present;
}

bool osh_q_transformers_embeds(const osh_q_scheme *s, const osh_format *f)
{
    return !strstr(f->name, "pack") && !s->inputs.present;
}
