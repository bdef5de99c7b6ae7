/* options.c - one row per flag: the parser, --help and the man page read these tables. */
#include "oneshot.h"

#define ROW(field) .name = #field, .offset = offsetof(osh_options, field)
const osh_field osh_option_fields[] = {
    {ROW(model), .type = OSH_F_STR, .doc = "Hugging Face checkpoint directory"},
    {ROW(recipe), .type = OSH_F_STR, .doc = "LLM Compressor recipe, YAML"},
    {ROW(dataset), .type = OSH_F_STR, .doc = "calibration data: .jsonl (text or input_ids) or .txt, each also .zst"},
    {ROW(output), .type = OSH_F_STR, .alias = "output_dir", .doc = "directory to write"},
    {ROW(scheme), .type = OSH_F_STR, .doc = "without a recipe: a preset such as W4A16"},
    {ROW(method), .type = OSH_F_STR, .values = "gptq|rtn", .doc = "with --scheme: gptq or rtn (the default)"},
    {ROW(targets), .type = OSH_F_STRS, .doc = "with --scheme: modules to quantize (default Linear); may be repeated"},
    {ROW(ignore), .type = OSH_F_STRS, .doc = "with --scheme: modules to leave dense; may be repeated"},
    {ROW(text_column), .type = OSH_F_STR, .doc = "key of the text in a .jsonl row (default: input_ids where a row has them, else text)"},
    {ROW(num_calibration_samples), .type = OSH_F_INT, .dflt = "512", .min = 1, .max = 1e12, .doc = "samples to calibrate on, at most"},
    {ROW(max_seq_length), .type = OSH_F_INT, .min = 0, .max = 1e9, .dflt = "0", .doc = "tokens a sample is cut to; 0: what tokenizer and model allow"},
    {ROW(batch_size), .type = OSH_F_INT, .dflt = "1", .min = 1, .max = 1e6, .doc = "samples run together; changes no result without a collator"},
    {ROW(shuffle_calibration_samples), .type = OSH_F_BOOL, .dflt = "false", .doc = "choose and order samples by --seed instead of taking the file's order"},
    {ROW(seed), .type = OSH_F_INT, .dflt = "42", .min = 0, .max = 9e15, .doc = "of the shuffle"},
    {ROW(concatenate_data), .type = OSH_F_BOOL, .dflt = "false", .doc = "join all samples and cut blocks of --max-seq-length"},
    {ROW(pad_to_max_length), .type = OSH_F_BOOL, .dflt = "false", .doc = "accepted; padding is never counted in a statistic"},
    {ROW(data_collator), .type = OSH_F_STR, .dflt = "none", .values = "none|truncation|padding", .doc = "truncation cuts a batch to its shortest sample"},
    {ROW(pipeline), .type = OSH_F_STR, .values = "sequential|basic|datafree|independent", .doc = "default: sequential when data is needed, else datafree"},
    {ROW(sequential_targets), .type = OSH_F_STRS, .doc = "class, name or re: to cut the graph at (default: the decoder layer); may be repeated"},
    {ROW(sequential_targets_per_subgraph), .type = OSH_F_INT, .dflt = "1", .min = 1, .max = 1e6, .doc = "targets in one subgraph"},
    {ROW(propagate_error), .type = OSH_F_STR, .dflt = "true", .values = "true|false", .doc = "later subgraphs see the quantized weights of earlier ones"},
    {ROW(max_shard_size), .type = OSH_F_BYTES, .dflt = "20GB", .min = 1, .max = 1e15, .doc = "bytes of an output file, decimal units"},
    {ROW(arithmetic), .type = OSH_F_STR, .dflt = "reference", .values = "reference|f32", .doc = "of scales and codes: compressed-tensors' rounding, or more accurate"},
    {ROW(overwrite), .type = OSH_F_BOOL, .dflt = "false", .doc = "replace a finished output of oneshot"},
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false", .doc = "plan: print JSON"},
    {ROW(models_dir), .type = OSH_F_STR, .doc = "directory of architecture templates to use beside the built-in ones"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096, .doc = "0: one per core; changes no result"},
    {ROW(progress), .type = OSH_F_STR, .dflt = "auto", .values = "auto|line|json|none", .doc = "progress on stderr"},
    {ROW(log_level), .type = OSH_F_STR, .dflt = "warn", .values = "error|warn|info|debug", .doc = "messages on stderr"},
    {0},
};
#undef ROW

#define ROW(field) .name = #field, .offset = offsetof(osh_eval_options, field)
const osh_field osh_eval_fields[] = {
    {ROW(model), .type = OSH_F_STR, .doc = "checkpoint directory, dense or compressed-tensors"},
    {ROW(dataset), .type = OSH_F_STR, .doc = ".txt (tokenized whole, cut into windows) or .jsonl (a row is a sample), each also .zst"},
    {ROW(reference), .type = OSH_F_STR, .doc = "another checkpoint: adds KL divergence and top-1 agreement"},
    {ROW(per_token), .type = OSH_F_STR, .doc = "write the NLL of every scored token, f32, to this .npy"},
    {ROW(text_column), .type = OSH_F_STR, .doc = "key of the text in a .jsonl row (default: input_ids where a row has them, else text)"},
    {ROW(models_dir), .type = OSH_F_STR, .doc = "directory of architecture templates to use beside the built-in ones"},
    {ROW(max_seq_length), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e9, .doc = "tokens of a window; 0: what tokenizer and model allow"},
    {ROW(stride), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e9, .doc = "tokens from one window's start to the next; 0: a window"},
    {ROW(first_window), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e12, .doc = "windows to skip"},
    {ROW(max_windows), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 1e12, .doc = "windows to score; 0: all"},
    {ROW(batch_size), .type = OSH_F_INT, .dflt = "1", .min = 1, .max = 1e6, .doc = "samples run together; changes no result"},
    {ROW(threads), .type = OSH_F_INT, .dflt = "0", .min = 0, .max = 4096, .doc = "0: one per core; changes no result"},
    {ROW(json), .type = OSH_F_BOOL, .dflt = "false", .doc = "print JSON"},
    {ROW(no_activation_quantization), .type = OSH_F_BOOL, .dflt = "false", .doc = "weights only"},
    {ROW(progress), .type = OSH_F_STR, .dflt = "auto", .values = "auto|line|json|none", .doc = "progress on stderr"},
    {ROW(log_level), .type = OSH_F_STR, .dflt = "warn", .values = "error|warn|info|debug", .doc = "messages on stderr"},
    {0},
};
