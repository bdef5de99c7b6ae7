/* transforms.h - makes the transform_config of a recipe's rotations. Also finds the nodes whose
 * inputs or outputs are rotated while the model runs. Only rotations.c calls these functions. */
#ifndef OSH_PLAN_TRANSFORMS_H
#define OSH_PLAN_TRANSFORMS_H
#include "modifiers/rotate.h"
#include "rewrite/rotations.h"

typedef struct osh_turned { // nodes of the graph that the rotations of a recipe change
    const char *modifier;
    const osh_rotate *args;
    /* True for embeddings, and for nodes whose output is added to the residual stream. All entries
     * are false if the recipe has only the rotations V and U. */
    const bool *makes; // [nodes]
    const bool *reads; // [nodes]: true for nodes that read the residual stream
} osh_turned;
/* Sets p->rotated->transforms and p->rotated->online, and adds tensors with the matrices to the
 * checkpoint. Fails if no loader can apply the rotations. */
osh_status osh_plan_transforms(osh_ctx *cx, osh_rewrites *p, const osh_turned *t);
#endif
