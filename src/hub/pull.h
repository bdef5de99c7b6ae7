/* pull.h - declares the steps of a pull, the download of a model. tree.c lists the repository's
 * files, pull.c downloads all files, blob.c downloads one file, and fetch.c downloads the bytes of
 * a file. */
#ifndef OSH_HUB_PULL_H
#define OSH_HUB_PULL_H
#include <pthread.h>

#include "base/at.h"
#include "hub/ask.h"
#include "hub/mark.h"

typedef struct osh_hub_tree {
    osh_hub_file *files; // own
    size_t n, cap, n_name_bytes;
    /* True if the repository has weights in a format that this program does not read. */
    bool has_pickles;
    char commit[41];
} osh_hub_tree;
/* Asks the Hub for the current commit of the revision and for the list of files of this commit. */
osh_status osh_hub_tree_get(osh_ctx *cx, osh_hub_tree *out, osh_http *http, const osh_hub *hub,
                            const osh_hub_name *name);
/* Frees the list of files. */
void osh_hub_tree_deinit(osh_ctx *cx, osh_hub_tree *t);
/* Returns the file with this path in the list t (a view), or NULL if the list does not have it. */
const osh_hub_file *osh_hub_tree_find(const osh_hub_tree *t, const char *path);
/* Reads a page of the Hub's list of files. Appends to the list t the files that may be part of a
 * model. Checks the names and sizes of all files of the page. */
osh_status osh_hub_tree_read(osh_ctx *cx, osh_hub_tree *t, osh_json_walk *w);
/* True for side files, which are copied together with weights: config, tokenizer, template,
 * licence. */
bool osh_hub_is_side_file(const char *path);

typedef struct osh_hub_place { // directories and shared state of files that are downloaded together
    const osh_hub *hub;
    const osh_hub_name *name;
    /* repo, snapshot: paths of the repository and of the snapshot in the cache. */
    const char *commit, *repo, *snapshot;
    bool verified; // true if an earlier pull has checked the hashes of all files of the snapshot
    bool lacked;         // true if a file of the snapshot was missing
    /* Directory for files that have only a header; NULL: whole files are downloaded. */
    const char *headers;
    atomic_bool stop;    // true if a download has failed; all threads then end
    atomic_llong done;   // number of bytes downloaded so far
    pthread_mutex_t lock;
    pthread_cond_t changed;   // signalled when a member below or an osh_fetch changes
    struct osh_fetch *open;   // files of which other threads may fetch parts; protected by the lock
    osh_status rc;            // status of the first failure; protected by the lock
    char text[4096];          // message of rc
} osh_hub_place;
/* Records the failure rc and its message, unless an earlier failure was recorded, and stops all
 * threads. */
void osh_hub_place_fail(osh_ctx *cx, osh_hub_place *p, osh_status rc);
/* Waits for the condition `changed`, at most 0.1 s. The caller holds the lock. */
void osh_hub_place_wait(osh_hub_place *p);
/* Opens the directory `below` ("blobs", "refs", ...) of the repository in the cache, and makes it
 * if it is missing. */
osh_status osh_hub_place_dir(osh_ctx *cx, osh_at **out, const osh_hub_place *p, const char *below);
/* Downloads the file f if the snapshot lacks f or has wrong bytes. Checks the bytes, and links the
 * file into the snapshot. */
osh_status osh_hub_file_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f);
/* Sets *there to true if the snapshot has the file. Compares only the size, not the hash. */
osh_status osh_hub_file_is_there(osh_ctx *cx, bool *there, const osh_hub_place *p,
                                 const osh_hub_file *f);
/* Sets *n_bytes to the number of bytes of the file that are still to be downloaded. */
osh_status osh_hub_file_lacks(osh_ctx *cx, int64_t *n_bytes, const osh_hub_place *p,
                              const osh_hub_file *f);
typedef struct osh_hub_target {
    osh_at *dir; // view
    const char *name;
} osh_hub_target;
/* Fetches the bytes of a file, checks them and renames the file to `to`. Continues with the bytes
 * that an earlier run has fetched. If the hash is wrong, fetches the whole file again. */
osh_status osh_hub_fetch(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f,
                         osh_hub_target to);
/* Computes the hash of the file's bytes with the algorithm of f->etag: SHA-256, or git's SHA-1. */
osh_status osh_hub_file_hash(osh_ctx *cx, char hex[65], osh_file *file, const osh_hub_file *f,
                             const osh_hub_place *p);
/* Helps another thread: fetches a part of the file that this other thread downloads. *did is false
 * if no part is left to fetch. */
osh_status osh_hub_fetch_help(osh_ctx *cx, osh_http *http, osh_hub_place *p, bool *did);
bool osh_hub_fetch_has_parts(const osh_hub_file *f); // true if several threads can fetch the file
/* Sets *out (own) to the address of the file f on the Hub. */
osh_status osh_hub_file_url(osh_ctx *cx, char **out, const osh_hub_place *p, const osh_hub_file *f);
/* Downloads the header of the safetensors file f and writes a file with only the header
 * (headers.c). */
osh_status osh_hub_header_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p,
                               const osh_hub_file *f);
/* Makes a link to the downloaded file f in the directory p->headers. */
osh_status osh_hub_header_link(osh_ctx *cx, const osh_hub_place *p, const osh_hub_file *f);
#endif
