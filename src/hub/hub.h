/* hub.h - models of the Hugging Face Hub by name, in the cache that its own tools keep:
 *
 *   CACHE/models--org--name/refs/main               commit of `main`: 40 hex digits, no newline
 *   CACHE/models--org--name/snapshots/<commit>/     config.json -> ../../blobs/<etag>
 *   CACHE/models--org--name/blobs/<etag>            a large file's SHA-256, a small one's git SHA-1
 *
 * Cached files are used as they are, without a request; missing files are pulled. */
#ifndef OSH_HUB_H
#define OSH_HUB_H
#include "base/base.h"

typedef struct osh_hub { // settings from the environment
    char *home;     // own: HF_HOME
    char *cache;    // own: HF_HUB_CACHE, else HF_HOME/hub
    char *endpoint; // own: HF_ENDPOINT, without a slash at its end
    char *rows;     // own: HF_DATASETS_SERVER, else datasets-server. and the endpoint's host
    char *token;    // own: HF_TOKEN, else from its file; NULL: none. Never logged
    bool offline;   // HF_HUB_OFFLINE
    bool no_links;  // HF_HUB_DISABLE_SYMLINKS: snapshots hold files
    osh_env_fn env; // for settings that a transfer reads: proxies, certificates
} osh_hub;
osh_status osh_hub_open(osh_ctx *cx, osh_hub **out, osh_env_fn env);
void osh_hub_close(osh_ctx *cx, osh_hub *hub);
bool osh_hub_true(const char *value); // true for 1, on, yes or true, in any case

typedef enum { OSH_HUB_MODEL, OSH_HUB_DATASET } osh_hub_kind;
typedef struct osh_hub_name { // "org/name@revision"
    osh_hub_kind kind;
    char *id, *revision; // own; revision is "main" if none is given
} osh_hub_name;
/* *is is false if text does not have the form of such a name but of a path. */
osh_status osh_hub_name_read(osh_ctx *cx, osh_hub_name *out, bool *is, const char *text);
void osh_hub_name_deinit(osh_ctx *cx, osh_hub_name *name);
bool osh_hub_is_commit(const char *text); // 40 hex digits
/* True if the name of a file of a repository stays inside a directory: relative, no "..", no
 * backslash. */
bool osh_hub_file_is_safe(const char *name);
char *osh_hub_repo_dir(osh_ctx *cx, const osh_hub *hub,
                       const osh_hub_name *name); // own; NULL: no memory

/* Finds the snapshot of a model in the cache; the caller frees both texts. *dir is NULL if there is
 * none. *missing lists the files that it lacks; NULL if it has all. */
osh_status osh_hub_find(osh_ctx *cx, char **dir, char **missing, const osh_hub *hub,
                        const osh_hub_name *name);
/* Asks the Hub for the current commit of the revision, downloads the files that the cache lacks,
 * checks them, and points the revision to the commit once all files are there. *dir is the
 * snapshot; the caller frees it. */
osh_status osh_hub_pull(osh_ctx *cx, char **dir, const osh_hub *hub, const osh_hub_name *name);
/* Pulls like osh_hub_pull, but only the headers of dense weights: *dir serves for a plan, and is
 * outside the cache. */
osh_status osh_hub_pull_headers(osh_ctx *cx, char **dir, const osh_hub *hub,
                                const osh_hub_name *name);
/* Returns the directory of `model`, which the caller frees: `model` itself if it exists or is not a
 * name, else its snapshot, pulled if the cache does not have all of it. With headers no weight will
 * be read, so the headers of the weights are enough. */
osh_status osh_hub_model(osh_ctx *cx, char **dir, const char *model, bool headers, osh_env_fn env);

typedef struct osh_hub_data { // the rows that a job wants
    const char *dataset, *config, *splits; // "gsm8k" or "org/name"; NULL: not given
    int64_t n_samples; // 0: all rows of the splits
    bool shuffle, concatenate;
    bool wants_split; // without splits the job fails; else they default to train
    bool own_text; // a column or template was given: keep the rows as they are, for every name
} osh_hub_data;
/* Returns the path of a .jsonl with exactly these rows; the caller frees it. The rows are asked for
 * once and kept in HF_HOME. *path is NULL if d->dataset is a file or not a name. */
osh_status osh_hub_dataset(osh_ctx *cx, char **path, const osh_hub_data *d, osh_env_fn env);
#endif
