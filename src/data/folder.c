/* folder.c - chooses the data files of a directory, sorted by name. Example: in a directory with
 * b.jsonl, a.jsonl.zst and README.md, the data files are a.jsonl.zst and b.jsonl. Data sets of the
 * Hub have files such as train-00000-of-00002.parquet, and a directory may have files of several
 * splits. */
#include "data/folder.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/name.h"
#include "data/shape.h"
#include "data/split.h"

static osh_status refuse_columns(osh_ctx *cx, const char *path)
{
    return osh_fail(
        cx, OSH_E_UNSUPPORTED,
        "%s: Arrow files are not supported: python3 -c \"import datasets; "
        "datasets.load_dataset('arrow', data_files='%s')['train'].to_parquet('rows.parquet')\" "
        "makes a .parquet of it",
        path, path);
}

static osh_status refuse_kind(osh_ctx *cx, const char *path)
{
    return osh_fail(cx, OSH_E_USAGE,
                    "%s: unknown kind of dataset, wanted .jsonl, .json, .csv or .txt, each also "
                    ".zst or .gz, or "
                    ".parquet",
                    path);
}

/* Moves the names of data files to the front of `names`, and converts these names to paths. Frees
 * the other names. Sets *n to the number of data files. */
static osh_status folder_keep_data(osh_ctx *cx, char **names, size_t *n, const char **kind,
                                   const char *dir)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    size_t kept = 0;
    *kind = NULL;
    for (size_t i = 0; i < *n; i++) {
        const char *is = names[i][0] == '.' ? NULL : osh_data_kind(names[i]);
        if (!(path = osh_path_join(cx, dir, names[i]))) OSH_TRY(OSH_E_NOMEM);
        if (osh_data_is_columns(names[i])) OSH_TRY(refuse_columns(cx, path));
        if (is && osh_file_exists(path)) {
            if (*kind && strcmp(*kind, is))
                OSH_FAIL(cx, OSH_E_USAGE, "%s: has both .%s and .%s files, wanted one kind", dir,
                         *kind, is);
            *kind = is;
            char *name = names[i];
            /* A name that is not a data file moves to the end of `names`, and is freed after the
             * loop. */
            names[i] = names[kept];
            names[kept++] = path, path = NULL;
            osh_free(cx, name);
        } else {
            osh_free(cx, path), path = NULL;
        }
    }
    for (size_t i = kept; i < *n; i++) osh_free(cx, names[i]), names[i] = NULL;
    *n = kept;
    if (!kept)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: has no .parquet, .jsonl, .json, .csv or .txt file (each also .zst or .gz)",
                 dir);
done:
    osh_free(cx, path);
    return rc;
}

/* Returns the length of the split's name in a file name of the Hub: 5 for
 * "train-00000-of-00002.parquet". Returns 0 if the file name has another form. */
static size_t split_bytes(const char *path)
{
    const char *name = osh_path_last(path), *at = strstr(name, "-00");
    size_t digits = at ? strspn(at + 1, "0123456789") : 0;
    if (!digits || strncmp(at + 1 + digits, "-of-", 4)) return 0;
    const char *end = at + 1 + digits + 4;
    return strspn(end, "0123456789") == digits && end[digits] == '.' ? (size_t)(at - name) : 0;
}

static bool split_is(const char *path, const char *name, size_t n)
{
    return split_bytes(path) == n && !strncmp(osh_path_last(path), name, n);
}

/* Sets *name and *n to the split that the user names, or to "train". Fails if the user names two
 * different splits. */
static osh_status folder_wanted_split(osh_ctx *cx, const char **name, size_t *n, const char *dir,
                                      const char *splits)
{
    const char *part;
    size_t all;
    *name = "train", *n = 5;
    for (int i = 0; splits && (part = osh_split_part(splits, i, &all)); i++) {
        size_t len = strcspn(part, "[+ ");
        if (len > all) len = all;
        if (i && (len != *n || strncmp(part, *name, len)))
            return osh_fail(cx, OSH_E_UNSUPPORTED,
                            "%s: splits '%s' names two splits, but only the files of one split "
                            "can be read: want --dataset twice",
                            dir, splits);
        *name = part, *n = len;
    }
    return OSH_OK;
}

/* Keeps only the files of the wanted split. Does nothing if a file name has no split, or if all
 * files have the same split. */
static osh_status folder_keep_split(osh_ctx *cx, char **files, size_t *n, const char *dir,
                                    const char *splits)
{
    osh_status rc = OSH_OK;
    const char *name;
    size_t len, kept = 0;
    bool all = true, one = true;
    osh_buf names; // own
    osh_buf_init(&names, 0);
    for (size_t i = 0; i < *n; i++) {
        const char *last = osh_path_last(files[i]);
        size_t bytes = split_bytes(files[i]);
        bool again = i && split_is(files[i - 1], last, bytes);
        all = all && bytes, one = one && (!i || again);
        if (!again) OSH_TRY(osh_buf_printf(cx, &names, "%s%.*s", i ? ", " : "", (int)bytes, last));
    }
    if (!all || one) goto done;
    OSH_TRY(folder_wanted_split(cx, &name, &len, dir, splits));
    for (size_t i = 0; i < *n; i++) {
        char *file = files[i];
        if (!split_is(file, name, len)) continue;
        files[i] = files[kept], files[kept++] = file;
    }
    if (!kept)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: has files of the splits %s, none of '%.*s': want --splits "
                 "with one of them",
                 dir, names.data, (int)len, name);
    osh_log(cx, OSH_LOG_DEBUG, "%s: has files of the splits %s; the files of %.*s are read", dir,
            names.data, (int)len, name);
    for (size_t i = kept; i < *n; i++) osh_free(cx, files[i]), files[i] = NULL;
    *n = kept;
done:
    osh_buf_deinit(cx, &names);
    return rc;
}

osh_status osh_folder_files(osh_ctx *cx, char ***files, size_t *n, const char **kind,
                            const char *path, const char *splits)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n_names = 0;
    *kind = osh_data_kind(path);
    if (osh_dir_exists(path)) {
        OSH_TRY(osh_dir_list(cx, &names, &n_names, path));
        OSH_TRY(folder_keep_data(cx, names, &n_names, kind, path));
        OSH_TRY(folder_keep_split(cx, names, &n_names, path, splits));
    } else {
        if (osh_data_is_columns(path)) OSH_TRY(refuse_columns(cx, path));
        if (!*kind) OSH_TRY(refuse_kind(cx, path));
        OSH_NEW(cx, names, 1);
        n_names = 1;
        if (!(names[0] = osh_strdup(cx, path))) OSH_TRY(OSH_E_NOMEM);
    }
    *files = names, *n = n_names, names = NULL; // give
done:
    osh_strings_free(cx, names, n_names);
    return rc;
}
