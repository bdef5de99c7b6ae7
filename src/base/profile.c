/* profile.c - see profile.h.
 *
 * Wall time of a scope goes to the row of its phase without the time of the scopes inside, so the rows of the job's
 * thread and what no scope covers add up to the whole. Memory points: the highest value of each interval; when 1000 are
 * there, neighbours are merged and the interval doubles, so no peak is lost. */
#include "base/profile.h"
#include "base/ctx.h"
#include "base/file.h"
#include "base/quote.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_POINTS = 1000 };
static const double sample_gap = 0.02; // seconds
static const double mb = 1 << 20;      // Quark's MB

struct osh_profile {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t sampler;
    bool running, stop;
    int fd;      // -1: no file
    int64_t at;  // its end
    bool failed; // a write did; said once
    double start;
    osh_io_counts io0;
    osh_profile_row *rows; // own
    size_t n_rows, cap_rows;
    osh_profile_mark *marks; // own
    size_t n_marks, cap_marks;
    osh_profile_point points[MAX_POINTS];
    size_t n_points;
    double interval;
    int64_t peak;
    osh_profile_gauge device; // NULL: none
    void *device_user;        // view
};

static double device_mb(const osh_profile *p, bool peak)
{
    int64_t now = 0, highest = 0;
    if (p->device) p->device(p->device_user, &now, &highest);
    return (double)(peak ? highest : now) / mb;
}

int64_t osh_mem_anon(void)
{
    char text[OSH_STATUS_BYTES];
    if (!osh_proc_status(text)) return -1;
    int64_t anon = osh_proc_status_bytes(text, "RssAnon:"), shm = osh_proc_status_bytes(text, "RssShmem:");
    return anon < 0 ? -1 : anon + (shm > 0 ? shm : 0);
}

enum { HOLD_MORE = 2 << 20 }; // of regular expressions, normal forms, stdio

/* What osh_alloc does not count. Pages that are kept for reuse are no part of it. */
static int64_t mem_uncounted(osh_ctx *cx)
{
    osh_mem_trim(cx);
    int64_t more = osh_mem_anon() - (int64_t)osh_mem_used(cx, OSH_MEM_HOST);
    return (more > 0 ? more : 0) + HOLD_MORE;
}

void osh_mem_hold(osh_ctx *cx, int64_t n_bytes, int64_t least)
{
    if (n_bytes <= 0) return;
    int64_t most = n_bytes - mem_uncounted(cx);
    if (most < least) most = least;
    osh_mem_limit(cx, OSH_MEM_HOST, most > 0 ? (size_t)most : 1);
}

int64_t osh_mem_held(osh_ctx *cx)
{
    return (int64_t)osh_mem_used_peak(cx, OSH_MEM_HOST) + mem_uncounted(cx);
}

osh_status osh_mem_refused(osh_ctx *cx, osh_status rc, int64_t n_bytes)
{
    if (rc != OSH_E_NOMEM || n_bytes <= 0) return rc;
    osh_note(cx, "holding --host-memory %.0fMiB: want more", (double)n_bytes / (1 << 20));
    return OSH_E_USAGE;
}

/* ---- memory against time; under the lock ---- */

static void merge_points(osh_profile *p)
{
    for (size_t i = 0; i < MAX_POINTS / 2; i++) {
        osh_profile_point a = p->points[2 * i], b = p->points[2 * i + 1];
        p->points[i] = (osh_profile_point){a.seconds, a.bytes > b.bytes ? a.bytes : b.bytes};
    }
    p->n_points = MAX_POINTS / 2;
    p->interval *= 2;
}

static void add_point(osh_profile *p, double t, int64_t bytes)
{
    if (bytes < 0) return;
    if (bytes > p->peak) p->peak = bytes;
    osh_profile_point *last = p->n_points ? &p->points[p->n_points - 1] : NULL;
    if (last && t < last->seconds + p->interval) {
        if (bytes > last->bytes) last->bytes = bytes;
        return;
    }
    if (p->n_points == MAX_POINTS) merge_points(p);
    p->points[p->n_points++] = (osh_profile_point){t, bytes};
}

static void *sampler_main(void *user)
{
    osh_profile *p = user;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += (long)(sample_gap * 1e9);
        if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&p->wake, &p->lock, &t);
        if (!p->stop) add_point(p, osh_now() - p->start, osh_mem_anon());
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int64_t osh_mem_sampled_peak(osh_ctx *cx)
{
    osh_profile *p = cx->sh->profile;
    if (!p) return -1;
    pthread_mutex_lock(&p->lock);
    if (p->running) add_point(p, osh_now() - p->start, osh_mem_anon());
    int64_t peak = p->peak;
    pthread_mutex_unlock(&p->lock);
    return peak;
}

/* ---- the file; under the lock ---- */

static void put_bytes(osh_ctx *cx, osh_profile *p, const char *text, size_t n)
{
    char why[128];
    while (n && p->fd >= 0 && !p->failed) {
        ssize_t k = write(p->fd, text, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) { // a profile is no reason to stop a run
            p->failed = true;
            osh_log(cx, OSH_LOG_WARN, "the profile ends here: cannot write it: %s", strerror_r(errno, why, sizeof why));
            return;
        }
        p->at += k;
        text += k;
        n -= (size_t)k;
    }
}

/* What is whole lies in one page of the file: a kill may cut a write(2) where a page ends, and nowhere else. What is
 * left of a page in front of it is a comment. */
static void put(osh_ctx *cx, osh_profile *p, const char *text, size_t n)
{
    char fill[OSH_PAGE];
    size_t left = OSH_PAGE - (size_t)(p->at % OSH_PAGE);
    if (n > left && n <= OSH_PAGE) {
        memset(fill, '.', left);
        fill[0] = '#', fill[left - 1] = '\n'; // the newline alone where one byte is left
        put_bytes(cx, p, fill, left);
    }
    put_bytes(cx, p, text, n);
}

static osh_io_counts io_since(const osh_ctx *cx, const osh_profile *p)
{
    osh_io_counts c = osh_io_counted(cx);
    return (osh_io_counts){c.read_bytes - p->io0.read_bytes, c.written_bytes - p->io0.written_bytes};
}

static int64_t record(osh_ctx *cx, osh_profile *p, const char *step, double now)
{
    char name[1024], item[2048];
    struct timespec t;
    int64_t bytes = osh_mem_anon();
    add_point(p, now, bytes);
    osh_log_stage(cx->sh, step, bytes);
    if (p->fd < 0) return bytes;
    osh_io_counts io = io_since(cx, p);
    clock_gettime(CLOCK_REALTIME, &t);
    osh_quote(name, sizeof name, step);
    int n = snprintf(item, sizeof item,
                     "- step: \"%s\"\n  timestamp: %.3f\n  relative_time_secs: %.3f\n  cpu_memory_mb: %.2f\n"
                     "  gpu_memory_mb: %.2f\n  disk_read_mb: %.2f\n  disk_write_mb: %.2f\n",
                     name, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec, now, (double)(bytes < 0 ? 0 : bytes) / mb,
                     device_mb(p, false), (double)io.read_bytes / mb, (double)io.written_bytes / mb);
    put(cx, p, item, (size_t)n);
    return bytes;
}

static const char head[] =
    "# oneshot profile. Per record:\n"
    "# - step: the stage, and whether it starts or ends; or a checkpoint's name\n"
    "# - timestamp: seconds since the epoch\n"
    "# - relative_time_secs: seconds since profiling started\n"
    "# - cpu_memory_mb: anonymous and shared memory of the process (RssAnon + RssShmem), MB of 2^20 bytes\n"
    "# - gpu_memory_mb: of the card's arena in use; 0 on the CPU\n"
    "# - disk_read_mb, disk_write_mb: read from and written to files by this program since profiling started\n"
    "# Summary: peak_memory_mb is the highest cpu_memory_mb, sampled every 20 ms and at each record; phases: seconds\n"
    "# without those of the stages inside, and floating-point operations where they are counted.\n"
    "memory_usage:\n";

static void summary_of_phases(osh_ctx *cx, osh_profile *p)
{
    char line[256], name[128];
    put(cx, p, "phases:\n", 8);
    for (size_t i = 0; i < p->n_rows; i++) {
        const osh_profile_row *r = &p->rows[i];
        double seconds = 0, flops = 0;
        int64_t n = 0;
        bool first = true;
        for (size_t k = 0; k < p->n_rows; k++) {
            const osh_profile_row *s = &p->rows[k];
            if (s->background != r->background || strcmp(s->phase, r->phase)) continue;
            if (k < i) first = false;
            seconds += s->seconds, flops += s->flops, n += s->n;
        }
        if (!first) continue;
        osh_quote(name, sizeof name, r->phase);
        int k = snprintf(line, sizeof line, "- {phase: \"%s\", seconds: %.3f, scopes: %lld, background: %s", name,
                         seconds, (long long)n, r->background ? "true" : "false");
        if (flops > 0)
            k += snprintf(line + k, sizeof line - (size_t)k, ", gflop: %.3f, gflop_per_s: %.2f", flops / 1e9,
                          seconds > 0 ? flops / 1e9 / seconds : 0);
        k += snprintf(line + k, sizeof line - (size_t)k, "}\n");
        put(cx, p, line, (size_t)k);
    }
}

static void summary(osh_ctx *cx, osh_profile *p, double seconds)
{
    char text[1024];
    osh_io_counts io = io_since(cx, p);
    int n = snprintf(text, sizeof text,
                     "\n# Summary Metrics\ntotal_quantization_time_seconds: %.3f\npeak_memory_mb: %.2f\n"
                     "peak_gpu_memory_mb: %.2f\ntotal_disk_read_mb: %.2f\ntotal_disk_write_mb: %.2f\n",
                     seconds, (double)p->peak / mb, device_mb(p, true), (double)io.read_bytes / mb,
                     (double)io.written_bytes / mb);
    put(cx, p, text, (size_t)n);
    if (p->n_rows) summary_of_phases(cx, p);
}

/* ---- start, stop ---- */

static void clear(osh_profile *p)
{
    for (size_t i = 0; i < p->n_rows; i++) free(p->rows[i].phase), free(p->rows[i].of);
    for (size_t i = 0; i < p->n_marks; i++) free(p->marks[i].name);
    p->n_rows = p->n_marks = p->n_points = 0;
    p->peak = -1;
    p->interval = sample_gap;
    p->failed = p->stop = false;
    p->at = 0;
}

void osh_profile_free(osh_profile *p)
{
    if (!p) return;
    clear(p);
    free(p->rows);
    free(p->marks);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Made on first use and never moved: the caller's thread is the only one then. */
static osh_status make(osh_ctx *cx)
{
    pthread_condattr_t attr;
    osh_profile *p;
    if (cx->sh->profile) return OSH_OK;
    if (!(p = calloc(1, sizeof *p))) return osh_fail(cx, OSH_E_NOMEM, "cannot allocate %zu bytes", sizeof *p);
    p->fd = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &attr);
    pthread_condattr_destroy(&attr);
    cx->sh->profile = p;
    return OSH_OK;
}

osh_status osh_profile_start(osh_ctx *cx, const char *path)
{
    osh_status rc = OSH_OK;
    char why[128];
    OSH_TRY(make(cx));
    osh_profile *p = cx->sh->profile;
    if (p->running) OSH_FAIL(cx, OSH_E_USAGE, "the profile is running already");
    clear(p);
    if (path && (p->fd = osh_fd_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND)) < 0)
        OSH_FAIL(cx, OSH_E_IO, "cannot create profile %s: %s", path, strerror_r(errno, why, sizeof why));
    p->start = osh_now();
    p->io0 = osh_io_counted(cx);
    pthread_mutex_lock(&p->lock);
    put(cx, p, head, sizeof head - 1);
    record(cx, p, "Start", 0);
    pthread_mutex_unlock(&p->lock);
    p->running = osh_thread_start(&p->sampler, sampler_main, p);
    if (!p->running) rc = osh_fail(cx, OSH_E_NOMEM, "cannot start the sampler");
done:
    if (rc && cx->sh->profile && !cx->sh->profile->running && cx->sh->profile->fd >= 0) {
        close(cx->sh->profile->fd);
        cx->sh->profile->fd = -1;
    }
    return rc;
}

bool osh_profile_running(const osh_ctx *cx)
{
    return cx->sh->profile && cx->sh->profile->running;
}

void osh_profile_stop(osh_ctx *cx)
{
    osh_profile *p = cx->sh->profile;
    if (!osh_profile_running(cx)) return;
    osh_profile_end(cx, 0);
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->sampler, NULL);
    pthread_mutex_lock(&p->lock);
    double now = osh_now() - p->start;
    record(cx, p, "End", now);
    summary(cx, p, now);
    p->running = false;
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
    pthread_mutex_unlock(&p->lock);
}

void osh_profile_device(osh_ctx *cx, osh_profile_gauge fn, void *user)
{
    osh_profile *p = cx->sh->profile;
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->device = fn, p->device_user = user;
    pthread_mutex_unlock(&p->lock);
}

/* ---- scopes ---- */

static bool same(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* Index of the row, made where it is missing; -1: no memory, and the scope is not counted. */
static int row_of(osh_profile *p, const char *phase, const char *of, bool background)
{
    for (size_t i = p->n_rows; i-- > 0;)
        if (p->rows[i].background == background && !strcmp(p->rows[i].phase, phase) && same(p->rows[i].of, of))
            return (int)i;
    if (p->n_rows == p->cap_rows) {
        size_t cap = p->cap_rows ? 2 * p->cap_rows : 64;
        osh_profile_row *rows = realloc(p->rows, cap * sizeof *rows);
        if (!rows) return -1;
        p->rows = rows, p->cap_rows = cap;
    }
    osh_profile_row r = {.phase = strdup(phase), .of = of ? strdup(of) : NULL, .background = background};
    if (!r.phase || (of && !r.of)) {
        free(r.phase);
        free(r.of);
        return -1;
    }
    p->rows[p->n_rows++] = r;
    return (int)p->n_rows - 1;
}

static void record_scope(osh_ctx *cx, osh_profile *p, int row, const char *edge, double now)
{
    char step[1024];
    const osh_profile_row *r = &p->rows[row];
    snprintf(step, sizeof step, "%s%s%s %s", r->phase, r->of ? " " : "", r->of ? r->of : "", edge);
    record(cx, p, step, now);
}

static osh_scope begin(osh_ctx *cx, const char *phase, const char *of, bool records)
{
    osh_profile *p = cx->sh->profile;
    osh_scope mark = cx->n_scopes;
    if (!p || !p->running || cx->n_scopes == OSH_MAX_SCOPES) return mark;
    pthread_mutex_lock(&p->lock);
    int row = row_of(p, phase, of, !cx->root);
    double now = osh_now() - p->start;
    if (row >= 0) {
        p->rows[row].n++;
        if (records) record_scope(cx, p, row, "Start", now);
        cx->scopes[cx->n_scopes++] = (osh_open_scope){.row = row, .records = records, .start = now};
    }
    pthread_mutex_unlock(&p->lock);
    return mark;
}

osh_scope osh_profile_begin(osh_ctx *cx, const char *phase, const char *of) { return begin(cx, phase, of, true); }
osh_scope osh_profile_time(osh_ctx *cx, const char *phase, const char *of) { return begin(cx, phase, of, false); }

void osh_profile_end(osh_ctx *cx, osh_scope scope)
{
    osh_profile *p = cx->sh->profile;
    if (!p || cx->n_scopes <= scope) return;
    pthread_mutex_lock(&p->lock);
    while (cx->n_scopes > scope) {
        osh_open_scope *s = &cx->scopes[--cx->n_scopes];
        if (!p->running || (size_t)s->row >= p->n_rows) continue; // of an earlier start
        double now = osh_now() - p->start, seconds = now - s->start;
        p->rows[s->row].seconds += seconds - s->inside;
        if (cx->n_scopes) cx->scopes[cx->n_scopes - 1].inside += seconds;
        if (s->records) record_scope(cx, p, s->row, "End", now);
    }
    pthread_mutex_unlock(&p->lock);
}

void osh_profile_flops(osh_ctx *cx, double flops)
{
    osh_profile *p = cx->sh->profile;
    if (!p || !p->running || !cx->n_scopes) return;
    pthread_mutex_lock(&p->lock);
    p->rows[cx->scopes[cx->n_scopes - 1].row].flops += flops;
    pthread_mutex_unlock(&p->lock);
}

void osh_profile_checkpoint(osh_ctx *cx, const char *name)
{
    osh_profile *p = cx->sh->profile;
    if (!osh_profile_running(cx)) return;
    pthread_mutex_lock(&p->lock);
    double now = osh_now() - p->start;
    int64_t bytes = record(cx, p, name, now);
    if (p->n_marks == p->cap_marks) {
        size_t cap = p->cap_marks ? 2 * p->cap_marks : 16;
        osh_profile_mark *marks = realloc(p->marks, cap * sizeof *marks);
        if (marks) p->marks = marks, p->cap_marks = cap;
    }
    char *copy = p->n_marks < p->cap_marks ? strdup(name) : NULL;
    if (copy) p->marks[p->n_marks++] = (osh_profile_mark){copy, now, bytes};
    pthread_mutex_unlock(&p->lock);
}

/* ---- reading ---- */

static osh_status copy_rows(osh_ctx *cx, osh_profile_data *d, const osh_profile *p)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, d->rows, p->n_rows);
    for (size_t i = 0; i < p->n_rows; i++) {
        osh_profile_row *r = &d->rows[d->n_rows++];
        *r = p->rows[i];
        r->of = NULL;
        r->phase = osh_strdup(cx, p->rows[i].phase);
        if (p->rows[i].of) r->of = osh_strdup(cx, p->rows[i].of);
        if (!r->phase || (p->rows[i].of && !r->of)) OSH_TRY(OSH_E_NOMEM);
    }
    OSH_NEW(cx, d->marks, p->n_marks);
    for (size_t i = 0; i < p->n_marks; i++) {
        d->marks[i] = p->marks[i];
        d->n_marks++;
        if (!(d->marks[i].name = osh_strdup(cx, p->marks[i].name))) OSH_TRY(OSH_E_NOMEM);
    }
    OSH_NEW(cx, d->points, p->n_points);
    memcpy(d->points, p->points, p->n_points * sizeof *p->points);
    d->n_points = p->n_points;
done:
    return rc;
}

/* Time that open scopes of this thread have taken so far. */
static void add_open(const osh_ctx *cx, osh_profile_data *d, double now)
{
    double inside = 0;
    for (int i = cx->n_scopes; i-- > 0;) {
        const osh_open_scope *s = &cx->scopes[i];
        double seconds = now - s->start;
        if ((size_t)s->row < d->n_rows) d->rows[s->row].seconds += seconds - s->inside - inside;
        inside = seconds;
    }
}

osh_status osh_profile_read(osh_ctx *cx, osh_profile_data *out)
{
    osh_status rc = OSH_OK;
    osh_profile_data d = {.peak_bytes = -1}; // own
    osh_profile *p = cx->sh->profile;
    if (p) {
        pthread_mutex_lock(&p->lock);
        double now = osh_now() - p->start;
        if (p->running) add_point(p, now, osh_mem_anon());
        d.seconds = now, d.peak_bytes = p->peak, d.io = io_since(cx, p);
        rc = copy_rows(cx, &d, p);
        if (!rc && p->running) add_open(cx, &d, now);
        pthread_mutex_unlock(&p->lock);
    }
    if (rc) osh_profile_data_deinit(cx, &d);
    *out = d;
    return rc;
}

void osh_profile_data_deinit(osh_ctx *cx, osh_profile_data *d)
{
    for (size_t i = 0; i < d->n_rows; i++) osh_free(cx, d->rows[i].phase), osh_free(cx, d->rows[i].of);
    for (size_t i = 0; i < d->n_marks; i++) osh_free(cx, d->marks[i].name);
    osh_free(cx, d->rows);
    osh_free(cx, d->marks);
    osh_free(cx, d->points);
    *d = (osh_profile_data){0};
}
