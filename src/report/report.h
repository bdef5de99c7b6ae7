/* report.h - what a run did, collected once for both reports. */
#ifndef OSH_REPORT_H
#define OSH_REPORT_H
#include "base/buf.h"
#include "run/run.h"

typedef struct osh_report {
    const osh_run *run;   // view
    osh_profile_data d;   // own
    double seconds;       // of the run
    int64_t source_bytes; // of all tensors
    int64_t storage_read, storage_written; // of the process, as the kernel counts what reached a disk; < 0: unknown
    int64_t budget_bytes, predicted_bytes; // of host memory; 0: none
    osh_cuda_counters copies; // of the device
    int n_fallbacks;
    int n_experts;        // modules of experts
    const char *model;    // view: the last part of its path
    char *command, *machine; // own
    char date[32];        // of the report, UTC
    cJSON *options;       // own: those that differ from their default
} osh_report;

osh_status osh_run_report(osh_ctx *cx, osh_report *out, char **html, const osh_run *r); // own both
void osh_report_deinit(osh_ctx *cx, osh_report *r);
/* The report as JSON, item by item, since that of 20,000 modules takes 10 MB; for osh_file_write_by. report: an
 * osh_report. */
osh_status osh_report_write(osh_ctx *cx, void *report, osh_file *f);
osh_status osh_report_html(osh_ctx *cx, char **html, const osh_report *r, cJSON *options); // own
#endif
