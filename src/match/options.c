/* options.c - defines the tables of options, with one row for each flag of a command. The
 * command-line parser, --help and the man page read these tables. */
#include "base/near.h"
#include "match/options.h"

#include <string.h>

/* Rows that several tables of options share. A table defines the macro ROW for its own struct
 * before it uses them. */
#define MODELS_DIR_ROW                                                                             \
    {ROW(models_dir), .path = OSH_PATH_READ, .type = OSH_F_STR,                                    \
     .doc = "directory with architecture templates in addition to the built-in ones"}
#define LOG_LEVEL_ROW                                                                              \
    {ROW(log_level), .type = OSH_F_STR, .dflt = "warn", .values = "error|warn|info|debug",         \
     .doc = "least severe messages on standard error"}
#define ISA_ROW                                                                                    \
    {ROW(isa), .type = OSH_F_STR, .dflt = "auto",                                                  \
     .values = "auto|generic|avx2|avx512|avx512_bf16|amx",                                         \
     .doc = "instruction set of all kernels and libraries. auto: the best of the CPU. Changes "    \
            "last bits"}

#define ROW(field) .name = #field, .offset = offsetof(osh_options, field)
const osh_field osh_option_fields[] = {
    {ROW(model), .path = OSH_PATH_READ, .group = "Model",
     .brief = "directory, or org/name[@revision]", .type = OSH_F_STR,
     .doc = "directory of a Hugging Face checkpoint, or org/name[@revision] of the Hub "
            "(docs/how-to/hub.md)"},
    {ROW(adapter), .path = OSH_PATH_READ, .brief = "LoRA adapter to merge into the model",
     .type = OSH_F_STR,
     .doc = "directory of a LoRA adapter of PEFT, which is merged into the model when weights are "
            "read (docs/how-to/adapters.md)"},
    {ROW(output), .path = OSH_PATH_OUTPUT, .brief = "directory to write [MODEL-SCHEME]",
     .type = OSH_F_STR, .alias = "output_dir",
     .doc = "directory to write (default: the model's name and the scheme, such as "
            "SmolLM2-135M-W4A16, in the current directory)"},
    MODELS_DIR_ROW,
    {ROW(max_shard_size), .type = OSH_F_BYTES, .dflt = "20GB", .min = 1, .max = 1e15,
     .doc = "largest size of an output file, in decimal units"},
    {ROW(target_bits), .type = OSH_F_FLOAT, .dflt = "0", .min = 0, .max = 16,
     .doc =
         "largest average number of bits of a quantized weight, with scales. The program chooses "
         "the bits of each module, so that the loss is small (docs/how-to/mixed-precision.md). 0: "
         "the bits of the scheme"},
    {ROW(target_size), .type = OSH_F_STR,
     .doc = "like --target-bits, but a size: 0.35x of the bytes that the quantized modules have "
            "in the source, or 90MB for the whole output"},
    {ROW(scheme), .group = "Scheme", .brief = "such as W4A16 (oneshot help schemes)",
     .type = OSH_F_STR,
     .doc = "quantization scheme such as W4A16, instead of a recipe (list: oneshot help schemes)"},
    {ROW(quality), .brief = "fast, gptq, or best (least loss)", .type = OSH_F_STR,
     .values = "fast|gptq|best",
     .doc = "method that chooses codes: fast rounds to nearest without data, gptq is GPTQ as in "
            "LLM Compressor, best has the least loss (docs/explanation/quality.md). Keys of a "
            "recipe have priority"},
    {ROW(recipe), .path = OSH_PATH_READ, .brief = "instead: LLM Compressor recipe",
     .type = OSH_F_STR, .doc = "YAML file with an LLM Compressor recipe"},
    {ROW(ignore), .brief = "modules that stay dense", .type = OSH_F_STRS,
     .doc = "modules that stay dense, separated by commas, with --scheme; may be repeated"},
    {ROW(only), .type = OSH_F_STRS,
     .doc = "modules to quantize, by name or re:, separated by commas. All other tensors are "
            "copied bit for bit, even codes of a compressed-tensors source. May be repeated"},
    {ROW(target), .type = OSH_F_STR, .dflt = "both", .values = "both|vllm|transformers",
     .doc = "engines that load the output. vllm quantizes experts that only vLLM finds; "
            "transformers refuses schemes of experts that transformers does not load "
            "(docs/reference/formats.md)"},
    {ROW(group_size), .brief = "columns with one scale; -1: a row", .type = OSH_F_INT, .dflt = "0",
     .min = -1, .max = 1e9,
     .doc = "columns that share a scale, with --scheme of integer weights. -1: the whole row; 0: "
            "the size of the scheme, or with --quality best 64 or 32 if that does not divide the "
            "columns of all modules"},
    {ROW(indivisible), .type = OSH_F_STR, .dflt = "refuse", .values = "refuse|dense|pad",
     .doc = "for modules whose number of columns is not a multiple of the group size. refuse: "
            "the job ends; dense: they stay dense and are in the output's ignore; pad: MLPs get "
            "zeros, and config.json gets their new size"},
    {ROW(tensor_parallel), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 65536,
     .doc = "number of GPUs among which an inference engine splits each layer. The plan refuses "
            "modules whose rows, groups or packed words cannot be split. 0: no check"},
    {ROW(method), .type = OSH_F_STR, .values = "gptq|rtn",
     .doc = "method that finds the codes with --scheme: gptq, or rtn for rounding to nearest "
            "(default: rtn)"},
    {ROW(targets), .type = OSH_F_STRS,
     .doc = "modules to quantize with --scheme, such as Linear,lm_head (default: Linear without "
            "the output head). May be repeated"},
    {ROW(num_bits), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 8,
     .doc = "bits of integer weights with --scheme, 2 to 8. 0: the bits of the scheme"},
    {ROW(symmetric), .type = OSH_F_STR, .values = "true|false",
     .doc = "false gives each group a zero point, with --scheme of integer weights (default: the "
            "symmetry of the scheme)"},
    {ROW(arithmetic), .type = OSH_F_STR, .dflt = "reference", .values = "reference|f32",
     .doc = "arithmetic of scales and codes: reference rounds as compressed-tensors does, f32 is "
            "more accurate"},
    {ROW(dataset), .path = OSH_PATH_READ, .group = "Data", .brief = "a file, wikitext, or org/name",
     .type = OSH_F_STRS, .whole = true, .alias = "dataset_path",
     .doc = "calibration data: a .parquet, .jsonl, .json, .csv or .txt file, the last four also "
            "with .zst or .gz, or a directory of such files. c4, wikitext, gsm8k, cnn_dailymail "
            "or org/name: a data set of the Hub (docs/how-to/hub.md). May be repeated, each with "
            "its share of the samples: a.jsonl:0.7 (docs/how-to/data.md)"},
    {ROW(num_calibration_samples), .brief = "at most [512]", .type = OSH_F_INT, .dflt = "-1",
     .min = -1, .max = 1e12,
     .doc = "largest number of calibration samples. 0: all; -1: 512, or all with "
            "--num-calibration-tokens"},
    {ROW(num_calibration_tokens), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "takes samples until they have this many tokens. 0: no limit"},
    {ROW(max_seq_length), .brief = "tokens of a sample, at most", .type = OSH_F_INT, .min = -1,
     .max = 1e9, .dflt = "-1",
     .doc = "largest number of tokens in a sample; longer ones are cut. 0: the limit of the "
            "tokenizer and the model; -1: at most 2048 with quality best, else that limit"},
    {ROW(text_column), .type = OSH_F_STRS, .whole = true,
     .doc = "key or column with the text (default: input_ids, else text, else a conversation in "
            "messages, conversations, prompt and response or completion, instruction and output, "
            "or question and answer). May be repeated, once for each --dataset"},
    {ROW(text_template), .type = OSH_F_STRS, .whole = true,
     .doc =
         "Jinja template that makes the text from several columns: '{{ question }} {{ answer }}'. "
         "May be repeated, once for each --dataset"},
    {ROW(chat_date), .type = OSH_F_STR, .dflt = "2024-07-26",
     .doc = "date for chat templates that print today's date. With a fixed date, the bytes of "
            "the output stay equal"},
    {ROW(dataset_config_name), .type = OSH_F_STRS, .whole = true,
     .doc = "configuration of a data set of the Hub (default: its only one). May be repeated, once "
            "for each --dataset"},
    {ROW(splits), .type = OSH_F_STRS, .whole = true,
     .doc = "rows to use, such as train[:512], train[-100:] or train[10%:20%]. For a file, the "
            "name before the bracket is ignored. May be repeated, once for each --dataset"},
    {ROW(batch_size), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e6,
     .doc = "samples that run together. 0: a few for each thread, as memory allows. Changes no "
            "result unless --data-collator is truncation"},
    {ROW(sum_groups), .type = OSH_F_INT, .dflt = "8", .min = 1, .max = 1e6,
     .doc = "number of groups of neighbouring samples. Statistics are summed in each group, then "
            "over the groups in order (docs/explanation/numerics.md). Changes last bits"},
    {ROW(shuffle_calibration_samples), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "draws samples in random order by --seed instead of taking the first samples of the "
            "file"},
    {ROW(seed), .type = OSH_F_INT, .dflt = "42", .min = 0, .max = 9e15,
     .doc = "seed of the shuffle, and of the samples that block-wise learning draws"},
    {ROW(loss_mask), .type = OSH_F_STR, .dflt = "none", .values = "none|answers",
     .doc = "answers: statistics and losses count only the tokens of the assistant's answers in "
            "conversations, or the tokens whose number in the column loss_mask is 1 "
            "(docs/how-to/chat.md). none: all tokens"},
    {ROW(concatenate_data), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "joins all samples and cuts the text into blocks of --max-seq-length tokens"},
    {ROW(pad_to_max_length), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "accepted as in LLM Compressor, but without effect: statistics never count padding"},
    {ROW(data_collator), .type = OSH_F_STR, .dflt = "none", .values = "none|truncation|padding",
     .doc = "truncation cuts all samples of a batch to its shortest one"},
    {ROW(sequential_targets), .group = "Subgraphs", .brief = "where to cut; Linear: least memory",
     .type = OSH_F_STRS,
     .doc = "classes, names or re: of the modules at which the graph is cut (default: decoder "
            "layers, or Linear with quality best); may be repeated"},
    {ROW(sequential_targets_per_subgraph), .type = OSH_F_INT, .dflt = "1", .min = 1, .max = 1e6,
     .doc = "number of targets in one subgraph"},
    {ROW(pipeline), .type = OSH_F_STR, .values = "sequential|basic|datafree|independent",
     .doc = "order of the calibration: one subgraph after the other (sequential), the whole "
            "model (basic), no data (datafree), or one traversal for each modifier (independent) "
            "(default: sequential if data is needed, else datafree)"},
    {ROW(calib_passthrough), .type = OSH_F_STRS,
     .doc = "ops whose output gets the range of the input instead of an observed range, such as "
            "slice. no-slice removes slice from the list. Separated by commas"},
    {ROW(moe_calibrate_all_experts), .type = OSH_F_BOOL, .dflt = "true",
     .doc = "calibrates each expert on all tokens. false: on the tokens that the router sends to "
            "the expert (experts without tokens are rounded to nearest)"},
    {ROW(propagate_error), .type = OSH_F_STR, .dflt = "true", .values = "true|false",
     .doc = "gives later subgraphs the outputs of the quantized weights of earlier ones"},
    {ROW(strict), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "fails if a module cannot be solved by the requested method, instead of using and "
            "reporting a simpler method"},
    {ROW(device), .group = "Machine", .brief = "cpu, cuda or cuda:N [auto]", .type = OSH_F_STR,
     .dflt = "auto", .alias = "oneshot_device",
     .doc = "device for calibration and solving: cpu, cuda or cuda:N. auto: cuda if there is a "
            "GPU. Changes last bits"},
    {ROW(host_memory), .brief = "budget, such as 8GB", .type = OSH_F_BYTES, .dflt = "0", .min = 0,
     .max = 1e15, .doc = "memory budget of the whole program. 0: no budget. Changes no result"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0,
     .max = 4096, .doc = "number of threads. 0: one for each core. Changes no result"},
    {ROW(device_memory), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "memory budget on the device for weights, statistics, the current batch and scratch, "
            "such as 800MiB. 0: no budget. Changes no result"},
    {ROW(scratch_dir), .path = OSH_PATH_SCRATCH, .type = OSH_F_STR,
     .doc = "directory for scratch files (default: in the unfinished output directory)"},
    {ROW(scratch_size), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "largest size of all scratch files together. 0: no limit"},
    {ROW(prefetch), .type = OSH_F_BOOL, .dflt = "true",
     .doc = "reads the weights of the next subgraph during the work on the current subgraph, as "
            "far as the budgets allow"},
    ISA_ROW,
    {ROW(scratch_compression), .type = OSH_F_STR, .dflt = "none", .values = "none|zstd",
     .doc = "compression of values in scratch files"},
    {ROW(mem_opt_level), .type = OSH_F_STR, .dflt = "auto", .values = "auto|0|1|2",
     .doc = "location of values between two subgraphs: 0 device, 1 host memory, 2 disk. auto: "
            "the fastest location that the budgets allow"},
    {ROW(calib_cache), .type = OSH_F_STR, .dflt = "auto",
     .values = "auto|ram|disk|disk_f16|recompute",
     .doc = "location of values that observers read twice: memory, scratch files, or none "
            "(recompute). auto: the fastest within the budgets, on a GPU recompute. disk_f16 "
            "stores F32 values as F16, which changes results (docs/how-to/calibration.md)"},
    {ROW(use_gds), .type = OSH_F_STR, .dflt = "auto", .values = "auto|true|false",
     .doc = "lets a GPU read values, and weights for --eval, from the disk by GPUDirect Storage "
            "(cuFile). true: also without the module nvidia-fs (docs/how-to/cuda.md). Changes no "
            "result"},
    {ROW(num_workers), .type = OSH_F_INT, .dflt = "1", .min = 0, .max = 256,
     .doc = "number of threads that read values ahead from the disk, as far as the budgets and "
            "--prefetch allow (docs/explanation/memory.md). 0: none. Changes no result"},
    {ROW(pin_memory), .type = OSH_F_STR, .dflt = "auto", .values = "auto|true|false",
     .doc = "page-locks values in host memory when a GPU is used. Changes no result"},
    {.name = "ranks", .offset = offsetof(osh_options, n_ranks), .type = OSH_F_INT, .dflt = "0",
     .min = 0, .max = 1 << 20,
     .doc = "for `oneshot plan`: number of processes that mpirun or srun will start "
            "(docs/how-to/cluster.md). 0: the number of processes that it has started"},
    {ROW(ranks_per_node), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1 << 20,
     .doc = "for `oneshot plan --ranks`: number of these processes on each node. They share the "
            "--host-memory of the node. 0: all"},
    {ROW(overwrite), .group = "Resume", .brief = "replace a finished output", .type = OSH_F_BOOL,
     .dflt = "false", .doc = "replaces a finished output of oneshot"},
    {ROW(restart), .brief = "start again instead of resuming", .type = OSH_F_BOOL, .dflt = "false",
     .doc = "deletes the files of an unfinished run and starts again, instead of resuming it"},
    {ROW(progress), .group = "Watch", .brief = "auto, line, json or none", .type = OSH_F_STR,
     .dflt = "auto", .values = "auto|line|json|none",
     .doc = "form of the progress on standard error"},
    {ROW(log_file), .path = OSH_PATH_LOG, .type = OSH_F_STR,
     .doc = "file to which messages and stages are appended (default: oneshot.log in the output "
            "directory). none: no file"},
    LOG_LEVEL_ROW,
    {ROW(profile), .path = OSH_PATH_PROFILE, .type = OSH_F_STR,
     .doc = "YAML file that gets time, memory and bytes of each stage during the run"},
    {ROW(checkpoint), .type = OSH_F_STRS,
     .doc = "record in profile and report. NAME=SUBGRAPH: a record NAME after this subgraph (a "
            "module name or re:). NAME=FIRST..LAST: a stage from one subgraph to another. May be "
            "repeated"},
    {ROW(eval), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "text or data file on which the perplexity of the source and of the finished output is "
            "measured, printed and written to the report, in windows of --max-seq-length tokens"},
    {ROW(held_back), .type = OSH_F_BOOL, .dflt = "true",
     .doc = "measures the perplexity of source and output like --eval, on rows that do not "
            "calibrate: one row for 128 samples. Nothing is measured with --eval, on a GPU, or "
            "if no row is left. Changes no output bytes"},
    {ROW(sample), .type = OSH_F_STR,
     .doc = "prompt that source and output answer after the run, with at most 64 tokens; the "
            "answers are printed side by side and written to the report. With a chat template, it "
            "is the message of a user"},
    {ROW(json), .group = "Plan", .brief = "the plan as JSON", .type = OSH_F_BOOL, .dflt = "false",
     .doc = "prints the plan as JSON"},
    {ROW(verbose), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "prints the whole plan: subgraphs, their passes and memory, and output files (plan)"},
    {ROW(only_largest_layer), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "runs only the subgraph with the highest predicted memory, on random activations. "
            "Prints measured and predicted memory, and writes nothing"},
    {ROW(largest_layer), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "prints only the subgraph with the highest predicted memory (plan)"},
    {ROW(device_model), .type = OSH_F_STR,
     .values = "b200|h200|h100|a100|l40s|rtx5090|rtx4090|rtx3090|rtx3060|rtx4060",
     .doc = "predicts memory and time on this GPU, which need not be in the machine (plan)"},
    {0},
};
#undef ROW

bool osh_wants_choice(const osh_options *o) { return o->target_bits > 0 || o->target_size; }

bool osh_wants_survey(const osh_options *o) { return o->survey || osh_wants_choice(o); }

bool osh_target_is(const osh_options *o, const char *engine)
{
    return o->target && !strcmp(o->target, engine);
}

bool osh_scratch_is_packed(const osh_options *o)
{
    return o->scratch_compression && !strcmp(o->scratch_compression, "zstd");
}

bool osh_masks_answers(const osh_options *o)
{
    return o->loss_mask && !strcmp(o->loss_mask, "answers");
}

int64_t osh_samples_asked(const osh_options *o)
{
    enum { SAMPLES = 512 }; // LLM Compressor has the same default
    if (o->num_calibration_samples >= 0) return o->num_calibration_samples;
    return o->num_calibration_tokens ? 0 : SAMPLES;
}

osh_status osh_argument_set(osh_ctx *cx, osh_given *given, const osh_field *fields, void *object,
                            const char *name, const char *value)
{
    osh_status rc = OSH_OK;
    osh_near near;
    const osh_field *f = osh_field_find(fields, name);
    const osh_field *python =
        !f && fields == osh_option_fields ? osh_field_find(osh_python_fields, name) : NULL;
    if (f && !value && f->type != OSH_F_STR)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: want a value, got none", name);
    if (given && (f || python))
        OSH_TRY(osh_field_once(cx, given, f ? f : python, name, value ? value : ""));
    if (f) return osh_field_set(cx, f, object, value);
    if (python) return osh_option_python(cx, python, value ? value : "");
    osh_near_init(&near, name);
    for (f = fields; f->name; f++) osh_near_see(&near, f->name);
    OSH_FAIL(cx, OSH_E_USAGE, "unknown option '%s'%s", name, osh_near_hint(&near, ""));
done:
    return rc;
}

osh_status osh_option_set(osh_ctx *cx, osh_options *opt, const char *name, const char *value)
{
    return osh_argument_set(cx, NULL, osh_option_fields, opt, name, value);
}

#define ROW(field) .name = #field, .offset = offsetof(osh_eval_options, field)
const osh_field osh_eval_fields[] = {
    {ROW(model), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "checkpoint, dense or compressed, or org/name[@revision] of the Hub"},
    {ROW(dataset), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "text to score: .txt, which is tokenized whole and cut into windows, or .jsonl, "
            ".json, .csv or .parquet, also .zst or .gz, or org/name of the Hub"},
    {ROW(dataset_config_name), .type = OSH_F_STR, .doc = "configuration of a data set of the Hub"},
    {ROW(splits), .type = OSH_F_STR,
     .doc = "rows, such as test[:100], of the Hub"},
    {ROW(reference), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "another checkpoint, or saved logits; adds KL divergence and top-1 agreement"},
    {ROW(adapter), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "LoRA adapter of reference, else of model"},
    {ROW(save_logits), .path = OSH_PATH_LOGITS, .type = OSH_F_STR,
     .doc = "directory for the logits, for --reference"},
    {ROW(panel), .path = OSH_PATH_PANEL, .type = OSH_F_STR,
     .doc = "JSON file for oneshot compare"},
    {ROW(sample), .type = OSH_F_STR, .doc = "prompt that model and reference answer"},
    {ROW(per_token), .path = OSH_PATH_NPY, .type = OSH_F_STR,
     .doc = ".npy file for the NLL of each token, f32"},
    {ROW(text_column), .type = OSH_F_STR,
     .doc = "key or column with the text (default: input_ids, text or a conversation)"},
    {ROW(text_template), .type = OSH_F_STR, .doc = "Jinja template over the row's columns"},
    {ROW(chat_date), .type = OSH_F_STR, .dflt = "2024-07-26",
     .doc = "date that chat templates print"},
    MODELS_DIR_ROW,
    {ROW(max_seq_length), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e9,
     .doc = "tokens of a window. 0: the limit of the tokenizer and the model"},
    {ROW(stride), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e9,
     .doc = "tokens between the starts of two windows. 0: a whole window"},
    {ROW(first_window), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e12,
     .doc = "number of windows to skip"},
    {ROW(max_windows), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e12,
     .doc = "windows to score, at most. 0: all"},
    {ROW(batch_size), .type = OSH_F_INT, .dflt = "1", .min = 1, .max = 1e6,
     .doc = "samples at once. Changes no result"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096,
     .doc = "0: one for each core. Changes no result"},
    {ROW(host_memory), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "memory budget of the whole program. 0: no budget. Changes no result"},
    {ROW(device), .type = OSH_F_STR, .dflt = "auto",
     .doc = "cpu, cuda or cuda:N. auto: cuda if there is a GPU. Changes last bits"},
    {ROW(device_memory), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "memory budget on the GPU. 0: its free memory. Changes no result"},
    {ROW(use_gds), .type = OSH_F_STR, .dflt = "auto", .values = "auto|true|false",
     .doc = "lets a GPU read weights by cuFile"},
    {ROW(isa), .type = OSH_F_STR, .dflt = "auto",
     .values = "auto|generic|avx2|avx512|avx512_bf16|amx",
     .doc = "instruction set of all kernels. auto: the CPU's best. Changes last bits"},
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false", .doc = "prints JSON"},
    {ROW(no_activation_quantization), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "quantizes weights only, not activations"},
    {ROW(progress), .type = OSH_F_STR, .dflt = "auto", .values = "auto|line|json|none",
     .doc = "form of the progress on standard error"},
    LOG_LEVEL_ROW,
    {0},
};
#undef ROW
#define ROW(field) .name = #field, .offset = offsetof(osh_generate_options, field)
const osh_field osh_generate_fields[] = {
    {ROW(chat), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "takes the prompt as the message of a user and applies the model's chat template"},
    {ROW(max_new_tokens), .type = OSH_F_INT, .dflt = "128", .min = 1, .max = 1e9,
     .doc = "largest number of new tokens"},
    {ROW(temperature), .type = OSH_F_FLOAT, .dflt = "0", .min = 0, .max = 1e6,
     .doc = "draws each token at this temperature. 0: takes the most likely token"},
    {ROW(top_k), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e9,
     .doc = "draws from the k most likely tokens, with --temperature. 0: from all"},
    {ROW(top_p), .type = OSH_F_FLOAT, .dflt = "1", .min = 0, .max = 1,
     .doc = "draws from the most likely tokens that together have the probability p, with "
            "--temperature"},
    {ROW(seed), .type = OSH_F_INT, .dflt = "42", .min = 0, .max = 9e15,
     .doc = "seed of the draws, with --temperature"},
    {ROW(use_cache), .type = OSH_F_BOOL, .dflt = "true",
     .doc = "keeps the keys, values and states of earlier tokens. false: runs all tokens again "
            "for each new token, with less memory and more time"},
    {ROW(adapter), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "directory of a LoRA adapter of PEFT, which is merged into the model"},
    {ROW(input_ids), .type = OSH_F_STR,
     .doc = "token ids separated by commas, instead of a prompt; needs no tokenizer.json"},
    {ROW(chat_date), .type = OSH_F_STR, .dflt = "2024-07-26",
     .doc = "date that chat templates print"},
    MODELS_DIR_ROW,
    {ROW(host_memory), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "memory budget of the whole program. Weights that do not fit are read again for each "
            "token. 0: the available memory of the machine. Changes no result"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096,
     .doc = "number of threads. 0: one for each core. Changes no result"},
    {ROW(device), .type = OSH_F_STR, .dflt = "auto", .values = "auto|cpu",
     .doc = "the model runs on the CPU in this version"},
    ISA_ROW,
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "prints JSON at the end: ids of the prompt, new ids, text, and the reason for the end"},
    {ROW(no_activation_quantization), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "quantizes weights only, not activations"},
    {ROW(progress), .type = OSH_F_STR, .dflt = "none", .values = "auto|line|json|none",
     .doc = "form of the progress of the first pass on standard error"},
    LOG_LEVEL_ROW,
    {0},
};
#undef ROW
#define ROW(field) .name = #field, .offset = offsetof(osh_bench_options, field)
const osh_field osh_bench_fields[] = {
    {ROW(dir), .path = OSH_PATH_SCRATCH, .type = OSH_F_STR,
     .doc = "directory whose disk is measured with a file of 256 MiB, also for reads to a GPU "
            "(default: no disk)"},
    {ROW(seconds), .type = OSH_F_FLOAT, .dflt = "1", .min = 0.01, .max = 3600,
     .doc = "seconds of each measurement. Below 0.1, buffers and the file have a few MiB"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096,
     .doc = "number of threads. 0: one for each core"},
    {ROW(isa), .type = OSH_F_STR, .dflt = "auto",
     .values = "auto|generic|avx2|avx512|avx512_bf16|amx",
     .doc = "instruction set of the products"},
    {ROW(device), .type = OSH_F_STR, .dflt = "cpu", .doc = "cuda or cuda:N measures that GPU too"},
    {ROW(side), .type = OSH_F_INT, .dflt = "8192", .min = 16, .max = 32768,
     .doc = "rows and columns of the matrices that the GPU multiplies. The measured attention "
            "has twice as many tokens"},
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false", .doc = "prints JSON"},
    {0},
};
#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_verify_options, field)
const osh_field osh_verify_fields[] = {
    {ROW(model), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "directory of the source checkpoint, to compare every tensor with it"},
    {ROW(adapter), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "directory of the LoRA adapter that was merged into the source"},
    MODELS_DIR_ROW,
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096,
     .doc = "number of threads. 0: one for each core"},
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false", .doc = "prints JSON"},
    LOG_LEVEL_ROW,
    {0},
};

#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_check_options, field)
const osh_field osh_check_fields[] = {
    MODELS_DIR_ROW,
    {ROW(logits), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "safetensors file with input_ids [T] and F32 logits [T, V] of another program, to "
            "compare the logits with. For F32 weights, 5e-6 of the largest logit is the limit"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096,
     .doc = "number of threads. 0: one for each core"},
    ISA_ROW,
    {ROW(progress), .type = OSH_F_STR, .dflt = "none", .values = "auto|line|json|none",
     .doc = "form of the progress on standard error"},
    LOG_LEVEL_ROW,
    {0},
};

#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_compare_options, field)
const osh_field osh_compare_fields[] = {
    {ROW(output), .path = OSH_PATH_PAGE, .type = OSH_F_STR, .doc = "HTML file for the table"},
    {0},
};

#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_report_options, field)
const osh_field osh_report_fields[] = {
    {ROW(output), .path = OSH_PATH_PAGE, .type = OSH_F_STR,
     .doc = "file for the page; standard output then gets the tables as text"},
    {ROW(format), .type = OSH_F_STR, .dflt = "html", .values = "html|text|svg",
     .doc =
         "content of standard output: the page, its tables as text, or the picture of one profile"},
    {0},
};

#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_pull_options, field)
const osh_field osh_pull_fields[] = {
    {ROW(progress), .type = OSH_F_STR, .dflt = "auto", .values = "auto|line|json|none",
     .doc = "form of the progress on standard error"},
    LOG_LEVEL_ROW,
    {0},
};
