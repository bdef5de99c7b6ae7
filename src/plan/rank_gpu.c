/* rank_gpu.c - chooses the GPU of each rank (rank_gpu.h). */
#include "plan/rank_gpu.h"

#include <string.h>

typedef struct first_gpu { // the GPU that a process sees as number 0
    int32_t n;             // number of GPUs that the process may use
    osh_device_uuid id;
} first_gpu;

osh_status osh_rank_gpu(osh_ctx *cx, int *ordinal, osh_ranks *r, const osh_device_kind *k,
                        const char *text)
{
    osh_status rc = OSH_OK;
    first_gpu mine = {0}, *all = NULL; // own: all [ranks]
    int n = 0, before = 0, me = osh_ranks_me(r);
    if (!r || (!osh_device_is_auto(text) && strchr(text, ':'))) goto done;
    if (osh_device_present(k)) OSH_TRY(k->type->number(cx, &n));
    if (n) OSH_TRY(k->type->identify(cx, &mine.id, 0));
    mine.n = n;
    OSH_NEW(cx, all, osh_ranks_n(r));
    OSH_TRY(osh_ranks_gather(cx, r, all, &mine, sizeof mine));
    OSH_TRY(osh_ranks_broadcast(cx, r, all, (size_t)osh_ranks_n(r) * sizeof *all, 0));
    for (int i = 0; i < me; i++)
        before += !strcmp(osh_ranks_at(r, i)->node, osh_ranks_at(r, me)->node) &&
                  !memcmp(&all[i], &mine, sizeof mine);
    if (n) *ordinal = before % n;
done:
    osh_free(cx, all);
    return rc;
}

/* Called by all ranks. Fails on rank 0 if two ranks have the same GPU. */
static osh_status rank_gpus_differ(osh_ctx *cx, osh_ranks *r, const osh_device_kind *k, int ordinal)
{
    osh_status rc = OSH_OK;
    osh_device_uuid mine, *all = NULL; // own: all [ranks]
    int n = osh_ranks_n(r);
    if (!r) goto done;
    OSH_NEW(cx, all, n);
    OSH_TRY(k->type->identify(cx, &mine, ordinal));
    OSH_TRY(osh_ranks_gather(cx, r, all, &mine, sizeof mine));
    for (int i = 0; i < n && !osh_ranks_me(r); i++)
        for (int j = 0; j < i; j++)
            if (!memcmp(&all[i], &all[j], sizeof *all))
                OSH_FAIL(cx, OSH_E_USAGE,
                         "ranks %d and %d on %s have the same GPU: start at most one rank for each "
                         "GPU of a node, and give no number in --device",
                         j, i, osh_ranks_at(r, i)->node);
done:
    osh_free(cx, all);
    return rc;
}

osh_status osh_rank_gpu_open(osh_ctx *cx, osh_device **out, osh_ranks *r, const osh_device_kind *k,
                             int ordinal, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    OSH_TRY(rank_gpus_differ(cx, r, k, ordinal));
    OSH_TRY(osh_device_open(cx, out, k, ordinal, n_bytes));
    OSH_TRY(osh_ranks_agree(cx, r, "another GPU", (*out)->text));
done:
    return rc;
}

osh_status osh_rank_devices_agree(osh_ctx *cx, osh_ranks *r, bool on_gpu)
{
    return osh_ranks_agree(cx, r, "another device", on_gpu ? "a GPU" : "the CPU");
}
