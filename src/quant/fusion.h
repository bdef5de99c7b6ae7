/* fusion.h - lists the Linears that vLLM runs as one layer (fusions.def). All Linears of such a
 * fused layer need one scheme and one global scale. */
#ifndef OSH_FUSION_H
#define OSH_FUSION_H
#include "io/hf_config.h"

enum { OSH_FUSION_PARTS = 5 };
typedef struct osh_q_fusion {
    const char *fused, *cls;                 // name and class of the layer in vLLM
    const char *around; // required name of the parent module; NULL: the parent may have any name
    const char *types; // model types to which the row applies, separated by spaces; NULL: all
    int enough; // vLLM fuses the Linears if the checkpoint has parts[0] to parts[enough - 1]
    /* Leaf names (after the last dot) of the fused Linears, the parts of the layer; NULL ends the
     * list. */
    const char *parts[OSH_FUSION_PARTS + 1];
} osh_q_fusion;

typedef struct osh_q_family { // views
    /* Model types of the whole model and of its text model; NULL: unknown. */
    const char *whole, *text; // views
} osh_q_family;
osh_q_family osh_q_family_of(const osh_hf_config *config);

/* Returns a view of the row of fusions.def for the fused layer that contains the module. Returns
 * NULL if vLLM runs the module as a layer of its own. */
const osh_q_fusion *osh_q_fusion_find(osh_q_family family, const char *module);
int osh_q_fusion_parts(const osh_q_fusion *f); // returns the number of Linears in the fused layer
/* Returns the name of `module` with the name after the last dot replaced by `leaf`. The result is
 * the name of the fused layer or of another Linear in this layer. The caller owns the string.
 * Returns NULL if memory is exhausted. */
char *osh_q_fusion_name(osh_ctx *cx, const char *module, const char *leaf);
#endif
