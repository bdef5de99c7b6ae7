/* guard.c - starts a process that watches a rank of a job under mpirun or srun. A killed rank
 * cannot print a message, and its launcher ends the other ranks at once. So before MPI begins, the
 * process splits into two:
 *
 *   launcher ── guard ── rank     the guard waits; the rank does the work
 *
 * If a signal other than SIGTERM and SIGINT ends the rank, the guard prints one message with the
 * rank, its node and its phase. The guard ends by the same signal, so that the launcher ends the
 * job. The guard passes SIGTERM and SIGINT on to the rank. If the guard is killed, the system kills
 * the rank.
 *
 * A launcher can hang (mpirun of Open MPI 4.1 sometimes does) and leave the other ranks waiting. So
 * if the guard of another rank on the node has ended, each other guard waits GRACE_S seconds for
 * the launcher to end it, and then kills its own rank. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

enum { GRACE_S = 5 };

static pid_t guarded; // process of the rank

static void guard_pass_on(int sig) { kill(guarded, sig); }

static bool guard_misses_one(const osh_watch *w)
{
    int n = atomic_load(&w->n_peers);
    for (int k = 0; k < n; k++)
        if (!osh_process_runs(&w->peers[k])) return true;
    return false;
}

/* Waits for the rank, and returns the status of waitpid. If the rank still runs long after another
 * guard has ended, kills the rank and sets *killed to true. SIGCHLD must be blocked. */
static int guard_follow(const osh_watch *w, const sigset_t *child, bool *killed)
{
    const struct timespec step = {.tv_nsec = 500000000};
    int status = 0;
    double missed = 0; // time at which another guard was found to have ended; 0: none
    *killed = false;
    while (waitpid(guarded, &status, WNOHANG) != guarded) {
        sigtimedwait(child, NULL, &step);
        if (!missed && guard_misses_one(w)) missed = osh_now();
        if (missed && !atomic_load(&w->n_peers)) missed = 0;
        if (!missed || osh_now() - missed < GRACE_S) continue;
        kill(guarded, SIGKILL);
        *killed = true;
    }
    return status;
}

/* Waits for the rank, then ends with the same status or signal. Does not return. */
static void guard_wait(const osh_watch *w, const sigset_t *child)
{
    struct sigaction pass = {.sa_handler = guard_pass_on, .sa_flags = (int)SA_RESTART};
    char text[OSH_WHERE_BYTES + 128];
    bool killed;
    sigaction(SIGINT, &pass, NULL);
    sigaction(SIGTERM, &pass, NULL);
    int status = guard_follow(w, child, &killed);
    if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
    bool asked = killed || WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGINT;
    int n = snprintf(text, sizeof text, "oneshot: %s: ended by signal %d (%s)\n",
                     *w->where ? w->where : "a rank, before it connected to the others",
                     WTERMSIG(status), strsignal(WTERMSIG(status)));
    ssize_t unused = asked ? 0 : write(STDERR_FILENO, text, (size_t)n);
    (void)unused;
    if (!asked) osh_watch_drain();
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    _exit(1);
}

osh_status osh_guard_start(osh_ctx *cx, osh_watch **watch)
{
    osh_status rc = OSH_OK;
    pid_t guard = getpid();
    sigset_t child, before;
    osh_watch *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to watch a rank");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    guarded = fork();
    if (guarded < 0) OSH_FAIL(cx, OSH_E_NOMEM, "cannot start a process: %s", strerror(errno));
    if (guarded > 0) guard_wait(shared, &child);
    sigprocmask(SIG_SETMASK, &before, NULL);
    /* The rank gets a process group of its own, so a signal for the guard's group reaches the rank
     * only once, through the guard. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard) _exit(1); // the guard was killed before prctl, so the rank ends, too
    *watch = shared;
done:
    return rc;
}
