# ranks.sh - tests jobs without data under mpirun. Any number of ranks must give the same files,
# even after kill -9 of a rank and a resume with another number of ranks. A job whose ranks have
# different inputs, or in which a rank fails, must end with one message.
set -euo pipefail
. "$OSH_SOURCE_DIR/tests/tools/ranks.sh"
. "$OSH_SOURCE_DIR/tests/tools/sums.sh"
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
fail() { echo "$1"; [ ! -e log ] || cat log; exit 1; }
declare -A how=(
    [rtn]="--scheme W4A16 --method rtn"
    [global]="--scheme NVFP4A16 --method rtn"
)
one() { # arguments: kind of job, output
    echo "--model $model ${how[$1]} --ignore lm_head --max-shard-size 500kB --threads 1 --output $2"
}
wants() { grep -q "$1" log || fail "wanted the message: $1"; }
for name in "${!how[@]}"; do
    "$ONESHOT" $(one $name plain) --progress none >log 2>&1 || fail "the run in one process fails"
    sums plain >want.$name
    rm -rf plain
done

for mpi in "${mpis[@]}"; do
    # doctor prints a table of the ranks
    start $mpi 3 "$ONESHOT" doctor >log 2>&1 || fail "doctor"
    wants '3 ranks'
    [ "$(grep -cE '^ +[0-2] .* [0-2]/3 ' log)" = 3 ] || fail "doctor prints no table of 3 ranks"
    [ "$(grep -c '^processor' log)" = 1 ] || fail "doctor prints more than once"

    # Any number of ranks gives the same files and one log.
    for n in 1 2 3 4 7; do
        [ $mpi = "${mpis[0]}" ] || [ $n = 3 ] || continue
        start $mpi $n "$ONESHOT" $(one rtn out) --progress none >log 2>&1 || fail "the run of $n ranks fails"
        [ $n = 1 ] || grep -q "$n ranks: the files of the output are divided" out/oneshot.log ||
            fail "the log does not say that files are divided"
        [ "$(grep -c '^out: ' log)" = 1 ] || fail "$n ranks: more than one result is printed"
        same out want.rtn "$mpi, $n ranks"
    done
    start $mpi 2 "$ONESHOT" $(one global out) --progress none >log 2>&1 || fail "the run of 2 ranks with global scales fails"
    same out want.global "$mpi, global scales"
    # Tests a finished output, and a command that is not divided among ranks.
    start $mpi 2 "$ONESHOT" $(one rtn out) --progress none >log 2>&1 || fail "the run of 2 ranks fails"
    start $mpi 3 "$ONESHOT" $(one rtn out) --progress none >log 2>&1 || fail "a run with a finished output fails"
    wants 'nothing to do'
    start $mpi 2 "$ONESHOT" inspect out >log 2>&1 || fail "inspect"
    wants 'inspect is not divided among ranks: rank 0 runs it'
    same out want.rtn "$mpi, finished"
    # An output of one file is not divided among ranks.
    one_file=$(one rtn out)
    start $mpi 2 "$ONESHOT" ${one_file/500kB/1GB} --progress none --log-level info >log 2>&1 || fail "the run with one output file fails"
    wants 'rank 0 does all work: the output has one file'
    rm -rf out
done

# Kills a rank at calls that change the disk (kill -9). The next run has another number of ranks.
RANDOM=7
kills=8 n=0 killed=0
[ -z "$SANITIZED" ] || kills=3
# Some runs finish before the kill, because the rank makes fewer calls. So the loop runs until
# enough ranks are killed.
while [ $n -lt $kills ] || [ $killed -lt $((kills / 3)) -a $n -lt 40 ]; do
    mpi=${mpis[RANDOM % ${#mpis[@]}]} ranks=$((RANDOM % 3 + 2))
    rank=$((RANDOM % ranks))
    n=$((n + 1))
    start $mpi $ranks ./on $rank LD_PRELOAD="$OSH_TOOLS/inject.so" INJECT_WHAT=kill INJECT_AT=$((RANDOM % 50 + 4)) -- \
        "$ONESHOT" $(one rtn out) --progress none >log 2>&1 &
    job_ends $! $mpi 30 || killed=$((killed + 1))
    after_kill want.rtn
done
[ $killed -ge $((kills / 3)) ] || fail "only $killed of $n runs were killed"
"$ONESHOT" $(one rtn out) --progress none >log 2>&1 || fail "one process does not continue the killed job"
same out want.rtn "one process after kills"
echo "$killed of $n runs were killed"

# If ranks have different inputs, or if a rank fails, rank 0 prints one message, and there is no
# output.
mpi=${mpis[0]}
refused() { # arguments: wanted message
    [ ! -e out ] && [ ! -e out.oneshot-partial ] || fail "a refused job has left something"
    [ "$(grep -c '^oneshot: ' log)" = 1 ] || fail "wanted one message"
    wants "$1"
}
cat >other <<'END'
#!/bin/bash
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || set -- "$@" --strict
exec "$@"
END
chmod +x other
if start $mpi 2 ./other "$ONESHOT" $(one rtn out) >log 2>&1; then fail "other arguments of a rank are not refused"; fi
refused "rank 1 of 2 on .*has other arguments than rank 0: here '--strict', there ''"
if start $mpi 2 ./on 1 ONESHOT_PROFILING=1 -- "$ONESHOT" $(one rtn out) >log 2>&1; then fail "another environment of a rank is not refused"; fi
refused "other variables in its environment"
cp "$ONESHOT" changed && printf x >>changed && cp "$(dirname "$ONESHOT")"/liboneshot_mpi_*.so .
printf '#!/bin/bash\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || exec ./changed "$@"\nexec "$ONESHOT" "$@"\n' >two
chmod +x two
if start $mpi 2 ./two $(one rtn out) >log 2>&1; then fail "two programs in one job are not refused"; fi
refused "has another program than rank 0"
# tests ranks that read different sources
mkdir model.0 model.1
cp -r "$model"/. model.0 && cp -r "$model"/. model.1
cat >source <<'END'
#!/bin/bash
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || exec unshare -m bash -c 'mount --bind model.1 model && exec "$@"' - "$@"
exec "$@"
END
chmod +x source
cp -r model.0 model && touch -d @1 model/*.safetensors
if unshare -m true 2>/dev/null; then
    args=$(one rtn out)
    if start $mpi 2 ./source "$ONESHOT" ${args/"$model"/model} >log 2>&1; then fail "another source of a rank is not refused"; fi
    refused "another source or other settings than rank 0: here 'source model.*safetensors: changed at"
fi
# Tests a rank whose disk is full.
if start $mpi 2 ./on 1 LD_PRELOAD="$OSH_TOOLS/inject.so" INJECT_WHAT=ENOSPC INJECT_CALLS="pwrite fdatasync pwritev" INJECT_AT=2 -- \
    "$ONESHOT" $(one rtn out) --progress none >log 2>&1; then fail "a full disk does not end the run"; fi
[ "$(grep -c '^oneshot: ' log)" = 1 ] || fail "wanted one message"
wants 'oneshot: rank 1 of 2 on .*, round: .*No space left'
"$ONESHOT" $(one rtn out) --progress none >log 2>&1 || fail "the run does not continue after a full disk"
same out want.rtn "after a full disk"

# Tests the launchers when the module or MPI is missing.
cp "$ONESHOT" lonely
rm -f liboneshot_mpi_*.so
if OMPI_COMM_WORLD_SIZE=2 ./lonely doctor >log 2>&1; then fail "a missing module for MPI is not refused"; fi
wants 'want the package oneshot-mpi'
if SLURM_STEP_NUM_TASKS=2 "$ONESHOT" doctor >log 2>&1; then fail "srun without MPI is not refused"; fi
wants 'want srun --mpi=pmix'
SLURM_NTASKS=2 SLURM_PROCID=0 "$ONESHOT" doctor >log 2>&1 || fail "a batch script of Slurm is one process"

# The package has both modules and depends on the program and on one of the MPIs.
if [ ${#mpis[@]} = 2 ] && [ -z "$SANITIZED" ] && command -v dpkg-deb >/dev/null; then
    bash "$OSH_SOURCE_DIR/packaging/mpi.sh" "$(dirname "$ONESHOT")" >log 2>&1 || fail "packaging/mpi.sh"
    dpkg-deb -x oneshot-mpi_*.deb deb
    # installs the program, because the installed file has the final RPATH
    cmake --install "$(dirname "$ONESHOT")" --prefix "$PWD/deb/usr" >/dev/null
    dpkg-deb -f oneshot-mpi_*.deb Depends >log
    wants 'libopenmpi3 | libmpich12'
    for mpi in "${mpis[@]}"; do
        start $mpi 2 deb/usr/bin/oneshot doctor >log 2>&1 || fail "doctor of the package fails with $mpi"
        wants '2 ranks'
    done
fi
