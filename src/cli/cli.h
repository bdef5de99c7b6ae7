/* cli.h - declares the commands of the program, and the functions that print help and
 * completions. */
#ifndef OSH_CLI_H
#define OSH_CLI_H
#include "api/api.h"

typedef struct command command;
typedef struct line { // a parsed command line
    const command *command;
    union {
        osh_options run;
        osh_eval_options eval;
        osh_generate_options generate;
        osh_bench_options bench;
        osh_verify_options verify;
        osh_check_options check;
        osh_pull_options pull;
        osh_report_options report;
        osh_compare_options compare;
    } options; // own: flags of the command; only the member for `command` is used
    char *model;        // own: the model of a run as the user has named it; NULL: none
    const char **words; // own: positional arguments
    int n_words;
    bool help, dot, no_special_tokens, json;
    osh_given given;
} line;

typedef struct out_state {
    bool failed;  // true if writing to stdout failed
    bool json;    // true if messages on stderr are JSON
    bool complete; // true if all ranks have done their work; a failure then ends no other rank
    char *resume; // own: unfinished output that the same command would continue; NULL: none
    osh_ranks *ranks; // own: the processes that a launcher has started; NULL: one process
} out_state;

struct command {
    /* `name` and `does` are the row of the command in --help. The command without a name (compress)
     * has the name "". */
    bool minor; // true if `oneshot --help` shows only the name of the command
    const char *name, *arguments, *does;
    const char *about;       // text for `oneshot NAME --help`; NULL: use `does`
    const char *examples[3]; // arguments of three examples
    const osh_field *fields; // flags of the command; NULL: none
    const char *shown;       // "|model|...": options to show in help and completion; NULL: all
    /* Name of the required positional argument; NULL: none is required. */
    const char *want;
    int most;         // largest number of positional arguments
    const char *more; // a flag that is not in `fields`, such as "--dot"; NULL: none
    /* True if all ranks call `run`; false: rank 0 does the work, and the other ranks wait. */
    bool divided;
    osh_status (*run)(osh_ctx *, const line *, out_state *);
};
extern const command osh_commands[];               // a row whose name is NULL ends the table
const command *osh_command_find(const char *name); // returns NULL for an unknown command
/* True if the flag may stand without a value. Without a value, the flag is true. */
bool osh_flag_is_switch(const osh_field *f);

/* help.c defines the next functions, which print to stdout. */
void osh_help_usage(void);
/* Prints the flags of a command. */
void osh_help_command(const command *c);
/* Prints the help for a topic: `oneshot help TOPIC [COMMAND]`. */
osh_status osh_help_topic(osh_ctx *cx, const char *topic, const char *of);
/* Writes the name of the flag, such as "max-seq-length". */
void osh_flag_name(char to[80], const char *field);
/* True if the help of the command lists the flag. */
bool osh_flag_shown(const command *c, const osh_field *f);
/* Returns the kind of a flag's value: "FILE", "DIR", "SIZE", ...; "" for a switch. */
const char *osh_flag_kind(const osh_field *f);

/* signals.c: sets signal handlers that interrupt cx. Prepares the messages that the handlers print
 * in the form of error messages. run: the options of a run, so that a message can name its
 * unfinished output; NULL for other commands. live: true if stderr shows a live progress line. */
osh_status osh_signals_listen(osh_ctx *cx, const osh_options *run, const out_state *st, bool live);
void osh_signals_set(osh_ctx *cx); // from now on, signals interrupt cx

/* guard.c: splits this process into a rank and a guard. The function returns only in the rank; the
 * guard waits for the rank. *watch: memory that both processes share. The rank stores two things in
 * it: the current work of the rank, and the guard processes of the other ranks on this machine. */
osh_status osh_guard_start(osh_ctx *cx, osh_watch **watch);
/* ranks.c: if a launcher has started several processes, connects to the other processes. Fails if
 * the processes do not have the same arguments, working directory and environment. *out (own) is
 * also set after a failure. */
osh_status osh_line_meet(osh_ctx *cx, osh_ranks **out, int argc, char **argv);
/* True if this rank runs the command. If other ranks wait for this rank, logs a message. */
bool osh_line_runs_here(osh_ctx *cx, const line *l, const osh_ranks *r);
void osh_line_quiet(osh_ctx *work, const osh_ranks *r); // drops messages of ranks other than 0

/* Runs `oneshot generate` (generate.c). */
osh_status osh_run_generate(osh_ctx *cx, const line *l, out_state *st);

/* A sink that prints to stdout and escapes control characters except newlines (print.c).
 * user: the out_state. */
void osh_to_stdout(void *user, const char *text, size_t n);
/* Prints the message of cx to stderr, as text or as JSON, with a hint (print.c). */
void osh_error_print(const osh_ctx *cx, osh_status rc, const out_state *st);
int osh_exit_code(osh_status rc); // exit code of the program after a command returns rc
const char *osh_from_env(const char *name); // returns getenv(name)
/* Prints a completion script (complete.c). */
osh_status osh_completion(osh_ctx *cx, const char *shell);
#endif
