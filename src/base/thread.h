/* thread.h - starts threads. */
#ifndef OSH_THREAD_H
#define OSH_THREAD_H
#include <pthread.h>
#include <stdbool.h>

/* Starts a thread, which the caller joins. The thread blocks all signals, so the main thread gets
 * them. Returns false if the system has no more threads. */
bool osh_thread_start(pthread_t *thread, void *(*fn)(void *), void *user);
#endif
