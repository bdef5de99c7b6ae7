/* launcher.h - recognizes launchers of MPI by their environment. */
#ifndef OSH_LAUNCHER_H
#define OSH_LAUNCHER_H
#include "base/base.h"

typedef struct osh_launcher {
    const char *name;   // "mpirun of Open MPI"; NULL: no launcher, or one process
    int size; // number of processes that the launcher has started, according to the environment
    const char *module; // file name of the module; NULL: no module serves this launcher
    const char *library; // name of the MPI library
} osh_launcher;
/* Reads the environment. Fails if a variable of a launcher has an invalid number, or if srun has
 * started several tasks without MPI. */
osh_status osh_launcher_find(osh_ctx *cx, osh_launcher *to, osh_env_fn env);
#endif
