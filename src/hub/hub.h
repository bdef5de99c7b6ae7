/* hub.h - finds models of the Hugging Face Hub by name, in the cache that Hugging Face's own tools
 * use:
 *
 *   CACHE/models--org--name/refs/main               commit of `main`: 40 hex digits, no newline
 *   CACHE/models--org--name/snapshots/<commit>/     config.json -> ../../blobs/<etag>
 *   CACHE/models--org--name/blobs/<etag>            etag: SHA-256 of a large file, else git's SHA-1
 *
 * Files in the cache are used without a request; missing files are downloaded. */
#ifndef OSH_HUB_H
#define OSH_HUB_H
#include "base/base.h"

typedef struct osh_hub { // settings from the environment
    char *home;     // own: HF_HOME
    char *cache;    // own: HF_HUB_CACHE, or else HF_HOME/hub
    char *endpoint; // own: HF_ENDPOINT, without a slash at its end
    /* Address of the server of rows: HF_DATASETS_SERVER, or else the endpoint with
     * "datasets-server." before the host. */
    char *rows;     // own
    /* Access token: HF_TOKEN, or else the content of the token file. NULL: no token. The token is
     * never logged. */
    char *token;    // own
    bool offline;   // true if HF_HUB_OFFLINE is set: no requests are made
    bool no_links;  // true if HF_HUB_DISABLE_SYMLINKS is set: snapshots contain files, not links
    osh_env_fn env; // returns the environment variables for proxies and certificates
} osh_hub;
/* Reads the settings of the Hub from the variables that `env` returns, such as HF_HOME and
 * HF_TOKEN. The caller frees *out with osh_hub_close. */
osh_status osh_hub_open(osh_ctx *cx, osh_hub **out, osh_env_fn env);
void osh_hub_close(osh_ctx *cx, osh_hub *hub);

typedef enum { OSH_HUB_MODEL, OSH_HUB_DATASET } osh_hub_kind;
typedef struct osh_hub_name { // parts of a name "org/name@revision"
    osh_hub_kind kind;
    char *id, *revision; // own; revision is "main" if the name has no revision
} osh_hub_name;
/* Reads a name of the form org/name or org/name@revision. Sets *is to false if `text` has the form
 * of a path. */
osh_status osh_hub_name_read(osh_ctx *cx, osh_hub_name *out, bool *is, const char *text);
/* Sets *id (own) to "org/name" if the path is the path of a snapshot in the cache, else to NULL. */
osh_status osh_hub_id_of_dir(osh_ctx *cx, char **id, const char *dir);
/* Frees the strings of *name. */
void osh_hub_name_deinit(osh_ctx *cx, osh_hub_name *name);
bool osh_hub_is_commit(const char *text); // true if the text is 40 hex digits
/* True if the path of a file in a repository cannot lead out of a directory: it is relative, and
 * has no ".." and no backslash. */
bool osh_hub_file_is_safe(const char *name);
/* Returns the repository's directory in the cache (own), or NULL if there is no memory. */
char *osh_hub_repo_dir(osh_ctx *cx, const osh_hub *hub, const osh_hub_name *name);

/* Asks the Hub for the current commit of the revision, downloads the files that the cache lacks,
 * and checks them. Then writes the commit to refs/<revision>. *dir (own): path of the snapshot. */
osh_status osh_hub_pull(osh_ctx *cx, char **dir, const osh_hub *hub, const osh_hub_name *name);
/* Works like osh_hub_pull. If the model is dense, downloads only the headers of the files with
 * weights; *dir (own) is then a directory outside of the cache with enough data for a plan. */
osh_status osh_hub_pull_headers(osh_ctx *cx, char **dir, const osh_hub *hub,
                                const osh_hub_name *name);
/* Sets *dir (own) to the directory of `model`. If `model` is an existing directory, or is not a
 * name, *dir is `model` itself. Otherwise *dir is the snapshot in the cache. If files are missing,
 * calls osh_hub_pull; or calls osh_hub_pull_headers if `headers` is true (the caller reads no
 * weights). */
osh_status osh_hub_model(osh_ctx *cx, char **dir, const char *model, bool headers, osh_env_fn env);

typedef struct osh_hub_data { // the rows that a job needs
    const char *dataset, *config, *splits; // dataset: "gsm8k" or "org/name"; NULL: no data set
    int64_t n_samples; // number of rows; 0: all rows of the splits
    bool shuffle, concatenate;
    bool any_number; // true: the caller gives no number of rows
    bool wants_split; // true: fails if no splits are given; false: the default is train
    bool own_text; // true: the caller has a column or template, so the rows are not changed
} osh_hub_data;
/* Sets *path (own) to a .jsonl file with exactly the rows that `d` selects. The rows are downloaded
 * once and stored in HF_HOME. *path is NULL if d->dataset names no data set of the Hub, for example
 * because it is a file. */
osh_status osh_hub_dataset(osh_ctx *cx, char **path, const osh_hub_data *d, osh_env_fn env);
#endif
