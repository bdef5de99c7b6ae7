/* process.c - sets the environment variables that a job needs, and replaces names of models and
 * data sets in its options by directories and files. */
#include <stdlib.h>

#include "api/api.h"

static osh_status find_models(osh_ctx *cx, osh_ctx *work, const osh_named *n, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    static const char *const names[] = {"model", "reference"};
    char *dir = NULL; // own
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const osh_field *f = osh_field_find(n->fields, names[i]);
        char **at = f ? (char **)(void *)((char *)n->options + f->offset) : NULL;
        if (!at || !*at) continue;
        OSH_TRY(osh_hub_model(work, &dir, *at, n->headers, env));
        osh_free(cx, *at);
        if (!(*at = osh_strdup(cx, dir))) OSH_TRY(OSH_E_NOMEM);
        osh_free(work, dir), dir = NULL;
    }
done:
    osh_free(work, dir);
    return rc;
}

/* Replaces the name of a data set by a file that has only the wanted rows. */
static osh_status find_data(osh_ctx *cx, osh_ctx *work, char **dataset, char **splits,
                            const osh_hub_data *d, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    OSH_TRY(osh_hub_dataset(work, &path, d, env));
    if (!path && d->config)
        OSH_FAIL(work, OSH_E_USAGE,
                 "--dataset-config-name %s: --dataset %s is a file, which has no configurations",
                 d->config, d->dataset);
    if (!path) goto done;
    osh_free(cx, *dataset), *dataset = NULL;
    osh_free(cx, *splits), *splits = NULL;
    if (!(*dataset = osh_strdup(cx, path))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_free(work, path);
    return rc;
}

static osh_status find_calibration(osh_ctx *cx, osh_ctx *work, osh_options *o, osh_env_fn env)
{
    const osh_hub_data d = {.dataset = o->dataset,
                            .config = o->dataset_config_name,
                            .splits = o->splits,
                            .n_samples = o->num_calibration_samples,
                            .shuffle = o->shuffle_calibration_samples,
                            .concatenate = o->concatenate_data,
                            .own_text = o->text_column || o->text_template};
    return o->dataset ? find_data(cx, work, &o->dataset, &o->splits, &d, env) : OSH_OK;
}

static osh_status find_evaluation(osh_ctx *cx, osh_ctx *work, osh_eval_options *o, osh_env_fn env)
{
    int64_t most = o->max_windows; // most: number of windows, including the skipped ones
    if (most && __builtin_add_overflow(most, o->first_window, &most)) most = 0;
    const osh_hub_data d = {.dataset = o->dataset,
                            .config = o->dataset_config_name,
                            .splits = o->splits,
                            .n_samples = most,
                            .wants_split = true,
                            .own_text = o->text_column || o->text_template};
    return o->dataset ? find_data(cx, work, &o->dataset, &o->splits, &d, env) : OSH_OK;
}

/* Finds models and data sets by name (api.h). The limit of --host-memory applies to this work,
 * too. */
osh_status osh_names_find(osh_ctx *cx, osh_ctx *work, const osh_named *n, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    const osh_field *f = osh_field_find(n->fields, "host_memory");
    int64_t budget = f ? *(const int64_t *)(const void *)((const char *)n->options + f->offset) : 0;
    osh_mem_hold(work, budget, OSH_MEM_LEAST);
    if (osh_ranks_me(n->ranks)) OSH_TRY(osh_ranks_barrier(work, n->ranks));
    OSH_TRY(find_models(cx, work, n, env));
    if (n->fields == osh_option_fields) OSH_TRY(find_calibration(cx, work, n->options, env));
    if (n->fields == osh_eval_fields) OSH_TRY(find_evaluation(cx, work, n->options, env));
    if (!osh_ranks_me(n->ranks)) OSH_TRY(osh_ranks_barrier(work, n->ranks));
done:
    if (budget > 0) osh_mem_limit(work, OSH_MEM_HOST, 0); // removes the limit; the job sets it
                                                          // again
    return osh_mem_refused(work, rc, budget);
}

/* Sets the variables of OpenBLAS (api.h). OpenBLAS is opened later, by dlopen, and then reads the
 * variables. */
osh_status osh_isa_of_process(osh_ctx *cx, const char *isa)
{
    osh_status rc = OSH_OK;
    const char *core = NULL;
    OSH_TRY(osh_isa_select(cx, &core, isa));
    /* OpenBLAS gets one thread, because the program runs several matrix multiplications in
     * parallel. */
    if (setenv("OPENBLAS_CORETYPE", core, 1) || setenv("OPENBLAS_NUM_THREADS", "1", 1))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a variable of the environment");
done:
    return rc;
}
