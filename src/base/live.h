/* live.h - prints the live line, the one line that a terminal shows while a job runs. */
#ifndef OSH_LIVE_H
#define OSH_LIVE_H
#include "base/base.h"

typedef struct osh_live {
    const osh_progress *p; // view
    /* left: estimated seconds until the job ends; < 0: unknown. elapsed: seconds since its
     * start. */
    double left, elapsed;
    int64_t peak;          // bytes
} osh_live;

/* Prints the live line in at most width - 1 columns, without a newline. Returns the number of
 * columns. */
int osh_live_print(char *to, size_t room, const osh_live *live, int width, bool colour);
int osh_live_width(void);     // returns the number of columns of the terminal on stderr
bool osh_live_in_front(void); // true unless the process is in the background of a shell

/* Returns the finished fraction of the job; < 0: unknown. */
double osh_progress_fraction(const osh_progress *p);
/* Prints the rate of the job, such as "310 tok/s" or "12.5 MB/s", or "" if the rate is unknown. */
void osh_show_rate(char *to, size_t room, const osh_progress *p);
/* Prints a duration such as "4m12s". */
void osh_show_time(char *to, size_t room, double seconds);
/* Prints a number of bytes as "5.1 of 24.0 GiB". If `budget` is 0, prints only `n`. */
void osh_show_bytes(char *to, size_t room, int64_t n, int64_t budget);
#endif
