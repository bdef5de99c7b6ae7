/* stat.h - statistics of values: one row for each kind, and how one is collected.
 *
 * The samples are cut into a fixed number of groups of neighbours. A group starts empty and takes
 * its samples in order; the groups are merged in order:
 *
 *   samples   0  1  2 | 3  4  5 | 6  7  8        9 samples, 3 groups
 *   sum       (   g0  +    g1   ) +  g2
 *
 * So the result depends on the samples and on the number of groups. It does not depend on batches,
 * threads, or on which process or GPU collects a group. The first group with tokens is fed into the
 * result; the others are fed into a second block, which is merged into the result when the group
 * ends. A statistic that is exact (largest, smallest, counts) needs no second block, because every
 * grouping gives the same bytes.
 *
 * A statistic is attached to a value of the graph by its collector (run/stats.c, run/folds.c,
 * run/ranges.c, run/coverage.c, and the measurements of eval). */
#ifndef OSH_STAT_H
#define OSH_STAT_H
#include "ops/op.h"
#include "tensor/device.h"

typedef struct osh_stat_type {
    const char *name;
    osh_dtype dtype;   // dtype and shape of the state
    int ndim;
    int64_t shape[2];  // 0: the n of osh_stat_shape
    /* Makes a state empty; NULL: fills it with zeros. */
    osh_status (*begin)(osh_ctx *cx, osh_tensor *state);
    /* Op that adds rows to the state. in: x, and for some statistics x of the original model; out:
     * the state. NULL: no op; the collector adds to the state of osh_stat_at(). */
    const char *feed;
    /* Op that merges a part that follows: out {state, part}. The part becomes empty. */
    const char *merge;
    bool exact;        // every grouping of the samples gives the same bytes
    /* Turns the merged state into the result, in place; NULL: the state is the result. */
    void (*finish)(osh_tensor *state);
} osh_stat_type;

extern const osh_stat_type osh_stat_hessian;       // F32 [n, n], lower triangle: X^T X
extern const osh_stat_type osh_stat_shift;         // F32 [n, n]: (X0 - X)^T X
extern const osh_stat_type osh_stat_squares;       // F64 [n]: squares of each channel
extern const osh_stat_type osh_stat_peaks;         // F64 [1]: largest square of each token, summed
extern const osh_stat_type osh_stat_channel_sum;   // F32 [2, n]: |x| of each channel; result [0]
extern const osh_stat_type osh_stat_channel_range; // F32 [2, n]: smallest, largest of each channel
/* F32 [2, n]: smallest and largest value of each sample, or of each head of each sample. An
 * observer that follows samples one by one is fed with it in order. */
extern const osh_stat_type osh_stat_sample_ranges;
extern const osh_stat_type osh_stat_routes; // I64 [n]: tokens that a router sends to each expert
extern const osh_stat_type osh_stat_sums;   // F64 [n]: sums that a collector adds itself
size_t osh_stat_type_count(void);
const osh_stat_type *osh_stat_type_at(size_t i);
/* Returns a state without data. */
osh_tensor osh_stat_shape(const osh_stat_type *t, int64_t n);
/* Makes an empty state. */
osh_status osh_stat_state(osh_ctx *cx, osh_tensor **out, const osh_stat_type *t, int64_t n,
                          osh_where where);

typedef struct osh_groups {
    int64_t n_samples, n; // n: groups; at most n_samples
} osh_groups;
/* wanted: --sum-groups. */
osh_groups osh_groups_of(int64_t n_samples, int64_t wanted);
/* First sample of a group; of group n: n_samples. */
int64_t osh_group_first(const osh_groups *g, int64_t group);
int64_t osh_group_at(const osh_groups *g, int64_t sample); // the group of a sample
/* True if a statistic has a second block while it is collected. */
bool osh_stat_is_grouped(const osh_stat_type *t, const osh_groups *g);

typedef struct osh_stat { // a statistic of a value
    const osh_stat_type *type;
    osh_groups groups;
    osh_tensor *all;  // own: the merged groups; after osh_stat_finish the result
    osh_tensor *part; // own: the group that is fed, from the second one on; NULL: see
                      // osh_stat_is_grouped
    int64_t group;    // group that was fed last; -1: none
    bool apart;       // the present group is fed into `part`
    int64_t next;     // osh_stat_feed has taken all samples before this one
} osh_stat;
/* Begins a statistic: makes `all`. Then osh_stat_new_part makes `part`, if there is one. They are
 * two functions, because on a GPU the caller says where each block goes. */
osh_status osh_stat_new(osh_ctx *cx, osh_stat **out, const osh_stat_type *t, osh_groups groups,
                        int64_t n, osh_where where);
osh_status osh_stat_new_part(osh_ctx *cx, osh_stat *s, osh_where where);
/* The state to which the next sample is added. Samples come in order. *to: view. */
osh_status osh_stat_at(osh_ctx *cx, osh_tensor **to, osh_stat *s, int64_t sample);
/* Adds the rows of a->in[0], and in[1] if it is set: a->seqs has the samples from first_sample on,
 * which must not be fed twice. The samples of each group are fed by a call of their own. a->out is
 * not used. */
osh_status osh_stat_feed(osh_ctx *cx, osh_stat *s, const osh_op_args *a, int64_t first_sample);
/* Merges the last group, frees `part`, and makes the result. */
osh_status osh_stat_finish(osh_ctx *cx, osh_stat *s);
void osh_stat_free(osh_ctx *cx, osh_stat *s);
/* Gross host bytes of a statistic in host memory: with osh_stat.part, if it has one. */
size_t osh_stat_bytes(const osh_stat_type *t, const osh_groups *g, int64_t n);
#endif
