/* entry.c - finds tensors of a file that have the same name. */
#include <stdlib.h>
#include <string.h>

#include "io/container.h"

static int by_entry_name(const void *a, const void *b)
{
    const osh_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

const char *osh_entries_twice(osh_entry **list, int64_t n)
{
    if (n) qsort(list, (size_t)n, sizeof *list, by_entry_name);
    for (int64_t i = 1; i < n; i++)
        if (!strcmp(list[i]->name, list[i - 1]->name)) return list[i]->name;
    return NULL;
}

osh_status osh_entry_twice(osh_ctx *cx, const char **name, osh_entry *entries, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_entry **list = NULL; // own: pointers to the entries
    OSH_NEW(cx, list, n);
    for (int64_t i = 0; i < n; i++) list[i] = &entries[i];
    *name = osh_entries_twice(list, n);
done:
    osh_free(cx, list);
    return rc;
}
