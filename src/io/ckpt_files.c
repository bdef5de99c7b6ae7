/* ckpt_files.c - decides which safetensors files of a directory are the model's shards if there are
 * several possibilities. */
#include "io/ckpt_files.h"

#include <string.h>
#include <sys/stat.h>

#include "base/name.h"
#include "io/safetensors.h"

/* ---- a directory with model.safetensors and an index ---- */

/* Reads the status of a file in the directory. Sets *there to true if the file exists and is a
 * regular file. */
static osh_status find_file(osh_ctx *cx, bool *there, struct stat *st, const char *dir,
                            const char *name)
{
    char *path = osh_path_join(cx, dir, name); // own
    *there = path && !stat(path, st) && S_ISREG(st->st_mode);
    osh_free(cx, path);
    return path ? OSH_OK : OSH_E_NOMEM;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

osh_status osh_ckpt_files_choose(osh_ctx *cx, bool *single, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    struct stat one, st;
    // name of an existing shard that is not the file model.safetensors itself
    const char *other = NULL;
    int n_there = 0;
    bool has_one = false, there = false;
    OSH_TRY(find_file(cx, &has_one, &one, ck->dir, OSH_SAFETENSORS_SINGLE));
    for (int s = 0; s < ck->n_shards; s++) {
        OSH_TRY(find_file(cx, &there, &st, ck->dir, ck->shard_names[s]));
        n_there += there;
        if (there && (!has_one || !is_same_file(&st, &one))) other = ck->shard_names[s];
    }
    *single = !n_there || (ck->n_shards == 1 && !other);
    if (!n_there)
        osh_log(cx, OSH_LOG_INFO,
                "%s: none of the shards in %s exists; %s is read, as transformers does; vLLM "
                "would find no weights",
                ck->dir, OSH_SAFETENSORS_INDEX, OSH_SAFETENSORS_SINGLE);
    if (!*single)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: has both %s and %s, which names %s: transformers reads the first, vLLM the "
                 "shards of the second; want one of them moved away",
                 ck->dir, OSH_SAFETENSORS_SINGLE, OSH_SAFETENSORS_INDEX,
                 other ? other : ck->shard_names[0]);
done:
    return rc;
}

/* ---- files that are not shards ---- */

/* A name such as "model-00001-of-00003.safetensors", divided at its numbers. */
typedef struct numbering {
    const char *name;
    size_t n_prefix;             // number of bytes before "-00001"
    const char *total;           // "00003.safetensors"
} numbering;

static bool read_numbering(numbering *to, const char *name)
{
    static const char of[] = "-of-";
    const char *at = strstr(name, of), *next;
    while (at && (next = strstr(at + 1, of))) at = next; // finds the last "-of-" in the name
    if (!at) return false;
    const char *total = at + strlen(of), *first = at;
    while (first > name && first[-1] >= '0' && first[-1] <= '9') first--;
    size_t n_digits = strspn(total, "0123456789");
    if (first == at || first == name || first[-1] != '-' || !n_digits ||
        strcmp(total + n_digits, ".safetensors"))
        return false;
    *to = (numbering){name, (size_t)(first - 1 - name), total};
    return true;
}

static bool is_same_numbering(const numbering *a, const numbering *b)
{
    return a->n_prefix == b->n_prefix && !strncmp(a->name, b->name, a->n_prefix) &&
           !strcmp(a->total, b->total);
}

static osh_status check_unlisted(osh_ctx *cx, const osh_checkpoint *ck, const char *name)
{
    numbering a, b;
    if (!read_numbering(&a, name)) return OSH_OK;
    if (ck->n_shards == 1 && !strcmp(ck->shard_names[0], OSH_SAFETENSORS_SINGLE) &&
        a.n_prefix == 5 && !strncmp(name, "model", 5))
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: has both %s and %s, and no %s: want one of them moved away", ck->dir,
                        OSH_SAFETENSORS_SINGLE, name, OSH_SAFETENSORS_INDEX);
    for (int s = 0; s < ck->n_shards; s++)
        if (read_numbering(&b, ck->shard_names[s]) && is_same_numbering(&a, &b))
            return osh_fail(cx, OSH_E_FORMAT,
                            "%s: %s and %s are shards of one model, but %s lists only the second: "
                            "want an index of all shards, or the first file moved away",
                            ck->dir, name, ck->shard_names[s], OSH_SAFETENSORS_INDEX);
    return OSH_OK;
}

/* Sets *is to true if the file must not be listed: it is a shard or a link to a shard, or it is not
 * a regular file. */
static osh_status is_shard(osh_ctx *cx, bool *is, const osh_checkpoint *ck, const char *name)
{
    osh_status rc = OSH_OK;
    struct stat file, shard;
    bool there = false;
    *is = false;
    for (int s = 0; s < ck->n_shards; s++)
        if (!strcmp(ck->shard_names[s], name)) *is = true;
    if (*is) goto done;
    OSH_TRY(find_file(cx, &there, &file, ck->dir, name));
    *is = !there;
    for (int s = 0; s < ck->n_shards && !*is; s++) {
        OSH_TRY(find_file(cx, &there, &shard, ck->dir, ck->shard_names[s]));
        *is = there && is_same_file(&file, &shard);
    }
done:
    return rc;
}

osh_status osh_ckpt_files_leave(osh_ctx *cx, osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, ck->dir));
    OSH_NEW(cx, ck->aside, n);
    for (size_t i = 0; i < n; i++) {
        bool shard = true;
        if (osh_ends_with(names[i], strlen(names[i]), ".safetensors"))
            OSH_TRY(is_shard(cx, &shard, ck, names[i]));
        if (shard) continue;
        OSH_TRY(check_unlisted(cx, ck, names[i]));
        ck->aside[ck->n_aside++] = names[i], names[i] = NULL; // give
    }
done:
    for (size_t i = 0; i < n; i++) osh_free(cx, names[i]);
    osh_free(cx, names);
    return rc;
}
