/* transforms.h - what transform_config says of a recipe's rotations, and where those of them stand that act while the
 * model runs. Of rotations.c. */
#ifndef OSH_PLAN_TRANSFORMS_H
#define OSH_PLAN_TRANSFORMS_H
#include "modifiers/rotate.h"
#include "plan/rotations.h"

typedef struct osh_turned { // nodes of the graph, as the recipe's rotations see them
    const char *modifier;
    const osh_rotate *args;
    const bool *makes; // [nodes]: what is added to the residual stream, and embeddings; NULL: nobody asked
    const bool *reads; // [nodes]: what reads it
} osh_turned;
/* Fills p->rotated's transforms and online, and adds the matrices' tensors to the checkpoint. Refuses what nothing that
 * loads models could apply. */
osh_status osh_plan_transforms(osh_ctx *cx, osh_plan *p, const osh_turned *t);
#endif
