/* process.c - what a job asks of the whole process, before the libraries that multiply are opened. */
#include <stdlib.h>

#include "api/api.h"

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
