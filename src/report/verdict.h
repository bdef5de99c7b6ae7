/* verdict.h - says in words how good an output is. */
#ifndef OSH_VERDICT_H
#define OSH_VERDICT_H
#include "report/page.h"

/* HTML comments before and after the verdict. An evaluation replaces the text between these
 * comments. */
#define OSH_VERDICT_BEGINS "<!-- verdict -->"
#define OSH_VERDICT_ENDS "<!-- end of verdict -->"

typedef struct osh_verdict { // results of an evaluation
    /* kl: mean KL divergence of the output's predictions from the source's, in nats per token.
     * agreement: fraction of tokens for which output and source have the same most likely
     * prediction. */
    double kl, agreement;
    double before, after;    // perplexity of the source and of the output
    int64_t n_tokens;        // number of scored tokens
    const char *text;        // view: name of the text that was evaluated
} osh_verdict;

/* Returns a sentence such as "The output is close to the source." */
const char *osh_verdict_word(double kl);
/* Begins a paragraph with the verdict for the samples that tuning held back. before, after: mean KL
 * divergence of the predictions before and after tuning. */
void osh_verdict_held(osh_page *pg, double before, double after, int64_t n_samples);
/* Appends the limits of the KL divergence for the words of osh_verdict_word. */
void osh_verdict_limits(osh_page *pg);
/* Appends the verdict of an evaluation, without OSH_VERDICT_BEGINS and OSH_VERDICT_ENDS. */
void osh_verdict_page(osh_page *pg, const osh_verdict *v);
#endif
