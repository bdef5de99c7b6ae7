/* fusion.h - lists the Linears that vLLM runs as one layer. All Linears of such a fused layer need
 * one scheme and one global scale. */
#ifndef OSH_FUSION_H
#define OSH_FUSION_H
#include "io/hf_config.h"
#include "io/model_types.h"

typedef struct osh_q_fusion { // the strings are views
    const char *fused, *cls;  // name and class of the layer in vLLM; fused NULL: no layer
    const char *in;           // required name of the parent module; NULL: any name
    int enough; // vLLM fuses the Linears if the checkpoint has parts[0] to parts[enough - 1]
    int n;      // number of the fused Linears
    /* Leaf names (after the last dot) of the fused Linears, the parts of the layer. */
    const char *parts[OSH_FUSION_PARTS];
} osh_q_fusion;

typedef struct osh_q_family { // views
    /* Records (model_types.h) of the whole model and of its text model; NULL: the model_type is
     * unknown. */
    const cJSON *whole, *text;
} osh_q_family;
osh_q_family osh_q_family_of(const osh_hf_config *config);

/* Returns the fused layer that contains the module, with views of the family's records. If vLLM
 * runs the module as a separate layer, the member `fused` of the result is NULL. */
osh_q_fusion osh_q_fusion_find(osh_q_family family, const char *module);
/* Returns the name of `module` in which `leaf` replaces the part after the last dot. With the right
 * leaf, this is the name of the fused layer or of another Linear in this layer. The caller owns the
 * string. Returns NULL if memory is exhausted. */
char *osh_q_fusion_name(osh_ctx *cx, const char *module, const char *leaf);
#endif
