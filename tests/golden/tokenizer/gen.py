#!/usr/bin/env python3
"""gen.py - writes the expected results of this directory with the tokenizers library:
components.json, mixed.ids, invalid.ids and MANIFEST.json.

    gen.py [PATH OF docs-llama-3m]        (default: the repository's examples/docs-llama-3m)

components.json has tiny tokenizers that each test one component. The model "probe" has only the 256
byte tokens in its vocabulary and appends "|" to every word. So its ids show the bytes of each word
and the positions at which the text was split.
"""
import base64
import json
import os
import struct
import sys
import zlib

import tokenizers
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))

TEXTS = [
    "", " ", "   ", "a", "Hello, world!", "  two  spaces  ", "tab\tnew\nline\r\n end", "don't WE'LL I'm 'S '\u017f",
    "abc123 45x6\u0663\u0664 \u2167\u00bd\u00b2", "na\u00efve cafe\u0301 \u00c5ngstr\u00f6m \u212b \u1e9b\u0323", "\ufb01x \u00bd \u2460 \u3350 \uff21 \uac00\u1112\u1161\u11ab",
    "\u0130I\u03a3\u03a3 \u00df\u1e9e \u01c5", "nbsp\u00a0x\u3000y\u200bz\u2028w\u180ev\ufeff", "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u30ab\u30bf\u304b",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea 1\ufe0f\u20e3", "a_b-c.d(e)[f]{g}?!$+<=>^`|~", "\u2581x \u2581\u2581y", "<s>a</s> <s>", "x<tag>y <tag> z<tag>",
    " <mask> a<mask>b  <mask>  ", "cat concat cat_ cat! (cat)cat \u00e9cat", "\u0378\U00031350\u32ff\ua7f2\U0001fae8\U00010d50\u1c89 \u166d\u061d",
]


def byte_vocab(start):
    return {f"<0x{i:02X}>": start + i for i in range(256)}


def bpe(vocab, merges, **more):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges, **more}


def gpt2_chars():
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    chars, extra = [], 0
    for b in range(256):
        if b in keep:
            chars.append(chr(b))
        else:
            chars.append(chr(256 + extra))
            extra += 1
    return chars


def models():
    probe = bpe(byte_vocab(0), [], byte_fallback=True, end_of_word_suffix="|")
    words = ["he", "ll", "hell", "hello", "wo", "wor", "ld", "world", "ab", "abc", "bc", "aa", "aaaa", "\u2581a", "\u2581", "o\u2581"]
    vocab = {"<unk>": 0}
    for c in "abcdefghijklmnopqrstuvwxyzHW,!'\u2581 \u4f60":
        vocab[c] = len(vocab)
    for w in words[:14]:
        vocab.setdefault(w, len(vocab))
    merges = [["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"], ["w", "o"], ["wo", "r"], ["l", "d"], ["wor", "ld"], ["b", "c"],
              ["a", "b"], ["ab", "c"], ["a", "bc"], ["a", "a"], ["aa", "aa"], ["\u2581", "a"]]
    plain = bpe(vocab, merges, unk_token="<unk>")
    sub = {"<unk>": 0, "a": 1, "b": 2, "c": 3, "##a": 4, "##b": 5, "##c": 6, "a</w>": 7, "##c</w>": 8, "ab": 9, "##bc</w>": 10,
           "abc</w>": 11, "##b</w>": 12, "ab##c": 13, "b</w>": 14}
    pieces = {"<unk>": 0, "<s>": 0.0, "\u2581": -3.4635426998138428, "\u2581a": -4.25, "a": -5.125, "b": -6.0, "ab": -9.0001, "aba": -11.5,
              "ba": -8.0, "\u2581hello": -7.1, "hell": -9.3, "o": -5.5, "\u2581world": -8.75, "l": -6.0, "he": -7.25, "h": -6.5, "e": -4.0,
              "\u4f60": -11.000000953674316, "\u4f60\u597d": -12.1, "\u00e9": -9.123456789012345678, "zz": -22.5, "<0x5A>": -12.0}
    uni = {"type": "Unigram", "unk_id": 0, "vocab": [[k, v] for k, v in pieces.items()], "byte_fallback": False}
    byte_pieces = [[f"<0x{i:02X}>", 0] for i in range(256)]
    wp = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "hello", "he", "##llo", "##l", "##o", "w", "wor", "##ld", "world", "##worlds", "##s", "a", "##",
                                      "b", "##\u00e9", "caf", "\u4f60", "##\u597d", "##b", "aa", "##aa", "##a"])}
    wordpiece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": wp}
    chars = gpt2_chars()
    bv = {c: i for i, c in enumerate(chars)}
    bm = ["\u0120 t", "h e", "l l", "he ll", "\u0120 w", "1 2", "12 3", "\u0120 \u0120", "a b", "\u00c3 \u00a9", "' s"]
    for m in bm:
        bv.setdefault(m.replace(" ", ""), len(bv))
    bv["\u0120world"] = len(bv)
    bv["abc"] = len(bv)
    return {
        "probe": probe,
        "plain": plain,
        "fuse": {**plain, "fuse_unk": True},
        "drop": {**plain, "unk_token": None},
        "fallback": {**plain, "fuse_unk": True, "byte_fallback": True, "vocab": {**vocab, **byte_vocab(len(vocab))}},
        "fallback_partial": {**plain, "byte_fallback": True, "vocab": {**vocab, "<0xC3>": 100, "<0xA9>": 101}},
        "ignore_merges": {**plain, "ignore_merges": True, "vocab": {**vocab, "zebra": 90, "hexa": 91, "o w": 92}},
        "affixes": bpe(sub, [["##b", "##c</w>"], ["a", "##bc</w>"], ["a", "##b"]], unk_token="<unk>", continuing_subword_prefix="##",
                       end_of_word_suffix="</w>"),
        "bytes": bpe(bv, bm),
        "unigram": uni,
        "unigram_fallback": {**uni, "byte_fallback": True, "vocab": uni["vocab"] + byte_pieces},
        "unigram_fallback_partial": {**uni, "byte_fallback": True},
        "unigram_other_unk": {**uni, "unk_id": 4, "vocab": uni["vocab"] + [["a", -5.0], ["ab", -2.0]]},
        "wordpiece": wordpiece,
        "wordpiece_short": {**wordpiece, "max_input_chars_per_word": 5, "continuing_subword_prefix": ""},
        "wordlevel": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": wp},
        "bytes_ignore_merges": {**bpe(bv, bm), "ignore_merges": True},
    }


LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
          "|\\s+(?!\\S)|\\s+")


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def byte_level(prefix, regex):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme, do_split):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": do_split}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def charsmap(pairs):
    """Returns a precompiled_charsmap of SentencePiece: a double-array trie of UTF-8 keys, and the
    replacements of the keys."""
    texts, at = b"", {}
    for new in pairs.values():
        if new not in at:
            at[new] = len(texts)
            texts += new.encode() + b"\0"
    trie = {}
    for old, new in pairs.items():
        node = trie
        for c in old.encode():
            node = node.setdefault(c, {})
        node[0] = at[new]
    units, used = {0: 0}, {0}

    def place(pos, node, label):
        base = next(b for b in range(1 << 20) if (pos ^ b) < 1 << 21 and not any(b ^ c in used for c in node))
        used.update(base ^ c for c in node)
        units[pos] = (pos ^ base) << 10 | (0 in node) << 8 | label
        for c, child in node.items():
            if c:
                place(base ^ c, child, c)
            else:
                units[base] = child | 1 << 31

    place(0, trie, 0)
    n = (max(units) | 255) + 1
    blob = b"".join(struct.pack("<I", units.get(i, 1)) for i in range(n))
    return base64.b64encode(struct.pack("<I", len(blob)) + blob + texts).decode()


def precompiled(pairs):
    return {"type": "Precompiled", "precompiled_charsmap": charsmap(pairs)}


def bert(clean, chinese, strip, lower):
    return {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": strip, "lowercase": lower}


def sweep_text(after):
    """Makes texts of nearly all characters that a table treats in a special way, each followed by
    some text."""
    parts = [(1, 0xD800), (0xE000, 0x20000), (0x2A6D0, 0x2A710), (0x2B730, 0x2B930), (0x2CE90, 0x2CEC0), (0x2F7F0, 0x2FA30),
             (0xE0000, 0xE0200), (0xFFFF0, 0x100010), (0x10FFF0, 0x110000)]
    return "".join(chr(c) + after for lo, hi in parts for c in range(lo, hi))


def sweeps():
    yield "BertNormalizer cleans", {"normalizer": bert(True, False, False, False)}
    yield "BertNormalizer spaces ideographs", {"normalizer": bert(False, True, False, False)}
    yield "BertNormalizer strips and lowers", {"normalizer": bert(False, False, None, True)}
    yield "Nmt", {"normalizer": {"type": "Nmt"}}
    yield "UnicodeScripts", {"pre_tokenizer": {"type": "UnicodeScripts"}}
    yield "Precompiled, graphemes", {"normalizer": precompiled({"a": "X"})}
    # puts each character between marks of low and high combining classes
    for name in ("NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Lowercase"):
        yield name, {"normalizer": {"type": name}}, "\u0334\u0301a\u0345"


def added(content, **flags):
    return {"id": flags.pop("id", 0), "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


def template(before, after):
    names = before + after
    piece = [{"SpecialToken": {"id": n, "type_id": 0}} for n in before]
    piece.append({"Sequence": {"id": "A", "type_id": 0}})
    piece += [{"SpecialToken": {"id": n, "type_id": 0}} for n in after]
    return {"type": "TemplateProcessing", "single": piece, "pair": piece + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [300 + i, 400 + i][: 1 + (n == "two")], "tokens": [n, n][: 1 + (n == "two")]}
                               for i, n in enumerate(names)}}


def cases():
    out = []

    def case(name, model="probe", texts=None, **parts):
        out.append({"name": name, "model": model, "parts": parts, "texts": texts})

    for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        case("normalizer " + n, normalizer={"type": n})
    for left in (True, False):
        for right in (True, False):
            case(f"normalizer Strip {left} {right}", normalizer={"type": "Strip", "strip_left": left, "strip_right": right},
                 texts=[1, 2, 5, 6, 12])
    case("normalizer Prepend", normalizer={"type": "Prepend", "prepend": "\u2581"}, texts=[0, 1, 3, 16])
    case("normalizer ByteLevel", normalizer={"type": "ByteLevel"}, texts=[4, 6, 9, 14])
    case("normalizer Replace String", normalizer=replace({"String": " "}, "\u2581"), texts=[0, 1, 5, 16])
    case("normalizer Replace Regex", normalizer=replace({"Regex": "\\s+"}, "_"), texts=[1, 5, 6, 12])
    case("normalizer Replace with nothing", normalizer=replace({"Regex": "[aeiou]"}, ""), texts=[3, 4, 9])
    case("normalizer Replace empty matches", normalizer=replace({"Regex": "l*"}, "_"), texts=[0, 3, 4])
    case("normalizer Sequence", normalizer=sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}, replace({"String": " "}, "\u2581"),
                                                    {"type": "Prepend", "prepend": "\u2581"}))
    for flags in ((True, True, None, True), (True, True, None, False), (False, True, True, False), (True, False, False, True),
                  (False, False, False, False)):
        case("normalizer BertNormalizer %s %s %s %s" % flags, normalizer=bert(*flags))
    case("BertNormalizer by its defaults", normalizer=bert(True, True, None, True), pre_tokenizer={"type": "BertPreTokenizer"},
         texts=[4, 5, 9, 10, 12, 13, "\u0301a\u0301\u200b\u0323 \u0e01\u0e33\u0e49", "x\ufffdy\u0000z\u00ad"])
    case("normalizer Nmt", normalizer={"type": "Nmt"}, texts=[4, 6, 12, 16, "\u0001a\u007fb\u008fc\u009fd\u0085e\ufffd"])
    odd = {"a": "X", "e\u0301": "\u00e9", "\ufb01": "fi", "\u3000": " ", "\u200b": "", "\r": "", "\u00bd": "1\u20442", "ab": "no", "\u0915": "K", "\U0001f469": "w",
           "\u0e33": "\u0e4d\u0e32", "s\u0323\u0307": "\u1e69", "\u0600": "P"}
    case("normalizer Precompiled", normalizer=precompiled(odd))
    case("normalizer Precompiled, graphemes", normalizer=precompiled(odd),
         texts=["a\u0301b", "ab", "e\u0301e\u0300", "\r\n\ra", "s\u0323\u0307s\u0323", "\u0917\u094d\u0915\u0301x", "\u0915\u0301x", "\u0917\u094d\u200d\u0915\u0301", "\u0e01\u0e33a\u0e33",
                "\u0600ax", "\u0600\u0061\u0301", "\U0001f1e9a\U0001f1ea", "a\u200da", "a\ufe0f\u20e3", "\u0917\u094da\u0301", "\u0917\u093e\u094d\u0915\u0301", "a\u0903b",
                "\u1100a", "\u200b\u0301a"])
    case("Precompiled and Metaspace first", normalizer=precompiled(odd), pre_tokenizer=metaspace("first", True),
         texts=["\u200ba b", "a\u0301 b", "\ufb01x y", 3, 4])
    case("Nmt and Metaspace first", normalizer={"type": "Nmt"}, pre_tokenizer=metaspace("first", True), texts=["\u0001a b", "\u200b\u0001a b", 4])
    # The normalizer replaces two sequences by a space: a character that is joined to the next
    # letter, and a letter with its mark. A regex that matches two spaces must match the spaces of
    # two adjacent replacements.
    case("Precompiled makes spaces", normalizer=sequence("normalizers", precompiled({"\u0600": " ", "a\u0301": " "}), replace({"Regex": " {2,}"}, "_")),
         texts=["ab\u0600ba\u0301ab" * 20, "\u0600ba\u0301", "abba\u0301\u0600abab"])
    case("UnicodeScripts", pre_tokenizer={"type": "UnicodeScripts"}, texts=list(range(len(TEXTS))) + [
        "  abc \u0430\u0431 c\u3000\u30ab\u30fc\u6f22\u3042", "\u0378\u0378a\u0378\u0430", "a \u0430 b\u0301\u0430\u0301"])
    for n in (1, 3, 5):
        case(f"FixedLength {n}", pre_tokenizer={"type": "FixedLength", "length": n}, texts=[0, 1, 4, 9, 13, 14])
    for b in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            case(f"Split {b} invert {invert}", pre_tokenizer=split({"Regex": "\\w|[!?]"}, b, invert), texts=[4, 5, 6, 9, 15])
            case(f"Split String {b} invert {invert}", pre_tokenizer=split({"String": " "}, b, invert), texts=[1, 2, 5, 12])
    case("Split llama3", pre_tokenizer=split({"Regex": LLAMA3}, "Isolated"))
    case("Split a repeated interval", pre_tokenizer=split({"Regex": "\\p{N}{1,2}+x|[ab]{2}+|(?:ca){1,2}+t"}, "Isolated"),
         texts=[8, 20, "123x 1234x a123", "ababaaab", "cacacatcat"])
    case("Split an interval that is optional", pre_tokenizer=split({"Regex": "a{2}?b|c{,2}d|[ef]{2}??g|x{,1}+y"}, "Removed"), texts=["baabab", "dcdccdcccd", "gefgefefg", "xxyy"])
    case("Split vertical tabs", pre_tokenizer=split({"Regex": "\\v|[\\v!]x"}, "Removed"), texts=["a\vb\fc\u2028d", "\vx\nx!x"])
    case("Split options", pre_tokenizer=split({"Regex": "(?mi:A.)|(?m-i:b.)|b.|C|(c|(?i)D|E)"}, "Removed"), texts=["a\nA\nb\nB\nc", "bxCcDdEe"])
    case("Split empty matches with next", pre_tokenizer=split({"Regex": "x*"}, "MergedWithNext"), texts=[3, "axb", "xxaxxb", "axx"])
    case("Metaspace first behind a cut", pre_tokenizer=sequence("pretokenizers", split({"Regex": "[,!]"}, "Isolated"), metaspace("first", True)),
         texts=[4, 5, 17])
    case("Split lines", pre_tokenizer=split({"Regex": "^\\S+|\\S+$"}, "Isolated"), texts=[4, 6, 5])
    case("Split hex digits", pre_tokenizer=split({"Regex": "\\h+"}, "Isolated"), texts=[4, 8, 20])
    case("Split empty matches", pre_tokenizer=split({"Regex": "x*"}, "Isolated"), texts=[3, 4, 8, 18])
    case("Split lookbehind", pre_tokenizer=split({"Regex": "(?<=[a-z])(?=[A-Z0-9])|\\u0020"}, "Isolated"), texts=[4, 8])
    case("Split word boundaries", pre_tokenizer=split({"Regex": "\\b"}, "MergedWithNext"), texts=[4, 8, 9, 14, 16])
    case("Split word classes", pre_tokenizer=split({"Regex": "\\w+|[^\\w\\s]+"}, "Isolated"), texts=[4, 8, 9, 10, 14, 21])
    case("Split Han", pre_tokenizer=split({"Regex": "\\p{Han}+|\\P{L}+"}, "Isolated"), texts=[4, 10, 13, 21])
    case("ByteLevel", pre_tokenizer=byte_level(False, True))
    case("ByteLevel prefix", pre_tokenizer=byte_level(True, True), texts=[0, 1, 3, 4, 5])
    case("ByteLevel no regex", pre_tokenizer=byte_level(True, False), texts=[1, 4, 9])
    case("Digits", pre_tokenizer={"type": "Digits", "individual_digits": False}, texts=[8, 10, 21])
    case("Digits individual", pre_tokenizer={"type": "Digits", "individual_digits": True}, texts=[8, 10, 21])
    for scheme in ("always", "first", "never"):
        for do_split in (True, False):
            case(f"Metaspace {scheme} {do_split}", pre_tokenizer=metaspace(scheme, do_split), texts=[0, 1, 4, 5, 16, 17],
                 added_tokens=[added("<s>", special=True)])
    case("Metaspace first behind Strip", normalizer={"type": "Strip", "strip_left": True, "strip_right": False},
         pre_tokenizer=metaspace("first", True), texts=[3, 4, 5])
    for t in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        case(t, pre_tokenizer={"type": t}, texts=[2, 5, 6, 8, 9, 12, 15, 21])
    for b in ("Isolated", "Contiguous", "Removed"):
        case("Punctuation " + b, pre_tokenizer={"type": "Punctuation", "behavior": b}, texts=[4, 13, 15, 21])
    case("CharDelimiterSplit", pre_tokenizer={"type": "CharDelimiterSplit", "delimiter": "|"}, texts=[4, 15])
    case("Sequence of pre-tokenizers", pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"},
                                                              {"type": "Digits", "individual_digits": True}, byte_level(False, True)))
    tag = [added("<s>", special=True), added("<tag>"), added("<mask>", lstrip=True, special=True), added("cat", single_word=True)]
    case("added tokens", added_tokens=tag)
    case("added tokens, all sides", added_tokens=[added("<mask>", lstrip=True, rstrip=True), added("<tag>", rstrip=True)], texts=[18, 19])
    case("added tokens, longest", added_tokens=[added("cat"), added("concat"), added("ca"), added("t_")], texts=[20])
    case("added tokens, normalized", normalizer={"type": "Lowercase"}, added_tokens=[added("Hello", normalized=True), added("WE", normalized=True),
                                                                                  added("World", normalized=False)], texts=[4, 7])
    case("added tokens of spaces", added_tokens=[added("  "), added(" ", rstrip=True, normalized=True)], texts=[1, 2, 5])
    case("added tokens that swallow each other", added_tokens=[added(" ", rstrip=True), added("\t"), added("two", lstrip=True, rstrip=True)],
         texts=[1, 2, 5, 6, "  \t  two  x", "two  two\t two"])
    case("added tokens with ids of their own", model="plain", added_tokens=[added("hello", id=7), added("<new>", id=900), added("<s>", id=5)],
         texts=[4, 17])
    case("added tokens and Metaspace", added_tokens=tag, pre_tokenizer=metaspace("always", True), texts=[17, 18, 19])
    case("template", post_processor=template(["one"], []), texts=[0, 3])
    case("template both sides", post_processor=template(["one", "two"], ["three"]), texts=[0, 3])
    case("post Sequence", post_processor=sequence("processors", byte_level(True, True), template(["one"], ["three"])), texts=[0, 3])
    case("post ByteLevel", post_processor=byte_level(True, True), texts=[0, 3])
    case("post Bert", post_processor={"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}, texts=[0, 3])
    case("post Roberta", post_processor={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
                                         "add_prefix_space": False}, texts=[0, 3])
    extra = ["hello world", "helloworldabcab", "aaaaaaa", "aaaaaaaaaaaaabcabcabaabca" * 5, "QQhelloQQ\u4f60Q\u00e9\u00e8Q", "zebra hexa zebra",
             "\u00e9", "hello \u0000 w", "o w"]
    for m in ("plain", "fuse", "drop", "fallback", "fallback_partial", "ignore_merges"):
        case("model " + m, model=m, texts=extra)
        case("model " + m + " by words", model=m, texts=extra, pre_tokenizer={"type": "WhitespaceSplit"})
    case("model affixes", model="affixes", texts=["abc", "a", "ab", "b", "abcabc", "xabc", "c", "abx", "aab bc abc"],
         pre_tokenizer={"type": "WhitespaceSplit"})
    words = ["hello world", "abab ababa baab", " a  b", "xyzzy hello\u4f60\u597d\u597d", "\u00e9\u00e8 zz zzz ZZ", "<unk> a<unk>q q<unk><s>", "hellohello worlds",
             "aaaaaaaaab" * 9]
    for m in ("unigram", "unigram_fallback", "unigram_fallback_partial", "unigram_other_unk"):
        case("model " + m, model=m, texts=words, pre_tokenizer=metaspace("always", True))
        case("model " + m + " without cuts", model=m, texts=words + ["", "q"])
    for m in ("wordpiece", "wordpiece_short", "wordlevel"):
        case("model " + m, model=m, texts=["hello world", "worlds hellos helloworlds", "a b ab ba aaa aaaa", "caf\u00e9 \u00e9 \u4f60\u597d\u4f60", "hellox x [UNK]", "##a", "##llo",
                                           "worlds wor ld", "a" * 100, "a" * 101, "\u00e9" * 5, "aaaaa aaaaaa"], pre_tokenizer={"type": "WhitespaceSplit"})
    case("model wordlevel by added tokens", model="wordlevel", texts=["hello world x", "[UNK]hello [PAD] caf"], pre_tokenizer={"type": "Whitespace"},
         added_tokens=[added("[UNK]", special=True), added("[PAD]", special=True), added("xx")])
    for m in ("bytes", "bytes_ignore_merges"):
        case("model " + m, model=m, pre_tokenizer=byte_level(False, True), texts=["hello the world 1234 \u00e9\u00e9 it's abc abcabc", "   x\u00ff\u0000\u00a0"])
    return out


def main():
    docs = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../../../examples/docs-llama-3m")
    table = models()
    done = []
    for c in cases():
        spec = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                "post_processor": None, "decoder": None, "model": table[c["model"]], **c["parts"]}
        for i, a in enumerate(spec["added_tokens"]):
            a["id"] = a["id"] or len(spec["model"]["vocab"]) + i
        tok = Tokenizer.from_str(json.dumps(spec))
        texts = c["texts"]
        if texts is None:
            texts = list(range(len(TEXTS)))
        rows = []
        for t in texts:
            text = TEXTS[t] if isinstance(t, int) else t
            plain = tok.encode(text, add_special_tokens=False).ids
            special = tok.encode(text, add_special_tokens=True).ids
            row = {"text": t, "ids": " ".join(map(str, special))}
            if plain != special:
                row["plain"] = " ".join(map(str, plain))
            rows.append(row)
        done.append({"name": c["name"], "model": c["model"], "parts": c["parts"], "rows": rows})
    with open(os.path.join(HERE, "components.json"), "w") as f:
        f.write('{"texts": ' + json.dumps(TEXTS) + ',\n"models": {\n')
        f.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in table.items()))
        f.write('},\n"cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in done) + "]}\n")
    swept = []
    for name, parts, *after in sweeps():
        after = after[0] if after else "a"
        spec = {"version": "1.0", "added_tokens": [], "model": table["probe"], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                "decoder": None, **parts}
        ids = Tokenizer.from_str(json.dumps(spec)).encode(sweep_text(after)).ids
        swept.append({"name": name, "after": after, "model": "probe", "parts": parts, "n": len(ids), "crc32": zlib.crc32(struct.pack("<%di" % len(ids), *ids))})
    with open(os.path.join(HERE, "sweeps.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in swept) + "]\n")
    tok = Tokenizer.from_file(os.path.join(docs, "tokenizer.json"))
    for name in ("mixed", "invalid"):
        data = open(os.path.join(HERE, name + ".txt"), "rb").read()
        with open(os.path.join(HERE, name + ".ids"), "w") as f:
            for line in data.split(b"\n"):
                ids = tok.encode(line.decode("utf-8", errors="replace"), add_special_tokens=False).ids
                f.write(" ".join(map(str, ids)) + "\n")
    with open(os.path.join(HERE, "MANIFEST.json"), "w") as f:
        json.dump({"generator": "gen.py", "tokenizers": tokenizers.__version__, "cases": len(done),
                   "checks": sum(len(c["rows"]) for c in done)}, f, indent=2)
        f.write("\n")


if __name__ == "__main__":
    main()
