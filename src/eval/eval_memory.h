/* eval_memory.h - predicts the memory of an evaluation, and limits the context to the budget. */
#ifndef OSH_EVAL_MEMORY_H
#define OSH_EVAL_MEMORY_H
#include "eval/eval_gpu.h"

typedef struct osh_eval_models { // models and data of an evaluation
    osh_forward *f, *ref; // own; `ref` is the reference model, or NULL if there is none
    osh_eval_gpu *gpu;    // own: GPU that runs passes and scores; NULL: the host runs them
    osh_dataset d;        // own
    int64_t size;         // number of samples in a batch that runs on the host
} osh_eval_models;

/* Limits the context to --host-memory if it is given. Fails with OSH_E_USAGE if the budget is too
 * small. The message then has the smallest possible budget, and options that reduce the memory.
 * Turns the prefetch of weights off if it does not fit in the budget. `load`: peak of host bytes
 * while models and data were read. */
osh_status osh_eval_memory(osh_ctx *cx, const osh_eval_options *o, const osh_eval_models *m,
                           int64_t load);
/* Sets *host to the smallest --host-memory with which the output of a planned run can be evaluated.
 * The run will make the output from the model m->f, and m->ref is the reference model. Assumes that
 * the output has the scheme that needs the most memory. */
osh_status osh_eval_least(osh_ctx *cx, int64_t *host, const osh_eval_options *o,
                          const osh_eval_models *m, int64_t load);
/* Returns how many more host bytes an evaluation needs for the output of a run than for its source
 * `f`, in a batch of n_tokens tokens. The output has codes instead of some weights. So memory is
 * needed for the F32 numbers that are decoded from a weight's codes, and for a rounded copy of a
 * Linear's input. */
int64_t osh_eval_output_bytes(const osh_forward *f, int64_t n_tokens);
#endif
