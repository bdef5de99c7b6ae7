/* ckpt_other.c - explains why a path is not a transformers checkpoint. Recognizes other kinds of
 * directories by their file names, and fails with a message that says how to get a checkpoint. */
#include "io/ckpt_other.h"

#include <string.h>

#include "base/file.h"
#include "base/name.h"
#include "text/json.h"

enum { MAX_ADAPTER_BYTES = 1 << 20 };

#define TO_SAFETENSORS                                                                            \
    "want safetensors, which `python -c \"from transformers import AutoModelForCausalLM as M; "   \
    "M.from_pretrained('OLD').save_pretrained('NEW')\"` writes"

typedef struct other {
    /* name of an entry of the directory; "*.bin": any name that ends in .bin */
    const char *name;
    const char *is;   // description of the directory for the message
} other;

static const other others[] = {
    {"model_index.json", "is a pipeline of diffusers: want the directory of one of its models"},
    {"snapshots", "is a repository in the Hub's cache: want --model ORG/NAME, or a directory below "
                  "snapshots"},
    {"*.gguf", "holds GGUF files: want the checkpoint that they were converted from"},
    {"params.json", "has the layout of Mistral's or Meta's own programs (params.json): want the "
                    "layout of transformers (config.json, model.safetensors)"},
    {"pytorch_model.bin", "has pickled weights, and loading these can run code: " TO_SAFETENSORS},
    {"pytorch_model.bin.index.json",
     "has pickled weights, and loading these can run code: " TO_SAFETENSORS},
    {"*.bin", "has pickled weights, and loading these can run code: " TO_SAFETENSORS},
    {"*.pth", "has pickled weights, and loading these can run code: " TO_SAFETENSORS},
    {"*.pt", "has pickled weights, and loading these can run code: " TO_SAFETENSORS},
    {"tf_model.h5", "has weights of TensorFlow: want safetensors"},
    {"flax_model.msgpack", "has weights of Flax: want safetensors"},
    {"*.onnx", "is an ONNX model: want the checkpoint that it was exported from"},
    {"*.nemo", "is a model of NeMo: want the checkpoint in the layout of transformers"},
};

static bool name_is(const char *name, const char *pattern)
{
    return *pattern == '*' ? osh_ends_with(name, strlen(name), pattern + 1)
                           : !strcmp(name, pattern);
}

/* Fails. The message says that the directory contains an adapter, and names the model of the
 * adapter. */
static osh_status refuse_adapter(osh_ctx *cx, const char *dir)
{
    osh_status rc = OSH_OK;
    cJSON *json = NULL; // own
    char *path = osh_path_join(cx, dir, "adapter_config.json"); // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_json_read(cx, &json, path, MAX_ADAPTER_BYTES, 0));
    const cJSON *base =
        cJSON_IsObject(json)
            ? cJSON_GetObjectItemCaseSensitive(json, "base_model_name_or_path") : NULL;
    OSH_FAIL(cx, OSH_E_FORMAT,
             "%s: is a PEFT adapter%s%.200s (adapter_config.json): want the merged model, or the "
             "base model with this directory as --adapter",
             dir, cJSON_IsString(base) ? " of " : "",
             cJSON_IsString(base) ? base->valuestring : "");
done:
    cJSON_Delete(json);
    osh_free(cx, path);
    return rc;
}

static osh_status refuse_file(osh_ctx *cx, const char *path)
{
    if (!osh_file_exists(path))
        return osh_fail(cx, OSH_E_IO,
                        "%s: is not a directory, wanted a model's directory: nothing has this name",
                        path);
    if (name_is(path, "*.gguf"))
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: is a GGUF file, wanted a model's directory: the checkpoint that it "
                        "was converted from",
                        path);
    return osh_fail(cx, OSH_E_IO, "%s: is not a directory, wanted a model's directory%s", path,
                    name_is(path, "*.safetensors") ? ", such as the directory of this file" : "");
}

osh_status osh_ckpt_refuse_other(osh_ctx *cx, const char *path, const char *lacks)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    if (!osh_dir_exists(path)) return refuse_file(cx, path);
    OSH_TRY(osh_dir_list(cx, &names, &n, path));
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], "adapter_config.json")) OSH_TRY(refuse_adapter(cx, path));
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        for (size_t i = 0; i < n; i++)
            if (name_is(names[i], others[k].name))
                OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s, and %s", path, lacks, others[k].is);
    OSH_FAIL(cx, OSH_E_IO, "%s: %s, wanted a model as transformers saves it", path, lacks);
done:
    osh_strings_free(cx, names, n);
    return rc;
}
