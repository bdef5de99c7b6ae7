/* hf_quant.c - finds the description of a quantized source.
 *
 *   - In config.json it is the value of quantization_config, of quantization_config of the text
 *     model, or of compression_config.
 *   - Each of quantize_config.json and quant_config.json is a description as a whole.
 *   - In hf_quant_config.json it is the value of the key "quantization".
 *
 * One of the other files is read only if config.json has none of the three keys. Rows of
 * quant/sources.def name the libraries that write these files. */
#include "io/hf_quant.h"

#include <string.h>

#include "base/file.h"
#include "base/name.h"

enum { MAX_QUANT_BYTES = 16 << 20 };

typedef struct quant_file {
    const char *name;
    /* Key of the file whose value is the description; NULL: the file itself is the description. */
    const char *inside;
    bool copy;          // true: the file only repeats a key of config.json, so it is not read
} quant_file;

static const quant_file files[] = {
    {"quantize_config.json", NULL, false},
    {"quant_config.json", NULL, false},
    {"hf_quant_config.json", "quantization", false},
    {"quantization_config.json", NULL, true},
};
enum { N_FILES = sizeof files / sizeof *files };

const char *osh_hf_quant_file(size_t i) { return i < N_FILES ? files[i].name : NULL; }

bool osh_hf_quant_is_file(const char *name)
{
    for (size_t i = 0; i < N_FILES; i++)
        if (!strcmp(name, files[i].name)) return true;
    return false;
}

static const cJSON *quant_member(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
    return v && !cJSON_IsNull(v) ? v : NULL;
}

/* Reads the file at c->quantization_path. */
static osh_status quant_read_file(osh_ctx *cx, osh_hf_config *c, const quant_file *f)
{
    osh_status rc = OSH_OK;
    const char *path = c->quantization_path;
    OSH_TRY(osh_json_read(cx, &c->quantization_json, path, MAX_QUANT_BYTES, OSH_JSON_NAN));
    const cJSON *q = c->quantization_json;
    if (f->inside) q = quant_member(q, f->inside);
    if (!cJSON_IsObject(q))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s%s is not an object", path,
                 f->inside ? "the value of the key " : "the file", f->inside ? f->inside : "");
    c->quantization_config = q;
done:
    return rc;
}

/* Reads the first file of the table `files` that exists beside config.json. */
static osh_status quant_find_file(osh_ctx *cx, osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    size_t n_dir = (size_t)(osh_path_last(c->path) - c->path);
    for (size_t i = 0; i < N_FILES && !c->quantization_config; i++) {
        if (files[i].copy) continue;
        osh_free(cx, c->quantization_path);
        c->quantization_path = osh_sprintf(cx, "%.*s%s", (int)n_dir, c->path, files[i].name);
        if (!c->quantization_path) OSH_TRY(OSH_E_NOMEM);
        if (osh_file_exists(c->quantization_path)) OSH_TRY(quant_read_file(cx, c, &files[i]));
    }
done:
    return rc;
}

osh_status osh_hf_quant_read(osh_ctx *cx, osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    const cJSON *q = quant_member(c->json, "quantization_config");
    if (!q) q = quant_member(c->model, "quantization_config");
    if (!q) q = quant_member(c->json, "compression_config");
    if (q && !cJSON_IsObject(q))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: quantization_config is not an object", c->path);
    c->quantization_config = q;
    if (!q) OSH_TRY(quant_find_file(cx, c));
    if (c->quantization_json) goto done;
    osh_free(cx, c->quantization_path);
    if (!(c->quantization_path = osh_strdup(cx, c->path))) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}
