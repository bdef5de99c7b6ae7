/* library.c - implements include/oneshot.h: a context, arguments by name, and callbacks. The
 * functions of src/api run the jobs.
 *
 * The program's own types are not visible outside, so osh_ctx and the tables of options may
 * change. */
#include "oneshot.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/live.h"

struct oneshot {
    osh_ctx *cx; // own
    oneshot_options options;
    char *output; // own: output directory of the last job; NULL: none
};

_Static_assert((int)ONESHOT_E_NOMEM == OSH_E_NOMEM && (int)ONESHOT_E_INTERNAL == OSH_E_INTERNAL &&
                   (int)ONESHOT_E_INTERRUPTED == OSH_E_INTERRUPTED &&
                   (int)ONESHOT_E_USAGE == OSH_E_USAGE,
               "the public statuses are the program's");
_Static_assert((int)ONESHOT_LOG_DEBUG == OSH_LOG_DEBUG, "the public levels are the program's");

static void tell_progress(void *user, const osh_progress *p)
{
    const oneshot *o = user;
    const oneshot_progress seen = {.size = sizeof seen,
                                   .step = p->step,
                                   .n_steps = p->n_steps,
                                   .name = p->name,
                                   .phase = p->phase,
                                   .done = p->done,
                                   .total = p->total,
                                   .fraction = osh_progress_fraction(p),
                                   .eta_s = p->eta_s > 0 ? p->eta_s : -1,
                                   .tokens_per_s = p->tokens_per_s,
                                   .error = p->error,
                                   .finished = p->finished,
                                   .loss = p->loss};
    o->options.on_progress(o->options.user, &seen);
}

static void tell_log(void *user, osh_log_level level, const char *text)
{
    const oneshot *o = user;
    o->options.on_log(o->options.user, (int)level, text);
}

static void tell_text(void *user, const char *text, size_t n)
{
    const oneshot *o = user;
    if (o->options.on_text) o->options.on_text(o->options.user, text, n);
}

/* Copies the caller's options. If the caller has a newer header, members that this library does not
 * know must be zero. Returns false for invalid options. */
static bool options_take(oneshot_options *to, const oneshot_options *from)
{
    const oneshot_options initial = ONESHOT_OPTIONS_INIT;
    *to = initial;
    if (!from) return true;
    if (from->size < offsetof(oneshot_options, threads)) return false;
    for (size_t i = sizeof *to; i < from->size; i++)
        if (((const char *)from)[i]) return false;
    memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
    return to->threads >= 0 && to->log_level >= ONESHOT_LOG_ERROR &&
           to->log_level <= ONESHOT_LOG_DEBUG;
}

int oneshot_new(oneshot **out, const oneshot_options *options)
{
    if (!out) return OSH_E_USAGE;
    *out = NULL;
    oneshot *o = calloc(1, sizeof *o);
    if (!o) return OSH_E_NOMEM;
    if (!options_take(&o->options, options)) {
        free(o);
        return OSH_E_USAGE;
    }
    osh_status rc = osh_ctx_new(&o->cx, o->options.threads);
    if (rc) {
        free(o);
        return rc;
    }
    if (o->options.owns_process) osh_mem_tune();
    osh_log_setup(o->cx, (osh_log_level)o->options.log_level, OSH_PROGRESS_NONE);
    if (o->options.on_log) osh_log_tell(o->cx, tell_log, o);
    if (o->options.on_progress) osh_progress_tell(o->cx, tell_progress, o);
    *out = o;
    return OSH_OK;
}

void oneshot_free(oneshot *o)
{
    if (!o) return;
    osh_free(o->cx, o->output);
    osh_ctx_free(o->cx);
    free(o);
}

const char *oneshot_error(const oneshot *o)
{
    return o ? osh_error_text(o->cx) : "the context is NULL";
}
const char *oneshot_version(void) { return osh_version(); }
const char *oneshot_output(const oneshot *o) { return o && o->output ? o->output : ""; }
void oneshot_interrupt(oneshot *o)
{
    if (o) osh_interrupt(o->cx);
}

/* ---- jobs ---- */

typedef union arguments {
    osh_options run;
    osh_eval_options eval;
    osh_verify_options verify;
} arguments;

typedef struct job {
    const char *name; // name of the command of the program; "" for compress
    const osh_field *fields;
    const char *dir; // name of the command's positional argument; NULL: none
    osh_status (*run)(oneshot *o, const struct job *j, const arguments *a);
} job;

static osh_status job_compress(oneshot *o, const job *j, const arguments *a)
{
    return osh_oneshot(o->cx, &a->run, tell_text, o);
}
static osh_status job_plan(oneshot *o, const job *j, const arguments *a)
{
    return osh_show_plan(o->cx, &a->run, tell_text, o);
}
static osh_status job_eval(oneshot *o, const job *j, const arguments *a)
{
    return osh_eval(o->cx, &a->eval, tell_text, o);
}
static osh_status job_verify(oneshot *o, const job *j, const arguments *a)
{
    if (!j->dir) return osh_fail(o->cx, OSH_E_USAGE, "verify wants an output directory, got NULL");
    return osh_verify_output(o->cx, j->dir, &a->verify, tell_text, o);
}

/* True if the argument is a member of oneshot_options, and therefore no argument of a job. */
static bool argument_is_context(const char *name)
{
    static const char *const names[] = {"threads", "log_level", "log-level", "progress"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

static osh_status arguments_set(osh_ctx *cx, const job *j, arguments *a,
                                const oneshot_argument *args)
{
    osh_status rc = OSH_OK;
    osh_given given = {.n = 0};
    for (const oneshot_argument *x = args; x && x->name; x++) {
        if (argument_is_context(x->name))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "argument '%s': is a member of oneshot_options, for all jobs", x->name);
        OSH_TRY(osh_argument_set(cx, &given, j->fields, a, x->name, x->value));
    }
done:
    return rc;
}

/* Returns the value of an argument as a log file shows it. A path in the directory `temporary` is
 * shown without this directory. */
static const char *argument_shown(const oneshot *o, const char *value)
{
    const char *dir = o->options.temporary;
    size_t n = dir ? strlen(dir) : 0;
    bool inside = n && value && !strncmp(value, dir, n) && value[n] == '/';
    return !value ? "" : inside ? value + n + 1 : value;
}

/* Sets the first line of a log file: the command line of the program for the same job. */
static osh_status command_tell(const oneshot *o, const job *j, const oneshot_argument *args)
{
    osh_status rc = OSH_OK;
    osh_ctx *cx = o->cx;
    char **words = NULL; // own: array of n_args + 3 words
    int n = 0, n_args = 0;
    while (args && args[n_args].name) n_args++;
    OSH_NEW(cx, words, n_args + 3);
    words[n++] = osh_strdup(cx, "oneshot");
    if (*j->name) words[n++] = osh_strdup(cx, j->name);
    if (j->dir) words[n++] = osh_strdup(cx, j->dir);
    for (int i = 0; i < n_args; i++)
        words[n++] = osh_sprintf(cx, "--%s=%s", args[i].name, argument_shown(o, args[i].value));
    for (int i = 0; i < n; i++)
        if (!words[i]) rc = OSH_E_NOMEM;
    if (!rc) OSH_TRY(osh_log_command(cx, n, words));
done:
    for (int i = 0; i < n; i++) osh_free(cx, words[i]);
    osh_free(cx, words);
    return rc;
}

/* Makes a name for the output if the caller gives none, and stores the name for oneshot_output. */
static osh_status output_name(oneshot *o, osh_options *run)
{
    osh_status rc = OSH_OK;
    osh_ctx *cx = o->cx;
    if (!run->output) {
        OSH_TRY(osh_output_default(cx, &run->output, run));
        run->named = run->output != NULL;
    }
    if (run->output && !(o->output = osh_strdup(cx, run->output))) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

static int job_run(oneshot *o, const job *j, const oneshot_argument *args)
{
    osh_status rc = OSH_OK;
    osh_ctx *cx = o ? o->cx : NULL;
    arguments a = {0}; // own: the strings
    if (!cx) return OSH_E_USAGE;
    osh_ctx_anew(cx);
    osh_free(cx, o->output), o->output = NULL;
    OSH_TRY(osh_fields_default(cx, j->fields, &a));
    OSH_TRY(arguments_set(cx, j, &a, args));
    const osh_field *isa = osh_field_find(j->fields, "isa");
    if (isa) OSH_TRY(osh_isa_of_process(cx, *(char *const *)((const char *)&a + isa->offset)));
    OSH_TRY(command_tell(o, j, args));
    if (j->run == job_compress) OSH_TRY(output_name(o, &a.run));
    if (o->options.variable) {
        const osh_named named = {j->fields, &a, !strcmp(j->name, "plan")};
        OSH_TRY(osh_names_find(cx, cx, &named, o->options.variable));
    }
    rc = j->run(o, j, &a);
done:
    osh_fields_deinit(cx, j->fields, &a);
    osh_interrupt_forget(cx);
    return rc;
}

int oneshot_compress(oneshot *o, const oneshot_argument *args)
{
    return job_run(o, &(job){.name = "", .fields = osh_option_fields, .run = job_compress}, args);
}

int oneshot_plan(oneshot *o, const oneshot_argument *args)
{
    return job_run(o, &(job){.name = "plan", .fields = osh_option_fields, .run = job_plan}, args);
}

int oneshot_eval(oneshot *o, const oneshot_argument *args)
{
    return job_run(o, &(job){.name = "eval", .fields = osh_eval_fields, .run = job_eval}, args);
}

int oneshot_verify(oneshot *o, const char *dir, const oneshot_argument *args)
{
    return job_run(
        o, &(job){.name = "verify", .fields = osh_verify_fields, .dir = dir, .run = job_verify},
        args);
}

/* ---- profile ---- */

static const char no_name[] = "(no name)";

int oneshot_profile_start(oneshot *o, const char *path)
{
    if (!o) return OSH_E_USAGE;
    osh_error_clear(o->cx);
    return osh_profile_start(o->cx, path);
}
void oneshot_profile_stop(oneshot *o)
{
    if (o) osh_profile_stop(o->cx);
}
int oneshot_stage_begin(oneshot *o, const char *name)
{
    return o ? osh_profile_begin(o->cx, name ? name : no_name, NULL) : -1;
}
void oneshot_stage_end(oneshot *o, int stage)
{
    if (o) osh_profile_end(o->cx, stage);
}
void oneshot_checkpoint(oneshot *o, const char *name)
{
    if (o) osh_profile_checkpoint(o->cx, name ? name : no_name);
}
