#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# symmrun over several nodes on one machine: the ranks' variables, a job with every collective
# checked, a node that fails, a wrong secret, contradictory command lines, strangers at the
# rendezvous; and two nodes in their own network namespaces, if those are allowed.
# ctest: cost 20

# shellcheck source=tests/hosts_stage.sh
. "${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}/tests/hosts_stage.sh"
symmrun=$bin/symmrun
export SYMM_TEAM_BYTES=64M SYMM_INIT_TIMEOUT=100

# job NODES RANKS COMMAND...: all nodes; statuses in status[], output in out0, err0, ...
job() {
    local nodes=$1 ranks=$2 node port pids=()
    shift 2
    checks=$((checks + 1))
    port=$(free_port)
    for ((node = 0; node < nodes; node++)); do
        SYMM_HOST_ID=node$node SYMM_SECRET=${secrets[node]-$secret} timeout 300 "$symmrun" \
            -n "$ranks" --nnodes "$nodes" --node-rank "$node" --grace 100 \
            --rendezvous "127.0.0.1:$port" --no-prefix "$@" \
            >"out$node" 2>"err$node" &
        pids[node]=$!
    done
    status=()
    for ((node = 0; node < nodes; node++)); do
        wait "${pids[node]}"
        status[node]=$?
    done
}
secrets=()

# ---- Variables -------------------------------------------------------------------------
cat >show.sh <<'END'
echo "$RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_WORLD_SIZE"
echo "$MASTER_ADDR $MASTER_PORT $SYMM_JOB_ID $TORCHELASTIC_RUN_ID" >job.$RANK
END
job 3 2 sh show.sh
[ "${status[*]}" = "0 0 0" ] || fail "variables: ${status[*]}"
[ "$(cat out0 out1 out2 | sort)" = "0 0 0 6 2 3
1 1 0 6 2 3
2 0 1 6 2 3
3 1 1 6 2 3
4 0 2 6 2 3
5 1 2 6 2 3" ] || { fail "variables" && cat out0 out1 out2; }
[ "$(sort -u job.? | wc -l)" = 1 ] || fail "the nodes differ on the job: $(cat job.?)"

# ---- The library -----------------------------------------------------------------------
for op in all_reduce all_gather reduce_scatter broadcast all_to_all; do
    job 2 2 "$bin/symm-perf" "$op" -b 8 -e 64K -f 8 -n 3
    [ "${status[*]}" = "0 0" ] || { fail "$op: ${status[*]}" && cat err0 err1; }
    has out0 "4 ranks"
    has out0 "Out of bounds values : 0 OK"
done
[ -z "$(ls runtime)$(ls engine)" ] || fail "left behind: $(ls runtime engine)"

# ---- Failures --------------------------------------------------------------------------
began=$SECONDS
# The others' ranks do nothing wrong, and are ended by what node 1 tells.
port=$(free_port)
for node in 0 1 2; do
    SYMM_SECRET=$secret timeout 300 "$symmrun" -n 1 --nnodes 3 --node-rank $node --grace 0 \
        --rendezvous "127.0.0.1:$port" sh -c '[ "$RANK" = 1 ] && exit 7; exec sleep 250' \
        >out$node 2>err$node &
    pids[node]=$!
done
for node in 0 1 2; do
    wait "${pids[node]}"
    status[node]=$?
done
[ "${status[*]}" = "7 7 7" ] || fail "all nodes end as the first that failed: ${status[*]}"
has err0 "node 1 has failed"
has err2 "node 1 has failed"
[ $((SECONDS - began)) -lt 200 ] || fail "a failure was waited out"
checks=$((checks + 1))

# Node 1 does not know the secret; node 0 goes on waiting, until it is told to end.
port=$(free_port)
SYMM_SECRET=$secret "$symmrun" -n 1 --nnodes 2 --node-rank 0 --rendezvous "127.0.0.1:$port" \
    true >out0 2>err0 &
first=$!
for _ in $(seq 2000); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break || sleep 0.05; done
SYMM_SECRET=ff112233445566778899aabbccddeeff "$symmrun" -n 1 --nnodes 2 --node-rank 1 \
    --rdzv-endpoint "127.0.0.1:$port" true >out1 2>err1 && fail "a wrong secret passes"
has err1 "does not know the secret (SYMM_SECRET)"
SYMM_SECRET=$secret "$symmrun" -n 2 --nnodes 2 --node-rank 1 \
    --rendezvous "127.0.0.1:$port" true >out1 2>err1 && fail "another -n passes"
has err1 "do not fit its own"
printf 'GET / HTTP/1.0\r\n\r\n' >"/dev/tcp/127.0.0.1/$port"
SYMM_SECRET=$secret "$symmrun" -n 1 --nnodes 2 --node-rank 1 \
    --rendezvous "127.0.0.1:$port" true >out1 2>err1 || fail "the right one: $(cat err1)"
wait $first || fail "node 0 after strangers: $(cat err0)"
has err0 "refused a connection"
checks=$((checks + 4))

# ---- Command line ----------------------------------------------------------------------
# refused TEXT ARGUMENT...
refused() {
    local text=$1
    shift
    checks=$((checks + 1))
    SYMM_SECRET=${one_secret-$secret} "$symmrun" "$@" true >out 2>err
    [ $? -eq 2 ] || fail "symmrun $*: not refused"
    has err "$text"
}
refused "--node-rank is missing" -n 2 --nnodes 2
refused "--rendezvous is missing" -n 2 --nnodes 2 --node-rank 0
refused "--node-rank must be below" -n 2 --nnodes 2 --node-rank 2 --rendezvous a:1
refused "an integer from 1 to 1024" -n 2 --nnodes 0
refused "HOST:PORT" -n 2 --nnodes 2 --node-rank 0 --rendezvous nowhere
refused "more than 4096 ranks" -n 4096 --nnodes 2 --node-rank 0 --rendezvous a:1
one_secret=12 refused "32 hex digits" -n 1 --nnodes 2 --node-rank 1 --rendezvous a:1
one_secret='' refused "SYMM_SECRET is missing" -n 1 --nnodes 2 --node-rank 1 --rendezvous a:1
# Node 0 makes a secret only for a terminal: a log file would keep it.
one_secret='' refused "stderr is none" -n 1 --nnodes 2 --node-rank 0 --rendezvous a:1
! grep -qE '[0-9a-f]{32}' out err || fail "a secret in a log"

# ---- Network namespaces ----------------------------------------------------------------
two_networks >namespaces.sh
cat >>namespaces.sh <<'END'
run() {
    SYMM_HOST_ID=$1 timeout 300 "$symmrun" -n 2 --nnodes 2 --node-rank "$2" \
        --rendezvous 10.77.0.1:29400 --no-prefix "$bin/symm-perf" all_reduce -e 64K -n 3
}
run a 0 >out0 2>err0 &
first=$!
export -f run
nsenter -t $other -n bash -c 'run b 1' >out1 2>err1
wait $first
END
export symmrun bin SYMM_SECRET=$secret
rm -f allowed
if unshare -Urn bash namespaces.sh >log 2>&1; then
    has out0 "Out of bounds values : 0 OK"
    checks=$((checks + 1))
elif [ -e allowed ]; then
    fail "two network namespaces: $(cat log err0 err1)"
else
    echo "network namespaces: skipped, not allowed here: $(tail -n 1 log)"
fi

echo "$checks checks"
exit $failed
