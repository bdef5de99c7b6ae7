/* ranks.h - several processes that do one job together, each a "rank" of MPI. A launcher (mpirun,
 * srun) starts them with the same command. Rank 0 owns what exists once: messages, log, journal and
 * the output directory.
 *
 * A pointer NULL is a job of one process: rank 0 of 1. All functions accept NULL and then do
 * nothing. Only the main thread calls them.
 *
 * A rank that fails tells rank 0 (osh_ranks_fail). Rank 0 hears it in every function that waits and
 * in osh_ranks_hear, and then fails with the text of that rank. */
#ifndef OSH_RANKS_H
#define OSH_RANKS_H
#include "base/base.h"
#include "ranks/watch.h"

typedef struct osh_ranks osh_ranks;
typedef struct osh_rank { // one rank
    char node[256];   // name of its node
    int local, n_local; // its number among the ranks of its node, and how many these are
    int n_cores;      // processors that the rank may use
    int n_alike;      // ranks of the node that may use exactly the same processors, with this one
    uint64_t program; // checksum of the program's file
    osh_process guard; // parent of its process
} osh_rank;

bool osh_ranks_are_started(osh_env_fn env); // true if the environment names several processes
/* If the environment says that a launcher has started several processes, opens the module of the
 * launcher's MPI and meets the other ranks. Otherwise sets *out to NULL. Fails if the module is
 * missing, if the launcher has started other processes than MPI finds, or if a rank runs another
 * program file. *out (own) is also set after a failure of the last kind. */
osh_status osh_ranks_open(osh_ctx *cx, osh_ranks **out, osh_env_fn env);
/* Ends MPI. failed: true if the job failed; then all other processes end at once. Otherwise waits
 * for all ranks. */
void osh_ranks_close(osh_ctx *cx, osh_ranks *r, bool failed);
int osh_ranks_me(const osh_ranks *r); // number of this rank, from 0
int osh_ranks_n(const osh_ranks *r);  // number of ranks
const osh_rank *osh_ranks_at(const osh_ranks *r, int rank); // r must not be NULL
/* Items that are dealt to the ranks in turn: item i belongs to rank i modulo the number of ranks.
 * osh_deal_owner returns the rank of an item, osh_deal_local the item's index among the items of
 * its rank. osh_deal_n returns how many of n items this rank has, osh_deal_item the item with index
 * `local` among them. */
int osh_deal_owner(const osh_ranks *r, int64_t item);
int64_t osh_deal_local(const osh_ranks *r, int64_t item);
int64_t osh_deal_n(const osh_ranks *r, int64_t n);
int64_t osh_deal_item(const osh_ranks *r, int64_t local);
int osh_ranks_per_node(const osh_ranks *r); // most ranks on one node
const char *osh_ranks_version(const osh_ranks *r); // version of MPI; r must not be NULL
/* Returns the threads of a rank for which no number is given: its processors, divided by the ranks
 * that share them. All ranks get the same number: the smallest. */
int osh_ranks_threads(const osh_ranks *r);

/* Sets the work that the message of osh_ranks_fail names. `of` may be NULL. */
void osh_ranks_phase(osh_ranks *r, const char *phase, const char *of);
/* From now on, writes rank, node and work to to->where (view). Names the guards of the node's other
 * ranks there, until all ranks have come to osh_ranks_close. */
void osh_ranks_watch(osh_ranks *r, osh_watch *to);
/* Called at the end of a job, with its status and the error in cx. A rank other than 0 that has
 * failed passes the error to rank 0 and waits some seconds, in which rank 0 prints the error and
 * ends this process. If rank 0 does not, returns, and the error of cx names rank, node and phase.
 * Does nothing on rank 0, and if rc is 0. */
void osh_ranks_fail(osh_ctx *cx, osh_ranks *r, osh_status rc);
/* Rank 0: fails with the error of another rank that has failed. */
osh_status osh_ranks_hear(osh_ctx *cx, osh_ranks *r);
/* Fails on each rank whose text differs from that of rank 0, and then on rank 0. The message has
 * the first line that differs. `what` names the text: "rank 1 has other WHAT than rank 0". */
osh_status osh_ranks_agree(osh_ctx *cx, osh_ranks *r, const char *what, const char *text);

/* Transfers of n bytes. They wait until the bytes have arrived, and sleep meanwhile. */
osh_status osh_ranks_broadcast(osh_ctx *cx, osh_ranks *r, void *bytes, size_t n, int root);
osh_status osh_ranks_send(osh_ctx *cx, osh_ranks *r, const void *from, size_t n, int to);
osh_status osh_ranks_recv(osh_ctx *cx, osh_ranks *r, void *to, size_t n, int from);
/* Sets all [ranks * n] on rank 0 to the bytes of all ranks, in their order. */
osh_status osh_ranks_gather(osh_ctx *cx, osh_ranks *r, void *all, const void *mine, size_t n);
osh_status osh_ranks_barrier(osh_ctx *cx, osh_ranks *r);
/* Sets *n to the largest number of all ranks. */
osh_status osh_ranks_largest(osh_ctx *cx, osh_ranks *r, int64_t *n);
/* OSH_RANKS_BYTES: most bytes that moving statistics, and MPI while it moves them, need.
 * OSH_MPI_BYTES: bytes of the libraries of MPI, for a plan that has not opened them. */
enum { OSH_RANKS_BYTES = 3 << 20, OSH_MPI_BYTES = 12 << 20 };
/* Returns the bytes that this rank has sent so far. A broadcast counts once for each receiver. */
int64_t osh_ranks_sent(const osh_ranks *r);
/* Returns the seconds in which this rank has waited so far, for transfers and for other ranks. */
double osh_ranks_waited(const osh_ranks *r);

/* Messages to rank 0, which it takes when it likes: records and results. A rank's messages arrive
 * in the order in which they were posted. osh_ranks_post begins to send and takes ownership of
 * `bytes` (osh_alloc), also after a failure. osh_ranks_posted frees the messages that have
 * arrived, and returns how many have not. */
osh_status osh_ranks_post(osh_ctx *cx, osh_ranks *r, void *bytes, size_t n);
osh_status osh_ranks_posted(osh_ctx *cx, osh_ranks *r, int *n_left);
osh_status osh_ranks_post_wait(osh_ctx *cx, osh_ranks *r, int most); // until at most `most` are left
/* Rank 0: takes a message that has come: of rank *from, or, if *from < 0, of any rank, and sets
 * *from. Sets *bytes (own) to NULL if there is none. If `wait` is true, waits for one. */
osh_status osh_ranks_take(osh_ctx *cx, osh_ranks *r, void **bytes, size_t *n, int *from, bool wait);
#endif
