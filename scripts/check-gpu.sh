#!/usr/bin/env bash
# check-gpu.sh - runs all checks that need a GPU, the most important first, in one call of nine
# minutes. Each step has its own time limit. When a step ends, its line of the table is printed. If
# env or mma fails, the later steps are skipped; after any other failure the next step runs. Exits
# with 0 if no step failed, and with 1 if a step failed or if there is no GPU.
#
# Usage: scripts/check-gpu.sh --out DIR [options] [-- flags of oneshot for all its runs]
#   --steps "A B"        some of: env build mma kernels wide gpu_ops llama qwen times whole model
#                        budgets resume jobs linear sanitizer disk bench peer (default: all except
#                        the last three, in this order; with --build-dir also without build).
#                        Several calls may share the steps: each call adds its rows to the table.
#   --results FILE.tgz   gets the important files (1 MB): the table, figures, reports, and the end
#                        of the log of each failed step
#   --scale N            divides the widths of all synthetic models and ops by N (default: 1). Above
#                        1, the models have fewer layers and samples, too. So a large N is a quick
#                        trial of the steps.
#   --build-dir DIR      a finished build, or the file that --pack made. Without this option, the
#                        step `build` builds the preset "release" of this tree for this GPU.
#   --lib-dir DIR        shared libraries that this machine lacks      (default: BUILD/lib if it
#                        exists)
#   --device cuda[:N]    the GPU     (default: cuda)
#   --time-limit S       seconds for all steps
#   --samples N          number of samples for docs-llama-3m (default: 64). The steps budgets, disk
#                        and resume use four times as many.
#   --tokens N           number of tokens of a sample of docs-llama-3m (default: 64). The steps
#                        budgets, disk and resume use four times as many.
#   --peer-python FILE   Python with torch for the step bench, and with llmcompressor for the step
#                        peer     (default: python3 if it has torch)
#   --pack FILE          needs no GPU: packs the files of --build-dir that a machine without
#                        development packages needs. Packs with zstd if FILE ends with .tzst,
#                        otherwise with xz. Refuses more than --most bytes (25000000), because the
#                        file and the tree are copied to the machine together, and some machines
#                        take only 64 MiB.
#
# The directory of --out gets summary.txt, STEP.log, and in work/ the files that steps share.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd) root=$(cd "$(dirname "$0")/.." && pwd)
out= steps= build_dir= lib_dir= device=cuda
time_limit=0 samples=64 tokens=64 peer_python= pack= run_step= results= scale=1 seconds_left=540 most=25000000
. "$here/options.sh"
options "out steps build_dir lib_dir device time_limit samples tokens peer_python pack run_step results scale seconds_left most" "$@"
# planned: seconds that each step takes; limit: seconds after which the step is stopped
declare -A planned=([env]=6 [build]=300 [mma]=14 [kernels]=35 [wide]=20 [gpu_ops]=35 [llama]=45 [qwen]=45 [times]=25 [whole]=85 [model]=20
                    [budgets]=15 [resume]=10 [jobs]=60 [linear]=65 [sanitizer]=100 [disk]=15 [bench]=400 [peer]=150)
declare -A limit=([env]=60 [build]=540 [mma]=60 [kernels]=120 [wide]=120 [gpu_ops]=120 [llama]=150 [qwen]=150 [times]=120 [whole]=200 [model]=90
                  [budgets]=90 [resume]=90 [jobs]=150 [linear]=150 [sanitizer]=540 [disk]=180 [bench]=540 [peer]=300)
say() { echo "$*" >>"$work/$run_step.said"; echo "$*"; } # the table also gets the text
die() { say "$*"; exit 1; }

# ---- tests of CUDA kernels, found as in cmake/tests.cmake ----
kernel_tests() {
    local f
    for f in $(grep -l 'on_gpu\.h' "$root"/tests/kernels/test_*.c "$root"/tests/golden/*/test_*.c); do basename "$f" .c; done
}
own_tests() { for f in "$root"/tests/kernels/test_*.cu; do echo "cuda_$(basename "$f" .cu)"; done; }

# Prints the names of the libraries that a program opens while it runs (src/ops/cpu).
opened() { grep -aoE 'libopenblas\.so\.[0-9]+' "$1" | sort -u; }
place_of() { ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name { print $NF; exit }'; }

# ---- a packed build ----
pack() {
    local file name to
    to=$(mktemp -d) && mkdir "$to/tests" "$to/lib" || return 1
    for name in oneshot $(cd "$build_dir" && ls tests/gpu_times.so 2>/dev/null) tests/make_model tests/tiny_model tests/gpu_ops tests/inject.so $(own_tests | sed 's,^,tests/,') $(kernel_tests | sed 's,^,tests/,'); do
        [ -e "$build_dir/$name" ] || { echo "check-gpu.sh: $build_dir/$name does not exist: build the target gpu_programs first" >&2; return 1; }
        cp "$build_dir/$name" "$to/$name" && strip --strip-unneeded "$to/$name" || return 1
        ldd "$to/$name"
        for file in $(opened "$to/$name"); do echo "$file => $(place_of "$file")"; ldd "$(place_of "$file")"; done
    done | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u | while read -r name file; do
        case $name in libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | libgcc_s.so* | ld-linux*) continue ;; esac
        cp -L "$file" "$to/lib/$name" && strip --strip-unneeded "$to/lib/$name" || return 1
    done || return 1
    sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build_dir/CMakeCache.txt" >"$to/source-dir"
    # The packed programs contain much code several times. The compressor finds the repeated code
    # only with a window of 128 MiB.
    case $pack in
    *.tzst) tar -C "$to" --sort=name -cf - . | zstd -q -9 --long=27 -f -o "$pack" ;;
    *) tar -C "$to" --sort=name -cf - . | xz -c --lzma2=preset=6,dict=128MiB >"$pack" ;;
    esac && rm -r "$to" && ls -l "$pack" || return 1
    [ "$(stat -c %s "$pack")" -le "$most" ] && return
    echo "check-gpu.sh: $pack has $(stat -c %s "$pack") bytes, wanted at most $most: build for one generation of GPUs" >&2
    return 1
}
# Unpacks $1 into $2.
unpack() {
    case $1 in
    *.tzst) zstd -q -d --long=27 -c "$1" ;;
    *) if command -v xz >/dev/null; then xz -dc "$1"
       else python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' "$1"; fi ;;
    esac | tar -C "$2" -xf -
}
if [ -n "$pack" ]; then
    needed build_dir
    pack
    exit
fi
needed out
[ -n "$steps" ] || steps="env$([ -n "$build_dir" ] || echo " build") mma kernels wide gpu_ops llama qwen times whole model budgets resume jobs linear sanitizer"

# ---- the machine ----
export PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin
gpu_is_there() {
    if command -v nvidia-smi >/dev/null; then nvidia-smi -L 2>/dev/null | grep -q '^GPU '
    else ls /dev/nvidia[0-9]* >/dev/null 2>&1; fi
}
if ! gpu_is_there; then
    echo "check-gpu.sh: this machine has no NVIDIA GPU (nvidia-smi -L lists none, or there is no /dev/nvidia0)" >&2
    exit 1
fi
mkdir -p "$out/work" || exit 1
out=$(cd "$out" && pwd) work=$out/work
if [ -f "$build_dir" ]; then # /dev/shm may be mounted so that it runs no programs
    to=$work/build
    mkdir -p "$to" && cp /bin/true "$to/runs" && "$to/runs" 2>/dev/null || to=$(mktemp -d)
    unpack "$build_dir" "$to" || exit 1
    build_dir=$to
fi
[ -z "$build_dir" ] || build_dir=$(cd "$build_dir" && pwd) || exit 1
build=${build_dir:-$root/build/release}
[ -n "$lib_dir" ] || [ ! -d "$build/lib" ] || lib_dir=$build/lib
oneshot=${ONESHOT:-$build/oneshot}
model=$root/examples/docs-llama-3m data=$root/examples/docs-llama-3m/data/calibration.jsonl

# Prints directories with CUDA libraries that the loader does not search: Python's packages, other
# directories of the toolkit.
cuda_folders() {
    ldconfig -p 2>/dev/null | grep -q 'libcusolver\.so\.1[12]' && ldconfig -p | grep -q 'libcublasLt\.so\.1[23]' && return
    [ -e /usr/local/cuda/lib64/libcusolver.so ] && return
    { python3 -c 'import sys; print("\n".join(sys.path))' 2>/dev/null | sed 's,$,/nvidia,'
      ls -d /usr/local/cuda*/targets/x86_64-linux/lib /opt/*/lib/python3*/site-packages/nvidia 2>/dev/null
    } | while read -r f; do find "$f" -maxdepth 3 -name 'lib*.so.*' -printf '%h\n' 2>/dev/null; done | sort -u
}
# Finds the libraries that the loader does not find. Makes a directory with links to these libraries
# in --lib-dir.
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
    [ -z "$names" ] || echo "missing libraries:" $names
    # /usr/local/nvidia/lib64 has the libraries of the driver
    names=$({ cuda_folders; ls -d /usr/local/nvidia/lib64 2>/dev/null; } | paste -sd:)
    [ -z "$names" ] || export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$names
}
# The golden tests look for their files in the source directory of the build. If there is no such
# directory, makes a link to this tree.
find_sources() {
    local was
    was=$(cat "$build/source-dir" 2>/dev/null || sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt" 2>/dev/null)
    [ -z "$was" ] || [ -e "$was" ] || { mkdir -p "$(dirname "$was")" && ln -s "$root" "$was"; } ||
        echo "cannot make the link $was, where the golden tests read their files"
}

# ---- steps ----
step_env() {
    nvidia-smi
    nvidia-smi -q -d CLOCK,POWER,ECC 2>/dev/null | grep -E 'SM +:|Memory +:|Limit|Uncorr' | head -20
    local f
    for f in nvcc cmake ninja gcc compute-sanitizer ncu zstd xz; do echo "== $f"; "$f" --version 2>&1 | tail -1; done
    echo "== Python's packages" # by their metadata: torch takes seconds to import
    python3 -c 'import importlib.metadata as m, sys; print(sys.version); print(*sorted(
        f"{d.name} {d.version}" for d in m.distributions() if str(d.name).startswith(("torch", "triton", "nvidia-cu", "llmcompressor"))))' 2>&1
    echo "== machine"; nproc; free -g; df -h "$out" "$root"; uname -r; ldd --version | head -1; ulimit -l
    echo "== libraries"; echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"; ldd "$oneshot" 2>/dev/null
    ldconfig -p | grep -E 'libcuda\.so|libcublasLt|libcusolver'; ls /usr/local/cuda/lib64/libcu{blasLt,solver}.so* 2>/dev/null
    say "$(nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader 2>/dev/null | head -1)"
}

step_build() {
    [ -z "$build_dir" ] || { say "this build is used: $build_dir"; return; }
    local arch
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d '. ')
    cd "$root" && cmake --preset release -D OSH_CUDA=ON -D CMAKE_CUDA_FLAGS=-lineinfo ${arch:+-D CMAKE_CUDA_ARCHITECTURES=$arch} ||
        die "cmake fails: install packages with scripts/install-deps.sh, or pass a build of another machine (--pack, --build-dir)"
    cmake --build --preset release --target gpu_programs || die "the build fails"
}

# Runs test binaries, and prints the verdict of each. $1: time limit of each binary in seconds. $2:
# number of binaries that run at the same time.
run_tests() {
    local t code failed=0 passed=0 each=$1 at_a_time=$2 strict line
    shift 2
    for t in "$@"; do
        while [ "$(jobs -rp | wc -l)" -ge "$at_a_time" ]; do wait -n; done
        rm -rf "$work/$t.dir" && mkdir "$work/$t.dir" || return 1
        (cd "$work/$t.dir" && OSH_TEST_GPU=1 timeout -k 10 "$each" "$build/tests/$t" >out 2>&1; echo $? >code) &
    done
    wait
    for t in "$@"; do
        echo "== $t" && cat "$work/$t.dir/out"
        code=$(cat "$work/$t.dir/code")
        strict=$(grep '^STRICT' "$work/$t.dir/out" | sort | uniq -c | sed 's/^ *//')
        [ -z "$strict" ] || { while read -r line; do say "$t: $line"; done <<<"$strict"; }
        case $code in
        0) passed=$((passed + 1)) ;;
        77) say "$t: the test finds no GPU"; failed=$((failed + 1)) ;;
        124 | 137) say "$t: stopped after $each s"; failed=$((failed + 1)) ;;
        *) say "$t: exit $code"; failed=$((failed + 1)) ;;
        esac
    done
    say "$passed of $((passed + failed)) tests pass"
    [ $failed = 0 ]
}
step_mma() {
    local code=0
    run_tests 50 1 $(own_tests) || code=$?
    grep -h '^triangle of [0-9]*: cuSOLVER wants' "$work"/cuda_test_*.dir/out | tail -1 | while read -r line; do say "$line"; done
    return $code
}
step_kernels() { run_tests 100 5 $(kernel_tests); }

# ---- synthetic models ----
cut() { local n=$(($1 / scale)); echo $((n > $2 ? n : $2)); } # $1 / scale, but at least $2
llama_shape="hidden=$(cut 4096 128) intermediate=$((($(cut 14336 128) + 127) / 128 * 128)) heads=$(cut 32 1) kv=$(cut 8 1) vocab=$(cut 32000 128)"
qwen_shape="hidden=$(cut 2048 128) intermediate=$(cut 768 128) heads=$(cut 32 4) kv=$(cut 4 2) head_dim=$(cut 128 32)
            experts=$(cut 128 4) topk=$(cut 8 2) vocab=$(cut 32000 128)"
if [ "$scale" = 1 ]; then n_samples=512 llama_layers="2 4" qwen_layers="1 3" whole_layers=32
else n_samples=4 llama_layers="1 2" qwen_layers="1 2" whole_layers=2; fi
n_tokens=$(cut 2048 32)

# Copies the first $3 layers of the model $1 to a new model in the directory $2. The new model has
# links to the files of $1.
first_layers() {
    mkdir -p "$2" && ln -s "$1"/calibration.jsonl "$2" &&
        sed "s/\"num_hidden_layers\": [0-9]*/\"num_hidden_layers\": $3/" "$1/config.json" >"$2/config.json" &&
        awk -v n="$3" '!match($0, /^"model\.layers\.[0-9]+/) || substr($0, 15, RLENGTH - 14) + 0 < n' \
            "$1/model.safetensors.index.json" >"$2/model.safetensors.index.json" &&
        grep -o 'model-[0-9]*-of-[0-9]*\.safetensors' "$2/model.safetensors.index.json" | sort -u | while read -r f; do ln -s "$1/$f" "$2"; done
}
make_layers() { # arguments: directory, shape, numbers of layers, the largest one last
    local to=$1 shape=$2 most=${3##* } n
    "$build/tests/make_model" "$to/model-$most" $shape layers="$most" samples="$n_samples" tokens="$n_tokens" || return 1
    for n in $3; do [ "$n" = "$most" ] || first_layers "$to/model-$most" "$to/model-$n" "$n" || return 1; done
}
compress_wide() {
    "$oneshot" --model "$work/wide" --scheme W4A16 --method gptq --ignore lm_head --dataset "$work/wide/calibration.jsonl" \
        --num-calibration-samples 12 --max-seq-length "$n_tokens" --progress none --output "$work/wide.$1" --device "$1" \
        ${flags[@]+"${flags[@]}"}
}
host_threads() { # leaves some processors to the steps that run at the same time
    case " ${flags[*]-} " in *" --threads "*) ;; *) flags+=(--threads $(($(nproc) > 4 ? $(nproc) - 4 : 1))) ;; esac
}
# Makes the synthetic models. Runs at the same time as the other steps; a step that needs a model
# waits for it. Also compresses the wide layer on the host. The wide layer has the widths of
# Llama-3-8B. Its calibration samples have different lengths and begin with an outlier.
step_prepare() {
    local what wanted=" $steps "
    trap 'touch "$work/prepare.end"' EXIT
    rm -rf "$work"/{wide,wide.cpu,llama,qwen,whole} "$work"/ready.*
    mkdir "$work"/{llama,qwen,whole}
    for what in wide llama qwen whole; do
        case $what/$wanted in
        */*" $what "* | whole/*" linear "*) ;;
        llama/*" times "* | qwen/*" times "* | llama/*" peer "*) ;;
        llama/*" budgets "* | llama/*" disk "* | llama/*" resume "*) [ "$scale" != 1 ] || continue ;;
        *) continue ;;
        esac
        case $what in
        wide) "$build/tests/make_model" "$work/wide" $llama_shape layers=1 samples=12 tokens="$n_tokens" ragged=1 outliers=$((64 / scale + 1)) ;;
        llama) make_layers "$work/llama" "$llama_shape" "$llama_layers" ;;
        qwen) make_layers "$work/qwen" "$qwen_shape" "$qwen_layers" ;;
        whole) make_layers "$work/whole" "$llama_shape" "$whole_layers" ;;
        esac || die "$what: make_model fails"
        touch "$work/ready.$what"
        if [ $what = wide ]; then { host_threads && compress_wide cpu && touch "$work/ready.host"; } & fi
    done
    wait
}
# Waits until step_prepare has made $1.
await() {
    local begin=$SECONDS
    while [ ! -e "$work/ready.$1" ]; do
        [ ! -e "$work/prepare.end" ] || [ -e "$work/ready.$1" ] || die "$1 was not prepared: $(tail -1 "$out/prepare.log")"
        sleep 0.2
    done
    [ $((SECONDS - begin)) -lt 2 ] || echo "waited $((SECONDS - begin)) s for $1" # in the log
}

# Times each op alone. Prints the ops whose rates are the smallest fractions of the GPU's sustained
# rate. Also prints the lines of gpu_ops.txt about fallbacks.
step_gpu_ops() {
    local code=0 n=${device#cuda} each=0.1
    n=${n#:}
    [ "$scale" = 1 ] || each=0 # a trial of the step itself
    "$build/tests/gpu_ops" seconds=$each scale="$scale" device="${n:-0}" >"$work/gpu_ops.txt" || code=$?
    cat "$work/gpu_ops.txt"
    say "$(grep -c ' ms ' "$work/gpu_ops.txt") ops; lowest shares: $(grep -E '[0-9.]+ %' "$work/gpu_ops.txt" |
        sed -E 's/^(.{22}) (.{30}).* ([0-9.]+) %.*/\3 % \1 \2/; s/ +/ /g' | sort -n | head -5 | sed 's/ $//' | paste -sd, - | sed 's/,/, /g')"
    grep -E '^(page-locking|triangle|FALLBACK|FAILED)|ONE BY ONE|NOT PEDANTIC' "$work/gpu_ops.txt" | while read -r line; do say "$line"; done
    return $code
}

# Compresses the wide layer on the GPU, and compares the result with the host's.
step_wide() {
    local code=0 f
    for f in wide host; do await $f; done
    rm -rf "$work/wide.$device"
    compress_wide "$device" || die "the run on $device fails"
    python3 "$here/check_gpu.py" codes "$work/wide.$device" "$work/wide.cpu" >"$work/wide.txt" || code=$?
    cat "$work/wide.txt"
    while read -r line; do say "$line"; done <"$work/wide.txt"
    cp "$work/wide.$device/oneshot-report.json" "$work/wide.report.json"
    return $code
}

# Runs three tests under each tool of compute-sanitizer until the time of the step ends. Under
# memcheck each tensor is an allocation of its own, so that accesses past the end of a tensor are
# detected. Findings of initcheck are printed, but do not fail the step, because the solve also
# multiplies the unused rows of a panel. These rows have no values, and their results are not read.
step_sanitizer() {
    local tool t log code n bad=0 begin=$SECONDS left
    command -v compute-sanitizer >/dev/null || die "no compute-sanitizer"
    for tool in memcheck racecheck synccheck initcheck; do
        for t in test_routed test_gptq test_attention; do
            left=$((seconds_left - (SECONDS - begin) - 10))
            [ $left -ge 15 ] || { say "$tool $t: left out, because no time is left"; continue; }
            log=$out/sanitizer.$tool.$t.log code=0
            (cd "$work" && export OSH_TEST_GPU=1 && { [ $tool != memcheck ] || export OSH_TEST_APART=1; } &&
                timeout -k 5 $((left < 90 ? left : 90)) compute-sanitizer --tool $tool --print-limit 10 --error-exitcode 9 \
                    "$build/tests/$t") >"$log" 2>&1 || code=$?
            n=$(sed -n 's/.*\(ERROR\|RACECHECK\) SUMMARY: *//p' "$log" | tail -1)
            case $code in 124 | 137) n="stopped: ${n:-nothing until then}" ;; esac
            say "$tool $t: exit $code, ${n:-$(tail -1 "$log")}"
            case $code/$tool in 0/* | 124/* | 137/* | */initcheck) ;; *) bad=1 ;; esac
        done
    done
    [ $bad = 0 ]
}

# Compresses docs-llama-3m, or the model of use_small. Arguments: output directory, flags.
compress() {
    local to=$1
    shift
    rm -rf "$to"
    "$oneshot" --model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$data" \
        --num-calibration-samples "$samples" --max-seq-length "$tokens" --progress none --output "$to" \
        ${flags[@]+"${flags[@]}"} "$@"
}
sum() { sha256sum <"$1/model.safetensors" | cut -d' ' -f1; }
perplexity() { # arguments: device, model, number of windows
    "$oneshot" eval --model "$2" --dataset "$model/data/evaluation.txt" --max-seq-length 128 --max-windows "$3" --device "$1" --progress none |
        sed -n 's/^perplexity //p'
}
step_model() {
    local a b c d share all=64 few=64
    [ "$scale" = 1 ] || all=16 few=3 # evaluation on the emulated GPU is slow
    compress "$work/gpu" --device "$device" || die "the run on the GPU fails"
    compress "$work/host" --device cpu || die "the run on the host fails"
    "$oneshot" verify "$work/gpu" --model "$model" || die "verify refuses the output of the GPU"
    compress "$work/again" --device "$device" && [ "$(sum "$work/gpu")" = "$(sum "$work/again")" ] ||
        die "two runs on the GPU give different bytes"
    share=$(python3 "$here/check_gpu.py" layers "$work/gpu" "$work/host") && say "$share"
    a=$(perplexity cpu "$work/gpu" $all) b=$(perplexity cpu "$work/host" $all)
    c=$(perplexity "$device" "$work/gpu" $few) d=$(perplexity cpu "$work/gpu" $few)
    say "perplexity of the GPU's output $a (of $few windows: $d, evaluated on the GPU: $c), of the host's $b"
    awk -v a="$a" -v b="$b" -v c="$c" -v d="$d" \
        'BEGIN { exit !(a > 0 && c > 0 && a < 1.01 * b && a > 0.99 * b && c < 1.002 * d && c > 0.998 * d) }' ||
        die "the perplexities differ by more than rounding noise"
}

# Chooses the model of the next steps: docs-llama-3m with more samples; with --scale, a small model.
use_small() {
    samples=$((4 * samples)) tokens=$((4 * tokens))
    [ "$scale" = 1 ] || { await llama && model=$work/llama/model-2 data=$work/llama/model-2/calibration.jsonl samples=$n_samples tokens=$n_tokens; }
}
# Tests tiers of values, and budgets for which a subgraph is divided into rounds or segments. All
# runs have four batches.
step_budgets() {
    local least most want how n=0
    use_small
    compress "$work/base" --device "$device" || die "the run without a budget fails"
    want=$(sum "$work/base")
    "$oneshot" plan --model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$data" \
        --num-calibration-samples $samples --max-seq-length $tokens --device "$device" --json >"$work/plan.json" || die "oneshot plan fails"
    most=$(sed -n '/"memory"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' "$work/plan.json" | head -1)
    least=$(sed -n '/"smallest_budgets"/,/}/s/^ *"device_bytes": \([0-9]*\),*$/\1/p' "$work/plan.json")
    for how in "--device-memory $least" "--device-memory $(((least + most) / 2))" "--mem-opt-level 1" "--mem-opt-level 2" \
        "--mem-opt-level 1 --prefetch false"; do
        compress "$work/budget" --device "$device" $how || die "$how: the run fails"
        [ "$(sum "$work/budget")" = "$want" ] || die "$how: the output has other bytes"
        n=$((n + 1))
    done
    say "the same bytes in $n ways, from $least bytes of the GPU on"
}

# Measures the paths from the disk to the GPU, and tests values that are read by each path.
step_disk() {
    local want how seconds
    use_small
    "$oneshot" bench --device "$device" --dir "$work" --side 64 --seconds "$(awk -v s="$scale" 'BEGIN { print (s < 50 ? 0.5 / s : 0.01) }')" >"$work/disk.txt" || die "oneshot bench fails"
    compress "$work/base" --device "$device" || die "the run with values on the GPU fails"
    want=$(sum "$work/base")
    for how in "--num-workers 0" "--num-workers 4" "--num-workers 4 --pin-memory false" "--use-gds true"; do
        case $how in *gds*) ;; *) how="--use-gds false $how" ;; esac
        seconds=$(date +%s%N)
        compress "$work/disk" --device "$device" --mem-opt-level 2 $how || die "$how: the run fails"
        seconds=$((($(date +%s%N) - seconds) / 1000000))
        [ "$(sum "$work/disk")" = "$want" ] || die "$how: the output has other bytes"
        how="$how: the bytes of values on the GPU, $seconds ms"
        say "$how, $(sed -n '/"device": {/,/^  }/s/^ *"read_by_device_bytes": \([0-9]*\),*$/\1 bytes by cuFile/p' "$work/disk/oneshot-report.json")"
    done
    grep '^disk' "$work/disk.txt" | while read -r how; do say "$how"; done
}

step_resume() {
    local want calls part parts="2 3 4"
    [ "$scale" = 1 ] || parts=3
    use_small
    compress "$work/base" --device "$device" || die "the undisturbed run fails"
    want=$(sum "$work/base")
    (export INJECT_CALLS=pwrite INJECT_COUNT=$work/calls LD_PRELOAD=$build/tests/inject.so; compress "$work/count" --device "$device")
    calls=$(cat "$work/calls" 2>/dev/null) && [ "$calls" -gt 4 ] || die "inject.so counts no calls"
    for part in $parts; do
        rm -rf "$work/killed" "$work/killed.oneshot-partial"
        (export INJECT_CALLS=pwrite INJECT_AT=$((calls * part / 5)) INJECT_WHAT=kill LD_PRELOAD=$build/tests/inject.so
         compress "$work/killed" --device "$device") && die "the run was not killed at call $((calls * part / 5)) of $calls"
        [ -d "$work/killed.oneshot-partial" ] || die "killed at $part/5: found no unfinished output"
        compress "$work/killed" --device "$device" || die "killed at $part/5: the run does not continue"
        [ "$(sum "$work/killed")" = "$want" ] || die "killed at $part/5: the output has other bytes"
    done
    say "killed after $parts fifths, and continued: the same bytes"
}

# Runs scripts that CI runs on the emulated GPU. Each script runs whole jobs. All scripts run at the
# same time.
step_jobs() {
    local job jobs="families quality experts independent original" code failed=0 n=0
    [ "$scale" = 1 ] || jobs=independent
    [ "$device" = cuda ] || export CUDA_VISIBLE_DEVICES=${device#cuda:} # the scripts use the first GPU
    export PLAY=$oneshot PLAY_BATCHES=$oneshot ONESHOT=$oneshot OSH_TOOLS=$build/tests OSH_SOURCE_DIR=$root SANITIZED=
    for job in $jobs; do
        rm -rf "$work/job.$job" && mkdir "$work/job.$job" || return 1
        (cd "$work/job.$job" && bash "$root/tests/play/$job.sh" >said 2>&1; echo $? >code) &
    done
    wait
    for job in $jobs; do
        echo "== $job" && cat "$work/job.$job/said"
        code=$(cat "$work/job.$job/code") n=$((n + 1))
        [ "$code" = 0 ] || { say "$job: exit $code, $(grep -v '^ *$' "$work/job.$job/said" | tail -1)"; failed=$((failed + 1)); }
    done
    say "$((n - failed)) of $n jobs pass"
    [ $failed = 0 ]
}

# Measures the times of models with few layers. Arguments: directory in work/ with the models,
# --like, shape, the numbers of layers of one or two models, targets (layers, Linears or both).
bench() {
    local to=$work/$1 like=$2 shape=$3 layers=$4 targets=$5 side=8192
    shift 5
    [ "$scale" = 1 ] || { side=32 && set -- "$@" --device-model h200; } # the emulated GPU has no model name
    await "${to##*/}"
    [ ! -e "$work/peak.json" ] || cp "$work/peak.json" "$to"
    ONESHOT=$oneshot bash "$here/bench-gpu.sh" --build "$build" --out "$to" --device "$device" --like "$like" --shape "$shape" --layers "$layers" \
        --samples "$n_samples" --tokens "$n_tokens" --targets "$targets" --side $side --seconds "$(awk -v s="$scale" 'BEGIN { print (s < 50 ? 0.5 / s : 0.01) }')" "$@" \
        ${flags[@]+-- "${flags[@]}"} >"$to/table" || { cat "$to/table"; die "bench-gpu.sh fails"; }
    cp "$to/peak.json" "$work"
    while IFS= read -r line; do [ -z "$line" ] || say "$line"; done <"$to/table"
}
step_llama() { bench llama llama-3-8b "$llama_shape" "$llama_layers" "LlamaDecoderLayer Linear"; }
step_qwen() { bench qwen qwen3-30b-a3b "$qwen_shape" "$qwen_layers" Qwen3MoeDecoderLayer; }
step_whole() { bench whole llama-3-8b "$llama_shape" "$whole_layers" LlamaDecoderLayer; }
step_linear() { bench whole llama-3-8b "$llama_shape" "$whole_layers" Linear; }
# Prints the seconds of each kernel and copy in a run, and how long the GPU was idle (gpu_times.c).
step_times() {
    local cupti name like n target
    cupti=$({ ls /usr/local/cuda*/lib64/libcupti.so.1[23] /usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.1[23]
              python3 -c 'import sys; print("\n".join(sys.path))' | while read -r name; do ls "$name"/nvidia/*/lib/libcupti.so.1[23]; done
            } 2>/dev/null)
    [ -e "$build/tests/gpu_times.so" ] && [ -n "$cupti" ] || { say "left out, because gpu_times.so or libcupti.so is missing"; return; }
    for name in "llama ${llama_layers##* } LlamaDecoderLayer" "llama ${llama_layers##* } Linear" "qwen ${qwen_layers##* } Qwen3MoeDecoderLayer"; do
        read -r like n target <<<"$name"
        await "$like"
        rm -rf "$work/times" "$work/times.oneshot-partial"
        GPU_TIMES=$work/times.$like.$target.txt GPU_TIMES_CUPTI=$(head -1 <<<"$cupti") CUDA_INJECTION64_PATH=$build/tests/gpu_times.so \
            "$oneshot" --model "$work/$like/model-$n" --scheme W4A16 --method gptq --ignore lm_head \
            --dataset "$work/$like/model-$n/calibration.jsonl" --num-calibration-samples "$n_samples" --max-seq-length "$n_tokens" \
            --sequential-targets "$target" --device "$device" --progress none --output "$work/times" ${flags[@]+"${flags[@]}"} ||
            die "$name: the run fails"
        say "$name: $(head -1 "$work/times.$like.$target.txt")"
        sed -n '2,9p' "$work/times.$like.$target.txt" | cut -c1-110 | while IFS= read -r target; do say "$target"; done
    done
}
# Compresses a model of two layers with LLM Compressor and with this program.
step_peer() {
    local peer=${peer_python:-python3} model=$work/llama/model-${llama_layers%% *} begin
    "$peer" -c 'import llmcompressor' 2>/dev/null || die "$peer has no llmcompressor"
    await llama
    rm -rf "$work"/peer "$work"/ours "$work"/ours.oneshot-partial
    printf 'quant_stage:\n  quant_modifiers:\n    GPTQModifier: {scheme: W4A16, targets: [Linear], ignore: [lm_head]}\n' >"$work/peer.yaml"
    begin=$SECONDS
    "$peer" "$here/bench_peer.py" compress "$model" "$work/peer" "$work/peer.yaml" "$model/calibration.jsonl" "$n_samples" "$n_tokens" 2>&1 |
        tr '\r' '\n' >"$work/peer.text" && say "LLM Compressor: $((SECONDS - begin)) s, of which $(grep -a '^oneshot: ' "$work/peer.text")" ||
        die "LLM Compressor: $(tail -1 "$work/peer.text")"
    begin=$(date +%s%N)
    "$oneshot" --model "$model" --recipe "$work/peer.yaml" --dataset "$model/calibration.jsonl" --num-calibration-samples "$n_samples" \
        --max-seq-length "$n_tokens" --device "$device" --progress none --output "$work/ours" ${flags[@]+"${flags[@]}"} || die "the run fails"
    say "this program: $((($(date +%s%N) - begin) / 1000000)) ms"
}
# Runs the benchmark, with PyTorch if there is a Python with torch.
step_bench() {
    local peer=$peer_python
    [ -n "$peer" ] || ! python3 -c 'import torch' 2>/dev/null || peer=$(command -v python3)
    bash "$here/bench-gpu.sh" --build "$build" --out "$work/bench" --device "$device" ${peer:+--peer-python "$peer"} \
        ${flags[@]+-- "${flags[@]}"} >"$work/bench.table" || die "bench-gpu.sh fails"
    while IFS= read -r line; do say "$line"; done <"$work/bench.table"
}

# ---- one step, in its own process ----
if [ -n "$run_step" ]; then
    case $run_step in
    env | build | mma | kernels | gpu_ops | sanitizer) ;;
    *) [ -x "$oneshot" ] || die "there is no $oneshot" ;;
    esac
    "step_$run_step"
    exit
fi

# ---- all steps ----
for step in $steps; do
    [ -n "${limit[$step]:-}" ] || { echo "check-gpu.sh: no step $step" >&2; exit 2; }
done
rm -f "$work"/*.said "$work"/ready.* "$work"/prepare.end
begin=$SECONDS failed=0 preparing=
find_libraries # the steps inherit LD_LIBRARY_PATH
find_sources
table() { printf '%-10s %-10s %6s %8s  %s\n' "$@" | tee -a "$out/summary.txt"; }
arguments=(--out "$out" --device "$device" --samples "$samples" --tokens "$tokens" --scale "$scale" --steps "$steps"
           ${build_dir:+--build-dir "$build_dir"} ${lib_dir:+--lib-dir "$lib_dir"} ${peer_python:+--peer-python "$peer_python"})
prepare() {
    timeout -k 5 1200 bash "$0" --run-step prepare "${arguments[@]}" ${flags[@]+-- "${flags[@]}"} >"$out/prepare.log" 2>&1 </dev/null &
    preparing=$!
}
end_prepare() { [ -z "$preparing" ] || { kill "$preparing"; wait "$preparing"; } 2>/dev/null; preparing=; }
trap end_prepare EXIT
table step verdict seconds planned findings
stopped=
for step in $steps; do
    [ -z "$stopped" ] || { table "$step" "left out" 0 "${planned[$step]}" "$stopped failed"; continue; }
    case $step in env | build) ;; *) [ -n "$preparing" ] || prepare ;; esac
    seconds=${limit[$step]}
    [ "$scale" = 1 ] || seconds=$((20 * seconds)) # the emulated GPU is slow
    left=$((time_limit - (SECONDS - begin) - 5))
    if [ "$time_limit" -gt 0 ] && [ $left -lt "$seconds" ]; then seconds=$left; fi
    if [ "$seconds" -lt 10 ]; then table "$step" "left out" 0 "${planned[$step]}" "no time is left"; continue; fi
    start=$SECONDS code=0
    timeout -k 15 "$seconds" bash "$0" --run-step "$step" --seconds-left "$seconds" "${arguments[@]}" ${flags[@]+-- "${flags[@]}"} \
        >"$out/$step.log" 2>&1 </dev/null || code=$?
    verdict=ok
    case $code in
    0) ;;
    124 | 137) verdict="no end" failed=1; echo "stopped after $seconds s" >>"$work/$step.said" ;;
    *) verdict=FAILED failed=1 ;;
    esac
    [ -s "$work/$step.said" ] || tail -1 "$out/$step.log" >"$work/$step.said"
    table "$step" "$verdict" $((SECONDS - start)) "${planned[$step]}" "$(head -1 "$work/$step.said")"
    sed -n '2,$s/^/                                       /p' "$work/$step.said" | tee -a "$out/summary.txt"
    case $step/$verdict in
    env/ok | mma/ok) ;;
    env/* | build/* | mma/*) stopped=$step ;;
    esac
    case $verdict in ok) ;; *) tail -15 "$out/$step.log" | sed 's/^/    | /' ;; esac
done
end_prepare
if [ -n "$results" ]; then
    bundle=$(mktemp -d) && cp "$out/summary.txt" "$bundle"
    cp "$work"/gpu_ops.txt "$work"/times.*.txt "$work"/wide.txt "$work"/wide.report.json "$bundle" 2>/dev/null
    for f in "$out"/*.log; do case $f in *sanitizer.*) ;; *) tail -c 20000 "$f" >"$bundle/$(basename "$f" .log).tail" ;; esac; done
    for f in llama qwen whole bench; do [ ! -d "$work/$f" ] || (cd "$work/$f" && for r in *.json; do cp "$r" "$bundle/$f.$r"; done) 2>/dev/null; done
    tar -C "$bundle" -czf "$results" . && rm -r "$bundle"
fi
exit $failed
