/* watch.h - memory that a rank shares with its guard (cli/guard.c). The memory lists the guards of
 * a node, so that each guard notices when another guard ends. If a rank is killed, the launcher
 * should end all other ranks. If the launcher hangs, the guards end them. */
#ifndef OSH_RANKS_WATCH_H
#define OSH_RANKS_WATCH_H
#include <stdatomic.h>
#include <sys/types.h>

#include "base/base.h"

/* Identifies a process, even if its number is later used for another process. */
typedef struct osh_process {
    pid_t pid;
    uint64_t start; // start time of the process, in ticks since the system's start; 0: not known
} osh_process;

/* OSH_WHERE_BYTES: size of a text that names a rank, its node and its work.
 * OSH_PEERS: largest number of ranks of a node that watch each other. */
enum { OSH_WHERE_BYTES = 1024, OSH_PEERS = 256 };
typedef struct osh_watch { // memory of a rank and its guard
    char where[OSH_WHERE_BYTES];
    atomic_int n_peers; // 0: there is nothing to watch
    osh_process peers[OSH_PEERS]; // guards of the node's other ranks
} osh_watch;

/* Sets *to to process `pid`; to->start is 0 if there is no such process here. */
void osh_process_find(osh_process *to, pid_t pid);
/* True if the process runs. False if the process has ended, even if it is still a zombie because
 * its parent has not collected it. */
bool osh_process_runs(const osh_process *p);
/* Waits, at most a second, until the readers of standard output and error have read all written
 * bytes. A launcher that ends a job may drop the bytes that are still in a pipe. */
void osh_watch_drain(void);
#endif
