/* source.h - a checkpoint to run: dense, or compressed-tensors, whose weights are dequantized as they are read. */
#ifndef OSH_SOURCE_H
#define OSH_SOURCE_H
#include "io/checkpoint.h"
#include "quant/format.h"
#include "text/match.h"

typedef struct osh_source osh_source;
osh_status osh_source_open(osh_ctx *cx, osh_source **out, const char *dir);
void osh_source_close(osh_ctx *cx, osh_source *s);
osh_checkpoint *osh_source_checkpoint(const osh_source *s); // view
int osh_source_n_quantized(const osh_source *s);
size_t osh_source_scratch(const osh_source *s); // bytes (gross) that reading a quantized weight takes beside it
/* Scheme of a module, NULL: dense. in_scale, in_zero: stored static input parameters or NULL; views. */
const osh_q_scheme *osh_source_scheme(const osh_source *s, const char *module,
                                      const osh_tensor **in_scale, const osh_tensor **in_zero);
bool osh_source_queries(const osh_source *s); // it rounds queries as it rounds keys and values
const osh_q_args *osh_source_cache(const osh_source *s); // its kv_cache_scheme; NULL: none
#endif
