/* tokenize.c - prints the token ids of each line of a file. */
#include "api/api.h"
#include "base/buf.h"
#include "data/dataset.h"
#include "data/lines.h"

enum { PRINT_IDS = 4096 };

typedef struct id_line { // output of print_ids; all ids are printed on one line
    bool first;          // true until the first id is printed
    osh_sink sink;
    void *user;
} id_line;

/* Prints all ids and empties the list. */
static osh_status print_ids(osh_ctx *cx, osh_ids *ids, id_line *to)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    for (int64_t i = 0; i < ids->n; i++, to->first = false)
        OSH_TRY(osh_buf_printf(cx, &b, to->first ? "%d" : " %d", ids->ids[i]));
    if (b.len) to->sink(to->user, b.data, b.len);
    ids->n = 0;
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status tokenize_line(osh_ctx *cx, osh_ids *ids, osh_tokenizer *tok, osh_lines *lines,
                                bool special, id_line *to)
{
    osh_status rc = OSH_OK;
    const char *text = NULL;
    size_t n = 0;
    bool end = false;
    to->first = true;
    ids->n = 0;
    osh_tokenizer_begin(tok);
    if (special) OSH_TRY(osh_tokenizer_special(cx, tok, ids, false));
    while (!end) {
        OSH_TRY(osh_lines_more(cx, lines, n, &text, &n, &end));
        OSH_TRY(osh_tokenizer_feed(cx, tok, ids, text, n));
        if (ids->n >= PRINT_IDS) OSH_TRY(print_ids(cx, ids, to));
    }
    OSH_TRY(osh_tokenizer_end(cx, tok, ids));
    if (special) OSH_TRY(osh_tokenizer_special(cx, tok, ids, true));
    OSH_TRY(print_ids(cx, ids, to));
    to->sink(to->user, "\n", 1);
done:
    return rc;
}

osh_status osh_tokenize(osh_ctx *cx, const char *model_dir, const char *file, bool special_tokens,
                        osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_tokenizer *tok = NULL; // own
    osh_lines *lines = NULL;   // own
    id_line to = {.sink = sink, .user = user};
    osh_ids ids = {0};         // own
    bool any = true;
    OSH_TRY(osh_tokenizer_open(cx, &tok, model_dir));
    OSH_TRY(osh_lines_open(cx, &lines, file));
    osh_lines_as_they_are(lines);
    for (;;) {
        OSH_TRY(osh_lines_begin(cx, lines, &any));
        if (!any) break;
        OSH_TRY(tokenize_line(cx, &ids, tok, lines, special_tokens, &to));
    }
done:
    if (rc && lines)
        osh_note(cx, "reading %s line %lld", file, (long long)osh_lines_place(lines).number);
    osh_ids_deinit(cx, &ids);
    osh_lines_close(cx, lines);
    osh_tokenizer_close(cx, tok);
    return rc;
}
