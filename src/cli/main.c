/* main.c - implements the program `oneshot`. Tables define its commands and their flags. The exit
 * code is 0 after success, 1 after a failure, and 2 after wrong usage. Results go to stdout, and
 * all other text goes to stderr. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/foreign.h"
#include "base/near.h"
#include "cli/cli.h"

static bool flag_is(const char *arg, const char *name) { return !strcmp(arg, name); }

bool osh_flag_is_switch(const osh_field *f)
{
    return f->type == OSH_F_BOOL || (f->values && !strcmp(f->values, "true|false"));
}

/* Fails if the flag `name` with this value has another meaning in other tools. If `value` is NULL,
 * the flag has no value. */
static osh_status refuse_foreign_value(osh_ctx *cx, const char *name, const char *value)
{
    char both[160];
    snprintf(both, sizeof both, "%s=%.60s", name, value ? value : "");
    const char *text = osh_foreign(OSH_FOREIGN_VALUE, both);
    return text ? osh_fail(cx, OSH_E_USAGE, "--%s %s: %s", name, value, text) : OSH_OK;
}

static osh_status unknown_flag(osh_ctx *cx, const command *c, const char *name)
{
    osh_near near;
    const char *foreign = osh_foreign(OSH_FOREIGN_FLAG, name);
    if (foreign) return osh_fail(cx, OSH_E_USAGE, "unknown option '--%s': %s", name, foreign);
    osh_near_init(&near, name);
    for (const osh_field *f = c->fields; f && f->name; f++) {
        char flag[80];
        osh_flag_name(flag, f->name);
        osh_near_see(&near, flag);
    }
    return osh_fail(cx, OSH_E_USAGE, "unknown option '--%s'%s", name, osh_near_hint(&near, "--"));
}

static osh_status set_flag(osh_ctx *cx, line *l, int argc, char **argv, int *i)
{
    osh_status rc = OSH_OK;
    char name[80], shown[82] = "--";
    const char *arg = argv[*i] + 2, *eq = strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    if (n >= sizeof name) OSH_FAIL(cx, OSH_E_USAGE, "unknown option '%s'", argv[*i]);
    memcpy(name, arg, n), name[n] = 0;
    const osh_field *fields = l->command->fields, *f = fields ? osh_field_find(fields, name) : NULL;
    const osh_field *python =
        !f && fields == osh_option_fields ? osh_field_find(osh_python_fields, name) : NULL;
    OSH_TRY(refuse_foreign_value(cx, name, eq ? eq + 1 : *i + 1 < argc ? argv[*i + 1] : NULL));
    if (!f && !python) OSH_TRY(unknown_flag(cx, l->command, name));
    bool alone = osh_flag_is_switch(f ? f : python);
    const char *value = eq ? eq + 1 : NULL;
    bool next_is_bool =
        *i + 1 < argc && (!strcasecmp(argv[*i + 1], "true") || !strcasecmp(argv[*i + 1], "false"));
    if (!value && alone) value = next_is_bool ? argv[++*i] : "true";
    if (!value && *i + 1 < argc) value = argv[++*i];
    if (!value) OSH_FAIL(cx, OSH_E_USAGE, "--%s: want a value, got the end of the line", name);
    // True and False, as in Python, become true and false
    if (alone && (!strcasecmp(value, "true") || !strcasecmp(value, "false")))
        value = strcasecmp(value, "true") ? "false" : "true";
    osh_flag_name(shown + 2, f ? f->name : python->name);
    OSH_TRY(osh_field_once(cx, &l->given, f ? f : python, shown, value));
    OSH_TRY(f ? osh_field_set(cx, f, &l->options, value) : osh_option_python(cx, python, value));
done:
    return rc;
}

/* Adds the argument `word`. If the command has --model and takes no positional arguments, a
 * directory becomes the value of --model. Otherwise `word` is a positional argument. */
static osh_status line_add_word(osh_ctx *cx, line *l, const char *word)
{
    osh_status rc = OSH_OK;
    const osh_field *f = l->command->fields ? osh_field_find(l->command->fields, "model") : NULL;
    const char *foreign = *word == '-' ? osh_foreign(OSH_FOREIGN_FLAG, word + 1) : NULL;
    const char *eq = strchr(word, '=');
    char name[80] = "";
    if (foreign) OSH_FAIL(cx, OSH_E_USAGE, "unknown option '%s': %s", word, foreign);
    if (eq && eq - word < (int)sizeof name) memcpy(name, word, (size_t)(eq - word));
    if (*name && l->command->fields && osh_field_find(l->command->fields, name))
        OSH_FAIL(cx, OSH_E_USAGE, "unexpected argument '%s': want --%s", word, word);
    if (l->command->most || !f || !osh_dir_exists(word)) {
        l->words[l->n_words++] = word;
        goto done;
    }
    OSH_TRY(osh_field_once(cx, &l->given, f, "--model", word));
    OSH_TRY(osh_field_set(cx, f, &l->options, word));
done:
    return rc;
}

static osh_status line_parse(osh_ctx *cx, line *l, int argc, char **argv, int first)
{
    osh_status rc = OSH_OK;
    if (l->command->fields) OSH_TRY(osh_fields_default(cx, l->command->fields, &l->options));
    for (int i = first; i < argc; i++) {
        if (flag_is(argv[i], "--help") || flag_is(argv[i], "-h")) l->help = true;
        /* The arguments of `help` may be flags. */
        else if (!strcmp(l->command->name, "help")) l->words[l->n_words++] = argv[i];
        else if (flag_is(argv[i], "--dot")) l->dot = true;
        else if (flag_is(argv[i], "--no-special-tokens")) l->no_special_tokens = true;
        else if (!l->command->fields && flag_is(argv[i], "--json")) l->json = true;
        else if (!strncmp(argv[i], "--", 2)) OSH_TRY(set_flag(cx, l, argc, argv, &i));
        else OSH_TRY(line_add_word(cx, l, argv[i]));
    }
done:
    return rc;
}

static int mode_find(const char *list, const char *word)
{
    int k = 0;
    size_t n = strlen(word);
    for (const char *s = list; s; s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL, k++)
        if (!strncmp(s, word, n) && (s[n] == '|' || !s[n])) return k;
    return 0;
}

/* Sets up the log. Returns true if stderr shows a live progress line. */
static bool set_log(osh_ctx *cx, const char *level, const char *progress)
{
    const char *term = getenv("TERM"), *plain = getenv("NO_COLOR");
    int mode = mode_find("auto|line|json|none", progress ? progress : "auto");
    /* A dumb terminal cannot erase a line. */
    if (mode == OSH_PROGRESS_AUTO && term && !strcmp(term, "dumb")) mode = OSH_PROGRESS_LINE;
    osh_log_setup(cx, (osh_log_level)mode_find("error|warn|info|debug", level ? level : "warn"),
                  mode);
    osh_log_colour(cx, !plain || !*plain);
    return mode == OSH_PROGRESS_AUTO && isatty(STDERR_FILENO);
}

/* Makes the context of the job with the number of threads that the flags give. (Another context is
 * used to parse the flags.) Sets *live to the result of set_log. */
static osh_status context_make(osh_ctx **cx, bool *live, int64_t threads, const char *level,
                               const char *progress)
{
    osh_ctx *made = NULL;
    osh_status rc = osh_ctx_new(&made, (int)threads);
    if (rc) return osh_fail(*cx, rc, "cannot start %ld threads", (long)threads);
    *cx = made;
    *live = set_log(made, level, progress);
    return OSH_OK;
}

const char *osh_from_env(const char *name) { return getenv(name); }

/* Sets opt->profile from the variable ONESHOT_PROFILING if the command line has no --profile. The
 * value is the name of a file, or "1" for oneshot_profile.yaml. With "0" or an empty value there is
 * no profile. */
static osh_status profile_of_env(osh_ctx *cx, osh_options *opt)
{
    const char *file = osh_from_env("ONESHOT_PROFILING");
    if (opt->profile || !file || !*file || !strcmp(file, "0")) return OSH_OK;
    opt->profile = osh_strdup(cx, strcmp(file, "1") ? file : "oneshot_profile.yaml");
    return opt->profile ? OSH_OK : OSH_E_NOMEM;
}

static osh_status run_compress(osh_ctx *cx, const line *l, out_state *st)
{
    return osh_oneshot(cx, &l->options.run, osh_to_stdout, st);
}
static osh_status run_plan(osh_ctx *cx, const line *l, out_state *st)
{
    return osh_show_plan(cx, &l->options.run, osh_to_stdout, st);
}
static osh_status run_graph(osh_ctx *cx, const line *l, out_state *st)
{
    return osh_show_graph(cx, &l->options.run, osh_to_stdout, st);
}
static osh_status run_verify(osh_ctx *cx, const line *l, out_state *st)
{
    osh_verify_options o = l->options.verify; // views
    o.ranks = st->ranks, o.complete = &st->complete;
    return osh_verify_output(cx, l->words[0], &o, osh_to_stdout, st);
}
static osh_status run_eval(osh_ctx *cx, const line *l, out_state *st)
{
    osh_eval_options o = l->options.eval; // views
    o.ranks = st->ranks;
    return osh_eval(cx, &o, osh_to_stdout, st);
}
static osh_status run_bench(osh_ctx *cx, const line *l, out_state *st)
{
    return osh_bench(cx, &l->options.bench, osh_to_stdout, st);
}
static osh_status run_inspect(osh_ctx *cx, const line *l, out_state *st)
{
    char *dir = NULL; // own
    osh_status rc = osh_hub_model(cx, &dir, l->words[0], true, osh_from_env);
    if (!rc) rc = osh_inspect(cx, dir, l->json, osh_to_stdout, st);
    osh_free(cx, dir);
    return rc;
}
static osh_status run_check_model(osh_ctx *cx, const line *l, out_state *st)
{
    char *dir = NULL; // own
    osh_status rc = osh_hub_model(cx, &dir, l->words[0], false, osh_from_env);
    if (!rc) rc = osh_check_model(cx, dir, &l->options.check, osh_to_stdout, st);
    osh_free(cx, dir);
    return rc;
}
static osh_status run_pull(osh_ctx *cx, const line *l, out_state *st)
{
    return osh_pull(cx, l->words[0], osh_from_env, osh_to_stdout, st);
}
static osh_status run_report(osh_ctx *cx, const line *l, out_state *st)
{
    if (!l->n_words)
        return osh_fail(cx, OSH_E_USAGE, "report wants files that --profile wrote, got none");
    return osh_report_profiles(cx, l->words, l->n_words, &l->options.report, osh_to_stdout, st);
}
static osh_status run_compare(osh_ctx *cx, const line *l, out_state *st)
{
    if (!l->n_words)
        return osh_fail(cx, OSH_E_USAGE, "compare wants outputs, or files that eval --panel wrote; "
                        "got none");
    return osh_compare(cx, l->words, l->n_words, &l->options.compare, osh_to_stdout, st);
}
static osh_status run_tokenize(osh_ctx *cx, const line *l, out_state *st)
{
    const char *model = l->options.run.model;
    if (!model) return osh_fail(cx, OSH_E_USAGE, "--model is not given");
    osh_mem_hold(cx, l->options.run.host_memory, 0);
    osh_status rc = osh_tokenize(cx, model, l->words[0], !l->no_special_tokens, osh_to_stdout, st);
    return osh_mem_refused(cx, rc, l->options.run.host_memory);
}

static osh_status run_doctor(osh_ctx *cx, const line *l, out_state *st)
{
    (void)l;
    osh_status rc = osh_isa_of_process(cx, "auto");
    return rc ? rc : osh_doctor(cx, st->ranks, osh_to_stdout, st);
}
static osh_status run_help(osh_ctx *cx, const line *l, out_state *st)
{
    (void)st;
    return osh_help_topic(cx, l->words[0], l->words[0] ? l->words[1] : NULL);
}
static osh_status run_completion(osh_ctx *cx, const line *l, out_state *st)
{
    char *dir = NULL; // own
    const char *what = l->n_words ? l->words[0] : "";
    if (l->n_words == 2 && !strcmp(what, "modules")) {
        osh_status rc = osh_hub_model(cx, &dir, l->words[1], true, osh_from_env);
        if (!rc) rc = osh_list_modules(cx, dir, osh_to_stdout, st);
        osh_free(cx, dir);
        return rc;
    }
    if (l->n_words != 1)
        return osh_fail(cx, OSH_E_USAGE,
                        "completion wants one of bash, zsh or fish, or modules and a model, got %d "
                        "arguments",
                        l->n_words);
    return osh_completion(cx, what);
}

const command osh_commands[] = {
    {.name = "",
     .arguments = "",
     .does = "compresses a checkpoint",
     .fields = osh_option_fields,
     .divided = true,
     .run = run_compress},
    {.name = "plan",
     .arguments = "...",
     .examples = {"DIR --scheme W4A16",
                  "DIR --scheme W4A16 --quality best --dataset chats.jsonl --verbose",
                  "DIR --scheme NVFP4 --dataset chats.jsonl --device-model h100"},
     .does = "prints the plan of a run with the same flags; reads no weight",
     .fields = osh_option_fields,
     .run = run_plan},
    {.name = "verify",
     .arguments = "DIR [--model SOURCE]",
     .examples = {"OUT", "OUT --model DIR", "OUT --model DIR --json"},
     .does = "checks an output against its manifest and its source",
     .about = "Reads a finished output again. Exit code 1 if anything differs from its manifest "
              "or its source.",
     .fields = osh_verify_fields,
     .divided = true,
     .most = 1,
     .want = "output directory",
     .run = run_verify},
    {.name = "eval",
     .arguments = "--model DIR --dataset FILE [--reference DIR]",
     .examples = {"--model OUT --dataset text.txt",
                  "--model OUT --reference DIR --dataset text.txt --max-windows 64",
                  "--model OUT --reference DIR --dataset text.txt --panel out.json"},
     .does = "measures the perplexity of a model, dense or compressed",
     .about = "Measures perplexity with the sequential engine. The last line on standard output "
              "is `perplexity X`.",
     .fields = osh_eval_fields,
     .divided = true,
     .run = run_eval},
    {.name = "compare",
     .arguments = "OUT|PANEL.json... [--output FILE]",
     .examples = {"RTN GPTQ BEST", "RTN GPTQ --output table.html", "rtn.json gptq.json"},
     .does = "prints a table of outputs, and of evaluations of the same tokens",
     .about = "Prints size, loss, perplexity, KL divergence and top-1 agreement of outputs, from "
              "their reports (--eval), and of models, from files of eval --panel. Refuses "
              "different tokens or references.",
     .fields = osh_compare_fields,
     .most = 1000,
     .run = run_compare},
    {.name = "generate",
     .arguments = "DIR [PROMPT|-] [--chat] [--temperature T]",
     .examples = {"DIR \"Once upon a time\"", "OUT --chat \"What is the capital of France?\"",
                  "OUT --max-new-tokens 40 --temperature 0.7 - <prompt.txt"},
     .does = "prints the text that a model writes after a prompt",
     .about = "Prints the new text, and nothing else, on standard output while the model generates "
              "it. Without PROMPT, or with -, standard input is the prompt.",
     .fields = osh_generate_fields,
     .most = 2,
     .run = osh_run_generate},
    {.name = "inspect",
     .arguments = "[--json] DIR",
     .examples = {"DIR", "OUT", "DIR --json"},
     .does = "lists tensors, dtypes and schemes of a checkpoint",
     .most = 1,
     .want = "checkpoint directory",
     .more = "--json   prints JSON",
     .run = run_inspect},
    {.name = "check-model",
     .minor = true,
     .arguments = "DIR [--models-dir DIR] [--logits FILE]",
     .examples = {"DIR", "DIR --models-dir my-templates",
                  "DIR --models-dir my-templates --logits logits.safetensors"},
     .does = "checks a checkpoint against its template",
     .about = "For authors of templates. Lists tensors that are missing, that differ, or that no "
              "node reads, and computes the loss of a sample. Exit code 1 if checkpoint and "
              "template do not match.",
     .fields = osh_check_fields,
     .most = 1,
     .want = "checkpoint directory",
     .run = run_check_model},
    {.name = "pull",
     .arguments = "ORG/NAME[@REVISION]",
     .examples = {"Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B@main",
                  "Qwen/Qwen3-0.6B && oneshot Qwen/Qwen3-0.6B --scheme W4A16"},
     .does = "downloads a model of the Hugging Face Hub into its cache",
     .about =
         "Downloads the files of a model that the cache lacks, and prints the model's directory.",
     .fields = osh_pull_fields,
     .most = 1,
     .want = "name of a model",
     .run = run_pull},
    {.name = "graph",
     .minor = true,
     .arguments = "--model DIR [--sequential-targets NAME,...] --dot",
     .examples = {"--model DIR --dot | dot -Tsvg >graph.svg",
                  "--model DIR --sequential-targets Linear --dot",
                  "--model DIR --sequential-targets-per-subgraph 4 --dot"},
     .does = "prints the op graph and its cuts for Graphviz",
     .fields = osh_option_fields,
     .shown = "|model|sequential_targets|sequential_targets_per_subgraph|models_dir|",
     .more = "--dot   prints Graphviz, the only format",
     .run = run_graph},
    {.name = "tokenize",
     .minor = true,
     .arguments = "--model DIR [--no-special-tokens] FILE",
     .examples = {"--model DIR text.txt", "--model DIR --no-special-tokens text.txt",
                  "--model DIR text.txt | wc -w"},
     .does = "prints the token ids of each line of a file",
     .fields = osh_option_fields,
     .shown = "|model|host_memory|",
     .most = 1,
     .want = "text file",
     .more = "--no-special-tokens   adds no tokens at the start and the end",
     .run = run_tokenize},
    {.name = "report",
     .arguments = "PROFILE.yaml... [--output FILE]",
     .examples = {"run.yaml", "run.yaml --output page.html",
                  "rtn.yaml gptq.yaml best.yaml --output page.html"},
     .does = "draws the profiles (--profile) of one or several runs",
     .about = "Draws a page of finished or unfinished runs: memory over time, stages and, for "
              "several profiles, peaks by model and method. It also reads AMD Quark's profiles.",
     .fields = osh_report_fields,
     .most = 1000,
     .run = run_report},
    {.name = "bench",
     .minor = true,
     .arguments = "[--dir DIR] [--device cuda] [--json]",
     .examples = {"", "--dir /mnt/scratch", "--device cuda --json"},
     .does = "measures products, memory and disk of this machine",
     .about = "Measures matrix products, memory and disk in this process.",
     .fields = osh_bench_fields,
     .run = run_bench},
    {.name = "doctor",
     .arguments = "",
     .examples = {"", ">machine.txt", "2>&1 | less"},
     .does = "lists the instruction sets, libraries and GPU that a run would use",
     .divided = true,
     .run = run_doctor},
    {.name = "help",
     .arguments = "[TOPIC]",
     .examples = {"topics", "W4A16", "max_seq_length"},
     .does = "explains a command, flag, scheme or topic (oneshot help topics)",
     .most = 2,
     .run = run_help},
    {.name = "completion",
     .minor = true,
     .arguments = "bash|zsh|fish",
     .examples = {"bash >/etc/bash_completion.d/oneshot", "zsh >~/.zfunc/_oneshot",
                  "fish >~/.config/fish/completions/oneshot.fish"},
     .does = "prints a shell's script that completes commands and flags",
     .about = "Prints a script for a shell. The script completes commands, flags, schemes, files, "
              "and the modules of the model on the command line, which it gets from "
              "`oneshot completion modules DIR`.",
     .most = 2,
     .run = run_completion},
    {0},
};

const command *osh_command_find(const char *name)
{
    for (const command *c = osh_commands; c->name; c++)
        if (!strcmp(name, c->name)) return c;
    return NULL;
}

/* Returns the address of the command's option with this name, or NULL if the command has no such
 * option. */
static const void *line_option(const line *l, const char *name)
{
    const osh_field *f = l->command->fields ? osh_field_find(l->command->fields, name) : NULL;
    return f ? (const char *)&l->options + f->offset : NULL;
}
static const char *line_text_option(const line *l, const char *name)
{
    const void *at = line_option(l, name);
    return at ? *(char *const *)at : NULL;
}

/* Sets options for which the library has no default: `output`, and options for messages. */
static osh_status compress_prepare(osh_ctx *cx, line *l, const out_state *st)
{
    osh_status rc = OSH_OK;
    osh_options *o = &l->options.run;
    /* The run reads the recipe again, so the recipe's warnings are not printed here. */
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    if (!o->output) {
        OSH_TRY(osh_output_default(cx, &o->output, o));
        o->named = o->output != NULL;
    }
    o->guide = !st->json && strcmp(o->progress ? o->progress : "auto", "none") != 0;
    if (o->model && !(l->model = osh_strdup(cx, o->model))) OSH_TRY(OSH_E_NOMEM);
    o->said = l->model;
done:
    return rc;
}

static osh_status run_command(osh_ctx *cx, line *l, int argc, char **argv, int first, out_state *st)
{
    osh_status rc = OSH_OK;
    osh_ctx *work = cx;
    bool live = false;
    const command *c = l->command;
    OSH_TRY(line_parse(cx, l, argc, argv, first));
    if (c->run == run_compress) OSH_TRY(profile_of_env(cx, &l->options.run));
    if (l->help) {
        osh_help_command(c);
        goto done;
    }
    if (c->want && l->n_words != 1)
        OSH_FAIL(cx, OSH_E_USAGE, "%s wants one %s, got %d", c->name, c->want, l->n_words);
    if (l->n_words > c->most)
        OSH_FAIL(cx, OSH_E_USAGE, "unexpected argument '%s'", l->words[c->most]);
    OSH_TRY(osh_line_meet(cx, &st->ranks, argc, argv));
    const int64_t *threads = line_option(l, "threads");
    int64_t most = threads ? *threads : 1;
    if (threads && !most && st->ranks) most = osh_ranks_threads(st->ranks);
    const char *isa = line_text_option(l, "isa"), *progress = line_text_option(l, "progress");
    if (isa) OSH_TRY(osh_isa_of_process(cx, isa));
    st->json = progress && !strcmp(progress, "json");
    if (c->run == run_compress) OSH_TRY(compress_prepare(cx, l, st));
    OSH_TRY(context_make(&work, &live, most, line_text_option(l, "log_level"), progress));
    osh_line_quiet(work, st->ranks);
    OSH_TRY(osh_log_command(work, argc, argv));
    OSH_TRY(osh_signals_listen(work, c->run == run_compress ? &l->options.run : NULL, st, live));
    if (!osh_line_runs_here(work, l, st->ranks)) goto done;
    if (c->run == run_compress) l->options.run.ranks = st->ranks;
    const osh_named named = {c->fields, &l->options, c->run == run_plan || c->run == run_graph,
                             c->divided ? st->ranks : NULL};
    rc = c->fields ? osh_names_find(cx, work, &named, osh_from_env) : OSH_OK;
    if (!rc) rc = c->run(work, l, st);
    signal(SIGALRM, SIG_IGN); // the job has stopped, so its time limit ends
    if (rc) osh_fail(cx, rc, "%s", osh_error_text(work));
    /* After an error of usage or of numbers, the same command would fail again. */
    bool again = rc && rc != OSH_E_USAGE && rc != OSH_E_NUMERIC;
    if (again && c->run == run_compress) st->resume = osh_resume_dir(cx, &l->options.run);
done:
    // a signal may still come, for example while this rank waits for the others
    osh_signals_set(cx);
    if (work != cx) osh_ctx_free(work);
    if (c->fields) osh_fields_deinit(cx, c->fields, &l->options);
    osh_free(cx, l->model);
    return rc;
}

static osh_status dispatch(osh_ctx *cx, line *l, int argc, char **argv, out_state *st)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    osh_near near;
    if (!strcmp(name, "--version")) return osh_about(cx, osh_to_stdout, st);
    if (argc < 2) return osh_help_usage(), OSH_OK;
    bool known = osh_command_find(name) != NULL;
    if (name[0] == '-' || (!known && (strchr(name, '=') || osh_dir_exists(name)))) name = "";
    if ((l->command = osh_command_find(name)))
        return run_command(cx, l, argc, argv, *name ? 2 : 1, st);
    const char *foreign = osh_foreign(OSH_FOREIGN_COMMAND, name);
    if (foreign) return osh_fail(cx, OSH_E_USAGE, "unknown command '%s': %s", name, foreign);
    if (strchr(name, '/'))
        return osh_fail(cx, OSH_E_USAGE, "unknown command '%s': want --model %s", name, name);
    osh_near_init(&near, name);
    for (const command *c = osh_commands; c->name; c++) osh_near_see(&near, c->name);
    return osh_fail(cx, OSH_E_USAGE, "unknown command '%s'%s", name, osh_near_hint(&near, ""));
}

/* Opens /dev/null for standard descriptors that are closed. Otherwise the next file that is opened
 * gets such a descriptor, and messages are written into that file. */
static bool fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return false;
    return true;
}

int main(int argc, char **argv)
{
    osh_ctx *cx = NULL;
    out_state st = {0};
    line l = {0};
    /* The file descriptor of stderr may be closed, so the error cannot be reported. */
    if (!fill_standard_descriptors()) return 1;
    signal(SIGXFSZ, SIG_IGN); // so that a write beyond RLIMIT_FSIZE fails with EFBIG
    osh_mem_tune();
    if (osh_ctx_new(&cx, 1)) {
        fputs("oneshot: no memory to start\n", stderr);
        return 1;
    }
    l.words = calloc((size_t)argc + 1, sizeof *l.words);
    osh_status rc = l.words ? dispatch(cx, &l, argc, argv, &st)
                            : osh_fail(cx, OSH_E_NOMEM, "no memory for the arguments");
    if (!rc && (st.failed || fflush(stdout)))
        rc = osh_fail(cx, OSH_E_IO, "cannot write to standard output");
    osh_ranks_fail(cx, st.ranks, rc);
    if (rc) osh_error_print(cx, rc, &st);
    osh_ranks_close(cx, st.ranks, rc && !st.complete);
    free(l.words);
    osh_free(cx, st.resume);
    osh_ctx_free(cx);
    return osh_exit_code(rc);
}
