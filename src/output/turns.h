/* turns.h - lets threads that work in parallel do one step of their work in order. Each thread has
 * a ticket, which is its number in the order. It waits until all earlier tickets are done; then it
 * has its turn. */
#ifndef OSH_TURNS_H
#define OSH_TURNS_H
#include <pthread.h>
#include <stdint.h>

typedef struct osh_turn osh_turn;
typedef struct osh_turns { // {0} initializes it; protected by the owner's lock
    /* next: next ticket to give out.
     * now: ticket whose thread may do the step. */
    int64_t next, now;
    osh_turn *waiting;     // view: list of waiting threads, on their stacks
} osh_turns;

/* Waits until all earlier tickets are done. The caller holds the lock, which is released during the
 * wait. */
void osh_turns_wait(osh_turns *t, pthread_mutex_t *lock, int64_t ticket);
/* Ends the turn of the caller, whose step is done, and wakes only the thread with the next ticket.
 * The caller holds the lock. */
void osh_turns_pass(osh_turns *t);
#endif
