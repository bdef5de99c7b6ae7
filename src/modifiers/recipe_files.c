/* recipe_files.c - rejects file names in recipes that could overwrite other files of a model. */
#include "modifiers/recipe_files.h"

#include <ctype.h>
#include <string.h>

/* Patterns of file names that a recipe may not use, in lower case. A * at the beginning or the end
 * matches any text. */
static const char *const reserved[] = {
    "*config*",      "*tokenizer*", "*.safetensors*", "*.index.json", "oneshot*",
    "recipe.yaml*",  "vocab*",      "merges*",        "*_tokens*",    "tokens*",
    "added_tokens*", "params*",     "chat_template*", "modules*",     "pytorch_model*",
    "readme.md*"};

// returns true if s contains the first n bytes of `text`
static bool has_text(const char *s, const char *text, size_t n)
{
    for (; *s; s++)
        if (!strncmp(s, text, n)) return true;
    return !n;
}

static bool is_like(const char *name, const char *pattern)
{
    bool open_left = *pattern == '*';
    const char *text = pattern + open_left;
    size_t n = strlen(text), n_name = strlen(name);
    bool open_right = n && text[n - 1] == '*';
    n -= open_right;
    if (open_left && open_right) return has_text(name, text, n);
    if (open_left) return n_name >= n && !strcmp(name + n_name - n, text);
    return !strncmp(name, text, n) && (open_right || n_name == n);
}

/* Compares the name in lower case, because file systems may ignore the case of letters. */
static bool is_reserved(const char *name)
{
    char low[256];
    size_t n = 0;
    for (; name[n] && n < sizeof low - 1; n++) low[n] = (char)tolower((unsigned char)name[n]);
    low[n] = 0;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (is_like(low, reserved[i])) return true;
    return false;
}

static osh_status check_file_name(osh_ctx *cx, const char *modifier, const char *key,
                                  const char *name, const char *what)
{
    size_t n = strlen(name);
    bool plain = n <= 200 && name[0] != '.' && !strchr(name, '/');
    for (const char *c = name; *c; c++) plain &= !iscntrl((unsigned char)*c);
    if (n < 6 || strcmp(name + n - 5, ".json"))
        return osh_fail(cx, OSH_E_USAGE, "%s: %s: %s %s: want the name of a .json file", what,
                        modifier, key, name);
    if (!plain)
        return osh_fail(cx, OSH_E_USAGE,
                        "%s: %s: %s %.250s: want a name without '/' that does not begin with '.': "
                        "the files of a recipe are written to the output directory",
                        what, modifier, key, name);
    if (is_reserved(name))
        return osh_fail(cx, OSH_E_USAGE,
                        "%s: %s: %s %s: files of a model have such names: want another name, such "
                        "as experts.json",
                        what, modifier, key, name);
    return OSH_OK;
}

osh_status osh_recipe_files_check(osh_ctx *cx, const osh_modifier *m, const char *what)
{
    osh_status rc = OSH_OK;
    for (const osh_field *f = m->type->fields; f && f->name; f++) {
        const char *name = f->path ? *(char *const *)((const char *)m->args + f->offset) : NULL;
        if (name) OSH_TRY(check_file_name(cx, m->type->name, f->name, name, what));
    }
done:
    return rc;
}
