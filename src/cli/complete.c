/* complete.c - implements `oneshot completion SHELL`: prints a completion script of commands, flags
 * and values, made from the tables. For the modules of a model, the script calls `oneshot
 * completion modules DIR` with the model that is on the command line. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* The kind of a flag's value, or of a positional argument. */
typedef enum value_kind {
    VALUE_NONE, // the flag has no value, or any text is allowed
    VALUE_WORDS,
    VALUE_SCHEMES,
    VALUE_MODULES, // a list of names, separated by commas
    VALUE_DIR,
    VALUE_FILE,
    VALUE_N
} value_kind;

static value_kind flag_value(const osh_field *f)
{
    static const char *const modules[] = {"ignore", "only", "targets", "sequential_targets"};
    if (f->values) return VALUE_WORDS;
    if (!strcmp(f->name, "scheme")) return VALUE_SCHEMES;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (!strcmp(f->name, modules[i])) return VALUE_MODULES;
    if (!strcmp(osh_flag_kind(f), "DIR")) return VALUE_DIR;
    return strcmp(osh_flag_kind(f), "FILE") ? VALUE_NONE : VALUE_FILE;
}

/* Returns the kind of a command's positional arguments. */
static value_kind positional_value(const command *c)
{
    if (!c->most) return VALUE_NONE;
    if (!strcmp(c->name, "help") || !strcmp(c->name, "completion")) return VALUE_WORDS;
    if (strstr(c->arguments, "FILE") || strstr(c->arguments, ".yaml")) return VALUE_FILE;
    return strstr(c->arguments, "DIR") ? VALUE_DIR : VALUE_NONE;
}

/* Prints values such as "a|b|c" with a space in the place of each `|`. */
static void print_values(const char *values)
{
    for (; *values; values++) putchar(*values == '|' ? ' ' : *values);
}

static void print_schemes(void)
{
    for (size_t i = 0; osh_list_scheme_name(i); i++)
        printf("%s%s", i ? " " : "", osh_list_scheme_name(i));
}

static void print_commands(void)
{
    for (const command *c = osh_commands; c->name; c++)
        if (*c->name) printf("%s%s", c->name, c[1].name ? " " : "");
}

/* Prints the words of a positional argument: shells, or topics of help. */
static void print_positional_words(const command *c)
{
    char name[80];
    if (!strcmp(c->name, "completion")) {
        printf("bash zsh fish modules");
        return;
    }
    print_commands();
    for (const osh_topic *t = osh_topics; t->name; t++) printf(" %s", t->name);
    printf(" all schemes modifiers models python topics ");
    print_schemes();
    for (const osh_field *f = osh_option_fields; f->name; f++)
        osh_flag_name(name, f->name), printf(" --%s", name);
}

/* Prints the words of a flag's value. */
static void print_words(const osh_field *f)
{
    if (flag_value(f) == VALUE_SCHEMES) print_schemes();
    else if (f->values) print_values(f->values);
}

/* Prints the first sentence of `doc`, as a part of a shell string in single quotes. Prints a
 * backslash before each character of `special`. Prints the text `quote` instead of each single
 * quote. */
static void print_sentence(const char *doc, const char *special, const char *quote)
{
    for (; *doc && strncmp(doc, ". ", 2); doc++) {
        if (*doc == '\'') fputs(quote, stdout);
        else printf("%s%c", strchr(special, *doc) ? "\\" : "", *doc);
    }
}

static void print_names(const command *c, const char *between)
{
    char name[80];
    for (const osh_field *f = c->fields; f && f->name; f++) {
        if (!osh_flag_shown(c, f)) continue;
        osh_flag_name(name, f->name);
        printf("--%s%s", name, between);
    }
    printf("--help");
    if (c->more) printf(" %.*s", (int)strcspn(c->more, " "), c->more);
}

/* ---- bash ---- */

static const char bash_head[] =
    "# eval \"$(oneshot completion bash)\"\n"
    "_oneshot_words() { COMPREPLY=($(compgen -W \"$1\" -- \"$cur\")); }\n"
    "_oneshot_files() { # -f: files, -d: directories; a name may contain spaces\n"
    "    mapfile -t COMPREPLY < <(compgen \"$1\" -- \"$cur\")\n"
    "    compopt -o filenames 2>/dev/null\n"
    "}\n"
    "_oneshot_modules() { # of the model on the command line; after the last comma of $cur\n"
    "    local i word model= before=\n"
    "    for ((i = 1; i < ${#COMP_WORDS[@]}; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        case $word in\n"
    "            --model) word=${COMP_WORDS[i + 1]}\n"
    "                [[ $word != '=' ]] || word=${COMP_WORDS[i + 2]}\n"
    "                model=${word/#\\~/$HOME} ;;\n"
    "            *) word=${word/#\\~/$HOME} # the value of another flag is no model\n"
    "                [[ -n $model || ${COMP_WORDS[i - 1]} = --* || ${COMP_WORDS[i - 1]} = '=' ||\n"
    "                    ! -f $word/config.json ]] || model=$word ;;\n"
    "        esac\n"
    "    done\n"
    "    [[ -n $model ]] || return\n"
    "    [[ $cur != *,* ]] || before=${cur%,*},\n"
    "    mapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$(HF_HUB_OFFLINE=1 \\\n"
    "        \"${COMP_WORDS[0]/#\\~/$HOME}\" completion modules \"$model\" 2>/dev/null)\" -- "
    "\"${cur##*,}\")\n"
    "}\n"
    "_oneshot() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags=\n"
    "    COMPREPLY=()\n"
    "    [[ $prev != '=' ]] || prev=${COMP_WORDS[COMP_CWORD-2]} # --flag=value is three words\n"
    "    [[ $cur != '=' ]] || cur=\n"
    "    case $prev in";

/* True if no earlier command has the flag. The values of a flag are printed once for all commands,
 * because they are the same in each command that has the flag. */
static bool flag_is_new(const command *c, const osh_field *f)
{
    for (const command *b = osh_commands; b < c; b++)
        if (b->fields && osh_field_find(b->fields, f->name)) return false;
    return true;
}

/* Prints the shell command that completes the value of the flag f. If f is NULL, the command
 * completes the positional arguments of c. */
static void bash_action(value_kind kind, const osh_field *f, const command *c)
{
    static const char *const actions[VALUE_N] = {"", "", "", "_oneshot_modules",
                                                 "_oneshot_files -d", "_oneshot_files -f"};
    if (kind == VALUE_WORDS || kind == VALUE_SCHEMES) {
        printf("_oneshot_words '");
        if (f) print_words(f);
        else print_positional_words(c);
        putchar('\'');
    }
    printf("%s", actions[kind]);
}

static void bash_values(void)
{
    char name[80];
    for (const command *c = osh_commands; c->name; c++)
        for (const osh_field *f = c->fields; f && f->name; f++) {
            value_kind kind = flag_value(f);
            /* If the flag may be given without a value, a following word with dashes is the next
             * flag. */
            bool alone = osh_flag_is_switch(f);
            if (!flag_is_new(c, f) || (alone && !f->values)) continue;
            osh_flag_name(name, f->name);
            printf("        --%s%s", name, alone ? ") [[ $cur = -* ]] || { " : ") ");
            bash_action(kind, f, c);
            puts(alone ? "; return; } ;;" : kind == VALUE_NONE ? "return ;;" : "; return ;;");
        }
}

static void bash_positionals(void)
{
    for (const command *c = osh_commands; c->name; c++) {
        if (!*c->name || positional_value(c) == VALUE_NONE) continue;
        printf("        %s) ", c->name);
        bash_action(positional_value(c), NULL, c);
        puts(" ;;");
    }
}

static void print_bash(void)
{
    puts(bash_head);
    bash_values();
    puts("    esac\n"
         "    case ${COMP_WORDS[1]} in");
    for (const command *c = osh_commands; c->name; c++) {
        if (!*c->name) continue;
        printf("        %s) flags='", c->name);
        print_names(c, " ");
        puts("' ;;");
    }
    printf("        *) flags='");
    print_names(osh_command_find(""), " ");
    puts(" --version' ;;\n"
         "    esac\n"
         "    if [[ $cur == -* && ${COMP_WORDS[1]} != help ]]; then _oneshot_words \"$flags\"; "
         "return; fi");
    printf("    if [ $COMP_CWORD = 1 ]; then\n"
           "        _oneshot_files -d\n"
           "        COMPREPLY+=($(compgen -W '");
    print_commands();
    puts("' -- \"$cur\"))\n"
         "        return\n"
         "    fi\n"
         "    case ${COMP_WORDS[1]} in");
    bash_positionals();
    puts("    esac\n"
         "}\n"
         "complete -F _oneshot oneshot");
}

/* ---- zsh ---- */

static const char zsh_head[] =
    "#compdef oneshot\n"
    "# eval \"$(oneshot completion zsh)\", or as the file _oneshot in a directory of $fpath\n"
    "_oneshot_modules() { # of the model on the command line; after the last comma of the word\n"
    "    local i model\n"
    "    local -a names\n"
    "    for ((i = 2; i <= $#words; i++)); do\n"
    "        case $words[i] in\n"
    "            --model) model=${~words[i + 1]} ;;\n"
    "            --model=*) model=${~words[i]#--model=} ;;\n"
    "            *) [[ -n $model || $words[i-1] = --* || ! -f ${~words[i]}/config.json ]] ||\n"
    "                model=${~words[i]} ;;\n"
    "        esac\n"
    "    done\n"
    "    [[ -n $model ]] || return 1\n"
    "    names=(${(f)\"$(HF_HUB_OFFLINE=1 ${~words[1]} completion modules $model 2>/dev/null)\"})\n"
    "    compset -P '*,'\n"
    "    compadd -a names\n"
    "}\n"
    "_oneshot() {\n"
    "    local -a flags\n"
    "    case $words[2] in";

static void zsh_action(value_kind kind, const osh_field *f, const command *c)
{
    static const char *const actions[VALUE_N] = {"", "", "", "_oneshot_modules", "_files -/",
                                                 "_files"};
    if (kind == VALUE_WORDS || kind == VALUE_SCHEMES) {
        putchar('(');
        if (f) print_words(f);
        else print_positional_words(c);
        putchar(')');
    }
    printf("%s", actions[kind]);
}

static void zsh_flags(const command *c)
{
    char name[80];
    for (const osh_field *f = c->fields; f && f->name; f++) {
        if (!osh_flag_shown(c, f)) continue;
        osh_flag_name(name, f->name);
        printf(" '--%s%s[", name, osh_flag_is_switch(f) ? "" : "=");
        print_sentence(f->doc, "[]\\", "'\\''");
        putchar(']');
        if (!osh_flag_is_switch(f)) {
            printf(":%s:", name);
            zsh_action(flag_value(f), f, c);
        }
        putchar('\'');
    }
}

static void zsh_commands(void)
{
    printf("        *) flags=('1:command or model:((");
    for (const command *c = osh_commands; c->name; c++) {
        if (!*c->name) continue;
        printf("%s\\:\"", c->name);
        print_sentence(c->does, "\\\"`$:", "'\\''");
        printf("\" ");
    }
    printf("))' '*:directory:_files -/'");
    zsh_flags(osh_command_find(""));
    puts(") ;;");
}

static void print_zsh(void)
{
    puts(zsh_head);
    for (const command *c = osh_commands; c->name; c++) {
        if (!*c->name) continue;
        printf("        %s) flags=(", c->name);
        zsh_flags(c);
        if (c->more) printf(" '%.*s'", (int)strcspn(c->more, " "), c->more);
        printf(" '1: :' '*:argument:");
        zsh_action(positional_value(c), NULL, c);
        puts("') ;;");
    }
    zsh_commands();
    puts("    esac\n"
         "    _arguments $flags '--help[prints help]'\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _oneshot ]; then _oneshot \"$@\"\n"
         "else compdef _oneshot oneshot; fi");
}

/* ---- fish ---- */

static const char fish_head[] =
    "# oneshot completion fish | source\n"
    "function __oneshot_modules # of the model on the command line; after the last comma\n"
    "    set -l words (commandline -opc)\n"
    "    set -l model\n"
    "    for i in (seq 2 (count $words))\n"
    "        set -l word $words[$i]\n"
    "        if test $word = --model; and test $i -lt (count $words)\n"
    "            set model $words[(math $i + 1)]\n"
    "        else if string match -q -- '--model=*' $word\n"
    "            set model (string replace -- --model= '' $word)\n"
    "        else if test -z \"$model\" -a -f $word/config.json\n"
    "            string match -q -- '--*' $words[(math $i - 1)]; or set model $word\n"
    "        end\n"
    "    end\n"
    "    test -n \"$model\"; or return\n"
    "    set -l before (commandline -ct | string replace -r '^--[a-z-]+=' '' | string match -r "
    "'^.*,')\n"
    "    for name in (HF_HUB_OFFLINE=1 $words[1] completion modules $model 2>/dev/null)\n"
    "        echo \"$before$name\"\n"
    "    end\n"
    "end";

static void fish_action(value_kind kind, const osh_field *f, const command *c)
{
    static const char *const actions[VALUE_N] = {
        " -x", "", "", " -x -a '(__oneshot_modules)'", " -x -a '(__fish_complete_directories)'",
        " -r -F"};
    if (kind == VALUE_WORDS || kind == VALUE_SCHEMES) {
        printf(" -x -a '");
        if (f) print_words(f);
        else print_positional_words(c);
        putchar('\'');
    }
    printf("%s", actions[kind]);
}

static void fish_condition(const command *c)
{
    printf("complete -c oneshot -n '");
    if (*c->name) printf("__fish_seen_subcommand_from %s", c->name);
    else printf("not __fish_seen_subcommand_from "), print_commands();
    putchar('\'');
}

static void fish_flags(const command *c)
{
    char name[80];
    for (const osh_field *f = c->fields; f && f->name; f++) {
        if (!osh_flag_shown(c, f)) continue;
        osh_flag_name(name, f->name);
        fish_condition(c);
        printf(" -l %s", name);
        if (!osh_flag_is_switch(f)) fish_action(flag_value(f), f, c);
        printf(" -d '");
        print_sentence(f->doc, "\\", "\\'");
        puts("'");
    }
}

static void print_fish(void)
{
    puts(fish_head);
    puts("complete -c oneshot -n __fish_use_subcommand -x -a '(__fish_complete_directories)'");
    for (const command *c = osh_commands; c->name; c++) {
        if (!*c->name) continue;
        printf("complete -c oneshot -n __fish_use_subcommand -x -a %s -d '", c->name);
        print_sentence(c->does, "\\", "\\'");
        puts("'");
        if (positional_value(c) == VALUE_NONE) continue;
        fish_condition(c);
        fish_action(positional_value(c), NULL, c);
        putchar('\n');
    }
    for (const command *c = osh_commands; c->name; c++) fish_flags(c);
}

osh_status osh_completion(osh_ctx *cx, const char *shell)
{
    if (!strcmp(shell, "bash")) return print_bash(), OSH_OK;
    if (!strcmp(shell, "zsh")) return print_zsh(), OSH_OK;
    if (!strcmp(shell, "fish")) return print_fish(), OSH_OK;
    return osh_fail(cx, OSH_E_USAGE, "completion for '%s': want bash, zsh or fish", shell);
}
