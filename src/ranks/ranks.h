/* ranks.h - lets several processes do one job together. Each process is a "rank" of MPI. A launcher
 * (mpirun, srun) starts them with the same command. Only rank 0 writes messages, the log, the
 * journal and the output directory.
 *
 * If the argument osh_ranks is NULL, the job has one process, which is rank 0 of 1, and nothing is
 * transferred. Four functions do not accept NULL: osh_ranks_at, osh_ranks_version, osh_ranks_watch
 * and osh_ranks_post. Only the main thread calls the functions of this file.
 *
 * A rank that fails sends its error to rank 0 (osh_ranks_fail). Rank 0 receives it in
 * osh_ranks_hear and in every function that waits. These functions then fail with this error. */
#ifndef OSH_RANKS_H
#define OSH_RANKS_H
#include "base/base.h"
#include "ranks/watch.h"

typedef struct osh_ranks osh_ranks;
typedef struct osh_rank { // one rank
    char node[256];   // name of the rank's node
    /* local: number of this rank among the ranks of its node, from 0. n_local: number of ranks on
     * this node. */
    int local, n_local;
    int n_cores;      // number of processors that the rank may use
    /* Number of ranks on this node that may use exactly the processors that this rank may use,
     * including this rank. */
    int n_alike;
    uint64_t program; // checksum of the program's file
    osh_process guard; // guard (cli/guard.c), the parent process of the rank
} osh_rank;

/* True if a launcher has started several processes, according to the environment variables. */
bool osh_ranks_are_started(osh_env_fn env);
/* If a launcher has started several processes according to the environment variables, connects to
 * the other ranks, with the module for the launcher's MPI. If not, sets *out to NULL.
 * Fails if the module is missing, or if MPI finds another number of processes than the launcher has
 * started. Also fails if a rank runs another program file; in this case, *out (own) is set although
 * the function fails. */
osh_status osh_ranks_open(osh_ctx *cx, osh_ranks **out, osh_env_fn env);
/* Ends MPI. If `failed` is true, all other processes are ended at once. Otherwise waits for all
 * ranks. */
void osh_ranks_close(osh_ctx *cx, osh_ranks *r, bool failed);
int osh_ranks_me(const osh_ranks *r); // returns the number of this rank, counted from 0
int osh_ranks_n(const osh_ranks *r);  // returns the number of ranks
/* Returns data about a rank (view). r must not be NULL. */
const osh_rank *osh_ranks_at(const osh_ranks *r, int rank);
/* Each item belongs to one rank: item i belongs to rank i modulo the number of ranks.
 * osh_deal_owner: returns the rank to which the item belongs.
 * osh_deal_local: returns the index of the item among the items of its rank.
 * osh_deal_n: returns the number of items of this rank, if there are n items in all.
 * osh_deal_item: returns the item of this rank that has the index `local`. */
int osh_deal_owner(const osh_ranks *r, int64_t item);
int64_t osh_deal_local(const osh_ranks *r, int64_t item);
int64_t osh_deal_n(const osh_ranks *r, int64_t n);
int64_t osh_deal_item(const osh_ranks *r, int64_t local);
int osh_ranks_per_node(const osh_ranks *r); // returns the largest number of ranks on one node
/* Returns the version of MPI. r must not be NULL. */
const char *osh_ranks_version(const osh_ranks *r);
/* Returns the default number of threads of a rank, which is the number of its processors divided by
 * the number of ranks that share them. All ranks get the smallest of these numbers. */
int osh_ranks_threads(const osh_ranks *r);

/* Sets the name of the current work, which osh_ranks_fail puts into its message. `of` may be
 * NULL. */
void osh_ranks_phase(osh_ranks *r, const char *phase, const char *of);
/* Fills *to with the data for the guard of this rank (cli/guard.c). r keeps a view of *to. From now
 * on, osh_ranks_phase also updates the member `where`, a text that names the rank, the node and the
 * current work. Until all ranks have called osh_ranks_close, *to also lists the guards of the
 * node's other ranks. */
void osh_ranks_watch(osh_ranks *r, osh_watch *to);
/* Reports a failed job. rc: status of the job; the error is in cx. A rank other than 0 sends the
 * error to rank 0 and waits some seconds. In this time, rank 0 prints the error and ends this
 * process. If rank 0 does not do so, the function returns, and the error in cx then names the rank,
 * the node and the phase. Does nothing on rank 0, or if rc is 0. */
void osh_ranks_fail(osh_ctx *cx, osh_ranks *r, osh_status rc);
/* Rank 0: if another rank has failed, fails with the error of that rank. */
osh_status osh_ranks_hear(osh_ctx *cx, osh_ranks *r);
/* Compares a text of each rank with the text of rank 0. Fails on each rank whose text differs, and
 * then on rank 0. The message has the first line that differs. what: words for the message, such as
 * "another program" in "rank 1 has another program than rank 0". */
osh_status osh_ranks_agree(osh_ctx *cx, osh_ranks *r, const char *what, const char *text);

/* The next functions transfer n bytes between ranks. They return when the bytes have arrived, and
 * sleep while they wait. root: rank that sends the bytes to all others. */
osh_status osh_ranks_broadcast(osh_ctx *cx, osh_ranks *r, void *bytes, size_t n, int root);
osh_status osh_ranks_send(osh_ctx *cx, osh_ranks *r, const void *from, size_t n, int to);
osh_status osh_ranks_recv(osh_ctx *cx, osh_ranks *r, void *to, size_t n, int from);
/* Collects n bytes of each rank on rank 0. all [ranks * n]: set on rank 0, in the order of the
 * ranks. mine [n]: the bytes of this rank. */
osh_status osh_ranks_gather(osh_ctx *cx, osh_ranks *r, void *all, const void *mine, size_t n);
/* Waits until all ranks have called this function. */
osh_status osh_ranks_barrier(osh_ctx *cx, osh_ranks *r);
/* Sets *n on each rank to the largest *n of all ranks. */
osh_status osh_ranks_largest(osh_ctx *cx, osh_ranks *r, int64_t *n);
/* OSH_RANKS_BYTES: upper bound of the bytes that an exchange of statistics needs, including the
 * memory of MPI.
 * OSH_MPI_BYTES: bytes of the libraries of MPI, for a plan that has not opened them. */
enum { OSH_RANKS_BYTES = 3 << 20, OSH_MPI_BYTES = 12 << 20 };
/* Returns the number of bytes that this rank has sent so far. A broadcast counts once for each
 * receiver. */
int64_t osh_ranks_sent(const osh_ranks *r);
/* Returns the seconds that this rank has waited so far, for transfers and for other ranks. */
double osh_ranks_waited(const osh_ranks *r);

/* The next functions send messages to rank 0, such as records and results. Rank 0 takes them when
 * it has time. The messages of a rank arrive in the order in which they were posted. osh_ranks_post
 * begins to send `bytes` (from osh_alloc), and takes ownership of `bytes`, even after a failure.
 * osh_ranks_posted frees the messages that are sent. It sets *n_left to the number of messages that
 * are not sent yet. */
osh_status osh_ranks_post(osh_ctx *cx, osh_ranks *r, void *bytes, size_t n);
osh_status osh_ranks_posted(osh_ctx *cx, osh_ranks *r, int *n_left);
/* Waits until at most `most` of the posted messages are not sent yet. */
osh_status osh_ranks_post_wait(osh_ctx *cx, osh_ranks *r, int most);
/* Only for rank 0. Takes a message that has arrived from rank *from. If *from < 0, takes a message
 * of any rank and sets *from to this rank. *bytes (own): the message, or NULL if there is none. If
 * `wait` is true, waits for a message. */
osh_status osh_ranks_take(osh_ctx *cx, osh_ranks *r, void **bytes, size_t *n, int *from, bool wait);
#endif
