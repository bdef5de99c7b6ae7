/* cache.h - kv_cache_scheme: which tensors the output has of an attention, beside the Linear that reads what it
 * makes; and static output_activations: which it has of what a Linear makes. */
#ifndef OSH_CACHE_H
#define OSH_CACHE_H
#include "plan/plan.h"

extern const osh_q_scheme osh_kept_scheme; // of a Linear that is kept

enum { OSH_CACHE_LEAVES = 2 * OSH_INPUT };
typedef struct osh_cache_leaf {
    int of;        // of OSH_RANGED: the module around the Linear has it, but of OSH_OUTPUT the Linear
    bool zero;     // zero points, not scales
    char name[24]; // "k_scale"
    osh_dtype dtype;
    int ndim;
    int64_t shape[3]; // [1], or [heads, 1, 1]
    size_t bytes;
} osh_cache_leaf;
/* How the k-th of OSH_RANGED is rounded. */
const osh_q_args *osh_ranged_args(const osh_plan *p, const osh_linear *l, int k);
/* Those of the Linear, in the order in which they stand behind its own tensors. Returns how many. */
int osh_cache_leaves(osh_cache_leaf out[OSH_CACHE_LEAVES], const osh_plan *p, const osh_linear *l);
/* The attention whose output this node, a Linear, reads, as it is or rotated; -1: it is none. */
int osh_cache_attention(const osh_graph *g, int node);
/* Where it is such a Linear: the modifier with a kv_cache_scheme; -1: none. */
int osh_cache_modifier(const osh_plan *p, int node);
void osh_cache_follow(const osh_plan *p, osh_linear *l); // values that it observes, where its node has moved
size_t osh_ranged_scratch(const osh_plan *p, const osh_linear *l, int k, int64_t tokens); // of a sample's
size_t osh_ranged_counts(const osh_plan *p, int linear); // what its observers keep beside a range

struct osh_range; // visit.h
typedef struct osh_ranged { // a range, as the run follows it (run/ranges.h)
    int linear, k;           // who asked first, and for which of its ranges
    int next;                // 1 + the next of the same value; 0: none
    osh_act_observer *heads; // own [linear's heads]; NULL: its scales are made
} osh_ranged;
size_t osh_ranged_lists(const osh_plan *p, const struct osh_range *r); // of its Linears, gross
#endif
