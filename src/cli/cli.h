/* cli.h - the commands of the program, and the functions that print help and completions. */
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
    } options;          // own: filled by the command's fields
    char *model;        // own: the model of a run as the user has named it; NULL: none
    const char **words; // own: positional arguments
    int n_words;
    bool help, dot, no_special_tokens, json;
    osh_given given;
} line;

typedef struct out_state {
    bool failed;  // true if writing to stdout failed
    bool json;    // true if stderr is JSON
    char *resume; // own: the directory from which the same command continues; NULL: none
} out_state;

struct command {
    /* A line of --help; the name "" is the command without a name. */
    const char *name, *arguments, *does;
    const char *about;       // text of its own --help; NULL: does
    const osh_field *fields; // NULL: none
    const char *shown;       // "|model|": options in its help and completion; NULL: all
    /* Name of its one positional argument; NULL: none is required. */
    const char *want;
    int most;         // most positional arguments
    const char *more; // other flags, such as "--dot"; NULL: none
    osh_status (*run)(osh_ctx *, const line *, out_state *);
};
extern const command osh_commands[];               // a row whose name is NULL ends the table
const command *osh_command_find(const char *name); // NULL: unknown command
bool osh_flag_is_switch(const osh_field *f);       // true if the flag without a value means true

/* In help.c. They print to stdout. */
void osh_help_usage(void);
void osh_help_command(const command *c);
/* Prints help TOPIC [COMMAND]. */
osh_status osh_help_topic(osh_ctx *cx, const char *topic, const char *of);
void osh_flag_name(char to[80], const char *field); // to: such as "max-seq-length"
bool osh_flag_shown(const command *c, const osh_field *f);
/* Kind of value: "FILE", "DIR", "SIZE", ...; "": a switch. */
const char *osh_flag_kind(const osh_field *f);

/* In generate.c: `oneshot generate`. */
osh_status osh_run_generate(osh_ctx *cx, const line *l, out_state *st);

/* In main.c. osh_to_stdout is a sink that prints to stdout and escapes control characters except
 * newlines; user: the out_state. */
void osh_to_stdout(void *user, const char *text, size_t n);
const char *osh_from_env(const char *name); // getenv
osh_status osh_completion(osh_ctx *cx, const char *shell); // in complete.c
#endif
