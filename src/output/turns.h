/* turns.h - lets threads that work in parallel do one step of their work one after the other, in a
 * fixed order. Each thread has a ticket, which is its number in this order. A thread has its turn
 * when all earlier tickets are done. */
#ifndef OSH_TURNS_H
#define OSH_TURNS_H
#include <pthread.h>
#include <stdint.h>

typedef struct osh_turn osh_turn;
typedef struct osh_turns { // initial value: {0}; protected by the lock of the owner
    /* next: next ticket to give out.
     * now: ticket of the thread that has its turn. */
    int64_t next, now;
    osh_turn *waiting;     // view: list of waiting threads, on their stacks
} osh_turns;

/* Waits until all earlier tickets are done. The caller holds the lock. The lock is released during
 * the wait. */
void osh_turns_wait(osh_turns *t, pthread_mutex_t *lock, int64_t ticket);
/* Ends the turn of the caller, and wakes the thread with the next ticket. The caller holds the
 * lock. */
void osh_turns_pass(osh_turns *t);
#endif
