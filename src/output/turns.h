/* turns.h - lets threads that work out of order take turns in order. Each holds a ticket and waits
 * for its turn. */
#ifndef OSH_TURNS_H
#define OSH_TURNS_H
#include <pthread.h>
#include <stdint.h>

typedef struct osh_turn osh_turn;
typedef struct osh_turns { // initial value: {0}; protected by the owner's lock
    int64_t next, now;     // next ticket to give out; ticket that has the turn
    osh_turn *waiting;     // view: on the stacks of the threads that wait
} osh_turns;

/* Waits for the turn of a ticket. The caller holds the lock, which is released while it waits. */
void osh_turns_wait(osh_turns *t, pthread_mutex_t *lock, int64_t ticket);
/* Passes the turn to the next ticket, and wakes only its thread. The caller holds the lock and has
 * the turn. */
void osh_turns_pass(osh_turns *t);
#endif
