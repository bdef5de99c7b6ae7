/* share.c - divides an evaluation among ranks, and moves its scores to rank 0. */
#include "eval/share.h"

#include <string.h>

#include "base/buf.h"
#include "eval/saved.h"
#include "gpu/gpu.h"
#include "math/isa.h"
#include "plan/division.h"
#include "plan/rank_gpu.h"

// largest number of messages that a rank has sent and that rank 0 has not received yet
enum { MOST_POSTED = 4 };

osh_status osh_eval_divide(osh_ctx *cx, osh_eval_options *o)
{
    osh_status rc = OSH_OK;
    static char cpu[] = "cpu"; // new value of o->device, which is a view here
    bool gpu = osh_eval_gpu_wanted(o);
    if (!o->ranks) goto done;
    OSH_TRY(osh_rank_devices_agree(cx, o->ranks, gpu));
    if (!gpu) o->device = cpu;
    o->host_memory /= osh_ranks_per_node(o->ranks);
done:
    return rc;
}

osh_status osh_eval_agree(osh_ctx *cx, osh_ranks *ranks, const osh_eval_models *m)
{
    osh_status rc = OSH_OK;
    char *isa = NULL; // own
    osh_buf b;        // own
    osh_buf_init(&b, 0);
    if (!ranks) goto done;
    OSH_TRY(osh_source_tell(cx, &b, osh_source_checkpoint(m->f->source)));
    if (m->ref) OSH_TRY(osh_source_tell(cx, &b, osh_source_checkpoint(m->ref->source)));
    OSH_TRY(osh_ranks_agree(cx, ranks, "another model or reference", b.data));
    osh_buf_clear(&b);
    OSH_TRY(osh_isa_describe(cx, &isa));
    OSH_TRY(osh_buf_printf(cx, &b, "%lld samples, tokens %016llx, %s", (long long)m->d.n,
                           (unsigned long long)osh_saved_sum(&m->d), isa));
    OSH_TRY(osh_ranks_agree(cx, ranks, "other tokens or another instruction set", b.data));
done:
    osh_free(cx, isa);
    osh_buf_deinit(cx, &b);
    return rc;
}

int64_t osh_eval_batches(const osh_eval_models *m)
{
    return m->gpu ? osh_eval_gpu_batches(m->gpu) : (m->d.n + m->size - 1) / m->size;
}

void osh_eval_batch(const osh_eval_models *m, int64_t b, int64_t *first, int64_t *n)
{
    if (m->gpu) {
        osh_eval_gpu_batch(m->gpu, b, first, n);
        return;
    }
    *first = b * m->size;
    *n = m->d.n - *first < m->size ? m->d.n - *first : m->size;
}

osh_status osh_eval_send(osh_ctx *cx, osh_ranks *ranks, osh_tensor *const *out, int n_out)
{
    osh_status rc = OSH_OK;
    size_t each = osh_tensor_bytes(out[0]);
    char *all = osh_alloc(cx, (size_t)n_out * each); // own
    if (!all) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the scores of a batch");
    for (int i = 0; i < n_out; i++) memcpy(all + (size_t)i * each, out[i]->data, each);
    rc = osh_ranks_post(cx, ranks, all, (size_t)n_out * each); // takes ownership
    all = NULL;
    if (!rc) OSH_TRY(osh_ranks_post_wait(cx, ranks, MOST_POSTED - 1));
done:
    osh_free(cx, all);
    return rc;
}

osh_status osh_eval_sent(osh_ctx *cx, osh_ranks *ranks)
{
    return osh_ranks_post_wait(cx, ranks, 0);
}

osh_status osh_eval_recv(osh_ctx *cx, osh_ranks *ranks, osh_tensor *const *out, int n_out,
                         int from)
{
    osh_status rc = OSH_OK;
    void *all = NULL; // own
    size_t n, each = osh_tensor_bytes(out[0]);
    OSH_TRY(osh_ranks_take(cx, ranks, &all, &n, &from, true));
    if (n != (size_t)n_out * each)
        OSH_FAIL(cx, OSH_E_IO, "rank %d has sent %zu bytes of scores, want %zu", from, n,
                 (size_t)n_out * each);
    for (int i = 0; i < n_out; i++)
        memcpy(out[i]->data, (const char *)all + (size_t)i * each, each);
done:
    osh_free(cx, all);
    return rc;
}

int64_t osh_eval_share_bytes(const osh_ranks *ranks, int64_t n_tokens)
{
    int64_t each = (int64_t)osh_mem_gross((size_t)n_tokens * 4 * sizeof(float));
    return ranks ? OSH_RANKS_BYTES + MOST_POSTED * each : 0;
}
