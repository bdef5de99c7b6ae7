#!/usr/bin/env bash
# check-gpu.sh - runs all checks that need a GPU, the most important first, and prints a table. Each
# step has a time limit of at most nine minutes. After a failure the next step still runs. Exit 0:
# no step failed; 1: a step failed, or there is no GPU.
#
# Usage: scripts/check-gpu.sh --out DIR [options] [-- flags of oneshot for all its runs]
#   --steps "A B"        of: env build mma card_ops kernels wide model bench-short bench budgets
#                        disk resume sanitizer (all); several calls may share the steps: the table
#                        grows
#   --results FILE.tgz   gets the important files, 1 MB: the table, figures, reports, the end of
#                        each log of a failure
#   --scale N            1: of card_ops and wide, whose widths are divided by it
#   --build-dir DIR      a finished build, or the file that --pack made; else the preset release is
#                        built for this GPU
#   --lib-dir DIR        shared libraries that this machine lacks      (default: BUILD/lib if it
#                        exists)
#   --device cuda[:N]    cuda      --time-limit S  seconds for all steps
#   --samples N          64, --tokens N  64: of docs-llama-3m, four times as many of each for
#                        budgets, disk and resume
#   --peer-python FILE   Python with torch, for the peer of the benchmark      (default: python3 if
#                        it has torch)
#   --pack FILE.tgz      needs no GPU: packs the files of --build-dir that a machine without
#                        development packages needs
#
# The directory of --out gets summary.txt, STEP.log, and in work/ the files that steps share.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd) root=$(cd "$(dirname "$0")/.." && pwd)
out= steps="env build mma card_ops kernels wide model bench-short bench budgets disk resume sanitizer" build_dir= lib_dir= device=cuda
time_limit=0 samples=64 tokens=64 peer_python= pack= run_step= results= scale=1
. "$here/options.sh"
options "out steps build_dir lib_dir device time_limit samples tokens peer_python pack run_step results scale" "$@"
declare -A limit=([env]=60 [build]=540 [mma]=60 [card_ops]=300 [kernels]=300 [wide]=420 [model]=180 [bench-short]=240
                  [bench]=540 [budgets]=180 [disk]=180 [resume]=120 [sanitizer]=540)
say() { echo "$*" >>"$work/$run_step.said"; echo "$*"; } # the text also goes into the table
die() { say "$*"; exit 1; }

# ---- tests of CUDA kernels, found as in cmake/tests.cmake ----
kernel_tests() {
    local f
    for f in $(grep -l 'card\.h' "$root"/tests/kernels/test_*.c "$root"/tests/golden/*/test_*.c); do basename "$f" .c; done
}
own_tests() { for f in "$root"/tests/kernels/test_*.cu; do echo "cuda_$(basename "$f" .cu)"; done; }

# Prints the names of the libraries that a program opens while it runs (src/ops/cpu).
opened() { grep -aoE 'libopenblas\.so\.[0-9]+' "$1" | sort -u; }
place_of() { ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name { print $NF; exit }'; }

# ---- a packed build ----
pack() {
    local file name to
    to=$(mktemp -d) && mkdir "$to/tests" "$to/lib" || return 1
    for name in oneshot tests/make_model tests/card_ops tests/inject.so $(own_tests | sed 's,^,tests/,') $(kernel_tests | sed 's,^,tests/,'); do
        [ -e "$build_dir/$name" ] || { echo "check-gpu.sh: $build_dir/$name is not there: build it first" >&2; return 1; }
        cp "$build_dir/$name" "$to/$name" && strip --strip-unneeded "$to/$name" || return 1
        ldd "$to/$name"
        for file in $(opened "$to/$name"); do echo "$file => $(place_of "$file")"; ldd "$(place_of "$file")"; done
    done | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u | while read -r name file; do
        case $name in libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | libgcc_s.so* | ld-linux*) continue ;; esac
        cp -L "$file" "$to/lib/$name" && strip --strip-unneeded "$to/lib/$name" || return 1
    done || return 1
    sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build_dir/CMakeCache.txt" >"$to/source-dir"
    tar -C "$to" -cf - . | gzip -9 >"$pack" && rm -r "$to" && ls -l "$pack"
}
if [ -n "$pack" ]; then
    needed build_dir
    pack
    exit
fi
needed out

# ---- the machine ----
export PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin
card_is_there() {
    if command -v nvidia-smi >/dev/null; then nvidia-smi -L 2>/dev/null | grep -q '^GPU '
    else ls /dev/nvidia[0-9]* >/dev/null 2>&1; fi
}
if ! card_is_there; then
    echo "check-gpu.sh: there is no NVIDIA GPU in this machine (nvidia-smi -L lists none, or there is no /dev/nvidia0)" >&2
    exit 1
fi
mkdir -p "$out/work" || exit 1
out=$(cd "$out" && pwd) work=$out/work
if [ -f "$build_dir" ]; then
    mkdir -p "$work/build" && tar -C "$work/build" -xzf "$build_dir" || exit 1
    build_dir=$work/build
fi
[ -z "$build_dir" ] || build_dir=$(cd "$build_dir" && pwd) || exit 1
build=${build_dir:-$root/build/release}
[ -n "$lib_dir" ] || [ ! -d "$build/lib" ] || lib_dir=$build/lib
oneshot=${ONESHOT:-$build/oneshot}
model=$root/examples/docs-llama-3m

# Prints directories with CUDA libraries that the loader does not search: Python's packages, other
# directories of the toolkit.
cuda_folders() {
    ldconfig -p 2>/dev/null | grep -q 'libcusolver\.so\.1[12]' && ldconfig -p | grep -q 'libcublasLt\.so\.1[23]' && return
    [ -e /usr/local/cuda/lib64/libcusolver.so ] && return
    { python3 -c 'import sys; print("\n".join(sys.path))' 2>/dev/null | sed 's,$,/nvidia,'
      ls -d /usr/local/cuda*/targets/x86_64-linux/lib /opt/*/lib/python3*/site-packages/nvidia 2>/dev/null
    } | while read -r f; do find "$f" -maxdepth 3 -name 'lib*.so.*' -printf '%h\n' 2>/dev/null; done | sort -u
}
# Links the libraries that the loader does not find into one directory, from --lib-dir.
find_libraries() {
    local names n=0
    mkdir -p "$work/lib"
    export LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    while [ $((n += 1)) -lt 10 ]; do
        names=$({ ldd "$oneshot" "$build"/tests/test_kernels "$work"/lib/*.so* | awk '/not found/ { print $1 }'
                  for name in $(opened "$oneshot"); do
                      [ -n "$(place_of "$name")" ] || [ -e "$work/lib/$name" ] || echo "$name"
                  done; } 2>/dev/null | sort -u)
        [ -n "$names" ] || break
        for name in $names; do [ -z "$lib_dir" ] || ln -sf "$lib_dir/$name" "$work/lib/"; done
    done
    [ -z "$names" ] || echo "libraries that are missing:" $names
    # the last one: the driver's
    names=$({ cuda_folders; ls -d /usr/local/nvidia/lib64 2>/dev/null; } | paste -sd:)
    [ -z "$names" ] || export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$names
}
# The golden tests look for their files in the source directory of the build.
find_sources() {
    local was
    was=$(cat "$build/source-dir" 2>/dev/null || sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt" 2>/dev/null)
    [ -z "$was" ] || [ -e "$was" ] || { mkdir -p "$(dirname "$was")" && ln -s "$root" "$was"; } ||
        echo "$was, where the golden tests look, cannot be made"
}

# ---- steps ----
step_env() {
    nvidia-smi
    nvidia-smi -q -d CLOCK,POWER,ECC 2>/dev/null | grep -E 'SM +:|Memory +:|Limit|Uncorr' | head -20
    local f
    for f in nvcc cmake ninja gcc compute-sanitizer ncu python3; do echo "== $f"; "$f" --version 2>&1 | tail -1; done
    python3 -c 'import torch; print("torch", torch.__version__, torch.version.cuda)' 2>&1 | tail -1
    echo "== machine"; nproc; free -g; df -h "$out" "$root"; uname -r; ldd --version | head -1; ulimit -l
    echo "== libraries"; echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"; ldd "$oneshot" 2>/dev/null
    ldconfig -p | grep -E 'libcuda\.so|libcublasLt|libcusolver'; ls /usr/local/cuda/lib64/libcu{blasLt,solver}.so* 2>/dev/null
    say "$(nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader 2>/dev/null | head -1)"
}

step_build() {
    [ -z "$build_dir" ] || { say "given: $build_dir"; return; }
    local arch
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. ')
    cd "$root" && cmake --preset release -D OSH_CUDA=ON -D CMAKE_CUDA_FLAGS=-lineinfo ${arch:+-D CMAKE_CUDA_ARCHITECTURES=$arch} ||
        die "the preset does not configure: scripts/install-deps.sh installs what it wants; or build elsewhere, --pack, --build-dir"
    cmake --build --preset release --target oneshot make_model card_ops inject $(own_tests) $(kernel_tests) || die "the build fails"
}

# Runs test binaries and prints the result of each. $1: time limit of each in seconds.
run_tests() {
    local t code failed=0 passed=0 each=$1 strict line
    shift
    for t in "$@"; do
        echo "== $t"
        code=0
        (cd "$work" && OSH_TEST_CARD=1 timeout -k 10 "$each" "$build/tests/$t") >"$work/test.out" 2>&1 || code=$?
        cat "$work/test.out"
        strict=$(grep '^STRICT' "$work/test.out" | sort | uniq -c | sed 's/^ *//')
        [ -z "$strict" ] || { while read -r line; do say "$t: $line"; done <<<"$strict"; }
        case $code in
        0) passed=$((passed + 1)) ;;
        77) say "$t: says that there is no GPU"; failed=$((failed + 1)) ;;
        124 | 137) say "$t: not through in $each s"; failed=$((failed + 1)) ;;
        *) say "$t: exit $code"; failed=$((failed + 1)) ;;
        esac
    done
    say "$passed of $((passed + failed)) tests pass"
    [ $failed = 0 ]
}
step_mma() { run_tests 60 $(own_tests); }
step_kernels() { run_tests 120 $(kernel_tests); }

# Times each op alone. Prints the slowest ops relative to the GPU's sustained rate, and fallbacks.
step_card_ops() {
    local code=0 n=${device#cuda} each=0.1
    n=${n#:}
    [ "$scale" = 1 ] || each=0 # a trial of the step itself
    "$build/tests/card_ops" seconds=$each scale="$scale" device="${n:-0}" >"$work/card_ops.txt" || code=$?
    cat "$work/card_ops.txt"
    say "$(grep -c ' ms ' "$work/card_ops.txt") ops; lowest shares: $(grep -E '[0-9.]+ %' "$work/card_ops.txt" |
        sed -E 's/^(.{22}) (.{30}).* ([0-9.]+) %.*/\3 % \1 \2/; s/ +/ /g' | sort -n | head -5 | sed 's/ $//' | paste -sd, - | sed 's/,/, /g')"
    grep -E '^(page-locking|triangle|FALLBACK|FAILED)|ONE BY ONE|NOT PEDANTIC' "$work/card_ops.txt" | while read -r line; do say "$line"; done
    return $code
}

# Compresses one layer with the widths of Llama-3-8B on the GPU and on the host. The samples are
# ragged and begin with an outlier.
step_wide() {
    local m=$work/wide d code=0
    rm -rf "$m" && "$build/tests/make_model" "$m" hidden=$((4096 / scale)) intermediate=$(((14336 / scale + 127) / 128 * 128)) heads=$((32 / scale > 0 ? 32 / scale : 1)) \
        kv=$((8 / scale > 0 ? 8 / scale : 1)) layers=1 vocab=$((32000 / scale)) samples=12 tokens=$((2048 / scale)) ragged=1 outliers=$((64 / scale + 1)) ||
        die "make_model fails"
    for d in "$device" cpu; do
        rm -rf "$m.$d" && "$oneshot" --model "$m" --scheme W4A16 --method gptq --ignore lm_head --dataset "$m/calibration.jsonl" \
            --num-calibration-samples 12 --max-seq-length $((2048 / scale)) --device "$d" --progress none --output "$m.$d" \
            ${flags[@]+"${flags[@]}"} || die "the run on $d fails"
    done
    compare_wide "$m.$device" "$m.cpu" >"$work/wide.txt" || code=$?
    cat "$work/wide.txt"
    while read -r line; do say "$line"; done <"$work/wide.txt"
    cp "$m.$device/oneshot-report.json" "$work/wide.report.json"
    return $code
}
# Prints the share of equal codes, the objectives of GPU and host, and fallbacks. Fails if they
# differ by more than rounding.
compare_wide() {
    python3 - "$@" <<'PYTHON'
import json, pathlib, struct, sys
def load(folder):
    data = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:], json.loads((pathlib.Path(folder) / "oneshot-report.json").read_text())
(h, a, card), (_, b, host) = load(sys.argv[1]), load(sys.argv[2])
objective = lambda report: {m["name"]: m for m in report["modules"]}
nibbles = bytes((i & 15 != 0) + (i >> 4 != 0) for i in range(256))
mine, theirs, bad = objective(card), objective(host), 0
for name, m in mine.items():
    lo, hi = h[name + ".weight_packed"]["data_offsets"]
    x, y = a[lo:hi], b[lo:hi]
    apart = (int.from_bytes(x, "little") ^ int.from_bytes(y, "little")).to_bytes(len(x), "little").translate(nibbles)
    same = 1 - (apart.count(1) + 2 * apart.count(2)) / (2 * len(x))
    ratio = m["objective"] / theirs[name]["objective"] if theirs[name].get("objective") else float("nan")
    bad += not (same > 0.5 and 0.95 < ratio < 1.05) # noise grows from the first Linear to the last
    print(f"{name.split('layers.0.')[1]}: {100 * same:.2f} % of the codes are equal, objective {ratio:.5f} times the host's"
          + "".join(f", {who}: {r['fallback']}" for who, r in (("card", m), ("host", theirs[name])) if r.get("fallback")))
d = card["device"]
print(f"fallbacks of the GPU: {d['fallbacks'] or 'none'}; values: {d['values']}; seconds by its clock: {d['seconds']}")
sys.exit(bool(bad))
PYTHON
}

# Runs compute-sanitizer. memcheck: with one allocation per tensor, so that accesses past a tensor's
# end are detected. racecheck: only for attention and the solver, in which warps share memory.
# initcheck: findings are printed, but are not a failure, because unused rows of a panel are
# multiplied without a value, and nothing reads the results.
step_sanitizer() {
    local tool t log code n bad=0
    command -v compute-sanitizer >/dev/null || die "no compute-sanitizer"
    for tool in memcheck racecheck synccheck initcheck; do
        for t in test_attention test_gptq $([ $tool = racecheck ] || echo test_gptq_factor test_kernels $(own_tests)); do
            log=$out/sanitizer.$tool.$t.log code=0
            (cd "$work" && export OSH_TEST_CARD=1 && { [ $tool != memcheck ] || export OSH_TEST_APART=1; } && timeout -k 10 90 compute-sanitizer --tool $tool --print-limit 10 --error-exitcode 9 \
                "$build/tests/$t") >"$log" 2>&1 || code=$?
            n=$(sed -n 's/.*\(ERROR\|RACECHECK\) SUMMARY: *//p' "$log" | tail -1)
            case $code in 124 | 137) n="not through in 90 s: ${n:-nothing until then}" ;; esac
            say "$tool $t: exit $code, ${n:-$(tail -1 "$log")}"
            case $code/$tool in 0/* | 124/* | 137/* | */initcheck) ;; *) bad=1 ;; esac
        done
    done
    [ $bad = 0 ]
}

# Compresses docs-llama-3m; arguments: output directory, flags.
compress() {
    local to=$1
    shift
    rm -rf "$to"
    "$oneshot" --model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl" \
        --num-calibration-samples "$samples" --max-seq-length "$tokens" --progress none --output "$to" \
        ${flags[@]+"${flags[@]}"} "$@"
}
sum() { sha256sum <"$1/model.safetensors" | cut -d' ' -f1; }
perplexity() { # arguments: device, model
    "$oneshot" eval --model "$2" --dataset "$model/data/evaluation.txt" --max-seq-length 128 --max-windows 64 --device "$1" --progress none |
        sed -n 's/^perplexity //p'
}
step_model() {
    local a b c share
    compress "$work/card" --device "$device" || die "the run on the GPU fails"
    compress "$work/host" --device cpu || die "the run on the host fails"
    "$oneshot" verify "$work/card" --model "$model" || die "verify finds fault with the GPU's output"
    compress "$work/again" --device "$device" && [ "$(sum "$work/card")" = "$(sum "$work/again")" ] ||
        die "two runs on the GPU give different bytes"
    share=$(python3 - "$work/card/model.safetensors" "$work/host/model.safetensors" <<'PYTHON'
import json, struct, sys
def load(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:]
(h, a), (_, b) = load(sys.argv[1]), load(sys.argv[2])
layers = {}
for name, t in h.items():
    if name.endswith("weight_packed"):
        x, y = (d[t["data_offsets"][0]:t["data_offsets"][1]] for d in (a, b))
        one = layers.setdefault(int(name.split(".")[2]), [0, 0])
        one[0] += sum(((p ^ q) & 15 != 0) + ((p ^ q) >> 4 != 0) for p, q in zip(x, y))
        one[1] += 2 * len(x)
print("codes that differ, layer by layer: " + ", ".join(f"{100 * d / n:.1f}" for _, (d, n) in sorted(layers.items())) + " %")
PYTHON
    ) && say "$share"
    a=$(perplexity cpu "$work/card") b=$(perplexity cpu "$work/host") c=$(perplexity "$device" "$work/card")
    say "perplexity of the GPU's output $a (evaluated on the GPU: $c), of the host's $b"
    awk -v a="$a" -v b="$b" -v c="$c" \
        'BEGIN { exit !(a > 0 && c > 0 && a < 1.01 * b && a > 0.99 * b && c < 1.002 * a && c > 0.998 * a) }' ||
        die "that is another model"
}

# Tests the tiers of values and the ways to split the work, with four batches.
step_budgets() {
    local least most want how n=0
    samples=$((4 * samples)) tokens=$((4 * tokens))
    compress "$work/base" --device "$device" || die "the run without a budget fails"
    want=$(sum "$work/base")
    "$oneshot" plan --model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl" \
        --num-calibration-samples $samples --max-seq-length $tokens --device "$device" --json >"$work/plan.json" || die "no plan"
    most=$(sed -n '/"memory"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' "$work/plan.json" | head -1)
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' "$work/plan.json")
    for how in "--device-memory $least" "--device-memory $(((least + most) / 2))" "--device-memory 4GiB" \
        "--mem-opt-level 1" "--mem-opt-level 2" "--mem-opt-level 1 --prefetch false"; do
        compress "$work/budget" --device "$device" $how || die "$how: the run fails"
        [ "$(sum "$work/budget")" = "$want" ] || die "$how: other bytes"
        n=$((n + 1))
    done
    say "the same bytes in $n ways, from $least bytes of the GPU on"
}

# Measures the paths from the disk to the GPU, and tests values that are read by each path.
step_disk() {
    local want how seconds
    samples=$((4 * samples)) tokens=$((4 * tokens))
    "$oneshot" bench --device "$device" --dir "$work" --side 64 --seconds 0.5 >"$work/disk.txt" || die "oneshot bench fails"
    compress "$work/base" --device "$device" || die "the run with values on the GPU fails"
    want=$(sum "$work/base")
    for how in "--num-workers 0" "--num-workers 4" "--num-workers 4 --pin-memory false" "--use-gds true"; do
        case $how in *gds*) ;; *) how="--use-gds false $how" ;; esac
        seconds=$(date +%s%N)
        compress "$work/disk" --device "$device" --mem-opt-level 2 $how || die "$how: the run fails"
        seconds=$((($(date +%s%N) - seconds) / 1000000))
        [ "$(sum "$work/disk")" = "$want" ] || die "$how: other bytes"
        how="$how: the bytes of values on the GPU, $seconds ms"
        say "$how, $(sed -n '/"device": {/,/^  }/s/^ *"read_by_device_bytes": \([0-9]*\),*$/\1 bytes by cuFile/p' "$work/disk/oneshot-report.json")"
    done
    grep '^disk' "$work/disk.txt" | while read -r how; do say "$how"; done
}

step_resume() {
    local want calls part
    samples=$((4 * samples)) tokens=$((4 * tokens))
    compress "$work/base" --device "$device" || die "the undisturbed run fails"
    want=$(sum "$work/base")
    (export INJECT_CALLS=pwrite INJECT_COUNT=$work/calls LD_PRELOAD=$build/tests/inject.so; compress "$work/count" --device "$device")
    calls=$(cat "$work/calls" 2>/dev/null) && [ "$calls" -gt 4 ] || die "inject.so counts no calls"
    for part in 2 3 4; do
        rm -rf "$work/killed" "$work/killed.oneshot-partial"
        (export INJECT_CALLS=pwrite INJECT_AT=$((calls * part / 5)) INJECT_WHAT=kill LD_PRELOAD=$build/tests/inject.so
         compress "$work/killed" --device "$device") && die "it was not killed at call $((calls * part / 5)) of $calls"
        [ -d "$work/killed.oneshot-partial" ] || die "killed at $part/5: nothing was left"
        compress "$work/killed" --device "$device" || die "killed at $part/5: it does not go on"
        [ "$(sum "$work/killed")" = "$want" ] || die "killed at $part/5: other bytes"
    done
    say "killed three times, gone on with to the same bytes"
}

bench() { # arguments: directory, flags of bench-gpu.sh
    local to=$1
    shift
    ONESHOT=$oneshot bash "$here/bench-gpu.sh" --build "$build" --out "$to" --device "$device" "$@" \
        ${flags[@]+-- "${flags[@]}"} || die "bench-gpu.sh fails"
}
step_bench-short() { bench "$work/short" --layers "1 2" --samples 32 --tokens 2048 --seconds 2 --targets LlamaDecoderLayer; }
step_bench() {
    local peer=$peer_python
    [ -n "$peer" ] || ! python3 -c 'import torch' 2>/dev/null || peer=$(command -v python3)
    bench "$work/bench" ${peer:+--peer-python "$peer"}
}

# ---- one step, in its own process ----
if [ -n "$run_step" ]; then
    find_libraries
    find_sources
    case $run_step in wide | model | budgets | disk | resume | bench*) [ -x "$oneshot" ] || die "there is no $oneshot" ;; esac
    "step_$run_step"
    exit
fi

# ---- all steps ----
rm -f "$work"/*.said
begin=$SECONDS failed=0
table() { printf '%-12s %-10s %6s  %s\n' "$@" | tee -a "$out/summary.txt"; }
arguments=(--out "$out" --device "$device" --samples "$samples" --tokens "$tokens" --scale "$scale" ${build_dir:+--build-dir "$build_dir"}
           ${lib_dir:+--lib-dir "$lib_dir"} ${peer_python:+--peer-python "$peer_python"})
for step in $steps; do
    [ -n "${limit[$step]:-}" ] || { echo "check-gpu.sh: no step $step" >&2; exit 2; }
done
table step verdict seconds "what it found"
for step in $steps; do
    seconds=${limit[$step]}
    left=$((time_limit - (SECONDS - begin) - 5))
    if [ "$time_limit" -gt 0 ] && [ $left -lt "$seconds" ]; then seconds=$left; fi
    if [ "$seconds" -lt 10 ]; then table "$step" "left out" 0 "no time is left"; continue; fi
    start=$SECONDS code=0
    timeout -k 15 "$seconds" bash "$0" --run-step "$step" "${arguments[@]}" ${flags[@]+-- "${flags[@]}"} \
        >"$out/$step.log" 2>&1 </dev/null || code=$?
    verdict=ok
    case $code in
    0) ;;
    124 | 137) verdict="no end" failed=1; echo "stopped after $seconds s" >>"$work/$step.said" ;;
    *) verdict=FAILED failed=1 ;;
    esac
    [ -s "$work/$step.said" ] || tail -1 "$out/$step.log" >"$work/$step.said"
    table "$step" "$verdict" $((SECONDS - start)) "$(head -1 "$work/$step.said")"
    sed -n '2,$s/^/                                /p' "$work/$step.said" | tee -a "$out/summary.txt"
    case $step/$verdict in
    */FAILED | */"no end") tail -15 "$out/$step.log" | sed 's/^/    | /' ;;
    bench*) cat "$out/$step.log" ;;
    esac
done
if [ -n "$results" ]; then
    bundle=$(mktemp -d) && cp "$out/summary.txt" "$bundle"
    cp "$work"/card_ops.txt "$work"/wide.txt "$work"/wide.report.json "$bundle" 2>/dev/null
    for f in "$out"/*.log; do case $f in *sanitizer.*) ;; *) tail -c 20000 "$f" >"$bundle/$(basename "$f" .log).tail" ;; esac; done
    for f in short bench; do [ ! -d "$work/$f" ] || (cd "$work/$f" && for r in *.json; do cp "$r" "$bundle/$f.$r"; done) 2>/dev/null; done
    tar -C "$bundle" -czf "$results" . && rm -r "$bundle"
fi
exit $failed
