/* tok_class.c - defines the character classes of Rust, which Hugging Face's tokenizers uses. Also
 * writes the classes of Oniguruma as classes of PCRE2, which has another version of Unicode. */
#include "tokenizer/tok_pattern.h"
#include "tokenizer/tok_unicode.h"
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

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

bool osh_cp_is_space(uint32_t cp)
{
    if (cp <= 0x20) return cp == 0x20 || (cp >= 9 && cp <= 13);
    if (cp < 0x1680) return cp == 0x85 || cp == 0xA0;
    return cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static utf8proc_category_t cp_category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool osh_cp_is_mark(uint32_t cp)
{
    utf8proc_category_t c = cp_category(cp);

    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool osh_cp_is_numeric(uint32_t cp)
{
    utf8proc_category_t c = cp_category(cp);

    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO ||
           (cp >= osh_uni_numeric[0].lo && osh_uni_in(osh_uni_numeric, cp));
}

bool osh_cp_is_punct(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
               (cp >= '{' && cp <= '~');
    utf8proc_category_t c = cp_category(cp);
    bool punct = c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
    return (punct && !osh_uni_in(osh_uni_not_punct, cp)) || cp == 0x166D || cp == 0x111C9;
}

/* True for the characters of \w. Alphabetic is L, Nl and Other_Alphabetic. All characters of
 * Other_Alphabetic are marks or circled letters. */
bool osh_cp_is_word(uint32_t cp)
{
    utf8proc_category_t c = cp_category(cp);

    if (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) return true;
    if (c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC)
        return true;
    if (osh_cp_is_mark(cp) || cp == 0x200C || cp == 0x200D) return true;
    if ((cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
        (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189))
        return true;
    if (c != UTF8PROC_CATEGORY_CN) return false;
    for (const osh_uni_range *u = osh_uni_newer; u->hi; u++)
        if (cp >= u->lo && cp <= u->hi && (*u->cls == 'L' || *u->cls == 'M' || u->cls[1] == 'd'))
            return true;
    return false;
}
