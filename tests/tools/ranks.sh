# ranks.sh - defines functions for tests with several ranks; to be sourced.
# `start MPI N PROGRAM ARGUMENTS...` runs N processes with the launcher of openmpi or mpich, for at
# most 60 seconds. `mpis` lists the MPIs whose launcher and module are found. If the list is empty,
# the script exits with 77.
mpis=() program=oneshot
for mpi in openmpi mpich; do
    if command -v mpirun.$mpi >/dev/null && [ -e "$(dirname "$ONESHOT")/liboneshot_mpi_$mpi.so" ]; then mpis+=($mpi); fi
done
[ ${#mpis[@]} -gt 0 ] || { echo "no mpirun of Open MPI or MPICH: skipped"; exit 77; }
# The plugins of the MPI libraries leak memory. They are unloaded at the end, so a suppression
# cannot name them. Therefore the detection of leaks is off.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0:verify_asan_link_order=0
# Open MPI 4.1 stores files of a job in a directory that all jobs of a user share, and a job that
# ends may remove this directory while another job starts. So each test has a directory of its own.
mkdir -p mpi_files
export OMPI_MCA_orte_tmpdir_base=$PWD/mpi_files
start() {
    local mpi=$1 n=$2 flags=()
    shift 2
    # lets all ranks share processors, and allows root, as in a container
    [ "$mpi" != openmpi ] || flags=(--allow-run-as-root --oversubscribe --bind-to none)
    timeout -k 5 60 "mpirun.$mpi" "${flags[@]}" -n "$n" "$@"
}
# Makes the script `on`, which `start` can run.
# `on RANK ENVIRONMENT... -- PROGRAM ARGUMENTS...` runs the program, and sets the
# variables ENVIRONMENT only in the process of RANK.
cat >on <<'END'
#!/bin/bash
rank=$1
shift
while [ "$1" != -- ]; do
    [ "$rank" != "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" ] || export "${1?}"
    shift
done
shift
exec "$@"
END
chmod +x on
# processes NAME: prints the processes of that name that run in this directory.
processes() {
    local at
    for at in $(pgrep -x "$1"); do
        if [ "/proc/$at/cwd" -ef . ]; then echo "$at"; fi
    done
}
# kill_rank RANK FILE PATTERN SECONDS: kills the process of a rank that runs in this directory,
# SECONDS after FILE has the pattern. Returns false if there is no such process. A rank is the child
# of its guard, which is also a process named oneshot.
kill_rank() {
    local at parent killed=1
    for ((at = 0; at < 2000; at++)); do
        if grep -qs "$3" "$2"; then break; fi
        sleep 0.01
    done
    sleep "$4"
    for at in $(processes $program); do
        parent=$(awk '$1 == "PPid:" { print $2 }' /proc/$at/status 2>/dev/null)
        [ "$(cat "/proc/$parent/comm" 2>/dev/null)" = $program ] || continue
        if grep -qzxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" "/proc/$at/environ" 2>/dev/null; then kill -9 "$at" && killed=0; fi
    done
    return $killed
}
# job_ends PID MPI SECONDS: waits for a job that was started in the background, and returns its exit
# code. Calls `fail` if a rank still runs after SECONDS seconds. If the launcher still runs without
# ranks, ends the launcher and sets `hung` to 1. (mpirun of Open MPI 4.1 sometimes hangs if a rank
# is killed.)
job_ends() {
    local at code=0
    hung=0
    for ((at = 0; at < $3 * 20; at++)); do
        [ -d "/proc/$1" ] || break
        sleep 0.05
    done
    if [ -d "/proc/$1" ]; then
        [ -z "$(processes $program)" ] || { ps -ef | grep -E 'oneshot|mpirun'; fail "$2: the job still runs after kill -9"; }
        kill -9 $(processes "mpirun.$2")
        hung=1
        echo "mpirun.$2 hung, all of its ranks had ended"
    fi
    wait "$1" || code=$?
    return $code
}
# after_kill WANT: compares the output of a job, which may have been killed, with the checksums in
# the file WANT; needs sums.sh. If the kill was after the rename of the output, the output still has
# the journal, which the next run removes.
after_kill() {
    [ -e out ] || return 0
    if [ -e out/oneshot-journal ]; then
        sums out | grep -v ' ./oneshot-journal$' | diff -u "$1" - || fail "after a kill after the rename: other bytes"
    else
        same out "$1" "after kills"
    fi
}
