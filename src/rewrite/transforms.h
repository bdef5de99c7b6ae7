/* transforms.h - makes the transform_config of a recipe's rotations. Also finds the nodes whose
 * inputs or outputs are rotated while the model runs. Only rotations.c uses this file. */
#ifndef OSH_PLAN_TRANSFORMS_H
#define OSH_PLAN_TRANSFORMS_H
#include "modifiers/rotate.h"
#include "rewrite/rotations.h"

typedef struct osh_turned { // lists of the graph's nodes that a recipe's rotations change
    const char *modifier;
    const osh_rotate *args;
    /* True for embeddings, and for nodes whose output is added to the residual stream. If the
     * recipe has only the rotations V and U, all entries are false. */
    const bool *makes; // [nodes]
    const bool *reads; // [nodes]: true for nodes that read the residual stream
} osh_turned;
/* Sets p->rotated->transforms and p->rotated->online, and adds the rotation matrices to the
 * checkpoint, as tensors. Fails if no loader can apply the rotations. */
osh_status osh_plan_transforms(osh_ctx *cx, osh_rewrites *p, const osh_turned *t);
#endif
