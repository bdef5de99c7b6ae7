/* joint.h - decides if vLLM can load the quantized experts of gpt-oss, and which engines load a
 * quantized embedding. */
#ifndef OSH_JOINT_H
#define OSH_JOINT_H
#include "quant/format.h"

/* True if vLLM can load the experts of gpt-oss in this scheme and format. It loads only packed
 * symmetric integers. */
bool osh_q_joint_loads(const osh_q_scheme *s, const osh_format *f);
/* True if vLLM 0.32 loads an embedding in this scheme and format. vLLM has a method for packed
 * integers only (CompressedTensorsEmbeddingWNA16Int). */
bool osh_q_vllm_embeds(const osh_q_scheme *s, const osh_format *f);
/* True if transformers 5.17 loads an embedding in this scheme and format. When transformers makes
 * the module, it reads the member `weight`, which packed codes do not have. It would also quantize
 * the inputs of the module, which are token ids. */
bool osh_q_transformers_embeds(const osh_q_scheme *s, const osh_format *f);
#endif
