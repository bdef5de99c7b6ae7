/* options.h - declares the options of the commands. Each command has a struct, and a table in
 * options.c describes the members of the struct. */
#ifndef OSH_PLAN_OPTIONS_H
#define OSH_PLAN_OPTIONS_H
#include "base/base.h"
#include "base/field.h"

/* Options of the compression command. osh_option_fields has a row for each member that users can
 * set. The names are those of LLM Compressor's arguments. */
typedef struct osh_options {
    char *model, *adapter, *recipe, *output;
    osh_strs dataset; // data sets: the path, and possibly a share of the samples (data/mix.h)
    char *scheme, *method, *quality;
    osh_strs targets, ignore, only;
    char *target;             // engine that must load the output: "vllm", "transformers" or "both"
    char *indivisible;        // treatment of modules whose columns the group size does not divide
    /* number of GPUs of the inference engine; 0 or 1: no check that Linears can be split */
    int64_t tensor_parallel;
    /* Values that replace those of the scheme. 0: no replacement. group_size < 0: one scale for
     * each row. */
    int64_t num_bits, group_size;
    char *symmetric; // symmetric codes: "true" or "false"; NULL: as in the scheme
    /* Each list has one item for all data sets, or one item for each data set. An empty item means
     * that the option is not given for its data set (osh_mix_item). */
    osh_strs text_column, text_template, dataset_config_name, splits;
    char *chat_date, *data_collator;
    int64_t num_calibration_samples; // -1: not given, so osh_samples_asked decides
    int64_t num_calibration_tokens;  // 0: no limit
    int64_t max_seq_length, batch_size, sum_groups, seed;
    bool shuffle_calibration_samples, concatenate_data, pad_to_max_length;
    char *loss_mask; // "none" or "answers"
    char *pipeline;
    osh_strs sequential_targets, calib_passthrough;
    int64_t sequential_targets_per_subgraph;
    char *propagate_error;
    bool moe_calibrate_all_experts;
    int64_t max_shard_size;
    char *arithmetic;
    bool overwrite, restart, json, verbose, largest_layer, only_largest_layer;
    char *models_dir;
    char *device; // cpu, cuda or cuda:N; NULL or auto: a GPU if there is one
    char *device_model; // for `oneshot plan`: name of a GPU model that another machine has
    int64_t device_memory, host_memory, scratch_size; // budgets in bytes; 0: no budget
    char *scratch_dir, *scratch_compression, *mem_opt_level, *calib_cache, *use_gds, *pin_memory;
    bool prefetch;
    int64_t threads, num_workers;
    /* For `oneshot plan`: number of ranks (processes) of the planned job, and number of ranks on
     * each node. 0: the ranks that a launcher has started. */
    int64_t n_ranks, ranks_per_node;
    char *isa;
    bool strict;
    char *progress, *log_level, *log_file, *profile;
    osh_strs checkpoint;
    char *eval; // text or data file on which perplexity is measured; NULL: it is not measured
    /* true if rows that are not used for calibration are evaluated after the run */
    bool held_back;
    char *sample; // prompt that the source and the output continue after the run; NULL: none
    double target_bits; // mean number of bits of all weights; 0: not given
    char *target_size;  // size of the output, such as "90MB" or "0.35x"; NULL: not given
    /* No option sets the members from here on. */
    bool guide; // true if the command also prints decisions, results and the next commands
    bool named;         // true if the program has chosen the name of the output directory
    /* view: name of the model as the user wrote it, for messages; NULL: the same as `model` */
    const char *said;
    /* True for a survey, which measures the loss of each candidate scheme and writes no output. */
    bool survey;
    /* True for a job that only measures the model for the recipe of the run (api/measured.h). Such
     * a job runs the whole model and removes no expert. */
    bool measure;
    /* The recipe with the schemes that a survey chose. It replaces `recipe` and `scheme`. NULL: no
     * survey has run. */
    const char *chosen; // view
    /* The schemes that a survey chose, for the report. (`chosen` is the recipe with these
     * schemes.) */
    const struct osh_mixed *mixed; // view
    /* Smallest --host-memory that is enough for the passes before and after the run; 0: there are
     * no such passes. */
    int64_t others_host;
    /* Text for messages that says which pass needs others_host, such as "the effects of 9 units are
     * measured". */
    const char *others; // view
    /* The next three members are set only if there is one data set. They describe rows that are not
     * used for the calibration, but are evaluated after the run.
     * held_splits: selects the rows, such as "rows[512:516]"; NULL: none.
     * held_name: name of the rows for messages.
     * held_host: smallest --host-memory that is enough for the evaluation. */
    const char *held_splits, *held_name; // views
    int64_t held_host;
    struct osh_ranks *ranks; // view: the processes that share this job; NULL: one process
} osh_options;
extern const osh_field osh_option_fields[];
/* True if several ranks (processes) share the job. */
static inline bool osh_is_divided(const osh_options *o) { return o->ranks || o->n_ranks > 1; }
/* True if the value of --target is this engine, and not "both". */
bool osh_target_is(const osh_options *o, const char *engine);
/* True if measured losses choose the scheme of each unit (--target-bits or --target-size). */
bool osh_wants_choice(const osh_options *o);
/* True if measured losses choose schemes, or if the job is the survey that measures the losses. */
bool osh_wants_survey(const osh_options *o);
/* true if values in the scratch directory are compressed */
bool osh_scratch_is_packed(const osh_options *o);
/* true if only the tokens of answers count in statistics */
bool osh_masks_answers(const osh_options *o);
/* Returns the largest number of calibration samples; 0: no limit. There is no limit if the user
 * limits only the number of tokens. */
int64_t osh_samples_asked(const osh_options *o);
/* Sets one option of a table from the text `value`. The name may have underscores or dashes. If the
 * option is a list, the text becomes its next item. The caller must initialize `object` with
 * osh_fields_default, and free it with osh_fields_deinit.
 * given: records which options were set, so that setting an option twice is an error. (Lists may be
 * set several times.) If `given` is NULL, this is no error, and the last value counts. */
osh_status osh_argument_set(osh_ctx *cx, osh_given *given, const osh_field *fields, void *object,
                            const char *name, const char *value);
/* Sets one option of `oneshot`, like osh_argument_set without `given`. */
osh_status osh_option_set(osh_ctx *cx, osh_options *opt, const char *name, const char *value);
/* Arguments of LLM Compressor's oneshot() that this program does not have. In a row, `values` lists
 * the values that this program accepts because they change nothing. If `values` is NULL, the
 * program accepts all values. If `values` is "", it accepts none. `doc` gives the reason.
 * osh_option_python returns OSH_OK for the accepted values. For other values it fails, and the
 * message says what the user can do instead. */
extern const osh_field osh_python_fields[];
osh_status osh_option_python(osh_ctx *cx, const osh_field *f, const char *value);

typedef struct osh_eval_options {
    char *model, *dataset, *dataset_config_name, *splits;
    char *sample; // prompt that the model continues; NULL: none
    char *save_logits, *panel;
    char *adapter, *reference, *per_token, *text_column, *text_template, *chat_date, *models_dir;
    int64_t max_seq_length, stride, first_window, max_windows, batch_size, threads;
    int64_t host_memory, device_memory; // budgets in bytes; 0: no budget
    char *isa, *device, *use_gds;
    bool json, no_activation_quantization;
    char *progress, *log_level;
    struct osh_ranks *ranks; // view: the processes that share this job; NULL: one process
} osh_eval_options;
extern const osh_field osh_eval_fields[];

typedef struct osh_generate_options {
    char *adapter, *input_ids, *chat_date, *models_dir;
    bool chat, json, use_cache, no_activation_quantization;
    int64_t max_new_tokens, top_k, seed, threads;
    double temperature, top_p;
    int64_t host_memory; // budget in bytes; 0: no budget
    char *device, *isa, *progress, *log_level;
} osh_generate_options;
extern const osh_field osh_generate_fields[];

typedef struct osh_bench_options {
    char *dir, *isa, *device;
    double seconds;
    int64_t threads, side;
    bool json;
} osh_bench_options;
extern const osh_field osh_bench_fields[];

typedef struct osh_pull_options {
    char *progress, *log_level;
} osh_pull_options;
extern const osh_field osh_pull_fields[];

typedef struct osh_compare_options {
    char *output;
} osh_compare_options;
extern const osh_field osh_compare_fields[];

typedef struct osh_report_options {
    char *output, *format;
} osh_report_options;
extern const osh_field osh_report_fields[];

typedef struct osh_check_options {
    char *models_dir, *logits;
    int64_t threads;
    char *isa, *progress, *log_level;
} osh_check_options;
extern const osh_field osh_check_fields[];

typedef struct osh_verify_options {
    char *model, *adapter, *models_dir;
    int64_t threads;
    bool json;
    char *log_level;
    struct osh_ranks *ranks; // view: the processes that share this job; NULL: one process
    /* Set to true when all checks are done, even if they have found errors. NULL: the caller does
     * not need this. */
    bool *complete;          // view
} osh_verify_options;
extern const osh_field osh_verify_fields[];
#endif
