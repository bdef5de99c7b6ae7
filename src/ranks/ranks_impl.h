/* ranks_impl.h - declares the state of a job of several ranks, for the files of src/ranks. */
#ifndef OSH_RANKS_IMPL_H
#define OSH_RANKS_IMPL_H
#include "ranks/ranks.h"
#include "ranks/table.h"

/* Tags of transfers. Messages with a tag below 0 are received after a probe (table.h). */
enum { OSH_TAG_ORDER = 1, OSH_TAG_POST = -1, OSH_TAG_FAIL = -2 };

/* a message that is being sent to rank 0: first its length, then its bytes */
typedef struct osh_post {
    struct osh_post *next;
    uint64_t n;
    void *bytes;     // own
    void **requests; // own [n_requests]
    int n_requests;
} osh_post;

struct osh_ranks {
    const osh_ranks_table *t; // view: functions of the module, which is never closed
    osh_ranks_facts facts;
    osh_rank *at;        // own [size]
    char phase[256];     // name of the current work of this rank, for messages
    osh_watch *watch;    // view: argument `to` of osh_ranks_watch; NULL: not called yet
    osh_post *first, *last; // own: list of messages in the order in which they were posted
    int64_t sent;        // bytes
    double waited;       // seconds
    char told[4096];     // message of osh_ranks_fail
};

/* Waits until a transfer is complete. Fails after an error of MPI, an interrupt, or a failure of
 * another rank. MPI may then still use the memory of the transfer, so the job must end after a
 * failure. */
osh_status osh_ranks_wait(osh_ctx *cx, osh_ranks *r, void **request);
/* if `code` is not 0, fails with the text that MPI has for this code */
osh_status osh_ranks_check(osh_ctx *cx, const osh_ranks *r, int code);
#endif
