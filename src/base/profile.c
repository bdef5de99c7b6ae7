/* profile.c - measures the time, the memory and the operations of a job.
 *
 * A scope is a stage that has begun (osh_profile_begin) and not ended. A scope's wall time, without
 * the time of its inner scopes, is added to the row of its phase. So the rows of the job's thread,
 * and the time outside of scopes, add up to the time of the job.
 *
 * The memory curve of the report consists of points. A point is the highest value in an interval of
 * time. When there are 1000 points, neighbours are merged and the interval doubles, so no peak is
 * lost. */
#include "base/made.h"
#include "base/profile_impl.h"
#include "base/quote.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double sample_gap = 0.02; // seconds

osh_profile_gpu osh_profile_gpu_now(const osh_profile *p)
{
    osh_profile_gpu gpu = {.driver = -1};
    if (p->device) p->device(p->device_user, &gpu);
    return gpu;
}

static int64_t status_anon(const char *status)
{
    int64_t anon = osh_proc_status_bytes(status, "RssAnon:"),
            shm = osh_proc_status_bytes(status, "RssShmem:");
    return anon < 0 ? -1 : anon + (shm > 0 ? shm : 0);
}

int64_t osh_mem_anon(void)
{
    char text[OSH_STATUS_BYTES];
    return osh_proc_status(text) ? status_anon(text) : -1;
}

/* Number of bytes reserved for regular expressions, Unicode normalization and stdio. */
enum { HOLD_MORE = 2 << 20 };

int64_t osh_mem_uncounted(osh_ctx *cx)
{
    osh_mem_trim(cx);
    int64_t more = osh_mem_anon() - (int64_t)osh_mem_used(cx, OSH_MEM_HOST);
    return more > 0 ? more : 0;
}

void osh_mem_hold(osh_ctx *cx, int64_t n_bytes, int64_t least)
{
    if (n_bytes <= 0) return;
    int64_t most = n_bytes - osh_mem_uncounted(cx) - HOLD_MORE;
    if (most < least) most = least;
    osh_mem_limit(cx, OSH_MEM_HOST, most > 0 ? (size_t)most : 1);
}

int64_t osh_mem_held(osh_ctx *cx)
{
    return (int64_t)osh_mem_used_peak(cx, OSH_MEM_HOST) + osh_mem_uncounted(cx) + HOLD_MORE;
}

osh_status osh_mem_refused(osh_ctx *cx, osh_status rc, int64_t n_bytes)
{
    if (rc != OSH_E_NOMEM || n_bytes <= 0) return rc;
    osh_note(cx, "holding --host-memory %.0fMiB: want more", (double)n_bytes / (1 << 20));
    return OSH_E_USAGE;
}

/* ---- memory over time ---- */

static void peak_raise_to(int64_t *most, int64_t now)
{
    if (now > *most) *most = now;
}

static void points_merge(osh_profile *p)
{
    for (size_t i = 0; i < OSH_MAX_POINTS / 2; i++) {
        osh_profile_point a = p->points[2 * i], b = p->points[2 * i + 1];
        peak_raise_to(&a.bytes, b.bytes);
        peak_raise_to(&a.live, b.live);
        p->points[i] = a;
    }
    p->n_points = OSH_MAX_POINTS / 2;
    p->interval *= 2;
}

static void point_add(osh_profile *p, double t, int64_t bytes, int64_t live)
{
    osh_profile_point *last = p->n_points ? &p->points[p->n_points - 1] : NULL;
    if (last && t < last->seconds + p->interval) {
        peak_raise_to(&last->bytes, bytes);
        peak_raise_to(&last->live, live);
        return;
    }
    if (p->n_points == OSH_MAX_POINTS) points_merge(p);
    p->points[p->n_points++] =
        (osh_profile_point){t, bytes, live, p->n_open ? p->open[p->n_open - 1] : -1};
}

/* Raises the peaks of the profile and of all open rows. The peaks of process memory are raised to
 * `anon`, the current result of osh_mem_anon. The peaks of allocated bytes are raised to the
 * highest number of allocated bytes since the last call of this function. */
static void profile_sample(osh_profile *p, int64_t anon)
{
    int64_t live = osh_mem_used_high(p->sh);
    peak_raise_to(&p->peaks.live, live);
    peak_raise_to(&p->peaks.new_live, live);
    peak_raise_to(&p->peaks.host, anon);
    peak_raise_to(&p->peaks.new_host, anon);
    for (int i = 0; i < p->n_open; i++) {
        peak_raise_to(&p->rows[p->open[i]].peak_bytes, anon);
        peak_raise_to(&p->rows[p->open[i]].live_bytes, live);
    }
    if (anon >= 0) point_add(p, osh_now() - p->start, anon, live);
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
        if (!p->stop) profile_sample(p, osh_mem_anon());
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int64_t osh_mem_sampled_peak(osh_ctx *cx)
{
    osh_profile *p = cx->sh->profile;
    if (!p) return -1;
    pthread_mutex_lock(&p->lock);
    if (p->running) profile_sample(p, osh_mem_anon());
    int64_t peak = p->peaks.host;
    pthread_mutex_unlock(&p->lock);
    return peak;
}

/* ---- records ---- */

osh_io_counts osh_profile_io(const osh_ctx *cx, const osh_profile *p)
{
    osh_io_counts c = osh_io_counted(cx);
    return (osh_io_counts){c.read_bytes - p->io0.read_bytes,
                           c.written_bytes - p->io0.written_bytes};
}

static int64_t profile_record(osh_ctx *cx, osh_profile *p, const char *step, double now)
{
    char text[OSH_STATUS_BYTES];
    osh_profile_memory m = {.anon = -1, .rss = -1, .gpu = osh_profile_gpu_now(p)};
    if (osh_proc_status(text))
        m.anon = status_anon(text), m.rss = osh_proc_status_bytes(text, "VmRSS:");
    profile_sample(p, m.anon);
    m.live = (int64_t)osh_mem_used(cx, OSH_MEM_HOST);
    m.high = p->peaks.new_host, m.live_high = p->peaks.new_live;
    p->peaks.new_host = m.anon, p->peaks.new_live = m.live;
    peak_raise_to(&p->peaks.driver, m.gpu.driver);
    osh_log_stage(cx->sh, step, m.anon);
    osh_profile_put_record(cx, p, step, now, &m);
    return m.anon;
}

/* ---- start and stop ---- */

static void profile_clear(osh_profile *p)
{
    for (size_t i = 0; i < p->n_rows; i++) free(p->rows[i].phase), free(p->rows[i].of);
    for (size_t i = 0; i < p->n_marks; i++) free(p->marks[i].name);
    p->n_rows = p->n_marks = p->n_points = 0;
    p->n_open = 0;
    p->peaks.host = p->peaks.live = p->peaks.driver = p->peaks.new_host = p->peaks.new_live = -1;
    p->interval = sample_gap;
    p->file.failed = p->stop = false;
    p->file.size = 0;
}

void osh_profile_free(osh_profile *p)
{
    if (!p) return;
    profile_clear(p);
    free(p->rows);
    free(p->marks);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Makes the profile object on the first call. The object is never moved. No other thread uses the
 * profile during the call. */
static osh_status profile_make(osh_ctx *cx)
{
    pthread_condattr_t attr;
    osh_profile *p;
    if (cx->sh->profile) return OSH_OK;
    if (!(p = calloc(1, sizeof *p)))
        return osh_fail(cx, OSH_E_NOMEM, "cannot allocate %zu bytes", sizeof *p);
    p->file.fd = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &attr);
    pthread_condattr_destroy(&attr);
    cx->sh->profile = p;
    return OSH_OK;
}

osh_status osh_profile_about(osh_ctx *cx, const char *model, const char *method)
{
    osh_status rc = OSH_OK;
    char of[2][400];
    OSH_TRY(profile_make(cx));
    osh_quote(of[0], sizeof of[0], model);
    osh_quote(of[1], sizeof of[1], method);
    snprintf(cx->sh->profile->file.about, sizeof cx->sh->profile->file.about,
             "model: \"%s\"\nmethod: \"%s\"\n", of[0], of[1]);
done:
    return rc;
}

osh_status osh_profile_start(osh_ctx *cx, const char *path)
{
    osh_status rc = OSH_OK;
    char why[128];
    OSH_TRY(profile_make(cx));
    osh_profile *p = cx->sh->profile;
    if (p->running) OSH_FAIL(cx, OSH_E_USAGE, "the profile is running already");
    profile_clear(p);
    /* a program that uses the library may give any path, so the file is checked */
    if (path) OSH_TRY(osh_made_check(cx, OSH_PATH_PROFILE, "profile", path));
    if (path && (p->file.fd = osh_fd_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND)) < 0)
        OSH_FAIL(cx, OSH_E_IO, "cannot create profile %s: %s", path,
                 strerror_r(errno, why, sizeof why));
    p->start = osh_now();
    p->io0 = osh_io_counted(cx);
    pthread_mutex_lock(&p->lock);
    p->sh = cx->sh;
    osh_mem_used_high(p->sh); // restarts the peak that osh_mem_used_high returns
    osh_profile_put_head(cx, p);
    *p->file.about = 0;
    profile_record(cx, p, "Start", 0);
    pthread_mutex_unlock(&p->lock);
    p->running = osh_thread_start(&p->sampler, sampler_main, p);
    if (!p->running) rc = osh_fail(cx, OSH_E_NOMEM, "cannot start the sampler");
done:
    if (rc && cx->sh->profile && !cx->sh->profile->running && cx->sh->profile->file.fd >= 0) {
        close(cx->sh->profile->file.fd);
        cx->sh->profile->file.fd = -1;
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
    profile_record(cx, p, "End", now);
    osh_profile_put_summary(cx, p, now);
    p->running = false;
    if (p->file.fd >= 0) close(p->file.fd);
    p->file.fd = -1;
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

/* ---- totals ---- */

static void total_add_row(osh_profile_total *t, const osh_profile_row *r)
{
    t->seconds += r->seconds, t->flops += r->flops, t->n += r->n;
    peak_raise_to(&t->peak_bytes, r->peak_bytes);
    peak_raise_to(&t->live_bytes, r->live_bytes);
}

void osh_profile_stages(osh_profile_total to[OSH_N_STAGES], const osh_profile_row *rows,
                        size_t n_rows)
{
    for (int k = 0; k < OSH_N_STAGES; k++)
        to[k] = (osh_profile_total){.name = osh_stage_name((osh_stage)k)};
    for (size_t i = 0; i < n_rows; i++) {
        osh_stage stage = osh_profile_stage(rows[i].phase);
        if (stage != OSH_N_STAGES && !rows[i].background) total_add_row(&to[stage], &rows[i]);
    }
}

osh_profile_total *osh_profile_phases(size_t *n, const osh_profile_row *rows, size_t n_rows)
{
    osh_profile_total *to = calloc(1, sizeof *to); // own
    *n = 0;
    for (size_t i = 0; to && i < n_rows; i++) {
        size_t k = 0;
        while (k < *n &&
               (strcmp(to[k].name, rows[i].phase) || to[k].background != rows[i].background))
            k++;
        if (k == *n) {
            osh_profile_total *more = realloc(to, (k + 1) * sizeof *more);
            if (!more) free(to);
            if (!(to = more)) break;
            to[(*n)++] =
                (osh_profile_total){.name = rows[i].phase, .background = rows[i].background};
        }
        total_add_row(&to[k], &rows[i]);
    }
    return to;
}

/* ---- scopes ---- */

static const char *const stage_names[OSH_N_STAGES] = {"Pre-process", "Calibration", "Quantization",
                                                      "Fast Finetune", "Post-process"};
static const struct { const char *phase; osh_stage stage;
} stages[] = {
    {"plan", OSH_STAGE_BEFORE},       {"load", OSH_STAGE_CALIBRATE},
    {"observe", OSH_STAGE_CALIBRATE}, {"propagate", OSH_STAGE_CALIBRATE},
    {"solve", OSH_STAGE_QUANTIZE},    {"round", OSH_STAGE_QUANTIZE},
    {"read", OSH_STAGE_QUANTIZE},     {"write", OSH_STAGE_QUANTIZE},
    {"learn", OSH_STAGE_TUNE},        {"tune", OSH_STAGE_TUNE},
    {"copy", OSH_STAGE_AFTER},        {"seal", OSH_STAGE_AFTER},
};

osh_stage osh_profile_stage(const char *phase)
{
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (!strcmp(stages[i].phase, phase)) return stages[i].stage;
    return OSH_N_STAGES;
}

const char *osh_stage_name(osh_stage s) { return stage_names[s]; }

static bool texts_same(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* Returns the index of the row of a phase, and makes the row if it is missing. Returns -1 if there
 * is no memory. The caller then does not count the time of its scope. */
static int profile_row_find(osh_profile *p, const char *phase, const char *of, bool background)
{
    for (size_t i = p->n_rows; i-- > 0;)
        if (p->rows[i].background == background && !strcmp(p->rows[i].phase, phase) &&
            texts_same(p->rows[i].of, of))
            return (int)i;
    if (p->n_rows == p->cap_rows) {
        size_t cap = p->cap_rows ? 2 * p->cap_rows : 64;
        osh_profile_row *rows = realloc(p->rows, cap * sizeof *rows);
        if (!rows) return -1;
        p->rows = rows, p->cap_rows = cap;
    }
    osh_profile_row r = {
        .phase = strdup(phase), .of = of ? strdup(of) : NULL, .background = background};
    if (!r.phase || (of && !r.of)) {
        free(r.phase);
        free(r.of);
        return -1;
    }
    p->rows[p->n_rows++] = r;
    return (int)p->n_rows - 1;
}

static void scope_record(osh_ctx *cx, osh_profile *p, int row, const char *edge, double now)
{
    char step[1024];
    const osh_profile_row *r = &p->rows[row];
    snprintf(step, sizeof step, "%s%s%s %s", r->phase, r->of ? " " : "", r->of ? r->of : "", edge);
    profile_record(cx, p, step, now);
}

static osh_scope scope_begin(osh_ctx *cx, const char *phase, const char *of, bool records)
{
    osh_profile *p = cx->sh->profile;
    osh_scope mark = cx->n_scopes;
    if (!p || !p->running || cx->n_scopes == OSH_MAX_SCOPES) return mark;
    pthread_mutex_lock(&p->lock);
    int row = profile_row_find(p, phase, of, !cx->root);
    double now = osh_now() - p->start;
    if (row >= 0) {
        p->rows[row].n++;
        if (records) scope_record(cx, p, row, "Start", now);
        if (records && cx->root) p->open[p->n_open++] = row;
        cx->scopes[cx->n_scopes++] = (osh_open_scope){.row = row, .records = records, .start = now};
    }
    pthread_mutex_unlock(&p->lock);
    return mark;
}

osh_scope osh_profile_begin(osh_ctx *cx, const char *phase, const char *of)
{
    return scope_begin(cx, phase, of, true);
}
osh_scope osh_profile_time(osh_ctx *cx, const char *phase, const char *of)
{
    return scope_begin(cx, phase, of, false);
}

void osh_profile_end(osh_ctx *cx, osh_scope scope)
{
    osh_profile *p = cx->sh->profile;
    if (!p || cx->n_scopes <= scope) return;
    pthread_mutex_lock(&p->lock);
    while (cx->n_scopes > scope) {
        osh_open_scope *s = &cx->scopes[--cx->n_scopes];
        // the scope belongs to an earlier profile
        if (!p->running || (size_t)s->row >= p->n_rows) continue;
        double now = osh_now() - p->start, seconds = now - s->start;
        p->rows[s->row].seconds += seconds - s->inside;
        if (cx->n_scopes) cx->scopes[cx->n_scopes - 1].inside += seconds;
        if (s->records) scope_record(cx, p, s->row, "End", now);
        if (s->records && cx->root && p->n_open) p->n_open--;
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
    int64_t bytes = profile_record(cx, p, name, now);
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

static osh_status rows_copy(osh_ctx *cx, osh_profile_data *d, const osh_profile *p)
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

/* Adds the time of the scopes that are still open on this thread to the rows in `d`. */
static void rows_add_open(const osh_ctx *cx, osh_profile_data *d, double now)
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
    osh_profile_data d = {.peak_bytes = -1, .live_peak = -1, .driver_peak = -1}; // own
    osh_profile *p = cx->sh->profile;
    if (p) {
        pthread_mutex_lock(&p->lock);
        double now = osh_now() - p->start;
        if (p->running) profile_sample(p, osh_mem_anon());
        d.seconds = now, d.peak_bytes = p->peaks.host, d.live_peak = p->peaks.live,
        d.driver_peak = p->peaks.driver, d.io = osh_profile_io(cx, p);
        rc = rows_copy(cx, &d, p);
        if (!rc && p->running) rows_add_open(cx, &d, now);
        pthread_mutex_unlock(&p->lock);
    }
    if (rc) osh_profile_data_deinit(cx, &d);
    *out = d;
    return rc;
}

void osh_profile_data_deinit(osh_ctx *cx, osh_profile_data *d)
{
    for (size_t i = 0; i < d->n_rows; i++)
        osh_free(cx, d->rows[i].phase), osh_free(cx, d->rows[i].of);
    for (size_t i = 0; i < d->n_marks; i++) osh_free(cx, d->marks[i].name);
    osh_free(cx, d->rows);
    osh_free(cx, d->marks);
    osh_free(cx, d->points);
    *d = (osh_profile_data){0};
}
