/* topics.c - contains the texts of `oneshot help TOPIC`. Each text has at most 40 lines
 * and 80 columns. */
#include "modifiers/topics.h"

#include <stddef.h>
#include <strings.h>

const osh_topic osh_topics[] = {
    {"gptq", "GPTQModifier", "codes that keep the outputs of layers",
     "GPTQ chooses the codes of a weight so that the layer's output changes least on\n"
     "calibration data. Rounding to nearest looks at the weight alone.\n"
     "\n"
     "  oneshot DIR --scheme W4A16 --quality gptq --dataset chats.jsonl\n"
     "  oneshot DIR --scheme W4A16 --quality best --dataset chats.jsonl\n"
     "\n"
     "gptq  has the codes of LLM Compressor's GPTQModifier.\n"
     "best  also searches scales, refines codes, and compares with the original\n"
     "      model. It takes longer and loses less in the same bytes.\n"
     "\n"
     "128 to 512 samples of the kind that the model will see are enough. In a recipe:\n"
     "\n"
     "  default_stage:\n"
     "    default_modifiers:\n"
     "      GPTQModifier: {scheme: W4A16, ignore: [lm_head]}\n"
     "\n"
     "  block_size      columns of a block [128]\n"
     "  dampening_frac  share of mean(diag H) that is added to diag H [0.01]\n"
     "  actorder        order of the columns: static, weight or none\n"
     "  quality: best   the same as --quality best\n"
     "\n"
     "The report has the loss of each module. More: docs/explanation/quality.md,\n"
     "oneshot help modifiers"},
    {"awq", "AWQModifier", "factors for the columns that matter most",
     "AWQ multiplies the weight columns that large activations read, so that they are\n"
     "rounded more finely, and divides the activations by the same factors. It needs\n"
     "calibration data, and a quantizer after it. There is no flag for it, but a\n"
     "recipe:\n"
     "\n"
     "  default_stage:\n"
     "    default_modifiers:\n"
     "      AWQModifier: {}\n"
     "      QuantizationModifier: {scheme: W4A16, ignore: [lm_head]}\n"
     "\n"
     "  oneshot DIR --recipe awq.yaml --dataset chats.jsonl\n"
     "\n"
     "  duo_scaling  true, false or both: true counts weights in the factors [true]\n"
     "  n_grid       number of exponents that the search tries [20]\n"
     "  mappings     pairs of Linears and the layer before them [by architecture]\n"
     "\n"
     "The output has the format of the scheme, not that of AutoAWQ, and loads in vLLM\n"
     "without a flag. --quality best often loses less and needs no recipe. More:\n"
     "docs/how-to/awq.md"},
    {"recipes", NULL, "the YAML files of LLM Compressor",
     "A recipe lists stages, and each stage lists modifiers in the order in which they\n"
     "run. The recipes of LLM Compressor work unchanged:\n"
     "\n"
     "  default_stage:\n"
     "    default_modifiers:\n"
     "      SmoothQuantModifier: {smoothing_strength: 0.8}\n"
     "      GPTQModifier:\n"
     "        ignore: [lm_head]\n"
     "        config_groups:\n"
     "          group_0:\n"
     "            targets: [Linear]\n"
     "            weights: {num_bits: 4, strategy: group, group_size: 64}\n"
     "\n"
     "  oneshot DIR --recipe recipe.yaml --dataset chats.jsonl\n"
     "\n"
     "targets and ignore have names of modules, classes, or re: and a regular\n"
     "expression. `scheme: W4A16` replaces config_groups. `quality: best` in a\n"
     "modifier, or --quality best, chooses the codes with the least loss.\n"
     "\n"
     "--scheme W4A16 writes such a recipe: the file recipe.yaml of an output repeats\n"
     "the run. A recipe names the head itself: without ignore, `Linear` includes it.\n"
     "\n"
     "Names and keys of modifiers: oneshot help modifiers"},
    {"formats", NULL, "how codes are stored, and which programs read them",
     "Outputs are Hugging Face directories in the formats of compressed-tensors. The\n"
     "scheme decides the format; vLLM and transformers read it from config.json.\n"
     "\n"
     "  pack-quantized        integers of 2 to 8 bits, inputs as they are (W4A16)\n"
     "  int-quantized         8-bit integers, inputs rounded too (W8A8)\n"
     "  float-quantized       8-bit floats, inputs rounded too (FP8, FP8_DYNAMIC)\n"
     "  naive-quantized       8-bit floats, inputs as they are\n"
     "  nvfp4-pack-quantized  4-bit floats in groups of 16 (NVFP4)\n"
     "  mxfp4-pack-quantized  4-bit floats in groups of 32 (MXFP4)\n"
     "  mxfp6-pack-quantized  6-bit floats in groups of 32 (MXFP6A16)\n"
     "  mxfp8-quantized       8-bit floats in groups of 32 (MXFP8)\n"
     "\n"
     "`oneshot help W4A16` names the programs that load a scheme. Sources in these\n"
     "formats, in FP8, and with experts in MXFP4 can be compressed again.\n"
     "\n"
     "No other formats are written. For llama.cpp convert the source with its\n"
     "convert_hf_to_gguf.py. More: docs/reference/formats.md"},
    {"environment", NULL, "variables that the program reads",
     "  HF_HOME, HF_HUB_CACHE    directory of the Hub's tools, and of its cache\n"
     "  HF_TOKEN, HF_TOKEN_PATH  token, or the file that has it\n"
     "  HF_HUB_DISABLE_IMPLICIT_TOKEN\n"
     "                           1: no token is sent\n"
     "  HF_ENDPOINT              address of the Hub [https://huggingface.co]\n"
     "  HF_DATASETS_SERVER       address of the server of data set rows\n"
     "  HF_HUB_OFFLINE           1: no network is used; also TRANSFORMERS_OFFLINE\n"
     "  HF_HUB_DOWNLOAD_TIMEOUT  seconds without a byte until a request fails [10]\n"
     "  HF_HUB_DISABLE_SYMLINKS  1: the cache gets files instead of links\n"
     "  XDG_CACHE_HOME           parent of HF_HOME if that is not set [~/.cache]\n"
     "  HTTP_PROXY, HTTPS_PROXY, NO_PROXY\n"
     "                           proxies\n"
     "  SSL_CERT_FILE, SSL_CERT_DIR\n"
     "                           certificates of servers\n"
     "  ONESHOT_PROFILING        1, or a file: as --profile\n"
     "  NO_COLOR                 not empty: no bold text on a terminal\n"
     "  TERM                     dumb: lines instead of a line that is drawn again\n"
     "\n"
     "No variable changes the bytes of an output. More: docs/how-to/hub.md"},
    {"exit-codes", "exit_codes", "meaning of the exit code of a command",
     "  0  The command succeeded. An output exists, is complete, and was read back\n"
     "     when it was made.\n"
     "  1  The command failed: a file cannot be read or written, a checkpoint is\n"
     "     damaged or not supported, a weight is NaN, memory is used up, or SIGINT or\n"
     "     SIGTERM came. For verify and check-model: something differs.\n"
     "  2  A flag, a value or a recipe key is wrong, a budget is too small, or the\n"
     "     output's path holds files that must stay.\n"
     "\n"
     "A failure prints one line on standard error: the found value, the wanted value,\n"
     "and the file or module. With --progress json, the line is an object with the\n"
     "event `error`.\n"
     "\n"
     "A run that fails leaves nothing under the output's name. If the same command can\n"
     "continue the run, a second line names the directory with the finished work.\n"
     "More: docs/reference/errors.md"},
    {0},
};

const osh_topic *osh_topic_find(const char *name)
{
    for (const osh_topic *t = osh_topics; t->name; t++)
        if (!strcasecmp(name, t->name) || (t->also && !strcasecmp(name, t->also))) return t;
    return NULL;
}
