/* hub.h - finds models of the Hugging Face Hub by name, in the cache that Hugging Face's own tools
 * use:
 *
 *   CACHE/models--org--name/refs/main               commit of `main`: 40 hex digits, no newline
 *   CACHE/models--org--name/snapshots/<commit>/     config.json -> ../../blobs/<etag>
 *   CACHE/models--org--name/blobs/<etag>            a large file's SHA-256, a small one's git SHA-1
 *
 * Files in the cache are used without a request; missing files are downloaded. */
#ifndef OSH_HUB_H
#define OSH_HUB_H
#include "base/base.h"

typedef struct osh_hub { // settings from the environment
    char *home;     // own: HF_HOME
    char *cache;    // own: HF_HUB_CACHE, or else HF_HOME/hub
    char *endpoint; // own: HF_ENDPOINT, without a slash at its end
    char *rows;     // own: HF_DATASETS_SERVER, or else "datasets-server." before the endpoint's
                    // host
    char *token;    // own: HF_TOKEN, or else the content of its file; NULL: no token; never logged
    bool offline;   // HF_HUB_OFFLINE
    bool no_links;  // HF_HUB_DISABLE_SYMLINKS: snapshots contain files, not links
    osh_env_fn env; // gives settings that a transfer reads: proxies, certificates
} osh_hub;
osh_status osh_hub_open(osh_ctx *cx, osh_hub **out, osh_env_fn env);
void osh_hub_close(osh_ctx *cx, osh_hub *hub);

typedef enum { OSH_HUB_MODEL, OSH_HUB_DATASET } osh_hub_kind;
typedef struct osh_hub_name { // "org/name@revision"
    osh_hub_kind kind;
    char *id, *revision; // own; revision is "main" if the name has none
} osh_hub_name;
/* Reads such a name. *is is false if `text` has the form of a path. */
osh_status osh_hub_name_read(osh_ctx *cx, osh_hub_name *out, bool *is, const char *text);
/* Sets *id (own) to "org/name" if the path is that of a snapshot in the cache, else to NULL. */
osh_status osh_hub_id_of_dir(osh_ctx *cx, char **id, const char *dir);
void osh_hub_name_deinit(osh_ctx *cx, osh_hub_name *name);
bool osh_hub_is_commit(const char *text); // 40 hex digits
/* True if the name of a file of a repository cannot leave a directory: it is relative, without ".."
 * and backslash. */
bool osh_hub_file_is_safe(const char *name);
char *osh_hub_repo_dir(osh_ctx *cx, const osh_hub *hub,
                       const osh_hub_name *name); // own; NULL: no memory

/* Asks the Hub for the current commit of the revision, downloads the files that the cache lacks,
 * checks them, and points the revision to the commit when all files are complete. *dir is the
 * snapshot; the caller frees it. */
osh_status osh_hub_pull(osh_ctx *cx, char **dir, const osh_hub *hub, const osh_hub_name *name);
/* Works like osh_hub_pull, but downloads only the headers of dense weights. *dir is enough for a
 * plan; it is outside of the cache. */
osh_status osh_hub_pull_headers(osh_ctx *cx, char **dir, const osh_hub *hub,
                                const osh_hub_name *name);
/* Returns the directory of `model`, which the caller frees: `model` itself if it exists or is not a
 * name, else its snapshot, pulled if the cache does not have all of it. If `headers` is true, no
 * weight will be read, so their headers are enough. */
osh_status osh_hub_model(osh_ctx *cx, char **dir, const char *model, bool headers, osh_env_fn env);

typedef struct osh_hub_data { // the rows that a job needs
    const char *dataset, *config, *splits; // dataset: "gsm8k" or "org/name"; NULL: not given
    int64_t n_samples; // number of rows; 0: all rows of the splits
    bool shuffle, concatenate;
    bool wants_split; // true: without splits the job fails; false: the default is train
    bool own_text; // true: a column or template was given, so the rows stay as they are
} osh_hub_data;
/* Returns the path of a .jsonl with exactly these rows; the caller frees it. The rows are
 * downloaded once and kept in HF_HOME. *path is NULL if d->dataset is a file or not a name. */
osh_status osh_hub_dataset(osh_ctx *cx, char **path, const osh_hub_data *d, osh_env_fn env);
#endif
