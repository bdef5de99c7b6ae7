/* sample.h - prints the answers of source and output after a run (--sample). */
#ifndef OSH_SAMPLE_JOB_H
#define OSH_SAMPLE_JOB_H
#include "match/options.h"

/* Continues the prompt opt->sample with the source and with the finished output. Prints both
 * answers, and adds them to the reports of the output. If the reports already have the answers to
 * this prompt, only prints them. */
osh_status osh_sample_run(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
/* Sets *host to the smallest --host-memory for osh_sample_run. The output need not exist yet. Fails
 * if the source cannot continue the prompt. */
osh_status osh_sample_least(osh_ctx *cx, int64_t *host, const osh_options *opt);
#endif
