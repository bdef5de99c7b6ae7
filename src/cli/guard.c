/* guard.c - a process that watches a rank of a job under mpirun or srun. A rank that is killed says
 * nothing, and its launcher ends the other ranks at once. So before MPI begins, the process splits:
 *
 *   launcher ── guard ── rank     the guard waits; the rank does the work
 *
 * If a signal other than SIGTERM and SIGINT ends the rank, the guard prints one message with the
 * rank, its node and its phase. It ends by the same signal, so that the launcher ends the job. It
 * passes SIGTERM and SIGINT on to the rank. If the guard is killed, the system kills the rank. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

static pid_t guarded; // process of the rank

static void guard_pass_on(int sig) { kill(guarded, sig); }

/* Waits for the rank, and ends as it has ended. Does not return. */
static void guard_wait(const char *where)
{
    struct sigaction pass = {.sa_handler = guard_pass_on, .sa_flags = (int)SA_RESTART};
    char text[OSH_WHERE_BYTES + 128];
    int status = 0;
    sigaction(SIGINT, &pass, NULL);
    sigaction(SIGTERM, &pass, NULL);
    while (waitpid(guarded, &status, 0) < 0 && errno == EINTR) continue;
    if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
    bool asked = WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGINT;
    int n = snprintf(text, sizeof text, "oneshot: %s: ended by signal %d (%s)\n",
                     *where ? where : "a rank, before it has met the others", WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
    ssize_t unused = asked ? 0 : write(STDERR_FILENO, text, (size_t)n);
    (void)unused;
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    _exit(1);
}

osh_status osh_guard_start(osh_ctx *cx, char **where)
{
    osh_status rc = OSH_OK;
    pid_t guard = getpid();
    char *shared = mmap(NULL, OSH_WHERE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    if (shared == MAP_FAILED) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to watch a rank");
    guarded = fork();
    if (guarded < 0) OSH_FAIL(cx, OSH_E_NOMEM, "cannot start a process: %s", strerror(errno));
    if (guarded > 0) guard_wait(shared);
    setpgid(0, 0); // a signal for the guard's group comes once, from the guard
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard) _exit(1); // the guard was killed before prctl
    *where = shared;
done:
    return rc;
}
