/* fusion.h - the Linears that vLLM runs as one layer (fusions.def). They need one scheme, and
 * one global scale. */
#ifndef OSH_FUSION_H
#define OSH_FUSION_H
#include "io/hf_config.h"

enum { OSH_FUSION_PARTS = 4 };
typedef struct osh_q_fusion {
    const char *fused, *cls;                 // the layer's name and class in vLLM
    const char *around;                      // the module around it; NULL: any
    const char *types;                       // model types, with spaces between them; NULL: all
    int enough;                              // so many of the parts make the layer
    const char *parts[OSH_FUSION_PARTS + 1]; // of its modules; NULL ends them
} osh_q_fusion;

typedef struct osh_q_family { // views
    const char *whole, *text; // model types of the model and of its text model; NULL: not known
} osh_q_family;
osh_q_family osh_q_family_of(const osh_hf_config *config);

/* The layer that a module is a part of; NULL: it is one of its own. */
const osh_q_fusion *osh_q_fusion_find(osh_q_family family, const char *module);
int osh_q_fusion_parts(const osh_q_fusion *f); // how many parts it has
/* own: the name of another part of the layer that module is a part of, or of the layer. NULL: no
 * memory. */
char *osh_q_fusion_name(osh_ctx *cx, const char *module, const char *leaf);
#endif
