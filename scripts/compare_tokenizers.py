#!/usr/bin/env python3
"""compare_tokenizers.py - compares `oneshot tokenize` with the tokenizers library on 10 MB of
invented text in 28 scripts, and measures its speed.

    compare_tokenizers.py --oneshot build/release/oneshot --work DIR [--families DIR]

DIR gets text.txt. The first run trains tokenizers on this text and writes them to DIR: Unigram with
SentencePiece's nmt_nfkc (like the files of T5, XLM-R and ALBERT), Unigram with byte fallback,
WordPiece like BERT's, WordLevel, and BPE of 200,000 tokens with the pattern of gpt-oss. --families
names a directory with one directory per real tokenizer, which has tokenizer.json or
tokenizer.json.zst. Every line is compared, and then the whole text. Needs tokenizers, sentencepiece
and protobuf. Exits with 1 on a difference.
"""
import argparse
import base64
import json
import os
import random
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

BYTES = 10_000_000
# The writing systems. A row has three texts: the range of letters and marks (first and last), the
# range of digits (first and last), and the end of a sentence (punctuation and space).
SCRIPTS = {
    "Latin": ("az", "09", ". "), "Latin extended": ("\u00df\u017e", "09", "! "), "Vietnamese": ("\u1ea1\u1ef9", "09", ", "),
    "Greek": ("\u0386\u03ce", "09", "; "), "Cyrillic": ("\u0410\u045f", "09", ". "), "Armenian": ("\u0531\u0586", "09", "\u0589 "),
    "Georgian": ("\u10d0\u10f0", "09", ". "), "Hebrew": ("\u05b0\u05ea", "09", "\u05c3 "), "Arabic": ("\u0620\u0652", "\u0660\u0669", "\u061f "),
    "Syriac": ("\u0710\u074a", "09", "\u0700 "), "Thaana": ("\u0780\u07b0", "09", ". "), "Devanagari": ("\u0901\u094d", "\u0966\u096f", "\u0964 "),
    "Bengali": ("\u0981\u09cd", "\u09e6\u09ef", "\u0964 "), "Gurmukhi": ("\u0a01\u0a4d", "\u0a66\u0a6f", "\u0964 "),
    "Gujarati": ("\u0a81\u0acd", "\u0ae6\u0aef", ". "), "Tamil": ("\u0b82\u0bcd", "\u0be6\u0bef", ". "), "Telugu": ("\u0c01\u0c4d", "\u0c66\u0c6f", ". "),
    "Kannada": ("\u0c82\u0ccd", "\u0ce6\u0cef", ". "), "Malayalam": ("\u0d02\u0d4d", "\u0d66\u0d6f", ". "), "Sinhala": ("\u0d82\u0ddf", "09", "\u0df4 "),
    "Thai": ("\u0e01\u0e4c", "\u0e50\u0e59", " "), "Lao": ("\u0e81\u0ecc", "\u0ed0\u0ed9", " "), "Tibetan": ("\u0f40\u0f7e", "\u0f20\u0f29", "\u0f0d "),
    "Burmese": ("\u1000\u103e", "\u1040\u1049", "\u104b "), "Ethiopic": ("\u1200\u135a", "09", "\u1362"), "Khmer": ("\u1780\u17d2", "\u17e0\u17e9", "\u17d4"),
    "Mongolian": ("\u1820\u1878", "\u1810\u1819", "\u1803 "), "Hangul": ("\uac00\ud7a3", "09", ". "), "Japanese": ("\u3041\u30fa", "09", "\u3002"),
    "Han": ("\u4e00\u9fa5", "09", "\uff0c"),
}
EXTRAS = ["\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "http://a.b/c?d=1&e", "it's", "DON'T", "\uff21\uff22", "\u00bd", "\ufb01", "  ", "\t", "x=[1,2];",
          "\u200b", "\u3000", "e\u0301", "\u212b", "<s>", "...", "1234567", "\u2581", "camelCaseWord", "snake_case", "\u2028", "`` ''", "\u0130I"]
O200K = "|".join([
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    "\\p{N}{1,3}", " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*", "\\s*[\\r\\n]+", "\\s+(?!\\S)", "\\s+"])


def words_of(script, rng):
    first, last = SCRIPTS[script][0]
    chars = [chr(c) for c in range(ord(first), ord(last) + 1) if unicodedata.category(chr(c))[0] in "LM"]
    apart = script not in ("Thai", "Lao", "Khmer", "Japanese", "Han", "Tibetan")
    common = rng.sample(chars, min(len(chars), 60))
    letter = lambda: rng.choice(common if rng.random() < 0.8 else chars)
    words = ["".join(letter() for _ in range(1 + int(rng.expovariate(0.25)))) for _ in range(6000)]
    return words, apart


def make_text(path):
    """Writes a text: random words of each script (Zipf distribution), digits, punctuation, and text
    that tokenizers treat in a special way."""
    rng = random.Random(1)
    each = BYTES // len(SCRIPTS)
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        for script, (_, digits, end) in SCRIPTS.items():
            words, apart = words_of(script, rng)
            size = 0
            while size < each:
                line = []
                for _ in range(rng.randint(3, 60)):
                    r = rng.random()
                    word = words[min(int(rng.paretovariate(0.6)) - 1, len(words) - 1)]
                    if r < 0.03:
                        word = "".join(chr(rng.randint(ord(digits[0]), ord(digits[1]))) for _ in range(rng.randint(1, 7)))
                    elif r < 0.06:
                        word = rng.choice(EXTRAS)
                    elif r < 0.1:
                        word = word.capitalize()
                    line.append(word + (end if rng.random() < 0.1 else " " if apart or rng.random() < 0.05 else ""))
                text = "".join(line) + "\n"
                size += len(text.encode())
                f.write(text)


def save(folder, spec):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                   "pre_tokenizer": None, "post_processor": None, "decoder": None, **spec}, f, ensure_ascii=False)


def train_unigram(work, text):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as proto
    for name, fallback in (("unigram", False), ("unigram_bytes", True)):
        model = os.path.join(work, name)
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=model, vocab_size=32000, model_type="unigram", byte_fallback=fallback, character_coverage=0.999,
            input_sentence_size=20000, shuffle_input_sentence=True, minloglevel=2, hard_vocab_limit=False)
        m = proto.ModelProto()
        m.ParseFromString(open(model + ".model", "rb").read())
        spec = {"type": "Unigram", "unk_id": 0, "byte_fallback": fallback, "vocab": [[p.piece, p.score] for p in m.pieces]}
        charsmap = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(m.normalizer_spec.precompiled_charsmap).decode()}
        metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
        replace = lambda kind, what, by: {"type": "Replace", "pattern": {kind: what}, "content": by}
        save(model, {"model": spec, "normalizer": charsmap, "pre_tokenizer": metaspace})
        if fallback:
            continue
        save(model + "_xlmr", {"model": spec, "normalizer": {"type": "Sequence", "normalizers": [charsmap, replace("Regex", " {2,}", " ")]},
                               "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}})
        steps = [replace("String", "``", '"'), replace("String", "''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, charsmap]
        save(model + "_albert", {"model": spec, "normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": metaspace})


def train_others(work, text):
    def train(name, model, trainer, normalizer, pre_tokenizer):
        t = Tokenizer(model)
        if normalizer:
            t.normalizer = normalizer
        t.pre_tokenizer = pre_tokenizer
        t.train([text], trainer)
        os.makedirs(os.path.join(work, name), exist_ok=True)
        t.save(os.path.join(work, name, "tokenizer.json"))

    special = ["[UNK]", "[CLS]", "[SEP]"]
    train("wordpiece", models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=30000, special_tokens=special, show_progress=False),
          normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer())
    train("wordlevel", models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(vocab_size=30000, special_tokens=special, show_progress=False),
          normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]), pre_tokenizers.Whitespace())
    from tokenizers import Regex
    train("bpe_o200k", models.BPE(), trainers.BpeTrainer(vocab_size=200000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
          None, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(O200K), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


# Code of a small helper process that starts oneshot. (The measured peak of a process includes the
# memory of the parent that forks it, so the parent must be small.)
SPAWN = """import os, sys
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
print(status, usage.ru_utime, usage.ru_maxrss, file=sys.stderr)
"""


def run(oneshot, folder, path):
    """Returns ids of each line, seconds of the processor in user space, peak memory in MB."""
    out = path + ".ids"
    with open(out, "wb") as f:
        cmd = [sys.executable, "-S", "-c", SPAWN, oneshot, "tokenize", "--no-special-tokens", "--model", folder, path]
        done = subprocess.run(cmd, stdout=f, stderr=subprocess.PIPE, text=True, check=True).stderr
    status, seconds, peak = done.split("\n")[-2].split()
    if status != "0":
        sys.exit(f"oneshot tokenize of {folder}: {done}")
    with open(out) as f:
        return [[int(x) for x in line.split()] for line in f], float(seconds), float(peak) / 1024


def compare(oneshot, name, folder, text):
    library = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    library.no_truncation()
    library.no_padding()
    lines = open(text, encoding="utf-8", newline="\n").read().split("\n")[:-1]
    empty, whole = text + ".empty", text + ".whole"
    open(empty, "w").close()
    with open(whole, "w", encoding="utf-8", newline="\n") as f:
        f.write("\u2028".join(lines))
    _, load, _ = run(oneshot, folder, empty)
    got, seconds, _ = run(oneshot, folder, text)
    bad = n = 0
    for at in range(0, len(lines), 4000):
        want = [e.ids for e in library.encode_batch(lines[at:at + 4000], add_special_tokens=False)]
        n += sum(map(len, want))
        for i, (a, b) in enumerate(zip(want, got[at:at + 4000])):
            if a != b:
                bad += 1
                if bad <= 3:
                    k = next((j for j, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                    print(f"  line {at + i + 1}, id {k}: library {a[k:k + 8]}, oneshot {b[k:k + 8]}; {lines[at + i][:40]!r}")
    bad += len(lines) != len(got)
    got, seconds_whole, peak = run(oneshot, folder, whole)
    one = library.encode("\u2028".join(lines), add_special_tokens=False).ids == got[0]
    size = os.path.getsize(text) / 1e6
    print(f"{name:16} {n:9} ids, {bad} of {len(lines)} lines differ, as one text {'the same ids' if one else 'OTHER IDS'}; load {load:.2f} s,"
          f" {size / max(seconds - load, 1e-3):.1f} MB/s by lines, {size / max(seconds_whole - load, 1e-3):.1f} MB/s as one text,"
          f" peak {peak:.0f} MB", flush=True)
    return bad or not one


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--oneshot", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--families")
    p.add_argument("--only", help="names of tokenizers, separated by commas")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    text = os.path.join(a.work, "text.txt")
    if not os.path.exists(text):
        make_text(text)
    if not os.path.exists(os.path.join(a.work, "unigram_albert")):
        train_unigram(a.work, text)
    if not os.path.exists(os.path.join(a.work, "bpe_o200k")):
        train_others(a.work, text)
    for d in sorted(os.listdir(a.families)) if a.families else []:
        to = os.path.join(a.work, d)
        packed = os.path.join(a.families, d, "tokenizer.json.zst")
        plain = os.path.join(a.families, d, "tokenizer.json")
        if not os.path.exists(to):
            os.makedirs(to)
            subprocess.run(["zstd", "-qdf", packed, "-o", to + "/tokenizer.json"] if os.path.exists(packed) else
                           ["cp", plain, to + "/tokenizer.json"], check=True)
    names = sorted(d for d in os.listdir(a.work) if os.path.exists(os.path.join(a.work, d, "tokenizer.json")))
    only = a.only.split(",") if a.only else names
    bad = [n for n in names if n in only and compare(a.oneshot, n, os.path.join(a.work, n), text)]
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
