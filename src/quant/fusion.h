/* fusion.h - lists the Linears that vLLM runs as one layer (fusions.def). They need the same scheme
 * and the same global scale. */
#ifndef OSH_FUSION_H
#define OSH_FUSION_H
#include "io/hf_config.h"

enum { OSH_FUSION_PARTS = 4 };
typedef struct osh_q_fusion {
    const char *fused, *cls;                 // name and class of the layer in vLLM
    const char *around;                      // name of the parent module; NULL: any
    const char *types;                       // model types, separated by spaces; NULL: all
    int enough;                              // number of parts with which the layer exists
    const char *parts[OSH_FUSION_PARTS + 1]; // leaf names of the parts; NULL ends the list
} osh_q_fusion;

typedef struct osh_q_family { // views
    const char *whole, *text; // model types of the whole model and of its text model; NULL: unknown
} osh_q_family;
osh_q_family osh_q_family_of(const osh_hf_config *config);

/* Returns the layer of which a module is a part. NULL: the module is a layer by itself. */
const osh_q_fusion *osh_q_fusion_find(osh_q_family family, const char *module);
int osh_q_fusion_parts(const osh_q_fusion *f); // number of parts
/* Returns the name of the layer of which `module` is a part, or of another of its parts: the name
 * of `module` with the leaf `leaf`. The caller owns it. NULL: no memory. */
char *osh_q_fusion_name(osh_ctx *cx, const char *module, const char *leaf);
#endif
