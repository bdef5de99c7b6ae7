/* log.c - messages and progress on stderr.
 *
 * A terminal gets one live line, redrawn in place at most ten times a second; a pipe gets one line
 * per finished subgraph; mode json makes every line, messages too, one JSON object.
 *   [ 3/28] model.layers.2   observe 12/128   err 1.8e-03   peak 512 MiB   eta 4m12s */
#include "base/ctx.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const double min_gap = 0.1; // seconds between two redraws
static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* One write per line where the system allows it, so that lines of two processes do not mix. */
static void put(const char *text, size_t n)
{
    while (n) {
        ssize_t k = write(STDERR_FILENO, text, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return; // nowhere left to complain
        text += k;
        n -= (size_t)k;
    }
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

osh_status osh_log_file(osh_ctx *cx, const char *path)
{
    char why[128];
    FILE *f = fopen(path, "ae");
    if (!f)
        return osh_fail(cx, OSH_E_IO, "cannot open log file %s: %s", path, strerror_r(errno, why, sizeof why));
    setvbuf(f, NULL, _IOLBF, 0); // a killed run leaves whole lines
    pthread_mutex_lock(&cx->sh->log.lock);
    if (cx->sh->log.file) fclose(cx->sh->log.file);
    cx->sh->log.file = f;
    pthread_mutex_unlock(&cx->sh->log.lock);
    return OSH_OK;
}

void osh_log_close(osh_shared *sh)
{
    if (sh->log.line_open) put("\n", 1);
    if (sh->log.file) fclose(sh->log.file);
}

/* s as the inside of a JSON string; what does not fit is left out whole. */
static void escape(char *to, size_t room, const char *s)
{
    size_t n = 0;
    for (; *s && n + 7 < room; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') to[n++] = '\\', to[n++] = (char)c;
        else if (c < 0x20) n += (size_t)snprintf(to + n, room - n, "\\u%04x", c);
        else to[n++] = (char)c;
    }
    to[n] = 0;
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
    if (l->file && (level <= OSH_LOG_INFO || level <= l->level))
        fprintf(l->file, "%10.3f %-7s %s\n", osh_now() - l->start, level_names[level], text);
    if (level <= l->level) {
        if (l->mode == OSH_PROGRESS_JSON) {
            escape(safe, sizeof safe, text);
            n = snprintf(line, sizeof line, "{\"event\":\"log\",\"level\":\"%s\",\"text\":\"%s\"}\n",
                         level_names[level], safe);
        } else {
            n = snprintf(line, sizeof line, "%s%s%s%s\n", l->line_open ? "\r\033[K" : "",
                         level == OSH_LOG_INFO ? "" : level_names[level], level == OSH_LOG_INFO ? "" : ": ", text);
        }
        put(line, (size_t)n);
        if (l->line_open) put(l->line, strlen(l->line));
    }
    pthread_mutex_unlock(&l->lock);
}

/* Seconds still to go by the work done so far; < 0 while nothing is known. */
static double eta(osh_log_state *l, const osh_progress *p, double now)
{
    if (!l->counting || p->work_done < l->last_work) { // the first call, or another run in this process
        bool from_start = p->finished && !l->counting;
        l->counting = true;
        l->t0 = from_start ? l->start : now;
        l->work0 = from_start ? 0 : p->work_done; // work that a resumed run finds done took no time
    }
    l->last_work = p->work_done;
    if (p->work_total <= 0 || p->work_done <= l->work0 || now <= l->t0) return -1;
    double left = p->work_total - p->work_done;
    return left <= 0 ? 0 : left * (now - l->t0) / (p->work_done - l->work0);
}

static void print_time(char *to, size_t room, double seconds)
{
    long long s = (long long)(seconds + 0.5);
    if (s < 60) snprintf(to, room, "%llds", s);
    else if (s < 3600) snprintf(to, room, "%lldm%02llds", s / 60, s % 60);
    else snprintf(to, room, "%lldh%02lldm", s / 3600, s / 60 % 60);
}

static void print_bytes(char *to, size_t room, int64_t n)
{
    double mib = (double)n / (1 << 20);
    if (mib < 10000) snprintf(to, room, "%.0f MiB", mib);
    else snprintf(to, room, "%.1f GiB", mib / 1024);
}

/* Appends at *n; past the end nothing more is added. */
static void add(char *to, size_t room, size_t *n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(to + *n, room - *n, fmt, ap);
    va_end(ap);
    if (k > 0) *n += (size_t)k;
    if (*n >= room) *n = room - 1;
}

static size_t line_text(char *to, size_t room, const osh_log_state *l, const osh_progress *p, double left, double now)
{
    char t[32];
    size_t n = 0;
    int width = snprintf(t, sizeof t, "%lld", (long long)p->n_steps);

    add(to, room, &n, "[%*lld/%lld] %s", width, (long long)p->step, (long long)p->n_steps, p->name ? p->name : "");
    if (p->phase) add(to, room, &n, "   %s", p->phase);
    if (p->total > 0) add(to, room, &n, "%s%lld/%lld", p->phase ? " " : "   ", (long long)p->done, (long long)p->total);
    if (p->error >= 0) add(to, room, &n, "   err %.1e", p->error);
    print_bytes(t, sizeof t, osh_rss_peak());
    add(to, room, &n, "   peak %s", t);
    if (p->finished && p->work_total > 0 && p->work_done >= p->work_total) {
        print_time(t, sizeof t, now - l->start);
        add(to, room, &n, "   took %s", t);
    } else if (left >= 0) {
        print_time(t, sizeof t, left);
        add(to, room, &n, "   eta %s", t);
    }
    return n;
}

static size_t json_text(char *to, size_t room, const osh_log_state *l, const osh_progress *p, double left, double now)
{
    char name[256], phase[64];
    size_t n = 0;

    escape(name, sizeof name, p->name ? p->name : "");
    escape(phase, sizeof phase, p->phase ? p->phase : "");
    add(to, room, &n, "{\"event\":\"progress\",\"step\":%lld,\"n_steps\":%lld,\"name\":\"%s\",\"phase\":\"%s\"",
        (long long)p->step, (long long)p->n_steps, name, phase);
    add(to, room, &n, ",\"done\":%lld,\"total\":%lld", (long long)p->done, (long long)p->total);
    if (p->error >= 0 && p->error < 1e300) add(to, room, &n, ",\"error\":%.6e", p->error);
    if (left >= 0) add(to, room, &n, ",\"eta_s\":%.1f", left);
    add(to, room, &n, ",\"elapsed_s\":%.1f,\"peak_bytes\":%lld,\"finished\":%s}\n", now - l->start,
        (long long)osh_rss_peak(), p->finished ? "true" : "false");
    return n;
}

/* Draws the live line, cut to the terminal's width: a wrapped line could not be taken back. */
static void draw(osh_log_state *l, const char *text, bool last)
{
    struct winsize w;
    size_t n = strlen(text), at = 0;
    if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col > 1 && n >= w.ws_col) n = w.ws_col - 1u;
    add(l->line, sizeof l->line, &at, "\r\033[K%.*s", (int)n, text);
    put(l->line, at);
    l->line_open = !last;
    if (last) put("\n", 1);
}

void osh_progress_show(osh_ctx *cx, const osh_progress *p)
{
    osh_log_state *l = &cx->sh->log;
    char text[1024];
    double now = osh_now();

    pthread_mutex_lock(&l->lock);
    double left = eta(l, p, now);
    bool due = p->finished || now - l->last_shown >= min_gap;
    if (l->tty && due) {
        line_text(text, sizeof text, l, p, left, now);
        draw(l, text, p->finished && p->step >= p->n_steps);
        l->last_shown = now;
    } else if (l->mode == OSH_PROGRESS_JSON && due) {
        put(text, json_text(text, sizeof text, l, p, left, now));
        l->last_shown = now;
    } else if (l->mode == OSH_PROGRESS_LINE && !l->tty && p->finished) {
        size_t n = line_text(text, sizeof text - 1, l, p, left, now);
        text[n++] = '\n';
        put(text, n);
    }
    if (l->file && p->finished) {
        line_text(text, sizeof text, l, p, left, now);
        fprintf(l->file, "%10.3f progress %s\n", now - l->start, text);
    }
    pthread_mutex_unlock(&l->lock);
}
