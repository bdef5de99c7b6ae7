/* error.c - contexts and the error text: the first message, then "; while ..." notes, in a fixed buffer.
 *
 * Nothing here allocates once the context exists, so that running out of memory can be reported. */
#include "base/ctx.h"
#include "base/profile.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int n_cpus(void)
{
    cpu_set_t set; // what this process may use, which in a container is less than what is online
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

osh_status osh_ctx_new(osh_ctx **out, int n_threads)
{
    osh_status rc = OSH_E_NOMEM;
    osh_ctx *cx = calloc(1, sizeof *cx);

    *out = NULL;
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

void osh_ctx_free(osh_ctx *cx)
{
    if (!cx) return;
    if (cx->root && cx->sh) {
        osh_profile_stop(cx);
        osh_pool_free(cx->sh->pool);
        osh_profile_free(cx->sh->profile);
        osh_log_close(cx->sh);
        pthread_mutex_destroy(&cx->sh->log.lock);
        osh_kept_drop(&cx->sh->kept, 0);
        pthread_mutex_destroy(&cx->sh->kept.lock);
        free(cx->sh);
    }
    free(cx);
}

/* Appends "<lead><message>"; what does not fit ends in "...". */
static void append(osh_ctx *cx, const char *lead, const char *fmt, va_list ap)
{
    size_t room = sizeof cx->text - cx->n_text;
    if (room < 16) return;
    int k = snprintf(cx->text + cx->n_text, room, "%s", lead);
    size_t at = cx->n_text + (size_t)k;
    int m = vsnprintf(cx->text + at, sizeof cx->text - at, fmt, ap);
    if (m < 0) m = 0;
    if (at + (size_t)m >= sizeof cx->text) {
        memcpy(cx->text + sizeof cx->text - 4, "...", 4);
        cx->n_text = sizeof cx->text - 1;
    } else {
        cx->n_text = at + (size_t)m;
    }
    for (char *p = cx->text; *p; p++)
        if (*p == '\n' || *p == '\r') *p = ' '; // a message is one line, whatever a file's name or content holds
}

osh_status osh_fail(osh_ctx *cx, osh_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    append(cx, cx->n_text ? "; then " : "", fmt, ap);
    va_end(ap);
    return code ? code : OSH_E_INTERNAL;
}

void osh_note(osh_ctx *cx, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    append(cx, cx->n_text ? "; while " : "while ", fmt, ap);
    va_end(ap);
}

const char *osh_error_text(const osh_ctx *cx)
{
    return cx->text;
}

void osh_error_clear(osh_ctx *cx)
{
    cx->n_text = 0;
    cx->text[0] = 0;
}

void osh_interrupt(osh_ctx *cx)
{
    atomic_store(&cx->sh->interrupted, true);
}

bool osh_interrupted(const osh_ctx *cx)
{
    return atomic_load_explicit(&cx->sh->interrupted, memory_order_relaxed);
}

double osh_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
