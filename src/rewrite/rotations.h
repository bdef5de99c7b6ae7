/* rotations.h - finds the weights that a recipe's rotations change, and checks that the graph
 * allows the changes. The changes are registered before a weight is read. io/ckpt_changes.c changes
 * each weight when it is read.
 *
 *   R1, a matrix M; the residual stream h becomes h M:
 *     embed_tokens E -> E M     norm: its weight g -> 1
 *     readers of the norm, also the head: W -> (W diag(g)) M
 *     o_proj, down_proj, which are added to h: W -> M^T W, bias b -> M^T b
 *   R2, for the values v of each head: v_proj W -> M^T W, b -> M^T b      o_proj W -> W M
 *   R3, for the queries q and keys k of each head after rope, while the model runs:
 *     q -> q M, k -> k M; q k^T is unchanged
 *
 * A norm without a weight commutes with M, so the weight of the norm is first moved into its
 * readers. A tied head gets a weight of its own. Any other module that reads h or adds to h is an
 * error that names the module. */
#ifndef OSH_ROTATIONS_H
#define OSH_ROTATIONS_H
#include "rewrite/online.h"
#include "rewrite/rewrites.h"

struct osh_rotated {
    int modifier;     // index in the recipe of the modifier that rotates
    osh_rotation *of; // own [n]: the rotations R1 and R2 of the recipe; the recipe may lack either
    const char *names[2];
    int n;
    int n_weights;    // number of weights that R1 and R2 change
    /* transform_config of the rotations that act while the model runs; empty: none. */
    osh_q_transforms transforms; // own
    osh_online online; // own: nodes of the graph for the rotations that act while the model runs
    bool untied; // true if the head is tied to the embedding in the source, but not in the output
};
/* Sets p->rotated, and registers the changes of weights. Needs recipe and graph; may replace the
 * graph. */
osh_status osh_plan_rotations(osh_ctx *cx, osh_rewrites *p, osh_inputs *in);
/* True if queries and keys are rotated while the model runs. */
bool osh_online_attends(const osh_rewrites *p);
/* If rotations act while the model runs, logs a warning that names the loaders which apply them. */
void osh_online_warn(osh_ctx *cx, const osh_rewrites *p);
int64_t osh_head_dim(const osh_graph *g); // Returns the head size of the first attention; 0: none
void osh_plan_rotations_free(osh_ctx *cx, osh_rewrites *p);
static inline bool osh_is_untied(const osh_rewrites *p) { return p->rotated && p->rotated->untied; }
#endif
