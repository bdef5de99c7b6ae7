/* rotate.h - the arguments of modifiers that rotate: SpinQuantModifier and QuIPModifier. src/plan/rotations.c finds the
 * weights. */
#ifndef OSH_ROTATE_H
#define OSH_ROTATE_H
#include "modifiers/modifier.h"
#include "tensor/rotation.h"

enum { // which of them, bit set
    OSH_ROTATE_R1 = 1, // the residual stream
    OSH_ROTATE_R2 = 2, // values of attention, by head
    OSH_ROTATE_R3 = 4, // queries and keys, by head; online
    OSH_ROTATE_R4 = 8, // what down_proj reads; online
    OSH_ROTATE_V = 16, // what Linears read; online
    OSH_ROTATE_U = 32  // what Linears make; online
};
enum { OSH_ROTATE_ONLINE = OSH_ROTATE_R3 | OSH_ROTATE_R4 | OSH_ROTATE_V | OSH_ROTATE_U };

typedef struct osh_rotate { // args of such a modifier
    unsigned which;
    char *type;      // own: transform_type
    int64_t block;   // transform_block_size; 0: none
    int64_t seed;
    bool centre;     // embeddings
    bool f32;        // precision: of matrices in the output; else f64
    osh_strs targets, ignore; // own: of v and u
} osh_rotate;
osh_rotation_kind osh_rotate_kind(const osh_rotate *a);
const char *osh_rotate_name(unsigned one); // "R1"
#endif
