/* turns.h - lets threads that work out of order do a part of their work in order. Each has a ticket
 * and waits for its turn. */
#ifndef OSH_TURNS_H
#define OSH_TURNS_H
#include <pthread.h>
#include <stdint.h>

typedef struct osh_turn osh_turn;
typedef struct osh_turns { // {0} initializes it; protected by the owner's lock
    int64_t next, now;     // next: next ticket to give; now: ticket that has the turn
    osh_turn *waiting;     // view: list of waiting threads, on their stacks
} osh_turns;

/* Waits for the turn of a ticket. The caller holds the lock, which is released during the wait. */
void osh_turns_wait(osh_turns *t, pthread_mutex_t *lock, int64_t ticket);
/* Gives the turn to the next ticket and wakes only its thread. The caller holds the lock and has
 * the turn. */
void osh_turns_pass(osh_turns *t);
#endif
