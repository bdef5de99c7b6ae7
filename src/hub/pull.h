/* pull.h - the parts of a pull: the list of a repository's files (tree.c), one file (blob.c), its
 * bytes (fetch.c), all files (pull.c). */
#ifndef OSH_HUB_PULL_H
#define OSH_HUB_PULL_H
#include <pthread.h>

#include "base/at.h"
#include "hub/ask.h"
#include "hub/mark.h"

typedef struct osh_hub_tree {
    osh_hub_file *files; // own
    size_t n, cap, n_name_bytes;
    bool has_pickles; // it has weights in a format that is not read
    char commit[41];
} osh_hub_tree;
/* Asks for the current commit of the revision, and lists its files. */
osh_status osh_hub_tree_get(osh_ctx *cx, osh_hub_tree *out, osh_http *http, const osh_hub *hub,
                            const osh_hub_name *name);
void osh_hub_tree_deinit(osh_ctx *cx, osh_hub_tree *t);
const osh_hub_file *osh_hub_tree_find(const osh_hub_tree *t, const char *path); // NULL: not found
/* Appends the files of a page of the Hub's answer that may be part of a model. Checks all of
 * them. */
osh_status osh_hub_tree_read(osh_ctx *cx, osh_hub_tree *t, osh_json_walk *w);
/* True for config, tokenizer, template, licence: files that are copied along with weights. */
bool osh_hub_is_side_file(const char *path);

typedef struct osh_hub_place { // directories and shared state of the files that are pulled together
    const osh_hub *hub;
    const osh_hub_name *name;
    const char *commit, *repo, *snapshot; // repo, snapshot: directories
    bool verified;       // an earlier pull has checked the hashes of all existing files
    bool lacked;         // a file was missing
    const char *headers; // directory of files that have a header only; NULL: pull whole files
    atomic_bool stop;    // a file failed: the other threads end
    atomic_llong done;   // bytes that have come
    pthread_mutex_t lock;
    pthread_cond_t changed;   // a member below, or a fetch, has changed
    struct osh_fetch *open;   // under the lock: files that other threads may help to fetch
    osh_status rc;            // under the lock: the first failure
    char text[4096];          // message of rc
} osh_hub_place;
/* Keeps the first failure and stops all threads. */
void osh_hub_place_fail(osh_ctx *cx, osh_hub_place *p, osh_status rc);
/* Waits until something changed, at most 0.1 s. The caller holds the lock. */
void osh_hub_place_wait(osh_hub_place *p);
/* Opens a directory of the repository in the cache, and makes it if it is missing; below: "blobs",
 * "refs", ... */
osh_status osh_hub_place_dir(osh_ctx *cx, osh_at **out, const osh_hub_place *p, const char *below);
/* Downloads a missing file, checks it and links it into the snapshot. An existing file is
 * checked. */
osh_status osh_hub_file_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f);
osh_status osh_hub_file_is_there(osh_ctx *cx, bool *there, const osh_hub_place *p,
                                 const osh_hub_file *f); // compares sizes only
/* *n_bytes: bytes of the file that are still to be downloaded. */
osh_status osh_hub_file_lacks(osh_ctx *cx, int64_t *n_bytes, const osh_hub_place *p,
                              const osh_hub_file *f);
typedef struct osh_hub_target {
    osh_at *dir; // view
    const char *name;
} osh_hub_target;
/* Fetches the bytes of a file, checks them and names them `to`. It goes on with the parts that an
 * earlier run left; if the hash is wrong, it fetches the whole file again. */
osh_status osh_hub_fetch(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f,
                         osh_hub_target to);
/* Computes the SHA-256 of the bytes of the file or git's SHA-1, whichever f->etag is. */
osh_status osh_hub_file_hash(osh_ctx *cx, char hex[65], osh_file *file, const osh_hub_file *f,
                             const osh_hub_place *p);
/* Fetches a part of a file that another thread fetches. *did is false if there is no such part. */
osh_status osh_hub_fetch_help(osh_ctx *cx, osh_http *http, osh_hub_place *p, bool *did);
bool osh_hub_fetch_has_parts(const osh_hub_file *f); // true if several threads can fetch the file
osh_status osh_hub_file_url(osh_ctx *cx, char **out, const osh_hub_place *p, const osh_hub_file *f);
/* Writes a file that has the header of f only (headers.c). */
osh_status osh_hub_header_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p,
                               const osh_hub_file *f);
/* Links the pulled file into the directory of headers. */
osh_status osh_hub_header_link(osh_ctx *cx, const osh_hub_place *p, const osh_hub_file *f);
#endif
