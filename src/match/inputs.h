/* inputs.h - declares the inputs of a plan: options, source, recipe, graph and data. Also declares
 * some decisions that depend only on these inputs. */
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
    /* own: matches names of modules with --only; NULL: the option is not given */
    osh_matcher *only;
    osh_checkpoint *ck;        // view: checkpoint of `source`
    osh_recipe *recipe;        // own
    /* Graph of the model. NULL if the architecture is unknown and the run needs no data. */
    osh_graph *graph; // own
    osh_pipeline_kind pipeline;
    osh_arithmetic arithmetic;
    bool propagate_error;
    bool by_route; // true if each expert is calibrated only on the tokens that are routed to it
    /* The members from here to `spared` are decisions of `quality best` (plan/best.h), if the user
     * does not give these settings. */
    bool best;                 // true if some modifier has `quality best`
    /* view: sequential targets (classes or names at which the graph is cut) */
    const osh_strs *targets;
    /* Group size that replaces the group size of the scheme; 0: the scheme's size is used. */
    int64_t group_size;
    /* Name of the output head, if a scheme of --scheme leaves the head dense; NULL: none. */
    const char *spared; // view of `graph`
    osh_dataset data;   // own: calibration samples; empty if the run needs no data
    /* own: the data sets from which the samples of `data` come; empty if the run needs no data */
    osh_mix mix;
    osh_groups groups;  // groups of samples; each statistic is a sum over each group (ops/stat.h)
    osh_tokenizer *tok; // own
    int64_t max_seq_length;
    bool on_device;     // true if calibration runs on a GPU
    /* GPU model for which the run is planned (--device-model). This machine need not have such a
     * GPU. View of a row in budget/gpus.c; NULL: the option is not given. */
    const struct osh_gpu_model *gpu_model;
    int ordinal;        // number of the GPU on this machine
    osh_device *device; // own: the opened GPU; NULL: the run uses no GPU, or the GPU is not open
} osh_inputs;

/* Returns the kind of device (GPU or host) on which calibration runs. */
static inline const osh_device_kind *osh_plan_kind(const osh_inputs *in)
{
    return &osh_device_kinds[in->on_device ? OSH_GPU : OSH_HOST];
}

/* Builds in->graph from the checkpoint and frees the previous graph. If in->by_route is true, the
 * graph has a routed_rows node before each expert. */
static inline osh_status osh_inputs_build_graph(osh_ctx *cx, osh_inputs *in)
{
    osh_graph_free(cx, in->graph), in->graph = NULL;
    return (in->by_route ? osh_graph_new_by_route : osh_graph_new)(cx, &in->graph, in->ck,
                                                                   in->opt->models_dir);
}

/* Returns the memory class of the weights, statistics and batches that are in host memory. Without
 * a GPU, the host is the device, so they count as device memory. */
static inline osh_mem_class osh_plan_work_class(const osh_inputs *in)
{
    return in->device ? OSH_MEM_HOST : OSH_MEM_DEVICE;
}
#endif
