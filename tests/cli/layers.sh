# layers.sh - tests scripts/check_layers.py, which must fail only for these faults:
#   an include or a call of a higher layer or of a sibling
#   a cycle of more than three files
#   the name of a table row in another directory
#   a name of CUDA outside of gpu, ops and solver
set -euo pipefail
[ -z "$SANITIZED" ] || { echo "this test runs scripts only"; exit 77; }
command -v python3 >/dev/null || { echo "wants python3"; exit 77; }
check() { python3 "$OSH_SOURCE_DIR/scripts/check_layers.py" "$@" >said 2>&1; }
refused() { # arguments: part of the message, then arguments of check_layers.py
    local words=$1
    shift
    if check "$@"; then echo "'$words' passes"; exit 1; fi
    grep -qF -- "$words" said && grep -q ', 1 wrong$' said || { echo "wanted '$words' alone:"; cat said; exit 1; }
}
object() { # arguments: file of src/, functions that it defines, functions that it calls
    local name to=objects/CMakeFiles/osh_${1%%/*}.dir/src/$1.o
    mkdir -p "$(dirname "$to")"
    { for name in $3; do echo "void $name(void);"; done; for name in $2; do echo "void $name(void); void $name(void) { "
        for call in $3; do echo "$call();"; done; echo "}"; done; } >part.c
    cc -c part.c -o "$to"
}
object base/alloc.c low ""
object text/json.c middle low
check "$OSH_SOURCE_DIR" --objects objects || { cat said; exit 1; }
object base/alloc.c low middle
refused 'src/base/alloc.c (rank 0) calls middle of src/text/json.c (rank 1)' "$OSH_SOURCE_DIR" --objects objects
rm -r objects
object run/pace.c left right
object verify/verify.c right ""
refused 'src/run/pace.c (rank 12) calls right of src/verify/verify.c (rank 12)' "$OSH_SOURCE_DIR" --objects objects
rm -r objects
object run/pace.c a b
object run/solve.c b c
object run/stats.c c a
check "$OSH_SOURCE_DIR" --objects objects || { cat said; exit 1; }
grep -q '^3 files call each other in a cycle: run/pace.c run/solve.c run/stats.c$' said
object run/stats.c c d
object run/track.c d a
refused '4 files call each other in a cycle: run/pace.c run/solve.c run/stats.c run/track.c' "$OSH_SOURCE_DIR" --objects objects

cp -r "$OSH_SOURCE_DIR/src" "$OSH_SOURCE_DIR/include" .
check . || { cat said; exit 1; }
words=()
changed() { # arguments: part of the message, line, file; appends the line to the file
    echo "$2" >>"src/$3"
    words+=("$1")
}
changed 'graph (rank 4) includes plan (rank 10), which has a higher rank' '#include "plan/plan.h"' graph/exec.c
changed 'run (rank 12) includes eval (rank 12), which has the same rank' '#include "eval/eval.h"' run/pace.c
changed '"plan/none.h": no such file below src/' '#include "plan/none.h"' run/pace.c
changed 'is the name of a modifier: only modifiers may use it' 'static const char *x = "as GPTQModifier";' run/pace.c
changed 'is the name of an observer: only quant may use it' 'static const char *x = "imatrix_mse";' eval/eval.c
changed 'is the name of a format: only quant may use it' 'static const char *x = "pack-quantized";' output/emit.c
changed 'is the name of a source: only quant may use it' 'static const char *x = "fbgemm_fp8";' plan/plan.c
changed 'src/run/stats.c: osh_cuda_open: only gpu, ops, solver may name CUDA' 'int x = osh_cuda_open();' run/stats.c
changed '"ops/cuda/cuda.h": only gpu, ops, solver may name CUDA' '#include "ops/cuda/cuda.h"' run/stats.c
echo '/* "GPTQModifier" and osh_cuda_open in words */' >>src/run/pace.c
# the script must find exactly the appended lines
if check .; then echo "the changes pass"; exit 1; fi
grep -q ", ${#words[@]} wrong$" said || { cat said; exit 1; }
for word in "${words[@]}"; do
    [ "$(grep -cF -- "$word" said)" = 1 ] || { echo "wanted '$word' once:"; cat said; exit 1; }
done

# lint.py needs no git.
mkdir nothing
# sys.executable: the path of the interpreter itself, because a wrapper script would need PATH
python=$(python3 -c 'import sys; print(sys.executable)')
PATH=$PWD/nothing "$python" "$OSH_SOURCE_DIR/scripts/lint.py" >lint.txt || { cat lint.txt; exit 1; }
grep -q '^git is missing' lint.txt
