/* hessian_accum.cu - computes the lower triangle of H += X^T X. The tokens of a batch are cut into
 * chunks. The matrix product of one chunk, with f32 sums, is called a part. The parts are added to
 * H one after the other.
 *
 *               columns of H                  tokens of a batch
 *   1024 rows   | a |                         | 4096 | 4096 | 4096 | 4096 | 512 | 97 + 159 zeros |
 *   1024 rows   | b   b |                     |    a batch of products    |  1  |       1        |
 *   1024 rows   | c   c | d |                       H + part + part + part + part + part + part
 *
 * H is computed in pieces (a, b, c, d). A piece has up to ROWS rows and up to OSH_HESSIAN_PIECE
 * elements: 2048 columns, or more if the last rows are fewer than ROWS. The product of a piece
 * includes elements above the diagonal; these elements are not added to H.
 *
 * A tensor core truncates its sum after every few products. Each truncation loses half an ulp (unit
 * in the last place) on average, always towards zero. In a sum of 16,384 squares the total loss is
 * up to 6e-5 of the sum. For comparison, the damping of an H with 14,336 columns is 7e-7 of the
 * trace of H. So if two channels are nearly multiples of each other, the loss would make H
 * indefinite. Therefore a chunk has at most TOKENS tokens, and the parts are added to H in f32, in
 * the order of the tokens. Several calls with multiples of TOKENS tokens give the same bytes as one
 * call. If the number of tokens of a batch is not a multiple of TOKENS, the last tokens are cut
 * into two chunks. The first chunk has a multiple of 256 tokens. The second chunk has fewer than
 * 256 tokens, and is padded with zeros to 256. So the products of a piece have only 16 different
 * shapes, and not a new shape for each batch.
 *
 * Pieces and algorithms depend only on I, the number of columns of H. Each batch on a GPU except
 * the last has 16,384 tokens (osh_batch_end_on_device), which are PARTS chunks of TOKENS. So
 * products of any number of chunks use the algorithm for a batch of PARTS chunks.
 *
 * Reason for the sizes: the products of PARTS chunks for 1024 x 1024 elements of H are 128 tiles of
 * 128 x 256, which 132 multiprocessors compute at the same time (one wave). The product of one
 * chunk for 2048 x 2048 elements has as many tiles. Smaller pieces compute fewer elements above the
 * diagonal. The table compares four ways to cut H for 16,384 tokens:
 *
 *   panels        one matrix product for each chunk and each panel of 2048 rows
 *   halves 1024   the diagonal blocks of 2048 x 2048 elements are halved until they have 1024 rows;
 *                 blocks of one size are a batch; each chunk is added to H directly
 *   halves 512    the same until they have 512 rows
 *   pieces        this file
 *
 * An entry has two numbers: the number of waves, and the fraction of the elements of H that is
 * computed:
 *
 *        I      panels     halves 1024    halves 512      pieces
 *      768     4 / 1.00      4 / 1.00      4 / 1.00      1 / 1.00
 *    2,048     4 / 1.00      8 / 0.75     12 / 0.63      3 / 0.75
 *    4,096    12 / 0.75     12 / 0.63     16 / 0.56     10 / 0.63
 *    5,120    20 / 0.68     20 / 0.60     24 / 0.56     15 / 0.60
 *    8,192    40 / 0.63     36 / 0.56     36 / 0.53     36 / 0.56
 *   11,008    68 / 0.59     68 / 0.55     68 / 0.52     64 / 0.55
 *   14,336   112 / 0.57    108 / 0.54    104 / 0.52    105 / 0.54
 *
 * With pieces, H is read and written once for PARTS chunks. The parts (at most 32 MiB) fit in an L2
 * cache of 50 MB. */
#include "ops/cuda/op.cuh"
#include "ops/cuda/sizes.h"

enum { TOKENS = OSH_HESSIAN_TOKENS, GRAIN = OSH_HESSIAN_GRAIN, ROWS = OSH_HESSIAN_ROWS,
       PARTS = OSH_HESSIAN_PARTS };
enum { THREADS = 256 };

typedef struct piece { // a piece of H: rows [row, row + m), columns [col, col + n)
    int64_t row, col, m, n;
} piece;

typedef struct job {
    osh_device *d;
    /* h: matrix H [I, I], view.
     * parts: parts of the current piece, [up to PARTS, m, n], own. */
    float *h, *parts;
    /* most: largest number of parts that `parts` can hold.
     * used: number of parts in `parts` that are not yet added to H. */
    int64_t I, most, used;
    osh_dtype dt;
} job;

typedef struct tokens { // tokens of x: n_chunks chunks, each of n consecutive rows
    char *x; // inputs of the chunks, [n_chunks, n, I]; view
    int64_t n, n_chunks;
} tokens;

/* Adds the n_parts parts [m, n] of piece p to H, in their order. Does not change elements above the
 * diagonal. A block adds THREADS columns of a row. */
static __global__ void hessian_add_parts(float *h, const float *parts, int n_parts, int64_t I,
                                         piece p)
{
    int64_t r = blockIdx.y, c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= p.n || p.col + c > p.row + r) return;
    float *to = h + (p.row + r) * I + p.col + c, part[PARTS];
#pragma unroll
    for (int k = 0; k < PARTS; k++) part[k] = k < n_parts ? parts[(k * p.m + r) * p.n + c] : 0;
    float sum = *to;
#pragma unroll
    for (int k = 0; k < PARTS; k++)
        if (k < n_parts) sum = __fadd_rn(sum, part[k]);
    *to = sum;
}

static osh_status hessian_flush_parts(osh_ctx *cx, job *j, const piece &p)
{
    osh_status rc = OSH_OK;
    if (!j->used) return OSH_OK;
    OSH_LAUNCH(hessian_add_parts, dim3((unsigned)osh_div_up(p.n, THREADS), (unsigned)p.m), THREADS,
               0, osh_cuda_stream(j->d), j->h, j->parts, (int)j->used, j->I, p);
    OSH_CUDA(cx, cudaGetLastError());
    j->used = 0;
done:
    return rc;
}

/* Computes the parts of one piece for the tokens t. Adds the parts to H each time `parts` is
 * full. */
static osh_status hessian_multiply_piece(osh_ctx *cx, job *j, const piece &p, const tokens &t)
{
    osh_status rc = OSH_OK;
    size_t each = osh_dtype_bytes(j->dt);
    for (int64_t chunk = 0, k; chunk < t.n_chunks; chunk += k) {
        k = osh_min64(t.n_chunks - chunk, j->most - j->used);
        char *x = t.x + (size_t)(chunk * t.n * j->I) * each;
        osh_cuda_mat left = {x + (size_t)p.row * each, j->I, t.n * j->I, j->dt, true};
        osh_cuda_mat right = {x + (size_t)p.col * each, j->I, t.n * j->I, j->dt, false};
        osh_cuda_mat to = {j->parts + j->used * p.m * p.n, p.n, p.m * p.n, OSH_F32, false};
        OSH_TRY(osh_cuda_gemm(cx, j->d, {&to, &left, &right, p.m, p.n, t.n, k, 1, 0,
                                         t.n == TOKENS ? PARTS : 1}));
        j->used += k;
        if (j->used == j->most) OSH_TRY(hessian_flush_parts(cx, j, p));
    }
done:
    return rc;
}

/* Computes all pieces of H, each for all tokens t[0] ... t[n - 1]. */
static osh_status hessian_add_pieces(osh_ctx *cx, job *j, const tokens *t, int n)
{
    osh_status rc = OSH_OK;
    for (int64_t row = 0, m; row < j->I; row += m) {
        m = osh_min64(ROWS, j->I - row);
        for (int64_t col = 0, step = osh_hessian_columns(m); col < row + m; col += step) {
            piece p = {row, col, m, osh_min64(step, row + m - col)};
            for (int i = 0; i < n; i++) OSH_TRY(hessian_multiply_piece(cx, j, p, t[i]));
            OSH_TRY(hessian_flush_parts(cx, j, p));
        }
    }
done:
    return rc;
}

/* Sets *out (own) to a copy of the last n < GRAIN rows of x, padded with rows of zeros to GRAIN
 * rows. `row`: size of a row in bytes. */
static osh_status hessian_fill_grain(osh_ctx *cx, char **out, osh_device *d, const void *x,
                                     int64_t n, size_t row)
{
    osh_status rc = OSH_OK;
    size_t used = (size_t)n * row, all = GRAIN * row;
    *out = static_cast<char *>(osh_device_alloc(cx, d, all, OSH_LIFE_SHORT));
    if (!*out) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(d->type->copy(cx, d, *out, x, used));
    OSH_TRY(d->type->fill(cx, d, *out + used, 0, all - used));
done:
    return rc;
}

osh_status osh_hessian_accum_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    osh_device *d = a->out[0]->device;
    int64_t N = osh_rows(x), I = osh_width(x), chunks = N / TOKENS, whole = N / GRAIN * GRAIN;
    /* j.parts: own. */
    job j = {d, static_cast<float *>(a->out[0]->data), NULL, I, osh_hessian_parts(N), 0, x->dtype};
    char *grain = NULL; // own: the last tokens, padded with zeros, [GRAIN, I]
    tokens t[3];
    int n = 0;

    if (!N) goto done;
    j.parts = static_cast<float *>(osh_device_alloc(cx, d, osh_hessian_parts_bytes(N, I),
                                                    OSH_LIFE_SHORT));
    if (!j.parts) OSH_TRY(OSH_E_NOMEM);
    if (chunks) t[n++] = {static_cast<char *>(x->data), TOKENS, chunks};
    if (whole > chunks * TOKENS)
        t[n++] = {static_cast<char *>(osh_elem(x, chunks * TOKENS * I)), whole - chunks * TOKENS,
                  1};
    if (whole < N) {
        size_t row = (size_t)I * osh_dtype_bytes(x->dtype);
        OSH_TRY(hessian_fill_grain(cx, &grain, d, osh_elem(x, whole * I), N - whole, row));
        t[n++] = {grain, GRAIN, 1};
    }
    OSH_TRY(hessian_add_pieces(cx, &j, t, n));
done:
    osh_device_free(d, grain);
    osh_device_free(d, j.parts);
    return rc;
}
