/* complete.c - `oneshot completion SHELL`: prints a completion script of commands, flags and
 * values, made from the tables. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* Prints values such as "a|b|c" with a space in the place of each `|`. */
static void complete_print_values(const char *values)
{
    for (; *values; values++) putchar(*values == '|' ? ' ' : *values);
}

/* Prints the first clause of doc, without characters that are special in a shell. */
static void print_clause(const char *doc)
{
    for (; *doc && !strchr(":;([", *doc) && strncmp(doc, ". ", 2); doc++)
        if (*doc != '\'' && *doc != ']') putchar(*doc);
}

static bool is_kind(const osh_field *f, const char *kind)
{
    return !strcmp(osh_flag_kind(f), kind);
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

static void print_commands(void)
{
    for (const command *c = osh_commands; c->name; c++)
        if (*c->name) printf("%s%s", c->name, c[1].name ? " " : "");
}

/* ---- bash ---- */

/* True if no earlier command has the flag. Flags with equal names have equal values in all
 * commands. */
static bool flag_is_new(const command *c, const osh_field *f)
{
    for (const command *b = osh_commands; b < c; b++)
        if (b->fields && osh_field_find(b->fields, f->name)) return false;
    return true;
}

static void bash_values(void)
{
    char name[80];
    for (const command *c = osh_commands; c->name; c++)
        for (const osh_field *f = c->fields; f && f->name; f++) {
            if (!flag_is_new(c, f) || (!f->values && !is_kind(f, "DIR") && !is_kind(f, "FILE")))
                continue;
            osh_flag_name(name, f->name);
            printf("        --%s) ", name);
            if (f->values) printf("COMPREPLY=($(compgen -W '"), complete_print_values(f->values);
            if (f->values) puts("' -- \"$cur\")); return ;;");
            else
                printf("COMPREPLY=($(compgen -%c -- \"$cur\")); return ;;\n",
                       is_kind(f, "DIR") ? 'd' : 'f');
        }
}

static void print_bash(void)
{
    puts("# eval \"$(oneshot completion bash)\"\n"
         "_oneshot() {\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags\n"
         "    COMPREPLY=()\n"
         "    case $prev in");
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
         "    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))");
    printf("    elif [ $COMP_CWORD = 1 ]; then COMPREPLY=($(compgen -W '");
    print_commands();
    puts("' -- \"$cur\"))\n"
         "    else COMPREPLY=($(compgen -f -- \"$cur\")); fi\n"
         "}\n"
         "complete -o filenames -F _oneshot oneshot");
}

/* ---- zsh ---- */

static void zsh_flags(const command *c)
{
    char name[80];
    for (const osh_field *f = c->fields; f && f->name; f++) {
        if (!osh_flag_shown(c, f)) continue;
        osh_flag_name(name, f->name);
        printf(" '--%s%s[", name, osh_flag_is_switch(f) ? "" : "=");
        print_clause(f->doc);
        putchar(']');
        if (!osh_flag_is_switch(f)) {
            printf(":%s:", name);
            if (f->values) putchar('('), complete_print_values(f->values), putchar(')');
            else if (is_kind(f, "DIR")) printf("_files -/");
            else if (is_kind(f, "FILE")) printf("_files");
        }
        putchar('\'');
    }
}

static void print_zsh(void)
{
    puts("# eval \"$(oneshot completion zsh)\"\n"
         "_oneshot() {\n"
         "    local -a flags\n"
         "    case $words[2] in");
    for (const command *c = osh_commands; c->name; c++) {
        if (!*c->name) continue;
        printf("        %s) flags=(", c->name);
        zsh_flags(c);
        puts(" '*:file:_files') ;;");
    }
    printf("        *) flags=('1:command:(");
    print_commands();
    printf(")'");
    zsh_flags(osh_command_find(""));
    puts(") ;;\n"
         "    esac\n"
         "    _arguments $flags '--help[what there is]'\n"
         "}\n"
         "compdef _oneshot oneshot");
}

/* ---- fish ---- */

static void fish_flags(const command *c)
{
    char name[80];
    for (const osh_field *f = c->fields; f && f->name; f++) {
        if (!osh_flag_shown(c, f)) continue;
        osh_flag_name(name, f->name);
        printf("complete -c oneshot -n '");
        if (*c->name) printf("__fish_seen_subcommand_from %s", c->name);
        else printf("not __fish_seen_subcommand_from "), print_commands();
        printf("' -l %s", name);
        if (f->values) printf(" -x -a '"), complete_print_values(f->values), putchar('\'');
        else if (!osh_flag_is_switch(f))
            printf(is_kind(f, "DIR")    ? " -x -a '(__fish_complete_directories)'"
                   : is_kind(f, "FILE") ? " -r -F"
                                        : " -x");
        printf(" -d '");
        print_clause(f->doc);
        puts("'");
    }
}

static void print_fish(void)
{
    puts("# oneshot completion fish | source");
    for (const command *c = osh_commands; c->name; c++)
        if (*c->name) {
            printf("complete -c oneshot -n __fish_use_subcommand -a %s -d '", c->name);
            print_clause(c->does);
            puts("'");
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
