/* stat.h - collects statistics of values of the graph over all samples, such as Hessians and
 * ranges.
 *
 * The samples are cut into a fixed number of groups of consecutive samples. The statistic of a
 * group starts empty, and the samples of the group are added in order. Then the groups are merged
 * in order:
 *
 *   samples   0  1  2 | 3  4  5 | 6  7  8        9 samples, 3 groups
 *   sum       (   g0  +    g1   ) +  g2
 *
 * So the result depends on the samples and on the number of groups. It does not depend on batches,
 * on threads, or on the process or GPU that collects a group.
 *
 * The first group with tokens is collected directly in the result. Each later group is collected in
 * a second tensor (osh_stat.part), which is merged into the result when the group ends. Exact
 * statistics (largest, smallest, counts) need no second tensor, because their bytes do not depend
 * on the number of groups.
 *
 * The code that collects a statistic of a value is called its collector (run/stats.c, run/folds.c,
 * run/ranges.c, run/coverage.c, and the measurements of eval). */
#ifndef OSH_STAT_H
#define OSH_STAT_H
#include "ops/op.h"
#include "tensor/device.h"

typedef struct osh_stat_type {
    const char *name;
    osh_dtype dtype;   // dtype of the state: the tensor that accumulates the statistic
    int ndim;
    int64_t shape[2];  // shape of the state; 0 stands for the argument n of osh_stat_shape
    /* Makes a state empty. If `begin` is NULL, an empty state has zeros. */
    osh_status (*begin)(osh_ctx *cx, osh_tensor *state);
    /* The op that adds rows to the state. Its output is the state. Its first input is x. Some
     * statistics have a second input, x of the original model. NULL: the collector itself adds to
     * the state (osh_stat_at). */
    const osh_op *feed;
    /* The op that merges two states. out[1] is the state of later samples. The op adds out[1] to
     * out[0], and makes out[1] empty. */
    const osh_op *merge;
    /* true if the number of groups does not change the bytes, so that no second tensor is needed */
    bool exact;
    /* Turns the merged state into the result, in place. If `finish` is NULL, the merged state is
     * the result. */
    void (*finish)(osh_tensor *state);
} osh_stat_type;

extern const osh_stat_type osh_stat_hessian;       // Hessian X^T X, F32 [n, n], lower triangle
extern const osh_stat_type osh_stat_shift;         // (X0 - X)^T X, F32 [n, n]
extern const osh_stat_type osh_stat_squares;       // sum of x^2 for each channel, F64 [n]
/* Sum of the largest x^2 of each token, over all tokens, F64 [1]. */
extern const osh_stat_type osh_stat_peaks;
/* Sum of |x| for each channel, F32 [2, n]. The result is row 0. */
extern const osh_stat_type osh_stat_channel_sum;
/* Smallest and largest value of each channel, F32 [2, n]. */
extern const osh_stat_type osh_stat_channel_range;
/* Smallest and largest value of each sample, or of each head of each sample, F32 [2, n]. The
 * samples stay separate because some observers update their range sample by sample. */
extern const osh_stat_type osh_stat_sample_ranges;
/* Number of tokens that a router sends to each expert, I64 [n]. */
extern const osh_stat_type osh_stat_routes;
/* Sums that the collector itself computes (`feed` is NULL), F64 [n]. */
extern const osh_stat_type osh_stat_sums;
/* Return the number of types of statistics, and type number i. */
size_t osh_stat_type_count(void);
const osh_stat_type *osh_stat_type_at(size_t i);
/* Returns a tensor with the dtype and shape of the state of t, without data. */
osh_tensor osh_stat_shape(const osh_stat_type *t, int64_t n);
/* Allocates an empty state in the memory `where`. */
osh_status osh_stat_state(osh_ctx *cx, osh_tensor **out, const osh_stat_type *t, int64_t n,
                          osh_where where);

typedef struct osh_groups {
    int64_t n_samples, n; // n: number of groups, at most n_samples
} osh_groups;
/* Cuts n_samples samples into groups. wanted: the number of groups that the user wants
 * (--sum-groups). */
osh_groups osh_groups_of(int64_t n_samples, int64_t wanted);
/* Returns the first sample of a group. If `group` is the number of groups, returns n_samples. */
int64_t osh_group_first(const osh_groups *g, int64_t group);
/* Returns the index of the group that contains the sample. */
int64_t osh_group_at(const osh_groups *g, int64_t sample);
/* True if osh_stat_new_part allocates a second tensor (osh_stat.part) for a statistic of type t. */
bool osh_stat_is_grouped(const osh_stat_type *t, const osh_groups *g);

typedef struct osh_stat { // the statistic of one value of the graph
    const osh_stat_type *type;
    osh_groups groups;
    /* State of all groups before the current group. If `part` is NULL, state of all groups. After
     * osh_stat_finish, the result. */
    osh_tensor *all;  // own
    /* State of the current group, unless this is the first group. NULL: every group is added
     * directly to `all` (osh_stat_is_grouped). */
    osh_tensor *part; // own
    int64_t group;    // index of the group of the last added sample; -1: none
    bool apart;       // true: samples of the current group are added to `part`, else to `all`
    int64_t next;     // the number of the next sample must be at least this
    /* True if other processes collect groups, too (set by the caller). Every group is then added to
     * `part`, if there is one, and the caller merges it (osh_stat_merge_tile). */
    bool open;
} osh_stat;
/* osh_stat_new allocates a statistic with an empty state (osh_stat.all). Then osh_stat_new_part
 * allocates osh_stat.part, if the statistic needs it. There are two functions because a caller with
 * a GPU chooses an address for each allocation. */
osh_status osh_stat_new(osh_ctx *cx, osh_stat **out, const osh_stat_type *t, osh_groups groups,
                        int64_t n, osh_where where);
osh_status osh_stat_new_part(osh_ctx *cx, osh_stat *s, osh_where where);
/* Sets *to to a view of the state to which the caller must add sample number `sample`. The caller
 * must go through the samples in ascending order. */
osh_status osh_stat_at(osh_ctx *cx, osh_tensor **to, osh_stat *s, int64_t sample);
/* Adds the rows of a->in[0], and of a->in[1] if it is not NULL, to the statistic. a->seqs has the
 * samples first_sample, first_sample + 1, and so on. No sample may be added twice. Runs the op
 * `feed` once for each group. Ignores a->out. */
osh_status osh_stat_feed(osh_ctx *cx, osh_stat *s, const osh_op_args *a, int64_t first_sample);
/* The functions from here to osh_stat_merge_tile move osh_stat.part to another process, in tiles of
 * whole rows. If the state is a lower triangle, a tile has only the elements of its rows up to the
 * diagonal. osh_stat_n_rows returns the number of rows. */
int64_t osh_stat_n_rows(const osh_stat *s);
/* Returns the size of a tile with rows [first, end) in bytes. */
size_t osh_stat_tile_bytes(const osh_stat *s, int64_t first, int64_t end);
/* Returns the size in bytes of the buffer for a tile with rows [first, end). If the state is on a
 * GPU, the buffer holds whole rows, because a GPU copies whole rows. */
size_t osh_stat_tile_room(const osh_stat *s, int64_t first, int64_t end);
/* Copies rows [first, end) of osh_stat.part to `tile`, a buffer of osh_stat_tile_room bytes. */
osh_status osh_stat_take_tile(osh_ctx *cx, void *tile, const osh_stat *s, int64_t first,
                              int64_t end);
/* Merges a tile into osh_stat.all. The tile contains rows [first, end) of osh_stat.part of another
 * process. Overwrites the buffer of the tile (osh_stat_tile_room). On a GPU, also overwrites the
 * GPU's workspace. */
osh_status osh_stat_merge_tile(osh_ctx *cx, osh_stat *s, void *tile, int64_t first, int64_t end);
/* If `merge` is true, merges osh_stat.part into osh_stat.all. Then empties osh_stat.part. */
osh_status osh_stat_close_part(osh_ctx *cx, osh_stat *s, bool merge);
/* If osh_stat.all is on a GPU, merges the last group, frees osh_stat.part, and moves osh_stat.all
 * to host memory. */
osh_status osh_stat_fetch(osh_ctx *cx, osh_stat *s);
/* Merges the last group, frees osh_stat.part, and turns osh_stat.all into the result. If the type
 * has `finish`, the result is in host memory. */
osh_status osh_stat_finish(osh_ctx *cx, osh_stat *s);
/* Frees the tensors of the statistic. */
void osh_stat_free(osh_ctx *cx, osh_stat *s);
/* Returns the size in bytes of a statistic in host memory, with the allocator's overhead. The size
 * includes osh_stat.part, if the statistic has one. */
size_t osh_stat_bytes(const osh_stat_type *t, const osh_groups *g, int64_t n);
#endif
