"""bench_peer.py - runs the other programs of scripts/bench.sh and scripts/quality-table.sh, in
their own Python.

  compress MODEL OUT RECIPE DATASET SAMPLES LENGTH
      runs LLM Compressor on the samples of oneshot, one at a time
  auto_round MODEL OUT RECIPE DATASET SAMPLES LENGTH SEED
      runs auto-round on the same samples, 8 in each step, with the scheme and the iters of RECIPE.
      Writes the dequantized model
  text MODEL OUT DATASET SAMPLES LENGTH
      writes the same samples as plain text, for llama-imatrix
  dense MODEL OUT DIR/OURS.gguf DIR/THEIRS.gguf
      writes the weights of THEIRS as a BF16 checkpoint, with the other files of MODEL. OURS was
      converted from MODEL, and its weights must equal those of MODEL
"""
import json
import pathlib
import shutil
import sys


def token_ids(tokenizer, dataset, samples, length):
    rows = [json.loads(line) for line in open(dataset)][:int(samples)]
    return [(r["input_ids"] if "input_ids" in r else tokenizer(r["text"]).input_ids)[:int(length)] for r in rows]


def tokenizer_of(model_dir):
    """Returns the tokenizer of a model, or that of the bundled model if the model has none. LLM
    Compressor wants a tokenizer even if the dataset has ids."""
    from transformers import AutoTokenizer
    own = (pathlib.Path(model_dir) / "tokenizer.json").exists()
    return AutoTokenizer.from_pretrained(model_dir if own else pathlib.Path(__file__).parents[1] / "examples/docs-llama-3m")


def compress(model_dir, out, recipe, dataset, samples, length):
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.pipelines.cache import IntermediatesCache
    from transformers import AutoModelForCausalLM
    import time
    import torch
    # AWQModifier pins cached values in memory. With a torch for CUDA, this fails on a machine
    # without a GPU.
    if not torch.cuda.is_available():
        IntermediatesCache.pin_memory = lambda self, *args: None
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
    tokenizer = tokenizer_of(model_dir)
    ids = token_ids(tokenizer, dataset, samples, length)
    begin = time.monotonic()
    oneshot(model=model, processor=tokenizer, recipe=recipe, pipeline="sequential", num_calibration_samples=len(ids),
            max_seq_length=int(length), shuffle_calibration_samples=False, batch_size=1,
            dataset=Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * len(r) for r in ids]}))
    print(f"oneshot: {time.monotonic() - begin:.1f} s", flush=True)
    model.save_pretrained(out, save_compressed=True)
    tokenizer.save_pretrained(out)


def auto_round(model_dir, out, recipe, dataset, samples, length, seed):
    from auto_round import AutoRound
    from transformers import AutoModelForCausalLM
    import torch
    import yaml
    stage = next(iter(yaml.safe_load(pathlib.Path(recipe).read_text()).values()))
    modifier = next(iter(stage.values()))["AutoRoundModifier"]
    weights = modifier["config_groups"]["group_0"]["weights"]
    if weights["type"] != "int" or weights["strategy"] != "group":
        sys.exit(f"auto_round: {recipe}: found {weights['type']} weights with strategy {weights['strategy']}, want int and group")
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
    tokenizer = tokenizer_of(model_dir)
    ids = [torch.tensor([r]) for r in token_ids(tokenizer, dataset, samples, length)]
    rounding = AutoRound(model, tokenizer, bits=weights["num_bits"], group_size=weights["group_size"],
                         sym=weights["symmetric"], iters=modifier["iters"], nsamples=len(ids), seqlen=int(length),
                         batch_size=8, seed=int(seed), device_map="cpu", enable_torch_compile=False,
                         dataset=[{"input_ids": i, "attention_mask": torch.ones_like(i)} for i in ids])
    rounding.quantize()
    rounding.save_quantized(out, format="fake", inplace=True)


def text(model_dir, out, dataset, samples, length):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    # the rows are joined before decoding, because the bytes of a letter may continue in the next
    # row
    ids = [i for row in token_ids(tokenizer, dataset, samples, length) for i in row]
    pathlib.Path(out).write_text(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def weights_of(gguf, path, config):
    """Returns {name: f32 array} of a GGUF file, with the names and the row order of the original
    checkpoint."""
    reader = gguf.GGUFReader(path)
    kind = reader.get_field("general.architecture").contents()
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    tensors = {t.name: t for t in reader.tensors}
    heads = {"q_proj": config["num_attention_heads"],
             "k_proj": config.get("num_key_value_heads", config["num_attention_heads"])}

    def get(name):
        t = tensors[names.get_name(name, try_suffixes=(".weight", ".bias"))]
        w = gguf.dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)])
        n = next((n for leaf, n in heads.items() if f".{leaf}." in name), 0)
        if kind == "llama" and n: # llama.cpp rotates pairs of neighbours, the checkpoint the halves of a head
            w = w.reshape(n, w.shape[0] // n // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
        return w
    return get


def dense(model_dir, out, ours, theirs):
    import gguf
    import torch
    from safetensors.torch import load_file, save_file
    model_dir, out = pathlib.Path(model_dir), pathlib.Path(out)
    config = json.loads((model_dir / "config.json").read_text())
    converted, quantized = (weights_of(gguf, path, config) for path in (ours, theirs))
    out.mkdir(exist_ok=True)
    for path in model_dir.iterdir():
        if path.suffix == ".safetensors":
            source = load_file(path)
            for name, w in source.items():
                if not torch.equal(torch.from_numpy(converted(name).copy()), w.float()):
                    sys.exit(f"{ours}: the weight {name} differs from that of {path}")
                source[name] = torch.from_numpy(quantized(name).copy()).to(torch.bfloat16)
            save_file(source, out / path.name, metadata={"format": "pt"})
        elif path.is_file():
            shutil.copyfile(path, out / path.name)


if __name__ == "__main__":
    {"compress": compress, "auto_round": auto_round, "text": text, "dense": dense}[sys.argv[1]](*sys.argv[2:])
