/* turns.h - lets threads that work in parallel do one step of their work in order. Each thread has
 * a ticket (its number in the order) and waits until all earlier tickets are done: its turn. */
#ifndef OSH_TURNS_H
#define OSH_TURNS_H
#include <pthread.h>
#include <stdint.h>

typedef struct osh_turn osh_turn;
typedef struct osh_turns { // {0} initializes it; protected by the owner's lock
    int64_t next, now;     // next: next ticket to give out; now: ticket whose thread may do the
                           // step
    osh_turn *waiting;     // view: list of waiting threads, on their stacks
} osh_turns;

/* Waits until all earlier tickets are done. The caller holds the lock, which is released during the
 * wait. */
void osh_turns_wait(osh_turns *t, pthread_mutex_t *lock, int64_t ticket);
/* Ends the turn of the caller's ticket and wakes only the thread with the next ticket. The caller
 * holds the lock and has the turn. */
void osh_turns_pass(osh_turns *t);
#endif
