/* foreign.c - has tables with words of other tools. The words are from the command lines of
 * auto-round, GPTQModel, llama.cpp, mlx-lm, lm_eval, vLLM, hf and cargo. They also include
 * arguments of transformers and LLM Compressor that are not flags of this program. */
#include "base/foreign.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/near.h"

#define COMPRESS "compressing needs no command: want oneshot --model DIR --scheme NAME --output OUT"
#define ONE_GPU                                                                                    \
    "a process uses one GPU: for 4 GPUs, want `mpirun -n 4 oneshot ...` (docs/how-to/cluster.md)"
#define SPLIT "a process uses one GPU; --tensor-parallel N checks that N GPUs can serve the output"
#define UPLOAD "the program uploads nothing: want `hf upload ORG/NAME OUT` after the run"
#define FORMAT "the program writes only compressed-tensors"
#define TASKS \
    "the program runs no tasks: want `lm_eval --model hf --model_args pretrained=OUT --tasks NAME`"

typedef struct word {
    osh_foreign_kind kind;
    const char *name, *text;
} word;

static const word words[] = {
    {OSH_FOREIGN_COMMAND, "quantize", COMPRESS},
    {OSH_FOREIGN_COMMAND, "quantise", COMPRESS},
    {OSH_FOREIGN_COMMAND, "compress", COMPRESS},
    {OSH_FOREIGN_COMMAND, "oneshot", COMPRESS},
    {OSH_FOREIGN_COMMAND, "run", COMPRESS},
    {OSH_FOREIGN_COMMAND, "convert", COMPRESS},
    {OSH_FOREIGN_COMMAND, "chat", "want `oneshot generate DIR --chat PROMPT`"},
    {OSH_FOREIGN_COMMAND, "list", "want `oneshot help models`, schemes or modifiers"},
    {OSH_FOREIGN_COMMAND, "models", "want `oneshot help models`"},
    {OSH_FOREIGN_COMMAND, "schemes", "want `oneshot help schemes`"},
    {OSH_FOREIGN_COMMAND, "version", "want `oneshot --version`"},
    {OSH_FOREIGN_COMMAND, "info", "want `oneshot inspect DIR`"},
    {OSH_FOREIGN_COMMAND, "show", "want `oneshot inspect DIR`"},
    {OSH_FOREIGN_COMMAND, "env", "want `oneshot doctor`"},
    {OSH_FOREIGN_COMMAND, "download", "want `oneshot pull ORG/NAME`"},
    {OSH_FOREIGN_COMMAND, "upload", UPLOAD},
    {OSH_FOREIGN_COMMAND, "push", UPLOAD},
    {OSH_FOREIGN_COMMAND, "serve", "the program serves no models: want `vllm serve OUT`"},
    {OSH_FOREIGN_COMMAND, "benchmark", "want `oneshot bench`"},
    {OSH_FOREIGN_COMMAND, "evaluate", "want `oneshot eval`"},
    {OSH_FOREIGN_COMMAND, "perplexity", "want `oneshot eval`"},
    {OSH_FOREIGN_COMMAND, "ppl", "want `oneshot eval`"},
    {OSH_FOREIGN_COMMAND, "lm_eval", TASKS},
    {OSH_FOREIGN_COMMAND, "check", "want `oneshot verify OUT`, or check-model for a source"},
    {OSH_FOREIGN_COMMAND, "resume", "want the command of the interrupted run again"},
    {OSH_FOREIGN_COMMAND, "dry_run", "want `oneshot plan` and the flags of the run"},

    {OSH_FOREIGN_FLAG, "m", "want --model"},
    {OSH_FOREIGN_FLAG, "o", "want --output"},
    {OSH_FOREIGN_FLAG, "s", "want --scheme"},
    {OSH_FOREIGN_FLAG, "r", "want --recipe"},
    {OSH_FOREIGN_FLAG, "t", "want --threads"},
    {OSH_FOREIGN_FLAG, "j", "want --threads"},
    {OSH_FOREIGN_FLAG, "q", "want --progress none"},
    {OSH_FOREIGN_FLAG, "v", "want --log-level info, or --version alone"},
    {OSH_FOREIGN_FLAG, "y",
     "the program asks no questions; --overwrite replaces a finished output"},
    {OSH_FOREIGN_FLAG, "f", "want --overwrite, which replaces a finished output"},
    {OSH_FOREIGN_FLAG, "bits", "want --num-bits"},
    {OSH_FOREIGN_FLAG, "wbits", "want --num-bits"},
    {OSH_FOREIGN_FLAG, "w_bit", "want --num-bits"},
    {OSH_FOREIGN_FLAG, "w_bits", "want --num-bits"},
    {OSH_FOREIGN_FLAG, "q_bits", "want --num-bits"},
    {OSH_FOREIGN_FLAG, "groupsize", "want --group-size"},
    {OSH_FOREIGN_FLAG, "q_group_size", "want --group-size"},
    {OSH_FOREIGN_FLAG, "sym", "want --symmetric"},
    {OSH_FOREIGN_FLAG, "zero_point", "want --symmetric false"},
    {OSH_FOREIGN_FLAG, "q_config", "want --scheme, with --num-bits and --group-size"},
    {OSH_FOREIGN_FLAG, "hf_path", "want --model"},
    {OSH_FOREIGN_FLAG, "nproc", "want --threads"},
    {OSH_FOREIGN_FLAG, "outtype", "the program does not write GGUF: want --scheme, such as W4A16"},
    {OSH_FOREIGN_FLAG, "true_sequential", "want --sequential-targets Linear"},
    {OSH_FOREIGN_FLAG, "max_length", "want --max-seq-length"},
    {OSH_FOREIGN_FLAG, "seqlen", "want --max-seq-length"},
    {OSH_FOREIGN_FLAG, "seq_len", "want --max-seq-length"},
    {OSH_FOREIGN_FLAG, "max_seq_len", "want --max-seq-length"},
    {OSH_FOREIGN_FLAG, "nsamples", "want --num-calibration-samples"},
    {OSH_FOREIGN_FLAG, "samples", "want --num-calibration-samples"},
    {OSH_FOREIGN_FLAG, "num_samples", "want --num-calibration-samples"},
    {OSH_FOREIGN_FLAG, "calib_size", "want --num-calibration-samples"},
    {OSH_FOREIGN_FLAG, "data", "want --dataset"},
    {OSH_FOREIGN_FLAG, "calib_data", "want --dataset"},
    {OSH_FOREIGN_FLAG, "dataset_path", "want --dataset"},
    {OSH_FOREIGN_FLAG, "bs", "want --batch-size"},
    {OSH_FOREIGN_FLAG, "model_path", "want --model"},
    {OSH_FOREIGN_FLAG, "model_name", "want --model"},
    {OSH_FOREIGN_FLAG, "model_name_or_path", "want --model"},
    {OSH_FOREIGN_FLAG, "pretrained", "want --model"},
    {OSH_FOREIGN_FLAG, "out", "want --output"},
    {OSH_FOREIGN_FLAG, "outdir", "want --output"},
    {OSH_FOREIGN_FLAG, "save_dir", "want --output"},
    {OSH_FOREIGN_FLAG, "save_path", "want --output"},
    {OSH_FOREIGN_FLAG, "export_dir", "want --output"},
    {OSH_FOREIGN_FLAG, "revision", "want --model org/name@revision"},
    {OSH_FOREIGN_FLAG, "dtype", "weights that stay dense keep the dtype of the checkpoint"},
    {OSH_FOREIGN_FLAG, "torch_dtype", "weights that stay dense keep the dtype of the checkpoint"},
    {OSH_FOREIGN_FLAG, "damp_percent", "want dampening_frac in a recipe: `oneshot help modifiers`"},
    {OSH_FOREIGN_FLAG, "percdamp", "want dampening_frac in a recipe: `oneshot help modifiers`"},
    {OSH_FOREIGN_FLAG, "dampening_frac", "want it in a recipe: `oneshot help modifiers`"},
    {OSH_FOREIGN_FLAG, "desc_act", "want actorder in a recipe: `oneshot help modifiers`"},
    {OSH_FOREIGN_FLAG, "act_order", "want actorder in a recipe: `oneshot help modifiers`"},
    {OSH_FOREIGN_FLAG, "actorder", "want it in a recipe: `oneshot help modifiers`"},
    {OSH_FOREIGN_FLAG, "iters", "want it in a recipe: docs/how-to/learned-rounding.md"},
    {OSH_FOREIGN_FLAG, "trust_remote_code",
     "the program never runs code of a model: remove the flag"},
    {OSH_FOREIGN_FLAG, "quiet", "want --progress none"},
    {OSH_FOREIGN_FLAG, "verbose", "want --log-level info"},
    {OSH_FOREIGN_FLAG, "debug", "want --log-level debug"},
    {OSH_FOREIGN_FLAG, "dry_run", "want `oneshot plan` and the same flags"},
    {OSH_FOREIGN_FLAG, "resume", "want the command of the interrupted run again"},
    {OSH_FOREIGN_FLAG, "continue", "want the command of the interrupted run again"},
    {OSH_FOREIGN_FLAG, "force", "want --overwrite, which replaces a finished output"},
    {OSH_FOREIGN_FLAG, "yes",
     "the program asks no questions; --overwrite replaces a finished output"},
    {OSH_FOREIGN_FLAG, "cache_dir", "want the environment variable HF_HOME"},
    {OSH_FOREIGN_FLAG, "token", "want the environment variable HF_TOKEN"},
    {OSH_FOREIGN_FLAG, "gpus", ONE_GPU},
    {OSH_FOREIGN_FLAG, "gpu", "want --device cuda or cuda:N"},
    {OSH_FOREIGN_FLAG, "num_gpus", ONE_GPU},
    {OSH_FOREIGN_FLAG, "cpu", "want --device cpu"},
    {OSH_FOREIGN_FLAG, "device_map", "want --device; budgets decide where values are stored"},
    {OSH_FOREIGN_FLAG, "tensor_parallel_size", SPLIT},
    {OSH_FOREIGN_FLAG, "tp", SPLIT},
    {OSH_FOREIGN_FLAG, "max_memory", "want --host-memory and --device-memory"},
    {OSH_FOREIGN_FLAG, "low_gpu_mem_usage", "want --device-memory SIZE"},
    {OSH_FOREIGN_FLAG, "offload_folder", "want --scratch-dir"},
    {OSH_FOREIGN_FLAG, "push_to_hub", UPLOAD},
    {OSH_FOREIGN_FLAG, "upload", UPLOAD},
    {OSH_FOREIGN_FLAG, "format", FORMAT},
    {OSH_FOREIGN_FLAG, "tasks", TASKS},
    {OSH_FOREIGN_FLAG, "awq", "want a recipe: docs/how-to/awq.md"},
    {OSH_FOREIGN_FLAG, "gptq", "want --method gptq"},
    {OSH_FOREIGN_FLAG, "algorithm", "want --method gptq, or a recipe"},

    {OSH_FOREIGN_SCHEME, "int4", "want W4A16"},
    {OSH_FOREIGN_SCHEME, "w4", "want W4A16"},
    {OSH_FOREIGN_SCHEME, "4bit", "want W4A16"},
    {OSH_FOREIGN_SCHEME, "w4a16g128", "want W4A16, and --group-size for another size than 128"},
    {OSH_FOREIGN_SCHEME, "w8", "want W8A16"},
    {OSH_FOREIGN_SCHEME, "8bit", "want W8A16"},
    {OSH_FOREIGN_SCHEME, "fp4", "want NVFP4 or MXFP4"},
    {OSH_FOREIGN_SCHEME, "nf4", "bitsandbytes' NF4 has no compressed-tensors format: want W4A16"},
    {OSH_FOREIGN_SCHEME, "e4m3", "want FP8"},
    {OSH_FOREIGN_SCHEME, "gptq", "want W4A16 with --method gptq"},
    {OSH_FOREIGN_SCHEME, "awq", "want a recipe: docs/how-to/awq.md"},
    {OSH_FOREIGN_SCHEME, "smoothquant", "want a recipe: docs/how-to/smoothquant.md"},
    {OSH_FOREIGN_SCHEME, "autoround", "want a recipe: docs/how-to/learned-rounding.md"},

    {OSH_FOREIGN_VALUE, "format=gguf",
     "the program does not write GGUF: want llama.cpp's llama-quantize"},
    {OSH_FOREIGN_VALUE, "method=awq", "want a recipe: docs/how-to/awq.md"},
    {OSH_FOREIGN_VALUE, "method=smoothquant",
     "want a recipe: docs/how-to/smoothquant.md"},
    {OSH_FOREIGN_VALUE, "method=autoround",
     "want a recipe: docs/how-to/learned-rounding.md"},
    {OSH_FOREIGN_VALUE, "method=auto_round",
     "want a recipe: docs/how-to/learned-rounding.md"},
    {OSH_FOREIGN_VALUE, "method=sparsegpt",
     "want a recipe: docs/how-to/pruning.md"},
    {OSH_FOREIGN_VALUE, "method=best", "want --quality best"},
};

static bool same_word(const char *a, const char *b)
{
    while (*a && osh_near_letter(*a) == osh_near_letter(*b)) a++, b++;
    return !*a && !*b;
}

/* True for types of llama.cpp, such as q4_k_m, q8_0 and iq2_xxs. */
static bool is_gguf_type(const char *s)
{
    if (*s == 'i' || *s == 'I') s++;
    return (*s == 'q' || *s == 'Q') && isdigit((unsigned char)s[1]) &&
           (s[2] == '_' || s[2] == '-');
}

const char *osh_foreign(osh_foreign_kind kind, const char *name)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].kind == kind && same_word(words[i].name, name)) return words[i].text;
    if (kind == OSH_FOREIGN_SCHEME && is_gguf_type(name))
        return "the program does not write GGUF: want W4A16 or W8A16 for vLLM, or llama.cpp's "
               "llama-quantize";
    return NULL;
}
