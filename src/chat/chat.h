/* chat.h - a row of a data set to text: a conversation by the model's chat template, as transformers'
 * apply_chat_template(messages, tokenize=False) renders it, or any row by a template of the user's. */
#ifndef OSH_CHAT_H
#define OSH_CHAT_H
#include "chat/jinja.h"

typedef struct osh_chat osh_chat;
/* The template of a model directory: chat_template.jinja, else chat_template of tokenizer_config.json, of several the
 * one named "default". Where there is none, LLM Compressor's: <|role|>, the content, eos_token.
 * date: jinja.h. */
osh_status osh_chat_open(osh_ctx *cx, osh_chat **out, const char *model_dir, const char *date);
/* A template over the columns of a row; what it prints must be there. */
osh_status osh_chat_of_columns(osh_ctx *cx, osh_chat **out, const char *text, const char *date);
void osh_chat_free(osh_ctx *cx, osh_chat *c);
/* Appends the text of a row, a JSON object. A conversation is in the column `messages` ({role, content}),
 * `conversations` ({from, value}: human is user, gpt is assistant) or `prompt` and `response`; column NULL: the first
 * of these that is there. */
osh_status osh_chat_render(osh_ctx *cx, const osh_chat *c, osh_buf *out, const char *row, size_t n,
                           const char *column);
#endif
