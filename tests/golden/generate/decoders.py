"""decoders.py - writes texts that the tokenizers library decodes from ids. There are texts for each
kind of decoder that a tokenizer.json can have.

decoders.json: a list of {"name", "tokenizer" (a tokenizer.json), "rows": [[ids, text], ...]}.
Special tokens are skipped. Run: python decoders.py (tokenizers)
"""
import json
import pathlib
import random

import tokenizers

HERE = pathlib.Path(__file__).parent
BYTES = [f"<0x{b:02X}>" for b in (0xE2, 0x82, 0xAC, 0x41, 0xFF, 0xF0)]
METASPACE = ["▁", "▁the", "▁▁", "cat", "s", "▁Tür", "é", "x▁y", "."] + BYTES
BYTE_LEVEL = ["Ġthe", "cat", "Ċ", "âĤ", "¬", "Ã", "©", "Ġ", "ðŁ", "ĺ", "Ģ", "x€", "ÿ"]
WORDS = ["the", "##re", "cat", "##s", ".", ",", "do", "not", "'", "s", "n't", "##"]
SUFFIXES = ["the</w>", "ca", "t</w>", "s", ".</w>", "</w>"]
LLAMA = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                          {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
GEMMA = {"type": "Sequence", "decoders": LLAMA["decoders"][:3]}
STRIP = {"type": "Sequence", "decoders": [{"type": "Strip", "content": "s", "start": 1, "stop": 0},
                                          {"type": "Replace", "pattern": {"Regex": "[.,]+"}, "content": "!"}]}
CASES = [("llama", METASPACE, LLAMA), ("gemma", METASPACE, GEMMA), ("strip", WORDS, STRIP),
         ("metaspace", METASPACE, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}),
         ("metaspace_never", METASPACE, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}),
         ("byte_level", BYTE_LEVEL, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}),
         ("wordpiece", WORDS, {"type": "WordPiece", "prefix": "##", "cleanup": True}),
         ("wordpiece_plain", WORDS, {"type": "WordPiece", "prefix": "##", "cleanup": False}),
         ("suffix", SUFFIXES, {"type": "BPEDecoder", "suffix": "</w>"}), ("none", WORDS, None)]


def make(name, words, decoder):
    vocab = {w: i for i, w in enumerate(words)}
    added = [{"id": len(words) + k, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": k == 0}
             for k, c in enumerate(["<s>", "<tool>", "Ä€x"])]
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": decoder,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": words[0]}}
    t = tokenizers.Tokenizer.from_str(json.dumps(file))
    r = random.Random(name)
    rows = [[i] for i in range(len(words) + 3)] + [list(range(len(words) + 3)), list(range(len(words) + 2, -1, -1))]
    rows += [[r.randrange(len(words) + 3) for _ in range(r.randrange(2, 9))] for _ in range(24)]
    return {"name": name, "tokenizer": file, "rows": [[ids, t.decode(ids, skip_special_tokens=True)] for ids in rows]}


if __name__ == "__main__":
    cases = [make(*c) for c in CASES]
    (HERE / "decoders.json").write_text("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]\n")
    print(tokenizers.__version__, sum(len(c["rows"]) for c in cases), "rows")
