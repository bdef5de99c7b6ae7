/* thread.h - starts threads. */
#ifndef OSH_THREAD_H
#define OSH_THREAD_H
#include <pthread.h>

#include "base/base.h"

/* Starts a thread, which the caller joins. The thread blocks all signals, so the main thread gets
 * them. Returns false if the system has no more threads. */
bool osh_thread_start(pthread_t *thread, void *(*fn)(void *), void *user);

typedef struct osh_thread { // a thread with its own context; all members 0: no thread
    osh_ctx *cx; // own: fork of the cx of osh_thread_open, with the memory class of that cx
    pthread_t id;
    bool running;
} osh_thread;
/* Starts the thread. If `alone` is true, calls osh_ctx_alone for the context of the thread. Fails
 * with "cannot start a thread to <task>". The caller must call osh_thread_close, even after a
 * failure. */
osh_status osh_thread_open(osh_ctx *cx, osh_thread *t, void *(*fn)(void *), void *user, bool alone,
                           const char *task);
void osh_thread_join(osh_thread *t);  // does nothing if the thread does not run
void osh_thread_close(osh_thread *t); // joins the thread, and frees its context
#endif
