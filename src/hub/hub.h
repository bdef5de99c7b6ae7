/* hub.h - models of the Hugging Face Hub by name, in the cache that its own tools keep:
 *
 *   CACHE/models--org--name/refs/main               40 hex digits, no newline: the commit that was `main` last
 *   CACHE/models--org--name/snapshots/<commit>/     config.json -> ../../blobs/<etag>
 *   CACHE/models--org--name/blobs/<etag>            SHA-256 of a large file, git's SHA-1 of a small one
 *
 * What is cached is taken as it is, without asking a network; what is not is pulled. */
#ifndef OSH_HUB_H
#define OSH_HUB_H
#include "base/base.h"

typedef struct osh_hub { // what the environment says
    char *home;     // own: HF_HOME
    char *cache;    // own: HF_HUB_CACHE, else HF_HOME/hub
    char *endpoint; // own: HF_ENDPOINT, no slash at its end
    char *rows;     // own: the server of rows: HF_DATASETS_SERVER, else datasets-server. and the endpoint
    char *token;    // own: HF_TOKEN, else of its file; NULL: none. Never logged
    bool offline;   // HF_HUB_OFFLINE
    bool no_links;  // HF_HUB_DISABLE_SYMLINKS: snapshots have files
    osh_env_fn env; // for what a transfer asks: proxies, certificates
} osh_hub;
osh_status osh_hub_open(osh_ctx *cx, osh_hub **out, osh_env_fn env);
void osh_hub_close(osh_ctx *cx, osh_hub *hub);
bool osh_hub_true(const char *value); // 1, on, yes or true, in any case

typedef enum { OSH_HUB_MODEL, OSH_HUB_DATASET } osh_hub_kind;
typedef struct osh_hub_name { // "org/name@revision"
    osh_hub_kind kind;
    char *id, *revision; // own; "main" where none is given
} osh_hub_name;
/* *is false: text has not the form of such a name, but that of a path. */
osh_status osh_hub_name_read(osh_ctx *cx, osh_hub_name *out, bool *is, const char *text);
void osh_hub_name_deinit(osh_ctx *cx, osh_hub_name *name);
bool osh_hub_is_commit(const char *text); // 40 hex digits
/* A file's name inside a repository that stays inside a directory: relative, no "..", no backslash. */
bool osh_hub_file_is_safe(const char *name);
char *osh_hub_repo_dir(osh_ctx *cx, const osh_hub *hub, const osh_hub_name *name); // own; NULL: no memory

/* The snapshot of a model in the cache. *dir NULL: there is none. *missing: files that it lacks, as text; NULL: none,
 * it is whole. Both own. */
osh_status osh_hub_find(osh_ctx *cx, char **dir, char **missing, const osh_hub *hub, const osh_hub_name *name);
/* Asks the Hub what the revision means now, downloads what the cache lacks of that, checks it, and moves the revision
 * there when all is whole. *dir: the snapshot, own. */
osh_status osh_hub_pull(osh_ctx *cx, char **dir, const osh_hub *hub, const osh_hub_name *name);
/* So, but of dense weights their headers only: *dir is for a plan, and is not in the cache. */
osh_status osh_hub_pull_headers(osh_ctx *cx, char **dir, const osh_hub *hub, const osh_hub_name *name);
/* The directory that `model` means: itself, if it is there or no name; else its snapshot, pulled where the cache has
 * none that is whole; headers: no weight will be read, so their headers will do. own */
osh_status osh_hub_model(osh_ctx *cx, char **dir, const char *model, bool headers, osh_env_fn env);

typedef struct osh_hub_data { // rows that a job wants
    const char *dataset, *config, *splits; // "gsm8k" or "org/name"; config, splits NULL: not given
    int64_t n_samples; // 0: all of the splits
    bool shuffle, concatenate;
    bool wants_split; // splits NULL is a mistake, and not train
    bool own_text; // a column or template was given: rows as they are, whatever the name
} osh_hub_data;
/* *path: a .jsonl with these rows and no others, own, asked for once and kept in HF_HOME. NULL: d->dataset is a file,
 * or no name. */
osh_status osh_hub_dataset(osh_ctx *cx, char **path, const osh_hub_data *d, osh_env_fn env);
#endif
