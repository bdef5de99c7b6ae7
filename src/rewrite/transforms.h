/* transforms.h - makes the transform_config of a recipe's rotations and finds where the rotations
 * that act while the model runs are inserted. A part of rotations.c. */
#ifndef OSH_PLAN_TRANSFORMS_H
#define OSH_PLAN_TRANSFORMS_H
#include "modifiers/rotate.h"
#include "rewrite/rotations.h"

typedef struct osh_turned { // nodes of the graph, as the recipe's rotations see them
    const char *modifier;
    const osh_rotate *args;
    const bool *makes; // [nodes]: they are added to the residual stream, or are embeddings; NULL:
                       // not known
    const bool *reads; // [nodes]: they read the residual stream
} osh_turned;
/* Fills p->rotated's transforms and online, and adds the matrices' tensors to the checkpoint.
 * Refuses rotations that no loader of models could apply. */
osh_status osh_plan_transforms(osh_ctx *cx, osh_rewrites *p, const osh_turned *t);
#endif
