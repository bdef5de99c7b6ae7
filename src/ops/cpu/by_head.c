/* by_head.c - runs recurrent ops and their gradients on all threads. These ops have a state for
 * each head. A chunk of parallel work is one head of one sample. */
#include <string.h>

#include "ops/kernel.h"

typedef struct head_job {
    const osh_op_args *a;
    osh_head_fn fn;
    int64_t heads, floats;
    osh_tile *seq; // own: for each sample, the range of its rows
    float *room;   // own: scratch, `floats` floats for each thread
} head_job;

static osh_status head_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const head_job *j = user;
    float *room = j->room + worker * j->floats;
    (void)cx;
    memset(room, 0, (size_t)j->floats * sizeof *room);
    j->fn(j->a, &j->seq[chunk / j->heads], chunk % j->heads, room);
    return OSH_OK;
}

osh_status osh_by_head(osh_ctx *cx, const osh_op_args *a, int64_t heads, int64_t floats,
                       osh_head_fn fn)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), n_seqs = 0;
    head_job j = {.a = a, .fn = fn, .heads = heads, .floats = floats};

    OSH_TRY(osh_tiles_new(cx, &j.seq, &n_seqs, a->seqs, N, N + 1));
    j.room = osh_alloc(cx, (size_t)(osh_threads(cx) * floats) * sizeof *j.room);
    if (!j.room) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_parallel_for(cx, n_seqs * heads, head_chunk, &j));
done:
    osh_free(cx, j.room);
    osh_free(cx, j.seq);
    return rc;
}

/* Returns an upper bound of the bytes of scratch. Assumes n_tokens samples, because a sample has at
 * least one token. */
size_t osh_by_head_scratch(int64_t floats, int64_t n_tokens, int n_threads)
{
    return (size_t)(n_threads * floats) * sizeof(float) + (size_t)(n_tokens + 2) * sizeof(osh_tile);
}

typedef struct back_job {
    const osh_grad_args *a;
    const osh_head_back *way;
    const osh_tile *seq;          // view: range of rows of the current sample
    int64_t first, longest, floats;
    /* room: own scratch, [threads, floats].
     * shared: view of the memory after `room`. It has one array of floats for each head of a wave.
     * (A wave is the heads that run at the same time.) */
    float *room, *shared;
} back_job;

static osh_status head_back_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const back_job *j = user;
    osh_head_room r = {j->longest, j->room + worker * j->floats, NULL};
    (void)cx;
    if (j->way->shared) r.shared = j->shared + chunk * j->way->shared(j->a->attr, j->longest);
    memset(r.own, 0, (size_t)j->floats * sizeof *r.own);
    j->way->back(j->a, j->seq, j->first + chunk, &r);
    return OSH_OK;
}

osh_status osh_back_by_head(osh_ctx *cx, const osh_grad_args *a, const osh_head_back *way)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), n_seqs = 0,
            wave = way->wave ? osh_min64(way->wave, way->heads) : way->heads;
    osh_tile *seq = NULL;             // own: for each sample, the range of its rows
    back_job j = {.a = a, .way = way}; // j.room is own; j.shared points into it

    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++) j.longest = osh_max64(j.longest, seq[s].n);
    j.floats = way->floats(a->attr, j.longest);
    int64_t shared = way->shared ? wave * way->shared(a->attr, j.longest) : 0;
    j.room = osh_alloc(cx, (size_t)(osh_threads(cx) * j.floats + shared) * sizeof *j.room);
    if (!j.room) OSH_TRY(OSH_E_NOMEM);
    j.shared = j.room + osh_threads(cx) * j.floats;
    for (int64_t s = 0; s < n_seqs; s++)
        for (j.first = 0; j.first < way->heads; j.first += wave) {
            int64_t n = osh_min64(wave, way->heads - j.first);
            j.seq = &seq[s];
            OSH_TRY(osh_parallel_for(cx, n, head_back_chunk, &j));
            if (way->after)
                way->after(a, j.seq, j.first, n, &(osh_head_room){j.longest, NULL, j.shared});
        }
done:
    osh_free(cx, j.room);
    osh_free(cx, seq);
    return rc;
}

size_t osh_back_by_head_scratch(const void *attr, const osh_head_back *way, int64_t n_tokens,
                                int n_threads)
{
    int64_t shared =
        way->shared ? osh_min64(way->wave, way->heads) * way->shared(attr, n_tokens) : 0;
    return osh_by_head_scratch(way->floats(attr, n_tokens), n_tokens, n_threads) +
           (size_t)shared * sizeof(float);
}
