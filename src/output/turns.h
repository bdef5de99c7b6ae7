/* turns.h - threads that work out of order and take turns in order: each holds a ticket and waits for its turn. */
#ifndef OSH_TURNS_H
#define OSH_TURNS_H
#include <pthread.h>
#include <stdint.h>

typedef struct osh_turn osh_turn;
typedef struct osh_turns { // {0} is a beginning; all of it under the lock of its owner
    int64_t next, now;     // ticket to give out; whose turn it is
    osh_turn *waiting;     // view: on the stacks of those that wait
} osh_turns;

void osh_turns_wait(osh_turns *t, pthread_mutex_t *lock, int64_t ticket); // with the lock, which is let go meanwhile
void osh_turns_pass(osh_turns *t); // with the lock, and the turn: to the next ticket; of many that wait it alone wakes
#endif
