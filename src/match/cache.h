/* cache.h - lists the scale tensors of kv_cache_scheme and of static output_activations. The scales
 * of an attention are written together with the Linear that reads the output of the attention. */
#ifndef OSH_CACHE_H
#define OSH_CACHE_H
#include "match/matching.h"

/* The scheme of a Linear that is not quantized, and that is listed only for the scales of an
 * attention. */
extern const osh_q_scheme osh_kept_scheme;

enum { OSH_CACHE_LEAVES = 2 * OSH_INPUT };
typedef struct osh_cache_leaf {
    /* Index of the observed value of the Linear, below OSH_RANGED. If it is OSH_OUTPUT, the
     * tensor's name begins with the name of the Linear. Otherwise, the name begins with the name of
     * the module around the Linear. */
    int of;
    bool zero;     // true if the tensor has zero points; false if it has scales
    char name[24]; // last part of the tensor's name, such as "k_scale"
    osh_dtype dtype;
    int ndim;
    int64_t shape[3]; // [1], or [heads, 1, 1] for one scale for each head
    size_t bytes;
} osh_cache_leaf;
/* Returns the quantization arguments for the k-th observed value of the Linear (k below
 * OSH_RANGED). */
const osh_q_args *osh_ranged_args(const osh_matching *p, const osh_linear *l, int k);
/* Lists the Linear's scale tensors in `out`, and returns their number. They are in the order of the
 * output, in which they follow the other tensors of the Linear. */
int osh_cache_leaves(osh_cache_leaf out[OSH_CACHE_LEAVES], const osh_matching *p,
                     const osh_linear *l);
/* Returns the index of the attention node whose output the Linear at node `node` reads, or -1 if
 * there is none. A gate or a rotation may stand between attention and Linear. */
int osh_cache_attention(const osh_graph *g, int node);
/* Returns the index of the modifier whose kv_cache_scheme applies to the attention before the
 * Linear at node `node`. Returns -1 if there is none. */
int osh_cache_modifier(const osh_matching *p, int node);
/* Sets the observed values of l again. Must be called after the index of its node has changed. */
void osh_cache_follow(const osh_matching *p, osh_linear *l);
/* Returns the bytes of scratch that the observers of the Linear's k-th observed value need for
 * `tokens` tokens. */
size_t osh_ranged_scratch(const osh_matching *p, const osh_linear *l, int k, int64_t tokens);
/* True if no earlier Linear needs the range of this Linear's k-th observed value. */
bool osh_leads_range(const osh_matching *p, int linear, int k);
/* Returns the bytes of counts (histograms) that the observers of the Linear keep in addition to the
 * ranges. */
size_t osh_ranged_counts(const osh_matching *p, int linear);

typedef struct osh_ranged { // a value whose range the run observes (run/ranges.h)
    /* linear: index of the first Linear that needs the range.
     * k: index of the observed value in this Linear (k < OSH_RANGED). */
    int linear, k;
    int next;                // 1 + index of the next osh_ranged for the same graph value; 0: none
    /* One observer for each scale (member `heads` of osh_linear). NULL after the scales are
     * computed. */
    osh_act_observer *heads; // own
    /* Smallest and largest element of each sample (osh_stat_sample_ranges). NULL if they are on the
     * GPU, or after the observers have read them. */
    osh_tensor *rows; // own [2, samples * heads]
} osh_ranged;
#endif
