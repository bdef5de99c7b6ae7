/* options_python.c - handles the arguments of LLM Compressor's oneshot() that this program does not
 * have. A value is accepted if it does not change the output of this program. For other values, the
 * error says what the user can do instead. */
#include <string.h>
#include <strings.h>

#include "match/options.h"

#define SWITCH(text, on, why) {.name = text, .type = OSH_F_BOOL, .values = on, .doc = why}
#define VALUE(text, on, why) {.name = text, .type = OSH_F_STR, .values = on, .doc = why}
const osh_field osh_python_fields[] = {
    SWITCH("save_compressed", "true", "the output is a compressed-tensors checkpoint"),
    SWITCH("trust_remote_code_model", NULL, "the program never runs code of a model"),
    SWITCH("tie_word_embeddings", "true",
           "a head is untied if a target names it: --targets Linear,lm_head"),
    SWITCH("clear_sparse_session", NULL, "the program has no session"),
    SWITCH("streaming", NULL, "data are always read as a stream"),
    SWITCH("overwrite_cache", NULL, "no data are kept"),
    SWITCH("quantization_aware_calibration", NULL, "without effect in LLM Compressor too"),
    SWITCH("sequential_prefetch", NULL,
           "--prefetch reads weights ahead, and values that are on the disk"),
    SWITCH("use_loss_mask", "false", "want --loss-mask answers"),
    VALUE("min_tokens_per_module", NULL, "without effect in LLM Compressor too"),
    VALUE("preprocessing_num_workers", NULL, "--threads is the number of threads"),
    VALUE("dataloader_num_workers", NULL, "--threads is the number of threads"),
    VALUE("tracing_ignore", NULL, "no code is traced"),
    VALUE("remove_columns", NULL, "only the text's column is read"),
    VALUE("precision", "auto", "weights keep the dtype that they have in the checkpoint"),
    VALUE("model_revision", "main", "want --model org/name@revision"),
    VALUE("sequential_offload_device", "cpu", "--mem-opt-level is the location of values"),
    VALUE("config_name", "", "config.json of --model is read: want it there"),
    VALUE("tokenizer", "", "tokenizer.json of --model is read: want it there"),
    VALUE("processor", "", "tokenizer.json of --model is read: want it there"),
    VALUE("recipe_args", "",
          "LLM Compressor does not evaluate them either: want the values in the recipe"),
    VALUE("stage", "", "all stages of a recipe are run: want a recipe with that stage alone"),
    VALUE("preprocessing_func", "",
          "the program runs no code of a caller: want the texts in the file"),
    VALUE("raw_kwargs", "", "want --dataset-config-name and --splits"),
    VALUE("dvc_data_repository", "", "the program reads no such repository: want a file"),
    VALUE("log_dir", "", "want --log-file FILE"),
    {0},
};

static bool asks_for_it(const osh_field *f, const char *value)
{
    return !f->values || (*f->values && !strcasecmp(value, f->values));
}

osh_status osh_option_python(osh_ctx *cx, const osh_field *f, const char *value)
{
    osh_status rc = OSH_OK;
    if (asks_for_it(f, value ? value : ""))
        osh_log(cx, OSH_LOG_DEBUG, "%s has the value that the program uses: %s", f->name, f->doc);
    else if (*f->values)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: want %s, got '%s': %s", f->name, f->values, value, f->doc);
    else OSH_FAIL(cx, OSH_E_USAGE, "%s is not an option here: %s", f->name, f->doc);
done:
    return rc;
}
