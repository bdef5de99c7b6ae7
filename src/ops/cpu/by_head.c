/* by_head.c - the heads of the ops that keep a state: see ops/kernel.h. */
#include <string.h>

#include "ops/kernel.h"

typedef struct head_job {
    const osh_op_args *a;
    osh_head_fn fn;
    int64_t heads, floats;
    osh_tile *seq; // own: one whole sample each
    float *room;   // own: [threads, floats]
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

osh_status osh_by_head(osh_ctx *cx, const osh_op_args *a, int64_t heads, int64_t floats, osh_head_fn fn)
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

/* As many samples as tokens. */
size_t osh_by_head_scratch(int64_t floats, int64_t n_tokens, int n_threads)
{
    return (size_t)(n_threads * floats) * sizeof(float) + (size_t)(n_tokens + 2) * sizeof(osh_tile);
}
