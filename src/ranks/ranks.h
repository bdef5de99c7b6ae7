/* ranks.h - several processes that do one job together, each a "rank" of MPI. A launcher (mpirun,
 * srun) starts them with the same command. Only rank 0 writes messages, the log, the journal and
 * the output directory.
 *
 * NULL instead of an osh_ranks means a job of one process, which is rank 0 of 1. All functions
 * accept NULL and then do nothing. Only the main thread calls them.
 *
 * A rank that fails sends its error to rank 0 (osh_ranks_fail). Rank 0 receives it in
 * osh_ranks_hear and in every function that waits, and then fails with this error. */
#ifndef OSH_RANKS_H
#define OSH_RANKS_H
#include "base/base.h"
#include "ranks/watch.h"

typedef struct osh_ranks osh_ranks;
typedef struct osh_rank { // one rank
    char node[256];   // name of the rank's node
    /* local: number of this rank among the ranks of its node; n_local: number of ranks of the
     * node. */
    int local, n_local;
    int n_cores;      // processors that the rank may use
    /* Number of ranks of the node that may use exactly these processors, including this rank. */
    int n_alike;
    uint64_t program; // checksum of the program's file
    osh_process guard; // guard of the rank: the parent of the rank's process
} osh_rank;

/* True if a launcher has started several processes, according to the environment. */
bool osh_ranks_are_started(osh_env_fn env);
/* If the environment says that a launcher has started several processes, opens the module of the
 * launcher's MPI and connects to the other ranks. Otherwise sets *out to NULL. Fails if the module
 * is missing. Fails if MPI finds another number of processes than the launcher has started. Also
 * fails if a rank runs another program file; in this case *out (own) is set although the function
 * fails. */
osh_status osh_ranks_open(osh_ctx *cx, osh_ranks **out, osh_env_fn env);
/* Ends MPI. If `failed` is true, all other processes are ended at once. Otherwise waits for all
 * ranks. */
void osh_ranks_close(osh_ctx *cx, osh_ranks *r, bool failed);
int osh_ranks_me(const osh_ranks *r); // returns the number of this rank, from 0
int osh_ranks_n(const osh_ranks *r);  // returns the number of ranks
const osh_rank *osh_ranks_at(const osh_ranks *r, int rank); // r must not be NULL
/* Items are divided among the ranks in turn: item i belongs to rank i modulo the number of ranks.
 * osh_deal_owner: returns the rank of an item.
 * osh_deal_local: returns the index of an item among the items of its rank.
 * osh_deal_n: returns the number of items of this rank, if there are n items.
 * osh_deal_item: returns the item of this rank with index `local`. */
int osh_deal_owner(const osh_ranks *r, int64_t item);
int64_t osh_deal_local(const osh_ranks *r, int64_t item);
int64_t osh_deal_n(const osh_ranks *r, int64_t n);
int64_t osh_deal_item(const osh_ranks *r, int64_t local);
int osh_ranks_per_node(const osh_ranks *r); // returns the largest number of ranks on one node
/* Returns the version of MPI. r must not be NULL. */
const char *osh_ranks_version(const osh_ranks *r);
/* Returns the default number of threads of a rank: its processors, divided by the ranks that share
 * them. All ranks get the smallest of these numbers. */
int osh_ranks_threads(const osh_ranks *r);

/* Sets the name of the current work, for the message of osh_ranks_fail. `of` may be NULL. */
void osh_ranks_phase(osh_ranks *r, const char *phase, const char *of);
/* From now on, writes rank, node and current work to to->where (view), for the guard of this rank.
 * Also stores the guards of the node's other ranks in *to, until all ranks have called
 * osh_ranks_close. */
void osh_ranks_watch(osh_ranks *r, osh_watch *to);
/* Called at the end of a job, with the status of the job and the error in cx. On a rank other than
 * 0 that has failed, sends the error to rank 0 and waits some seconds. In this time rank 0 prints
 * the error and ends this process. If rank 0 does not do so, the function returns, and the error of
 * cx names rank, node and phase. Does nothing on rank 0, or if rc is 0. */
void osh_ranks_fail(osh_ctx *cx, osh_ranks *r, osh_status rc);
/* Rank 0: fails with the error of another rank that has failed. */
osh_status osh_ranks_hear(osh_ctx *cx, osh_ranks *r);
/* Compares a text of each rank. Fails on each rank whose text differs from the text of rank 0, and
 * then on rank 0. The message has the first line that differs. `what` describes the text in the
 * message "rank 1 has other WHAT than rank 0". */
osh_status osh_ranks_agree(osh_ctx *cx, osh_ranks *r, const char *what, const char *text);

/* The next functions transfer n bytes. They return when the bytes have arrived, and sleep while
 * they wait. root: rank that sends the bytes. */
osh_status osh_ranks_broadcast(osh_ctx *cx, osh_ranks *r, void *bytes, size_t n, int root);
osh_status osh_ranks_send(osh_ctx *cx, osh_ranks *r, const void *from, size_t n, int to);
osh_status osh_ranks_recv(osh_ctx *cx, osh_ranks *r, void *to, size_t n, int from);
/* Sets all [ranks * n] on rank 0 to the bytes of all ranks, in the order of the ranks. */
osh_status osh_ranks_gather(osh_ctx *cx, osh_ranks *r, void *all, const void *mine, size_t n);
osh_status osh_ranks_barrier(osh_ctx *cx, osh_ranks *r);
/* Sets *n of each rank to the largest *n of all ranks. */
osh_status osh_ranks_largest(osh_ctx *cx, osh_ranks *r, int64_t *n);
/* OSH_RANKS_BYTES: upper bound of the bytes for exchanging statistics, including the memory of MPI
 * during the exchange.
 * OSH_MPI_BYTES: bytes of the libraries of MPI, for a plan that has not opened them. */
enum { OSH_RANKS_BYTES = 3 << 20, OSH_MPI_BYTES = 12 << 20 };
/* Returns the bytes that this rank has sent so far. A broadcast counts once for each receiver. */
int64_t osh_ranks_sent(const osh_ranks *r);
/* Returns the seconds in which this rank has waited so far, for transfers and for other ranks. */
double osh_ranks_waited(const osh_ranks *r);

/* Functions for messages to rank 0, with records and results. Rank 0 takes the messages when it has
 * time. The messages of a rank arrive in the order in which they were posted. osh_ranks_post begins
 * to send `bytes` (from osh_alloc) and takes ownership of `bytes`, also after a failure.
 * osh_ranks_posted frees the messages that have arrived, and sets *n_left to the number of messages
 * that have not arrived. */
osh_status osh_ranks_post(osh_ctx *cx, osh_ranks *r, void *bytes, size_t n);
osh_status osh_ranks_posted(osh_ctx *cx, osh_ranks *r, int *n_left);
/* Waits until at most `most` messages are not sent yet. */
osh_status osh_ranks_post_wait(osh_ctx *cx, osh_ranks *r, int most);
/* Rank 0: takes a message of rank *from that has arrived. If *from < 0, takes a message of any rank
 * and sets *from. Sets *bytes (own) to NULL if there is no message. If `wait` is true, waits for a
 * message. */
osh_status osh_ranks_take(osh_ctx *cx, osh_ranks *r, void **bytes, size_t *n, int *from, bool wait);
#endif
