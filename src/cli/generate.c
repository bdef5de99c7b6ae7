/* generate.c - implements `oneshot generate DIR [PROMPT]`: finds the prompt, and prints each token
 * when it is generated. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli.h"

enum { MOST_PROMPT_BYTES = 64 << 20 };

/* Reads the prompt from standard input, without a newline at the end. */
static osh_status prompt_read(osh_ctx *cx, osh_buf *b)
{
    osh_status rc = OSH_OK;
    char part[4096];
    size_t n;
    while ((n = fread(part, 1, sizeof part, stdin)) > 0) {
        OSH_TRY(osh_check_interrupt(cx));
        if (b->len + n > MOST_PROMPT_BYTES)
            OSH_FAIL(cx, OSH_E_USAGE, "the prompt on standard input has more than %d bytes",
                     (int)MOST_PROMPT_BYTES);
        OSH_TRY(osh_buf_append(cx, b, part, n));
    }
    OSH_TRY(osh_check_interrupt(cx)); // a signal ends the read before the end of the input
    if (ferror(stdin)) OSH_FAIL(cx, OSH_E_IO, "cannot read the prompt from standard input");
    if (b->len && b->data[b->len - 1] == '\n') b->len--;
done:
    return rc;
}

/* Writes a text to a terminal. Control characters except newline and tab are escaped. */
static void text_show(out_state *st, const char *text, size_t n)
{
    for (size_t len; n; text += len, n -= len) {
        for (len = 0; len < n && text[len] && text[len] != '\t';) len++;
        if (len) osh_to_stdout(st, text, len);
        if (len == n) break;
        if (fputs(text[len] ? "\t" : "\\u0000", stdout) < 0) st->failed = true;
        len++;
    }
}

static void text_out(void *user, const char *text, size_t n)
{
    out_state *st = user;
    if (isatty(STDOUT_FILENO)) text_show(st, text, n);
    else if (fwrite(text, 1, n, stdout) != n) st->failed = true;
    if (fflush(stdout)) st->failed = true;
}

osh_status osh_run_generate(osh_ctx *cx, const line *l, out_state *st)
{
    osh_status rc = OSH_OK;
    const osh_generate_options *o = &l->options.generate;
    char *dir = NULL; // own
    osh_buf text;     // own
    bool dash = l->n_words == 2 && !strcmp(l->words[1], "-");
    osh_generate_prompt prompt = {NULL, 0};

    osh_buf_init(&text, 0);
    if (!l->n_words)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "generate wants a checkpoint directory and a prompt, got none of them");
    if (o->input_ids && l->n_words == 2)
        OSH_FAIL(cx, OSH_E_USAGE, "got a prompt and --input-ids: want one of them");
    if (l->n_words == 2 && !dash) {
        prompt = (osh_generate_prompt){l->words[1], strlen(l->words[1])};
    } else if (!o->input_ids) {
        if (!dash && isatty(STDIN_FILENO))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "generate wants a prompt: after the directory, or on standard input");
        osh_mem_hold(cx, o->host_memory, OSH_MEM_LEAST);
        OSH_TRY(osh_mem_refused(cx, prompt_read(cx, &text), o->host_memory));
        prompt = (osh_generate_prompt){text.data ? text.data : "", text.len};
    }
    OSH_TRY(osh_hub_model(cx, &dir, l->words[0], false, osh_from_env));
    OSH_TRY(osh_generate(cx, dir, &prompt, o, text_out, st));
    if (!o->json && isatty(STDOUT_FILENO)) text_out(st, "\n", 1);
done:
    osh_buf_deinit(cx, &text);
    osh_free(cx, dir);
    return rc;
}
