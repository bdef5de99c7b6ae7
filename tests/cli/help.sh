# help.sh - tests the help texts, topics, "did you mean", the completion of command lines, and the
# lines of `oneshot doctor` about program and machine.
set -euo pipefail
fail() { echo "$*"; exit 1; }
model=$OSH_SOURCE_DIR/examples/docs-llama-3m

# A help text fits on one screen of 48 lines and 80 columns. A command has three examples, with
# flags that the command has.
"$ONESHOT" --help >usage
"$ONESHOT" | cmp - usage
"$ONESHOT" help | cmp - usage
for c in '' plan verify eval compare generate inspect check-model graph tokenize report bench doctor help completion; do
    "$ONESHOT" $c --help >help
    awk -v c="$c" 'length($0) > 80 { print c ": " $0; bad = 1 } END { exit bad || NR > (c ? 52 : 48) || NR < 3 }' help || fail "$c --help: $(cat help)"
    [ -z "$c" ] || {
        grep "^  oneshot $c" help >examples
        [ "$(wc -l <examples)" = 3 ] || fail "$c has no three examples: $(cat help)"
        { "$ONESHOT" help all $c; cat help; } >flags
        for flag in $(grep -oE -- '--[a-z-]+' examples); do grep -qE -- "^ +.*$flag( |\$)" <(grep -v "^  oneshot" flags) || fail "$c has no $flag"; done
    }
    [ -z "$c" ] || { "$ONESHOT" help $c | cmp - help; grep -qE "^(and .*)?$c " usage || fail "$c is not in the usage"; }
done
"$ONESHOT" help all >all
n=0
while read -r flag; do # the usage names each flag
    grep -qE -- "(^| )$flag( |\$)" usage || fail "$flag is not in the usage"
    "$ONESHOT" help $flag >one
    grep -q -- "^$flag" one || fail "help $flag: $(cat one)"
    n=$((n + 1))
done < <(grep -o '^  --[a-z-]*' all)
[ $n -ge 50 ] || fail "only $n flags"
"$ONESHOT" tokenize --help >help
grep -q -- --no-special-tokens help
if grep -q -- --scheme help; then fail "tokenize has no --scheme"; fi

# Tests the topics of help.
"$ONESHOT" help schemes >list
grep -q '^W4A16_ASYM  weights 4-bit integer, a scale for each group of 128 and a zero point$' list || fail "$(cat list)"
grep -q '^FP8 .*, from --dataset$' list
"$ONESHOT" help modifiers | grep -A 9 '^GPTQModifier' >list
grep -q 'dampening_frac .*\[0.01\]' list && grep -q '^  scheme or config_groups, .*, quality, candidates, actorder, ' list || fail "$(cat list)"
"$ONESHOT" help modifiers | grep -A 3 '^SmoothQuantModifier' >list
grep -q '^  mappings, ignore$' list && grep -q 'smoothing_strength .*\[0.5\]' list || fail "$(cat list)"
"$ONESHOT" help models >list
grep -q '^  Qwen3ForCausalLM$' list
"$ONESHOT" help python >list
grep -q 'trust_remote_code_model  *any value' list
"$ONESHOT" help group_size >list
grep -q '^--group-size N$' list
"$ONESHOT" help save_compressed >list
"$ONESHOT" help all eval >list
grep -q -- '^  --per-token ' list

# Tests the help texts of topics and schemes. Each text fits on one screen, and the commands,
# recipes and flags in it exist. The case of the letters of a name does not matter.
"$ONESHOT" help topics >topics
n=0
"$ONESHOT" help schemes | awk '$2 == "weights" {print $1}' >schemes
[ "$(wc -l <schemes)" -ge 32 ] || fail "only $(wc -l <schemes) schemes"
[ -z "$SANITIZED" ] || printf '%s\n' W4A16_ASYM FP8_BLOCK NVFP4 >schemes
for topic in $(sed -n 's/^  \([a-z-]*\)  .*/\1/p' topics) $(cat schemes); do
    case $topic in all | commands | schemes | modifiers | models | python) continue ;; esac
    "$ONESHOT" help "${topic^^}" >one || fail "help $topic"
    awk 'length($0) > 80 || / $/ { bad = 1 } END { exit bad || NR > 40 || NR < 5 }' one || fail "$topic: $(cat one)"
    n=$((n + 1))
done
[ $n -ge 9 ] || fail "only $n topics and schemes"
grep -q '^  exit-codes ' topics || fail "$(cat topics)"
for topic in gptq awq recipes; do
    "$ONESHOT" help $topic | sed -n '/^  default_stage:/,/^$/s/^  //p' | sed 's/group_size: 64/group_size: 32/' >topic.yaml
    "$ONESHOT" plan --model "$model" --recipe topic.yaml --dataset "$model/data/calibration.jsonl" --num-calibration-samples 1 >/dev/null
    "$ONESHOT" help $topic | grep -o -e ' --[a-z-]*' | sort -u | while read -r flag; do "$ONESHOT" help "$flag" >/dev/null || fail "$flag of $topic"; done
done
for page in $(for t in gptq awq formats environment exit-codes; do "$ONESHOT" help $t; done | grep -o 'docs/[a-z/-]*\.md'); do
    [ -f "$OSH_SOURCE_DIR/$page" ] || fail "no $page"
done
"$ONESHOT" help awqmodifier | cmp - <("$ONESHOT" help awq)
"$ONESHOT" help w4a16 >one
grep -qx 'bits       4.12 for a weight, with scales' one && grep -q '^loads in   pack-quantized: vLLM' one &&
    grep -q '^data       none with' one && grep -qx '  oneshot DIR --scheme W4A16' one || fail "$(cat one)"
"$ONESHOT" help nvfp4 >one
grep -qx "  oneshot DIR --scheme NVFP4 --dataset chats.jsonl" one || fail "NVFP4 needs data"
"$ONESHOT" plan --model "$model" --scheme NVFP4 >/dev/null 2>&1 && fail "NVFP4 needs no data"

# Tests suggestions for misspelled words.
meant() { # arguments: part of the message, exit code, command line
    local code=0
    "$ONESHOT" "${@:3}" >stdout 2>stderr || code=$?
    [ $code = "$2" ] || fail "${*:3}: exit $code"
    grep -qF -- "$1" stderr || fail "${*:3}: want $1: $(cat stderr)"
}
meant "unknown command 'evla'; did you mean eval?" 2 evla
meant "unknown option '--modle'; did you mean --model?" 2 --modle m
# --samples is the name of a flag in other tools. An error message must not suggest --sample for it,
# because --sample has another meaning.
meant "unknown option '--samples': want --num-calibration-samples" 2 plan --samples 3
meant "unknown option '--calibration-samples'; did you mean --num-calibration-samples?" 2 plan --calibration-samples 3
meant "unknown option '--per-tokens'; did you mean --per-token?" 2 eval --per-tokens f
meant "no help for 'schems': want a command, a flag, a scheme, or a topic (\`oneshot help topics\`); did you mean schemes?" 2 help schems
meant "; did you mean recipes?" 2 help recipies
meant "MXFP8A16; did you mean W4A16?" 2 --model "$model" --scheme W4A61 --output out
printf 's_stage:\n  s_modifiers:\n    GPTModifier: {scheme: W4A16}\n' >r.yaml
meant "; did you mean GPTQModifier?" 1 --model "$model" --recipe r.yaml --output out
printf 's_stage:\n  s_modifiers:\n    GPTQModifier: {scheme: W4A16, block_sise: 64}\n' >r.yaml
meant "; did you mean block_size?" 2 --model "$model" --recipe r.yaml --output out
plan() { "$ONESHOT" plan --model "$model" --scheme W8A16 "$@" >/dev/null 2>stderr || fail "$(cat stderr)"; }
plan --ignore model.layers.0.self_attn.q_porj --targets Linear,linear
grep -q 'ignore model.layers.0.self_attn.q_porj of .*; did you mean model.layers.0.self_attn.q_proj?$' stderr || fail "$(cat stderr)"
grep -q 'target linear of .*; did you mean Linear?$' stderr || fail "$(cat stderr)"
plan --targets Linear,mlp.down_proj
grep -q 'target mlp.down_proj of .*; did you mean re:\.\*mlp\.down_proj\$?$' stderr || fail "$(cat stderr)"
meant "unknown option '--colour'" 2 --colour red
if grep -q 'did you mean' stderr; then fail "a word without a near name gets a proposal: $(cat stderr)"; fi
meant "completion wants one of bash, zsh or fish, or modules and a model, got 0 arguments" 2 completion
meant "completion wants one of bash, zsh or fish, or modules and a model, got 2 arguments" 2 completion bash zsh
meant "nowhere" 1 completion modules nowhere
meant "completion for 'csh': want bash, zsh or fish" 2 completion csh

# Tests the completion of command lines.
"$ONESHOT" completion bash >bash.sh
bash -n bash.sh
complete_line() { # arguments: words of a command line; prints the completions of the last word
    bash -c 'source bash.sh; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _oneshot; printf "%s\n" "${COMPREPLY[@]}"' - oneshot "$@"
}
[ "$(complete_line pl)" = plan ] || fail "$(complete_line pl)"
[ "$(complete_line --num-calibration-s)" = --num-calibration-samples ] || fail "$(complete_line --num-c)"
[ "$(complete_line plan --progress l)" = line ] || fail "$(complete_line plan --progress l)"
[ "$(complete_line eval --per)" = --per-token ] || fail "$(complete_line eval --per)"
[ "$(complete_line inspect --j)" = --json ] || fail "$(complete_line inspect --j)"
completed() { # arguments: wanted words, command line
    got=$(complete_line "${@:2}" | LC_ALL=C sort | tr '\n' ' ')
    [ "${got% }" = "$1" ] || fail "${*:2}: want $1, got $got"
}
mkdir -p 'some where' sometimes
touch 'some file.yaml'
completed 'some where sometimes' --model some
completed 'some file.yaml some where sometimes' --recipe some
completed 'some where' verify some\ 
completed 'W4A16 W4A16_ASYM' --scheme W4A16
completed W4A16_ASYM --scheme = W4A16_ # bash makes three words of --scheme=W4A16_
completed 'false true' --symmetric ''
completed '--target --target-bits --target-size --targets' --symmetric --targe
completed 'bash' completion ba
completed 'gptq' help gp
completed '--group-size' help --group
completed '' --seed some
# Completion offers the modules of the model on the command line. The value of another flag is not
# taken as the model.
ln -s "$model" 'the model'
ln -s "$ONESHOT" oneshot
PATH=$PWD:$PATH
want='model.layers.3.self_attn.q_proj'
completed $want --model 'the model' --ignore model.layers.3.self_attn.q
completed $want --model = 'the model' --ignore = model.layers.3.self_attn.q
completed $want 'the model' --only model.layers.3.self_attn.q
completed lm_head,$want plan 'the model' --targets lm_head,model.layers.3.self_attn.q
completed 'Linear LlamaDecoderLayer' graph --model "$model" --sequential-targets L
completed '' --output 'the model' --ignore model.layers.3.self_attn.q
completed '' --ignore model.layers.3.self_attn.q
[ "$("$ONESHOT" completion modules "$model" | wc -l)" = $((2 + 1 + 4 * 7)) ] || fail "$("$ONESHOT" completion modules "$model")"
for shell in zsh fish; do
    "$ONESHOT" completion $shell >completion.$shell
    if command -v $shell >/dev/null; then $shell -n completion.$shell; fi
    while read -r flag; do
        if [ $shell = zsh ]; then want="'$flag"; else want="-l ${flag#--} "; fi
        grep -qF -- "$want" completion.$shell || fail "$shell: $flag is missing"
    done < <(grep -o -- '^  --[a-z-]*' all)
    grep -q 'auto line json none' completion.$shell
    grep -q 'W8A8 INT8 FP8' completion.$shell
    # the descriptions of flags are whole sentences, and their quotes are escaped
    quote="\\'"
    [ $shell = fish ] || quote="'\\''"
    sentence="directory to write (default: the model${quote}s name and the scheme, such as SmolLM2-135M-W4A16, in the current directory)"
    grep -qF "$sentence" completion.$shell || fail "$shell: no $sentence"
    n=$(sed "s/$(sed 's/\\/\\\\/g' <<<"$quote")//g" completion.$shell | tr -cd "'" | wc -c)
    [ $((n % 2)) = 0 ] || fail "$shell: $n quotes"
    for c in plan verify eval compare generate inspect doctor; do grep -q "$c" completion.$shell || fail "$shell: no $c"; done
done

"$ONESHOT" --version >version
head -n 1 version | grep -qE '^oneshot [0-9.]+$'
grep -qE '^built with (gcc|clang) ' version && grep -q 'zstd [0-9]' version || fail "$(cat version)"
"$ONESHOT" doctor >doctor
for word in processor 'sets  *generic' memory libraries GPU disk 'a run uses  *--isa'; do grep -q "^$word" doctor || fail "no $word: $(cat doctor)"; done
