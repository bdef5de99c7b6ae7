/* rotations.h - finds the weights that a recipe's rotations change, and checks that the graph
 * allows these changes. The changes are registered before a weight is read. io/ckpt_changes.c
 * changes each weight when it is read. M: a rotation matrix.
 *
 *   R1, a matrix M; the residual stream h becomes h M:
 *     embed_tokens: E -> E M
 *     norms that read h: weight g -> 1
 *     readers of these norms, also the head: W -> (W diag(g)) M
 *     o_proj, down_proj, which are added to h: W -> M^T W, bias b -> M^T b
 *   R2, for the values v of each head:
 *     v_proj: W -> M^T W, b -> M^T b
 *     o_proj: W -> W M
 *   R3, for the queries q and keys k of each head after rope, while the model runs:
 *     q -> q M, k -> k M; q k^T is unchanged
 *
 * A norm without a weight commutes with M: the norm of h M is the norm of h, times M. So the weight
 * of the norm is first moved into the Linears that read the norm. A tied head gets a weight of its
 * own. Any other module that reads h or adds to h is an error, and the message names the module. */
#ifndef OSH_ROTATIONS_H
#define OSH_ROTATIONS_H
#include "rewrite/online.h"
#include "rewrite/rewrites.h"

struct osh_rotated {
    int modifier;     // index (in the recipe) of the modifier that rotates
    osh_rotation *of; // own [n]: the rotations R1 and R2, if the recipe has them
    const char *names[2];
    int n;
    int n_weights;    // number of weights that are rotated by R1 or R2
    /* transform_config of the rotations that act while the model runs; empty if there are none */
    osh_q_transforms transforms; // own
    osh_online online; // own: the nodes whose inputs or outputs are rotated while the model runs
    bool untied; // true if the source ties the head to the embedding, but the output does not
};
/* Sets p->rotated, and registers how the rotations change weights. Needs in->recipe and in->graph,
 * and may replace the graph. */
osh_status osh_plan_rotations(osh_ctx *cx, osh_rewrites *p, osh_inputs *in);
/* True if queries and keys of an attention are rotated while the model runs. */
bool osh_online_attends(const osh_rewrites *p);
/* Logs a warning that names the loaders which apply rotations while the model runs. Logs nothing if
 * all rotations are in the weights. */
void osh_online_warn(osh_ctx *cx, const osh_rewrites *p);
/* Returns the number of elements of a head in the first attention, or 0 if there is none. */
int64_t osh_head_dim(const osh_graph *g);
void osh_plan_rotations_free(osh_ctx *cx, osh_rewrites *p);
static inline bool osh_is_untied(const osh_rewrites *p) { return p->rotated && p->rotated->untied; }
#endif
