/* exchange.c - moves statistics between ranks (processes of one job) and merges them. */
#include "plan/exchange.h"

#include "plan/division.h"

/* Size in bytes of a tile. A tile is the rows of a sum that one message contains. A row that is
 * larger than this size is a tile of its own. */
enum { TILE_BYTES = 1 << 20 };

/* Returns the index of the first row after the tile that begins with row `first`. */
static int64_t tile_end(const osh_stat *t, int64_t first)
{
    int64_t end = first + 1, n = osh_stat_n_rows(t);
    size_t bytes = osh_stat_tile_room(t, first, end);
    for (size_t more; end < n; end++, bytes += more)
        if (bytes + (more = osh_stat_tile_room(t, end, end + 1)) > TILE_BYTES) break;
    return end;
}

/* Moves the sum of a group of samples from rank `from` to rank `owner`, which adds it to its own
 * sum. */
static osh_status sum_move(osh_ctx *cx, osh_ranks *ranks, osh_stat *t, int from, int owner)
{
    osh_status rc = OSH_OK;
    void *tile = NULL; // own
    int me = osh_ranks_me(ranks);
    if (me == owner && me == from) return osh_stat_close_part(cx, t, true);
    if (me != owner && me != from) return OSH_OK;
    size_t last = osh_stat_tile_room(t, osh_stat_n_rows(t) - 1, osh_stat_n_rows(t));
    if (!(tile = osh_alloc(cx, last > TILE_BYTES ? last : TILE_BYTES)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory to move statistics between ranks");
    for (int64_t first = 0, end; first < osh_stat_n_rows(t); first = end) {
        end = tile_end(t, first);
        size_t n = osh_stat_tile_bytes(t, first, end);
        if (me == from) {
            OSH_TRY(osh_stat_take_tile(cx, tile, t, first, end));
            OSH_TRY(osh_ranks_send(cx, ranks, tile, n, owner));
        } else {
            OSH_TRY(osh_ranks_recv(cx, ranks, tile, n, from));
            OSH_TRY(osh_stat_merge_tile(cx, t, tile, first, end));
        }
    }
    if (me == from) OSH_TRY(osh_stat_close_part(cx, t, false));
done:
    osh_free(cx, tile);
    return rc;
}

osh_status osh_exchange_groups(osh_ctx *cx, osh_ranks *ranks, osh_stat *t, int owner, int64_t round)
{
    osh_status rc = OSH_OK;
    // number of groups of samples that are not merged yet
    int64_t left = t->groups.n - round * osh_ranks_n(ranks);
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    for (int from = 0; ranks && t->part && from < osh_ranks_n(ranks) && from < left; from++)
        OSH_TRY(sum_move(cx, ranks, t, from, owner));
done:
    osh_mem_use(cx, old);
    return rc;
}

osh_status osh_exchange_exact(osh_ctx *cx, osh_ranks *ranks, const osh_stat_type *t,
                              osh_tensor *state)
{
    osh_status rc = OSH_OK;
    osh_tensor *other = NULL; // own
    size_t n = osh_tensor_bytes(state);
    if (!ranks) goto done;
    if (osh_ranks_me(ranks)) OSH_TRY(osh_ranks_send(cx, ranks, state->data, n, 0));
    else OSH_TRY(osh_tensor_new(cx, &other, state->dtype, state->ndim, state->shape));
    for (int k = 1; other && k < osh_ranks_n(ranks); k++) {
        OSH_TRY(osh_ranks_recv(cx, ranks, other->data, n, k));
        osh_op_args a = {.out = {state, other}};
        OSH_TRY(osh_op_run(cx, t->merge, &a));
    }
    OSH_TRY(osh_ranks_broadcast(cx, ranks, state->data, n, 0));
done:
    osh_tensor_free(cx, other);
    return rc;
}

int64_t osh_exchange_rounds(const osh_groups *g, const osh_ranks *ranks)
{
    return ranks ? (g->n + osh_ranks_n(ranks) - 1) / osh_ranks_n(ranks) : 1;
}

bool osh_exchange_is_now(const osh_groups *g, const osh_ranks *ranks, int64_t sample, int64_t round)
{
    return osh_divide_sample(g, ranks, sample) &&
           (!ranks || osh_group_at(g, sample) / osh_ranks_n(ranks) == round);
}

osh_status osh_exchange_give(osh_ctx *cx, osh_ranks *ranks, osh_tensor *state)
{
    return osh_ranks_broadcast(cx, ranks, state->data, osh_tensor_bytes(state), 0);
}

osh_status osh_exchange_count(osh_ctx *cx, osh_ranks *ranks, int64_t *n)
{
    osh_status rc = OSH_OK;
    int64_t other;
    if (osh_ranks_me(ranks)) OSH_TRY(osh_ranks_send(cx, ranks, n, sizeof *n, 0));
    for (int k = 1; !osh_ranks_me(ranks) && k < osh_ranks_n(ranks); k++) {
        OSH_TRY(osh_ranks_recv(cx, ranks, &other, sizeof other, k));
        *n += other;
    }
    OSH_TRY(osh_ranks_broadcast(cx, ranks, n, sizeof *n, 0));
done:
    return rc;
}
