/* options.c - tables of options, one row for each flag: the parser, --help and the man page read
 * them. */
#include "base/near.h"
#include "match/options.h"

#include <string.h>

#define ROW(field) .name = #field, .offset = offsetof(osh_options, field)
const osh_field osh_option_fields[] = {
    {ROW(model), .path = OSH_PATH_READ, .group = "Model",
     .brief = "directory, or org/name[@revision]", .type = OSH_F_STR,
     .doc = "Hugging Face checkpoint: its directory, or org/name[@revision] of the Hub "
            "(docs/how-to/hub.md)"},
    {ROW(output), .path = OSH_PATH_OUTPUT, .brief = "directory to write", .type = OSH_F_STR,
     .alias = "output_dir", .doc = "directory to write"},
    {ROW(models_dir), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "directory of architecture templates to use beside the built-in ones"},
    {ROW(max_shard_size), .type = OSH_F_BYTES, .dflt = "20GB", .min = 1, .max = 1e15,
     .doc = "bytes of an output file, decimal units"},
    {ROW(target_bits), .type = OSH_F_FLOAT, .dflt = "0", .min = 0, .max = 16,
     .doc = "choose bits for each module so that a weight takes no more than these on average, "
            "scales included, and least is lost (docs/how-to/mixed-precision.md); 0: the scheme's"},
    {ROW(target_size), .type = OSH_F_STR,
     .doc = "the same by size: 0.35x of the source's bytes of what is quantized, or bytes of the "
            "whole output, such as 90MB"},
    {ROW(scheme), .group = "Scheme", .brief = "such as W4A16: oneshot help schemes",
     .type = OSH_F_STR, .doc = "without a recipe: a preset such as W4A16"},
    {ROW(quality), .brief = "fast, gptq, or best: the least loss", .type = OSH_F_STR,
     .values = "fast|gptq|best",
     .doc = "fast: rounded to nearest, without data; gptq: as LLM Compressor's; best: what loses "
            "least in the same format (docs/explanation/quality.md). A recipe's own keys win"},
    {ROW(recipe), .path = OSH_PATH_READ, .brief = "instead: LLM Compressor's YAML",
     .type = OSH_F_STR, .doc = "LLM Compressor recipe, YAML"},
    {ROW(ignore), .brief = "modules to leave dense", .type = OSH_F_STRS,
     .doc = "with --scheme: modules to leave dense, with commas between them; may be repeated"},
    {ROW(only), .type = OSH_F_STRS,
     .doc = "modules by name or re:..., with commas between them; may be repeated: no others are "
            "quantized, and all else is copied bit for bit, codes of a compressed-tensors source "
            "too"},
    {ROW(group_size), .brief = "columns with one scale; -1: a row's", .type = OSH_F_INT,
     .dflt = "0", .min = -1, .max = 1e9,
     .doc = "with --scheme of integer weights: columns that share a scale; -1: all of a row; 0: "
            "the scheme's"},
    {ROW(method), .type = OSH_F_STR, .values = "gptq|rtn",
     .doc = "with --scheme: gptq or rtn (the default)"},
    {ROW(targets), .type = OSH_F_STRS,
     .doc = "with --scheme: modules to quantize, such as Linear,lm_head (default Linear, and not "
            "the output head); may be repeated"},
    {ROW(num_bits), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 8,
     .doc = "with --scheme of integer weights: their bits, 2 to 8; 0: the scheme's"},
    {ROW(symmetric), .type = OSH_F_STR, .values = "true|false",
     .doc = "with --scheme of integer weights: false gives each group a zero point (default: the "
            "scheme's)"},
    {ROW(arithmetic), .type = OSH_F_STR, .dflt = "reference", .values = "reference|f32",
     .doc = "of scales and codes: compressed-tensors' rounding, or more accurate"},
    {ROW(dataset), .path = OSH_PATH_READ, .group = "Data",
     .brief = "a file, or a name: wikitext, org/name", .type = OSH_F_STR, .alias = "dataset_path",
     .doc = "calibration data: .jsonl or .json (text or input_ids), .csv or .txt, each also .zst "
            "or .gz; or a folder of these; or a name: c4, wikitext, gsm8k, cnn_dailymail, org/name "
            "of the Hub (docs/how-to/hub.md)"},
    {ROW(num_calibration_samples), .brief = "at most [512]", .type = OSH_F_INT, .dflt = "512",
     .min = 1, .max = 1e12, .doc = "samples to calibrate on, at most"},
    {ROW(max_seq_length), .brief = "tokens of a sample, at most", .type = OSH_F_INT, .min = 0,
     .max = 1e9, .dflt = "0",
     .doc = "tokens a sample is cut to; 0: what tokenizer and model allow"},
    {ROW(text_column), .type = OSH_F_STR,
     .doc = "key of the text in a row, or column of a .csv (default: input_ids where a row has "
            "them, else text, else a conversation: messages, conversations, or prompt and "
            "response)"},
    {ROW(text_template), .type = OSH_F_STR,
     .doc = "Jinja over the columns of a row, instead of one column: '{{ question }} {{ answer "
            "}}'"},
    {ROW(chat_date), .type = OSH_F_STR, .dflt = "2024-07-26",
     .doc = "day that chat templates which print today's are given, so that the same command gives "
            "the same bytes"},
    {ROW(dataset_config_name), .type = OSH_F_STR,
     .doc = "of a data set by name: which of its configurations; default: the only one"},
    {ROW(splits), .type = OSH_F_STR,
     .doc = "rows of the data, such as train[:512], train[-100:] or train[10%:20%]; of a file the "
            "name is not looked at"},
    {ROW(batch_size), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e6,
     .doc = "samples run together; 0: a few for each thread, where memory allows; changes no "
            "result without a collator"},
    {ROW(sum_groups), .type = OSH_F_INT, .dflt = "8", .min = 1, .max = 1e6,
     .doc = "groups of neighbouring samples: each is summed by itself, then the sums are added in "
            "order (docs/explanation/numerics.md). Decides last bits"},
    {ROW(shuffle_calibration_samples), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "choose and order samples by --seed instead of taking the file's order"},
    {ROW(seed), .type = OSH_F_INT, .dflt = "42", .min = 0, .max = 9e15,
     .doc = "of the shuffle, and of what is drawn where codes learn by block"},
    {ROW(concatenate_data), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "join all samples and cut blocks of --max-seq-length"},
    {ROW(pad_to_max_length), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "accepted; padding is never counted in a statistic"},
    {ROW(data_collator), .type = OSH_F_STR, .dflt = "none", .values = "none|truncation|padding",
     .doc = "truncation cuts a batch to its shortest sample"},
    {ROW(sequential_targets), .group = "Subgraphs", .brief = "where to cut; Linear: least memory",
     .type = OSH_F_STRS,
     .doc = "class, name or re: to cut the graph at (default: the decoder layer); may be repeated"},
    {ROW(sequential_targets_per_subgraph), .type = OSH_F_INT, .dflt = "1", .min = 1, .max = 1e6,
     .doc = "targets in one subgraph"},
    {ROW(pipeline), .type = OSH_F_STR, .values = "sequential|basic|datafree|independent",
     .doc = "default: sequential when data is needed, else datafree; independent: a traversal for "
            "each modifier"},
    {ROW(calib_passthrough), .type = OSH_F_STRS,
     .doc = "ops that hand a range on: slice. What they make has their input's range instead of "
            "being observed, with commas between them; no-slice takes one out again"},
    {ROW(moe_calibrate_all_experts), .type = OSH_F_BOOL, .dflt = "true",
     .doc = "experts are calibrated on all tokens; false: on those that the router sends to them, "
            "and an expert that gets none is rounded to nearest"},
    {ROW(propagate_error), .type = OSH_F_STR, .dflt = "true", .values = "true|false",
     .doc = "later subgraphs see the quantized weights of earlier ones"},
    {ROW(strict), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "stop where a module cannot be solved as asked, instead of falling back and reporting "
            "it"},
    {ROW(device), .group = "Machine", .brief = "cpu, cuda or cuda:N [auto]", .type = OSH_F_STR,
     .dflt = "auto", .alias = "oneshot_device",
     .doc = "where calibration and solving run: cpu, cuda or cuda:N; auto: cuda where a GPU is "
            "present. Decides last bits"},
    {ROW(host_memory), .brief = "a budget, such as 8GB", .type = OSH_F_BYTES, .dflt = "0", .min = 0,
     .max = 1e15, .doc = "bytes of memory for the whole program; 0: no budget. Changes no result"},
    {ROW(threads), .brief = "0: one per core", .type = OSH_F_INT, .dflt = "0", .min = 0,
     .max = 4096, .doc = "0: one per core; changes no result"},
    {ROW(device_memory), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "bytes for weights, statistics, the batch at work and scratch, such as 800MiB; 0: no "
            "budget. Changes no result"},
    {ROW(scratch_dir), .path = OSH_PATH_SCRATCH, .type = OSH_F_STR,
     .doc = "directory for scratch files (default: inside the output directory that is being "
            "made)"},
    {ROW(scratch_size), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "bytes of scratch files; 0: no budget"},
    {ROW(prefetch), .type = OSH_F_BOOL, .dflt = "true",
     .doc = "read the next subgraph's weights while one computes, where the budgets allow it"},
    {ROW(isa), .type = OSH_F_STR, .dflt = "auto",
     .values = "auto|generic|avx2|avx512|avx512_bf16|amx",
     .doc = "instruction set of all kernels, the libraries' too: decides last bits; auto: the "
            "CPU's best"},
    {ROW(scratch_compression), .type = OSH_F_STR, .dflt = "none", .values = "none|zstd",
     .doc = "of values in scratch files"},
    {ROW(mem_opt_level), .type = OSH_F_STR, .dflt = "auto", .values = "auto|0|1|2",
     .doc = "where values rest between subgraphs: 0 device, 1 host, 2 disk; auto: the fastest that "
            "the budgets allow"},
    {ROW(calib_cache), .type = OSH_F_STR, .dflt = "auto",
     .values = "auto|ram|disk|disk_f16|recompute",
     .doc = "of observers that look at each value twice (docs/how-to/calibration.md): values are "
            "kept in memory or in scratch files, or made again; auto: the fastest that the budgets "
            "allow. Changes no result, but for disk_f16: F32 values are looked at again as F16, in "
            "files of half the size"},
    {ROW(use_gds), .type = OSH_F_STR, .dflt = "auto", .values = "auto|true|false",
     .doc = "a GPU reads values that rest on the disk, and weights for --eval, itself by cuFile, "
            "GPUDirect Storage; true: also without the module nvidia-fs (docs/how-to/cuda.md). "
            "Changes no result"},
    {ROW(num_workers), .type = OSH_F_INT, .dflt = "1", .min = 0, .max = 256,
     .doc = "threads that read values of the disk tier ahead, where the budgets and --prefetch "
            "allow it (docs/explanation/memory.md); 0: none. Changes no result"},
    {ROW(pin_memory), .type = OSH_F_STR, .dflt = "auto", .values = "auto|true|false",
     .doc = "with a GPU, values in host memory are page-locked, also on their way from the disk; "
            "false: they are not. Changes no result"},
    {ROW(overwrite), .group = "Again", .brief = "replace a finished output", .type = OSH_F_BOOL,
     .dflt = "false", .doc = "replace a finished output of oneshot"},
    {ROW(restart), .brief = "all anew, not from where it stopped", .type = OSH_F_BOOL,
     .dflt = "false",
     .doc = "discard what an unfinished run left behind instead of going on from it"},
    {ROW(progress), .group = "Watching", .brief = "auto, line, json or none", .type = OSH_F_STR,
     .dflt = "auto", .values = "auto|line|json|none", .doc = "progress on stderr"},
    {ROW(log_file), .path = OSH_PATH_LOG, .type = OSH_F_STR,
     .doc = "messages and stages, appended (default: oneshot.log in the output directory); none: "
            "no file"},
    {ROW(log_level), .type = OSH_F_STR, .dflt = "warn", .values = "error|warn|info|debug",
     .doc = "messages on stderr"},
    {ROW(profile), .path = OSH_PATH_PROFILE, .type = OSH_F_STR,
     .doc = "YAML file that is written while the run goes: time, memory and bytes at each stage"},
    {ROW(checkpoint), .type = OSH_F_STRS,
     .doc = "NAME=SUBGRAPH: a record NAME in profile and report when that subgraph (a module name "
            "or re:) is finished; NAME=FIRST..LAST: a stage, with records where it starts and "
            "ends; may be repeated"},
    {ROW(eval), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "a text or data file: of the finished output and of the source the perplexity on it is "
            "printed, and is in the report; windows of --max-seq-length tokens"},
    {ROW(json), .group = "Trying", .brief = "the plan as JSON", .type = OSH_F_BOOL, .dflt = "false",
     .doc = "plan: print JSON"},
    {ROW(only_largest_layer), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "run that subgraph alone, on made-up activations, print its memory against the "
            "prediction, keep nothing"},
    {ROW(largest_layer), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "plan: print the subgraph with the highest predicted memory, and nothing else"},
    {ROW(device_model), .type = OSH_F_STR, .values = "h200|h100|a100|l40s|rtx4090|rtx3090|rtx3060",
     .doc = "plan: for a machine with this GPU, which need not be there: its memory, and how long "
            "it would take"},
    {0},
};
#undef ROW

bool osh_scratch_is_packed(const osh_options *o)
{
    return o->scratch_compression && !strcmp(o->scratch_compression, "zstd");
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
     .doc = "checkpoint, dense or compressed-tensors: its directory, or org/name[@revision] of the "
            "Hub"},
    {ROW(dataset), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = ".txt (tokenized whole, cut into windows) or rows (.jsonl, .json, .csv), each also "
            ".zst or .gz; or org/name"},
    {ROW(dataset_config_name), .type = OSH_F_STR, .doc = "of a data set by name"},
    {ROW(splits), .type = OSH_F_STR, .doc = "rows, such as 'test[:100]'; wanted with a name"},
    {ROW(reference), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "another checkpoint: adds KL divergence, top-1 agreement and its perplexity"},
    {ROW(per_token), .path = OSH_PATH_NPY, .type = OSH_F_STR,
     .doc = "write the NLL of every scored token, f32, to this .npy"},
    {ROW(text_column), .type = OSH_F_STR,
     .doc = "key of the text in a row, or column of a .csv (default: input_ids, text or a "
            "conversation, whichever a row has)"},
    {ROW(text_template), .type = OSH_F_STR, .doc = "Jinja over the columns of a row"},
    {ROW(chat_date), .type = OSH_F_STR, .dflt = "2024-07-26",
     .doc = "day that chat templates are given"},
    {ROW(models_dir), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "directory of architecture templates to use beside the built-in ones"},
    {ROW(max_seq_length), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e9,
     .doc = "tokens of a window; 0: what tokenizer and model allow"},
    {ROW(stride), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e9,
     .doc = "tokens from one window's start to the next; 0: a window"},
    {ROW(first_window), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e12,
     .doc = "windows to skip"},
    {ROW(max_windows), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e12,
     .doc = "windows to score; 0: all"},
    {ROW(batch_size), .type = OSH_F_INT, .dflt = "1", .min = 1, .max = 1e6,
     .doc = "samples run together; changes no result"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096,
     .doc = "0: one per core; changes no result"},
    {ROW(host_memory), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "bytes of memory it may have; 0: no budget; changes no result"},
    {ROW(device), .type = OSH_F_STR, .dflt = "auto",
     .doc = "where the model runs: cpu, cuda or cuda:N; auto: cuda where a GPU is present. "
            "Decides last bits"},
    {ROW(device_memory), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "bytes of a GPU that may be taken; 0: what it has free; changes no result"},
    {ROW(use_gds), .type = OSH_F_STR, .dflt = "auto", .values = "auto|true|false",
     .doc = "a GPU reads by cuFile"},
    {ROW(isa), .type = OSH_F_STR, .dflt = "auto",
     .values = "auto|generic|avx2|avx512|avx512_bf16|amx",
     .doc = "instruction set of all kernels, the libraries' too: decides last bits; auto: the "
            "CPU's best"},
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false", .doc = "print JSON"},
    {ROW(no_activation_quantization), .type = OSH_F_BOOL, .dflt = "false", .doc = "weights only"},
    {ROW(progress), .type = OSH_F_STR, .dflt = "auto", .values = "auto|line|json|none",
     .doc = "progress on stderr"},
    {ROW(log_level), .type = OSH_F_STR, .dflt = "warn", .values = "error|warn|info|debug",
     .doc = "messages on stderr"},
    {0},
};
#undef ROW
#define ROW(field) .name = #field, .offset = offsetof(osh_generate_options, field)
const osh_field osh_generate_fields[] = {
    {ROW(chat), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "the prompt is the message of a user: the model's chat template is applied"},
    {ROW(max_new_tokens), .type = OSH_F_INT, .dflt = "128", .min = 1, .max = 1e9,
     .doc = "tokens to generate, at most"},
    {ROW(temperature), .type = OSH_F_FLOAT, .dflt = "0", .min = 0, .max = 1e6,
     .doc = "draw each token from the probabilities at this temperature; 0: take the most likely "
            "token"},
    {ROW(top_k), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e9,
     .doc = "with --temperature: draw from the k most likely tokens; 0: from all"},
    {ROW(top_p), .type = OSH_F_FLOAT, .dflt = "1", .min = 0, .max = 1,
     .doc = "with --temperature: draw from the most likely tokens whose probabilities together "
            "reach p"},
    {ROW(seed), .type = OSH_F_INT, .dflt = "42", .min = 0, .max = 9e15,
     .doc = "with --temperature: decides what is drawn"},
    {ROW(use_cache), .type = OSH_F_BOOL, .dflt = "true",
     .doc = "keep what later tokens need of earlier ones, such as keys and values; false: run all "
            "tokens again for each new one, which takes less memory and more time"},
    {ROW(input_ids), .type = OSH_F_STR,
     .doc = "token ids with commas between them, instead of a prompt; needs no tokenizer.json"},
    {ROW(chat_date), .type = OSH_F_STR, .dflt = "2024-07-26",
     .doc = "day that the chat template is given"},
    {ROW(models_dir), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "directory of architecture templates to use beside the built-in ones"},
    {ROW(host_memory), .type = OSH_F_BYTES, .dflt = "0", .min = 0, .max = 1e15,
     .doc = "bytes of memory for the whole program; weights that do not fit are read again for "
            "each token; 0: what the machine has; changes no result"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096,
     .doc = "0: one per core; changes no result"},
    {ROW(device), .type = OSH_F_STR, .dflt = "auto", .values = "auto|cpu",
     .doc = "where the model runs: always on the CPU in this version"},
    {ROW(isa), .type = OSH_F_STR, .dflt = "auto",
     .values = "auto|generic|avx2|avx512|avx512_bf16|amx",
     .doc = "instruction set of all kernels, the libraries' too: decides last bits; auto: the "
            "CPU's best"},
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false",
     .doc = "print JSON at the end: ids of the prompt, new ids, text, and why it stopped"},
    {ROW(no_activation_quantization), .type = OSH_F_BOOL, .dflt = "false", .doc = "weights only"},
    {ROW(progress), .type = OSH_F_STR, .dflt = "none", .values = "auto|line|json|none",
     .doc = "progress of the first pass on stderr"},
    {ROW(log_level), .type = OSH_F_STR, .dflt = "warn", .values = "error|warn|info|debug",
     .doc = "messages on stderr"},
    {0},
};
#undef ROW
#define ROW(field) .name = #field, .offset = offsetof(osh_bench_options, field)
const osh_field osh_bench_fields[] = {
    {ROW(dir), .path = OSH_PATH_SCRATCH, .type = OSH_F_STR,
     .doc = "directory whose disk is measured, with 256 MiB of it, to a GPU, too; default: no "
            "disk"},
    {ROW(seconds), .type = OSH_F_FLOAT, .dflt = "1", .min = 0.01, .max = 3600,
     .doc = "of each measurement"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096, .doc = "0: one per core"},
    {ROW(isa), .type = OSH_F_STR, .dflt = "auto",
     .values = "auto|generic|avx2|avx512|avx512_bf16|amx",
     .doc = "instruction set of the products"},
    {ROW(device), .type = OSH_F_STR, .dflt = "cpu",
     .doc = "cuda or cuda:N: that GPU is measured, too"},
    {ROW(side), .type = OSH_F_INT, .dflt = "8192", .min = 16, .max = 32768,
     .doc = "rows and columns of the matrices that the GPU multiplies; tokens of its attention "
            "are twice as many"},
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false", .doc = "print JSON"},
    {0},
};
#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_verify_options, field)
const osh_field osh_verify_fields[] = {
    {ROW(model), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "the source checkpoint: every tensor is compared with it"},
    {ROW(models_dir), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "directory of architecture templates to use beside the built-in ones"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096, .doc = "0: one per core"},
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false", .doc = "print JSON"},
    {ROW(log_level), .type = OSH_F_STR, .dflt = "warn", .values = "error|warn|info|debug",
     .doc = "messages on stderr"},
    {0},
};

#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_check_options, field)
const osh_field osh_check_fields[] = {
    {ROW(models_dir), .path = OSH_PATH_READ, .type = OSH_F_STR,
     .doc = "directory of architecture templates to use beside the built-in ones"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096, .doc = "0: one per core"},
    {ROW(isa), .type = OSH_F_STR, .dflt = "auto",
     .values = "auto|generic|avx2|avx512|avx512_bf16|amx",
     .doc = "instruction set of all kernels, the libraries' too: decides last bits; auto: the "
            "CPU's best"},
    {ROW(progress), .type = OSH_F_STR, .dflt = "none", .values = "auto|line|json|none",
     .doc = "progress on stderr"},
    {ROW(log_level), .type = OSH_F_STR, .dflt = "warn", .values = "error|warn|info|debug",
     .doc = "messages on stderr"},
    {0},
};

#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_report_options, field)
const osh_field osh_report_fields[] = {
    {ROW(output), .path = OSH_PATH_PAGE, .type = OSH_F_STR,
     .doc = "file for the page; the tables go to standard output then"},
    {ROW(format), .type = OSH_F_STR, .dflt = "html", .values = "html|text|svg",
     .doc = "what goes to standard output: the page, its tables as text, or of one profile the "
            "picture alone"},
    {0},
};

#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_pull_options, field)
const osh_field osh_pull_fields[] = {
    {ROW(progress), .type = OSH_F_STR, .dflt = "auto", .values = "auto|line|json|none",
     .doc = "progress on stderr"},
    {ROW(log_level), .type = OSH_F_STR, .dflt = "warn", .values = "error|warn|info|debug",
     .doc = "messages on stderr"},
    {0},
};
