/* verdict.c - says in words how good an output is, and prints the limits on which the words depend.
 *
 * The limits are values of KL in nats per token. On text that the source model itself would write,
 * the perplexity of the output is about e^KL times the perplexity of the source. So the limits
 * 0.01, 0.05 and 0.2 mean that the perplexity rises by 1 %, 5 % and 22 %. */
#include "report/verdict.h"

#include <math.h>

static const struct { double below; const char *word; } words[] = {
    {0.01, "The output predicts almost the same as the source."},
    {0.05, "The output is close to the source."},
    {0.2, "The output differs from the source: try it on your task."},
    {HUGE_VAL, "The output differs much from the source."},
};

const char *osh_verdict_word(double kl)
{
    int i = 0;
    while (kl >= words[i].below) i++;
    return words[i].word;
}

void osh_verdict_page(osh_page *pg, const osh_verdict *v)
{
    if (!isfinite(v->kl)) {
        OSH_PUT(pg, "<p><b class=\"warn\">The output's predictions are not finite.</b></p>\n");
        return;
    }
    OSH_PUT(pg, "<p><b>%s</b></p>\n<p>For each of %lld tokens of ", osh_verdict_word(v->kl),
            (long long)v->n_tokens);
    osh_page_escape(pg, v->text);
    OSH_PUT(pg,
            ", the KL divergence of the predictions is %.4f on average. Source and output have the "
            "same most likely token for ",
            v->kl);
    osh_page_percent(pg, v->agreement);
    OSH_PUT(pg, " of the tokens. The perplexity changes by %+.2f %%.</p>\n",
            100 * (v->after / v->before - 1));
    osh_verdict_limits(pg);
}

void osh_verdict_held(osh_page *pg, double before, double after, int64_t n_samples)
{
    const char *end = n_samples == 1 ? "" : "s";
    OSH_PUT(pg, "<p><b>%s</b></p>\n<p>For %lld sample%s that tuning held back, the KL divergence "
                "of the predictions is %.4f on average, and was %.4f before tuning. ",
            osh_verdict_word(after), (long long)n_samples, end, after, before);
}

void osh_verdict_limits(osh_page *pg)
{
    OSH_PUT(pg, "<details><summary>what these words mean</summary><p>KL divergence below 0.01: "
                "almost the same. Below 0.05: close. Below 0.2: different. Otherwise: much "
                "different. A divergence of 0.01 raises the perplexity by about 1 %%, 0.05 by 5 "
                "%%, and 0.2 by 22 %%, on text like the text that the source writes. Only a test "
                "shows if the model still does your task well.</p></details>\n");
}
