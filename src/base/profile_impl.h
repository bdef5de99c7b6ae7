/* profile_impl.h - declares struct osh_profile, which profile.c fills and profile_file.c writes.
 * The lock protects all members. */
#ifndef OSH_PROFILE_IMPL_H
#define OSH_PROFILE_IMPL_H
#include "base/ctx.h"
#include "base/profile.h"

enum { OSH_MAX_POINTS = 1000 };

typedef struct osh_profile_memory { // memory in bytes; < 0: unknown
    int64_t anon, rss;       // anon: result of osh_mem_anon; rss: VmRSS of the process
    int64_t high;            // highest value of anon since the last record
    /* live: allocated bytes now; live_high: most allocated bytes since the last record; < 0:
     * unknown. */
    int64_t live, live_high;
    osh_profile_gpu gpu;
} osh_profile_memory;

typedef struct osh_profile_out { // the profile's file
    char about[1024]; // text for the head of the file (osh_profile_about)
    int fd;           // descriptor of the profile's file; -1: there is no file
    int64_t size;     // size of the profile's file so far
    bool failed;      // true if writing the file has failed and the failure was reported
} osh_profile_out;

typedef struct osh_profile_peaks { // highest memory so far, in bytes
    /* host: memory of the process.
     * live: allocated bytes.
     * driver: GPU memory that the driver reported for a record; < 0: unknown. */
    int64_t host, live, driver;
    int64_t new_host, new_live; // highest `host` and `live` since the last record
} osh_profile_peaks;

struct osh_profile {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t sampler;
    osh_shared *sh; // view: the context whose memory is counted
    bool running, stop;
    osh_profile_out file;
    double start;
    osh_io_counts io0;
    osh_profile_row *rows; // own
    size_t n_rows, cap_rows;
    osh_profile_mark *marks; // own
    size_t n_marks, cap_marks;
    osh_profile_point points[OSH_MAX_POINTS];
    size_t n_points;
    double interval;
    osh_profile_peaks peaks;
    /* Indices in `rows` of the job's open stages that write records, outermost first. */
    int open[OSH_MAX_SCOPES];
    int n_open;
    osh_profile_gauge device; // reports the memory of the device; NULL: no device
    void *device_user;        // view
};

/* Returns how many bytes the job has read and written since the start of the profile. */
osh_io_counts osh_profile_io(const osh_ctx *cx, const osh_profile *p);
/* Returns the current memory of the device; `driver` is -1 if it is unknown. */
osh_profile_gpu osh_profile_gpu_now(const osh_profile *p);

/* profile_file.c defines these functions. They do nothing if the profile has no file. */
void osh_profile_put_head(osh_ctx *cx, osh_profile *p);
void osh_profile_put_record(osh_ctx *cx, osh_profile *p, const char *step, double now,
                            const osh_profile_memory *m);
void osh_profile_put_summary(osh_ctx *cx, osh_profile *p, double seconds);
#endif
