/* finite.c - finds the first NaN or infinity of a tensor on all threads. The program calls
 * osh_first_nonfinite for every output of every op. */
#include "ops/kernel.h"

#include <stdatomic.h>

enum { PIECE = 1 << 16 }; // number of elements in a chunk of parallel work

typedef struct finite_job {
    const osh_tensor *x;
    _Atomic int64_t first; // lowest index of a NaN or infinity that any thread has found
} finite_job;

static osh_status nonfinite_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    finite_job *j = user;
    int64_t from = chunk * PIECE, n = osh_min64(PIECE, osh_tensor_numel(j->x) - from),
            old = atomic_load(&j->first);

    (void)cx, (void)worker;
    if (from > old) return OSH_OK;
    int64_t at = osh_find_nonfinite(osh_elem(j->x, from), j->x->dtype, n);
    if (at < 0) return OSH_OK;
    while (from + at < old && !atomic_compare_exchange_weak(&j->first, &old, from + at)) {}
    return OSH_OK;
}

osh_status osh_first_nonfinite(osh_ctx *cx, int64_t *at, const osh_tensor *x)
{
    finite_job j = {.x = x, .first = INT64_MAX};
    osh_status rc =
        osh_parallel_for(cx, osh_div_up(osh_tensor_numel(x), PIECE), nonfinite_chunk, &j);

    *at = j.first == INT64_MAX ? -1 : j.first;
    return rc;
}
