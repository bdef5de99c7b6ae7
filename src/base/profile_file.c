/* profile_file.c - writes the YAML file of a profile. */
#include "base/profile_impl.h"
#include "base/quote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double mb = 1 << 20; // number of bytes of one MB in Quark's files

static double profile_in_mb(int64_t bytes) { return (double)(bytes < 0 ? 0 : bytes) / mb; }

static void profile_put_bytes(osh_ctx *cx, osh_profile *p, const char *text, size_t n)
{
    char why[128];
    while (n && p->file.fd >= 0 && !p->file.failed) {
        ssize_t k = write(p->file.fd, text, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) { // a job does not fail because of its profile
            p->file.failed = true;
            osh_log(cx, OSH_LOG_WARN, "the profile ends here: cannot write it: %s",
                    strerror_r(errno, why, sizeof why));
            return;
        }
        p->file.size += k;
        text += k;
        n -= (size_t)k;
    }
}

/* Writes a text so that a kill cannot cut it. A kill can cut a write(2) only at the end of a page
 * of the file, so the text must be within one page. If the text does not fit into the current page,
 * a YAML comment fills this page. */
static void profile_put(osh_ctx *cx, osh_profile *p, const char *text, size_t n)
{
    char fill[OSH_PAGE];
    size_t left = OSH_PAGE - (size_t)(p->file.size % OSH_PAGE);
    if (n > left && n <= OSH_PAGE) {
        memset(fill, '.', left);
        fill[0] = '#', fill[left - 1] = '\n'; // if `left` is 1, the fill is only the newline
        profile_put_bytes(cx, p, fill, left);
    }
    profile_put_bytes(cx, p, text, n);
}

static const char head[] =
    "# oneshot profile. Per record:\n"
    "# - step: the stage, and whether it starts or ends; or a checkpoint's name\n"
    "# - timestamp: seconds since the epoch\n"
    "# - relative_time_secs: seconds since profiling started\n"
    "# - cpu_memory_mb: anonymous and shared memory (RssAnon + RssShmem), MB of 2^20 bytes\n"
    "# - gpu_memory_mb: in use in the GPU's arena; 0 on the CPU\n"
    "# - disk_read_mb, disk_write_mb: read from and written to files since profiling started\n"
    "# - rss_mb: the resident set as the system counts it, pages of mapped files included\n"
    "# - live_mb: allocated by the program and not yet freed\n"
    "# - cpu_memory_high_mb, live_high_mb: the highest of both since the last record\n"
    "# - gpu_device_mb: in use on the whole GPU, as its driver reports it; absent if unknown\n"
    "# Summary: peak_memory_mb is the highest cpu_memory_mb, sampled every 20 ms and at records;\n"
    "# phases: seconds without inner stages, highest memory, floating-point operations if known;\n"
    "# stages: totals of phases.\n";
static const char list[] = "memory_usage:\n";

void osh_profile_put_head(osh_ctx *cx, osh_profile *p)
{
    profile_put(cx, p, head, sizeof head - 1);
    if (*p->file.about) profile_put(cx, p, p->file.about, strlen(p->file.about));
    profile_put(cx, p, list, sizeof list - 1);
}

void osh_profile_put_record(osh_ctx *cx, osh_profile *p, const char *step, double now,
                            const osh_profile_memory *m)
{
    char name[1024], item[2048];
    struct timespec t;
    if (p->file.fd < 0) return;
    osh_io_counts io = osh_profile_io(cx, p);
    clock_gettime(CLOCK_REALTIME, &t);
    osh_quote(name, sizeof name, step);
    int n = snprintf(
        item, sizeof item,
        "- step: \"%s\"\n  timestamp: %.3f\n  relative_time_secs: %.3f\n  cpu_memory_mb: %.2f\n"
        "  gpu_memory_mb: %.2f\n  disk_read_mb: %.2f\n  disk_write_mb: %.2f\n  rss_mb: %.2f\n"
        "  live_mb: %.2f\n  cpu_memory_high_mb: %.2f\n  live_high_mb: %.2f\n",
        name, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec, now, profile_in_mb(m->anon),
        profile_in_mb(m->gpu.now), profile_in_mb(io.read_bytes), profile_in_mb(io.written_bytes),
        profile_in_mb(m->rss), profile_in_mb(m->live), profile_in_mb(m->high),
        profile_in_mb(m->live_high));
    if (m->gpu.driver >= 0)
        n += snprintf(item + n, sizeof item - (size_t)n, "  gpu_device_mb: %.2f\n",
                      profile_in_mb(m->gpu.driver));
    profile_put(cx, p, item, (size_t)n);
}

/* ---- summary ---- */

static void profile_put_stages(osh_ctx *cx, osh_profile *p)
{
    char line[256];
    osh_profile_total of[OSH_N_STAGES];
    osh_profile_stages(of, p->rows, p->n_rows);
    profile_put(cx, p, "stages:\n", 8);
    for (int k = 0; k < OSH_N_STAGES; k++) {
        if (!of[k].n) continue;
        int n =
            snprintf(line, sizeof line,
                     "- {stage: \"%s\", seconds: %.3f, peak_memory_mb: %.2f, peak_live_mb: %.2f}\n",
                     of[k].name, of[k].seconds, profile_in_mb(of[k].peak_bytes),
                     profile_in_mb(of[k].live_bytes));
        profile_put(cx, p, line, (size_t)n);
    }
}

static void profile_put_phase(osh_ctx *cx, osh_profile *p, const osh_profile_total *t)
{
    char line[512], name[128];
    osh_quote(name, sizeof name, t->name);
    int k =
        snprintf(line, sizeof line, "- {phase: \"%s\", seconds: %.3f, scopes: %lld, background: %s",
                 name, t->seconds, (long long)t->n, t->background ? "true" : "false");
    if (t->peak_bytes > 0)
        k += snprintf(line + k, sizeof line - (size_t)k,
                      ", peak_memory_mb: %.2f, peak_live_mb: %.2f", profile_in_mb(t->peak_bytes),
                      profile_in_mb(t->live_bytes));
    if (t->flops > 0)
        k += snprintf(line + k, sizeof line - (size_t)k, ", gflop: %.3f, gflop_per_s: %.2f",
                      t->flops / 1e9, t->seconds > 0 ? t->flops / 1e9 / t->seconds : 0);
    k += snprintf(line + k, sizeof line - (size_t)k, "}\n");
    profile_put(cx, p, line, (size_t)k);
}

static void profile_put_phases(osh_ctx *cx, osh_profile *p)
{
    size_t n;
    osh_profile_total *of = osh_profile_phases(&n, p->rows, p->n_rows); // own
    profile_put(cx, p, "phases:\n", 8);
    for (size_t i = 0; of && i < n; i++) profile_put_phase(cx, p, &of[i]);
    free(of);
}

void osh_profile_put_summary(osh_ctx *cx, osh_profile *p, double seconds)
{
    char text[1024];
    osh_io_counts io = osh_profile_io(cx, p);
    osh_profile_gpu gpu = osh_profile_gpu_now(p);
    int n = snprintf(
        text, sizeof text,
        "\n# Summary Metrics\ntotal_quantization_time_seconds: %.3f\npeak_memory_mb: %.2f\n"
        "peak_gpu_memory_mb: %.2f\ntotal_disk_read_mb: %.2f\ntotal_disk_write_mb: %.2f\n"
        "peak_live_mb: %.2f\npeak_rss_mb: %.2f\n",
        seconds, profile_in_mb(p->peaks.host), profile_in_mb(gpu.peak),
        profile_in_mb(io.read_bytes), profile_in_mb(io.written_bytes), profile_in_mb(p->peaks.live),
        profile_in_mb(osh_rss_peak()));
    if (p->peaks.driver >= 0)
        n += snprintf(text + n, sizeof text - (size_t)n, "peak_gpu_device_mb: %.2f\n",
                      profile_in_mb(p->peaks.driver));
    profile_put(cx, p, text, (size_t)n);
    if (!p->n_rows) return;
    profile_put_stages(cx, p);
    profile_put_phases(cx, p);
}
