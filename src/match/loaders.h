/* loaders.h - finds quantized experts of an output that transformers does not load correctly,
 * although vLLM does. */
#ifndef OSH_LOADERS_H
#define OSH_LOADERS_H
#include "match/matching.h"

/* Returns a verb phrase, such as "does not load", that says what transformers 5.17 does wrong with
 * the first Linear at or after `from` that is a quantized expert with a fault. Sets *at to the
 * Linear. NULL: there is no such Linear. */
const char *osh_experts_fault(int *at, const osh_matching *p, int from);
/* Finds the first expert with a fault among those that no modifier quantizes: dense experts, and
 * with --only those whose codes stay. *fault: verb phrase for a message, before the word "experts"
 * (static string; NULL: there is no such expert). *name (view): weight of the expert. */
osh_status osh_match_kept_experts(osh_ctx *cx, const char **fault, const char **name,
                                  const osh_matching *p);
/* Finds the first expert of a checkpoint with the config q whose codes or dense weight transformers
 * 5.17 does not load correctly. *fault, *name: as in osh_match_kept_experts. */
osh_status osh_experts_of_file(osh_ctx *cx, const char **fault, const char **name,
                               const osh_checkpoint *ck, const osh_q_config *q);
/* Fails if the output has experts that vLLM does not load, or if a choice of bits would have to
 * measure experts that are split for vLLM. */
osh_status osh_match_experts(osh_ctx *cx, const osh_matching *p);
/* Looks for experts that transformers does not load, or loads wrongly. Such experts are an error
 * with --target transformers, a message of level info with --target vllm, and a warning otherwise.
 * Called after the groups of the output have their names and targets. */
osh_status osh_match_transformers(osh_ctx *cx, const osh_matching *p);
/* Returns a line (own) that names the engines that load scheme `scheme` of the output
 * (osh_q_who_loads). If transformers has a fault with experts of the scheme, the line says so.
 * NULL: no memory. */
char *osh_match_who_loads(osh_ctx *cx, const osh_matching *p, size_t scheme, const char *stranger);
#endif
