# linearity.sh - tests scripts/linearity.sh. This script prints the times for several numbers of
# samples, layers and tokens, and the straight line that fits these times.
set -euo pipefail
[ -x "$OSH_TOOLS/make_model" ]
bash "$OSH_SOURCE_DIR/scripts/linearity.sh" --oneshot "$ONESHOT" --make-model "$OSH_TOOLS/make_model" --out out --runs 1 \
    --samples "2 4" --layers "1 2" --tokens "16 32" --at "2 1 16" \
    --shape "hidden=128 intermediate=128 heads=4 kv=2 vocab=256" -- --threads 1 >table
for what in samples layers tokens; do grep -Eq "^$what +seconds +on the line +off$" table || { cat table; exit 1; }; done
[ "$(grep -Ec '^[0-9]+ +[0-9]+\.[0-9]+ +[0-9]+\.[0-9]+ +-?[0-9.]+%$' table)" = 6 ] || { cat table; exit 1; }
[ "$(grep -Ec '^-?[0-9.]+ s \+ -?[0-9.]+ s each, at most [0-9.]+ % off$' table)" = 3 ] || { cat table; exit 1; }
if bash "$OSH_SOURCE_DIR/scripts/linearity.sh" --out out 2>stderr; then exit 1; fi
grep -q 'linearity.sh: --make-model is not given' stderr

# scripts/proportion.sh prints a row for each size.
bash "$OSH_SOURCE_DIR/scripts/proportion.sh" --oneshot "$ONESHOT" --make-model "$OSH_TOOLS/make_model" --out tiny \
    --runs 1 --layers "1 2" --experts 4 >table
grep -Eq '^ +Linears +total s +plan s +MB +us a Linear +us to plan +ms a batch$' table || { cat table; exit 1; }
[ "$(grep -Ec '^ +(16|32)( +[0-9.]+){6}$' table)" = 2 ] || { cat table; exit 1; }
