/* container.c - opens and reads files with tensors, whatever their format is. */
#include "io/container.h"

#include <assert.h>
#include <string.h>

#include "base/name.h"
#include "io/container_impl.h"
#include "io/safetensors.h"

/* The first row is also the kind of two other groups of files: files whose name has no known tail,
 * and all files that the program writes. */
static const osh_container_kind kinds[] = {
    {"safetensors", ".safetensors", OSH_SAFETENSORS_INDEX, osh_safetensors_read,
     osh_safetensors_layout},
};

const osh_container_kind *osh_container_kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (osh_ends_with(name, strlen(name), kinds[i].tail)) return &kinds[i];
    return NULL;
}

const osh_container_kind *osh_container_written(void)
{
    return &kinds[0];
}

char *osh_container_file_name(osh_ctx *cx, const osh_container_kind *kind, int i, int n)
{
    return n == 1 ? osh_sprintf(cx, "model%s", kind->tail)
                  : osh_sprintf(cx, "model-%05d-of-%05d%s", i, n, kind->tail);
}

bool osh_container_is_file_name(const osh_container_kind *kind, const char *name)
{
    static const char single[] = "model", numbered[] = "model-#####-of-#####";
    size_t i = 0;
    while (numbered[i] == '#' ? name[i] >= '0' && name[i] <= '9' : name[i] == numbered[i]) {
        if (!numbered[++i]) break;
    }
    if (i != strlen(numbered) && i != strlen(single)) return false;
    return !strcmp(name + i, kind->tail);
}

osh_status osh_container_open(osh_ctx *cx, osh_container **out, const char *path)
{
    osh_status rc = OSH_OK;
    osh_container *c = NULL; // own
    const osh_container_kind *kind = osh_container_kind_of(path);
    OSH_NEW(cx, c, 1);
    c->path = osh_strdup(cx, path);
    if (!c->path) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY((kind ? kind : &kinds[0])->read(cx, c));
    *out = c, c = NULL; // give
done:
    osh_container_close(cx, c);
    return rc;
}

void osh_container_close(osh_ctx *cx, osh_container *st)
{
    if (!st) return;
    osh_free(cx, st->entries);
    osh_free(cx, st->names);
    osh_free(cx, st->path);
    osh_free(cx, st);
}

void osh_container_read_direct(osh_container *st)
{
    st->direct = true;
}

int64_t osh_container_count(const osh_container *st)
{
    return st->n;
}
const char *osh_container_path(const osh_container *st)
{
    return st->path;
}

const osh_stamp *osh_container_stamp(const osh_container *st)
{
    return &st->stamp;
}

int64_t osh_container_header(const osh_container *st, uint64_t *sum)
{
    *sum = st->header_sum;
    return st->header_bytes;
}

const osh_entry *osh_container_at(const osh_container *st, int64_t i)
{
    assert(i >= 0 && i < st->n);
    return &st->entries[i];
}

/* Opens the file again and checks that its size is unchanged. The caller closes *f. */
static osh_status open_again(osh_ctx *cx, osh_file **f, const osh_container *st)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_file_open(cx, f, st->path));
    if (osh_file_bytes(*f) != st->stamp.n_bytes)
        OSH_FAIL(cx, OSH_E_IO, "%s: has %lld bytes, had %lld when it was opened", st->path,
                 (long long)osh_file_bytes(*f), (long long)st->stamp.n_bytes);
done:
    return rc;
}

osh_status osh_container_read_part(osh_ctx *cx, void *to, const osh_container *st,
                                   const osh_entry *e, int64_t offset, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own

    assert(offset >= 0 && offset <= e->end - e->begin &&
           n_bytes <= (uint64_t)(e->end - e->begin - offset));
    if (n_bytes == 0) goto done;
    OSH_TRY(open_again(cx, &f, st));
    if (e->row)
        OSH_TRY(osh_container_gather(cx, to, f, e, offset, n_bytes));
    else if (st->direct)
        OSH_TRY(osh_file_pread_direct(cx, f, to, n_bytes, e->begin + offset));
    else
        OSH_TRY(osh_file_pread(cx, f, to, n_bytes, e->begin + offset));
done:
    if (rc) osh_note(cx, "reading %.200s", e->name);
    osh_file_close(cx, f);
    return rc;
}

osh_status osh_container_reopen(osh_ctx *cx, osh_file **f, const osh_container *st)
{
    osh_status rc = open_again(cx, f, st);
    if (!rc && st->direct) osh_file_use_direct(*f);
    return rc;
}

osh_status osh_container_read_blocks(osh_ctx *cx, void *room, osh_file *f, const osh_entry *e,
                                     int64_t offset, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    assert(offset >= 0 && offset <= e->end - e->begin &&
           n_bytes <= (uint64_t)(e->end - e->begin - offset));
    if (n_bytes && e->row)
        rc = osh_container_gather(cx, (char *)room + offset % OSH_BLOCK_BYTES, f, e, offset,
                                  n_bytes);
    else if (n_bytes)
        rc = osh_file_read_blocks(cx, f, room, n_bytes, e->begin + offset);
    if (rc) osh_note(cx, "reading %.200s", e->name);
    return rc;
}

osh_status osh_container_read(osh_ctx *cx, void *to, const osh_container *st, const osh_entry *e)
{
    return osh_container_read_part(cx, to, st, e, 0, (size_t)(e->end - e->begin));
}
