"""gen.py - writes the texts that LLM Compressor makes from rows of its registered data sets, for
test_registered.c.

Run from the repository root in an environment with llmcompressor. The rows are invented and have
the columns of these data sets. Conversations use templates of ../chat/templates. For a data set
that has its own template in LLM Compressor, only this template is used. Writes MANIFEST.json and
registered.json, a list of {name, template, row, text}. If text is null, the row is refused."""
import copy
import json
import os
from importlib.metadata import version

from llmcompressor.args import DatasetArguments
from llmcompressor.transformers.data import TextGenerationDataset
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
TEMPLATES = [None, "smollm2", "llama3", "qwen2_5", "qwen3", "gemma2", "phi3", "mistral"]
ASK = [["user", "a {b}\n"], ["assistant", " \u00e9\u4e2d \U0001f600 "], ["user", "c"], ["assistant", "<|im_end|> d"]]


def chat(turns, role, content, names=None):
    return [{role: (names or {}).get(r, r), content: text} for r, text in turns]


MESSAGES = [{"messages": chat(t, "role", "content")} for t in (ASK, [["system", "be brief"], *ASK], [["system", ""], *ASK[:2]], ASK[1:])]
OF = {"user": "human", "assistant": "gpt"}
BLEND = [{"conversations": chat(t, "from", "value", OF)} for t in (ASK, [["system", "be brief"], *ASK], ASK[:1], [["tool", "x"], *ASK[:2]])]
ROWS = {
    "gsm8k": [{"question": "1 {plus} 1?\n", "answer": "#### 2"}, {"question": "", "answer": " \u00e9"}],
    "cnn_dailymail": [{"article": "News {x}\n\n", "highlights": "short"}, {"article": "", "highlights": ""}],
    "ultrachat_200k": MESSAGES,
    "ultrachat": MESSAGES[:1],
    "perfectblend": BLEND,
}
out = []
for name, rows in ROWS.items():
    for template in TEMPLATES if "messages" in rows[0] or "conversations" in rows[0] else [None]:
        text = None
        if template:
            with open(os.path.join(HERE, "..", "chat", "templates", template + ".jinja"), encoding="utf-8", newline="") as f:
                text = f.read()
        tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel()), chat_template=text, **TOKENS)
        data = TextGenerationDataset.load_from_registry(name, dataset_args=DatasetArguments(), split="train", processor=tok)
        for row in rows:
            try:
                made = data.dataset_template(copy.deepcopy(row))["text"]
            except Exception:
                made = None
            out.append({"name": name, "template": template, "row": row, "text": made})
with open(os.path.join(HERE, "registered.json"), "w", encoding="utf-8") as f:
    json.dump(out, f, ensure_ascii=False, indent=0)
    f.write("\n")
with open(os.path.join(HERE, "MANIFEST.json"), "w", encoding="utf-8") as f:
    json.dump({"packages": {p: version(p) for p in ("llmcompressor", "transformers", "jinja2")}, "tokens": TOKENS}, f, indent=2)
    f.write("\n")
