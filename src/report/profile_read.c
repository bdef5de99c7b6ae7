/* profile_read.c - reads the YAML of a profile.
 *
 * The memory in a record of the profile is the highest memory since the previous record. So the
 * chart shows this memory from the time of the previous record to the time of the record. The
 * records "X Start" and "X End" are the begin and the end of a stage; any other record is a
 * checkpoint. Stages of the prefetch thread overlap the stages of the job. Stages of the prefetch
 * thread are recognized by their names. Their time does not count as time of the job. */
#include "base/file.h"
#include "base/map.h"
#include "base/name.h"
#include "report/profiles.h"
#include "text/yaml.h"

#include <math.h>
#include <string.h>

enum { MAX_BYTES = 256 << 20, MAX_OPEN = 64 };
static const double mb = 1 << 20;

typedef struct open_stage {
    int row;
    /* start: time at which the stage begins, in seconds.
     * inside: seconds of the inner stages. */
    double start, inside;
} open_stage;

typedef struct reader {
    osh_ctx *cx;
    osh_map *rows;         // own: maps the name of a stage to the index of the stage's row
    osh_profile_data *d; // view
    const char *path;
    open_stage open[MAX_OPEN]; // stages that have begun and not ended, the outermost first
    int n_open;
    double beside; // start of the current stage of the prefetch thread, in seconds
} reader;

/* ---- values ---- */

static bool record_number(const osh_yaml *map, const char *key, double *out)
{
    const osh_yaml *v = map->kind == OSH_Y_MAP ? osh_yaml_get(map, key) : NULL;
    if (!v || (v->kind != OSH_Y_INT && v->kind != OSH_Y_FLOAT)) return false;
    *out = v->kind == OSH_Y_INT ? (double)v->i : v->f;
    return isfinite(*out) && *out >= 0 && *out < 1e15;
}

static int64_t record_bytes(const osh_yaml *map, const char *key)
{
    double v;
    return record_number(map, key, &v) ? (int64_t)(v * mb) : -1;
}

/* ---- stages ---- */

static const char beside[] = "read ahead";

/* Returns the length of the phase in the name of a stage. In a profile of oneshot the phase is the
 * first word. In a profile of another program the whole name is the phase. */
static size_t stage_phase_length(const char *stage)
{
    char word[32];
    size_t n = strcspn(stage, " ");
    if (!strncmp(stage, beside, sizeof beside - 1)) return sizeof beside - 1;
    if (n >= sizeof word) return strlen(stage);
    memcpy(word, stage, n), word[n] = 0;
    return osh_profile_stage(word) == OSH_N_STAGES ? strlen(stage) : n;
}

/* Returns the row of a stage in the table. Makes the row if the stage is new. */
static osh_status stage_row(reader *r, const char *stage, size_t n, int *row)
{
    osh_status rc = OSH_OK;
    osh_profile_data *d = r->d;
    osh_profile_row made = {0}; // own
    char *name = NULL;          // own
    int64_t at;
    if (osh_map_get(r->rows, stage, n, &at)) {
        *row = (int)at;
        return OSH_OK;
    }
    if (!(name = osh_sprintf(r->cx, "%.*s", (int)n, stage))) OSH_TRY(OSH_E_NOMEM);
    size_t k = stage_phase_length(name);
    made.background = !strncmp(name, beside, sizeof beside - 1);
    if (!(made.phase = osh_sprintf(r->cx, "%.*s", (int)k, name))) OSH_TRY(OSH_E_NOMEM);
    if (name[k] == ' ' && !(made.of = osh_strdup(r->cx, name + k + 1))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_map_put(r->cx, r->rows, stage, n, (int64_t)d->n_rows));
    *row = (int)d->n_rows;
    d->rows[d->n_rows++] = made;
    made = (osh_profile_row){0};
done:
    osh_free(r->cx, name);
    osh_free(r->cx, made.phase);
    osh_free(r->cx, made.of);
    return rc;
}

static void stage_begin(reader *r, int row, double t)
{
    osh_profile_row *x = &r->d->rows[row];
    x->n++;
    if (x->background) r->beside = t;
    else if (r->n_open < MAX_OPEN) r->open[r->n_open++] = (open_stage){row, t, 0};
}

/* Ends a stage. Does nothing if the stage has no begin, which can happen in a file that was cut. */
static void stage_end(reader *r, int row, double t)
{
    osh_profile_row *x = &r->d->rows[row];
    int k = r->n_open;
    if (x->background) {
        x->seconds += t - r->beside;
        return;
    }
    while (--k >= 0 && r->open[k].row != row) {}
    if (k < 0) return;
    double all = t - r->open[k].start;
    x->seconds += all - r->open[k].inside;
    r->n_open--; // stages that a user defines may overlap, so open[k] need not be the last
    memmove(&r->open[k], &r->open[k + 1], (size_t)(r->n_open - k) * sizeof *r->open);
    if (k) r->open[k - 1].inside += all;
}

/* ---- records ---- */

/* Raises the peaks of the open stages and of the profile to the values of a record. */
static void stages_see(reader *r, int64_t high, int64_t live)
{
    for (int i = 0; i < r->n_open; i++) {
        osh_profile_row *x = &r->d->rows[r->open[i].row];
        if (high > x->peak_bytes) x->peak_bytes = high;
        if (live > x->live_bytes) x->live_bytes = live;
    }
    if (high > r->d->peak_bytes) r->d->peak_bytes = high;
    if (live > r->d->live_peak) r->d->live_peak = live;
}

/* Begins or ends a stage, or adds a checkpoint. */
static osh_status profile_read_step(reader *r, const char *step, double t, int64_t now)
{
    osh_status rc = OSH_OK;
    osh_profile_data *d = r->d;
    size_t begins = osh_before_tail(step, " Start"), ends = osh_before_tail(step, " End");
    int row;
    if (!strcmp(step, "Start") || !strcmp(step, "End")) return OSH_OK;
    if (begins || ends) {
        OSH_TRY(stage_row(r, step, begins ? begins : ends, &row));
        (begins ? stage_begin : stage_end)(r, row, t);
        goto done;
    }
    d->marks[d->n_marks] = (osh_profile_mark){osh_strdup(r->cx, step), t, now};
    if (!d->marks[d->n_marks++].name) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

static bool record_is_valid(const osh_yaml *item)
{
    const osh_yaml *step = item->kind == OSH_Y_MAP ? osh_yaml_get(item, "step") : NULL;
    double t;
    return step && step->text && record_number(item, "relative_time_secs", &t) &&
           record_bytes(item, "cpu_memory_mb") >= 0;
}

static osh_status profile_read_record(reader *r, const osh_yaml *item)
{
    osh_status rc = OSH_OK;
    osh_profile_data *d = r->d;
    double t = 0;
    int64_t now = record_bytes(item, "cpu_memory_mb"),
            high = record_bytes(item, "cpu_memory_high_mb");
    int64_t live = record_bytes(item, "live_high_mb"), read = record_bytes(item, "disk_read_mb");
    int64_t written = record_bytes(item, "disk_write_mb");
    if (!record_is_valid(item))
        OSH_FAIL(r->cx, OSH_E_FORMAT,
                 "%s:%d: want a record with step, relative_time_secs and cpu_memory_mb", r->path,
                 item->line);
    record_number(item, "relative_time_secs", &t);
    if (t < d->seconds)
        OSH_FAIL(r->cx, OSH_E_FORMAT, "%s:%d: relative_time_secs falls to %.3f from %.3f", r->path,
                 item->line, t, d->seconds);
    stages_see(r, high > now ? high : now, live);
    // row of the innermost open stage, which gets the time since the previous record
    int row = r->n_open ? r->open[r->n_open - 1].row : -1;
    if (d->n_points) {
        osh_profile_point *before = &d->points[d->n_points - 1];
        if (high > before->bytes) before->bytes = high;
        if (live > before->live) before->live = live;
        before->row = row;
    }
    d->seconds = t;
    if (read > d->io.read_bytes) d->io.read_bytes = read;
    if (written > d->io.written_bytes) d->io.written_bytes = written;
    OSH_TRY(profile_read_step(r, osh_yaml_get(item, "step")->text, t, now));
    d->points[d->n_points++] = (osh_profile_point){t, now, record_bytes(item, "live_mb"), -1};
done:
    return rc;
}

/* Reduces the points to at most 1000: replaces neighbouring points by one point with the highest
 * memory of the replaced points. */
static void points_thin(osh_profile_data *d)
{
    enum { MOST = 1000 };
    size_t per = (d->n_points + MOST - 1) / MOST, n = 0;
    for (size_t i = 0; per > 1 && i < d->n_points; i += per, n++) {
        osh_profile_point x = d->points[i];
        for (size_t k = i + 1; k < i + per && k < d->n_points; k++) {
            if (d->points[k].bytes > x.bytes) x.bytes = d->points[k].bytes;
            if (d->points[k].live > x.live) x.live = d->points[k].live;
        }
        d->points[n] = x;
    }
    if (per > 1) d->n_points = n;
}

static osh_status profile_read_records(osh_ctx *cx, osh_profile_data *d, const osh_yaml *list,
                                       const char *path)
{
    osh_status rc = OSH_OK;
    reader r = {.cx = cx, .d = d, .path = path};
    size_t n = list->kind == OSH_Y_SEQ ? list->n : 0;
    OSH_TRY(osh_map_new(cx, &r.rows, n));
    OSH_NEW(cx, d->rows, n + 1);
    OSH_NEW(cx, d->marks, n + 1);
    OSH_NEW(cx, d->points, n + 1);
    if (n && !record_is_valid(list->items[n - 1])) n--; // the last record may be incomplete
    for (size_t i = 0; i < n; i++) OSH_TRY(profile_read_record(&r, list->items[i]));
    while (r.n_open)
        /* Ends the stages that were open when the process was killed. */
        stage_end(&r, r.open[r.n_open - 1].row, d->seconds);
    points_thin(d);
done:
    osh_map_free(cx, r.rows);
    return rc;
}

/* ---- file ---- */

/* Adds the number of operations of each phase, from the summary at the end of the file. */
static void profile_read_flops(osh_profile_data *d, const osh_yaml *phases)
{
    for (size_t i = 0; phases && phases->kind == OSH_Y_SEQ && i < phases->n; i++) {
        const osh_yaml *item = phases->items[i],
                       *name = item->kind == OSH_Y_MAP ? osh_yaml_get(item, "phase") : NULL;
        double gflop;
        if (!name || !name->text || !record_number(item, "gflop", &gflop)) continue;
        for (size_t k = 0; k < d->n_rows; k++) {
            if (strcmp(d->rows[k].phase, name->text) || d->rows[k].background) continue;
            d->rows[k].flops += gflop * 1e9;
            break;
        }
    }
}

static osh_status profile_read_name(osh_ctx *cx, char **to, const osh_yaml *y, const char *key)
{
    const osh_yaml *v = osh_yaml_get(y, key);
    if (!v || !v->text || !*v->text) return OSH_OK;
    return (*to = osh_strdup(cx, v->text)) ? OSH_OK : OSH_E_NOMEM;
}

static void profile_read_summary(osh_profiled *out, const osh_yaml *y)
{
    double t;
    int64_t peak = record_bytes(y, "peak_memory_mb");
    out->whole = record_number(y, "total_quantization_time_seconds", &t);
    if (out->whole && t > out->d.seconds) out->d.seconds = t;
    if (peak > out->d.peak_bytes) out->d.peak_bytes = peak;
    if (record_bytes(y, "peak_live_mb") > out->d.live_peak)
        out->d.live_peak = record_bytes(y, "peak_live_mb");
    out->rss_peak = record_bytes(y, "peak_rss_mb");
    out->d.driver_peak = record_bytes(y, "peak_gpu_device_mb");
    out->gpu_peak = record_bytes(y, "peak_gpu_memory_mb");
    if (out->gpu_peak < 0) out->gpu_peak = record_bytes(y, "gpu_peak_memory_mb");
    profile_read_flops(&out->d, osh_yaml_get(y, "phases"));
}

/* Parses the file. If the file does not parse, drops its last record and the text after that, and
 * parses again: Quark does not write whole records, so a killed run can leave a part of one. */
static osh_status profile_parse(osh_ctx *cx, osh_yaml **y, const char *text, size_t n,
                                const char *path)
{
    static const char item[] = "\n- step:";
    size_t k = n > sizeof item ? n - sizeof item : 0;
    osh_status rc = osh_yaml_parse(cx, y, text, n, path);
    if (rc != OSH_E_FORMAT) return rc;
    while (k && strncmp(text + k, item, sizeof item - 1)) k--;
    if (!k) return rc;
    osh_error_clear(cx);
    return osh_yaml_parse(cx, y, text, k + 1, path);
}

osh_status osh_profiled_read(osh_ctx *cx, osh_profiled *out, const char *path)
{
    osh_status rc = OSH_OK;
    char *text = NULL;  // own
    osh_yaml *y = NULL; // own
    size_t n;
    *out = (osh_profiled){.d = {.peak_bytes = -1, .live_peak = -1, .driver_peak = -1}};
    if (!(out->name = osh_strdup(cx, osh_path_last(path)))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, MAX_BYTES));
    OSH_TRY(profile_parse(cx, &y, text, n, path));
    const osh_yaml *list = y->kind == OSH_Y_MAP ? osh_yaml_get(y, "memory_usage") : NULL;
    if (!list) OSH_FAIL(cx, OSH_E_FORMAT, "%s is not a profile: it has no list memory_usage", path);
    OSH_TRY(profile_read_records(cx, &out->d, list, path));
    if (!out->d.n_points)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: the list memory_usage has no records", path);
    OSH_TRY(profile_read_name(cx, &out->model, y, "model"));
    OSH_TRY(profile_read_name(cx, &out->method, y, "method"));
    profile_read_summary(out, y);
done:
    osh_yaml_free(cx, y);
    osh_free(cx, text);
    if (rc) osh_profiled_deinit(cx, out);
    return rc;
}

void osh_profiled_deinit(osh_ctx *cx, osh_profiled *p)
{
    osh_profile_data_deinit(cx, &p->d);
    osh_free(cx, p->name);
    osh_free(cx, p->model);
    osh_free(cx, p->method);
    *p = (osh_profiled){0};
}
