# ranks.sh - defines start; to be sourced. start MPI N PROGRAM ARGUMENTS... runs N processes under
# the launcher of openmpi or mpich, at most 60 seconds. mpis: the MPIs for which launcher and module
# are found. Exits with 77 if there is none.
mpis=()
for mpi in openmpi mpich; do
    if command -v mpirun.$mpi >/dev/null && [ -e "$(dirname "$ONESHOT")/liboneshot_mpi_$mpi.so" ]; then mpis+=($mpi); fi
done
[ ${#mpis[@]} -gt 0 ] || { echo "no mpirun of Open MPI or MPICH: skipped"; exit 77; }
# The plugins of the MPI libraries leak and are unloaded, so a suppression of LeakSanitizer cannot
# name them.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0:verify_asan_link_order=0
start() {
    local mpi=$1 n=$2 flags=()
    shift 2
    # one processor for all ranks, and root is allowed, as in a container
    [ "$mpi" != openmpi ] || flags=(--allow-run-as-root --oversubscribe --bind-to none)
    # -k: mpirun of Open MPI 4.1 may hang if a process is killed while it connects to it
    timeout -k 5 60 "mpirun.$mpi" "${flags[@]}" -n "$n" "$@"
}
# on RANK ENVIRONMENT... -- PROGRAM ARGUMENTS...: to be run by start; gives the variables only to
# that rank.
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
# kill_rank RANK FILE PATTERN SECONDS: kill -9 of the process of a rank that runs in this directory,
# some seconds after FILE has the pattern. A rank is the child of its guard, which is also a process
# oneshot.
kill_rank() {
    local at
    for ((at = 0; at < 1000; at++)); do
        if grep -qs "$3" "$2"; then break; fi
        sleep 0.01
    done
    sleep "$4"
    for at in $(pgrep -x oneshot); do
        [ "/proc/$at/cwd" -ef . ] && [ "$(ps -o comm= -p "$(ps -o ppid= -p $at)" 2>/dev/null)" = oneshot ] || continue
        if grep -qzxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" "/proc/$at/environ" 2>/dev/null; then kill -9 "$at"; fi
    done
}
