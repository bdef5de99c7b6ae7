/* fusion.h - the Linears that vLLM runs as one layer (fusions.def). They need one scheme and one
 * global scale. */
#ifndef OSH_FUSION_H
#define OSH_FUSION_H
#include "io/hf_config.h"

enum { OSH_FUSION_PARTS = 4 };
typedef struct osh_q_fusion {
    const char *fused, *cls;                 // name and class of the layer in vLLM
    const char *around;                      // parent module; NULL: any
    const char *types;                       // model types, separated by spaces; NULL: all
    int enough;                              // number of parts that make the layer
    const char *parts[OSH_FUSION_PARTS + 1]; // leaf names of the parts; ends with NULL
} osh_q_fusion;

typedef struct osh_q_family { // views
    const char *whole, *text; // types of the model and of its text model; NULL: unknown
} osh_q_family;
osh_q_family osh_q_family_of(const osh_hf_config *config);

/* Returns the layer that a module is a part of, or NULL if the module is a layer by itself. */
const osh_q_fusion *osh_q_fusion_find(osh_q_family family, const char *module);
int osh_q_fusion_parts(const osh_q_fusion *f); // number of parts
/* Returns the name of the layer that module is a part of, or of another of its parts: the name of
 * module with another leaf. own. NULL: no memory. */
char *osh_q_fusion_name(osh_ctx *cx, const char *module, const char *leaf);
#endif
