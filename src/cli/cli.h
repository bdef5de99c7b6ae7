/* cli.h - the commands, and what is said of them. */
#ifndef OSH_CLI_H
#define OSH_CLI_H
#include "api/api.h"

typedef struct command command;
typedef struct line { // a command line
    const command *command;
    union {
        osh_options run;
        osh_eval_options eval;
        osh_bench_options bench;
        osh_verify_options verify;
        osh_check_options check;
        osh_pull_options pull;
        osh_report_options report;
    } options; // own: what the command's fields fill
    const char **words; // own: positional arguments
    int n_words;
    bool help, dot, no_special_tokens, json;
    osh_given given;
} line;

typedef struct out_state {
    bool failed; // standard output
    bool json;   // on standard error
    char *resume; // own: the directory that the same command goes on from
} out_state;

struct command {
    const char *name, *arguments, *does; // a line of --help; the name "" is that of the command without one
    const char *about;                   // of its own --help; NULL: what it does
    const osh_field *fields;             // NULL: none
    const char *shown;                   // "|model|": those of its help and completion; NULL: all
    const char *want;                    // one positional argument, and what it is; NULL: none has to be there
    int most;                            // positional arguments that there may be
    const char *more;                    // flags beside the fields, such as "--dot"; NULL: none
    osh_status (*run)(osh_ctx *, const line *, out_state *);
};
extern const command osh_commands[]; // a row without a name ends them
const command *osh_command_find(const char *name); // NULL: unknown
bool osh_flag_is_switch(const osh_field *f); // its name alone says true

/* help.c: prints to standard output. */
void osh_help_usage(void);
void osh_help_command(const command *c);
osh_status osh_help_topic(osh_ctx *cx, const char *topic, const char *of); // help TOPIC [COMMAND]
void osh_flag_name(char to[80], const char *field); // "max-seq-length"
bool osh_flag_shown(const command *c, const osh_field *f);
const char *osh_flag_kind(const osh_field *f); // of its value: "FILE", "DIR", "SIZE", ...; "": a switch

osh_status osh_completion(osh_ctx *cx, const char *shell); // complete.c
#endif
