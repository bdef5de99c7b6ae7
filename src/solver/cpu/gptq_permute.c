/* gptq_permute.c - makes a Hessian symmetric and permutes its rows and columns into solving order,
 * in place. Also copies its diagonal.
 *
 *   lower triangle given      mirrored               rows, then columns, along perm
 *   | a . . |                 | a b c |              H[i][j] becomes H[perm[i]][perm[j]]
 *   | b d . |        ->       | b d e |      ->
 *   | c e f |                 | c e f |
 *
 * Rows are moved along the cycles of perm through a scratch row; columns are permuted inside each
 * row. */
#include "solver/columns.h"
#include "solver/cpu/panel.h"
#include "solver/gptq_solve.h"
#include "ops/kernel.h"

#include <string.h>

/* SIDE: number of rows and of columns of a tile that is transposed. ROWS: number of rows that a
 * thread permutes at a time. */
enum { SIDE = 64, ROWS = 16 };

typedef struct permute_job {
    float *h, *room; // h: view of the matrix; room: own scratch, [threads, I]
    int64_t I;
    const int32_t *perm;
    bool down; // true: copies the upper triangle to the lower; false: the lower to the upper
} permute_job;

/* For each tile (i, j) with j <= i, writes its transpose to tile (j, i). If p->down is true, writes
 * the transpose of tile (j, i) to tile (i, j) instead. */
static osh_status permute_mirror_chunk(osh_ctx *cx, void *user, int64_t i, int worker)
{
    const permute_job *p = user;
    int64_t n = p->I, r1 = osh_min64(n, (i + 1) * SIDE);

    (void)cx, (void)worker;
    for (int64_t j = 0; j < i; j++) {
        float *low = p->h + i * SIDE * n + j * SIDE, *up = p->h + j * SIDE * n + i * SIDE;
        if (p->down) osh_panel_turn(low, n, up, n, SIDE, r1 - i * SIDE);
        else osh_panel_turn(up, n, low, n, r1 - i * SIDE, SIDE);
    }
    for (int64_t r = i * SIDE; r < r1; r++)
        for (int64_t c = i * SIDE; c < r; c++) {
            float *low = &p->h[r * n + c], *up = &p->h[c * n + r];
            if (p->down) *low = *up;
            else *up = *low;
        }
    return OSH_OK;
}

osh_status osh_gptq_mirror(osh_ctx *cx, float *u, int64_t I)
{
    return osh_parallel_for(cx, osh_div_up(I, SIDE), permute_mirror_chunk,
                            &(permute_job){.h = u, .I = I, .down = true});
}

static osh_status permute_columns_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const permute_job *p = user;
    float *line = p->room + worker * p->I;

    (void)cx;
    for (int64_t r = chunk * ROWS; r < p->I && r < (chunk + 1) * ROWS; r++) {
        float *row = p->h + r * p->I;
        for (int64_t c = 0; c < p->I; c++) line[c] = row[p->perm[c]];
        memcpy(row, line, (size_t)p->I * sizeof *row);
    }
    return OSH_OK;
}

static void permute_rows(const permute_job *p, bool *moved)
{
    size_t bytes = (size_t)p->I * sizeof *p->h;
    for (int64_t start = 0; start < p->I; start++) {
        if (moved[start]) continue;
        int64_t i = start;
        memcpy(p->room, p->h + start * p->I, bytes);
        for (; p->perm[i] != start; i = p->perm[i]) {
            memcpy(p->h + i * p->I, p->h + p->perm[i] * p->I, bytes);
            moved[i] = true;
        }
        memcpy(p->h + i * p->I, p->room, bytes);
        moved[i] = true;
    }
}

osh_status osh_gptq_permute(osh_ctx *cx, osh_tensor *h, const int32_t *perm)
{
    osh_status rc = OSH_OK;
    int64_t I = h->shape[0];
    permute_job p = {.h = h->data, .I = I, .perm = perm};
    bool *moved = NULL; // own [I]: true for each row that is already permuted
    bool same = true;

    for (int64_t i = 0; perm && i < I; i++) same &= perm[i] == i;
    OSH_TRY(osh_parallel_for(cx, osh_div_up(I, SIDE), permute_mirror_chunk, &p));
    if (same) goto done;
    OSH_NEW(cx, moved, I);
    p.room = osh_alloc(cx, (size_t)(osh_threads(cx) * I) * sizeof *p.room);
    if (!p.room) OSH_TRY(OSH_E_NOMEM);
    permute_rows(&p, moved);
    OSH_TRY(osh_parallel_for(cx, osh_div_up(I, ROWS), permute_columns_chunk, &p));
done:
    osh_free(cx, p.room);
    osh_free(cx, moved);
    return rc;
}

osh_status osh_gptq_restore(osh_ctx *cx, osh_tensor *h, const float *diag)
{
    osh_status rc = OSH_OK;
    int64_t I = h->shape[0];
    permute_job p = {.h = h->data, .I = I, .down = true};

    OSH_TRY(osh_parallel_for(cx, osh_div_up(I, SIDE), permute_mirror_chunk, &p));
    for (int64_t i = 0; i < I; i++) p.h[i * I + i] = diag[i];
done:
    return rc;
}

osh_status osh_gptq_diag_host(osh_ctx *cx, float *diag, const osh_tensor *h)
{
    int64_t I = h->shape[0];
    (void)cx;
    for (int64_t i = 0; i < I; i++) diag[i] = ((const float *)h->data)[i * (I + 1)];
    return OSH_OK;
}

osh_status osh_gptq_set_diag_host(osh_ctx *cx, osh_tensor *h, const float *diag)
{
    int64_t I = h->shape[0];
    (void)cx;
    for (int64_t i = 0; i < I; i++) ((float *)h->data)[i * (I + 1)] = diag[i];
    return OSH_OK;
}

size_t osh_gptq_permute_bytes(int64_t I, int n_threads)
{
    return osh_mem_gross((size_t)(n_threads * I) * sizeof(float)) + osh_mem_gross((size_t)I);
}
