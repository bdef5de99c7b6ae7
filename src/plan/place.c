/* place.c - decides whether a job with calibration runs on the host or on a GPU. Also opens the
 * GPU. */
#include <stdio.h>
#include <string.h>

#include "budget/gpus.h"
#include "budget/memory.h"
#include "match/cache.h"
#include "plan/division.h"
#include "plan/plan.h"
#include "plan/rank_gpu.h"
#include "quant/observer.h"
#include "schedule/looks.h"

/* Handles a job that needs the feature `what`, which is not possible on a GPU. Fails if the user
 * asked for a GPU. Otherwise returns OSH_OK, so that the job runs on the host. */
static osh_status gpu_refuse(osh_ctx *cx, const osh_plan *p, const char *what)
{
    const char *text = p->in.opt->device;
    if (!p->in.opt->device_model && (osh_device_is_auto(text) || !strcmp(text, "cpu")))
        return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s is not supported on a GPU in this version: want --device cpu", what);
}

/* True if the GPU computes the value l->ranged[k] only for the rows of an expert, and --calib-cache
 * requires that the value is stored for a two-pass observer. */
static bool stores_expert(const osh_plan *p, const osh_linear *l, int k)
{
    osh_look first, last;
    osh_looks_allowed(&first, &last, p->in.opt->calib_cache, true);
    return p->in.by_route && last != OSH_LOOK_AGAIN &&
           osh_observer_twice(osh_ranged_args(&p->match, l, k)) &&
           osh_is_by_route(p->in.graph, l->ranged[k]);
}

/* Sets *what to the name of a feature that the job needs and that is only possible on the host, or
 * to NULL if there is none. room: buffer for the name. */
static void find_host_only(const char **what, const osh_plan *p, char *room, size_t size)
{
    const osh_graph *g = p->in.graph;
    bool calibrates = p->in.pipeline != OSH_PIPELINE_DATAFREE;
    int node = calibrates ? osh_graph_host_only(g) : -1;
    *what = room;
    if (node >= 0) {
        snprintf(room, size, "%s: %s", g->modules[g->nodes[node].module].name,
                 g->nodes[node].op->name);
        return;
    }
    for (int i = 0; i < p->match.n_linears; i++) {
        const osh_linear *l = &p->match.linears[i];
        for (int k = 0; k < OSH_RANGED; k++) {
            if (l->ranged[k] < 0 || !stores_expert(p, l, k)) continue;
            snprintf(room, size, "--calib-cache %s with --moe-calibrate-all-experts false",
                     p->in.opt->calib_cache);
            return;
        }
    }
    *what = NULL;
}

/* If several ranks share the job, sets p->in.ordinal to the GPU of this rank. Fails if some ranks
 * use a GPU and others use the host. */
static osh_status device_of_rank(osh_ctx *cx, osh_plan *p, const osh_device_kind *kind)
{
    osh_status rc = OSH_OK;
    osh_ranks *ranks = p->in.opt->ranks;
    OSH_TRY(osh_rank_devices_agree(cx, ranks, p->in.on_device));
    if (p->in.on_device)
        OSH_TRY(osh_rank_gpu(cx, &p->in.ordinal, ranks, kind, p->in.opt->device));
done:
    return rc;
}

osh_status osh_plan_device(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const char *text = p->in.opt->device;
    char room[512];
    const char *what;
    find_host_only(&what, p, room, sizeof room);
    if (what) return gpu_refuse(cx, p, what);
    if (p->in.opt->device_model) {
        if (text && !strcmp(text, "cpu"))
            OSH_FAIL(cx, OSH_E_USAGE, "--device cpu and --device-model exclude each other");
        // the parser of options has already checked this name
        p->in.gpu_model = osh_gpu_model_find(p->in.opt->device_model);
        p->in.on_device = p->in.pipeline != OSH_PIPELINE_DATAFREE;
        goto done;
    }
    const osh_device_kind *kind;
    OSH_TRY(osh_device_find(cx, &kind, &p->in.ordinal, text));
    /* A run without calibration stays on the host, because copying weights to the GPU and back
     * would take longer than rounding them. */
    p->in.on_device =
        kind != &osh_device_kinds[OSH_HOST] && p->in.pipeline != OSH_PIPELINE_DATAFREE;
    OSH_TRY(device_of_rank(cx, p, kind));
done:
    return rc;
}

osh_status osh_plan_open_device(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_device_kind *kind = osh_plan_kind(&p->in);
    osh_device *idle = NULL; // own: a GPU that is opened only to check that there is one
    // true: each rank opens a GPU; false: only rank 0 opens one
    bool shared = osh_divide(p).kind == OSH_DIVIDE_SAMPLES;
    if (p->in.on_device) {
        OSH_TRY(osh_rank_gpu_open(cx, &p->in.device, shared ? p->in.opt->ranks : NULL, kind,
                                  p->in.ordinal, (size_t)osh_memory_arena(&p->budget)));
        if (p->budget.memory.by_gpu)
            OSH_TRY(kind->type->files->stage_open(cx, p->in.device, p->in.opt->use_gds));
    } else if (!osh_device_is_auto(p->in.opt->device) && osh_device_is_gpu(p->in.opt->device)) {
        // fails if there is no GPU, because the user has asked for one
        OSH_TRY(osh_device_find(cx, &kind, &p->in.ordinal, p->in.opt->device));
        OSH_TRY(osh_device_open(cx, &idle, kind, p->in.ordinal, 0));
    }
done:
    osh_device_close(cx, idle);
    return rc;
}
