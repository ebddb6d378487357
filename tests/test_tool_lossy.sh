#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A job over two hosts whose network takes 50 ms each way and loses 1 % of its packets (by seed): two
# network namespaces, joined by bin/lossy_program. It starts by rank 0's port and by symmrun,
# splits teams, runs collectives, and ends; symm-info --hosts measures the round trip; the death of
# a rank is told. What the ranks send by the engine does not go over that network: the library's
# own messages do. Skipped where namespaces or TUN devices are not allowed.
# ctest: cost 23

seed=${SYMM_TEST_SEED:-7} # the stage unsets it
# shellcheck source=tests/hosts_stage.sh
. "${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}/tests/hosts_stage.sh"
[ -x "$bin/lossy_program" ] || exit 77
export bin secret seed programs=${SOURCE_DIR:-$OLDPWD}/bench/programs SYMM_TEAM_BYTES=8M
cat >stage.sh <<'END'
set -u
ip link set lo up
unshare -n sleep 300 &
other=$!
trap 'kill $other $wire 2>/dev/null' EXIT
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do
    sleep 0.05
done
there="nsenter -t $other -n"
"$bin/lossy_program" $other 50 10 $seed >wire &
wire=$!
until grep -q ready wire; do
    sleep 0.05
    kill -0 $wire 2>/dev/null || exit 77
done
ip addr add 10.78.0.1 peer 10.78.0.2 dev t0 && ip link set t0 up || exit 77
$there ip addr add 10.78.0.2 peer 10.78.0.1 dev t0 && $there ip link set t0 up || exit 77
$there ip link set lo up
touch allowed

export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.78.0.1 MASTER_PORT=1
export SYMM_BOOTSTRAP_PORT=29402 SYMM_JOB_SECRET=$secret SYMM_INIT_TIMEOUT=100
# job NAME COMMAND...: four ranks on the two hosts; output in NAME.RANK, exit statuses in NAME.
job() {
    local name=$1 rank
    shift
    export TORCHELASTIC_RUN_ID=$name
    for rank in 0 1 2 3; do
        SYMM_HOST_ID=h$((rank / 2)) GROUP_RANK=$((rank / 2)) LOCAL_RANK=$((rank % 2)) RANK=$rank \
            SYMM_HOST_ADDRESS=10.78.0.$((rank / 2 + 1)) \
            $([ $rank -lt 2 ] || echo $there) timeout 200 "$@" >$name.$rank 2>&1 &
        pids[rank]=$!
    done
    for rank in 0 1 2 3; do
        wait ${pids[rank]}
        echo $? >>$name
    done
}
job info "$bin/symm-info" --hosts --timeout 100
job reduce "$bin/symm-perf" all_reduce --no-pin -b 8 -e 64K -f 90 -n 2 -w 0
job split "$bin/symm-perf" replay "$programs/tp2-dp2-two-streams.json" --no-pin --iterations 2
job death bash dies.sh
for node in 0 1; do
    SYMM_HOST_ID=h$node SYMM_SECRET=$secret $([ $node = 0 ] || echo $there) timeout 200 \
        "$bin/symmrun" -n 2 --nnodes 2 --node-rank $node --rendezvous 10.78.0.1:29403 --no-prefix \
        "$bin/symm-perf" barrier --no-pin -n 2 -w 0 >symmrun.$node 2>&1 &
    pids[node]=$!
done
for node in 0 1; do
    wait ${pids[node]}
    echo $? >>symmrun
done
kill $wire
wait $wire
END
# Rank 3 is killed after the start, among barriers that do not end.
cat >dies.sh <<'END'
[ "$RANK" != 3 ] && exec "$bin/symm-perf" barrier --no-pin -n 100000000 -T 100
"$bin/symm-perf" barrier --no-pin -n 100000000 -T 100 &
pid=$!
until grep -q 'backend host' death.0; do # rank 0's first line, after the start
    sleep 0.1
    kill -0 $pid || exit 1
done
sleep 0.5
kill -KILL $pid
END
rm -f allowed
unshare -Urn bash stage.sh >log 2>&1
if [ ! -e allowed ]; then
    echo "skipped, namespaces or TUN devices are not allowed here: $(tail -n 1 log)"
    exit 77
fi
statuses() { tr '\n' ' ' <"$1"; }
for job in info reduce split; do
    checks=$((checks + 1))
    [ "$(statuses $job)" = "0 0 0 0 " ] || { fail "$job: $(statuses $job)" && head -5 $job.?; }
done
checks=$((checks + 3))
[ "$(statuses symmrun)" = "0 0 " ] || { fail "symmrun: $(statuses symmrun)" && head -5 symmrun.?; }
has reduce.0 "Out of bounds values : 0 OK"
grep -qE '^2 +2 +h1 +10\.78\.0\.2 .* 1[0-9][0-9] ms .* ok$' info.0 ||
    { fail "the round trip" && cat info.0; }
for rank in 0 1 2; do
    grep -qE 'rank 3 .*(died|hung up)' death.$rank || { fail "a death" && cat death.$rank; }
done
read -r _ carried _ lost < <(tail -n 1 wire | tr -d ,)
{ [ "${carried:-0}" -gt 300 ] && [ "${lost:-0}" -ge 3 ]; } || { fail "the network: $(cat wire)"; }
[ -z "$(ls runtime)" ] || fail "left behind: $(ls runtime)"
[ "$failed" = 0 ] && echo "$checks checks; packets: carried $carried, lost $lost"
exit "$failed"
