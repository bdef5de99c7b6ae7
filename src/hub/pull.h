/* pull.h - what a pull is made of: the list of a repository's files (tree.c), a file (blob.c), its bytes (fetch.c),
 * all of them (pull.c). */
#ifndef OSH_HUB_PULL_H
#define OSH_HUB_PULL_H
#include <pthread.h>

#include "base/at.h"
#include "hub/ask.h"
#include "hub/mark.h"

typedef struct osh_hub_tree {
    osh_hub_file *files; // own
    size_t n, cap, n_name_bytes;
    bool has_pickles; // weights in a format that is not read
    char commit[41];
} osh_hub_tree;
/* The commit that the revision means now, and its files. */
osh_status osh_hub_tree_get(osh_ctx *cx, osh_hub_tree *out, osh_http *http, const osh_hub *hub,
                            const osh_hub_name *name);
void osh_hub_tree_deinit(osh_ctx *cx, osh_hub_tree *t);
const osh_hub_file *osh_hub_tree_find(const osh_hub_tree *t, const char *path); // NULL: has none
/* Appends the files of a page of the Hub's answer that a model may have; looks at all. */
osh_status osh_hub_tree_read(osh_ctx *cx, osh_hub_tree *t, osh_json_walk *w);
bool osh_hub_is_side_file(const char *path); // config, tokenizer, template, licence: what goes along with weights

typedef struct osh_hub_place { // where files go, and what is common to those that are pulled together
    const osh_hub *hub;
    const osh_hub_name *name;
    const char *commit, *repo, *snapshot; // repo, snapshot: directories
    bool verified;       // an earlier pull has checked the hashes of all files that are there
    bool lacked;         // a file was not there
    const char *headers; // NULL: whole files are wanted; else the directory of files that have a header only
    atomic_bool stop;    // one failed: the others end
    atomic_llong done;   // bytes
    pthread_mutex_t lock;
    pthread_cond_t changed;   // something below, or of a fetch
    struct osh_fetch *open;   // under the lock: files of which others may fetch parts
    osh_status rc;            // under the lock: of what failed first
    char text[4096];          // its message
} osh_hub_place;
void osh_hub_place_fail(osh_ctx *cx, osh_hub_place *p, osh_status rc); // the first is kept; all others end
void osh_hub_place_wait(osh_hub_place *p); // until something changed, or a moment; the lock is held
/* A directory of the repository in the cache, made where it is missing; below: "blobs", "refs", ... */
osh_status osh_hub_place_dir(osh_ctx *cx, osh_at **out, const osh_hub_place *p, const char *below);
/* Downloads a file that is not there, checks it and links it into the snapshot. A file that is there is checked. */
osh_status osh_hub_file_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f);
osh_status osh_hub_file_is_there(osh_ctx *cx, bool *there, const osh_hub_place *p,
                                 const osh_hub_file *f); // by its size
osh_status osh_hub_file_lacks(osh_ctx *cx, int64_t *n_bytes, const osh_hub_place *p, const osh_hub_file *f);
typedef struct osh_hub_target {
    osh_at *dir; // view
    const char *name;
} osh_hub_target;
/* The bytes of a file, checked, as `to`. The parts that an earlier run left stay if they are right. */
osh_status osh_hub_fetch(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f,
                         osh_hub_target to);
/* The SHA-256 of the bytes of the file, or git's SHA-1 of them, as f->etag is one or the other. */
osh_status osh_hub_file_hash(osh_ctx *cx, char hex[65], osh_file *file, const osh_hub_file *f,
                             const osh_hub_place *p);
/* Fetches a part of a file that another thread is at; *did false: there is none. */
osh_status osh_hub_fetch_help(osh_ctx *cx, osh_http *http, osh_hub_place *p, bool *did);
bool osh_hub_fetch_has_parts(const osh_hub_file *f); // several threads can fetch it
osh_status osh_hub_file_url(osh_ctx *cx, char **out, const osh_hub_place *p, const osh_hub_file *f);
osh_status osh_hub_header_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f); // headers.c
osh_status osh_hub_header_link(osh_ctx *cx, const osh_hub_place *p, const osh_hub_file *f); // to what was pulled
#endif
