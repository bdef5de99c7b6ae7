/* paths.c - checks the paths that the options of a job name, before the job writes anything. */
#include "match/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/inode.h"
#include "base/made.h"
#include "base/name.h"
#include "data/mix.h"

typedef struct place { // a path that an option names
    osh_path_use use;
    char *path;     // own
    char shown[80];   // name of the option for messages, such as "--log-file"
} place;

static bool is_written(osh_path_use use)
{
    return use == OSH_PATH_LOG || use == OSH_PATH_PROFILE || use == OSH_PATH_NPY ||
           use == OSH_PATH_PAGE || use == OSH_PATH_PANEL || use == OSH_PATH_LOGITS;
}

/* True if both paths lead to the same existing file, directly or through links. */
static bool paths_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Sets *one to true if both paths name the same file. If file `a` does not exist yet, compares the
 * resolved paths and ignores case, because some file systems ignore case. */
static osh_status paths_are_one(osh_ctx *cx, bool *one, const char *a, const char *b)
{
    osh_status rc = OSH_OK;
    char *x = NULL, *y = NULL; // own
    struct stat st;
    bool there = !stat(a, &st);
    *one = there && !S_ISCHR(st.st_mode) &&
           /* several options may write to one character device, such as /dev/null */
           paths_same_file(a, b);
    if (there) goto done;
    OSH_TRY(osh_path_real(cx, &x, a));
    OSH_TRY(osh_path_real(cx, &y, b));
    *one = !strcasecmp(x, y);
done:
    osh_free(cx, x);
    osh_free(cx, y);
    return rc;
}

static osh_status refuse_read(osh_ctx *cx, const place *w, const place *r, const char *file)
{
    return osh_fail(cx, OSH_E_USAGE,
                    "%s %s would overwrite %s, and %s reads that file: want another file", w->shown,
                    w->path, file, r->shown);
}

/* The job writes the file `w`, and reads the files of the directory `r`. Fails if `w` is one of
 * these files, or a symbolic link or a hard link to one of them. */
static osh_status check_against_files(osh_ctx *cx, const place *w, const place *r)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, r->path));
    for (size_t i = 0; i < n; i++) {
        osh_free(cx, path);
        if (!(path = osh_path_join(cx, r->path, names[i])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        if (paths_same_file(w->path, path)) OSH_TRY(refuse_read(cx, w, r, path));
    }
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, path);
    return rc;
}

static osh_status check_against_read(osh_ctx *cx, const place *w, const place *r)
{
    osh_status rc = OSH_OK;
    bool inside = false;
    if (paths_same_file(w->path, r->path)) OSH_TRY(refuse_read(cx, w, r, r->path));
    if (!osh_dir_exists(r->path)) goto done;
    OSH_TRY(osh_path_inside(cx, &inside, w->path, r->path));
    if (inside)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s %s lies in %s, and %s reads that directory: want a file elsewhere", w->shown,
                 w->path, r->path, r->shown);
    OSH_TRY(check_against_files(cx, w, r));
done:
    return rc;
}

/* Fails if the directory of the file that w names is missing or not writable. The job would
 * otherwise find this out only at its end, when it writes the file. */
static osh_status check_directory(osh_ctx *cx, const place *w)
{
    osh_status rc = OSH_OK;
    char dir[PATH_MAX], why[100];
    if (!osh_path_parent(dir, sizeof dir, w->path))
        OSH_FAIL(cx, OSH_E_USAGE, "%s %s: the path is too long", w->shown, w->path);
    if (!osh_dir_exists(dir))
        OSH_FAIL(cx, OSH_E_USAGE, "%s %s: there is no directory %s", w->shown, w->path, dir);
    if (access(dir, W_OK | X_OK))
        OSH_FAIL(cx, OSH_E_USAGE, "%s %s: cannot write into %s: %s", w->shown, w->path, dir,
                 strerror_r(errno, why, sizeof why));
done:
    return rc;
}

static osh_status check_written(osh_ctx *cx, const place *w, const place *places, size_t n)
{
    osh_status rc = OSH_OK;
    for (const place *o = places; o < places + n; o++) {
        bool one = false;
        if (o == w) continue;
        if (o->use == OSH_PATH_READ) {
            OSH_TRY(check_against_read(cx, w, o));
            continue;
        }
        OSH_TRY(paths_are_one(cx, &one, w->path, o->path));
        if (one)
            OSH_FAIL(cx, OSH_E_USAGE, "%s %s and %s %s are one file: want two", w->shown, w->path,
                     o->shown, o->path);
    }
    if (w->use != OSH_PATH_LOGITS) // osh_saved_make_dir checks the directory of logits
        OSH_TRY(osh_made_check(cx, w->use, w->shown, w->path));
    if (w->use == OSH_PATH_NPY || w->use == OSH_PATH_PAGE || w->use == OSH_PATH_PANEL)
        OSH_TRY(check_directory(cx, w));
done:
    return rc;
}

/* Sets *texts to the texts of an option (views). Returns the number of texts: any number for a
 * list, otherwise 0 or 1. */
static size_t option_texts(char *const **texts, const osh_field *f, const void *options)
{
    const char *at = (const char *)options + f->offset;
    if (f->type == OSH_F_STRS) {
        const osh_strs *list = (const void *)at;
        *texts = list->items;
        return list->n;
    }
    *texts = (char *const *)(const void *)at;
    return **texts != NULL;
}

/* Sets *p to the path in `text`, the value of an option. (In the value of --dataset, a share may
 * follow the path.) */
static osh_status places_add(osh_ctx *cx, place *p, const osh_field *f, const char *text)
{
    size_t n = f->type == OSH_F_STRS ? osh_mix_path_bytes(text) : strlen(text);
    *p = (place){.use = f->path, .path = osh_sprintf(cx, "%.*s", (int)n, text)};
    if (!p->path) return osh_fail(cx, OSH_E_NOMEM, "no memory for a path");
    snprintf(p->shown, sizeof p->shown, "--%s", f->name);
    for (char *c = p->shown; *c; c++)
        if (*c == '_') *c = '-';
    return OSH_OK;
}

osh_status osh_paths_check(osh_ctx *cx, const osh_field *fields, const void *options)
{
    osh_status rc = OSH_OK;
    place *places = NULL; // own
    char *const *texts;
    size_t n = 0, most = 0;
    for (const osh_field *f = fields; f->name; f++)
        if (f->path) most += option_texts(&texts, f, options);
    OSH_NEW(cx, places, most + 1);
    for (const osh_field *f = fields; f->name; f++) {
        size_t n_texts = f->path ? option_texts(&texts, f, options) : 0;
        for (size_t i = 0; i < n_texts; i++) {
            if (f->path == OSH_PATH_LOG && !strcmp(texts[i], "none")) continue;
            OSH_TRY(places_add(cx, &places[n++], f, texts[i]));
        }
    }
    for (const place *w = places; w < places + n; w++)
        if (is_written(w->use)) OSH_TRY(check_written(cx, w, places, n));
done:
    for (size_t i = 0; i < n; i++) osh_free(cx, places[i].path);
    osh_free(cx, places);
    return rc;
}
