/* chat_impl.h - declares the parts of a rendering that chat.c and answers.c share. */
#ifndef OSH_CHAT_IMPL_H
#define OSH_CHAT_IMPL_H
#include "chat/chat.h"
#include "chat/jinja_impl.h"

struct osh_chat {
    osh_jinja *template; // own
    char *special;       // own: JSON object with the variables that are equal for all rows
    char *date;          // own
    bool columns;
    /* value of add_generation_prompt; true: the text ends where the model's answer begins */
    bool asks;
    bool made_up; // true if the directory has no template, so the default template is used
};

typedef struct osh_chat_part { // the part of a conversation to render
    size_t n_messages; // number of messages, counted from the first message; SIZE_MAX: all messages
    bool asks;             // value of add_generation_prompt
    osh_chat_spans *marks; // view: gets the positions of `generation` blocks; NULL: not wanted
} osh_chat_part;

/* Renders the part `part` of a conversation, and appends the text to `out`. If the variables of the
 * template are columns, renders the whole row. */
osh_status osh_chat_render_part(osh_ctx *cx, const osh_chat *c, osh_buf *out,
                                const osh_chat_row *row, const osh_chat_part *part);
/* Returns the list of the messages of a row. */
osh_jv osh_chat_messages(osh_jrun *r, osh_jv row, const char *column);
#endif
