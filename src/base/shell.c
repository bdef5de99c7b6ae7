/* shell.c - writes words and paths for a command line of a shell. */
#include "base/shell.h"

#include <string.h>

#include "base/quote.h"

/* Appends the text in $'...', in which \ooo is the byte with that octal number. */
static osh_status shell_put_escaped(osh_ctx *cx, osh_buf *b, const char *text)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_append(cx, b, "$'", 2));
    for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
        bool plain = *s >= ' ' && *s < 0x7f && *s != '\'' && *s != '\\';
        OSH_TRY(plain ? osh_buf_append(cx, b, s, 1) : osh_buf_printf(cx, b, "\\%03o", *s));
    }
    OSH_TRY(osh_buf_append(cx, b, "'", 1));
done:
    return rc;
}

osh_status osh_shell_word(osh_ctx *cx, osh_buf *b, const char *text)
{
    osh_status rc = OSH_OK;
    size_t plain = strspn(
        text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:=,+@%");
    bool quoted = text[plain] || !plain;
    if (!osh_is_printable(text)) return shell_put_escaped(cx, b, text);
    if (quoted) OSH_TRY(osh_buf_append(cx, b, "'", 1));
    for (const char *c = text; *c; c++)
        OSH_TRY(osh_buf_append(cx, b, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1));
    if (quoted) OSH_TRY(osh_buf_append(cx, b, "'", 1));
done:
    return rc;
}

osh_status osh_shell_path(osh_ctx *cx, osh_buf *b, const char *path)
{
    osh_status rc = OSH_OK;
    if (*path == '-') OSH_TRY(osh_buf_append(cx, b, "./", 2));
    OSH_TRY(osh_shell_word(cx, b, path));
done:
    return rc;
}
