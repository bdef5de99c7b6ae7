/* near.c - computes Damerau-Levenshtein distances between names; a swap of two neighbouring letters
 * counts as one change. */
#include "base/near.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 120, FAR = 1000 };

char osh_near_letter(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

/* Returns the largest distance at which a name counts as near: a third of the word's letters. */
static int near_limit(const char *word)
{
    size_t n = strlen(word);
    return n < 3 ? 1 : n < LONGEST ? (int)(n + 1) / 3 : LONGEST / 3;
}

static int least_of(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Returns the distance of `a` and `b`. Row i has the distances between the first i letters of `a`
 * and all prefixes of `b`. A swap is computed from row i - 2, so three rows are kept. */
static int name_distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST) return FAR;
    for (int j = 0; j <= m; j++) rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = rows[i % 3], *last = rows[(i + 2) % 3], *older = rows[(i + 1) % 3];
        char x = osh_near_letter(a[i - 1]);
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            char y = osh_near_letter(b[j - 1]);
            now[j] = least_of(last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y));
            bool swapped =
                i > 1 && j > 1 && x == osh_near_letter(b[j - 2]) && osh_near_letter(a[i - 2]) == y;
            if (swapped && older[j - 2] + 1 < now[j]) now[j] = older[j - 2] + 1;
        }
    }
    return rows[n % 3][m];
}

/* Returns a pointer to `word` in `name`, or NULL if `name` does not contain it. */
static const char *word_in(const char *name, const char *word)
{
    for (; *name; name++) {
        size_t k = 0;
        while (word[k] && osh_near_letter(word[k]) == osh_near_letter(name[k])) k++;
        if (!word[k]) return name;
    }
    return NULL;
}

void osh_near_init(osh_near *n, const char *word)
{
    *n = (osh_near){.word = word, .distance = near_limit(word) + 1};
}

void osh_near_see(osh_near *n, const char *name)
{
    int d = name_distance(n->word, name), limit = near_limit(n->word);
    const char *part = strlen(n->word) >= 3 ? word_in(name, n->word) : NULL;
    if (part && d > limit) d = part == name ? 1 : limit;
    if (d >= n->distance || strlen(name) >= sizeof n->name) return;
    n->distance = d;
    snprintf(n->name, sizeof n->name, "%s", name);
}

const char *osh_near_hint(osh_near *n, const char *before)
{
    n->hint[0] = 0;
    if (n->name[0] && strcmp(n->name, n->word))
        snprintf(n->hint, sizeof n->hint, "; did you mean %.20s%s?", before, n->name);
    return n->hint;
}
