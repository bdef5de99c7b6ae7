/* cache.h - lists the scale tensors of kv_cache_scheme and of static output_activations. The scales
 * of an attention belong to the Linear that reads the output of the attention. */
#ifndef OSH_CACHE_H
#define OSH_CACHE_H
#include "match/matching.h"

extern const osh_q_scheme osh_kept_scheme; // scheme of a Linear that is listed only for scales of
                                           // an attention

enum { OSH_CACHE_LEAVES = 2 * OSH_INPUT };
typedef struct osh_cache_leaf {
    int of;        // index below OSH_RANGED of the value. The tensor is named after the module
                   // around the Linear; for OSH_OUTPUT after the Linear
    bool zero;     // true: zero points; false: scales
    char name[24]; // such as "k_scale"
    osh_dtype dtype;
    int ndim;
    int64_t shape[3]; // [1], or [heads, 1, 1]
    size_t bytes;
} osh_cache_leaf;
/* Returns how the k-th of the OSH_RANGED values is rounded. */
const osh_q_args *osh_ranged_args(const osh_matching *p, const osh_linear *l, int k);
/* Writes the scale tensors of the Linear to `out`, in the order that they have in the output after
 * the other tensors of the Linear. Returns the number of scale tensors. */
int osh_cache_leaves(osh_cache_leaf out[OSH_CACHE_LEAVES], const osh_matching *p,
                     const osh_linear *l);
/* Returns the attention whose output the Linear `node` reads, directly or rotated. -1: none. */
int osh_cache_attention(const osh_graph *g, int node);
/* Returns the modifier whose kv_cache_scheme applies to the attention before the Linear `node`. -1:
 * none. */
int osh_cache_modifier(const osh_matching *p, int node);
/* Updates the values that are observed for l, after the index of l's node has changed. */
void osh_cache_follow(const osh_matching *p, osh_linear *l);
/* Returns the scratch bytes that the observers of range k need for the tokens of a sample. */
size_t osh_ranged_scratch(const osh_matching *p, const osh_linear *l, int k, int64_t tokens);
/* True if no earlier Linear has the same range k. */
bool osh_leads_range(const osh_matching *p, int linear, int k);
/* Returns the bytes that the observers of the Linear's ranges keep in addition to the ranges. */
size_t osh_ranged_counts(const osh_matching *p, int linear);

typedef struct osh_ranged { // a range that is observed during the run (run/ranges.h)
    int linear, k; // first Linear that needs the range, and the index of the range in that Linear
    int next;                // 1 + index of the next range of the same value; 0: none
    osh_act_observer *heads; // own [heads of the Linear]; NULL: the scales of the range are already
                             // computed
    osh_tensor *rows; // own: osh_stat_sample_ranges [2, samples * heads]; NULL: the ranges are on
                      // the GPU, or the observers have already read them
} osh_ranged;
#endif
