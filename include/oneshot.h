/* oneshot.h - the library: compresses Hugging Face checkpoints, plans that, judges and checks the result.
 *
 *   oneshot *o = NULL;
 *   const oneshot_argument args[] = {{"model", "Qwen3-0.6B"}, {"scheme", "W4A16"}, {"output", "out"}, {0}};
 *   if (oneshot_new(&o, NULL)) return 1;
 *   if (oneshot_compress(o, args)) fprintf(stderr, "%s\n", oneshot_error(o));
 *   oneshot_free(o);
 *
 * A job's arguments are the program's flags (`oneshot --help`, `oneshot help FLAG`): their names with underscores or
 * dashes, their values as text. An argument that is no list is given once: two values are refused. This header needs no
 * other of the library. examples/c-api is a whole program.
 *
 * A context does one job at a time; contexts of two threads do theirs beside each other. Structs that the caller fills
 * begin with their size, so a program runs with a library that is newer than its header. */
#ifndef ONESHOT_H
#define ONESHOT_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define ONESHOT_API __attribute__((visibility("default")))

typedef struct oneshot oneshot;

enum { /* what every function with an int returns */
    ONESHOT_OK = 0,
    ONESHOT_E_NOMEM = -1,       /* no memory */
    ONESHOT_E_IO = -2,          /* the operating system refused a read, a write, an open or a rename */
    ONESHOT_E_FORMAT = -3,      /* a file does not hold what it must */
    ONESHOT_E_USAGE = -4,       /* an argument or a recipe's key is wrong */
    ONESHOT_E_UNSUPPORTED = -5, /* understood, but the library cannot do it */
    ONESHOT_E_NUMERIC = -6,     /* NaN or infinity where a number is needed */
    ONESHOT_E_INTERRUPTED = -7, /* by oneshot_interrupt */
    ONESHOT_E_INTERNAL = -8
};
enum { ONESHOT_LOG_ERROR, ONESHOT_LOG_WARN, ONESHOT_LOG_INFO, ONESHOT_LOG_DEBUG };

typedef struct oneshot_progress {
    size_t size;           /* of this struct, as the library knows it */
    int64_t step, n_steps; /* subgraph, from 1, and how many there are */
    const char *name;      /* of it, such as "model.layers.2"; NULL: none */
    const char *phase;     /* "observe", "solve", ...; NULL: none */
    int64_t done, total;   /* inside the phase; total 0: it is not counted */
    double fraction;       /* of the whole job, in [0, 1]; < 0: unknown */
    double eta_s;          /* seconds to go; < 0: unknown */
    double tokens_per_s;   /* lately; <= 0: unknown */
    double error;          /* of the weights of the subgraph so far, relative and squared; < 0: none yet */
    int finished;          /* the subgraph is complete */
    double loss;           /* of its layers' outputs, as a part of what rounding to nearest loses; <= 0: unknown */
} oneshot_progress;

/* Callbacks must be quick, and may call of this library oneshot_interrupt, oneshot_checkpoint and oneshot_version. What
 * they are given lives as long as the call. on_log is called on any thread, one at a time; the others on the thread of
 * the job. */
typedef struct oneshot_options {
    size_t size;      /* sizeof(oneshot_options) */
    int threads;      /* 0: one for each core that the process may use; at most 4096 */
    int log_level;    /* messages above it are dropped */
    void (*on_log)(void *user, int level, const char *text);             /* NULL: standard error */
    void (*on_progress)(void *user, const oneshot_progress *p);          /* NULL: none */
    void (*on_text)(void *user, const char *text, size_t n);             /* what the program prints; NULL: dropped */
    void *user;       /* the first argument of each */
    int owns_process; /* not 0: the process is there for its jobs, so malloc is tuned for host_memory to hold to the
                         page; once, and for good. 0: malloc is left as it is, and may keep some memory more */
    const char *(*variable)(const char *name); /* such as getenv: models and data sets may be names, "org/name", that
                                                  are looked up where the Hub's variables say; NULL: they are files */
} oneshot_options;
#define ONESHOT_OPTIONS_INIT {sizeof(oneshot_options), 0, ONESHOT_LOG_WARN, NULL, NULL, NULL, NULL, 0, NULL}

typedef struct oneshot_argument { /* an array of them ends with a name that is NULL */
    const char *name;  /* "num_calibration_samples"; lists: once for each item, or with commas */
    const char *value; /* "512", "true", "8GB" */
} oneshot_argument;

/* options NULL: those of ONESHOT_OPTIONS_INIT. On failure *out is NULL: ONESHOT_E_NOMEM, no memory or threads;
 * ONESHOT_E_USAGE, a level or a number of threads that there is not, or members that this library does not know. */
ONESHOT_API int oneshot_new(oneshot **out, const oneshot_options *options);
ONESHOT_API void oneshot_free(oneshot *o); /* NULL is fine */
/* Why the last job failed, in one line; "" if it did not. Lives until the next job. */
ONESHOT_API const char *oneshot_error(const oneshot *o);
ONESHOT_API const char *oneshot_version(void);

/* The jobs. Arguments that the options have (threads, log_level) and progress are refused. Before the first product of
 * a process, a job sets its variables OPENBLAS_CORETYPE and OPENBLAS_NUM_THREADS (argument isa).
 * compress: what ends it early, a failure, an interrupt or a kill, loses nothing; the same call goes on from there.
 * verify: dir is an output, the argument model its source. Findings go to on_text; with any, ONESHOT_E_FORMAT. */
ONESHOT_API int oneshot_compress(oneshot *o, const oneshot_argument *args);
ONESHOT_API int oneshot_plan(oneshot *o, const oneshot_argument *args);
ONESHOT_API int oneshot_eval(oneshot *o, const oneshot_argument *args);
ONESHOT_API int oneshot_verify(oneshot *o, const char *dir, const oneshot_argument *args);

/* Ends the job that runs, or the next one, soon. From any thread, and from a signal handler. */
ONESHOT_API void oneshot_interrupt(oneshot *o);

/* A profile (docs/profile.md) around jobs, with stages and checkpoints of the caller's. Stages nest; oneshot_stage_end
 * ends those inside, too. Without a start the others do nothing. */
ONESHOT_API int oneshot_profile_start(oneshot *o, const char *path);
ONESHOT_API void oneshot_profile_stop(oneshot *o);
ONESHOT_API int oneshot_stage_begin(oneshot *o, const char *name); /* its number */
ONESHOT_API void oneshot_stage_end(oneshot *o, int stage);
ONESHOT_API void oneshot_checkpoint(oneshot *o, const char *name);

#ifdef __cplusplus
}
#endif
#endif
