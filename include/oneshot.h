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

enum { /* results of all functions that can fail */
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
    int64_t step, n_steps; /* number of the subgraph, from 1; number of subgraphs */
    const char *name;      /* name of the subgraph, such as "model.layers.2"; NULL: none */
    const char *phase;     /* "observe", "solve", ...; NULL: none */
    /* done, total: finished work and all work of the phase; total 0: not counted */
    int64_t done, total;
    double fraction;       /* finished part of the whole job, in [0, 1]; < 0: unknown */
    double eta_s;          /* seconds left; < 0: unknown */
    double tokens_per_s;   /* tokens of the data per second of the whole job; <= 0: unknown */
    double error;          /* relative squared error of the weights so far; < 0: none yet */
    int finished;          /* 1 when the subgraph is complete, otherwise 0 */
    /* Squared error of the outputs, relative to that of rounding to nearest; <= 0: unknown. */
    double loss;
} oneshot_progress;

/* Callbacks must be quick. A callback may call only these functions of the library:
 * oneshot_interrupt, oneshot_checkpoint and oneshot_version. The arguments of a callback are valid
 * during the call. on_log is called on any thread, one call at a time. The other callbacks are
 * called on the thread of the job. */
typedef struct oneshot_options {
    size_t size;      /* sizeof(oneshot_options) */
    int threads;      /* 0: one thread per CPU that the process may use; at most 4096 */
    int log_level;    /* messages above this level are dropped */
    void (*on_log)(void *user, int level, const char *text);    /* NULL: stderr */
    void (*on_progress)(void *user, const oneshot_progress *p); /* NULL: none */
    void (*on_text)(void *user, const char *text, size_t n);    /* gets results; NULL: dropped */
    void *user;       /* passed as the first argument of each callback */
    /* Not 0: the library may set options of malloc for the whole process. The process then uses no
     * more memory than host_memory, counted in pages. 0: the library does not change malloc, and
     * the process may use a little more memory than host_memory. */
    int owns_process;
    /* Returns the value of an environment variable, like getenv. If this callback is not NULL,
     * models and data sets may be names such as "org/name", which are looked up in the cache of the
     * Hugging Face Hub. If this callback is NULL, models and data sets must be directories and
     * files. */
    const char *(*variable)(const char *name);
    /* Directory of files that the caller removes after the job, such as a recipe. The first line of
     * a log file is the command of the job. In this command, files of the directory appear without
     * the path of the directory, because only copies such as OUT/recipe.yaml remain after the job.
     * NULL if there is no such directory. */
    const char *temporary;
} oneshot_options;
#define ONESHOT_OPTIONS_INIT                                                                       \
    {sizeof(oneshot_options), 0, ONESHOT_LOG_WARN, NULL, NULL, NULL, NULL, 0, NULL, NULL}

typedef struct oneshot_argument { /* an array of arguments ends with an entry whose name is NULL */
    const char *name;  /* "num_calibration_samples"; a list may have an entry for each item */
    const char *value; /* "512", "true", "8GB" */
} oneshot_argument;

/* Makes a context (*out, own). options NULL: the values of ONESHOT_OPTIONS_INIT. On failure *out is
 * NULL. Returns ONESHOT_E_NOMEM if there is no memory or no thread. Returns ONESHOT_E_USAGE for an
 * invalid level or number of threads, for options that this library does not know, and if out is
 * NULL. All functions accept a context that is NULL: jobs return ONESHOT_E_USAGE, other functions
 * do nothing. */
ONESHOT_API int oneshot_new(oneshot **out, const oneshot_options *options);
ONESHOT_API void oneshot_free(oneshot *o); /* accepts NULL */
/* Returns one line that says why the last job failed, or "". The string is valid until the next
 * job. */
ONESHOT_API const char *oneshot_error(const oneshot *o);
ONESHOT_API const char *oneshot_version(void);

/* The jobs. The names threads, log_level and progress are errors: they are members of
 * oneshot_options and not arguments of a job. Before the first matrix multiplication of a process,
 * a job sets two environment variables: OPENBLAS_CORETYPE (from the argument isa) and
 * OPENBLAS_NUM_THREADS (to 1). oneshot_compress: after a failure, an interrupt or a kill, the same
 * call continues the work. oneshot_verify: dir is an output, and the argument model is its source.
 * Findings are passed to on_text; if there are any, the function returns ONESHOT_E_FORMAT. */
/* Without the argument output, oneshot_compress names the output by the model and the scheme:
 * SmolLM2-135M-W4A16, in the current directory. */
ONESHOT_API int oneshot_compress(oneshot *o, const oneshot_argument *args);
ONESHOT_API int oneshot_plan(oneshot *o, const oneshot_argument *args);
ONESHOT_API int oneshot_eval(oneshot *o, const oneshot_argument *args);
ONESHOT_API int oneshot_verify(oneshot *o, const char *dir, const oneshot_argument *args);

/* Returns the output directory of the last job if it was oneshot_compress, or "". The string is
 * valid until the next job. */
ONESHOT_API const char *oneshot_output(const oneshot *o);

/* Ends the running job soon, or the next job if none is running. May be called on any thread and in
 * a signal handler. */
ONESHOT_API void oneshot_interrupt(oneshot *o);

/* Functions that write a profile of jobs (docs/how-to/profile.md). The caller can add stages and
 * checkpoints of its own. Stages nest; oneshot_stage_end also ends the inner stages. Without
 * oneshot_profile_start, the other functions do nothing. */
ONESHOT_API int oneshot_profile_start(oneshot *o, const char *path);
ONESHOT_API void oneshot_profile_stop(oneshot *o);
ONESHOT_API int oneshot_stage_begin(oneshot *o, const char *name); /* returns the stage's number */
ONESHOT_API void oneshot_stage_end(oneshot *o, int stage);
ONESHOT_API void oneshot_checkpoint(oneshot *o, const char *name);

#ifdef __cplusplus
}
#endif
#endif
