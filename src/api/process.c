/* process.c - what a job takes of the process around it: variables, and what models and data are called there. */
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

/* A data set's name becomes a file of the rows that are wanted, and of no others. */
static osh_status find_data(osh_ctx *cx, osh_ctx *work, osh_options *o, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    const osh_hub_data d = {.dataset = o->dataset, .config = o->dataset_config_name, .splits = o->splits,
                            .n_samples = o->num_calibration_samples, .shuffle = o->shuffle_calibration_samples,
                            .concatenate = o->concatenate_data,
                            .own_text = o->text_column || o->text_template};
    OSH_TRY(osh_hub_dataset(work, &path, &d, env));
    if (!path && o->dataset_config_name)
        OSH_FAIL(work, OSH_E_USAGE, "--dataset-config-name %s: --dataset %s is a file, which has no configurations",
                 o->dataset_config_name, o->dataset);
    if (!path) goto done;
    osh_free(cx, o->dataset), o->dataset = NULL;
    osh_free(cx, o->splits), o->splits = NULL;
    if (!(o->dataset = osh_strdup(cx, path))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_free(work, path);
    return rc;
}

osh_status osh_names_find(osh_ctx *cx, osh_ctx *work, const osh_named *n, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    osh_options *o = n->fields == osh_option_fields ? n->options : NULL;
    OSH_TRY(find_models(cx, work, n, env));
    if (o && o->dataset) OSH_TRY(find_data(cx, work, o, env));
done:
    return rc;
}

/* OpenBLAS takes its kernels from a variable that it reads when it is opened, which is later than this. */
osh_status osh_isa_of_process(osh_ctx *cx, const char *isa)
{
    osh_status rc = OSH_OK;
    const char *core = NULL;
    OSH_TRY(osh_isa_select(cx, &core, isa));
    if (setenv("OPENBLAS_CORETYPE", core, 1) || setenv("OPENBLAS_NUM_THREADS", "1", 1)) // threads are ours
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a variable of the environment");
done:
    return rc;
}
