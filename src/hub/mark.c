/* mark.c - reads and writes the mark of a snapshot (mark.h). */
#include "hub/mark.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"

enum { MAX_MARK_BYTES = 8 << 20 };
static const char first_line[] = "oneshot snapshot 1\n";
static const char *const states[] = {"none\n", "open\n", "all\n", "whole\n"};

osh_status osh_mark_read(osh_ctx *cx, osh_mark *out, const char *repo, const char *commit)
{
    osh_status rc = OSH_OK;
    size_t n = 0;
    char *path = osh_sprintf(cx, "%s/.oneshot/%s", repo, commit); // own
    *out = (osh_mark){.next = ""};
    if (!path) OSH_TRY(OSH_E_NOMEM);
    if (!osh_file_exists(path)) goto done;
    OSH_TRY(osh_file_read_all(cx, &out->text, &n, path, MAX_MARK_BYTES));
    out->state = OSH_MARK_OPEN;
    bool known = !strncmp(out->text, first_line, sizeof first_line - 1) && out->text[n - 1] == '\n';
    if (!known || strlen(out->text) != n) goto done;
    const char *at = out->text + sizeof first_line - 1;
    for (int i = OSH_MARK_OPEN; i <= OSH_MARK_WHOLE; i++) {
        size_t k = strlen(states[i]);
        if (!strncmp(at, states[i], k)) out->state = (osh_mark_state)i, out->next = at + k;
    }
done:
    osh_free(cx, path);
    return rc;
}

void osh_mark_deinit(osh_ctx *cx, osh_mark *m)
{
    osh_free(cx, m->text);
    *m = (osh_mark){0};
}

bool osh_mark_file(osh_mark *m, osh_hub_file *f)
{
    long long n_bytes = 0;
    int at = 0;
    size_t n = strcspn(m->next, "\n");
    char *end = (char *)(m->next + n);
    if (!*end) return false;
    *end = 0;
    bool fine =
        sscanf(m->next, "%18lld %64[0-9a-f] %n", &n_bytes, f->etag, &at) == 2 && at && n_bytes >= 0;
    f->path = (char *)(m->next + at), f->n_bytes = n_bytes;
    m->next = end + 1;
    if (fine && osh_hub_file_is_safe(f->path)) return true;
    // the mark is damaged, or another program has written it
    m->state = OSH_MARK_OPEN, m->next = "";
    return false;
}

osh_status osh_mark_write(osh_ctx *cx, osh_at *dir, const char *commit, osh_mark_state state,
                          const osh_hub_file *const *files, size_t n)
{
    osh_status rc = OSH_OK;
    osh_buf b;         // own
    osh_mark there;    // own
    char *repo = NULL; // own
    const char *at = osh_at_path(dir);
    osh_buf_init(&b, MAX_MARK_BYTES);
    there = (osh_mark){0};
    if (!(repo = osh_sprintf(cx, "%.*s", (int)(strrchr(at, '/') - at), at))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_mark_read(cx, &there, repo, commit));
    if (there.state >= state) goto done;
    OSH_TRY(osh_buf_printf(cx, &b, "%s%s", first_line, states[state]));
    for (size_t i = 0; i < n; i++)
        OSH_TRY(osh_buf_printf(cx, &b, "%lld %s %s\n", (long long)files[i]->n_bytes, files[i]->etag,
                               files[i]->path));
    OSH_TRY(osh_at_write(cx, dir, commit, dir, b.data, b.len));
done:
    osh_mark_deinit(cx, &there);
    osh_buf_deinit(cx, &b);
    osh_free(cx, repo);
    return rc;
}
