/* tok_class.c - writes the character classes of Oniguruma as classes of PCRE2, which has another
 * version of Unicode. */
#include "tokenizer/tok_pattern.h"
#include "tokenizer/tok_unicode.h"
#include <stdio.h>
#include <string.h>

/* Writes the ranges by which Unicode 15 to 16 extended the class `cls`: "L" stands for Lu, Ll, ...;
 * "sc:Han" is a script. */
static osh_status class_put_newer(osh_ctx *cx, osh_buf *out, const char *cls)
{
    osh_status rc = OSH_OK;

    for (const osh_uni_range *u = osh_uni_newer; u->hi; u++)
        if (!strncmp(u->cls, cls, strlen(cls)))
            OSH_TRY(osh_buf_printf(cx, out, "\\x{%X}-\\x{%X}", u->lo, u->hi));
done:
    return rc;
}

osh_status osh_tok_class_members(osh_ctx *cx, osh_buf *out, char kind, const char *prop)
{
    static const char *const word[] = {"L", "M", "Nd", "Nl"};
    osh_status rc = OSH_OK;

    if (kind == 's') {
        OSH_TRY(osh_buf_printf(cx, out,
                               "\\t-\\r\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}"
                               "\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"));
    } else if (kind == 'd') {
        OSH_TRY(osh_buf_append(cx, out, "\\p{Nd}", 6));
        OSH_TRY(class_put_newer(cx, out, "Nd"));
    } else if (kind == 'h') {
        OSH_TRY(osh_buf_append(cx, out, "0-9A-Fa-f", 9));
    } else if (kind == 'w') { // circled letters are symbols (So), but have the property Alphabetic
        for (size_t i = 0; i < 4; i++) {
            OSH_TRY(osh_buf_printf(cx, out, "\\p{%s}", word[i]));
            OSH_TRY(class_put_newer(cx, out, word[i]));
        }
        OSH_TRY(osh_buf_printf(cx, out,
                               "\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
                               "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"));
    } else {
        char name[48]; // PCRE2 reads a script name without "sc:" as script extensions
        snprintf(name, sizeof name, "%s%s", osh_uni_is_script(prop) ? "sc:" : "", prop);
        OSH_TRY(osh_buf_printf(cx, out, "\\p{%s}", name));
        OSH_TRY(class_put_newer(cx, out, name));
    }
done:
    return rc;
}

osh_status osh_tok_class(osh_ctx *cx, osh_buf *out, char kind, const char *prop, bool negated)
{
    osh_status rc = OSH_OK;
    bool mn = !strcmp(prop, "Mn"); // Unicode 16 has changed U+1171E from Mn to Mc

    if (mn)
        OSH_TRY(osh_buf_printf(cx, out, negated ? "(?:\\x{1171E}|" : "(?:(?!\\x{1171E})"));
    OSH_TRY(osh_buf_append(cx, out, negated ? "[^" : "[", negated ? 2 : 1));
    OSH_TRY(osh_tok_class_members(cx, out, kind, prop));
    if (kind == 'w') OSH_TRY(osh_buf_printf(cx, out, "\\xB2\\xB3\\xB9\\xBC-\\xBE"));
    OSH_TRY(osh_buf_append(cx, out, mn ? "])" : "]", mn ? 2 : 1));
done:
    return rc;
}

osh_status osh_tok_boundary(osh_ctx *cx, osh_buf *out, bool negated)
{
    static const char *const ahead[2][2] = {{"(?!", "(?="}, {"(?=", "(?!"}};
    osh_status rc = OSH_OK;

    OSH_TRY(osh_buf_append(cx, out, "(?:(?<=", 7));
    OSH_TRY(osh_tok_class(cx, out, 'w', "", false));
    OSH_TRY(osh_buf_printf(cx, out, ")%s", ahead[negated][0]));
    OSH_TRY(osh_tok_class(cx, out, 'w', "", false));
    OSH_TRY(osh_buf_append(cx, out, ")|(?<!", 6));
    OSH_TRY(osh_tok_class(cx, out, 'w', "", false));
    OSH_TRY(osh_buf_printf(cx, out, ")%s", ahead[negated][1]));
    OSH_TRY(osh_tok_class(cx, out, 'w', "", false));
    OSH_TRY(osh_buf_append(cx, out, "))", 2));
done:
    return rc;
}
