/* rotations.h - which weights a recipe's rotations change, as the graph allows it. All of it is known before a weight
 * is read: io/ckpt_changes.c changes them whenever they are.
 *
 *   R1, M of the residual stream h, which becomes h M:
 *     embed_tokens E -> E M     norm: its weight g -> 1     what reads the norm W -> (W diag(g)) M, the head, too
 *     o_proj, down_proj, what is added to h: W -> M^T W, bias b -> M^T b
 *   R2, of each head's values v: v_proj W -> M^T W, b -> M^T b      o_proj W -> W M
 *   R3, of each head's queries and keys behind rope, while the model runs: q -> q M, k -> k M, and q k^T is what it was
 *
 * A norm of |h| alone is the same of h M, and only its weight is in the way. A tied head gets a weight of its own. What
 * else reads or writes h is an error that names it. */
#ifndef OSH_ROTATIONS_H
#define OSH_ROTATIONS_H
#include "plan/online.h"
#include "plan/plan.h"

struct osh_rotated {
    osh_rotation *of; // own: of R1 and R2, where the recipe has them
    const char *names[2];
    int n;
    int n_weights;    // that they change
    osh_q_transforms transforms; // own: transform_config, where some act while the model runs; else empty
    osh_online online;           // own: those
    bool untied;      // the head was tied
};
osh_status osh_plan_rotations(osh_ctx *cx, osh_plan *p); // recipe and graph are there; the graph may be another then
bool osh_online_attends(const osh_plan *p); // queries and keys are rotated while the model runs
void osh_online_warn(osh_ctx *cx, const osh_plan *p); // that something acts while the model runs: who applies it
int64_t osh_head_dim(const osh_graph *g); // of the first attention; 0: there is none
void osh_plan_rotations_free(osh_ctx *cx, osh_plan *p);
static inline bool osh_is_untied(const osh_plan *p) { return p->rotated && p->rotated->untied; }
#endif
