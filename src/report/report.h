/* report.h - declares the results of a run, collected once for both reports (JSON and HTML). */
#ifndef OSH_REPORT_H
#define OSH_REPORT_H
#include "base/buf.h"
#include "run/run.h"

typedef struct osh_report {
    const osh_run *run;   // view: the run that is reported
    osh_profile_data d;   // own
    double seconds;       // number of seconds that the run took
    int64_t source_bytes; // number of bytes of all tensors in the source's files
    /* Numbers of bytes that the process read from disks and wrote to disks, as the kernel counts
     * them; negative: unknown. */
    int64_t storage_read, storage_written;
    /* Budget and prediction of host memory, in bytes; 0: none. */
    int64_t budget_bytes, predicted_bytes;
    osh_device_counters copies; // counters of the GPU
    int n_fallbacks;
    int n_resumed;        // number of times that the run was continued by another process
    int n_experts;        // number of quantized modules that belong to experts
    const char *model;    // view: last part of the path of the model
    char *command, *machine; // own
    char date[32];        // date of the report, UTC
    cJSON *options;       // own: the options that differ from their defaults
} osh_report;

/* Collects the report and makes its HTML page. The caller frees *out and *html. */
osh_status osh_run_report(osh_ctx *cx, osh_report *out, char **html, const osh_run *r);
/* Frees all members of r. */
void osh_report_deinit(osh_ctx *cx, osh_report *r);
/* Writes the report `report` (an osh_report) as JSON. Writes it item by item, because the JSON of
 * 20,000 modules takes 10 MB. This function is a callback for osh_file_write_by. */
osh_status osh_report_write(osh_ctx *cx, void *report, osh_file *f);
osh_status osh_report_html(osh_ctx *cx, char **html, const osh_report *r, cJSON *options); // own
#endif
