/* print.c - prints results to stdout, and the error of a command to stderr. */
#include <stdio.h>
#include <string.h>

#include "base/quote.h"
#include "cli/cli.h"

static void put_stdout(out_state *st, const char *text, size_t n)
{
    if (fwrite(text, 1, n, stdout) != n) st->failed = true;
}

/* Control characters are escaped because names may contain them, and a terminal executes them. */
void osh_to_stdout(void *user, const char *text, size_t n)
{
    enum { PART = 512 };
    char part[PART + 1], shown[OSH_QUOTE_MOST * PART + 1];
    /* Ranks other than 0 print no results. */
    if (osh_ranks_me(((const out_state *)user)->ranks)) return;
    for (size_t len; n; text += len, n -= len) {
        const char *end = memchr(text, '\n', n);
        len = end == text ? 1 : end ? (size_t)(end - text) : n;
        if (len > PART)
            for (len = PART; len > PART - 4 && ((unsigned char)text[len] & 0xC0) == 0x80;) len--;
        if (end == text) {
            put_stdout(user, "\n", 1);
            continue;
        }
        memcpy(part, text, len), part[len] = 0;
        put_stdout(user, shown, osh_show(shown, sizeof shown, part, NULL));
    }
}

int osh_exit_code(osh_status rc) { return rc == 0 ? 0 : rc == OSH_E_USAGE ? 2 : 1; }

void osh_error_print(const osh_ctx *cx, osh_status rc, const out_state *st)
{
    char text[8192], dir[4096];
    // if the message asks for --restart, no run continues from the directory
    const char *resume = strstr(osh_error_text(cx), "want --restart") ? NULL : st->resume;
    if (!st->json) {
        fprintf(stderr, "oneshot: %s\n", osh_error_text(cx));
        if (rc == OSH_E_USAGE) fputs("hint: oneshot --help\n", stderr);
        if (!resume) return;
        osh_show(dir, sizeof dir, resume, NULL);
        fprintf(stderr, "hint: the same command continues from %s\n", dir);
        return;
    }
    osh_quote(text, sizeof text, osh_error_text(cx));
    fprintf(stderr, "{\"event\":\"error\",\"exit\":%d,\"text\":\"%s\"", osh_exit_code(rc), text);
    if (resume)
        osh_quote(dir, sizeof dir, resume), fprintf(stderr, ",\"resume\":\"%s\"", dir);
    fputs("}\n", stderr);
}
