/* tok_fold.c - tells which Unicode properties mean the same in Oniguruma and in PCRE2. Also tells
 * which characters match each other in both libraries if case is ignored.
 *
 * The tables are the result of a test of every code point with tokenizers 0.23 (Oniguruma, Unicode
 * 16) and PCRE2 10.42 (Unicode 14). If case is ignored, Oniguruma uses full case folding: one
 * character can equal two or three, such as "U+00DF" and "ss". PCRE2 uses simple folding: one
 * character equals one. */
#include "tokenizer/tok_unicode.h"
#include <stddef.h>
#include <string.h>

static bool is_in(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

bool osh_uni_is_category(const char *name)
{
    static const char *const names[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc",
                                        "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
                                        "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So",
                                        "Z",  "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Any"};
    return is_in(names, sizeof names / sizeof *names, name);
}

bool osh_uni_is_script(const char *name)
{
    static const char *const names[] = {
        "Arabic",  "Armenian", "Bengali",  "Bopomofo", "Braille",    "Cherokee", "Cyrillic",
        "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati",   "Gurmukhi", "Han",
        "Hangul",  "Hebrew",   "Hiragana", "Kannada",  "Katakana",   "Khmer",    "Lao",
        "Latin",   "Malayalam", "Mongolian", "Myanmar", "Oriya",     "Runic",    "Sinhala",
        "Tamil",   "Telugu",   "Thai",     "Tibetan",  "Yi"};
    return is_in(names, sizeof names / sizeof *names, name);
}

bool osh_uni_is_cased(const char *name)
{
    static const char *const names[] = {"L",  "Lu", "Ll",       "Lt",       "M",       "Mn",
                                        "Nl", "So", "Armenian", "Cherokee", "Cyrillic", "Georgian",
                                        "Greek", "Latin"};
    return is_in(names, sizeof names / sizeof *names, name);
}

bool osh_uni_folds_apart(uint32_t lo, uint32_t hi)
{
    static const uint32_t apart[][2] = {
        {0xDF, 0xDF},     {0x130, 0x130},   {0x149, 0x149},     {0x19B, 0x19B}, {0x1F0, 0x1F0},
        {0x264, 0x264},   {0x390, 0x390},   {0x3B0, 0x3B0},     {0x587, 0x587}, {0x1E96, 0x1FFC},
        {0xFB00, 0xFB17}};

    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        if (lo <= apart[i][1] && hi >= apart[i][0]) return true;
    for (const osh_uni_range *u = osh_uni_newer; u->hi; u++)
        if ((!strcmp(u->cls, "Lu") || !strcmp(u->cls, "Ll")) && lo <= u->hi && hi >= u->lo)
            return true;
    return false;
}

bool osh_uni_folds_together(uint32_t first, uint32_t second)
{
    static const char pairs[][2] = {{'s', 's'}, {'f', 'f'}, {'f', 'i'}, {'f', 'l'}, {'s', 't'}};
    uint32_t a = first == 0x17F ? 's' : first | 0x20, b = second == 0x17F ? 's' : second | 0x20;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (a == (unsigned char)pairs[i][0] && b == (unsigned char)pairs[i][1]) return true;
    bool mark = (second >= 0x2BC && second <= 0x345) || second == 0x399 || second == 0x3B9 ||
                second == 0x1FBE;
    bool armenian = first >= 0x531 && first <= 0x587 && second >= 0x531 && second <= 0x587;
    return first && (mark || first == 0x2BC || armenian);
}
