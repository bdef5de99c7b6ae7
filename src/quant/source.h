/* source.h - opens a dense or quantized checkpoint, to run or to compress it. Quantized weights are
 * dequantized when they are read, so that callers see a dense checkpoint. */
#ifndef OSH_SOURCE_H
#define OSH_SOURCE_H
#include "io/checkpoint.h"
#include "quant/format.h"
#include "text/match.h"

typedef struct osh_source osh_source;
osh_status osh_source_open(osh_ctx *cx, osh_source **out, const char *dir);
/* Opens a checkpoint to compress. Stored scales of keys and values are hidden, because the output
 * gets new ones. If `only` is not NULL, a quantized module that it does not match is visible twice:
 * as it is stored, and as a kept virtual tensor; scales of keys and values then stay visible. */
osh_status osh_source_open_to_compress(osh_ctx *cx, osh_source **out, const char *dir,
                                       osh_matcher *only);
void osh_source_close(osh_ctx *cx, osh_source *s);
osh_checkpoint *osh_source_checkpoint(const osh_source *s); // view
int osh_source_n_quantized(const osh_source *s);
/* Returns the gross bytes that reading a quantized weight needs in addition to the weight. */
size_t osh_source_scratch(const osh_source *s);
/* Returns the scheme of a module's config group. NULL: the module is dense, or the source has no
 * groups. *in_scale and *in_zero (views) are the stored parameters of static inputs, or NULL. */
const osh_q_scheme *osh_source_scheme(const osh_source *s, const char *module,
                                      const osh_tensor **in_scale, const osh_tensor **in_zero);
/* Returns how the outputs of a module are rounded; NULL: they are not rounded. *scale and *zero
 * (views) are the stored static parameters, or NULL. */
const osh_q_args *osh_source_outputs(const osh_source *s, const char *module,
                                     const osh_tensor **scale, const osh_tensor **zero);
bool osh_source_rounds_outputs(const osh_source *s); // true if the outputs of some module are
                                                     // rounded
bool osh_source_queries(const osh_source *s); // true if queries are rounded too
const osh_q_config *osh_source_config(const osh_source *s); // NULL: the source has no groups
/* True if the tensor contains codes or parameters of a quantized module. */
bool osh_source_has_part(const osh_source *s, const char *tensor);
/* Returns the transforms that act while the model runs (view). NULL: none. */
const osh_q_transforms *osh_source_transforms(const osh_source *s);
const osh_q_args *osh_source_cache(const osh_source *s); // kv_cache_scheme; NULL: the source has
                                                         // none
#endif
