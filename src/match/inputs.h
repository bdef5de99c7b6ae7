/* inputs.h - what a plan is made from: options, source, recipe, graph and data, and what these say
 * by themselves. */
#ifndef OSH_INPUTS_H
#define OSH_INPUTS_H
#include "data/dataset.h"
#include "graph/graph.h"
#include "match/options.h"
#include "modifiers/recipe.h"
#include "ops/stat.h"
#include "tensor/device.h"

typedef enum {
    OSH_PIPELINE_SEQUENTIAL,
    OSH_PIPELINE_BASIC,
    OSH_PIPELINE_DATAFREE
} osh_pipeline_kind;
const char *osh_pipeline_name(osh_pipeline_kind k);

typedef struct osh_inputs {
    const osh_options *opt;    // view
    struct osh_source *source; // own
    osh_matcher *only;         // own: --only; NULL: not given
    osh_checkpoint *ck;        // view: of source
    osh_recipe *recipe;        // own
    osh_graph *graph;          // own; NULL: data-free without a known architecture
    osh_pipeline_kind pipeline;
    osh_arithmetic arithmetic;
    bool propagate_error;
    bool by_route;             // experts are calibrated on the tokens that are routed to them
    const char *spared; // view of graph: output head that --scheme leaves dense; NULL: none
    osh_dataset data;   // own; empty when data-free
    osh_groups groups;  // groups of samples, in which statistics are summed (ops/stat.h)
    osh_tokenizer *tok; // own
    int64_t max_seq_length;
    bool on_device;     // calibration runs on a GPU
    const struct osh_card_model *card_model; // view: of budget/cards.c: planned for this GPU, which
                                             // need not exist; NULL: none
    int ordinal;        // device number
    osh_device *device; // own: the GPU; NULL: none, or not opened
} osh_inputs;

/* For host memory of weights, statistics and batches. */
static inline osh_mem_class osh_plan_work_class(const osh_inputs *in)
{
    return in->device ? OSH_MEM_HOST : OSH_MEM_DEVICE;
}
#endif
