/* source.h - opens a dense or quantized checkpoint. Callers see a dense checkpoint, because
 * quantized weights are dequantized when they are read. */
#ifndef OSH_SOURCE_H
#define OSH_SOURCE_H
#include "io/checkpoint.h"
#include "quant/format.h"
#include "text/match.h"

typedef struct osh_source osh_source;
/* Opens the checkpoint in the directory `dir`, whose weights may be quantized. The caller frees
 * *out with osh_source_close. */
osh_status osh_source_open(osh_ctx *cx, osh_source **out, const char *dir);
/* Opens a checkpoint like osh_source_open, and merges the LoRA adapter in the directory `adapter`
 * into it. `adapter` may be NULL. */
osh_status osh_source_open_merged(osh_ctx *cx, osh_source **out, const char *dir,
                                  const char *adapter);
/* Opens a checkpoint like osh_source_open_merged, to compress it. Hides stored scales of keys and
 * values, because the output gets new scales.
 * If `only` is not NULL, these scales remain visible. A quantized module that `only` does not match
 * is then visible in two forms: as its stored tensors, and as a virtual dense tensor marked `kept`.
 * vllm: true if only vLLM will load the output. Tensors with all experts of a layer are then also
 * split for model types with the flag split_for_vllm (io/ckpt_experts.c). */
osh_status osh_source_open_to_compress(osh_ctx *cx, osh_source **out, const char *dir,
                                       const char *adapter, osh_matcher *only, bool vllm);
/* Returns the number of tensors that the LoRA adapter changes. */
int osh_source_n_merged(const osh_source *s);
void osh_source_close(osh_ctx *cx, osh_source *s);
/* Sets *method to the quant_method of a checkpoint, or to NULL if the checkpoint is dense. *method
 * is a view of c or a static string. */
osh_status osh_source_method(osh_ctx *cx, const char **method, const osh_hf_config *c);
osh_checkpoint *osh_source_checkpoint(const osh_source *s); // returns a view
/* Returns the number of quantized modules. */
int osh_source_n_quantized(const osh_source *s);
/* Returns the largest number of bytes of scratch for reading one quantized weight. It includes the
 * overhead of the allocator, but not the bytes of the dense weight. */
size_t osh_source_scratch(const osh_source *s);
/* Returns the number of bytes that a dense tensor of the checkpoint takes in the source. For a
 * quantized weight, these are the bytes of its codes, scales and zero points. */
int64_t osh_source_stored_bytes(const osh_source *s, int64_t tensor);
/* Returns the scheme of the config group of a module (view). Returns NULL if the module is dense,
 * or if the checkpoint has no config groups. Sets *in_scale and *in_zero (views) to the stored
 * scale and zero point of static inputs, or to NULL. */
const osh_q_scheme *osh_source_scheme(const osh_source *s, const char *module,
                                      const osh_tensor **in_scale, const osh_tensor **in_zero);
/* Returns the quantization arguments of the outputs of a module (view), or NULL if they are not
 * quantized. Sets *scale and *zero (views) to the stored scale and zero point of static outputs, or
 * to NULL. */
const osh_q_args *osh_source_outputs(const osh_source *s, const char *module,
                                     const osh_tensor **scale, const osh_tensor **zero);
/* True if the outputs of at least one module are quantized. */
bool osh_source_rounds_outputs(const osh_source *s);
bool osh_source_queries(const osh_source *s); // true if the queries of attention are quantized
/* Returns the quantization config of the checkpoint (view), or NULL if it has no config groups. */
const osh_q_config *osh_source_config(const osh_source *s);
/* True if the stored tensor contains codes or parameters of a quantized module. */
bool osh_source_has_part(const osh_source *s, const char *tensor);
/* Returns the transforms that are applied to activations while the model runs (view), or NULL if
 * there are none. */
const osh_q_transforms *osh_source_transforms(const osh_source *s);
/* Returns kv_cache_scheme (view), or NULL if there is none. */
const osh_q_args *osh_source_cache(const osh_source *s);
#endif
