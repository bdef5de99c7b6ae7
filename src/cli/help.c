/* help.c - prints the help for commands, flags and topics from the tables. Flags are printed in
 * groups, so that the help of a command fits on one screen. */
#include <stdio.h>
#include <string.h>

#include "base/near.h"
#include "cli/cli.h"

enum { WIDTH = 80, GROUP = 11, FLAG = 29 }; // columns

void osh_flag_name(char to[80], const char *field)
{
    size_t n = 0;
    for (; field[n] && n < 79; n++) to[n] = field[n] == '_' ? '-' : field[n];
    to[n] = 0;
}

const char *osh_flag_kind(const osh_field *f)
{
    static const char *const rows[][2] = {
        {"model", "DIR"},     {"output", "DIR"},     {"models_dir", "DIR"}, {"scratch_dir", "DIR"},
        {"dir", "DIR"},       {"reference", "DIR"},  {"recipe", "FILE"},    {"dataset", "FILE"},
        {"log_file", "FILE"}, {"profile", "FILE"},   {"per_token", "FILE"}, {"text_column", "KEY"},
        {"device", "PLACE"},  {"checkpoint", "NAME=SUBGRAPH"}, {"eval", "FILE"},
        {"text_template", "JINJA"}, {"chat_date", "YYYY-MM-DD"}, {"input_ids", "IDS"},
        {"save_logits", "DIR"}, {"panel", "FILE"}, {"adapter", "DIR"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i][0], f->name)) return rows[i][1];
    if (osh_flag_is_switch(f)) return "";
    if (f->values && strlen(f->values) <= 16) return f->values;
    if (f->type == OSH_F_INT || f->type == OSH_F_FLOAT) return "N";
    return f->type == OSH_F_BYTES ? "SIZE" : f->type == OSH_F_STRS && !f->whole ? "LIST" : "NAME";
}

bool osh_flag_shown(const command *c, const osh_field *f)
{
    char word[90];
    if (!c->shown) return true;
    snprintf(word, sizeof word, "|%.80s|", f->name);
    return strstr(c->shown, word) != NULL;
}

/* Prints words with line breaks. The first line begins at `column`, the others at `indent`. */
static void print_wrapped(const char *text, int indent, int column)
{
    for (bool first = true; *text; first = false) {
        int n = (int)strcspn(text, " ");
        bool fits = first || column + 1 + n <= WIDTH;
        if (!fits) printf("\n%*s", indent, ""), column = indent;
        else if (!first) putchar(' '), column++;
        printf("%.*s", n, text);
        column += n;
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

/* Prints a flag, such as "--group-size N". Returns the number of bytes printed. */
static int print_flag(const osh_field *f)
{
    char name[80];
    const char *kind = osh_flag_kind(f);
    osh_flag_name(name, f->name);
    return printf("--%s%s%s", name, *kind ? " " : "", kind);
}

static void print_row(const osh_field *f, const char *text)
{
    int n = print_flag(f), column = GROUP + FLAG;
    if (n < FLAG) printf("%*s", FLAG - n, "");
    else printf("\n%*s", column, "");
    print_wrapped(text, column, column);
}

/* Prints a group of flags, and returns the first flag of the next group. If `brief` is true, only a
 * flag with a brief text gets a line; the names of all other flags follow. */
static const osh_field *print_group(const command *c, const osh_field *f, bool brief)
{
    const osh_field *end = f + 1;
    char rest[2000] = "", name[80];
    bool first = true;
    while (end->name && !end->group) end++;
    for (const osh_field *title = f; f < end; f++) {
        if (!osh_flag_shown(c, f)) continue;
        if (brief && !f->brief) {
            size_t n = strlen(rest);
            osh_flag_name(name, f->name);
            snprintf(rest + n, sizeof rest - n, "%s--%s", n ? " " : "and ", name);
            continue;
        }
        printf("%-*s", GROUP, first && title->group ? title->group : "");
        print_row(f, brief ? f->brief : f->doc);
        first = false;
    }
    if (*rest) printf("%*s", GROUP, ""), print_wrapped(rest, GROUP + 4, GROUP);
    return end;
}

static void print_flags(const command *c)
{
    bool brief = false;
    for (const osh_field *f = c->fields; f->name; f++) brief |= f->brief && !c->shown;
    for (const osh_field *f = c->fields; f->name;) f = print_group(c, f, brief);
}

static void print_doc(const osh_field *f)
{
    char alias[80];
    printf("%s", f->doc);
    if (f->values) printf(" (%s)", f->values);
    if (f->dflt) printf(" [%s]", f->dflt);
    if (f->alias) osh_flag_name(alias, f->alias), printf("; alias --%s", alias);
    putchar('\n');
}

/* Prints a line for each command. Minor commands get a line only if `minor` is true. */
static void help_print_commands(bool minor)
{
    for (const command *c = osh_commands; c->name; c++)
        if (*c->name && (minor || !c->minor)) printf("%-*s %s\n", GROUP, c->name, c->does);
}

void osh_help_usage(void)
{
    puts("oneshot compresses Hugging Face checkpoints to compressed-tensors checkpoints.\n"
         "  oneshot DIR --scheme NAME|--recipe FILE [--dataset FILE] [--output DIR]\n"
         "  oneshot COMMAND ...");
    help_print_commands(false);
    fputs("and", stdout);
    for (const command *c = osh_commands; c->name; c++)
        if (c->minor) printf(" %s", c->name);
    puts(" (oneshot help commands)\n");
    print_flags(osh_command_find(""));
}

void osh_help_command(const command *c)
{
    if (!*c->name) {
        osh_help_usage();
        return;
    }
    printf("oneshot %s %s\n\n", c->name, c->arguments);
    print_wrapped(c->about ? c->about : c->does, 0, 0);
    putchar('\n');
    for (int i = 0; i < 3; i++)
        printf("  oneshot %s%s%s\n", c->name, *c->examples[i] ? " " : "", c->examples[i]);
    if (c->more) printf("\n%*s%s\n", GROUP, "", c->more);
    if (!c->fields) return;
    if (!c->more) putchar('\n');
    print_flags(c);
}

/* Prints every flag with its whole text, one line for each flag. The man page is made from these
 * lines. */
static void print_all(const command *c)
{
    for (const osh_field *f = c->fields; f && f->name; f++) {
        char name[80];
        osh_flag_name(name, f->name);
        if (f->group) printf("%s%s\n", f == c->fields ? "" : "\n", f->group);
        printf("  --%-34s ", name);
        print_doc(f);
    }
}

static void print_python(void)
{
    puts("Arguments of LLM Compressor's oneshot() are flags of the same name, with dashes or "
         "underscores. If an\n"
         "argument is not a flag, only the value that the program uses anyway is accepted:\n");
    for (const osh_field *f = osh_python_fields; f->name; f++) {
        const char *taken = !f->values ? "any value" : *f->values ? f->values : "none";
        printf("  %-31s %-10s %s\n", f->name, taken, f->doc);
    }
}

static void print_topics(void)
{
    puts("oneshot help WORD, where WORD is a command, a flag, a scheme, or one of these:\n\n"
         "  all          a line for each flag; all COMMAND: for each flag of a command\n"
         "  commands     a line for each command\n"
         "  schemes      names of schemes\n"
         "  modifiers    names and keys of modifiers\n"
         "  models       architectures\n"
         "  python       arguments of LLM Compressor's oneshot()");
    for (const osh_topic *t = osh_topics; t->name; t++) printf("  %-12s %s\n", t->name, t->does);
}

static void list_out(void *user, const char *text, size_t n)
{
    (void)user;
    fwrite(text, 1, n, stdout);
}

static bool print_one_flag(const char *topic)
{
    const char *name = !strncmp(topic, "--", 2) ? topic + 2 : topic;
    bool found = false;
    for (const command *c = osh_commands; c->name; c++) {
        const osh_field *f = c->fields ? osh_field_find(c->fields, name) : NULL;
        bool again = false;
        for (const command *b = osh_commands; b < c; b++) again |= b->fields == c->fields;
        if (!f || again) continue;
        printf("%s%s%s", found ? "\n" : "", c->name, *c->name ? ": " : "");
        print_flag(f);
        printf("\n  ");
        print_doc(f);
        found = true;
    }
    const osh_field *python = found ? NULL : osh_field_find(osh_python_fields, name);
    if (python) printf("%s of LLM Compressor is not a flag here: %s\n", python->name, python->doc);
    return found || python;
}

osh_status osh_help_topic(osh_ctx *cx, const char *topic, const char *of)
{
    static const char *const others[] = {"all",    "schemes", "modifiers", "models",
                                         "python", "topics",  "commands"};
    enum { N = sizeof others / sizeof *others };
    osh_near near;
    const command *c = of ? osh_command_find(of) : NULL;
    if (!topic) return osh_help_usage(), OSH_OK;
    if (of && (strcmp(topic, "all") || !c))
        return osh_fail(cx, OSH_E_USAGE, "help %s %s: want `help all COMMAND`", topic, of);
    if (!strcmp(topic, "all")) return print_all(c ? c : osh_command_find("")), OSH_OK;
    if (!strcmp(topic, "python")) return print_python(), OSH_OK;
    if (!strcmp(topic, "commands")) return help_print_commands(true), OSH_OK;
    for (int i = 1; i + 3 < N; i++)
        if (!strcmp(topic, others[i])) return osh_list(cx, topic, list_out, NULL);
    if (*topic && (c = osh_command_find(topic))) return osh_help_command(c), OSH_OK;
    if (!strcmp(topic, "topics")) return print_topics(), OSH_OK;
    if (osh_topic_find(topic)) return puts(osh_topic_find(topic)->text), OSH_OK;
    if (*topic && print_one_flag(topic)) return OSH_OK;
    bool scheme = false;
    osh_status rc = osh_list_scheme(cx, &scheme, topic, list_out, NULL);
    if (rc || scheme) return rc;
    osh_near_init(&near, !strncmp(topic, "--", 2) ? topic + 2 : topic);
    for (int i = 0; i < N; i++) osh_near_see(&near, others[i]);
    for (const osh_topic *t = osh_topics; t->name; t++) osh_near_see(&near, t->name);
    for (c = osh_commands; c->name; c++) osh_near_see(&near, c->name);
    for (const osh_field *f = osh_option_fields; f->name; f++) osh_near_see(&near, f->name);
    return osh_fail(
        cx, OSH_E_USAGE,
        "no help for '%s': want a command, a flag, a scheme, or a topic (`oneshot help topics`)%s",
        topic, osh_near_hint(&near, ""));
}
