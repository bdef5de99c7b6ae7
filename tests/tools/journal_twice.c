/* journal_twice.c - replaces a journal by one record, the identity of its run. In this record a key
 * occurs twice. An earlier version of the program could write such records.
 *
 *   journal_twice JOURNAL NAME      the key is "source NAME" */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/journal.h"

int main(int argc, char **argv)
{
    osh_ctx *cx = NULL;
    osh_journal *j = NULL;
    char text[65536];
    bool busy = false;
    if (argc != 3 || osh_ctx_new(&cx, 1)) return 2;
    if (osh_journal_open(cx, &j, argv[1], &busy) || !j || !osh_journal_count(j)) return 1;
    osh_journal_record first = *osh_journal_at(j, 0);
    int n = snprintf(text, sizeof text, "{\"source %s\":\"1 bytes\",\"source %s\":\"1 bytes\",%.*s",
                     argv[2], argv[2], (int)first.n - 1, (const char *)first.data + 1);
    if (n < 0 || n >= (int)sizeof text) return 1;
    if (osh_journal_clear(cx, j) ||
        osh_journal_append(cx, j, first.type, text, (size_t)n) || osh_journal_sync(cx, j))
        return 1;
    osh_journal_close(cx, j);
    osh_ctx_free(cx);
    return 0;
}
