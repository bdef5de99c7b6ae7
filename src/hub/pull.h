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
    bool has_pickles; // the repository has weights in a format that this program does not read
    char commit[41];
} osh_hub_tree;
/* Asks for the current commit of the revision, and lists its files. */
osh_status osh_hub_tree_get(osh_ctx *cx, osh_hub_tree *out, osh_http *http, const osh_hub *hub,
                            const osh_hub_name *name);
void osh_hub_tree_deinit(osh_ctx *cx, osh_hub_tree *t);
const osh_hub_file *osh_hub_tree_find(const osh_hub_tree *t, const char *path); // NULL: not found
/* Appends the files of a page of the Hub's answer that may be part of a model. All files of the
 * page are checked. */
osh_status osh_hub_tree_read(osh_ctx *cx, osh_hub_tree *t, osh_json_walk *w);
/* True for files that are copied together with weights: config, tokenizer, template, licence. */
bool osh_hub_is_side_file(const char *path);

typedef struct osh_hub_place { // directories and shared state of files that are downloaded together
    const osh_hub *hub;
    const osh_hub_name *name;
    const char *commit, *repo, *snapshot; // repo and snapshot are directories
    bool verified;       // an earlier pull has checked the hashes of all existing files
    bool lacked;         // a file was missing
    const char *headers; // directory for files with only a header; NULL: downloads whole files
    atomic_bool stop;    // a file has failed, so the other threads end
    atomic_llong done;   // bytes downloaded so far
    pthread_mutex_t lock;
    pthread_cond_t changed;   // a member below, or a fetch, has changed
    struct osh_fetch *open;   // protected by the lock: files with which other threads may help
    osh_status rc;            // protected by the lock: status of the first failure
    char text[4096];          // message of rc
} osh_hub_place;
/* Records a failure if it is the first, and stops all threads. */
void osh_hub_place_fail(osh_ctx *cx, osh_hub_place *p, osh_status rc);
/* Waits until a member has changed, at most 0.1 s. The caller holds the lock. */
void osh_hub_place_wait(osh_hub_place *p);
/* Opens a directory of the repository in the cache and makes it if it is missing. `below` is
 * "blobs", "refs", ... */
osh_status osh_hub_place_dir(osh_ctx *cx, osh_at **out, const osh_hub_place *p, const char *below);
/* Downloads a missing file, checks it and links it into the snapshot. An existing file is
 * checked. */
osh_status osh_hub_file_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f);
osh_status osh_hub_file_is_there(osh_ctx *cx, bool *there, const osh_hub_place *p,
                                 const osh_hub_file *f); // compares only sizes
/* Sets *n_bytes to the bytes of the file that are still to be downloaded. */
osh_status osh_hub_file_lacks(osh_ctx *cx, int64_t *n_bytes, const osh_hub_place *p,
                              const osh_hub_file *f);
typedef struct osh_hub_target {
    osh_at *dir; // view
    const char *name;
} osh_hub_target;
/* Fetches the bytes of a file, checks them and names them `to`. It continues with the parts that an
 * earlier run has left; if the hash is wrong, it fetches the whole file again. */
osh_status osh_hub_fetch(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f,
                         osh_hub_target to);
/* Computes the hash of the file's bytes of the same kind as f->etag: SHA-256, or git's SHA-1. */
osh_status osh_hub_file_hash(osh_ctx *cx, char hex[65], osh_file *file, const osh_hub_file *f,
                             const osh_hub_place *p);
/* Fetches a part of a file that another thread downloads. *did is false if there is no such
 * part. */
osh_status osh_hub_fetch_help(osh_ctx *cx, osh_http *http, osh_hub_place *p, bool *did);
bool osh_hub_fetch_has_parts(const osh_hub_file *f); // true if several threads can fetch the file
osh_status osh_hub_file_url(osh_ctx *cx, char **out, const osh_hub_place *p, const osh_hub_file *f);
/* Writes a file that contains only the header of f (headers.c). */
osh_status osh_hub_header_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p,
                               const osh_hub_file *f);
/* Links the downloaded file in the directory of headers. */
osh_status osh_hub_header_link(osh_ctx *cx, const osh_hub_place *p, const osh_hub_file *f);
#endif
