#!/usr/bin/env python3
"""cluster_table.py - predicts the time of a calibrated job on many GPUs, one rank each.

usage: scripts/cluster_table.py [BINARY]     BINARY: build/release/oneshot

The script makes sparse checkpoints of the shapes of Llama-3-70B and Qwen3-235B-A22B, and asks
`oneshot plan --device-model h100 --json` for the seconds of one GPU and the bytes of weights. From
these it computes each phase on N ranks, with 8 ranks on a node. The division is that of
docs/how-to/cluster.md, which the program does not make on GPUs yet:

  passes    samples / N; each rank reads all weights over its bus, during the work
  sums      each rank has one group of samples. The sums of a group go to the host, and to the rank
            that owns the value. Ranks of a node share its memory and its network.
  solve     values (their Linears) are divided by cost
  codes     rank 0 gets the codes and gives them to all nodes

Three exchanges are computed. `owner` is the one that the program makes on CPUs. In `tiles`, each
rank owns an equal part of each sum, and adds this part of all groups in their order: every node
then sends the same bytes. In `tree`, the groups are also added as a balanced binary tree, so that a
node sends one sum of all its groups. In `tiles` and `tree`, all ranks solve rows of each Linear."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

PER_NODE = 8
NET = 12.5e9  # bytes per second that a node sends, and that it receives: 100 Gbit/s Ethernet
LATENCY = 20e-6  # seconds of a message between nodes
SHARED = 40e9  # bytes per second that the ranks of a node move through its memory together
BUS = 50e9  # bytes per second between a GPU and its host (PCIe 5.0 x16)
TILE = 1 << 20  # bytes of a message
SAMPLES, LENGTH = 512, 2048

LLAMA = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
    num_attention_heads=64, num_key_value_heads=8, vocab_size=128256, max_position_embeddings=8192, rms_norm_eps=1e-5,
    rope_theta=500000.0, hidden_act="silu", tie_word_embeddings=False, torch_dtype="bfloat16")
QWEN = dict(
    architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=4096, intermediate_size=12288,
    moe_intermediate_size=1536, num_hidden_layers=94, num_attention_heads=64, num_key_value_heads=4, head_dim=128,
    num_experts=128, num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], vocab_size=151936,
    max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000.0, hidden_act="silu", tie_word_embeddings=False,
    attention_bias=False, torch_dtype="bfloat16")


def linears(c):
    """Lists the Linears of a layer: name, rows, columns, number of the value that it reads."""
    D, H, K = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    Dh = c.get("head_dim", D // H)
    out = [("self_attn.q_proj", H * Dh, D, "h"), ("self_attn.k_proj", K * Dh, D, "h"), ("self_attn.v_proj", K * Dh, D, "h"),
           ("self_attn.o_proj", D, H * Dh, "o")]
    experts = c.get("num_experts", 0)
    F = c["moe_intermediate_size"] if experts else c["intermediate_size"]
    for e in range(experts or 1):
        at = f"mlp.experts.{e}." if experts else "mlp."
        out += [(at + "gate_proj", F, D, "x"), (at + "up_proj", F, D, "x"), (at + "down_proj", D, F, f"d{e}")]
    return out


def tensors(c):
    D = c["hidden_size"]
    all_ = {"model.embed_tokens.weight": [c["vocab_size"], D], "model.norm.weight": [D], "lm_head.weight": [c["vocab_size"], D]}
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        all_[at + "input_layernorm.weight"] = all_[at + "post_attention_layernorm.weight"] = [D]
        for name, rows, columns, _ in linears(c):
            all_[at + name + ".weight"] = [rows, columns]
        if "num_experts" in c:
            all_[at + "mlp.gate.weight"] = [c["num_experts"], D]
            all_[at + "self_attn.q_norm.weight"] = all_[at + "self_attn.k_norm.weight"] = [c["head_dim"]]
    return all_


def checkpoint(path, c):
    """Writes config.json and one sparse file."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(c))
    head, at = {}, 0
    for name, shape in tensors(c).items():
        n = 2
        for d in shape:
            n *= d
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(head).encode()
    with open(path / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)


def solve_seconds(c, per_second):
    """Returns the seconds of solving the Linears of each value of a layer: the factor of the
    Hessian, and the column loop of each Linear."""
    factor, loop = {}, {}
    for _, O, I, value in linears(c):
        factor[value] = I**3
        loop[value] = loop.get(value, 0) + O * I * I
    return {v: (factor[v] + loop[v]) / per_second for v in factor}


def share_out(costs, n):
    """Returns the largest load if costs are given to n ranks, the largest first."""
    load = [0.0] * n
    for x in sorted(costs, reverse=True):
        load[load.index(min(load))] += x
    return max(load)


def phases(c, plan, n, kind):
    """Returns the seconds of each phase on n ranks."""
    s = plan["device_model"]["estimated_seconds"]
    layers, nodes, rows = c["num_hidden_layers"], max(1, n // PER_NODE), kind != "owner"
    weights = sum(g["weight_bytes"] for g in plan["subgraphs"])
    here = min(n, PER_NODE)
    read = weights / BUS  # each rank reads all weights
    out = {"observe": max(s["observe"] / n, read), "propagate": max(s["propagate"] / n, read)}
    each = solve_seconds(c, 1.0)
    per_layer = s["solve"] / layers / sum(each.values())
    work = [x * per_layer for x in each.values()]
    out["solve"] = layers * (sum(work) / n if rows else share_out(work, n))
    if n == 1:
        return out
    value = {v: I * (I + 1) / 2 * 4 for _, O, I, v in linears(c)}
    sums = sum(value.values())  # bytes of the sums of one group
    bus = sums / BUS  # seconds to copy the sums to the host
    memory = here * sums * 2 / SHARED  # the ranks of a node write the sums to memory and add them
    if nodes == 1:
        wire = 0.0
    elif rows:  # tiles: a node sends the sums of each group; tree: one sum; both without its own part
        wire = (here if kind == "tiles" else 1) * sums * (1 - 1 / nodes) / NET
    else:  # the node that owns a value receives the sums of the groups of all other nodes
        wire = max(share_out(value.values(), nodes) * (n - here), here * sums * (1 - 1 / nodes)) / NET
    messages = (1 if kind == "tree" else here) * (sums / TILE) * LATENCY * (nodes > 1)
    out["sums"] = layers * (bus + max(memory, wire) + messages)
    codes = weights / 4  # codes have 4 of the 16 bits of a weight
    out["codes"] = codes / BUS + (2 * codes / NET if nodes > 1 else codes / SHARED)
    return out


def table(binary, name, c, dir_):
    path = dir_ / name
    checkpoint(path, c)
    data = dir_ / "ids.jsonl"
    if not data.exists():
        row = json.dumps({"input_ids": [(i * 7919) % 50000 for i in range(LENGTH)]}) + "\n"
        data.write_text(row * SAMPLES)
    ignore = "re:.*lm_head" if "num_experts" not in c else "re:.*(lm_head|mlp.gate)$"
    recipe = dir_ / "recipe.yaml"
    recipe.write_text(f's_modifiers: {{GPTQModifier: {{scheme: W4A16, targets: Linear, ignore: ["{ignore}"]}}}}\n')
    plan = json.loads(subprocess.run(
        [binary, "plan", "--model", path, "--recipe", recipe, "--dataset", data, "--num-calibration-samples", str(SAMPLES),
         "--max-seq-length", str(LENGTH), "--device-model", "h100", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    for kind in ("owner", "tiles", "tree"):
        alone = phases(c, plan, 1, kind)
        one = sum(alone.values())
        print(f"\n{name}, {kind}\n")
        print("| Ranks | observe | propagate | sums | solve | codes | all | efficiency | bottleneck |\n|" + "---|" * 9)
        for n in (1, 8, 16, 64):
            p = phases(c, plan, n, kind)
            took = sum(p.values())
            lost = {k: v - alone.get(k, 0) / n for k, v in p.items()}
            worst = max(lost, key=lost.get) if n > 1 else ""
            cells = [f"{p.get(k, 0):.0f}" for k in ("observe", "propagate", "sums", "solve", "codes")]
            print(f"| {n} | " + " | ".join(cells) + f" | {took:.0f} | {one / n / took:.2f} | {worst} |")


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent / "build/release/oneshot"
    with tempfile.TemporaryDirectory() as d:
        for name, c in (("Llama-3-70B", LLAMA), ("Qwen3-235B-A22B", QWEN)):
            table(binary, name, c, pathlib.Path(d))


main()
