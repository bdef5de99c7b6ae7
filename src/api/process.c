/* process.c - what a job takes of the process around it: variables, and what models are called there. */
#include <stdlib.h>

#include "api/api.h"

osh_status osh_models_find(osh_ctx *cx, osh_ctx *work, const osh_field *fields, void *options, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    static const char *const names[] = {"model", "reference"};
    char *dir = NULL; // own
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const osh_field *f = osh_field_find(fields, names[i]);
        char **at = f ? (char **)(void *)((char *)options + f->offset) : NULL;
        if (!at || !*at) continue;
        OSH_TRY(osh_hub_model(work, &dir, *at, env));
        osh_free(cx, *at);
        if (!(*at = osh_strdup(cx, dir))) OSH_TRY(OSH_E_NOMEM);
        osh_free(work, dir), dir = NULL;
    }
done:
    osh_free(work, dir);
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
