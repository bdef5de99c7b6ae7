/* gptq_pieces.c - decides which jobs of one input have the same ordering of columns, and which jobs
 * a device solves in one call. */
#include "modifiers/gptq.h"

bool osh_gptq_is_ordered(const osh_linear_job *j)
{
    return j->scheme->weights.actorder != OSH_ACTORDER_UNSET;
}

bool osh_gptq_together(const osh_linear_job *a, const osh_linear_job *b)
{
    return a->scheme->weights.present && b->scheme->weights.present && a->w->dtype == b->w->dtype &&
           osh_gptq_is_ordered(a) == osh_gptq_is_ordered(b);
}

bool osh_gptq_is_first(const osh_linear_job *jobs, int k)
{
    for (int i = 0; i < k; i++)
        if (osh_gptq_together(&jobs[i], &jobs[k])) return false;
    return true;
}

/* Largest number of rows that the weights of one call have together. This number is enough for all
 * multiprocessors of any GPU, and the results of a call still need little memory. */
enum { PIECE_ROWS = 32768 };

int osh_gptq_piece_end(const osh_linear_job *jobs, int n, int lead, int from)
{
    int64_t rows = 0;
    for (int k = from; k < n; k++) {
        if (!osh_gptq_together(&jobs[lead], &jobs[k])) continue;
        if (rows && rows + jobs[k].w->shape[0] > PIECE_ROWS) return k;
        rows += jobs[k].w->shape[0];
    }
    return n;
}

void osh_gptq_count_orderings(int count[2], const osh_linear_job *jobs, int n)
{
    count[0] = count[1] = 0;
    for (int k = 0; k < n; k++)
        if (jobs[k].scheme->weights.present) count[osh_gptq_is_ordered(&jobs[k])]++;
}
