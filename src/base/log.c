/* log.c - writes messages and progress to stderr and to the log file.
 *
 * A terminal gets one live line (live.c), which is redrawn at most ten times a second. A pipe gets
 * one line per finished subgraph. In mode json, each line and each message is one JSON object.
 * Example of a live line, shown here in two parts:
 *   [ 3/28] model.layers.2   observe 12/128   3100 tok/s   err 1.8e-03
 *           peak 512 of 2048 MiB   eta 4m12s
 */
#include "base/ctx.h"
#include "base/mute.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/live.h"
#include "base/profile.h"
#include "base/quote.h"
#include "base/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double min_gap = 0.1; // seconds between two redraws
static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* Writes n bytes, with one write(2) if the system allows this. Thus the lines of two processes do
 * not mix, and a killed process leaves only whole lines. */
static void fd_put(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t k = write(fd, text, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return; // the error cannot be reported, because this is the output for errors
        text += k;
        n -= (size_t)k;
    }
}

static void stderr_put(const char *text, size_t n) { fd_put(STDERR_FILENO, text, n); }

/* Prints the codes that erase the live line, which may occupy several rows if the terminal was made
 * narrower. Returns the number of bytes. */
enum { ERASE_BYTES = 40 };
static size_t live_erase(const osh_log_state *l, char to[ERASE_BYTES])
{
    int rows = l->line_open && l->drawn > 0 ? (l->drawn - 1) / osh_live_width() : 0;
    if (rows > 0) return (size_t)snprintf(to, ERASE_BYTES, "\r\033[%dA\033[J", rows);
    return (size_t)snprintf(to, ERASE_BYTES, "\r\033[K");
}

void osh_log_setup(osh_ctx *cx, osh_log_level level, int progress_mode)
{
    osh_log_state *l = &cx->sh->log;
    pthread_mutex_lock(&l->lock);
    l->level = level;
    l->tty = progress_mode == OSH_PROGRESS_AUTO && isatty(STDERR_FILENO);
    l->mode = progress_mode == OSH_PROGRESS_AUTO ? OSH_PROGRESS_LINE : progress_mode;
    l->counting = false;
    pthread_mutex_unlock(&l->lock);
}

/* Writes a line to the log file. The caller holds the lock. */
static void log_file_put(osh_log_state *l, const char *kind, const char *text)
{
    char line[4400];
    if (l->fd < 0) return;
    size_t n = (size_t)snprintf(line, sizeof line - 1, "%10.3f %-7s ", osh_now() - l->start, kind);
    n += osh_show(line + n, sizeof line - 1 - n, text, NULL);
    line[n++] = '\n';
    fd_put(l->fd, line, n);
}

osh_status osh_log_file(osh_ctx *cx, const char *path)
{
    char why[128];
    int fd = path ? osh_fd_open(path, O_WRONLY | O_CREAT | O_APPEND) : -1;
    if (path && fd < 0)
        return osh_fail(cx, OSH_E_IO, "cannot open log file %s: %s", path,
                        strerror_r(errno, why, sizeof why));
    pthread_mutex_lock(&cx->sh->log.lock);
    if (cx->sh->log.fd >= 0) close(cx->sh->log.fd);
    cx->sh->log.fd = fd;
    if (cx->sh->log.command) log_file_put(&cx->sh->log, "command", cx->sh->log.command);
    pthread_mutex_unlock(&cx->sh->log.lock);
    return OSH_OK;
}

void osh_log_colour(osh_ctx *cx, bool on)
{
    pthread_mutex_lock(&cx->sh->log.lock);
    cx->sh->log.colour = on;
    pthread_mutex_unlock(&cx->sh->log.lock);
}

osh_status osh_log_command(osh_ctx *cx, int argc, char **argv)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    for (int i = 0; i < argc; i++) {
        if (i) OSH_TRY(osh_buf_append(cx, &b, " ", 1));
        OSH_TRY(osh_shell_word(cx, &b, argv[i]));
    }
    osh_free(cx, cx->sh->log.command);
    cx->sh->log.command = b.data, b.data = NULL; // give
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

bool osh_log_has_file(osh_ctx *cx)
{
    pthread_mutex_lock(&cx->sh->log.lock);
    bool has = cx->sh->log.fd >= 0;
    pthread_mutex_unlock(&cx->sh->log.lock);
    return has;
}

void osh_log_close(osh_shared *sh)
{
    char erase[ERASE_BYTES];
    /* Erases the live line, because it will not be updated any more. */
    if (sh->log.line_open) stderr_put(erase, live_erase(&sh->log, erase));
    if (sh->log.fd >= 0) close(sh->log.fd);
}

void osh_log_line(osh_ctx *cx, const char *kind, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&cx->sh->log.lock);
    log_file_put(&cx->sh->log, kind, text);
    pthread_mutex_unlock(&cx->sh->log.lock);
}

void osh_log_stage(osh_shared *sh, const char *step, int64_t bytes)
{
    char text[1200];
    snprintf(text, sizeof text, "%s, %.1f MiB", step, (double)bytes / (1 << 20));
    pthread_mutex_lock(&sh->log.lock);
    log_file_put(&sh->log, "stage", text);
    pthread_mutex_unlock(&sh->log.lock);
}

void osh_log(osh_ctx *cx, osh_log_level level, const char *fmt, ...)
{
    osh_log_state *l = &cx->sh->log;
    char text[4096], line[8400], safe[8192];
    va_list ap;
    int n;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&l->lock);
    if (level <= OSH_LOG_INFO || level <= l->level) log_file_put(l, level_names[level], text);
    if (level <= l->level && l->hears) {
        osh_show(safe, sizeof safe, text, NULL);
        l->hears(l->hears_user, level, safe);
    } else if (level <= l->level) {
        if (l->mode == OSH_PROGRESS_JSON) {
            osh_quote(safe, sizeof safe, text);
            n = snprintf(line, sizeof line,
                         "{\"event\":\"log\",\"level\":\"%s\",\"text\":\"%s\"}\n",
                         level_names[level], safe);
        } else {
            osh_show(safe, sizeof safe, text, NULL);
            char erase[ERASE_BYTES] = "";
            if (l->line_open) live_erase(l, erase);
            n = snprintf(line, sizeof line, "%s%s%s%s\n", erase,
                         level == OSH_LOG_INFO ? "" : level_names[level],
                         level == OSH_LOG_INFO ? "" : ": ", safe);
        }
        stderr_put(line, (size_t)n);
        if (l->line_open) stderr_put(l->line, strlen(l->line));
    }
    pthread_mutex_unlock(&l->lock);
}

/* Returns the seconds left: the caller's value, or a value computed from the work done so far; < 0:
 * unknown. */
static double progress_eta(osh_log_state *l, const osh_progress *p, double now)
{
    if (p->eta_s > 0) return p->eta_s;
    // true in the first call, and when another job has begun in this process
    if (!l->counting || p->work_done < l->last_work) {
        bool from_start = p->finished && !l->counting;
        l->counting = true;
        l->t0 = from_start ? l->start : now;
        /* Work of an earlier, killed run took no time in this process, so the estimate does not
         * count that work. */
        l->work0 = from_start ? 0 : p->work_done;
    }
    l->last_work = p->work_done;
    if (p->work_total <= 0 || p->work_done <= l->work0 || now <= l->t0) return -1;
    double left = p->work_total - p->work_done;
    return left <= 0 ? 0 : left * (now - l->t0) / (p->work_done - l->work0);
}

/* Appends a text to the *n bytes in `to` and increases *n. Text that does not fit is cut. */
static void line_add(char *to, size_t room, size_t *n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(to + *n, room - *n, fmt, ap);
    va_end(ap);
    if (k > 0) *n += (size_t)k;
    if (*n >= room) *n = room - 1;
}

typedef struct moment { // values of a progress line that osh_progress does not have
    double now, left; // left: estimated seconds until the job ends; < 0: unknown
    int64_t peak;     // bytes
} moment;

static size_t progress_line(char *to, size_t room, const osh_log_state *l, const osh_progress *p,
                            const moment *m)
{
    char t[64], name[512];
    size_t n = 0;
    int width = snprintf(t, sizeof t, "%lld", (long long)p->n_steps);

    osh_show(name, sizeof name, p->name ? p->name : "", NULL);
    line_add(to, room, &n, "[%*lld/%lld] %s", width, (long long)p->step, (long long)p->n_steps,
             name);
    if (p->phase) line_add(to, room, &n, "   %s", p->phase);
    if (p->total > 0)
        line_add(to, room, &n, "%s%lld/%lld", p->phase ? " " : "   ", (long long)p->done,
                 (long long)p->total);
    osh_show_rate(t, sizeof t, p);
    if (*t) line_add(to, room, &n, "   %s", t);
    if (p->loss > 0) line_add(to, room, &n, "   loss %.2f of rtn", p->loss);
    else if (p->error >= 0) line_add(to, room, &n, "   err %.1e", p->error);
    osh_show_bytes(t, sizeof t, m->peak, p->budget_bytes);
    line_add(to, room, &n, "   peak %s", t);
    if (p->finished && p->work_total > 0 && p->work_done >= p->work_total) {
        osh_show_time(t, sizeof t, m->now - l->start);
        line_add(to, room, &n, "   took %s", t);
    } else if (m->left >= 0) {
        osh_show_time(t, sizeof t, m->left);
        line_add(to, room, &n, "   eta %s", t);
    }
    return n;
}

static double cpu_seconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t)
               ? 0
               : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Prints a JSON line. docs/how-to/profile.md has its schema. */
static size_t progress_json(char *to, size_t room, const osh_log_state *l, const osh_progress *p,
                            const moment *m)
{
    char name[512], phase[64];
    double elapsed = m->now - l->start;
    size_t n = 0;

    osh_quote(name, sizeof name, p->name ? p->name : "");
    osh_quote(phase, sizeof phase, p->phase ? p->phase : "");
    line_add(
        to, room, &n,
        "{\"event\":\"progress\",\"step\":%lld,\"n_steps\":%lld,\"name\":\"%s\",\"phase\":\"%s\"",
        (long long)p->step, (long long)p->n_steps, name, phase);
    line_add(to, room, &n, ",\"done\":%lld,\"total\":%lld", (long long)p->done,
             (long long)p->total);
    if (p->error >= 0 && p->error < 1e300) line_add(to, room, &n, ",\"error\":%.6e", p->error);
    if (p->loss > 0 && p->loss < 1e300) line_add(to, room, &n, ",\"loss_of_rtn\":%.6f", p->loss);
    if (p->tokens_per_s > 0) line_add(to, room, &n, ",\"tokens_per_s\":%.1f", p->tokens_per_s);
    if (p->bytes_per_s > 0) line_add(to, room, &n, ",\"bytes_per_s\":%.1f", p->bytes_per_s);
    if (m->left >= 0) line_add(to, room, &n, ",\"eta_s\":%.2f", m->left);
    if (osh_progress_fraction(p) >= 0)
        line_add(to, room, &n, ",\"fraction\":%.4f", osh_progress_fraction(p));
    if (p->budget_bytes > 0)
        line_add(to, room, &n, ",\"budget_bytes\":%lld", (long long)p->budget_bytes);
    line_add(to, room, &n,
             ",\"elapsed_s\":%.2f,\"cpu_s\":%.2f,\"peak_bytes\":%lld,\"finished\":%s}\n", elapsed,
             cpu_seconds(), (long long)m->peak, p->finished ? "true" : "false");
    return n;
}

/* Redraws the live line. */
static void live_draw(osh_log_state *l, const osh_live *live, bool last)
{
    char text[sizeof l->line + ERASE_BYTES + 2];
    size_t at = live_erase(l, text);
    l->drawn = osh_live_print(l->line, sizeof l->line, live, osh_live_width(), l->colour);
    line_add(text, sizeof text, &at, "%s%s", l->line, last ? "\n" : "");
    stderr_put(text, at);
    l->line_open = !last;
}

void osh_log_tell(osh_ctx *cx, osh_log_fn fn, void *user)
{
    osh_log_state *l = &cx->sh->log;
    pthread_mutex_lock(&l->lock);
    l->hears = fn, l->hears_user = user;
    pthread_mutex_unlock(&l->lock);
}

void osh_progress_tell(osh_ctx *cx, osh_progress_fn fn, void *user)
{
    osh_log_state *l = &cx->sh->log;
    pthread_mutex_lock(&l->lock);
    l->told = fn, l->told_user = user;
    pthread_mutex_unlock(&l->lock);
}

void osh_progress_mute(osh_ctx *cx, bool muted)
{
    osh_log_state *l = &cx->sh->log;
    pthread_mutex_lock(&l->lock);
    l->muted = muted;
    pthread_mutex_unlock(&l->lock);
}

void osh_progress_show(osh_ctx *cx, const osh_progress *p)
{
    osh_log_state *l = &cx->sh->log;
    if (l->muted) return; // no lock is needed: only the job's thread uses `muted`
    char text[1400];
    moment m = {.now = osh_now()};
    bool json = l->mode == OSH_PROGRESS_JSON;

    // the lock is not held here, because the callback may log
    if (l->told) l->told(l->told_user, p);
    pthread_mutex_lock(&l->lock);
    m.left = progress_eta(l, p, m.now);
    bool due = (p->finished && (json || !p->small)) || m.now - l->last_shown >= min_gap;
    bool own_line = p->finished && !p->small && l->mode == OSH_PROGRESS_LINE;
    bool show = ((l->tty || json) ? due : own_line) || (p->finished && l->fd >= 0);
    pthread_mutex_unlock(&l->lock);
    if (!show) return;
    /* osh_mem_sampled_peak takes the profile's lock, which must be taken before the log's lock */
    m.peak = osh_mem_sampled_peak(cx);
    if (m.peak < 0) m.peak = osh_rss_peak();

    pthread_mutex_lock(&l->lock);
    if (l->tty) {
        const osh_live live = {.p = p, .left = m.left, .elapsed = m.now - l->start, .peak = m.peak};
        if (due && osh_live_in_front()) live_draw(l, &live, p->finished && p->step >= p->n_steps);
        if (due) l->last_shown = m.now;
    } else if (json) {
        stderr_put(text, progress_json(text, sizeof text, l, p, &m));
        l->last_shown = m.now;
    } else if (own_line) {
        size_t n = progress_line(text, sizeof text - 1, l, p, &m);
        text[n++] = '\n';
        stderr_put(text, n);
    }
    if (p->finished) {
        progress_line(text, sizeof text, l, p, &m);
        log_file_put(l, "progress", text);
    }
    pthread_mutex_unlock(&l->lock);
}
