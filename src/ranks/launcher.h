/* launcher.h - recognizes launchers of MPI (mpirun, srun) by their environment variables. */
#ifndef OSH_LAUNCHER_H
#define OSH_LAUNCHER_H
#include "base/base.h"

typedef struct osh_launcher {
    /* name of the launcher, such as "mpirun of Open MPI"; NULL: there is no launcher, or the
     * launcher started only one process */
    const char *name;
    int size; // number of processes that the launcher has started, according to its variables
    /* file name of the module for the launcher's MPI; NULL: there is no such module */
    const char *module;
    const char *library; // name of the launcher's MPI library
} osh_launcher;
/* Finds the launcher by the environment variables, and describes it in *to. Fails if a variable of
 * a launcher has an invalid number, or if srun has started several tasks without MPI. */
osh_status osh_launcher_find(osh_ctx *cx, osh_launcher *to, osh_env_fn env);
#endif
