/* division.h - decides how several ranks (processes of one job, ranks/ranks.h) divide the work of a
 * plan. Also checks that all ranks have made equal plans. */
#ifndef OSH_DIVISION_H
#define OSH_DIVISION_H
#include "base/buf.h"
#include "plan/plan.h"
#include "ranks/ranks.h"

typedef enum {
    OSH_DIVIDE_NOTHING, // rank 0 does all work while the other ranks wait
    OSH_DIVIDE_FILES, // each rank writes some files of the output, and no other rank writes to them
    OSH_DIVIDE_SAMPLES  // each rank runs some groups of samples and solves some Linears
} osh_division_kind;
typedef struct osh_division {
    osh_division_kind kind;
    const char *not; // static text: reason why nothing is divided; NULL: work is divided
} osh_division;
/* Returns how the plan divides work between ranks. If the member `not` of the result is set, the
 * member `kind` is OSH_DIVIDE_NOTHING. */
osh_division osh_divide(const osh_plan *p);
/* Returns a text such as "the files of the output are divided". If d->not is not NULL, the caller
 * must append d->not to the text. */
const char *osh_division_text(const osh_division *d);
/* osh_plan_n_ranks returns the number of ranks of the job. osh_plan_ranks_per_node returns the
 * largest number of ranks on one node. In a run, both functions count the processes of the job. In
 * `oneshot plan`, they return --ranks and --ranks-per-node. */
int osh_plan_n_ranks(const osh_plan *p);
int osh_plan_ranks_per_node(const osh_plan *p);
/* Computes the number of bytes that the ranks send each other for visit number `index`: statistics,
 * codes to rank 0, and codes from rank 0. Only for OSH_DIVIDE_SAMPLES. */
osh_status osh_divide_wire(osh_ctx *cx, int64_t *bytes, const osh_plan *p, int index, int n_ranks);
/* True if this rank runs the sample. Group g of samples belongs to rank g % (number of ranks). If
 * `ranks` is NULL, this process runs all samples. */
static inline bool osh_divide_sample(const osh_groups *g, const osh_ranks *ranks, int64_t sample)
{
    return !ranks || osh_group_at(g, sample) % osh_ranks_n(ranks) == osh_ranks_me(ranks);
}
/* Assigns pieces of work to ranks: sets owner [n] to the rank of each piece. Assigns the most
 * costly piece first, and each piece to the rank that has the least work so far. Pieces of cost 0
 * go to rank 0. cost [n]: cost of each piece, in any unit. */
osh_status osh_divide_costs(osh_ctx *cx, int *owner, const double *cost, int64_t n, int n_ranks);
/* Sets writer [shards of the output] to the rank that writes each shard. All ranks read and write
 * about the same number of bytes. done [output tensors]: true for tensors that need no more work;
 * NULL: all tensors need work. */
osh_status osh_divide_files(osh_ctx *cx, int *writer, const osh_plan *p, const bool *done,
                            int n_ranks);
/* osh_shards_tell appends a line for each shard of a checkpoint, with its time, its size and the
 * checksum of its header. So if a node has an old copy of a shard, its lines differ from those of
 * other nodes. osh_source_tell appends these lines and the checksums of the other files. */
osh_status osh_shards_tell(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck);
osh_status osh_source_tell(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck);
/* Fails on each rank whose plan differs from the plan of rank 0. The files of the source and the
 * steps of the plan are compared. */
osh_status osh_plan_agree(osh_ctx *cx, const osh_plan *p, osh_ranks *ranks);
#endif
