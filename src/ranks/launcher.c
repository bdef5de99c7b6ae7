/* launcher.c - recognizes launchers by the environment variables that they set for each process:
 *
 *   mpirun of Open MPI    OMPI_COMM_WORLD_SIZE
 *   mpiexec of MPICH      PMI_RANK, PMI_SIZE; also srun --mpi=pmi2
 *   srun --mpi=pmix       PMIX_RANK, SLURM_STEP_NUM_TASKS
 *   srun without MPI      SLURM_STEP_NUM_TASKS only
 *
 * A batch script of Slurm is one process: it has SLURM_NTASKS, but not SLURM_STEP_NUM_TASKS. */
#include "ranks/launcher.h"

#include <stdlib.h>

enum { MOST_RANKS = 1 << 20 };

static osh_status launcher_number(osh_ctx *cx, int *to, const char *name, osh_env_fn env)
{
    const char *text = env(name);
    char *end = NULL;
    *to = 0;
    if (!text) return OSH_OK;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > MOST_RANKS)
        return osh_fail(cx, OSH_E_USAGE,
                        "the variable %s is '%s', want a number of processes from 1 to %d", name,
                        text, MOST_RANKS);
    *to = (int)n;
    return OSH_OK;
}

osh_status osh_launcher_find(osh_ctx *cx, osh_launcher *to, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    int open = 0, pmi = 0, slurm = 0;
    OSH_TRY(launcher_number(cx, &open, "OMPI_COMM_WORLD_SIZE", env));
    OSH_TRY(launcher_number(cx, &pmi, "PMI_SIZE", env));
    OSH_TRY(launcher_number(cx, &slurm, "SLURM_STEP_NUM_TASKS", env));
    *to = (osh_launcher){.size = 1};
    if (open > 1)
        *to = (osh_launcher){"mpirun of Open MPI", open, "liboneshot_mpi_openmpi.so", "Open MPI"};
    else if (!open && env("PMI_RANK") && pmi > 1)
        *to = (osh_launcher){"mpiexec of MPICH", pmi, "liboneshot_mpi_mpich.so", "MPICH"};
    else if (!open && !pmi && slurm > 1 && env("PMIX_RANK"))
        *to = (osh_launcher){"srun --mpi=pmix", slurm, "liboneshot_mpi_openmpi.so", "Open MPI"};
    else if (!open && !pmi && slurm > 1)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "srun has started %d processes without MPI, which would all write the same "
                 "output: want srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH), or --ntasks=1",
                 slurm);
done:
    return rc;
}
