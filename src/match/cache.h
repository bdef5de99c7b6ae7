/* cache.h - lists the scale tensors that kv_cache_scheme and static output_activations add to the
 * output. The scales of an attention are written together with the Linear that reads the output of
 * the attention. */
#ifndef OSH_CACHE_H
#define OSH_CACHE_H
#include "match/matching.h"

/* Scheme of a Linear that is not quantized. Such a Linear is listed only for the scales of an
 * attention. */
extern const osh_q_scheme osh_kept_scheme;

enum { OSH_CACHE_LEAVES = 2 * OSH_INPUT };
typedef struct osh_cache_leaf {
    /* Index (below OSH_RANGED) of the Linear's observed value that the scales belong to. If it is
     * OSH_OUTPUT, the tensor's name begins with the name of the Linear. Otherwise, it begins with
     * the name of the module that contains the attention. */
    int of;
    bool zero;     // true if the tensor has zero points; false if it has scales
    char name[24]; // leaf of the tensor's name, such as "k_scale"
    osh_dtype dtype;
    int ndim;
    int64_t shape[3]; // [1], or [heads, 1, 1] if each head has a scale
    size_t bytes;
} osh_cache_leaf;
/* Returns the quantization arguments for the k-th observed value of the Linear. k is below
 * OSH_RANGED. */
const osh_q_args *osh_ranged_args(const osh_matching *p, const osh_linear *l, int k);
/* Lists the Linear's scale tensors in `out`, in the order of the output, and returns their number.
 * In the output, they follow the other tensors of the Linear. */
int osh_cache_leaves(osh_cache_leaf out[OSH_CACHE_LEAVES], const osh_matching *p,
                     const osh_linear *l);
/* Returns the index of the attention node whose output the Linear at node `node` reads, or -1 if
 * there is none. A gate or a rotation may be between attention and Linear. */
int osh_cache_attention(const osh_graph *g, int node);
/* Finds the attention whose output the Linear at node `node` reads. Returns the index of the
 * modifier whose kv_cache_scheme applies to this attention, or -1 if there is none. */
int osh_cache_modifier(const osh_matching *p, int node);
/* Updates the indices of the observed values of l. Must be called after l->node has changed. */
void osh_cache_follow(const osh_matching *p, osh_linear *l);
/* True if the host observes the Linear's k-th observed value although the job runs on a GPU. The
 * run then copies the value to the host, one sample at a time. False if the GPU computes the range
 * of each sample, or if the job runs on the host. */
bool osh_range_is_copied(const osh_matching *p, const osh_linear *l, int k);
/* Returns how many bytes of scratch the observers need for `tokens` tokens of the k-th observed
 * value of Linear l. */
size_t osh_ranged_scratch(const osh_matching *p, const osh_linear *l, int k, int64_t tokens);
/* True if no Linear with a smaller index needs the range of this Linear's k-th observed value. */
bool osh_leads_range(const osh_matching *p, int linear, int k);
/* Returns the number of bytes of the Linear's histograms. Some observers keep a histogram besides
 * the range. */
size_t osh_ranged_counts(const osh_matching *p, int linear);

typedef struct osh_ranged { // a graph value whose range the run observes (run/ranges.h)
    /* linear: index of the first Linear that needs the range of the value.
     * k: index of the value in this Linear (k < OSH_RANGED). */
    int linear, k;
    int next;                // 1 + index of the next osh_ranged with the same graph value; 0: none
    /* One observer for each scale of the value (member `heads` of osh_linear). NULL after the
     * scales are computed. */
    osh_act_observer *heads; // own
    /* Smallest and largest element of the value in each sample (osh_stat_sample_ranges). NULL while
     * these numbers are on the GPU, and after the observers have read them. */
    osh_tensor *rows; // own [2, samples * heads]
} osh_ranged;
#endif
