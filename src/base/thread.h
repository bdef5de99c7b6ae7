/* thread.h - starts threads beside the main one. */
#ifndef OSH_THREAD_H
#define OSH_THREAD_H
#include <pthread.h>
#include <stdbool.h>

/* To be joined. Signals stay the main thread's. false: the system has no more threads. */
bool osh_thread_start(pthread_t *thread, void *(*fn)(void *), void *user);
#endif
