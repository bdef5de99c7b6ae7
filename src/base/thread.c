/* thread.c - starts threads that get no signals. A new thread inherits the signal mask of the
 * thread that makes it, so all signals are blocked during the start. */
#include "base/thread.h"

#include <signal.h>

bool osh_thread_start(pthread_t *thread, void *(*fn)(void *), void *user)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = !pthread_create(thread, NULL, fn, user);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}
