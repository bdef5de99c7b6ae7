/* source.h - a checkpoint to run or to compress, dense or quantized: weights are dequantized as they are read, and what
 * stands above sees a dense checkpoint. */
#ifndef OSH_SOURCE_H
#define OSH_SOURCE_H
#include "io/checkpoint.h"
#include "quant/format.h"
#include "text/match.h"

typedef struct osh_source osh_source;
osh_status osh_source_open(osh_ctx *cx, osh_source **out, const char *dir);
/* The same without scales of keys and values: the output's are its own. With only, a quantized module that it does not
 * match is there twice: as it is stored, and as a kept virtual tensor; scales of keys and values stay. */
osh_status osh_source_open_to_compress(osh_ctx *cx, osh_source **out, const char *dir, osh_matcher *only);
void osh_source_close(osh_ctx *cx, osh_source *s);
osh_checkpoint *osh_source_checkpoint(const osh_source *s); // view
int osh_source_n_quantized(const osh_source *s);
size_t osh_source_scratch(const osh_source *s); // bytes (gross) that reading a quantized weight takes beside it
/* Scheme of a module by its config group, NULL: dense, or of a source without groups. in_scale, in_zero: stored static
 * input parameters or NULL; views. */
const osh_q_scheme *osh_source_scheme(const osh_source *s, const char *module,
                                      const osh_tensor **in_scale, const osh_tensor **in_zero);
/* How what the module makes is rounded, with stored static parameters or NULL; NULL: it is not. views */
const osh_q_args *osh_source_outputs(const osh_source *s, const char *module, const osh_tensor **scale,
                                     const osh_tensor **zero);
bool osh_source_rounds_outputs(const osh_source *s); // of some module
bool osh_source_queries(const osh_source *s); // it rounds queries as it rounds keys and values
const osh_q_config *osh_source_config(const osh_source *s); // NULL: it has no groups
bool osh_source_has_part(const osh_source *s, const char *tensor); // codes or parameters of a quantized module
const osh_q_transforms *osh_source_transforms(const osh_source *s); // that act while it runs; NULL: none. view
const osh_q_args *osh_source_cache(const osh_source *s); // its kv_cache_scheme; NULL: none
#endif
