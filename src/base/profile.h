/* profile.h - what a job takes: stages as scopes, records streamed to a YAML file, memory sampled against time.
 *
 * The file has the records of AMD Quark's profiler (quark.common.profiler): a list memory_usage with a "<stage> Start"
 * and a "<stage> End" item for each scope, then the summary as top-level keys. An item is one write(2), so the file is
 * YAML at any moment. */
#ifndef OSH_PROFILE_H
#define OSH_PROFILE_H
#include "base/base.h"
#include "base/file.h"

/* path NULL: collects for the report and writes no file. Starts one thread, which samples the memory. */
osh_status osh_profile_start(osh_ctx *cx, const char *path);
/* Before it: what the file says of the job, in front of the records; forgotten with that start. */
osh_status osh_profile_about(osh_ctx *cx, const char *model, const char *method);
bool osh_profile_running(const osh_ctx *cx);
/* The record "End" and the summary. What was collected stays until the next start. */
void osh_profile_stop(osh_ctx *cx);

/* A stage. Scopes nest; each thread's context has its own stack. of: a subgraph or module, or NULL. With records, the
 * file gets "<phase> <of> Start" and "... End"; osh_profile_time is for stages too short and too many for that. Without
 * osh_profile_start nothing happens. */
typedef int osh_scope;
osh_scope osh_profile_begin(osh_ctx *cx, const char *phase, const char *of);
osh_scope osh_profile_time(osh_ctx *cx, const char *phase, const char *of); // ended by osh_profile_end too
void osh_profile_end(osh_ctx *cx, osh_scope scope); // and every scope that is still open inside
void osh_profile_flops(osh_ctx *cx, double flops);  // done by the innermost open scope
void osh_profile_checkpoint(osh_ctx *cx, const char *name); // a record of the caller's own

/* The stages that AMD Quark's profiler names; each phase of ours belongs to one. */
typedef enum osh_stage {
    OSH_STAGE_BEFORE, OSH_STAGE_CALIBRATE, OSH_STAGE_QUANTIZE, OSH_STAGE_TUNE, OSH_STAGE_AFTER, OSH_N_STAGES
} osh_stage;
osh_stage osh_profile_stage(const char *phase); // OSH_N_STAGES: of none, such as a program's own
const char *osh_stage_name(osh_stage s);        // "Pre-process", "Calibration", ...

typedef struct osh_profile_card { // bytes
    int64_t now, peak; // of the arena
    int64_t driver;    // in use on the whole card, as the driver reports it; < 0: it does not
} osh_profile_card;
/* Where records take the device's memory from; NULL: none. Called by any thread that records. */
typedef void (*osh_profile_gauge)(void *user, osh_profile_card *out);
void osh_profile_device(osh_ctx *cx, osh_profile_gauge fn, void *user);

/* Anonymous and shared memory of the process now (RssAnon + RssShmem of /proc/self/status): pages of mapped files are
 * the kernel's to take back. < 0: unknown. */
int64_t osh_mem_anon(void);
/* What of it osh_alloc does not count. Trims first: pages that are kept for reuse are no part of it. */
int64_t osh_mem_uncounted(osh_ctx *cx);
/* Holds the process to n_bytes (0: to none) while data is read: allocations to what is left beside that which
 * osh_mem_anon sees and they are not, and what libraries take meanwhile; to `least` where that is more, since a refusal
 * says what would do, and that takes reading. */
void osh_mem_hold(osh_ctx *cx, int64_t n_bytes, int64_t least);
enum { OSH_MEM_LEAST = 24 << 20 }; // with the program's own, less than any job needs that reads data
/* The most that the process has had since the context's birth, with what libraries took meanwhile. */
int64_t osh_mem_held(osh_ctx *cx);
/* Of an rc of what read while the process was held: no memory is a budget that is too small, OSH_E_USAGE. */
osh_status osh_mem_refused(osh_ctx *cx, osh_status rc, int64_t n_bytes);
/* Highest osh_mem_anon since osh_profile_start: every 20 ms, at each record, and now; < 0: unknown, or not started. */
int64_t osh_mem_sampled_peak(osh_ctx *cx);

typedef struct osh_profile_row { // one phase of one subgraph, all its scopes
    char *phase, *of; // own; of NULL: none
    double seconds;   // wall time without that of the scopes inside
    double flops;
    int64_t n;        // scopes
    bool background;  // of a thread beside the job's own: its time overlaps other rows'
    int64_t peak_bytes, live_bytes; // the highest while a scope with records was open; 0: there was none
} osh_profile_row;
typedef struct osh_profile_total { // of the rows of one phase, or of one stage
    const char *name; // view: the phase's
    double seconds, flops;
    int64_t n, peak_bytes, live_bytes; // 0: not known
    bool background;
} osh_profile_total;
void osh_profile_stages(osh_profile_total to[OSH_N_STAGES], const osh_profile_row *rows, size_t n_rows);
/* Phases in the order of their first begin; those beside the job apart. For free(3); NULL: no memory. */
osh_profile_total *osh_profile_phases(size_t *n, const osh_profile_row *rows, size_t n_rows);
typedef struct osh_profile_point {
    double seconds; // since the start; until the next
    int64_t bytes;  // highest osh_mem_anon
    int64_t live;   // highest that was allocated; < 0: unknown
    int row;        // the stage with records that the job's thread is in; -1: none
} osh_profile_point;
typedef struct osh_profile_mark { char *name; double seconds; int64_t bytes; } osh_profile_mark; // checkpoint; name own
typedef struct osh_profile_data {
    osh_profile_row *rows; // own, in the order of their first begin
    size_t n_rows;
    osh_profile_point *points; // own; at most 1000
    size_t n_points;
    osh_profile_mark *marks; // own
    size_t n_marks;
    double seconds;     // since the start
    int64_t peak_bytes; // osh_mem_sampled_peak
    int64_t live_peak;  // highest that was allocated; < 0: unknown
    int64_t driver_peak; // highest of a card at records, as its driver reports it; < 0: unknown
    osh_io_counts io;   // since the start
} osh_profile_data;
osh_status osh_profile_read(osh_ctx *cx, osh_profile_data *out); // a copy, also while it runs
void osh_profile_data_deinit(osh_ctx *cx, osh_profile_data *d);
#endif
