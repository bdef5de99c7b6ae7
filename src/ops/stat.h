/* stat.h - collects statistics of values, with one row for each kind of statistic.
 *
 * The samples are cut into a fixed number of groups of neighbours. A group starts empty, and its
 * samples are added in order. The groups are merged in order:
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
    int64_t shape[2];  // 0: replaced by the argument n of osh_stat_shape
    /* Makes a state empty. NULL: an empty state is all zeros. */
    osh_status (*begin)(osh_ctx *cx, osh_tensor *state);
    /* Op that adds rows to the state. Its inputs are x and, for some statistics, x of the original
     * model; its output is the state. NULL: the collector itself adds to the state that
     * osh_stat_at() returns. */
    const char *feed;
    /* Op that merges the state of a later part, out {state, part}. The part becomes empty. */
    const char *merge;
    bool exact;        // every grouping of the samples gives the same bytes
    /* Turns the merged state into the result, in place. NULL: the state is the result. */
    void (*finish)(osh_tensor *state);
} osh_stat_type;

extern const osh_stat_type osh_stat_hessian;       // F32 [n, n], lower triangle: X^T X
extern const osh_stat_type osh_stat_shift;         // F32 [n, n]: (X0 - X)^T X
extern const osh_stat_type osh_stat_squares;       // F64 [n]: sum of the squares of each channel
extern const osh_stat_type osh_stat_peaks;         // F64 [1]: sum of the largest square of each
                                                   // token
extern const osh_stat_type osh_stat_channel_sum;   // F32 [2, n]: sum of |x| of each channel; the
                                                   // result is row 0
extern const osh_stat_type osh_stat_channel_range; // F32 [2, n]: smallest and largest value of each
                                                   // channel
/* F32 [2, n]: smallest and largest value of each sample, or of each head of each sample. An
 * observer that updates its range sample by sample reads it in order. */
extern const osh_stat_type osh_stat_sample_ranges;
extern const osh_stat_type osh_stat_routes; // I64 [n]: number of tokens that a router sends to each
                                            // expert
extern const osh_stat_type osh_stat_sums;   // F64 [n]: sums; the collector adds to them itself
size_t osh_stat_type_count(void);
const osh_stat_type *osh_stat_type_at(size_t i);
/* Returns a tensor with the dtype and shape of a state, without data. */
osh_tensor osh_stat_shape(const osh_stat_type *t, int64_t n);
/* Makes an empty state in `where`. */
osh_status osh_stat_state(osh_ctx *cx, osh_tensor **out, const osh_stat_type *t, int64_t n,
                          osh_where where);

typedef struct osh_groups {
    int64_t n_samples, n; // n: number of groups, at most n_samples
} osh_groups;
/* Cuts the samples into groups. `wanted` is the value of --sum-groups. */
osh_groups osh_groups_of(int64_t n_samples, int64_t wanted);
/* Returns the first sample of a group. For group n it is n_samples. */
int64_t osh_group_first(const osh_groups *g, int64_t group);
int64_t osh_group_at(const osh_groups *g, int64_t sample); // returns the group of a sample
/* True if a statistic has a second block while it is collected (osh_stat.part). */
bool osh_stat_is_grouped(const osh_stat_type *t, const osh_groups *g);

typedef struct osh_stat { // a statistic of one value
    const osh_stat_type *type;
    osh_groups groups;
    osh_tensor *all;  // own: the merged groups; after osh_stat_finish the result
    osh_tensor *part; // own: state of the current group, from the second group on; NULL: no second
                      // block (osh_stat_is_grouped)
    int64_t group;    // group of the last sample that was added; -1: none
    bool apart;       // the current group is added to `part`, not to `all`
    int64_t next;     // osh_stat_feed has added all samples before this one
} osh_stat;
/* Begins a statistic: makes `all`. Then osh_stat_new_part makes `part` if the statistic has one.
 * These are two functions, because on a GPU the caller chooses the address of each block. */
osh_status osh_stat_new(osh_ctx *cx, osh_stat **out, const osh_stat_type *t, osh_groups groups,
                        int64_t n, osh_where where);
osh_status osh_stat_new_part(osh_ctx *cx, osh_stat *s, osh_where where);
/* Sets *to (view) to the state to which the next sample must be added. Samples come in order. */
osh_status osh_stat_at(osh_ctx *cx, osh_tensor **to, osh_stat *s, int64_t sample);
/* Adds the rows of a->in[0], and of a->in[1] if it is set. a->seqs has the samples from
 * first_sample on; no sample may be added twice. The function runs the op once for each group.
 * a->out is not used. */
osh_status osh_stat_feed(osh_ctx *cx, osh_stat *s, const osh_op_args *a, int64_t first_sample);
/* Merges the last group, frees `part`, and computes the result. */
osh_status osh_stat_finish(osh_ctx *cx, osh_stat *s);
void osh_stat_free(osh_ctx *cx, osh_stat *s);
/* Returns the gross host bytes of a statistic in host memory, including `part` if it has one. */
size_t osh_stat_bytes(const osh_stat_type *t, const osh_groups *g, int64_t n);
#endif
