/* rotate.h - declares the arguments of SpinQuantModifier and QuIPModifier, which rotate weights and
 * activations. src/rewrite/rotations.c decides which weights are rotated. */
#ifndef OSH_ROTATE_H
#define OSH_ROTATE_H
#include "modifiers/modifier.h"
#include "tensor/rotation.h"

enum { // activations that a modifier rotates, as bits that can be combined
    OSH_ROTATE_R1 = 1, // the residual stream
    OSH_ROTATE_R2 = 2, // values of attention, each head separately
    OSH_ROTATE_R3 = 4, // queries and keys while the model runs, each head separately
    OSH_ROTATE_R4 = 8, // inputs of down_proj, while the model runs
    OSH_ROTATE_V = 16, // inputs of Linears, while the model runs
    OSH_ROTATE_U = 32  // outputs of Linears, while the model runs
};
enum { OSH_ROTATE_ONLINE = OSH_ROTATE_R3 | OSH_ROTATE_R4 | OSH_ROTATE_V | OSH_ROTATE_U };

typedef struct osh_rotate { // arguments of SpinQuantModifier and QuIPModifier
    unsigned which;
    char *type;      // own: value of the key transform_type
    int64_t block;   // value of the key transform_block_size; 0: the key is not given
    int64_t seed;
    bool centre;     // value of the key center_embeddings
    bool f32;        // dtype of the matrices in the output; true: F32; false: F64
    osh_strs targets, ignore; // own: modules to which the rotations v and u apply
} osh_rotate;
/* Returns the arguments of m (view), or NULL if m is neither a SpinQuantModifier nor a
 * QuIPModifier. */
const osh_rotate *osh_rotate_of(const osh_modifier *m);
/* Returns the kind of matrix that the argument transform_type chooses. */
osh_rotation_kind osh_rotate_kind(const osh_rotate *a);
#endif
