/* answers.c - lets models answer a prompt, and prints their answers side by side. */
#include "eval/answers.h"

#include <string.h>

#include "base/file.h"
#include "base/quote.h"
#include "chat/chat.h"
#include "text/json.h"

enum { NEW_TOKENS = 64, WIDTH = 80, COLUMN = 39, LABEL = 11 };

static osh_status question_options(osh_ctx *cx, osh_generate_options *o, const char *model,
                                   const osh_question *q)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, model, "tokenizer.json"); // own
    OSH_TRY(osh_fields_default(cx, osh_generate_fields, o));
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_file_exists(path))
        OSH_FAIL(cx, OSH_E_USAGE, "--sample: %s has no tokenizer.json, so it reads no text", model);
    const char *const values[][2] = {
        {"adapter", q->adapter}, {"models_dir", q->models_dir}, {"chat_date", q->chat_date},
        {"isa", q->isa}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i][1])
            OSH_TRY(osh_argument_set(cx, NULL, osh_generate_fields, o, values[i][0], values[i][1]));
    o->max_new_tokens = NEW_TOKENS, o->host_memory = q->host_memory;
    o->no_activation_quantization = q->no_activation_quantization;
    OSH_TRY(osh_chat_find(cx, &o->chat, model));
done:
    osh_free(cx, path);
    return rc;
}

typedef struct answer_text {
    osh_ctx *cx;
    osh_buf b;     // own
    osh_status rc; // the first failure
} answer_text;

static void answer_keep(void *user, const char *text, size_t n)
{
    answer_text *t = user;
    if (!t->rc) t->rc = osh_buf_append(t->cx, &t->b, text, n);
}

osh_status osh_answer(osh_ctx *cx, char **text, const char *model, const osh_question *q)
{
    osh_status rc = OSH_OK;
    osh_generate_options o = {0}; // own
    answer_text t = {.cx = cx};   // own
    const osh_generate_prompt prompt = {q->prompt, strlen(q->prompt)};
    osh_buf_init(&t.b, 0);
    OSH_TRY(question_options(cx, &o, model, q));
    OSH_TRY(osh_generate(cx, model, &prompt, &o, answer_keep, &t));
    OSH_TRY(t.rc);
    OSH_TRY(osh_buf_append(cx, &t.b, "", 0));
    *text = t.b.data, t.b.data = NULL; // passes ownership
done:
    if (rc) osh_note(cx, "letting %s answer --sample", model);
    osh_buf_deinit(cx, &t.b);
    osh_fields_deinit(cx, osh_generate_fields, &o);
    return rc;
}

osh_status osh_answer_least(osh_ctx *cx, int64_t *host, const char *model, const osh_question *q)
{
    osh_status rc = OSH_OK;
    osh_generate_options o = {0}; // own
    const osh_generate_prompt prompt = {q->prompt, strlen(q->prompt)};
    OSH_TRY(question_options(cx, &o, model, q));
    o.host_memory = 0;
    OSH_TRY(osh_generate_least(cx, host, model, &prompt, &o));
done:
    if (rc) osh_note(cx, "checking if %s can answer --sample", model);
    osh_fields_deinit(cx, osh_generate_fields, &o);
    return rc;
}

/* ---- two columns ---- */

static size_t character_bytes(const char *s)
{
    size_t n = 1;
    while ((s[n] & 0xC0) == 0x80) n++;
    return n;
}

/* Finds the next line of a text: at most `width` characters, cut at a space if the line has one.
 * Sets *n to the number of its bytes, and *shown to the number of its characters. Returns the start
 * of the line after it. */
static const char *column_line(const char *s, int width, size_t *n, int *shown)
{
    size_t at = 0, space = 0;
    int k = 0, k_space = 0;
    for (; s[at] && s[at] != '\n' && k < width; at += character_bytes(s + at), k++)
        if (s[at] == ' ') space = at, k_space = k;
    bool cut = s[at] && s[at] != '\n' && s[at] != ' ' && space;
    *n = cut ? space : at, *shown = cut ? k_space : k;
    s += *n;
    return s + (*s == ' ' || *s == '\n');
}

/* Escapes control characters except newlines. *out: own. */
static osh_status column_text(osh_ctx *cx, char **out, const char *text)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    char part[512], shown[OSH_QUOTE_MOST * 512];
    osh_buf_init(&b, 0);
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, "\n");
        if (n > sizeof part - 1)
            for (n = sizeof part - 1; n > sizeof part - 4 && (s[n] & 0xC0) == 0x80;) n--;
        memcpy(part, s, n), part[n] = 0;
        OSH_TRY(osh_buf_append(cx, &b, shown, osh_show(shown, sizeof shown, part, NULL)));
        s += n;
        if (*s == '\n') OSH_TRY(osh_buf_append(cx, &b, s++, 1));
    }
    OSH_TRY(osh_buf_append(cx, &b, "", 0));
    *out = b.data, b.data = NULL; // passes ownership
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Appends two texts in columns. If `b` is NULL, appends only `a`, in the whole width. */
static osh_status columns_put(osh_ctx *cx, osh_buf *out, const char *a, const char *b)
{
    osh_status rc = OSH_OK;
    while (*a || (b && *b)) {
        size_t n_a = 0, n_b = 0;
        int k_a = 0, k_b = 0;
        const char *at_a = a, *at_b = b;
        a = column_line(a, b ? COLUMN : WIDTH, &n_a, &k_a);
        if (b) b = column_line(b, COLUMN, &n_b, &k_b);
        OSH_TRY(osh_buf_append(cx, out, at_a, n_a));
        if (n_b) OSH_TRY(osh_buf_printf(cx, out, "%*s", COLUMN + 2 - k_a, ""));
        if (n_b) OSH_TRY(osh_buf_append(cx, out, at_b, n_b));
        OSH_TRY(osh_buf_append(cx, out, "\n", 1));
    }
done:
    return rc;
}

osh_status osh_answers_print(osh_ctx *cx, osh_buf *b, const osh_answers *a)
{
    osh_status rc = OSH_OK;
    char *texts[2] = {NULL, NULL}; // own
    bool two = a->names[1] != NULL;
    OSH_TRY(osh_buf_line(cx, b, "%-*s%s", LABEL, "sample", a->prompt));
    for (int i = 0; i <= two; i++) OSH_TRY(column_text(cx, &texts[i], a->texts[i]));
    OSH_TRY(columns_put(cx, b, a->names[0], a->names[1]));
    OSH_TRY(columns_put(cx, b, texts[0], texts[1]));
done:
    osh_free(cx, texts[0]);
    osh_free(cx, texts[1]);
    return rc;
}

osh_status osh_answers_json(osh_ctx *cx, osh_buf *b, const osh_answers *a)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(cx, b, "{\"prompt\": "));
    OSH_TRY(osh_json_put_string(cx, b, a->prompt));
    for (int i = 0; i < 2 && a->names[i]; i++) {
        OSH_TRY(osh_buf_printf(cx, b, ", \"%s\": ", a->names[i]));
        OSH_TRY(osh_json_put_string(cx, b, a->texts[i]));
    }
    OSH_TRY(osh_buf_append(cx, b, "}", 1));
done:
    return rc;
}
