/* folder.c - chooses the data files of a directory, sorted by name. Example: of b.jsonl,
 * a.jsonl.zst and README.md, the data files are a.jsonl.zst and b.jsonl. */
#include "data/folder.h"

#include <string.h>

#include "base/file.h"
#include "base/name.h"
#include "data/shape.h"

static osh_status refuse_columns(osh_ctx *cx, const char *path)
{
    return osh_fail(
        cx, OSH_E_UNSUPPORTED,
        "%s: Arrow files are not read: python3 -c \"import datasets; datasets.load_dataset("
        "'arrow', data_files='%s')['train'].to_parquet('rows.parquet')\" makes a .parquet of it",
        path, path);
}

static osh_status refuse_kind(osh_ctx *cx, const char *path)
{
    return osh_fail(
        cx, OSH_E_USAGE,
        "%s: unknown kind of dataset, wanted .parquet, or .jsonl, .json, .csv or .txt, each of "
        "these also .zst or .gz",
        path);
}

/* Moves the names of data files to the front and makes them paths. *n becomes their number. */
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
            names[i] = names[kept]; // names[i] moves to the end, where the caller frees it
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
                 "%s: has no .parquet, .jsonl, .json, .csv or .txt file, nor a .zst or .gz of one",
                 dir);
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_folder_files(osh_ctx *cx, char ***files, size_t *n, const char **kind,
                            const char *path)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n_names = 0;
    *kind = osh_data_kind(path);
    if (osh_dir_exists(path)) {
        OSH_TRY(osh_dir_list(cx, &names, &n_names, path));
        OSH_TRY(folder_keep_data(cx, names, &n_names, kind, path));
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
