/* ctx.c - makes and frees contexts, and the osh_shared that all contexts of a job share. */
#include "base/ctx.h"

#include <sched.h>
#include <stdlib.h>

#include "base/profile.h"

enum { MAX_THREADS = 4096 }; // largest number that the flag --threads allows

static int n_cpus(void)
{
    // the CPUs that this process may use; a container may have fewer CPUs than the machine
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    return 1;
}

osh_status osh_ctx_fork(osh_ctx **out, osh_ctx *parent)
{
    osh_ctx *cx = calloc(1, sizeof *cx);
    *out = cx;
    if (!cx) return osh_fail(parent, OSH_E_NOMEM, "cannot allocate %zu bytes", sizeof *cx);
    cx->sh = parent->sh;
    cx->mem_class = parent->mem_class;
    return OSH_OK;
}

void osh_ctx_alone(osh_ctx *cx) { cx->alone = true; }

bool osh_ctx_inline(osh_ctx *cx, bool on)
{
    bool was = cx->inlined;
    cx->inlined = on;
    return was;
}

osh_status osh_ctx_new(osh_ctx **out, int n_threads)
{
    osh_status rc = OSH_E_NOMEM;
    osh_ctx *cx = calloc(1, sizeof *cx);

    *out = NULL;
    if (n_threads > MAX_THREADS) {
        free(cx);
        return OSH_E_USAGE;
    }
    if (!cx) return rc;
    cx->root = true;
    cx->sh = calloc(1, sizeof *cx->sh);
    if (!cx->sh) goto done;
    pthread_mutex_init(&cx->sh->log.lock, NULL);
    pthread_mutex_init(&cx->sh->kept.lock, NULL);
    cx->sh->log.start = osh_now();
    cx->sh->log.fd = -1;
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_NONE);
    OSH_TRY(osh_pool_new(&cx->sh->pool, cx->sh, n_threads > 0 ? n_threads : n_cpus()));
    *out = cx, cx = NULL;
done:
    osh_ctx_free(cx);
    return rc;
}

void osh_ctx_anew(osh_ctx *cx)
{
    osh_shared *sh = cx->sh;
    osh_error_clear(cx);
    for (int c = 0; c < OSH_MEM_N; c++) {
        atomic_store(&sh->limit[c], 0);
        atomic_store(&sh->used_peak[c], atomic_load(&sh->used[c]));
    }
    atomic_store(&sh->peak, atomic_load(&sh->live));
    /* used_peak is now equal to the bytes in use. So no page can be kept: the bytes in use and the
     * kept bytes together must not exceed used_peak. */
    osh_kept_drop(&sh->kept, 0);
    pthread_mutex_lock(&sh->log.lock);
    sh->log.start = osh_now(), sh->log.counting = false;
    pthread_mutex_unlock(&sh->log.lock);
}

void osh_ctx_free(osh_ctx *cx)
{
    if (!cx) return;
    if (cx->root && cx->sh) {
        osh_profile_stop(cx);
        osh_pool_free(cx->sh->pool);
        osh_profile_free(cx->sh->profile);
        osh_free(cx, cx->sh->log.command);
        osh_log_close(cx->sh);
        pthread_mutex_destroy(&cx->sh->log.lock);
        osh_kept_drop(&cx->sh->kept, 0);
        pthread_mutex_destroy(&cx->sh->kept.lock);
        free(cx->sh);
    }
    free(cx);
}
