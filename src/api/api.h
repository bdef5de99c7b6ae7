/* api.h - declares the commands as functions. A job reports messages, log, progress
 * (osh_progress_tell) and profile (base/profile.h) through its context (base/base.h). Text results
 * are passed to the callback `sink`. A model is a directory; osh_hub_model (hub/hub.h) finds the
 * directory for a name. */
#ifndef OSH_API_H
#define OSH_API_H
#include "base/profile.h"
#include "eval/eval.h"
#include "eval/generate.h"
#include "hub/hub.h"
#include "math/isa.h"
#include "match/options.h"
#include "modifiers/topics.h"
#include "ranks/ranks.h"
#include "verify/verify_output.h"

/* Calls osh_isa_select and sets the environment variables of OpenBLAS. Must be called before the
 * first job that multiplies matrices, because OpenBLAS reads the variables only once, when it is
 * opened. */
osh_status osh_isa_of_process(osh_ctx *cx, const char *isa);
typedef struct osh_named { // options in which models and data sets may have names of the Hub
    const osh_field *fields;
    void *options; // struct with the options that `fields` describes
    bool headers;  // true if the job reads only the headers of weight files, not the weights
    /* view: the ranks of the job. Rank 0 downloads before the other ranks search the cache. NULL:
     * one process */
    osh_ranks *ranks;
} osh_named;
/* Replaces names of models by directories and names of data sets by files. Downloads missing files
 * within the limit of --host-memory. `cx` allocates the strings of the options; `work` is the
 * context of the job. */
osh_status osh_names_find(osh_ctx *cx, osh_ctx *work, const osh_named *n, osh_env_fn env);

/* Runs the command line without a command: compresses the model that `opt` names, and writes the
 * results of the job to `sink`. `user` is the first argument of `sink`. */
osh_status osh_oneshot(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
/* Sets *out (own) to the name of the output of a run without opt->output, such as
 * "SmolLM2-135M-W4A16". The name is the last part of the model's name, followed by the scheme. Sets
 * *out to NULL if the run needs no name. Fails unless the run has exactly one scheme. */
osh_status osh_output_default(osh_ctx *cx, char **out, const osh_options *opt);
/* Returns the directory of the unfinished output (own); NULL if opt->output is not given. */
char *osh_partial_dir(osh_ctx *cx, const osh_options *opt);
/* Returns the directory of the unfinished output (own) if it exists, or NULL. Called after a failed
 * osh_oneshot: if there is such a directory, the same call of osh_oneshot can resume. */
char *osh_resume_dir(osh_ctx *cx, const osh_options *opt);
/* Prints the plan of the job (`oneshot plan`), without reading weights. */
osh_status osh_show_plan(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
/* Prints the graph in Graphviz's language. */
osh_status osh_show_graph(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user);
/* Measures and prints the peak speeds of this machine. */
osh_status osh_bench(osh_ctx *cx, const osh_bench_options *opt, osh_sink sink, void *user);
/* Prints the properties of the checkpoint in `dir`, as text or as JSON. */
osh_status osh_inspect(osh_ctx *cx, const char *dir, bool json, osh_sink sink, void *user);
/* Prints the words that options such as --ignore accept in their list of modules, one on each line:
 * classes, and the names of all modules with a weight matrix. Reads no weights. */
osh_status osh_list_modules(osh_ctx *cx, const char *dir, osh_sink sink, void *user);
/* Checks a template against a checkpoint, and prints the loss of one sample. Fails with
 * OSH_E_FORMAT if the checkpoint lacks a tensor of the template, or if the template has a module
 * but not all of its tensors. */
osh_status osh_check_model(osh_ctx *cx, const char *dir, const osh_check_options *opt,
                           osh_sink sink, void *user);
/* Downloads a model of the Hub into the cache. Passes the directory of the snapshot to the sink. */
osh_status osh_pull(osh_ctx *cx, const char *name, osh_env_fn env, osh_sink sink, void *user);
/* Tokenizes each line of `file` with the tokenizer of model_dir, and prints its token ids as one
 * line. */
osh_status osh_tokenize(osh_ctx *cx, const char *model_dir, const char *file, bool special_tokens,
                        osh_sink sink, void *user);
/* Prints profiles as a page, as tables or as a drawing. With opt->output, writes the page to that
 * file, and passes the tables to the sink. */
osh_status osh_report_profiles(osh_ctx *cx, const char *const *files, int n,
                               const osh_report_options *opt, osh_sink sink, void *user);
/* Prints a table of `files`. Each of them is an output directory, or a file that `oneshot eval
 * --panel` wrote. If opt->output is given, writes the table to it as a page. */
osh_status osh_compare(osh_ctx *cx, const char *const *files, int n, const osh_compare_options *opt,
                       osh_sink sink, void *user);
/* Prints the version, the compiler and the libraries. */
osh_status osh_about(osh_ctx *cx, osh_sink sink, void *user);
/* Prints a list; `what` is "schemes", "modifiers" or "models". */
osh_status osh_list(osh_ctx *cx, const char *what, osh_sink sink, void *user);
/* Returns the name of scheme i, or NULL if there are at most i schemes. */
const char *osh_list_scheme_name(size_t i);
/* Prints a description of a scheme: its arguments, its format, and the programs that load it. Sets
 * *is to false if no scheme has the name. */
osh_status osh_list_scheme(osh_ctx *cx, bool *is, const char *name, osh_sink sink, void *user);
/* Prints the properties of this machine and the defaults of a run on it. With several ranks, all
 * ranks call this function, and rank 0 also prints a table of the ranks. */
osh_status osh_doctor(osh_ctx *cx, osh_ranks *ranks, osh_sink sink, void *user);
#endif
