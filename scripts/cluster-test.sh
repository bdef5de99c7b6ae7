#!/bin/bash
# cluster-test.sh - runs jobs over two emulated hosts, and under Slurm, on one machine (as root). CI
# does not run this script, because it needs network namespaces and the daemons of Slurm.
#   scripts/cluster-test.sh [BUILD] [hosts|slurm]...     BUILD: build/release, with modules of MPI
# hosts  Two groups of namespaces (network, host name, mounts, shared memory) emulate two hosts. A
#        veth pair connects them. mpirun starts its daemon on the other host with a script instead
#        of ssh.
# slurm  munged, slurmctld and slurmd run on loopback (apt-get install munge slurmctld slurmd
#        slurm-client).
# Each part runs a calibrated job, a job without data, an evaluation and a killed job. The results
# must be those of the same jobs with one process.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/release
case ${1:-} in */*) build=$(cd "$1" && pwd) && shift ;; esac
export ONESHOT=$build/oneshot
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(hosts slurm)
dir=$(mktemp -d)
daemons=()
cleanup() {
    if [ ${#daemons[@]} -gt 0 ]; then
        timeout 5 scancel --state=RUNNING,PENDING 2>/dev/null || true
        kill "${daemons[@]}" 2>/dev/null || true
        wait "${daemons[@]}" 2>/dev/null || true
    fi
    ip netns del os-host1 2>/dev/null || true
    ip netns del os-host2 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
fail() { echo "cluster-test: $1" >&2; [ ! -e log ] || tail -n 40 log >&2; exit 1; }
. "$root/tests/tools/sums.sh"
[ -x "$ONESHOT" ] || fail "$ONESHOT is not built"
model=$root/examples/docs-llama-3m
gptq=(--model "$model" --scheme W4A16 --method gptq --ignore lm_head --dataset "$model/data/calibration.jsonl"
    --max-seq-length 128 --threads 1 --progress none)
rtn=(--model "$model" --scheme W4A16 --method rtn --ignore lm_head --max-shard-size 500kB --threads 1 --progress none)
score=(eval --model "$model" --dataset "$model/data/evaluation.txt" --max-seq-length 64 --max-windows 8 --threads 1 --progress none)
"$ONESHOT" "${gptq[@]}" --num-calibration-samples 16 --output gptq >log 2>&1 || fail "gptq in one process fails"
"$ONESHOT" "${rtn[@]}" --output rtn >log 2>&1 || fail "rtn in one process fails"
"$ONESHOT" "${score[@]}" >want.eval 2>log || fail "eval in one process fails"
sums gptq >want.gptq && sums rtn >want.rtn
rm -rf gptq rtn

# jobs_agree LABEL NODES COMMAND...: COMMAND is the launcher with its flags; a job is appended.
jobs_agree() {
    local label=$1 nodes=$2
    shift 2
    "$@" "$ONESHOT" doctor >doctor 2>log || fail "$label: doctor fails"
    grep -E '^MPI' doctor
    [ "$(awk '$3 ~ /^[0-9]+\/[0-9]+$/ { print $2 }' doctor | sort -u | wc -l)" = "$nodes" ] ||
        { cp doctor log; fail "$label: doctor does not list $nodes nodes"; }
    "$@" "$ONESHOT" "${gptq[@]}" --num-calibration-samples 16 --output out >log 2>&1 || fail "$label: gptq fails"
    grep -q 'samples and solves are divided' out/oneshot.log || fail "$label: the ranks do not divide gptq"
    same out want.gptq "$label, gptq"
    "$@" "$ONESHOT" "${rtn[@]}" --output out >log 2>&1 || fail "$label: rtn fails"
    same out want.rtn "$label, rtn"
    "$@" "$ONESHOT" "${score[@]}" >got.eval 2>log || fail "$label: eval fails"
    diff want.eval got.eval >log || fail "$label: eval prints other figures than one process"
    echo "$label: gptq, rtn and eval agree with one process"
}

# rank_process RANK: prints the process id of a rank of the script's job. The process of a rank is
# the child of its guard. Both processes have the name oneshot.
rank_process() {
    local pid parent rest
    for pid in $(pgrep -x oneshot); do
        [ "/proc/$pid/cwd" -ef "$dir" ] || continue
        grep -qzxE "(OMPI_COMM_WORLD_RANK|PMI_RANK|PMIX_RANK)=$1" "/proc/$pid/environ" 2>/dev/null || continue
        read -r rest rest rest parent rest <"/proc/$pid/stat" || continue
        if [ "$(cat "/proc/$parent/comm")" = oneshot ]; then echo "$pid"; fi
    done
}

# job_continues LABEL COMMAND...: kills a rank of a job; one process then completes the job.
job_continues() {
    local label=$1 began pid
    shift
    rm -rf out out.oneshot-partial
    "$@" "$ONESHOT" "${gptq[@]}" --num-calibration-samples 256 --sequential-targets Linear --output out >log 2>&1 &
    local job=$!
    until grep -qs 'observe model.layers.* Start' out.oneshot-partial/oneshot.log; do
        kill -0 $job 2>/dev/null || fail "$label: the job ends before the kill"
        sleep 0.02
    done
    pid=$(rank_process 3)
    [ -n "$pid" ] || fail "$label: rank 3 is not found"
    kill -9 "$pid"
    began=$SECONDS
    if wait $job; then fail "$label: the job does not fail after kill -9"; fi
    [ $((SECONDS - began)) -le 12 ] || fail "$label: the job runs for $((SECONDS - began)) s after kill -9"
    grep -h 'ended by signal\|ended: ' log | head -n 1 || true
    "$ONESHOT" "${gptq[@]}" --num-calibration-samples 256 --sequential-targets Linear --output plain >log2 2>&1 || fail "$label: the run in one process fails"
    "$ONESHOT" "${gptq[@]}" --num-calibration-samples 256 --sequential-targets Linear --output out >log 2>&1 || fail "$label: one process does not continue the job"
    sums plain >want.rest
    rm -rf plain
    same out want.rest "$label, after a kill"
    echo "$label: a killed job ends, and continues with the same bytes"
}

hosts() {
    local k mpi
    command -v ip >/dev/null || fail "hosts: no command ip (package iproute2)"
    ip netns add os-host1 && ip netns add os-host2 || fail "hosts: this machine permits no network namespaces"
    ip link add veth-os1 netns os-host1 type veth peer name veth-os2 netns os-host2
    for k in 1 2; do
        ip -n os-host$k addr add 10.77.0.$k/24 dev veth-os$k
        ip -n os-host$k link set veth-os$k up
        ip -n os-host$k link set lo up
    done
    printf '127.0.0.1 localhost\n10.77.0.1 os-host1\n10.77.0.2 os-host2\n' >hosts
    # at HOST COMMAND: runs a command on a host, like ssh
    cat >at <<END
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
exec nsenter --net=/run/netns/\$host unshare --uts --mount bash -c '
    hostname '\$host' && mount -t tmpfs tmpfs /dev/shm && mount --bind $dir/hosts /etc/hosts && cd $dir && eval "\$*"' - "\$@"
END
    chmod +x at
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    local openmpi=(./at os-host1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi
        --mca plm_rsh_agent "$dir/at" --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24
        --host os-host1:2,os-host2:2 --bind-to none -n 4)
    local mpich=(./at os-host1 mpirun.mpich -launcher ssh -launcher-exec "$dir/at" -hosts os-host1:2,os-host2:2 -n 4)
    for mpi in openmpi mpich; do
        command -v mpirun.$mpi >/dev/null && [ -e "$build/liboneshot_mpi_$mpi.so" ] || { echo "$mpi: not installed"; continue; }
        local -n line=$mpi
        jobs_agree "two hosts, $mpi" 2 "${line[@]}"
        job_continues "two hosts, $mpi" "${line[@]}"
    done
}

slurm() {
    local k mpi
    for k in munged slurmctld slurmd srun; do command -v $k >/dev/null || fail "slurm: no command $k"; done
    mkdir slurm slurm/state slurm/munge
    chmod 755 . slurm && chmod 700 slurm/munge
    dd if=/dev/urandom of=slurm/munge/key bs=1024 count=1 2>/dev/null
    chmod 400 slurm/munge/key
    munged --force --foreground --key-file="$dir/slurm/munge/key" --socket="$dir/slurm/munge/socket" \
        --pid-file="$dir/slurm/munge/pid" --log-file="$dir/slurm/munge/log" --seed-file="$dir/slurm/munge/seed" 2>/dev/null &
    daemons+=($!)
    cat >slurm/slurm.conf <<END
ClusterName=oneshot
SlurmctldHost=localhost
SlurmctldPort=46817
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/slurm/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/slurm/state
SlurmdSpoolDir=$dir/slurm/spool.%n
SlurmctldPidFile=$dir/slurm/ctld.pid
SlurmdPidFile=$dir/slurm/d.%n.pid
SlurmctldLogFile=$dir/slurm/ctld.log
SlurmdLogFile=$dir/slurm/d.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=46821 CPUs=4
PartitionName=all Nodes=node1 Default=YES State=UP
END
    export SLURM_CONF=$dir/slurm/slurm.conf
    mkdir slurm/spool.node1
    sleep 0.5
    slurmctld -D -f "$SLURM_CONF" 2>/dev/null &
    daemons+=($!)
    slurmd -D -N node1 -f "$SLURM_CONF" 2>/dev/null &
    daemons+=($!)
    for ((k = 0; k < 100; k++)); do
        [ "$(sinfo -h -o %t 2>/dev/null)" != idle ] || break
        sleep 0.2
    done
    [ "$(sinfo -h -o %t)" = idle ] || { cat slurm/*.log >log; fail "slurm: the nodes do not start"; }
    for mpi in pmix pmi2; do
        jobs_agree "srun --mpi=$mpi" 1 srun --mpi=$mpi --ntasks=4 --overcommit
        job_continues "srun --mpi=$mpi" srun --mpi=$mpi -K1 --ntasks=4 --overcommit
    done
    if srun --mpi=none --ntasks=2 "$ONESHOT" doctor >log 2>&1; then fail "srun without MPI is not refused"; fi
    grep -q 'want srun --mpi=pmix' log || fail "srun without MPI: the message does not name srun --mpi=pmix"
    MODEL=$model DATA=$model/data/calibration.jsonl OUT=$dir/batch PATH=$build:$PATH \
        timeout 60 sbatch --wait --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --mem=0 --output=batch.log "$root/examples/cluster.sbatch" >log 2>&1 ||
        { cat batch.log >>log; fail "sbatch fails"; }
    grep -q 'samples and solves are divided' batch/oneshot.log || fail "sbatch: the ranks do not divide the job"
    echo "sbatch examples/cluster.sbatch: done"
}

for part in "${parts[@]}"; do
    case $part in
    hosts | slurm) $part ;;
    *) fail "unknown part '$part', want hosts or slurm" ;;
    esac
done
