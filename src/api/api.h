/* api.h - the commands as functions. A job reports through its context (base/base.h): messages, log, progress
 * (osh_progress_tell), profile (base/profile.h). Text results are handed to the sink. Models are directories:
 * osh_hub_model (hub/hub.h) makes one of a name. */
#ifndef OSH_API_H
#define OSH_API_H
#include "base/profile.h"
#include "eval/eval.h"
#include "hub/hub.h"
#include "math/isa.h"
#include "plan/options.h"
#include "verify/verify_output.h"

/* osh_isa_select, and the variables of OpenBLAS. It reads them when it is opened, which the first job that multiplies
 * does. */
osh_status osh_isa_of_process(osh_ctx *cx, const char *isa);
typedef struct osh_named { // what may be called by names
    const osh_field *fields;
    void *options; // the struct that they fill
    bool headers;  // the job reads no weights
} osh_named;
/* Names of models and of data become directories and files. cx: of the options' strings; work: of the job. */
osh_status osh_names_find(osh_ctx *cx, osh_ctx *work, const osh_named *n, osh_env_fn env);

osh_status osh_oneshot(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
char *osh_partial_dir(osh_ctx *cx, const osh_options *opt); // own: where the output grows; NULL: none is given
/* After a failed osh_oneshot: the directory from which the same call goes on. own; NULL: nothing was done. */
char *osh_resume_dir(osh_ctx *cx, const osh_options *opt);
osh_status osh_show_plan(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
osh_status osh_show_graph(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user); // Graphviz
osh_status osh_bench(osh_ctx *cx, const osh_bench_options *opt, osh_sink sink, void *user); // this machine's peaks
osh_status osh_inspect(osh_ctx *cx, const char *dir, bool json, osh_sink sink, void *user);
/* Whether a checkpoint has what its template wants, and the template reads what it has; the loss of a sample. */
osh_status osh_check_model(osh_ctx *cx, const char *dir, const osh_check_options *opt, osh_sink sink, void *user);
/* A model of the Hub into its cache; the sink gets the snapshot's directory. */
osh_status osh_pull(osh_ctx *cx, const char *name, osh_env_fn env, osh_sink sink, void *user);
osh_status osh_tokenize(osh_ctx *cx, const char *model_dir, const char *file, bool special_tokens,
                        osh_sink sink, void *user);
/* Profiles as a page, or as tables, to the sink; with opt->output the page into that file, and the tables. */
osh_status osh_report_profiles(osh_ctx *cx, const char *const *files, int n, const osh_report_options *opt,
                               osh_sink sink, void *user);
osh_status osh_about(osh_ctx *cx, osh_sink sink, void *user); // version, compiler, libraries
/* what: "schemes", "modifiers" or "models". */
osh_status osh_list(osh_ctx *cx, const char *what, osh_sink sink, void *user);
osh_status osh_doctor(osh_ctx *cx, osh_sink sink, void *user); // this machine, and what a run would use of it
#endif
