/* ranks_impl.h - the state of a job of several ranks, for the files of this folder. */
#ifndef OSH_RANKS_IMPL_H
#define OSH_RANKS_IMPL_H
#include "ranks/ranks.h"
#include "ranks/table.h"

/* Tags of transfers. Messages with tags below 0 are probed (table.h). */
enum { OSH_TAG_ORDER = 1, OSH_TAG_POST = -1, OSH_TAG_FAIL = -2 };

typedef struct osh_post { // a message to rank 0 that is being sent: its length, then its bytes
    struct osh_post *next;
    uint64_t n;
    void *bytes;     // own
    void **requests; // own [n_requests]
    int n_requests;
} osh_post;

struct osh_ranks {
    const osh_ranks_table *t; // view: functions of the module, which stays open
    osh_ranks_facts facts;
    osh_rank *at;        // own [size]
    char phase[256];     // current work of this rank, for messages
    osh_watch *watch;    // view: memory of osh_ranks_watch; NULL: none
    osh_post *first, *last; // own: messages in the order in which they were posted
    int64_t sent;        // bytes
    double waited;       // seconds
    char told[4096];     // message of osh_ranks_fail
};

/* Waits until a transfer is complete. After a failure, an interrupt or a failure of another rank,
 * MPI may still use the memory of the transfer, so the job must end. */
osh_status osh_ranks_wait(osh_ctx *cx, osh_ranks *r, void **request);
osh_status osh_ranks_check(osh_ctx *cx, const osh_ranks *r, int code); // fails with MPI's text
#endif
