# quickstart.sh - tests scripts/quickstart.sh, with a script in place of cmake that only prints. The
# quickstart must print one line about the build, the table of results, and next commands that work.
# It must print the compiler's output only if the build fails.
set -euo pipefail
fail() { echo "$*"; cat said; exit 1; }
docs=$OSH_SOURCE_DIR/examples/docs-llama-3m
mkdir -p tree/scripts tree/examples/docs-llama-3m/data tree/build/release tree/tools
cp "$OSH_SOURCE_DIR/scripts/quickstart.sh" tree/scripts/
echo 'exit 0' >tree/scripts/install-deps.sh
cp "$OSH_SOURCE_DIR"/examples/w4a16-{rtn,gptq}.yaml tree/examples/
cp "$docs"/*.json "$docs"/model.safetensors tree/examples/docs-llama-3m/
head -n 3 "$docs/data/calibration.jsonl" >tree/examples/docs-llama-3m/data/calibration.jsonl
head -c 3000 "$docs/data/evaluation.txt" >tree/examples/docs-llama-3m/data/evaluation.txt
ln -s "$ONESHOT" tree/build/release/oneshot
cat >tree/tools/cmake <<'TOOL'
#!/usr/bin/env bash
[ "$1" = --build ] || { echo "-- Configuring"; exit "${CONFIGURE:-0}"; }
echo '[1/3] Building C object a.c.o'
echo '[2/3] Building C object b.c.o'
[ -z "${BROKEN:-}" ] || { echo 'FAILED: b.c.o'; echo "b.c:1:1: error: expected ';'"; exit 1; }
echo '[3/3] Linking C executable oneshot'
TOOL
chmod +x tree/tools/cmake
run() { PATH=$PWD/tree/tools:$PATH bash tree/scripts/quickstart.sh >said 2>&1; }
run || fail "the script failed"
[ "$(sed -n 1p said)" = 'compiled 3 of 3' ] || fail "not one line about the build"
[ "$(grep -cE '^(examples/docs-llama-3m|build/quickstart/(rtn|gptq)) +[0-9]+ +[0-9.]+$' said)" = 3 ] || fail "no table"
[ "$(wc -l <said)" = 11 ] || fail "the script does not print 11 lines"
(cd tree && [ -s "$(sed -n 's/^report *//p' ../said)" ] && eval "$(sed -n 's/^next *//p' ../said)" >../text) || fail "next"
[ -s text ] || fail "generate prints nothing"
(cd tree && eval "$(sed -n 's/^ *\(.*oneshot plan.*\)/\1/p' ../said | sed "s|YOUR_MODEL|examples/docs-llama-3m|; s|YOUR_CHATS|examples/docs-llama-3m/data/calibration|")" >/dev/null) ||
    fail "the plan of the last command fails"
echo short >tree/examples/docs-llama-3m/data/evaluation.txt
if run; then fail "a failed measurement does not end the script"; fi
if BROKEN=1 run; then fail "a failed build does not end the script"; fi
grep -qx "b.c:1:1: error: expected ';'" said && grep -q 'the build failed' said || fail "no message of the compiler"
if grep -q 'Building' said; then fail "steps that worked are shown"; fi
if CONFIGURE=1 run; then fail "a failed configuration does not end the script"; fi
grep -q 'Configuring' said || fail "no message of cmake"
