/* joint.h - which schemes vLLM's loader of joint experts takes (osh_experts_are_joint). */
#ifndef OSH_JOINT_H
#define OSH_JOINT_H
#include "quant/format.h"

/* True if the loader of gpt-oss in vLLM takes experts with this scheme and format: packed symmetric
 * integers. */
bool osh_q_joint_loads(const osh_q_scheme *s, const osh_format *f);
#endif
