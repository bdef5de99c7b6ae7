/* fusion.h - lists the Linears that vLLM runs as one layer. All Linears of such a fused layer need
 * one scheme and one global scale. */
#ifndef OSH_FUSION_H
#define OSH_FUSION_H
#include "io/hf_config.h"
#include "io/model_types.h"

typedef struct osh_q_fusion { // a fused layer of vLLM; the strings are views
    const char *fused, *cls;  // name and class of the fused layer; `fused` NULL: vLLM fuses nothing
    const char *in; // only modules inside a module with this name are fused; NULL: any name
    int enough; // vLLM fuses only if the checkpoint has the modules parts[0] ... parts[enough - 1]
    int n;      // number of Linears in the fused layer
    /* Names of the Linears in the fused layer, after the last dot. */
    const char *parts[OSH_FUSION_PARTS];
} osh_q_fusion;

typedef struct osh_q_family { // views
    /* The records (model_types.h) of the whole model and of its text model. NULL: the model type is
     * unknown. */
    const cJSON *whole, *text;
} osh_q_family;
/* Returns the family of a model, as views of `config`. */
osh_q_family osh_q_family_of(const osh_hf_config *config);

/* Returns the fused layer that contains the module, with views of the records in `family`. If vLLM
 * does not fuse the module, the member `fused` of the result is NULL. */
osh_q_fusion osh_q_fusion_find(osh_q_family family, const char *module);
/* Returns the name of `module` with `leaf` instead of the part after the last dot. With suitable
 * values of `leaf`, this is the name of the fused layer, or of another Linear in it. The caller
 * owns the string. Returns NULL if memory is exhausted. */
char *osh_q_fusion_name(osh_ctx *cx, const char *module, const char *leaf);
#endif
