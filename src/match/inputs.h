/* inputs.h - the inputs of a plan: options, source, recipe, graph and data. Also some facts that
 * depend only on them. */
#ifndef OSH_INPUTS_H
#define OSH_INPUTS_H
#include "data/mix.h"
#include "gpu/gpu.h"
#include "graph/graph.h"
#include "match/options.h"
#include "modifiers/recipe.h"
#include "ops/stat.h"

typedef enum {
    OSH_PIPELINE_SEQUENTIAL,
    OSH_PIPELINE_BASIC,
    OSH_PIPELINE_DATAFREE
} osh_pipeline_kind;

typedef struct osh_inputs {
    const osh_options *opt;    // view
    struct osh_source *source; // own
    osh_matcher *only;         // own: matcher of --only; NULL: the option is not given
    osh_checkpoint *ck;        // view: checkpoint of `source`
    osh_recipe *recipe;        // own
    /* Graph of the model. NULL if the architecture is unknown and the run needs no data. */
    osh_graph *graph; // own
    osh_pipeline_kind pipeline;
    osh_arithmetic arithmetic;
    bool propagate_error;
    bool by_route; // true if experts are calibrated only on the tokens that are routed to them
    /* Decisions of `quality best` (plan/best.h) for settings that the user does not give. */
    bool best;                 // true if some modifier has `quality best`
    /* view: sequential targets (classes or names at which the graph is cut) */
    const osh_strs *targets;
    /* Group size that replaces the group size of the scheme; 0: no replacement. */
    int64_t group_size;
    /* Name of the output head that --scheme leaves dense; NULL: none. */
    const char *spared; // view of `graph`
    osh_dataset data;   // own: calibration samples; empty if the run needs no data
    osh_mix mix;        // own: the data sets that `data` comes from; empty if the run needs no data
    osh_groups groups;  // groups of samples; statistics are summed by group (ops/stat.h)
    osh_tokenizer *tok; // own
    int64_t max_seq_length;
    bool on_device;     // true if calibration runs on a GPU
    /* GPU model for which the run is planned (--device-model). This machine need not have such a
     * GPU. View of budget/gpus.c; NULL: none. */
    const struct osh_gpu_model *gpu_model;
    int ordinal;        // number of the GPU
    osh_device *device; // own: the opened GPU; NULL: the run uses no GPU, or it is not open
} osh_inputs;

/* Returns the kind of device on which calibration runs. */
static inline const osh_device_kind *osh_plan_kind(const osh_inputs *in)
{
    return &osh_device_kinds[in->on_device ? OSH_GPU : OSH_HOST];
}

/* Builds in->graph from the checkpoint, with routed_rows nodes if in->by_route is true. Frees the
 * previous graph. */
static inline osh_status osh_inputs_build_graph(osh_ctx *cx, osh_inputs *in)
{
    osh_graph_free(cx, in->graph), in->graph = NULL;
    return (in->by_route ? osh_graph_new_by_route : osh_graph_new)(cx, &in->graph, in->ck,
                                                                   in->opt->models_dir);
}

/* Returns the memory class for weights, statistics and batches in host memory. Without a GPU, they
 * count as device memory. */
static inline osh_mem_class osh_plan_work_class(const osh_inputs *in)
{
    return in->device ? OSH_MEM_HOST : OSH_MEM_DEVICE;
}
#endif
