/* chat.h - renders a row of a data set as text. A conversation is rendered with the model's chat
 * template. The result is that of transformers' apply_chat_template(messages, tokenize=False). Any
 * row can be rendered with a template of the user. */
#ifndef OSH_CHAT_H
#define OSH_CHAT_H
#include "chat/jinja.h"

typedef struct osh_chat osh_chat;
/* Reads the template of a model directory: chat_template.jinja, or else chat_template in
 * tokenizer_config.json. If the latter is a list, the template named "default" is used. A directory
 * without a template gets LLM Compressor's default: <|role|>, the content, eos_token. date: the
 * date that the template's strftime_now prints, or NULL for OSH_JINJA_DATE. */
osh_status osh_chat_open(osh_ctx *cx, osh_chat **out, const char *model_dir, const char *date);
/* Makes a template whose variables are the columns of a row. Printing a column that the row does
 * not have is an error. */
osh_status osh_chat_of_columns(osh_ctx *cx, osh_chat **out, const char *text, const char *date);
/* Sets the variable add_generation_prompt to true (default: false). The text then ends where the
 * model's answer begins. */
void osh_chat_ask(osh_chat *c);
/* Returns true if the model directory has a template. */
bool osh_chat_has_template(const osh_chat *c);
/* Sets *has to true if the directory has a template. */
osh_status osh_chat_find(osh_ctx *cx, bool *has, const char *model_dir);
/* Frees the templates. Accepts NULL. */
void osh_chat_free(osh_ctx *cx, osh_chat *c);
/* Appends the text of a row, a JSON object. The conversation is in one of these sets of columns,
 * which are called shapes:
 *
 *   messages                      a list of {role, content}
 *   conversations                 a list of {from, value}; human is user, gpt is assistant
 *   prompt, response              two texts
 *   prompt, completion            two texts, or two lists of messages
 *   instruction, input, output    three texts; the first two are the question
 *   question, answer              two texts
 *
 * If `column` is NULL, the first shape that the row has is used. Otherwise the shape begins with
 * `column`. The column `tools` becomes a variable of the template. */
osh_status osh_chat_render(osh_ctx *cx, const osh_chat *c, osh_buf *out, const char *row, size_t n,
                           const char *column);

typedef struct osh_chat_row {
    const char *text; // view [n]: the row, a JSON object
    size_t n;
    /* column with which the conversation begins, as in osh_chat_render; NULL: the first that
     * exists */
    const char *column;
} osh_chat_row;
typedef struct osh_chat_span { size_t begin, end; } osh_chat_span; // bytes [begin, end) of a text
typedef struct osh_chat_spans { osh_chat_span *at; size_t n, cap; } osh_chat_spans; // own
/* Renders the conversation of a row. Appends its text to the empty buffer `out`, and the positions
 * of the assistant's answers to `spans`. An answer is the text that the model would write,
 * including the end of turn (answers.c). */
osh_status osh_chat_render_answers(osh_ctx *cx, const osh_chat *c, osh_buf *out,
                                   osh_chat_spans *spans, const osh_chat_row *row);
/* Frees the list of positions. */
void osh_chat_spans_deinit(osh_ctx *cx, osh_chat_spans *s);
/* True if the columns of a data set form one of the shapes of a conversation. The callback
 * has(user, column) returns true if the data set has the column. */
bool osh_chat_is_shape(bool (*has)(const void *user, const char *column), const void *user);
/* osh_chat_render reads some columns. Returns the name of column number i (from 0), or NULL if
 * there are at most i columns. */
const char *osh_chat_column(size_t i);
#endif
