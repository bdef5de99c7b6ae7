"""gen.py - writes the samples that LLM Compressor makes of the small model's calibration text, for
test_dataset_golden.c.

Run from the repository root in an environment with llmcompressor. Writes rows.jsonl (24 rows of the
calibration text), one wanted_<case>.json per case (a list of samples, each a list of ids) and
MANIFEST.json. Batches are in the order of the file. LLM Compressor's own samplers sort by length or
shuffle without a seed, so they are not compared."""
import json
import os
from importlib.metadata import version

import torch
from datasets import Dataset
from llmcompressor.args import DatasetArguments
from llmcompressor.datasets.utils import DataCollatorWithTruncation
from llmcompressor.transformers.data import TextGenerationDataset
from transformers import AutoTokenizer
from transformers.data import DataCollatorWithPadding

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "..", "..", "examples", "docs-llama-3m")
tokenizer = AutoTokenizer.from_pretrained(MODEL)

with open(os.path.join(MODEL, "data", "calibration.jsonl"), encoding="utf-8") as f:
    texts = [json.loads(line)["text"] for line in f][:24]
texts = [t[: 40 + 60 * (i % 7)] for i, t in enumerate(texts)]  # makes short texts of many lengths
with open(os.path.join(HERE, "rows.jsonl"), "w", encoding="utf-8") as f:
    f.writelines(json.dumps({"text": t}) + "\n" for t in texts)

CASES = {  # name: arguments of LLM Compressor
    "truncation": dict(data_collator="truncation", batch_size=5, max_seq_length=48),
    "truncation_1": dict(data_collator="truncation", batch_size=1, max_seq_length=48),
    "truncation_padded": dict(data_collator="truncation", batch_size=5, max_seq_length=48, pad_to_max_length=True),
    "padding": dict(data_collator="padding", batch_size=4, max_seq_length=48),
    "concatenate": dict(data_collator="truncation", batch_size=3, max_seq_length=48, concatenate_data=True),
}
for name, case in CASES.items():
    args = DatasetArguments(dataset=Dataset.from_dict({"text": texts}), num_calibration_samples=None, **case)
    rows = TextGenerationDataset(args, split=None, processor=tokenizer)()
    rows = [{k: r[k] for k in ("input_ids", "attention_mask")} for r in rows]
    collate = (DataCollatorWithTruncation(args.max_seq_length) if args.data_collator == "truncation"
               else DataCollatorWithPadding(tokenizer))
    samples = []
    for start in range(0, len(rows), args.batch_size):
        batch = collate(rows[start : start + args.batch_size])
        for ids, mask in zip(torch.as_tensor(batch["input_ids"]), torch.as_tensor(batch["attention_mask"])):
            samples.append(ids[mask.bool()].tolist())  # padding is not stored
    with open(os.path.join(HERE, f"wanted_{name}.json"), "w", encoding="utf-8") as f:
        json.dump(samples, f)
        f.write("\n")

packages = ("llmcompressor", "transformers", "tokenizers", "datasets", "torch")
with open(os.path.join(HERE, "MANIFEST.json"), "w", encoding="utf-8") as f:
    json.dump({"packages": {p: version(p) for p in packages}, "cases": CASES}, f, indent=2)
    f.write("\n")
