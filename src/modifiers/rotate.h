/* rotate.h - the arguments of modifiers that rotate: SpinQuantModifier and QuIPModifier.
 * src/rewrite/rotations.c finds the weights. */
#ifndef OSH_ROTATE_H
#define OSH_ROTATE_H
#include "modifiers/modifier.h"
#include "tensor/rotation.h"

enum { // the activations that are rotated, as bits that can be combined
    OSH_ROTATE_R1 = 1, // the residual stream
    OSH_ROTATE_R2 = 2, // values of attention, each head separately
    OSH_ROTATE_R3 = 4, // queries and keys, each head separately, while the model runs
    OSH_ROTATE_R4 = 8, // inputs of down_proj, while the model runs
    OSH_ROTATE_V = 16, // inputs of Linears, while the model runs
    OSH_ROTATE_U = 32  // outputs of Linears, while the model runs
};
enum { OSH_ROTATE_ONLINE = OSH_ROTATE_R3 | OSH_ROTATE_R4 | OSH_ROTATE_V | OSH_ROTATE_U };

typedef struct osh_rotate { // arguments of the modifier
    unsigned which;
    char *type;      // own: transform_type
    int64_t block;   // the key transform_block_size; 0: the key is not given
    int64_t seed;
    bool centre;     // the key center_embeddings
    bool f32;        // true if the matrices in the output are f32; false if they are f64
    osh_strs targets, ignore; // own: modules of the rotations v and u
} osh_rotate;
/* Returns the arguments (view), or NULL if m does not rotate. */
const osh_rotate *osh_rotate_of(const osh_modifier *m);
osh_rotation_kind osh_rotate_kind(const osh_rotate *a);
#endif
