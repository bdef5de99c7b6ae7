/* watch.h - what a rank and its guard (cli/guard.c) share, so that the guards of a node notice each
 * other's end. A launcher ends all ranks if one is killed. If the launcher hangs, the guards do. */
#ifndef OSH_RANKS_WATCH_H
#define OSH_RANKS_WATCH_H
#include <stdatomic.h>
#include <sys/types.h>

#include "base/base.h"

typedef struct osh_process { // identifies a process also after its number is used again
    pid_t pid;
    uint64_t start; // time of its start, in ticks since the system's start; 0: not known
} osh_process;

/* OSH_WHERE_BYTES: size of a text that names a rank, its node and its work.
 * OSH_PEERS: most ranks of a node that watch each other. */
enum { OSH_WHERE_BYTES = 1024, OSH_PEERS = 256 };
typedef struct osh_watch { // memory of a rank and its guard
    char where[OSH_WHERE_BYTES];
    atomic_int n_peers; // 0: there is nothing to watch
    osh_process peers[OSH_PEERS]; // guards of the node's other ranks
} osh_watch;

/* Sets *to to process `pid`; its start is 0 if there is no such process here. */
void osh_process_find(osh_process *to, pid_t pid);
/* True if the process runs. False if it has ended, also if its parent has not asked for it yet. */
bool osh_process_runs(const osh_process *p);
/* Waits until the readers of standard output and error have taken what was written, at most a
 * second. A launcher may drop what is still in a pipe when it ends a job. */
void osh_watch_drain(void);
#endif
