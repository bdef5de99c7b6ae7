/* oneshot.h - the library: compresses Hugging Face checkpoints, plans runs, and evaluates and
 * verifies results.
 *
 *   oneshot *o = NULL;
 *   const oneshot_argument args[] = {{"model", "Qwen3-0.6B"}, {"scheme", "W4A16"},
 *                                    {"output", "out"}, {0}};
 *   if (oneshot_new(&o, NULL)) return 1;
 *   if (oneshot_compress(o, args)) fprintf(stderr, "%s\n", oneshot_error(o));
 *   oneshot_free(o);
 *
 * The arguments of a job are the flags of the program (`oneshot --help`, `oneshot help FLAG`). The
 * name of a flag may be written with underscores or dashes; its value is a text. Only arguments
 * that are lists may be given more than once. This header needs no other header of the library.
 * examples/c-api is a complete program.
 *
 * A context runs one job at a time. Several threads may run jobs at the same time, each with its
 * own context. Structs that the caller fills begin with their size, so a program works with a
 * library that is newer than the program's header. */
#ifndef ONESHOT_H
#define ONESHOT_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define ONESHOT_API __attribute__((visibility("default")))

typedef struct oneshot oneshot;

enum { /* results of the functions that can fail */
    ONESHOT_OK = 0,
    ONESHOT_E_NOMEM = -1,       /* no memory */
    ONESHOT_E_IO = -2,          /* the operating system refused a read, write, open or rename */
    ONESHOT_E_FORMAT = -3,      /* the content of a file is wrong */
    ONESHOT_E_USAGE = -4,       /* an argument or a key of a recipe is wrong */
    ONESHOT_E_UNSUPPORTED = -5, /* the request is valid, but not supported */
    ONESHOT_E_NUMERIC = -6,     /* NaN or infinity where a number is needed */
    ONESHOT_E_INTERRUPTED = -7, /* oneshot_interrupt was called */
    ONESHOT_E_INTERNAL = -8
};
enum { ONESHOT_LOG_ERROR, ONESHOT_LOG_WARN, ONESHOT_LOG_INFO, ONESHOT_LOG_DEBUG };

typedef struct oneshot_progress {
    size_t size;           /* size of this struct in the library */
    int64_t step, n_steps; /* number of the current subgraph, from 1, and number of all subgraphs */
    const char *name;      /* name of the subgraph, such as "model.layers.2", or NULL */
    const char *phase;     /* current phase, such as "observe" or "solve", or NULL */
    /* done: finished work of the phase. total: all work of the phase; 0: unknown */
    int64_t done, total;
    double fraction;       /* finished part of the whole job, from 0 to 1; negative: unknown */
    double eta_s;          /* seconds until the end of the job; negative: unknown */
    double tokens_per_s;   /* tokens that the whole job processes per second; <= 0: unknown */
    double error;          /* largest relative squared error of a weight so far; negative: none */
    int finished;          /* 1 when the subgraph is complete, otherwise 0 */
    /* Squared error of the subgraph's outputs, divided by the squared error after rounding to
     * nearest; <= 0: unknown. */
    double loss;
} oneshot_progress;

/* Options of a context. Callbacks must be quick. A callback may call only these functions of the
 * library: oneshot_interrupt, oneshot_checkpoint and oneshot_version. The arguments of a callback
 * are valid during the call. on_log may be called on any thread, one call at a time. The other
 * callbacks are called on the thread of the job. */
typedef struct oneshot_options {
    size_t size;      /* sizeof(oneshot_options) */
    int threads;      /* at most 4096; 0: one thread per CPU that the process may use */
    int log_level;    /* ONESHOT_LOG_...; messages above this level are dropped */
    void (*on_log)(void *user, int level, const char *text);    /* NULL: logs go to stderr */
    void (*on_progress)(void *user, const oneshot_progress *p); /* may be NULL */
    void (*on_text)(void *user, const char *text, size_t n);    /* gets results; may be NULL */
    void *user;       /* first argument of on_log, on_progress and on_text */
    /* Not 0: the library may set options of malloc for the whole process. The memory of the
     * process, counted in pages, then stays within the argument host_memory. 0: the library does
     * not change malloc, and the process may use a little more memory than host_memory. */
    int owns_process;
    /* Returns the value of an environment variable, like getenv. With this callback, models and
     * data sets may be names such as "org/name", which are looked up in the cache of the Hugging
     * Face Hub. If the callback is NULL, models and data sets must be directories and files. */
    const char *(*variable)(const char *name);
    /* Directory whose files the caller removes after the job, such as a recipe. NULL: there is no
     * such directory. The first line of a log file is the command of the job. In that line the
     * files of this directory have no path, because only copies of them, such as OUT/recipe.yaml,
     * remain after the job. */
    const char *temporary;
} oneshot_options;
#define ONESHOT_OPTIONS_INIT                                                                       \
    {sizeof(oneshot_options), 0, ONESHOT_LOG_WARN, NULL, NULL, NULL, NULL, 0, NULL, NULL}

typedef struct oneshot_argument { /* an entry whose name is NULL ends an array */
    /* name of a flag, such as "scheme"; a flag with a list may have several entries */
    const char *name;
    const char *value; /* value as a text, such as "512", "true" or "8GB" */
} oneshot_argument;

/* Makes a context. The caller owns *out, which is NULL after a failure. If options is NULL, the
 * values of ONESHOT_OPTIONS_INIT are used.
 * Returns ONESHOT_E_NOMEM if there is no memory or no thread. Returns ONESHOT_E_USAGE if out is
 * NULL, for an invalid level or number of threads, and for options that this library does not know.
 * All functions accept a context that is NULL: jobs return ONESHOT_E_USAGE, and other functions do
 * nothing. */
ONESHOT_API int oneshot_new(oneshot **out, const oneshot_options *options);
ONESHOT_API void oneshot_free(oneshot *o); /* accepts NULL */
/* Returns one line that says why the last job failed, or "" if it did not fail. The string is valid
 * until the next job. */
ONESHOT_API const char *oneshot_error(const oneshot *o);
/* Returns the version of the library, such as "0.2.0": a constant string that the caller does not
 * free. May be called on any thread. */
ONESHOT_API const char *oneshot_version(void);

/* The next functions run a job until it ends. `args` ends with an entry whose name is NULL; NULL:
 * no arguments. The functions read `args` only during the call.
 * The functions return ONESHOT_OK or a negative ONESHOT_E_... code. After a failure, oneshot_error
 * returns the message. The functions refuse the arguments `threads`, `log_level` and `progress`,
 * because members of oneshot_options replace them.
 * Before the first matrix multiplication of a process, a job sets two environment variables:
 * OPENBLAS_CORETYPE (from the argument `isa`) and OPENBLAS_NUM_THREADS (to 1).
 * oneshot_compress: after a failure, an interrupt or a kill, the same call continues the work.
 * oneshot_verify: `dir` is an output, and the argument `model` is its source. Findings are passed
 * to on_text. If there are findings, the function returns ONESHOT_E_FORMAT.
 * Without the argument `output`, oneshot_compress makes the output in the current directory. The
 * name of the output consists of the model and the scheme, such as SmolLM2-135M-W4A16. */
ONESHOT_API int oneshot_compress(oneshot *o, const oneshot_argument *args);
ONESHOT_API int oneshot_plan(oneshot *o, const oneshot_argument *args);
ONESHOT_API int oneshot_eval(oneshot *o, const oneshot_argument *args);
ONESHOT_API int oneshot_verify(oneshot *o, const char *dir, const oneshot_argument *args);

/* Returns the output directory of the last job. Returns "" if the last job was not
 * oneshot_compress. The string is valid until the next job. */
ONESHOT_API const char *oneshot_output(const oneshot *o);

/* Makes the running job end soon. If no job is running, the next job ends soon after its start. May
 * be called on any thread and in a signal handler. */
ONESHOT_API void oneshot_interrupt(oneshot *o);

/* The next functions write a profile of jobs (docs/how-to/profile.md). The caller can add its own
 * stages and checkpoints. Stages nest. While no profile is running, the functions other than
 * oneshot_profile_start do nothing. Call the functions only on the thread that runs the jobs of
 * the context. Names are copied; a name that is NULL becomes "(no name)". */
/* Starts a profile of all further calls with the context. While it runs, jobs refuse the argument
 * `profile`. `path` is the YAML file to write; an older profile of that name is overwritten. If
 * `path` is NULL, no file is written. `path` is read only during the call.
 * Returns ONESHOT_OK, or a negative code with a message in oneshot_error:
 * ONESHOT_E_USAGE if a profile is running, or if `path` is a directory or a file that is not a
 * profile.
 * ONESHOT_E_IO if the file cannot be created, for example if `path` is too long.
 * ONESHOT_E_NOMEM if there is no memory or no thread. */
ONESHOT_API int oneshot_profile_start(oneshot *o, const char *path);
/* Ends all open stages, writes the summary and closes the file. oneshot_free does the same. */
ONESHOT_API void oneshot_profile_stop(oneshot *o);
/* Begins a stage. Returns its number for oneshot_stage_end, or -1 if o is NULL. */
ONESHOT_API int oneshot_stage_begin(oneshot *o, const char *name);
/* Ends a stage and all stages inside it. `stage` is the number from oneshot_stage_begin. */
ONESHOT_API void oneshot_stage_end(oneshot *o, int stage);
/* Adds a record of the current time and memory to the profile, under a name. May also be called in
 * a callback. */
ONESHOT_API void oneshot_checkpoint(oneshot *o, const char *name);

#ifdef __cplusplus
}
#endif
#endif
