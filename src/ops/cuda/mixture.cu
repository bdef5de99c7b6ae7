/* mixture.cu - runs the experts of a mixture, each on the rows (tokens) that are routed to the
 * expert. The experts are computed in rounds. A round computes consecutive experts. These experts
 * have together at most N rows (N: tokens of the batch), or the round computes only one expert:
 *
 *   x [N, D] ─ gather ─► f [rows, F] = act(x Wg^T) (x Wu^T) ─► y [rows, D] = f Wd^T ─► out [N, D]
 *
 * A round has three launches: two matrix products (routed.cuh), then mixture_combine. Experts that
 * are computed one by one would need five launches each, and most of a GPU would be idle. Example:
 * 16,384 tokens that each go to 8 of 128 experts are computed in 8 rounds of about 16 experts. In
 * each round the first product has 136 tiles of rows by 12 tiles of columns, and the second has 136
 * by 16. D: hidden_size, F: intermediate_size.
 *
 * mixture_combine goes through the experts of a token in order. For each expert it computes out =
 * sum + round(y weight), and rounds it. The results are those of the op moe_combine. The first
 * round starts from `sum`, later rounds start from `out`. A warp computes a token, and finds the
 * token's row of y by bisection in each expert's list of rows. */
#include "ops/cuda/pack.cuh"
#include "ops/cuda/routed.cuh"
#include "ops/cuda/sizes.h"

enum { COMBINE = 128, WARPS = COMBINE / 32 };
static_assert(sizeof(routed_part) <= OSH_MIXTURE_PART && sizeof(routed_tile) == 8 &&
                  (int)ROUTED_TILE == (int)OSH_MIXTURE_TILE_ROWS, "as sizes.c counts");

typedef struct combine_sizes {
    int64_t N, D, E;
    int n_parts;
    bool plain;
} combine_sizes;

/* Returns the index of `token` in the ascending list rows [n], which contains `token`. */
static __device__ inline int64_t mixture_row_of(const int32_t *rows, int n, int64_t token)
{
    int lo = 0;
    for (int hi = n; hi - lo > 1;) {
        int mid = (lo + hi) / 2;
        if (rows[mid] <= token) lo = mid;
        else hi = mid;
    }
    return lo;
}

/* Computes out [N, D] = sum [N, D] + the outputs y [rows, D] of the experts of a round. `parts`:
 * the experts of the round; `route` [N, E]: the router's weights of the experts. `out` may be the
 * same tensor as `sum`. */
template <class T>
static __global__ void mixture_combine(T *out, const T *sum, const T *y, const T *route,
                                       const routed_part *parts, combine_sizes z)
{
    __shared__ int64_t row[WARPS][32];
    __shared__ float weight[WARPS][32];
    const int N = osh_cu_pack<T>::N;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int64_t token = (int64_t)blockIdx.x * WARPS + warp;
    if (token >= z.N) return; // all threads of the warp return here, or none does

    for (int first = 0; first < z.n_parts; first += 32) {
        float w = 0;
        if (first + lane < z.n_parts) {
            w = osh_cu_load(route[token * z.E + parts[first + lane].column]);
            if (z.plain && w != 0) w = 1;
        }
        uint32_t those = __ballot_sync(0xffffffffu, w != 0);
        if (w != 0) {
            const routed_part &p = parts[first + lane];
            int at = __popc(those & ((1u << lane) - 1));
            row[warp][at] = p.first + mixture_row_of(p.rows, p.n, token), weight[warp][at] = w;
        }
        __syncwarp();
        int n = __popc(those);
        const T *from = (first ? out : sum) + token * z.D;
        for (int64_t i = lane * N; i < z.D && (n || from != out + token * z.D); i += 32 * N) {
            osh_cu_pack<T> s = osh_cu_pack_load(from + i);
            for (int k = 0; k < n; k++) {
                osh_cu_pack<T> v = osh_cu_pack_load(y + row[warp][k] * z.D + i);
                for (int e = 0; e < N; e++)
                    osh_cu_store(&s.v[e], __fadd_rn(osh_cu_load(s.v[e]),
                                                    osh_cu_round<T>(__fmul_rn(osh_cu_load(v.v[e]),
                                                                              weight[warp][k]))));
            }
            osh_cu_pack_store(out + token * z.D + i, s);
        }
        // after this barrier no thread reads `row` and `weight`, which the next iteration
        // overwrites
        __syncwarp();
    }
}

/* ---- host ---- */
typedef struct mixture {
    const osh_mixture *m; // arguments of the call; view
    osh_device *d;
    int64_t N, D, F;
    char *room;           // scratch in the arena; own
    /* Views of `room`.
     * f: activations, [N, F].
     * y: outputs of the experts of a round, [N, D]. */
    void *f, *y;
    /* One routed_part for each matrix product: gate and up of each expert, then down of each
     * expert, [2, n_experts]. */
    routed_part *on_gpu; // view of `room`
    routed_tile *tiles_on_gpu; // copy of `tiles` in GPU memory; view of `room`
    routed_part *parts;   // own: copy of the array `on_gpu` in host memory
    routed_tile *tiles;   // tiles of all rounds, in the order of the rounds; own
    int64_t n_tiles;
} mixture;

static int mixture_round_end(const osh_mixture *m, int first, int64_t N)
{
    int64_t rows = 0;
    int end = first;
    for (; end < m->n_experts; end++) {
        if (end > first && rows + m->experts[end].rows.n > N) break;
        rows += m->experts[end].rows.n;
    }
    return end;
}

/* Fills `parts` and `tiles` for all rounds in host memory. In each round, the rows of f and y are
 * numbered from 0. */
static osh_status mixture_list_parts(osh_ctx *cx, mixture *x)
{
    osh_status rc = OSH_OK;
    const osh_mixture *m = x->m;
    int64_t most = 0;
    for (int k = 0; k < m->n_experts; k++) most += osh_div_up(m->experts[k].rows.n, ROUTED_TILE);
    x->parts =
        static_cast<routed_part *>(osh_calloc(cx, 2 * (size_t)m->n_experts, sizeof *x->parts));
    x->tiles = static_cast<routed_tile *>(osh_calloc(cx, (size_t)most + 1, sizeof *x->tiles));
    if (!x->parts || !x->tiles) OSH_TRY(OSH_E_NOMEM);
    for (int first = 0, end; first < m->n_experts; first = end) {
        int64_t rows = 0;
        end = mixture_round_end(m, first, x->N);
        for (int k = first; k < end; k++) {
            const osh_mixture_expert *e = &m->experts[k];
            x->parts[k] = {{e->gate->data, e->up->data}, e->rows.at, rows, (int32_t)e->rows.n,
                           e->column, reinterpret_cast<long long *>(e->found)};
            x->parts[m->n_experts + k] = {{e->down ? e->down->data : NULL, NULL}, e->rows.at, rows,
                                          (int32_t)e->rows.n, e->column, NULL};
            for (int32_t row = 0; row < e->rows.n; row += ROUTED_TILE)
                x->tiles[x->n_tiles++] = {k, row};
            rows += e->rows.n;
        }
    }
done:
    return rc;
}

static osh_status mixture_put_lists(osh_ctx *cx, mixture *x)
{
    osh_status rc = OSH_OK;
    const osh_device_type *t = x->d->type;
    OSH_TRY(t->put(cx, x->d, x->on_gpu, x->parts, 2 * (size_t)x->m->n_experts * sizeof *x->parts));
    OSH_TRY(t->put(cx, x->d, x->tiles_on_gpu, x->tiles, (size_t)x->n_tiles * sizeof *x->tiles));
done:
    return rc;
}

template <class T> static osh_status mixture_rounds(osh_ctx *cx, mixture *x)
{
    osh_status rc = OSH_OK;
    const osh_mixture *m = x->m;
    const T *sum = static_cast<const T *>(m->sum->data),
            *route = static_cast<const T *>(m->route->data);
    T *out = static_cast<T *>(m->out->data);
    routed_launch up = {x->f, m->x->data, x->on_gpu, x->tiles_on_gpu, {},
                        {x->D, x->F, true, false}, 0};
    routed_launch down = {x->y, x->f, x->on_gpu + m->n_experts, x->tiles_on_gpu, {},
                          {x->F, x->D, false, false}, 0};

    for (int first = 0, end; first < m->n_experts; first = end, sum = out) {
        end = mixture_round_end(m, first, x->N);
        up.n_tiles = 0;
        for (int k = first; k < end; k++)
            up.n_tiles += osh_div_up(m->experts[k].rows.n, ROUTED_TILE);
        down.n_tiles = up.n_tiles;
        OSH_TRY(
            osh_cu_with_glu<T>(m->glu, [&](auto act) { return routed_run<T>(cx, x->d, up, act); }));
        OSH_TRY(routed_run<T>(cx, x->d, down, routed_plain()));
        OSH_LAUNCH(mixture_combine<T>, (unsigned)osh_div_up(x->N, WARPS), COMBINE, 0,
                   osh_cuda_stream(x->d), out, sum, static_cast<const T *>(x->y), route,
                   x->on_gpu + first,
                   (combine_sizes{x->N, x->D, osh_width(m->route), end - first, m->plain}));
        OSH_CUDA(cx, cudaGetLastError());
        up.tiles += up.n_tiles, down.tiles += up.n_tiles;
    }
done:
    return rc;
}

/* Computes only the activations of the experts, and writes them to m->out [rows, F]. The experts
 * have at most N rows together. */
template <class T> static osh_status mixture_activate(osh_ctx *cx, const mixture *x)
{
    routed_launch up = {x->m->out->data, x->m->x->data, x->on_gpu, x->tiles_on_gpu, {},
                        {x->D, x->F, true, false}, x->n_tiles};
    return osh_cu_with_glu<T>(x->m->glu,
                              [&](auto act) { return routed_run<T>(cx, x->d, up, act); });
}

template <class T> static osh_status mixture_compute(osh_ctx *cx, mixture *x)
{
    return x->m->experts->down ? mixture_rounds<T>(cx, x) : mixture_activate<T>(cx, x);
}

osh_status osh_cuda_mixture_run(osh_ctx *cx, const osh_mixture *m)
{
    osh_status rc = OSH_OK;
    mixture x = {m, m->x->device, osh_rows(m->x), osh_width(m->x), m->experts->gate->shape[0]};
    size_t at[OSH_MIXTURE_N_ARRAYS];
    size_t n_bytes = osh_mixture_offsets(at, x.N, x.D, x.F, m->n_experts);

    if (!x.N) return OSH_OK;
    x.room = static_cast<char *>(osh_device_alloc(cx, x.d, n_bytes, OSH_LIFE_SHORT));
    if (!x.room) OSH_TRY(OSH_E_NOMEM);
    x.f = x.room + at[OSH_MIXTURE_F], x.y = x.room + at[OSH_MIXTURE_Y];
    x.on_gpu = reinterpret_cast<routed_part *>(x.room + at[OSH_MIXTURE_PARTS]);
    x.tiles_on_gpu = reinterpret_cast<routed_tile *>(x.room + at[OSH_MIXTURE_TILES]);
    OSH_TRY(mixture_list_parts(cx, &x));
    OSH_TRY(mixture_put_lists(cx, &x));
    rc = m->x->dtype == OSH_BF16 ? mixture_compute<osh_bf16_t>(cx, &x)
                                 : mixture_compute<osh_f16_t>(cx, &x);
done:
    osh_free(cx, x.tiles);
    osh_free(cx, x.parts);
    osh_device_free(x.d, x.room);
    return rc;
}
