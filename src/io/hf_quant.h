/* hf_quant.h - finds the description of a quantized source: a key of config.json, or a file beside
 * config.json that another quantizer wrote. */
#ifndef OSH_HF_QUANT_H
#define OSH_HF_QUANT_H
#include "io/hf_config.h"

/* Sets c->quantization_config and c->quantization_path. If the description is in a file beside
 * config.json, also sets c->quantization_json. c->json is already set. A key of config.json has
 * precedence over the files, as in transformers. */
osh_status osh_hf_quant_read(osh_ctx *cx, osh_hf_config *c);
/* True if the file describes the quantization of a source. An output does not get a copy of such a
 * file, because engines would apply it to the new weights. */
bool osh_hf_quant_is_file(const char *name);
/* Returns the name (static) of file i among the files for which osh_hf_quant_is_file is true.
 * Returns NULL if i is not less than their number. */
const char *osh_hf_quant_file(size_t i);
#endif
