/* container_part.c - reads a part of a stored tensor whose elements are not contiguous in the file.
 * An example is the transposed gate of one expert, which has every second column of a matrix in
 * [E, D, 2F].
 *
 *   matrix of one expert:    g u g u g u g u      gate [4, 3] (g):  strips of the stored rows
 *                            g u g u g u g u                     are read, and elements of
 *                            g u g u g u g u                     gate are copied
 *
 * A strip is a contiguous range of the file that begins and ends with an element of the part.
 * Strips are read into a buffer of fixed size on the stack, so a plan need not count memory for
 * them. */
#include <assert.h>
#include <string.h>

#include "io/container.h"

enum { ROOM = 32 << 10, STRIPS = 16 };

/* One dimension of a matrix. In variables of this type, `near` is the dimension whose consecutive
 * elements are closer together in the file, and `far` is the other dimension. */
typedef struct axis {
    int64_t n, step;  // n: number of elements; step: bytes in the file from one element to the next
    int64_t pitch;    // number of bytes in the result from one element to the next
} axis;

static void put_element(char *to, const char *from, size_t size)
{
    if (size == 2) memcpy(to, from, 2);
    else if (size == 4) memcpy(to, from, 4);
    else memcpy(to, from, size);
}

typedef struct block { // a rectangle of near.n x far.n elements of the part
    int64_t at;  // offset of the rectangle's first element in the file
    size_t size; // number of bytes of an element
    axis near, far;
} block;

static osh_status gather_block(osh_ctx *cx, char *to, osh_file *f, const block *b)
{
    osh_status rc = OSH_OK;
    axis near = b->near, far = b->far;
    size_t size = b->size;
    char room[ROOM];
    int64_t most = ROOM / STRIPS / near.step;
    if (most < 1) most = 1;
    for (int64_t j0 = 0; j0 < far.n; j0 += STRIPS) {
        int64_t nj = far.n - j0 < STRIPS ? far.n - j0 : STRIPS;
        for (int64_t i0 = 0; i0 < near.n; i0 += most) {
            int64_t ni = near.n - i0 < most ? near.n - i0 : most;
            size_t strip = (size_t)((ni - 1) * near.step) + size;
            for (int64_t j = 0; j < nj; j++)
                OSH_TRY(osh_file_pread(cx, f, room + (size_t)j * strip, strip,
                                       b->at + (j0 + j) * far.step + i0 * near.step));
            for (int64_t i = 0; i < ni; i++)
                for (int64_t j = 0; j < nj; j++)
                    put_element(to + (i0 + i) * near.pitch + (j0 + j) * far.pitch,
                                room + (size_t)j * strip + (size_t)(i * near.step), size);
        }
    }
done:
    return rc;
}

/* Reads rows [r[0], r[0] + r[1]) and columns [c[0], c[0] + c[1]) of the part e. Writes these
 * elements to `to` as a matrix [r[1], c[1]]. */
static osh_status gather_rows(osh_ctx *cx, char *to, osh_file *f, const osh_entry *e,
                              const int64_t r[2], const int64_t c[2])
{
    size_t size = osh_dtype_bytes(e->dtype);
    int64_t at = e->at + r[0] * e->row + c[0] * e->column;
    axis rows = {r[1], e->row, c[1] * (int64_t)size}, columns = {c[1], e->column, (int64_t)size};
    bool down = e->row < e->column;
    return gather_block(cx, to, f,
                        &(block){at, size, down ? rows : columns, down ? columns : rows});
}

osh_status osh_container_gather(osh_ctx *cx, void *to, osh_file *f, const osh_entry *e,
                                int64_t offset, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    int64_t size = (int64_t)osh_dtype_bytes(e->dtype), columns = e->ndim > 1 ? e->shape[1] : 1;
    int64_t first = offset / size, end = (offset + (int64_t)n_bytes) / size;
    assert(offset % size == 0 && (int64_t)n_bytes % size == 0 && e->row >= size &&
           e->column >= size);
    for (int64_t i = first, n; i < end; i += n) {
        int64_t row = i / columns, column = i % columns, left = end - i, n_rows = 1;
        /* n: number of elements to read in this step: the rest of a row, or several whole rows */
        n = columns - column < left ? columns - column : left;
        if (!column && left >= columns) n_rows = left / columns, n = n_rows * columns;
        OSH_TRY(gather_rows(cx, (char *)to + (i - first) * size, f, e, (int64_t[]){row, n_rows},
                            (int64_t[]){column, n / n_rows}));
    }
done:
    return rc;
}

osh_status osh_container_read_columns(osh_ctx *cx, void *to, const osh_container *st,
                                      const osh_entry *e, int64_t first, int64_t n)
{
    int64_t R = e->shape[0], C = e->shape[1], size = (int64_t)osh_dtype_bytes(e->dtype);
    osh_entry turned = {.name = e->name,
                        .dtype = e->dtype,
                        .ndim = 2,
                        .shape = {C, R},
                        .end = R * C * size,
                        .at = e->begin,
                        .row = size,
                        .column = C * size};
    return osh_container_read_part(cx, to, st, &turned, first * R * size, (size_t)(n * R * size));
}

osh_status osh_container_read_rows(osh_ctx *cx, void *to, const osh_container *st,
                                   const osh_entry *e, int64_t first, int64_t n)
{
    int64_t row = (int64_t)osh_dtype_bytes(e->dtype);
    for (int i = 1; i < e->ndim; i++) row *= e->shape[i];
    return osh_container_read_part(cx, to, st, e, first * row, (size_t)(n * row));
}
