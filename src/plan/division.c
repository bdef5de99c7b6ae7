/* division.c - divides the work of a plan among ranks (processes of one job), and compares the
 * plans of all ranks. */
#include "plan/division.h"

#include "base/xxh3.h"
#include "budget/bytes.h"
#include "budget/cost.h"
#include "schedule/range.h"
#include "plan/identity.h"

int osh_plan_n_ranks(const osh_plan *p)
{
    const osh_options *o = p->in.opt;
    return o->ranks ? osh_ranks_n(o->ranks) : o->n_ranks > 1 ? (int)o->n_ranks : 1;
}

int osh_plan_ranks_per_node(const osh_plan *p)
{
    const osh_options *o = p->in.opt;
    return o->ranks ? osh_ranks_per_node(o->ranks) : (int)o->ranks_per_node;
}

osh_status osh_divide_costs(osh_ctx *cx, int *owner, const double *cost, int64_t n, int n_ranks)
{
    osh_status rc = OSH_OK;
    /* load: own [n_ranks], cost of the pieces of each rank so far. left: own [n], cost of each
     * piece that has no rank yet. */
    double *load = NULL, *left = NULL;
    OSH_NEW(cx, load, n_ranks);
    OSH_NEW(cx, left, n);
    for (int64_t i = 0; i < n; i++) left[i] = cost[i], owner[i] = 0;
    for (;;) {
        int64_t most = 0;
        int idle = 0;
        for (int64_t i = 1; i < n; i++)
            if (left[i] > left[most]) most = i;
        if (!n || !(left[most] > 0)) break;
        for (int k = 1; k < n_ranks; k++)
            if (load[k] < load[idle]) idle = k;
        owner[most] = idle, load[idle] += left[most], left[most] = 0;
    }
done:
    osh_free(cx, load);
    osh_free(cx, left);
    return rc;
}

osh_status osh_divide_files(osh_ctx *cx, int *writer, const osh_plan *p, const bool *done,
                            int n_ranks)
{
    osh_status rc = OSH_OK;
    const osh_manifest *m = &p->manifest;
    // own [shards]: bytes to write to the shard, and bytes to read for the Linears in it
    double *work = NULL;
    OSH_NEW(cx, work, m->n_shards);
    for (int64_t i = 0; i < m->n_out; i++) {
        const osh_out_tensor *o = &m->out_info[i];
        if (done && done[i]) continue;
        work[o->shard] += (double)(m->out[i].end - m->out[i].begin);
        if (o->source < 0 && o->linear >= 0 && p->match.linears[o->linear].out.first == i) {
            const osh_entry *from = p->in.ck->tensors[p->match.linears[o->linear].tensor].e;
            work[o->shard] += (double)(from->end - from->begin);
        }
    }
    OSH_TRY(osh_divide_costs(cx, writer, work, m->n_shards, n_ranks));
done:
    osh_free(cx, work);
    return rc;
}

/* Returns how many bytes the ranks send for the sums of Linear l's input. The sums are made for
 * each group of samples. The rank that has collected a group sends the sums of the group to the
 * rank `owner`. It sends nothing if it is `owner` itself. */
static int64_t wire_of_sums(const osh_plan *p, const osh_linear *l, int owner, int n_ranks)
{
    int64_t n = 0, moved = 0;
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) {
        if (!osh_sum_wanted(k, l)) continue;
        osh_tensor state = osh_stat_shape(osh_sums[k].type, l->I);
        bool lower = osh_sums[k].type == &osh_stat_hessian;
        n += lower ? l->I * (l->I + 1) / 2 * 4 : (int64_t)osh_tensor_bytes(&state);
    }
    for (int64_t g = 0; g < p->in.groups.n; g++) moved += g % n_ranks != owner;
    return moved * n;
}

static int64_t wire_of_codes(const osh_plan *p, const osh_linear *l, int owner, bool reads,
                             int n_ranks)
{
    int64_t n = 0;
    for (int k = 0; k < l->out.n; k++)
        n += p->manifest.out[l->out.first + k].end - p->manifest.out[l->out.first + k].begin;
    return (owner ? n : 0) + (reads ? n * (n_ranks - 1) : 0);
}

osh_status osh_divide_wire(osh_ctx *cx, int64_t *bytes, const osh_plan *p, int index, int n_ranks)
{
    osh_status rc = OSH_OK;
    osh_range r = osh_range_at(&p->schedule, index);
    double *cost = NULL; // own [v1 - v0]: work of solving the Linears that read the value
    int *owner = NULL;   // own [v1 - v0]: rank that solves the Linears that read the value
    bool *seen = NULL;   // own [v1 - v0]: true if the sums of the value are counted already
    *bytes = 0;
    OSH_NEW(cx, cost, r.v1 - r.v0);
    OSH_NEW(cx, owner, r.v1 - r.v0);
    OSH_NEW(cx, seen, r.v1 - r.v0);
    for (int i = r.l0; i < r.l1; i++)
        if (osh_wants(&p->schedule, &p->match.linears[i]))
            cost[p->match.linears[i].input - r.v0] += osh_cost_of_linear(&p->budget, i);
    OSH_TRY(osh_divide_costs(cx, owner, cost, r.v1 - r.v0, n_ranks));
    for (int i = r.l0; i < r.l1; i++) {
        const osh_linear *l = &p->match.linears[i];
        int v = l->input - r.v0;
        if (!osh_wants(&p->schedule, l)) continue;
        if (!seen[v]) *bytes += wire_of_sums(p, l, owner[v], n_ranks);
        seen[v] = true;
        bool reads = r.propagate && !r.merged && p->in.propagate_error &&
                     osh_linear_propagates(&p->match, l);
        *bytes += wire_of_codes(p, l, owner[v], reads, n_ranks);
    }
done:
    osh_free(cx, cost);
    osh_free(cx, owner);
    osh_free(cx, seen);
    return rc;
}

/* Adds the decisions that determine the steps of schedule s to the hash h, and returns the new
 * hash. All ranks must get the same hash. */
static uint64_t steps_sum(const osh_schedule *s, const osh_memory *m, uint64_t h)
{
    for (int i = 0; i < s->n_visits; i++) {
        const osh_phases *v = &s->visits[i].how;
        int64_t how[] = {v->segments, v->round_bytes, v->n_rounds};
        h = XXH3_64bits_withSeed(how, sizeof how, h);
    }
    int64_t all[] = {s->n_visits, s->n_batches, s->looks, m->tier, m->looks_f16, s->n_traversals};
    h = XXH3_64bits_withSeed(all, sizeof all, h);
    if (s->batch_at)
        h = XXH3_64bits_withSeed(s->batch_at, (size_t)(s->n_batches + 1) * sizeof *s->batch_at, h);
    return h;
}

/* Appends the fields of the identity (identity.h), except stamps of files: a copy of a file has
 * another stamp. */
static osh_status identity_tell(osh_ctx *cx, osh_buf *b, const osh_identity *id)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < id->n; i++)
        if (!id->here[i]) OSH_TRY(osh_buf_line(cx, b, "%s: %s", id->names[i], id->values[i]));
done:
    return rc;
}

osh_status osh_shards_tell(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    for (int s = 0; s < ck->n_shards; s++) {
        const osh_stamp *stamp = osh_container_stamp(ck->shards[s]);
        uint64_t sum = 0;
        osh_container_header(ck->shards[s], &sum);
        OSH_TRY(osh_buf_line(cx, b, "source %s: changed at %lld ns, %lld bytes, header %016llx",
                             ck->shard_names[s], (long long)stamp->mtime_ns,
                             (long long)stamp->n_bytes, (unsigned long long)sum));
    }
done:
    return rc;
}

osh_status osh_source_tell(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    osh_identity *id = NULL; // own
    OSH_TRY(osh_identity_of_source(cx, &id, ck));
    OSH_TRY(identity_tell(cx, b, id));
    OSH_TRY(osh_shards_tell(cx, b, ck));
done:
    osh_identity_free(cx, id);
    return rc;
}

osh_status osh_plan_agree(osh_ctx *cx, const osh_plan *p, osh_ranks *ranks)
{
    osh_status rc = OSH_OK;
    osh_identity *id = NULL; // own
    osh_buf b;               // own
    osh_buf_init(&b, 0);
    if (!ranks) goto done;
    OSH_TRY(osh_identity_new(cx, &id, p));
    OSH_TRY(identity_tell(cx, &b, id));
    OSH_TRY(osh_shards_tell(cx, &b, p->in.ck));
    OSH_TRY(osh_ranks_agree(cx, ranks, "another source or other settings", b.data));
    osh_buf_clear(&b);
    uint64_t steps = steps_sum(&p->schedule, &p->budget.memory, 0);
    for (int t = 0; t < p->n_traversals; t++)
        steps = steps_sum(&p->traversals[t].schedule, &p->traversals[t].budget.memory, steps);
    OSH_TRY(osh_buf_printf(cx, &b, "%d threads, steps %016llx", osh_threads(cx),
                           (unsigned long long)steps));
    OSH_TRY(osh_ranks_agree(cx, ranks, "a plan with other steps", b.data));
done:
    osh_buf_deinit(cx, &b);
    osh_identity_free(cx, id);
    return rc;
}
