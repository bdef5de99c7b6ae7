/* ranks.c - handles the start of a command that a launcher of MPI has started several times. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli.h"

extern char **environ;

static int text_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends the environment variables that change a run, sorted, one per line. */
static osh_status environment_tell(osh_ctx *cx, osh_buf *b)
{
    osh_status rc = OSH_OK;
    static const char *const names[] = {"ONESHOT_", "HF_", "OPENBLAS_", "TZ="};
    char **all = NULL; // own
    size_t n = 0;
    while (environ[n]) n++;
    OSH_NEW(cx, all, n);
    memcpy(all, environ, n * sizeof *all);
    qsort(all, n, sizeof *all, text_order);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strncmp(all[i], names[k], strlen(names[k])) && strncmp(all[i], "HF_TOKEN", 8))
                OSH_TRY(osh_buf_line(cx, b, "%s", all[i]));
done:
    osh_free(cx, all);
    return rc;
}

osh_status osh_line_meet(osh_ctx *cx, osh_ranks **out, int argc, char **argv)
{
    osh_status rc = OSH_OK;
    char dir[PATH_MAX];
    osh_watch *watch = NULL;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    if (osh_ranks_are_started(osh_from_env)) OSH_TRY(osh_guard_start(cx, &watch));
    OSH_TRY(osh_ranks_open(cx, out, osh_from_env));
    if (!*out) goto done;
    osh_ranks_watch(*out, watch);
    for (int i = 1; i < argc; i++) OSH_TRY(osh_buf_line(cx, &b, "%s", argv[i]));
    OSH_TRY(osh_ranks_agree(cx, *out, "other arguments", b.data ? b.data : ""));
    osh_buf_clear(&b);
    if (!getcwd(dir, sizeof dir)) OSH_FAIL(cx, OSH_E_IO, "cannot find the working directory");
    OSH_TRY(osh_ranks_agree(cx, *out, "another working directory", dir));
    OSH_TRY(environment_tell(cx, &b));
    OSH_TRY(osh_ranks_agree(cx, *out, "other variables in its environment", b.data ? b.data : ""));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

bool osh_line_runs_here(osh_ctx *cx, const line *l, const osh_ranks *r)
{
    if (!r || l->command->divided) return true;
    if (osh_ranks_me(r)) return false;
    osh_log(cx, OSH_LOG_WARN, "%s is not divided among ranks: rank 0 runs it, %d ranks wait",
            *l->command->name ? l->command->name : "this command", osh_ranks_n(r) - 1);
    return true;
}

static void message_drop(void *user, osh_log_level level, const char *text)
{
    (void)user, (void)level, (void)text;
}

void osh_line_quiet(osh_ctx *work, const osh_ranks *r)
{
    if (!osh_ranks_me(r)) return;
    osh_log_setup(work, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    osh_log_tell(work, message_drop, NULL);
}
