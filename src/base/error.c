/* error.c - manages the error text of a context. The text is the first message and then "; while
 * ..." notes, in a buffer of fixed size. The file also has the functions that set and read the
 * request to interrupt.
 *
 * These functions allocate nothing, so that they can report that memory ran out. */
#include "base/ctx.h"
#include "base/quote.h"

#include <string.h>
#include <time.h>

/* Appends "<lead><message>"; a text that does not fit ends in "...". Control characters and line
 * ends of the message are escaped, because file names and contents may hold any bytes. */
static void error_append(osh_ctx *cx, const char *lead, const char *fmt, va_list ap)
{
    size_t room = sizeof cx->text - cx->n_text;
    char text[sizeof cx->text];
    const char *rest;
    if (room < 16) return;
    int k = snprintf(cx->text + cx->n_text, room, "%s", lead);
    size_t at = cx->n_text + (size_t)k;
    int m = vsnprintf(text, sizeof text, fmt, ap);
    if (m < 0) text[0] = 0;
    at += osh_show(cx->text + at, sizeof cx->text - at, text, &rest);
    if (*rest || m >= (int)sizeof text) {
        if (at > sizeof cx->text - 4) at = sizeof cx->text - 4;
        memcpy(cx->text + at, "...", 4);
        at = sizeof cx->text - 1; // the buffer is already full
    }
    cx->n_text = at;
}

osh_status osh_fail(osh_ctx *cx, osh_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_append(cx, cx->n_text ? "; then " : "", fmt, ap);
    va_end(ap);
    return code ? code : OSH_E_INTERNAL;
}

void osh_note(osh_ctx *cx, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_append(cx, cx->n_text ? "; while " : "while ", fmt, ap);
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

double osh_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void osh_interrupt(osh_ctx *cx)
{
    atomic_store(&cx->sh->interrupted, true);
}

void osh_interrupt_forget(osh_ctx *cx)
{
    atomic_store(&cx->sh->interrupted, false);
}

bool osh_interrupted(const osh_ctx *cx)
{
    return atomic_load_explicit(&cx->sh->interrupted, memory_order_relaxed);
}

osh_status osh_check_interrupt(osh_ctx *cx)
{
    return osh_interrupted(cx) ? osh_fail(cx, OSH_E_INTERRUPTED, "interrupted") : OSH_OK;
}
