/* joint.h - decides if vLLM can load the quantized experts of gpt-oss. */
#ifndef OSH_JOINT_H
#define OSH_JOINT_H
#include "quant/format.h"

/* True if vLLM can load the experts of gpt-oss in this scheme and format: packed symmetric
 * integers. */
bool osh_q_joint_loads(const osh_q_scheme *s, const osh_format *f);
#endif
