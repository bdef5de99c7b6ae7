/* answers.h - computes and prints the answers of models to one prompt (--sample). */
#ifndef OSH_ANSWERS_H
#define OSH_ANSWERS_H
#include "base/buf.h"
#include "eval/generate.h"

typedef struct osh_question { // views
    const char *prompt, *adapter, *models_dir, *chat_date, *isa;
    int64_t host_memory; // budget of host memory in bytes; 0: none
    bool no_activation_quantization;
} osh_question;
/* Sets *text (own) to the most likely continuation of at most 64 tokens. If the model has a chat
 * template, the prompt becomes the user message of a chat. */
osh_status osh_answer(osh_ctx *cx, char **text, const char *model, const osh_question *q);
/* Sets *host to the smallest --host-memory with which the model can answer. If the model is the
 * source of a run, the output of the run can answer with this budget, too. Fails if the model
 * cannot answer. */
osh_status osh_answer_least(osh_ctx *cx, int64_t *host, const char *model, const osh_question *q);

typedef struct osh_answers { // views
    const char *prompt;
    /* Names of the models, and their answers. If names[1] is NULL, there is only one answer. */
    const char *names[2], *texts[2];
} osh_answers;
/* Appends the prompt, followed by the answers in two columns. A line has at most 80 characters. */
osh_status osh_answers_print(osh_ctx *cx, osh_buf *b, const osh_answers *a);
/* Appends a JSON object with the prompt (member "prompt") and each answer (member: the name of its
 * model). */
osh_status osh_answers_json(osh_ctx *cx, osh_buf *b, const osh_answers *a);
#endif
