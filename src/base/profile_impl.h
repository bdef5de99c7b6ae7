/* profile_impl.h - the inside of osh_profile: profile.c counts, profile_file.c writes. All of it under the lock. */
#ifndef OSH_PROFILE_IMPL_H
#define OSH_PROFILE_IMPL_H
#include "base/ctx.h"
#include "base/profile.h"

enum { OSH_MAX_POINTS = 1000 };

typedef struct osh_profile_memory { // bytes; < 0: unknown
    int64_t anon, rss;          // now
    int64_t high;               // highest anon since the record before
    int64_t live, live_high;    // allocated: now, and highest since then
    osh_profile_card card;
} osh_profile_memory;

struct osh_profile {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t sampler;
    osh_shared *sh; // view: whose memory is counted
    bool running, stop;
    char about[1024]; // lines of the file's head
    int fd;      // -1: no file
    int64_t at;  // its end
    bool failed; // a write did; said once
    double start;
    osh_io_counts io0;
    osh_profile_row *rows; // own
    size_t n_rows, cap_rows;
    osh_profile_mark *marks; // own
    size_t n_marks, cap_marks;
    osh_profile_point points[OSH_MAX_POINTS];
    size_t n_points;
    double interval;
    int64_t peak, live_peak, driver_peak; // of the card as its driver counts, at records; < 0: unknown
    int64_t high, live_high; // since the last record
    int open[OSH_MAX_SCOPES]; // rows of the job's stages with records, the outermost first
    int n_open;
    osh_profile_gauge device; // NULL: none
    void *device_user;        // view
};

osh_io_counts osh_profile_io(const osh_ctx *cx, const osh_profile *p); // since the start
osh_profile_card osh_profile_card_now(const osh_profile *p);

/* profile_file.c; where there is no file nothing happens. */
void osh_profile_put_head(osh_ctx *cx, osh_profile *p);
void osh_profile_put_record(osh_ctx *cx, osh_profile *p, const char *step, double now, const osh_profile_memory *m);
void osh_profile_put_summary(osh_ctx *cx, osh_profile *p, double seconds);
#endif
