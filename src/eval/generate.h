/* generate.h - declares the job of `oneshot generate`: continues a prompt. */
#ifndef OSH_GENERATE_H
#define OSH_GENERATE_H
#include "match/options.h"

typedef struct osh_generate_prompt {
    const char *text; // view [n]: text of the prompt; NULL: opt->input_ids is the prompt
    size_t n;
} osh_generate_prompt;
/* Continues the prompt with the checkpoint in directory `model`. Passes the new text to the sink,
 * token by token. If opt->json is true, passes one JSON object at the end instead. */
osh_status osh_generate(osh_ctx *cx, const char *model, const osh_generate_prompt *prompt,
                        const osh_generate_options *opt, osh_sink sink, void *user);
/* Sets *host to the smallest --host-memory with which the checkpoint in `model` continues the
 * prompt. If the checkpoint is the source of a run, this budget is enough for the output of the
 * run, too. Fails if the checkpoint cannot continue the prompt. */
osh_status osh_generate_least(osh_ctx *cx, int64_t *host, const char *model,
                              const osh_generate_prompt *prompt, const osh_generate_options *opt);
#endif
