/* profile.h - measures the time and memory of a job by nested stages, and writes records to a YAML
 * file.
 *
 * The file has the records of AMD Quark's profiler (quark.common.profiler): a list memory_usage
 * with a "<stage> Start" and a "<stage> End" item for each scope, then the summary as top-level
 * keys. Each item is written by one write(2), so the file is valid YAML at any moment. */
#ifndef OSH_PROFILE_H
#define OSH_PROFILE_H
#include "base/base.h"
#include "base/file.h"

/* Starts the profile and one thread that samples the memory. If `path` is NULL, collects data for
 * the report and writes no file. */
osh_status osh_profile_start(osh_ctx *cx, const char *path);
/* Sets the description of the job. The next osh_profile_start writes the description before the
 * records, and clears it. */
osh_status osh_profile_about(osh_ctx *cx, const char *model, const char *method);
/* True between osh_profile_start and osh_profile_stop. */
bool osh_profile_running(const osh_ctx *cx);
/* Writes the record "End" and the summary. osh_profile_read returns the collected data until the
 * next start. */
void osh_profile_stop(osh_ctx *cx);

/* Begins a stage and returns its scope. Scopes nest; each thread's context has its own stack. `of`
 * is the name of a subgraph or module, or NULL. osh_profile_begin writes the records "<phase> <of>
 * Start" and "<phase> <of> End" to the file. osh_profile_time writes no records, because it is for
 * short and frequent stages. Without osh_profile_start, these two functions do nothing. */
typedef int osh_scope;
osh_scope osh_profile_begin(osh_ctx *cx, const char *phase, const char *of);
osh_scope osh_profile_time(osh_ctx *cx, const char *phase, const char *of);
void osh_profile_end(osh_ctx *cx, osh_scope scope); // also ends each open scope inside `scope`
void osh_profile_flops(osh_ctx *cx, double flops);  // adds operations to the innermost open scope
/* Writes a record of this moment, with a name that the caller chooses. */
void osh_profile_checkpoint(osh_ctx *cx, const char *name);

/* The stages of AMD Quark's profiler. Each phase of this program belongs to one of these stages. */
typedef enum osh_stage {
    OSH_STAGE_BEFORE,
    OSH_STAGE_CALIBRATE,
    OSH_STAGE_QUANTIZE,
    OSH_STAGE_TUNE,
    OSH_STAGE_AFTER,
    OSH_N_STAGES
} osh_stage;
/* Returns OSH_N_STAGES if the phase belongs to no stage, such as a phase of a program that uses the
 * library. */
osh_stage osh_profile_stage(const char *phase);
const char *osh_stage_name(osh_stage s);        // returns "Pre-process", "Calibration", ...

typedef struct osh_profile_gpu { // bytes
    int64_t now, peak; // now: bytes in use in the GPU's arena; peak: highest number of bytes so far
    int64_t driver;    // bytes in use on the whole GPU, as the driver reports it; < 0: unknown
} osh_profile_gpu;
/* Sets the function that reports the device's memory for records. Each thread that writes a record
 * calls the function. If `fn` is NULL, records do not contain the memory of the device. */
typedef void (*osh_profile_gauge)(void *user, osh_profile_gpu *out);
void osh_profile_device(osh_ctx *cx, osh_profile_gauge fn, void *user);

/* Returns the current anonymous and shared memory of the process (RssAnon + RssShmem of
 * /proc/self/status), or a negative number if this is unknown. Pages of mapped files are not
 * counted, because the kernel can drop them. */
int64_t osh_mem_anon(void);
/* Gives free pages back to the system, then returns the part of osh_mem_anon that osh_alloc does
 * not count. */
int64_t osh_mem_uncounted(osh_ctx *cx);
/* Limits the process to n_bytes (0: no limit) while data is read. The limit for allocations is
 * n_bytes minus osh_mem_uncounted minus a reserve for libraries. This limit is at least `least`,
 * because a job that fails before the data is read cannot name the budget that it needs. */
void osh_mem_hold(osh_ctx *cx, int64_t n_bytes, int64_t least);
/* Value of `least`, in bytes, for jobs that read data. The value includes the memory of the program
 * itself. Every such job needs more than this value. */
enum { OSH_MEM_LEAST = 24 << 20 };
/* Returns the highest memory of the process since osh_ctx_new or osh_ctx_anew, including the memory
 * of libraries. */
int64_t osh_mem_held(osh_ctx *cx);
/* `rc` is the status of work that followed osh_mem_hold. If `rc` is OSH_E_NOMEM, adds to the error
 * message that the budget of n_bytes is too small, and returns OSH_E_USAGE. Otherwise returns
 * `rc`. */
osh_status osh_mem_refused(osh_ctx *cx, osh_status rc, int64_t n_bytes);
/* Returns the highest osh_mem_anon since osh_profile_start, sampled every 20 ms, at each record,
 * and now. Returns a negative number if this is unknown, or if no profile was started. */
int64_t osh_mem_sampled_peak(osh_ctx *cx);

typedef struct osh_profile_row { // all scopes of one phase of one subgraph
    char *phase, *of; // own: names of the phase and of its subgraph or module (may be NULL)
    double seconds;   // wall time of the scopes without the time of inner scopes
    double flops;
    int64_t n; // number of scopes
    /* True if the scopes ran on another thread than the job's. Their time then overlaps the time of
     * other rows. */
    bool background;
    /* Highest values while a scope with records was open; 0: no such scope.
     * peak_bytes: memory of the process.
     * live_bytes: allocated bytes. */
    int64_t peak_bytes, live_bytes;
} osh_profile_row;
typedef struct osh_profile_total { // rows of one phase or stage, added up
    const char *name; // view: name of the phase or stage
    double seconds, flops;
    /* n: number of scopes. peak_bytes, live_bytes: as in osh_profile_row. */
    int64_t n, peak_bytes, live_bytes;
    bool background;
} osh_profile_total;
/* Adds up the rows [n_rows] that belong to stage s, and stores the total in `to[s]`. Omits
 * background rows. */
void osh_profile_stages(osh_profile_total to[OSH_N_STAGES], const osh_profile_row *rows,
                        size_t n_rows);
/* Returns the totals of the phases, in the order in which the phases first began. A phase that runs
 * on the job's thread and on other threads has two totals. The caller frees the result with
 * free(3). Returns NULL if there is no memory. */
osh_profile_total *osh_profile_phases(size_t *n, const osh_profile_row *rows, size_t n_rows);
typedef struct osh_profile_point {
    /* Seconds since the start of the profile. The point describes the time up to the next point. */
    double seconds;
    int64_t bytes;  // highest value of osh_mem_anon
    int64_t live;   // highest number of allocated bytes; < 0: unknown
    /* Row of the innermost open stage that osh_profile_begin began on the job's thread; -1:
     * none. */
    int row;
} osh_profile_point;
/* A record of osh_profile_checkpoint; `name` is own. */
typedef struct osh_profile_mark { char *name; double seconds; int64_t bytes; } osh_profile_mark;
typedef struct osh_profile_data {
    osh_profile_row *rows; // own: in the order in which the stages of the rows first began
    size_t n_rows;
    osh_profile_point *points; // own: points of the memory curve, at most 1000
    size_t n_points;
    osh_profile_mark *marks; // own
    size_t n_marks;
    double seconds;      // seconds since the start of the profile
    int64_t peak_bytes;  // value of osh_mem_sampled_peak
    int64_t live_peak;   // highest allocated bytes; < 0: unknown
    int64_t driver_peak; // highest GPU memory in a record, as the driver reports it; < 0: unknown
    osh_io_counts io;    // number of bytes read and written since the start of the profile
} osh_profile_data;
/* Copies the data of the profile, which may still run. */
osh_status osh_profile_read(osh_ctx *cx, osh_profile_data *out);
/* Frees the arrays and the strings of *d. */
void osh_profile_data_deinit(osh_ctx *cx, osh_profile_data *d);
#endif
