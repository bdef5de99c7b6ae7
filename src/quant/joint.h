/* joint.h - tells whether vLLM can load joint experts (osh_experts_are_joint) with a given
 * scheme. */
#ifndef OSH_JOINT_H
#define OSH_JOINT_H
#include "quant/format.h"

/* True if the loader of gpt-oss in vLLM takes experts with this scheme and format: packed symmetric
 * integers. */
bool osh_q_joint_loads(const osh_q_scheme *s, const osh_format *f);
#endif
