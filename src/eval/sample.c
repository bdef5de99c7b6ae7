/* sample.c - chooses the most likely token, or draws a token. temperature, top_k and top_p are
 * applied in this order, as the logits warpers of transformers do. The random numbers come from the
 * counter RNG (base/rng.h). So a draw depends only on the logits, the seed and the number of the
 * token. */
#include "eval/sample.h"

#include <math.h>

#include "base/elementary.h"
#include "base/rng.h"

enum { STREAM = 31 }; // stream number of the counter RNG

typedef struct heap { // binary heap of token ids; the most likely token is first
    const float *x;
    int32_t *at; // [number of tokens]: token ids; the first n are the heap
    int64_t n;
} heap;

static bool heap_before(const heap *h, int32_t a, int32_t b)
{
    return h->x[a] > h->x[b] || (h->x[a] == h->x[b] && a < b);
}

static void heap_sink(heap *h, int64_t i)
{
    int32_t token = h->at[i];
    for (int64_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && heap_before(h, h->at[child + 1], h->at[child])) child++;
        if (!heap_before(h, h->at[child], token)) break;
        h->at[i] = h->at[child];
    }
    h->at[i] = token;
}

/* Removes the most likely token from the heap and returns it. The token is then stored at position
 * h->n. */
static int32_t heap_take(heap *h)
{
    int32_t token = h->at[0];
    h->at[0] = h->at[--h->n];
    h->at[h->n] = token;
    if (h->n) heap_sink(h, 0);
    return token;
}

static int64_t largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return -1;
        if (x[i] > x[best]) best = i;
    }
    return best;
}

/* Returns the number of tokens that may be drawn. Moves them to the end of `order`, with the most
 * likely token last. If all tokens may be drawn, `order` is not sorted. */
static int64_t candidates(const osh_sampler *s, const float *x, int64_t n, double top,
                          int32_t *order)
{
    heap h = {x, order, n};
    int64_t k = 0;
    double sum = 0, so_far = 0;
    for (int64_t i = 0; i < n; i++) order[i] = (int32_t)i;
    if (!s->top_k && s->top_p >= 1) return n;
    for (int64_t i = n / 2; i-- > 0;) heap_sink(&h, i);
    while (h.n && s->top_k && (k < s->top_k || x[h.at[0]] == x[order[h.n]])) heap_take(&h), k++;
    if (s->top_p >= 1) return k;
    for (int64_t i = 0; i < (k ? k : n); i++)
        sum += osh_math_exp(((double)x[order[n - 1 - i]] - top) / s->temperature);
    int64_t most = k ? k : n, kept = 0;
    for (; kept < most && (!kept || so_far < s->top_p * sum); kept++) {
        if (!k) heap_take(&h);
        so_far += osh_math_exp(((double)x[order[n - 1 - kept]] - top) / s->temperature);
    }
    return kept;
}

int64_t osh_sample(const osh_sampler *s, const float *logits, int64_t n, uint64_t step,
                   int32_t *order)
{
    int64_t best = largest(logits, n);
    if (best < 0 || s->temperature <= 0) return best;
    double top = logits[best], sum = 0, so_far = 0;
    int64_t k = candidates(s, logits, n, top, order);
    for (int64_t i = 0; i < k; i++)
        sum += osh_math_exp(((double)logits[order[n - 1 - i]] - top) / s->temperature);
    double u = (double)(osh_rng_u64(s->seed, STREAM, step) >> 11) * 0x1p-53 * sum;
    for (int64_t i = 0; i < k; i++) {
        int32_t token = order[n - 1 - i];
        so_far += osh_math_exp(((double)logits[token] - top) / s->temperature);
        if (u < so_far) return token;
    }
    return order[n - k];
}
