/* answers.c - finds the answers in the text of a conversation.
 *
 * If the template has `generation` blocks, their texts are the answers. Otherwise, for each
 * answer, the messages before it and the messages up to it are rendered. The texts are compared:
 *
 *   messages before the answer, with its prompt <user>Hi<end><assistant>
 *   messages up to the answer                   <user>Hi<end><assistant>Hello<end>
 *   whole conversation                          <user>Hi<end><assistant>Hello<end><user>...
 *                                                                        ^ begin   ^ end
 *
 * The comparison fails for templates that remove the reasoning from an earlier answer. It also
 * fails for templates that write a system prompt only before the last question. In these cases the
 * texts of the messages are searched in the rendered text, in their order. An answer includes the
 * token or text that ends the model's turn. */
#include <string.h>

#include "chat/chat_impl.h"

typedef struct turn { // a message
    bool answers;     // true for a message of the assistant
    /* own: content of the message without white space at both ends; NULL: it is no string. */
    char *text;
} turn;

typedef struct talk {
    const osh_chat *c;       // view
    const osh_chat_row *row; // view
    const osh_buf *whole;    // view: text of the whole conversation
    turn *turns;             // own
    size_t n;
    /* asked: text of the messages before an answer, with the generation prompt.
     * before: the same text without the generation prompt.
     * upto: text of the messages up to and including the answer. */
    osh_buf asked, before, upto;
} talk;

void osh_chat_spans_deinit(osh_ctx *cx, osh_chat_spans *s)
{
    osh_free(cx, s->at);
    *s = (osh_chat_spans){0};
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static osh_status turn_init(osh_ctx *cx, turn *t, osh_jrun *r, osh_jv message)
{
    const osh_jv *role = osh_jdict_get(r, message.u.dict, osh_jv_word("role"));
    const osh_jv *content = osh_jdict_get(r, message.u.dict, osh_jv_word("content"));
    t->answers = role && (osh_jv_is(*role, "assistant") || osh_jv_is(*role, "model"));
    if (r->rc || !content || content->kind != OSH_JV_STR) return r->rc;
    const char *s = content->u.s;
    size_t n = content->n;
    while (n && is_space(*s)) s++, n--;
    while (n && is_space(s[n - 1])) n--;
    if (!n) return OSH_OK;
    return (t->text = osh_sprintf(cx, "%.*s", (int)n, s)) ? OSH_OK : OSH_E_NOMEM;
}

/* Sets t->turns to the messages of the row. */
static osh_status talk_find_turns(osh_ctx *cx, talk *t)
{
    osh_status rc = OSH_OK;
    osh_jarena arena = {0}; // own
    osh_jrun r = {.cx = cx, .arena = &arena, .what = t->c->template->what, .date = t->c->date};
    osh_jv row = osh_jv_json(&r, t->row->text, t->row->n), list = osh_jv_none();
    if (!r.rc) list = osh_chat_messages(&r, row, t->row->column);
    OSH_TRY(r.rc);
    OSH_NEW(cx, t->turns, list.u.list->n);
    for (t->n = 0; t->n < list.u.list->n;) {
        turn *next = &t->turns[t->n++];
        OSH_TRY(turn_init(cx, next, &r, list.u.list->at[t->n - 1]));
    }
done:
    osh_jarena_deinit(cx, &arena);
    return rc;
}

static osh_status talk_render(osh_ctx *cx, osh_buf *out, const talk *t, size_t n_messages,
                              bool asks)
{
    osh_buf_clear(out);
    osh_status rc = osh_chat_render_part(cx, t->c, out, t->row,
                                         &(osh_chat_part){.n_messages = n_messages, .asks = asks});
    if (rc) osh_note(cx, "rendering the first %zu messages, to find an answer", n_messages);
    return rc;
}

/* Returns the number of equal bytes at the beginning of both texts. */
static size_t equal_bytes(const osh_buf *a, const osh_buf *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n]) n++;
    return n;
}

/* Searches the buffer `b` for the text, from byte `from` on. Returns the position of the text, or
 * SIZE_MAX if the text is NULL or does not occur. */
static size_t text_find(const osh_buf *b, size_t from, const char *text)
{
    const char *at =
        text && from < b->len ? memmem(b->data + from, b->len - from, text, strlen(text)) : NULL;
    return at ? (size_t)(at - b->data) : SIZE_MAX;
}

static osh_status talk_fail(osh_ctx *cx, size_t k)
{
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "message %zu: its text is not found in the rendered conversation, because the "
                    "chat template changes earlier messages: want a template with {%% generation "
                    "%%} blocks, or rows with input_ids and loss_mask",
                    k + 1);
}

/* Searches t->whole for the texts of messages 0 to k, each after the one before. Returns the
 * position of the text of message k. Returns SIZE_MAX if one of the texts is not found. */
static size_t talk_find_text(const talk *t, size_t k)
{
    size_t at = 0;
    for (size_t i = 0; i < k; i++) {
        const char *text = t->turns[i].text;
        if (text && (at = text_find(t->whole, at, text)) == SIZE_MAX) return at;
        if (text) at += strlen(text);
    }
    return text_find(t->whole, at, t->turns[k].text);
}

/* Message k is an answer. Sets *begin to the position at which it begins. */
static osh_status talk_find_begin(osh_ctx *cx, size_t *begin, talk *t, size_t k)
{
    osh_status rc = OSH_OK;
    OSH_TRY(talk_render(cx, &t->asked, t, k, true));
    OSH_TRY(talk_render(cx, &t->before, t, k, false));
    *begin = equal_bytes(t->whole, &t->asked);
    /* t->before has the messages before the answer. The whole text must begin with it. The whole
     * text need not begin with t->asked: the generation prompt at the end of t->asked may have text
     * such as <think>, which earlier answers do not have. */
    bool changed = *begin < t->before.len;
    if (!changed && t->asked.len > t->before.len) goto done;
    /* the template writes no generation prompt, or it has changed the messages before the answer */
    size_t at = changed ? talk_find_text(t, k) : text_find(t->whole, *begin, t->turns[k].text);
    if (at == SIZE_MAX && changed) return talk_fail(cx, k);
    if (at != SIZE_MAX) *begin = at;
done:
    return rc;
}

/* Message k is an answer. Sets *end to the position at which it ends. */
static osh_status talk_find_end(osh_ctx *cx, size_t *end, talk *t, size_t k, size_t begin)
{
    osh_status rc = OSH_OK;
    const char *text = t->turns[k].text;
    *end = t->whole->len;
    if (k + 1 == t->n) goto done;
    OSH_TRY(talk_render(cx, &t->upto, t, k + 1, false));
    *end = t->upto.len;
    if (*end >= begin && equal_bytes(t->whole, &t->upto) == *end) goto done;
    size_t at = text_find(t->whole, begin, text), rest = SIZE_MAX;
    /* finds the last occurrence of the answer's text in t->upto */
    for (size_t i = 0; (i = text_find(&t->upto, i, text)) != SIZE_MAX; i++) rest = i;
    if (at == SIZE_MAX || rest == SIZE_MAX) return talk_fail(cx, k);
    *end = at + strlen(text), rest += strlen(text);
    size_t n = t->upto.len - rest; // length of the text that ends the turn
    if (n <= t->whole->len - *end && !memcmp(t->whole->data + *end, t->upto.data + rest, n))
        *end += n;
done:
    return rc;
}

static osh_status talk_find_answers(osh_ctx *cx, osh_chat_spans *out, talk *t)
{
    osh_status rc = OSH_OK;
    size_t begin, end;
    OSH_TRY(talk_find_turns(cx, t));
    for (size_t k = 0; k < t->n; k++) {
        if (!t->turns[k].answers) continue;
        OSH_TRY(talk_find_begin(cx, &begin, t, k));
        OSH_TRY(talk_find_end(cx, &end, t, k, begin));
        if (end > begin) OSH_TRY(osh_chat_spans_add(cx, out, begin, end));
    }
done:
    return rc;
}

osh_status osh_chat_render_answers(osh_ctx *cx, const osh_chat *c, osh_buf *out,
                                   osh_chat_spans *spans, const osh_chat_row *row)
{
    osh_status rc = OSH_OK;
    talk t = {.c = c, .row = row, .whole = out}; // own
    osh_buf_init(&t.asked, 0);
    osh_buf_init(&t.before, 0);
    osh_buf_init(&t.upto, 0);
    OSH_TRY(osh_chat_render_part(
        cx, c, out, row, &(osh_chat_part){SIZE_MAX, c->asks, c->template->marks ? spans : NULL}));
    if (!c->template->marks) OSH_TRY(talk_find_answers(cx, spans, &t));
done:
    for (size_t k = 0; t.turns && k < t.n; k++) osh_free(cx, t.turns[k].text);
    osh_free(cx, t.turns);
    osh_buf_deinit(cx, &t.asked);
    osh_buf_deinit(cx, &t.before);
    osh_buf_deinit(cx, &t.upto);
    return rc;
}
