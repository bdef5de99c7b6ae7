"""gen.py - writes texts that transformers renders, for test_chat_golden.c.

Run from the repository root in an environment with transformers. Reads templates/*.jinja, which use
the features of the chat templates of these families, and conversations.jsonl. Writes three files.
families.json has the text, or the refusal, for each row and template. language.json has the text,
or the refusal, of short templates with variables. The third file is MANIFEST.json. `strftime_now`
gives 2024-07-26."""
import datetime
import json
import os
import warnings
from importlib.metadata import version

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

warnings.simplefilter("ignore")  # hides warnings about unknown escapes
HERE = os.path.dirname(os.path.abspath(__file__))


class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


chat_template_utils.datetime = Frozen
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}  # there is no unk_token


def messages_of(row):
    """Returns the conversation of a row. The row has one of the formats in docs/how-to/chat.md."""
    def ask(*parts):
        return "\n".join(p for p in parts if p)

    def side(cell, role):
        return cell if isinstance(cell, list) else [{"role": role, "content": cell}]
    names = {"human": "user", "gpt": "assistant"}
    if row.get("messages") is not None:
        return row["messages"]
    if row.get("conversations") is not None:
        return [{"role": names.get(t["from"], t["from"]), "content": t["value"]} for t in row["conversations"]]
    if row.get("prompt") is not None:
        return side(row["prompt"], "user") + side(row["completion"], "assistant")
    if "instruction" in row:
        return side(ask(row["instruction"], row.get("input")), "user") + side(row["output"], "assistant")
    return side(row["question"], "user") + side(row["answer"], "assistant")


def tools_of(row):
    tools = row.get("tools")
    if isinstance(tools, str):
        return json.loads(tools) if tools else None
    return tools


def families():
    with open(os.path.join(HERE, "conversations.jsonl"), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    folder = os.path.join(HERE, "templates")
    out = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as f:
            tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel()), chat_template=f.read(), **TOKENS)
        texts = []
        for row in rows:
            try:
                texts.append(tok.apply_chat_template(messages_of(row), tools=tools_of(row), tokenize=False))
            except Exception:
                texts.append(None)
        out[name[: -len(".jinja")]] = texts
    return out


def language():
    with open(os.path.join(HERE, "language.txt"), encoding="utf-8", newline="") as f:
        blocks = f.read().split("\n====\n")
    with open(os.path.join(HERE, "variables.json"), encoding="utf-8") as f:
        variables = json.load(f)
    out = []
    for block in blocks:
        try:
            out.append([block, chat_template_utils._compile_jinja_template(block).render(**variables)])
        except Exception:
            out.append([block, None])
    return out


def write(name, value):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=0)
        f.write("\n")


write("families.json", families())
write("language.json", language())
write("MANIFEST.json", {"packages": {p: version(p) for p in ("transformers", "jinja2", "tokenizers")}, "tokens": TOKENS})
