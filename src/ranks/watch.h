/* watch.h - declares the memory that a rank shares with its guard (cli/guard.c). This memory lists
 * the guards of the other ranks of the node. So each guard notices when another guard ends. If a
 * rank is killed, the launcher should end all other ranks. If the launcher hangs, the guards end
 * them. */
#ifndef OSH_RANKS_WATCH_H
#define OSH_RANKS_WATCH_H
#include <stdatomic.h>
#include <sys/types.h>

#include "base/base.h"

/* A process. Its start time distinguishes it from a later process with the same number. */
typedef struct osh_process {
    pid_t pid;
    /* start time of the process, in ticks since the start of the system; 0: not known */
    uint64_t start;
} osh_process;

/* OSH_WHERE_BYTES: bytes of a text that names a rank, its node and its current work.
 * OSH_PEERS: largest number of other guards that a guard watches. */
enum { OSH_WHERE_BYTES = 1024, OSH_PEERS = 256 };
typedef struct osh_watch { // memory that a rank shares with its guard
    char where[OSH_WHERE_BYTES];
    atomic_int n_peers; // number of `peers`; 0: there is nothing to watch
    osh_process peers[OSH_PEERS]; // guard processes of the other ranks on this machine
} osh_watch;

/* Describes the process `pid` in *to. If there is no such process on this machine, to->start
 * is 0. */
void osh_process_find(osh_process *to, pid_t pid);
/* True if the process runs. False if it has ended. A zombie, which the parent has not collected
 * yet, has ended, too. */
bool osh_process_runs(const osh_process *p);
/* Waits until the readers of standard output and standard error have read all written bytes. Waits
 * at most about a second for each of the two readers. A launcher that ends a job may drop bytes
 * that are still in a pipe. */
void osh_watch_drain(void);
#endif
