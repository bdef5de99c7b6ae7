/* main.c - `oneshot`: commands, flags by table, exit codes 0 done, 1 failed, 2 wrong usage. Results
 * on stdout, the rest on stderr. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/quote.h"
#include "oneshot.h"

static osh_ctx *signalled; // the one context of this program, for the handler
static void on_signal(int sig)
{
    (void)sig;
    osh_interrupt(signalled);
}

typedef struct out_state {
    bool failed;
    bool json; // on standard error
    char *resume; // own: the directory that the same command goes on from
} out_state;
static void to_stdout(void *user, const char *text, size_t n)
{
    if (fwrite(text, 1, n, stdout) != n) ((out_state *)user)->failed = true;
}

static const char usage[] =
    "oneshot compresses Hugging Face checkpoints to compressed-tensors checkpoints.\n\n"
    "  oneshot --model DIR (--recipe FILE | --scheme NAME) [--dataset FILE] --output DIR   compress\n"
    "  oneshot plan ...       the same flags: what would be done, without reading a weight\n"
    "  oneshot graph --model DIR [--sequential-targets T] --dot    the op graph and its cut, Graphviz\n"
    "  oneshot verify DIR [--model SOURCE]        a finished output against its manifest and its source\n"
    "  oneshot eval --model DIR --dataset FILE    perplexity, dense or compressed\n"
    "  oneshot bench [--dir DIR] [--json]         what this machine can do: products, memory, disk\n"
    "  oneshot inspect [--json] DIR               tensors, dtypes, schemes\n"
    "  oneshot tokenize --model DIR [--no-special-tokens] FILE    a line of ids for each line\n"
    "  oneshot --version | --help | COMMAND --help\n";

static void print_fields(const osh_field *f)
{
    for (; f->name; f++) {
        char flag[80];
        size_t n = 0;
        for (const char *c = f->name; *c && n + 1 < sizeof flag; c++) flag[n++] = *c == '_' ? '-' : *c;
        flag[n] = 0;
        printf("  --%-34s %s", flag, f->doc);
        if (f->values) printf(" (%s)", f->values);
        if (f->dflt) printf(" [%s]", f->dflt);
        if (f->alias) {
            for (n = 0; f->alias[n] && n + 1 < sizeof flag; n++) flag[n] = f->alias[n] == '_' ? '-' : f->alias[n];
            flag[n] = 0;
            printf("; alias --%s", flag);
        }
        putchar('\n');
    }
}

typedef struct line { // a command line being parsed
    const osh_field *fields;
    void *object;
    const char **words; // positional arguments
    int n_words;
    bool help, dot, no_special_tokens, json;
} line;

static bool flag_is(const char *arg, const char *name) { return !strcmp(arg, name); }

static osh_status set_flag(osh_ctx *cx, line *l, int argc, char **argv, int *i)
{
    osh_status rc = OSH_OK;
    char name[80];
    const char *arg = argv[*i] + 2, *eq = strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    if (n >= sizeof name) OSH_FAIL(cx, OSH_E_USAGE, "unknown option '%s'", argv[*i]);
    memcpy(name, arg, n), name[n] = 0;
    const osh_field *f = l->fields ? osh_field_find(l->fields, name) : NULL;
    if (!f) OSH_FAIL(cx, OSH_E_USAGE, "unknown option '--%s'", name);
    const char *value = eq ? eq + 1 : NULL;
    bool next_is_bool = *i + 1 < argc && (!strcmp(argv[*i + 1], "true") || !strcmp(argv[*i + 1], "false"));
    if (!value && f->type == OSH_F_BOOL) value = next_is_bool ? argv[++*i] : "true";
    if (!value && *i + 1 < argc) value = argv[++*i];
    if (!value) OSH_FAIL(cx, OSH_E_USAGE, "--%s: want a value, got the end of the line", name);
    OSH_TRY(osh_field_set(cx, f, l->object, value));
done:
    return rc;
}

static osh_status parse(osh_ctx *cx, line *l, int argc, char **argv, int first)
{
    osh_status rc = OSH_OK;
    if (l->fields) OSH_TRY(osh_fields_default(cx, l->fields, l->object));
    for (int i = first; i < argc; i++) {
        if (flag_is(argv[i], "--help") || flag_is(argv[i], "-h")) l->help = true;
        else if (flag_is(argv[i], "--dot")) l->dot = true;
        else if (flag_is(argv[i], "--no-special-tokens")) l->no_special_tokens = true;
        else if (!l->fields && flag_is(argv[i], "--json")) l->json = true;
        else if (!strncmp(argv[i], "--", 2)) OSH_TRY(set_flag(cx, l, argc, argv, &i));
        else l->words[l->n_words++] = argv[i];
    }
done:
    return rc;
}

static int mode_of(const char *list, const char *word)
{
    int k = 0;
    size_t n = strlen(word);
    for (const char *s = list; s; s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL, k++)
        if (!strncmp(s, word, n) && (s[n] == '|' || !s[n])) return k;
    return 0;
}

static void set_log(osh_ctx *cx, const char *level, const char *progress)
{
    osh_log_setup(cx, (osh_log_level)mode_of("error|warn|info|debug", level ? level : "warn"),
                  mode_of("auto|line|json|none", progress ? progress : "auto"));
}

static osh_status no_words(osh_ctx *cx, const line *l)
{
    return l->n_words ? osh_fail(cx, OSH_E_USAGE, "unexpected argument '%s'", l->words[0]) : OSH_OK;
}

/* OpenBLAS takes its kernels from a variable that it reads when it is loaded: where they are not those of --isa, this
 * program starts itself once more with the variable set. Where that changed nothing, or cannot be done, auto goes on.
 */
static osh_status select_isa(osh_ctx *cx, const char *isa, char **argv)
{
    osh_status rc = OSH_OK;
    const char *core = NULL;
    OSH_TRY(osh_isa_select(cx, &core, isa));
    const char *set = getenv("OPENBLAS_CORETYPE");
    if (core && (!set || strcmp(set, core)) && !setenv("OPENBLAS_CORETYPE", core, 1) &&
        !setenv("OPENBLAS_NUM_THREADS", "1", 1)) // threads are ours
        execv("/proc/self/exe", argv);           // comes back only where it failed
    if (core) OSH_TRY(osh_isa_use(cx, isa));
done:
    return rc;
}

typedef osh_status (*job_fn)(osh_ctx *, const osh_options *, osh_sink, void *);

/* threads decides the context, so flags are parsed in one and the job runs in another. */
static osh_status in_context(osh_ctx **cx, int64_t threads, const char *level, const char *progress)
{
    osh_ctx *made = NULL;
    osh_status rc = osh_ctx_new(&made, (int)threads);
    if (rc) return osh_fail(*cx, rc, "cannot start %ld threads", (long)threads);
    *cx = made;
    signalled = made;
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    set_log(made, level, progress);
    return OSH_OK;
}

static void copy_error(osh_ctx *to, const osh_ctx *from, osh_status rc)
{
    if (rc && to != from) osh_fail(to, rc, "%s", osh_error_text(from));
}

static osh_status run_job(osh_ctx *cx, line *l, int argc, char **argv, int first, job_fn job, out_state *st)
{
    osh_status rc = OSH_OK;
    osh_options opt = {0};
    osh_ctx *work = cx;
    l->fields = osh_option_fields, l->object = &opt;
    OSH_TRY(parse(cx, l, argc, argv, first));
    if (l->help) {
        fputs(usage, stdout);
        print_fields(osh_option_fields);
        goto done;
    }
    OSH_TRY(no_words(cx, l));
    if (!opt.model) OSH_FAIL(cx, OSH_E_USAGE, "--model is not given");
    OSH_TRY(select_isa(cx, opt.isa, argv));
    st->json = opt.progress && !strcmp(opt.progress, "json");
    OSH_TRY(in_context(&work, opt.threads, opt.log_level, opt.progress));
    rc = job(work, &opt, to_stdout, st);
    copy_error(cx, work, rc);
    if (rc && rc != OSH_E_USAGE && job == osh_oneshot) st->resume = osh_resume_dir(cx, &opt);
done:
    if (work != cx) osh_ctx_free(work);
    osh_fields_deinit(cx, osh_option_fields, &opt);
    return rc;
}

static osh_status run_eval(osh_ctx *cx, line *l, int argc, char **argv, out_state *st)
{
    osh_status rc = OSH_OK;
    osh_eval_options opt = {0};
    osh_ctx *work = cx;
    l->fields = osh_eval_fields, l->object = &opt;
    OSH_TRY(parse(cx, l, argc, argv, 2));
    if (l->help) {
        fputs("oneshot eval: perplexity through the sequential engine; the last line on stdout is "
              "`perplexity X`.\n",
              stdout);
        print_fields(osh_eval_fields);
        goto done;
    }
    OSH_TRY(no_words(cx, l));
    OSH_TRY(select_isa(cx, opt.isa, argv));
    st->json = opt.progress && !strcmp(opt.progress, "json");
    OSH_TRY(in_context(&work, opt.threads, opt.log_level, opt.progress));
    rc = osh_eval(work, &opt, to_stdout, st);
    copy_error(cx, work, rc);
done:
    if (work != cx) osh_ctx_free(work);
    osh_fields_deinit(cx, osh_eval_fields, &opt);
    return rc;
}

static osh_status run_bench(osh_ctx *cx, line *l, int argc, char **argv, out_state *st)
{
    osh_status rc = OSH_OK;
    osh_bench_options opt = {0};
    osh_ctx *work = cx;
    l->fields = osh_bench_fields, l->object = &opt;
    OSH_TRY(parse(cx, l, argc, argv, 2));
    if (l->help) {
        fputs("oneshot bench: what this machine can do: matrix products, memory and disk, in this process.\n", stdout);
        print_fields(osh_bench_fields);
        goto done;
    }
    OSH_TRY(no_words(cx, l));
    OSH_TRY(select_isa(cx, opt.isa, argv));
    OSH_TRY(in_context(&work, opt.threads, "warn", "none"));
    rc = osh_bench(work, &opt, to_stdout, st);
    copy_error(cx, work, rc);
done:
    if (work != cx) osh_ctx_free(work);
    osh_fields_deinit(cx, osh_bench_fields, &opt);
    return rc;
}

static osh_status run_verify(osh_ctx *cx, line *l, int argc, char **argv, out_state *st)
{
    osh_status rc = OSH_OK;
    osh_verify_options opt = {0};
    osh_ctx *work = cx;
    l->fields = osh_verify_fields, l->object = &opt;
    OSH_TRY(parse(cx, l, argc, argv, 2));
    if (l->help) {
        fputs("oneshot verify DIR: reads a finished output again; exit code 1 where something is not as it must be.\n",
              stdout);
        print_fields(osh_verify_fields);
        goto done;
    }
    if (l->n_words != 1) OSH_FAIL(cx, OSH_E_USAGE, "verify wants one output directory, got %d", l->n_words);
    OSH_TRY(in_context(&work, opt.threads, opt.log_level, NULL));
    rc = osh_verify_output(work, l->words[0], &opt, to_stdout, st);
    copy_error(cx, work, rc);
done:
    if (work != cx) osh_ctx_free(work);
    osh_fields_deinit(cx, osh_verify_fields, &opt);
    return rc;
}

static osh_status run_inspect(osh_ctx *cx, line *l, int argc, char **argv, out_state *st)
{
    osh_status rc = OSH_OK;
    OSH_TRY(parse(cx, l, argc, argv, 2));
    if (l->help) fputs(usage, stdout);
    else if (l->n_words != 1) OSH_FAIL(cx, OSH_E_USAGE, "inspect wants one checkpoint directory, got %d", l->n_words);
    else OSH_TRY(osh_inspect(cx, l->words[0], l->json, to_stdout, st));
done:
    return rc;
}

static osh_status run_tokenize(osh_ctx *cx, line *l, int argc, char **argv, out_state *st)
{
    osh_status rc = OSH_OK;
    osh_options opt = {0};
    l->fields = osh_option_fields, l->object = &opt;
    OSH_TRY(parse(cx, l, argc, argv, 2));
    if (l->help) fputs(usage, stdout);
    else if (!opt.model || l->n_words != 1) OSH_FAIL(cx, OSH_E_USAGE, "tokenize wants --model DIR and one file");
    else OSH_TRY(osh_tokenize(cx, opt.model, l->words[0], !l->no_special_tokens, to_stdout, st));
done:
    osh_fields_deinit(cx, osh_option_fields, &opt);
    return rc;
}

static osh_status dispatch(osh_ctx *cx, line *l, int argc, char **argv, out_state *st)
{
    const char *cmd = argc > 1 ? argv[1] : "--help";
    if (!strcmp(cmd, "--version")) return printf("oneshot %s\n", osh_version()) < 0 ? OSH_E_IO : OSH_OK;
    if (argc < 2) return fputs(usage, stdout) < 0 ? OSH_E_IO : OSH_OK;
    if (!strcmp(cmd, "plan")) return run_job(cx, l, argc, argv, 2, osh_show_plan, st);
    if (!strcmp(cmd, "graph")) return run_job(cx, l, argc, argv, 2, osh_show_graph, st);
    if (!strcmp(cmd, "eval")) return run_eval(cx, l, argc, argv, st);
    if (!strcmp(cmd, "verify")) return run_verify(cx, l, argc, argv, st);
    if (!strcmp(cmd, "bench")) return run_bench(cx, l, argc, argv, st);
    if (!strcmp(cmd, "inspect")) return run_inspect(cx, l, argc, argv, st);
    if (!strcmp(cmd, "tokenize")) return run_tokenize(cx, l, argc, argv, st);
    if (cmd[0] != '-')
        return osh_fail(cx, OSH_E_USAGE,
                        "unknown command '%s': want plan, graph, verify, eval, bench, inspect or tokenize", cmd);
    return run_job(cx, l, argc, argv, 1, osh_oneshot, st);
}

static int exit_code(osh_status rc) { return rc == 0 ? 0 : rc == OSH_E_USAGE ? 2 : 1; }

static void complain(const osh_ctx *cx, osh_status rc, const out_state *st)
{
    char text[8192], dir[4096];
    if (!st->json) {
        fprintf(stderr, "oneshot: %s\n", osh_error_text(cx));
        if (rc == OSH_E_USAGE) fputs("hint: oneshot --help\n", stderr);
        if (st->resume) fprintf(stderr, "hint: the same command goes on from %s\n", st->resume);
        return;
    }
    osh_quote(text, sizeof text, osh_error_text(cx));
    fprintf(stderr, "{\"event\":\"error\",\"exit\":%d,\"text\":\"%s\"", exit_code(rc), text);
    if (st->resume) osh_quote(dir, sizeof dir, st->resume), fprintf(stderr, ",\"resume\":\"%s\"", dir);
    fputs("}\n", stderr);
}

int main(int argc, char **argv)
{
    osh_ctx *cx = NULL;
    out_state st = {0};
    line l = {0};
    osh_mem_tune();
    if (osh_ctx_new(&cx, 1)) {
        fputs("oneshot: no memory to start\n", stderr);
        return 1;
    }
    l.words = calloc((size_t)argc + 1, sizeof *l.words);
    osh_status rc = l.words ? dispatch(cx, &l, argc, argv, &st)
                            : osh_fail(cx, OSH_E_NOMEM, "no memory for the arguments");
    if (!rc && (st.failed || fflush(stdout))) rc = osh_fail(cx, OSH_E_IO, "cannot write to standard output");
    if (rc) complain(cx, rc, &st);
    free(l.words);
    osh_free(cx, st.resume);
    osh_ctx_free(cx);
    return exit_code(rc);
}
