/* loaders.h - finds experts and embeddings of an output that transformers or vLLM does not load
 * correctly. */
#ifndef OSH_LOADERS_H
#define OSH_LOADERS_H
#include "match/matching.h"

/* Finds the first quantized expert that transformers 5.17 does not load correctly. Looks only at
 * Linears with the index `from` or a higher one. Sets *at to the index of the expert. Returns a
 * verb phrase that says what transformers does wrong, such as "does not load". Returns NULL if
 * there is no such expert. */
const char *osh_experts_fault(int *at, const osh_matching *p, int from);
/* Finds the first expert that no modifier quantizes and that transformers does not load correctly.
 * Such an expert is dense, or it keeps its codes because of --only.
 * *fault: set to a verb phrase that says what transformers does wrong (static string). The object
 * "experts" follows it in a message. NULL if there is no such expert.
 * *name (view): set to the name of the expert's weight. */
osh_status osh_match_kept_experts(osh_ctx *cx, const char **fault, const char **name,
                                  const osh_matching *p);
/* Finds the first expert of the checkpoint `ck` that transformers 5.17 does not load correctly. The
 * expert may be quantized or dense. q: quantization_config of the checkpoint. Sets *fault and *name
 * as osh_match_kept_experts does. */
osh_status osh_experts_of_file(osh_ctx *cx, const char **fault, const char **name,
                               const osh_checkpoint *ck, const osh_q_config *q);
/* Fails if vLLM does not load some experts of the output. Also fails if --target-bits or
 * --target-size would measure experts that are split for vLLM. */
osh_status osh_match_experts(osh_ctx *cx, const osh_matching *p);
/* A quantized embedding, and the engines that load it.
 * l: view; NULL: no embedding is quantized.
 * transformers, vllm: true if the engine loads the embedding, or if l is NULL. */
typedef struct osh_embedding {
    const osh_linear *l;
    bool transformers, vllm;
} osh_embedding;
/* Finds the first embedding that has the scheme `scheme` of the output (< 0: any scheme). */
osh_embedding osh_match_embedding(const osh_matching *p, int scheme);
/* Looks for experts and embeddings that transformers does not load, or loads wrongly. With --target
 * transformers, they are an error. With --target vllm, the program logs a message of level info.
 * Otherwise it logs a warning. Must be called after the groups of the output have their names and
 * targets. */
osh_status osh_match_transformers(osh_ctx *cx, const osh_matching *p);
/* Returns a line (own) that names the engines that load scheme `scheme` of the output
 * (osh_q_who_loads). If transformers does not load experts or embeddings with this scheme
 * correctly, the line says so. Returns NULL if out of memory. */
char *osh_match_who_loads(osh_ctx *cx, const osh_matching *p, size_t scheme, const char *stranger);
#endif
