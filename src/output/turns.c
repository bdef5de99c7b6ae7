/* turns.c - lets threads wait for their turns. The waiting threads are in a list, and each has its
 * own condition variable. */
#include "output/turns.h"

struct osh_turn {
    osh_turn *next;
    int64_t ticket;
    pthread_cond_t came;
};

void osh_turns_wait(osh_turns *t, pthread_mutex_t *lock, int64_t ticket)
{
    if (t->now == ticket) return;
    osh_turn me = {.next = t->waiting, .ticket = ticket};
    pthread_cond_init(&me.came, NULL);
    t->waiting = &me;
    while (t->now != ticket) pthread_cond_wait(&me.came, lock);
    osh_turn **at = &t->waiting;
    while (*at != &me) at = &(*at)->next;
    *at = me.next;
    pthread_cond_destroy(&me.came);
}

void osh_turns_pass(osh_turns *t)
{
    t->now++;
    for (osh_turn *w = t->waiting; w; w = w->next)
        if (w->ticket == t->now) pthread_cond_signal(&w->came);
}
