/* signals.c - handles the signals that end or suspend the program: Ctrl-C, SIGTERM and Ctrl-Z. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/quote.h"
#include "cli/cli.h"

/* Data for the signal handlers: the context to interrupt, and messages for the user. If the job
 * still runs PATIENCE_MS after a signal, for example in a long library call, the handler prints the
 * messages and the process exits. This is safe, because a killed run can be continued. */
enum { PATIENCE_MS = 800 };
static struct {
    osh_ctx *cx; // the context of the command
    timer_t patience;
    /* Messages to print; `hint` is used if the directory `dir` exists. */
    char said[128], hint[PATH_MAX + 128], dir[PATH_MAX];
    bool live; // true: a live progress line may have to be erased first
} stop;

static void on_signal(int sig)
{
    (void)sig;
    osh_interrupt(stop.cx);
    timer_settime(stop.patience, 0, &(struct itimerspec){.it_value = {0, PATIENCE_MS * 1000000}},
                  NULL);
}

static void stderr_say(const char *text)
{
    ssize_t unused = write(STDERR_FILENO, text, strlen(text));
    (void)unused;
}

static void on_late(int sig)
{
    (void)sig;
    bool goes_on = *stop.dir && !access(stop.dir, F_OK);
    if (stop.live) stderr_say("\r\033[K");
    stderr_say(goes_on ? stop.hint : stop.said);
    _exit(1);
}

/* Erases the live progress line and stops the process (Ctrl-Z). Returns when the process
 * continues. */
static void on_suspend(int sig)
{
    (void)sig;
    stderr_say("\r\033[K");
    raise(SIGSTOP);
}

osh_status osh_signals_listen(osh_ctx *cx, const osh_options *run, const out_state *st, bool live)
{
    osh_status rc = OSH_OK;
    static const char *const what = "interrupted before the work was complete";
    struct sigevent tick = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct sigaction ask = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND},
                     end = {.sa_handler = on_late};
    struct sigaction rest = {.sa_handler = on_suspend, .sa_flags = (int)SA_RESTART}, was;
    char *dir = NULL, quoted[PATH_MAX]; // own

    if (run && (dir = osh_partial_dir(cx, run))) {
        snprintf(stop.dir, sizeof stop.dir, "%s", dir);
        if (st->json) osh_quote(quoted, sizeof quoted, dir);
        else osh_show(quoted, sizeof quoted, dir, NULL);
    }
    snprintf(stop.said, sizeof stop.said,
             st->json ? "{\"event\":\"error\",\"exit\":1,\"text\":\"%s\"}\n" : "oneshot: %s\n",
             what);
    if (dir && st->json)
        snprintf(stop.hint, sizeof stop.hint,
                 "{\"event\":\"error\",\"exit\":1,\"text\":\"%s\",\"resume\":\"%s\"}\n", what,
                 quoted);
    else if (dir)
        snprintf(stop.hint, sizeof stop.hint, "%shint: the same command continues from %s\n",
                 stop.said, quoted);
    else osh_error_clear(cx); // the run meets the same error and reports it
    /* Ranks other than 0 print no message. */
    if (osh_ranks_me(st->ranks)) stop.said[0] = stop.hint[0] = 0;
    osh_free(cx, dir);
    if (timer_create(CLOCK_MONOTONIC, &tick, &stop.patience))
        OSH_FAIL(cx, OSH_E_NOMEM, "cannot create a timer");
    stop.cx = cx, stop.live = live;
    if (stop.live && !sigaction(SIGTSTP, NULL, &was) && was.sa_handler == SIG_DFL)
        sigaction(SIGTSTP, &rest, NULL);
    sigaction(SIGALRM, &end, NULL);
    sigaction(SIGINT, &ask, NULL);
    sigaction(SIGTERM, &ask, NULL);
done:
    return rc;
}

void osh_signals_set(osh_ctx *cx) { stop.cx = cx; }
