#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Jobs over hosts that find each other by rank 0's port, with torchrun's variables and no launcher:
# collectives, many hosts, split teams, strangers at the port; and what each rank says of a missing
# host, a rank that comes twice, a wrong or missing secret, a secret that others may read, a host
# that cannot join, an interface and a port that there are not, a restart beside survivors.
# ctest: cost 40

# shellcheck source=tests/hosts_stage.sh
. "${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}/tests/hosts_stage.sh"
export SYMM_TEAM_BYTES=4M SYMM_HOST_ADDRESS=127.0.0.1
other=ff112233445566778899aabbccddeeff

# rank HOST LOCAL COMMAND...: one rank of a job of $hosts x $each; of_host[] and of_rank[] are
# settings of its own.
hosts=1 each=1
declare -A of_host of_rank
start() {
    local host=$1 local=$2 rank=$(($1 * each + $2))
    shift 2
    # shellcheck disable=SC2086
    env SYMM_HOST_ID="h$host" GROUP_RANK="$host" LOCAL_RANK="$local" RANK="$rank" \
        SYMM_JOB_SECRET="$secret" env ${of_host[$host]-} ${of_rank[$rank]-} \
        timeout 200 "$@" >"out$rank" 2>"err$rank" &
    pids[rank]=$!
}
# job HOSTS RANKS COMMAND...: all ranks but those of $left_out; how they ended in status[].
left_out=
job() {
    hosts=$1 each=$2
    shift 2
    checks=$((checks + 1))
    rm -f out* err*
    pids=() status=()
    export WORLD_SIZE=$((hosts * each)) LOCAL_WORLD_SIZE=$each MASTER_ADDR=127.0.0.1 MASTER_PORT=1
    export TORCHELASTIC_RUN_ID=${run:-run$RANDOM$RANDOM} SYMM_BOOTSTRAP_PORT
    SYMM_BOOTSTRAP_PORT=${port:-$(free_port)}
    for ((h = 0; h < hosts; h++)); do
        for ((l = 0; l < each; l++)); do
            [ "$h" = "$left_out" ] || start $h $l "$@"
        done
    done
    for r in "${!pids[@]}"; do
        wait "${pids[r]}"
        status[r]=$?
    done
}
all_ok() {
    [ "$(printf '%s\n' "${status[@]}" | sort -u)" = 0 ] || { fail "$1: ${status[*]}" && cat err*; }
}
none_ok() {
    printf '%s\n' "${status[@]}" | grep -qx 0 && fail "$1: ${status[*]}"
}

# ---- Jobs that start --------------------------------------------------------------------
export SYMM_INIT_TIMEOUT=100
for op in all_reduce all_gather broadcast; do
    job 3 2 "$bin/symm-perf" $op -b 8 -e 64K -f 8 -n 3
    all_ok $op
    has out0 "6 ranks"
    has out0 "Out of bounds values : 0 OK"
done
job 12 2 "$bin/symm-perf" all_reduce -b 8 -e 64 -f 8 -n 2 # a tree of two levels
all_ok "12 hosts"
has out0 "24 ranks"
SYMM_PORT_RANGE=21000-21999 job 2 2 "$bin/symm-perf" all_reduce -b 8 -e 8 -n 2
all_ok "a range of ports"
SYMM_HOST_ADDRESS='' SYMM_SOCKET_IFNAME==lo job 2 1 "$bin/symm-perf" all_reduce -b 8 -e 8 -n 2
all_ok "an interface"
umask 077
echo $secret >secret
of_host=([0]="-u SYMM_JOB_SECRET SYMM_JOB_SECRET_FILE=$work/secret")
job 2 1 "$bin/symm-perf" all_reduce -b 8 -e 8 -n 2
all_ok "a secret in a file"
of_host=()
for shape in "1 4" "9 3" "32 8"; do
    checks=$((checks + 1))
    # shellcheck disable=SC2086
    env -u SYMM_ENGINE "$bin/start_program" $shape 1 >out 2>err || fail "start $shape: $(head -3 err)"
done
has out "256 ranks on 32 hosts"

# Strangers at rank 0's port before and while the ranks come.
port=$(free_port)
(for _ in $(seq 60); do
    { printf 'GET / HTTP/1.0\r\n\r\n' >"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null
    { exec 4<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null
    sleep 0.01
done) &
job 3 1 "$bin/symm-perf" all_reduce -b 8 -e 8 -n 2
all_ok "strangers"
wait
port=

# ---- Jobs that do not ---------------------------------------------------------------------
export SYMM_INIT_TIMEOUT=2
left_out=2
job 4 2 "$bin/symm-perf" all_reduce -b 8 -e 8
left_out=
none_ok "a missing host"
for r in 0 1 2 3 6 7; do
    has err$r "rank 4 and rank 5 have not joined the job"
done

of_host=([1]="SYMM_JOB_SECRET=$other")
job 3 1 "$bin/symm-perf" all_reduce -b 8 -e 8
none_ok "a wrong secret"
has err1 "does not know the job's secret"
has err0 "rank 1 has not joined the job"
has err0 "rank 0 has refused a host: it does not know the job's secret"
has err2 "rank 1 has not joined the job"

# What answers at rank 0's port is of another version of the protocol, or another program.
cat >stranger.py <<'END'
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
open("listens", "w").close()
while True:
    guest, _ = listener.accept()
    guest.recv(40, socket.MSG_WAITALL)
    guest.sendall(b"SYMJ\0\0\0\77" + bytes(40) if sys.argv[2] == "version" else b"HTTP/1.0 400")
END
if command -v python3 >/dev/null; then
    left_out=0
    for what in version program; do
        port=$(free_port)
        rm -f listens
        python3 stranger.py "$port" $what &
        stranger=$!
        for _ in $(seq 600); do
            [ -e listens ] && break
            sleep 0.05
        done
        of_host=()
        job 2 1 "$bin/symm-perf" all_reduce -b 8 -e 8
        { kill $stranger && wait $stranger; } 2>/dev/null
        [ $what = version ] && wanted="rank 0 at 127.0.0.1:$port has another version of libsymm"
        [ $what = program ] && wanted="what listens at 127.0.0.1:$port is no rank 0 that starts"
        has err1 "$wanted"
    done
    left_out='' port=''
fi

of_host=([1]="-u SYMM_JOB_SECRET")
job 2 1 "$bin/symm-perf" all_reduce -b 8 -e 8
none_ok "no secret"
has err1 "needs a secret"
has err1 "openssl rand -hex 16"

chmod 640 secret
of_host=([1]="-u SYMM_JOB_SECRET SYMM_JOB_SECRET_FILE=$work/secret")
job 2 1 "$bin/symm-perf" all_reduce -b 8 -e 8
none_ok "a secret that others may read"
has err1 "that nobody else may read"

of_host=([2]="RANK=1") # a second rank 1
job 3 1 "$bin/symm-perf" all_reduce -b 8 -e 8
none_ok "a rank that comes twice"
cat err1 err2 >err12
has err12 "rank 1 has joined already"
has err0 "rank 2 has not joined the job"

export SYMM_INIT_TIMEOUT=60
began=$SECONDS
of_host=([1]="SYMM_PORT_RANGE=5-x")
job 3 2 "$bin/symm-perf" all_reduce -b 8 -e 8
none_ok "a host that cannot join"
for r in 0 1 2 3 4 5; do
    has err$r "SYMM_PORT_RANGE='5-x': must be two ports"
done
of_host=([0]="-u SYMM_HOST_ADDRESS SYMM_SOCKET_IFNAME=nowhere")
job 2 1 "$bin/symm-perf" all_reduce -b 8 -e 8
none_ok "rank 0's host that cannot join"
has err1 "SYMM_SOCKET_IFNAME='nowhere': no interface that is up fits it"
[ $((SECONDS - began)) -lt 50 ] || fail "a host that cannot join was waited for"
of_host=()

# Two ranks of a host do not agree on the size of the job.
of_rank=([3]="WORLD_SIZE=5")
job 2 2 "$bin/symm-perf" all_reduce -b 8 -e 8
none_ok "two sizes on a host"
for r in 0 1 2; do has err$r "on host h1: rank 3 says that the job has 5 ranks, rank 2 says 4"; done
has err3 "on host h1: rank 2 says that the job has 4 ranks, rank 3 says 5"
of_rank=()

# One of a host's ranks does not come: all hosts hear it from the one that does.
of_rank=([3]=false)
for SYMM_INIT_TIMEOUT in 3 12 48; do
    job 2 2 "$bin/symm-perf" all_reduce -b 8 -e 8
    grep -q "rank 2 reports: on host h1: local rank 1 has not joined" err0 err1 && break
done
none_ok "a rank that does not come"
for r in 0 1; do has err$r "rank 2 reports: on host h1: local rank 1 has not joined"; done
has err2 "local rank 1 has not joined"
of_rank=() SYMM_INIT_TIMEOUT=60

# A rank that may open few files: all say which one, and what to raise.
cat >few.sh <<'END'
[ "$RANK" = "$LIMITED" ] && ulimit -n "$1"
shift
exec "$@"
END
export LIMITED=3
for files in 6 7 8 10; do
    job 2 2 bash few.sh $files "$bin/symm-perf" all_reduce -b 8 -e 8 --no-pin
    none_ok "$files open files"
    has err3 "ulimit -n"
    reason=$(sed -n 's/^symm-perf: rank 3: symm_init: //p' err3)
    for r in 0 1 2; do has err$r "${reason:0:300}" && has err$r "rank 3 "; done
done
# With one of these limits rank 0 can listen, and has no descriptor for the other host: which one
# depends on the descriptors that this script has.
export LIMITED=0 SYMM_INIT_TIMEOUT=3
lacked="rank 0 lacked descriptors for connections: raise its limit of open files (ulimit -n)"
for files in 6 7 8 9 10; do
    job 2 2 bash few.sh $files "$bin/symm-perf" all_reduce -b 8 -e 8 --no-pin
    none_ok "$files open files of rank 0"
    has err0 "ulimit -n"
    grep -qF "$lacked" err0 && break
done
has err0 "$lacked"
export SYMM_INIT_TIMEOUT=60

SYMM_BOOTSTRAP_PORT=70000 checks=$((checks + 1))
SYMM_BOOTSTRAP_PORT=70000 SYMM_HOST_ID=a RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
    MASTER_ADDR=x MASTER_PORT=1 "$bin/symm-perf" all_reduce >out 2>err && fail "a port too high"
has err "SYMM_BOOTSTRAP_PORT='70000'"

# ---- A restart -----------------------------------------------------------------------------
# A rank of the last try waits at the port: Slurm's new try has another count, another job another name.
port=$(free_port)
for left in SLURM_RESTART_COUNT=0 TORCHELASTIC_RUN_ID=before; do
    hosts=2 each=1 run=again
    export SYMM_INIT_TIMEOUT=6 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 TORCHELASTIC_RUN_ID=$run
    export SYMM_BOOTSTRAP_PORT=$port SLURM_RESTART_COUNT=1
    of_host=([1]=$left)
    start 1 0 "$bin/symm-perf" all_reduce -b 8 -e 8 -n 2
    survivor=$!
    sleep 0.3
    of_host=() SYMM_INIT_TIMEOUT=100
    job 2 1 "$bin/symm-perf" all_reduce -b 8 -e 8 -n 2
    all_ok "a restart beside a survivor ($left)"
    wait $survivor && fail "a survivor of the last try joined ($left)"
done
# torchrun's agents count the failures of their own host's ranks.
of_host=([0]="TORCHELASTIC_RESTART_COUNT=1" [1]="TORCHELASTIC_RESTART_COUNT=0")
job 2 2 "$bin/symm-perf" all_reduce -b 8 -e 8 -n 2
all_ok "hosts with different counts of restarts"

[ -z "$(ls runtime)$(ls engine)" ] || fail "left behind: $(ls runtime engine)"
echo "$checks checks"
exit $failed
