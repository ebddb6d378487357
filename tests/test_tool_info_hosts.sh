#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# symm-info --hosts over hosts that one machine plays: good hosts by torchrun's variables (a process
# a host and one a rank), Slurm's, mpirun's and symmrun --nnodes; a missing host, a wrong secret,
# another version of the library, a clock that is off, an address that is not reached, a host that
# does not reach rank 0, no secret, no port. Each failing host has a sentence, by the deadline.
# ctest: cost 15

# shellcheck source=tests/hosts_stage.sh
. "${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}/tests/hosts_stage.sh"
info=$bin/symm-info
[ -x "$info" ] || exit 77
export SYMM_HOST_ADDRESS=127.0.0.1
other=ff112233445566778899aabbccddeeff

# start RANK LOCAL HOST COMMAND...: with the settings in of_host[HOST]; output in outRANK, errRANK.
declare -A of_host
start() {
    local rank=$1 local=$2 host=$3
    shift 3
    # shellcheck disable=SC2086
    env SYMM_HOST_ID="h$host" GROUP_RANK="$host" LOCAL_RANK="$local" RANK="$rank" \
        SYMM_JOB_SECRET=$secret env ${of_host[$host]-} timeout 60 "$@" >"out$rank" 2>"err$rank" &
    pids[rank]=$!
}
# look HOSTS EACH: one process a rank, but for the hosts in $left_out; exit statuses in status[].
left_out='' seconds=20
look() {
    local h l
    checks=$((checks + 1))
    rm -f out* err*
    pids=() status=()
    export WORLD_SIZE=$(($1 * $2)) LOCAL_WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1
    export TORCHELASTIC_RUN_ID=run$RANDOM$RANDOM SYMM_BOOTSTRAP_PORT
    SYMM_BOOTSTRAP_PORT=$(free_port)
    began=$SECONDS
    for ((h = 0; h < $1; h++)); do
        [[ " $left_out " == *" $h "* ]] && continue
        for ((l = 0; l < $2; l++)); do
            # shellcheck disable=SC2086
            start $((h * $2 + l)) $l $h "${program:-$info}" --hosts --timeout "$seconds" ${json-}
        done
    done
    for r in "${!pids[@]}"; do
        wait "${pids[r]}"
        status[r]=$?
    done
    [ $((SECONDS - began)) -lt 30 ] || fail "it took $((SECONDS - began)) s"
}
# row FILE RANK: that host's row; after it, its sentence.
row() { grep -A1 -E "^$2 " "$1"; }

# ---- Good hosts ---------------------------------------------------------------------------
look 3 2
[ "${status[*]}" = "0 0 0 0 0 0" ] || { fail "good hosts: ${status[*]}" && cat err*; }
[ "$(grep -cE ' ok$' out0)" = 3 ] || { fail "3 rows" && cat out0; }
has out0 "0.2.0"
row out0 2 | grep -qE '^2 +2 +h1 +127\.0\.0\.1 +[0-9.]+ +[0-9.]+ [um]s +-?[0-9.]+ [um]s ' ||
    { fail "a row" && cat out0; }
[ -z "$(cat out1 out2 out3 out4 out5 err*)" ] || { fail "others print" && cat out? err*; }
json=--json look 12 1
[ "$(printf '%s\n' "${status[@]}" | sort -u)" = 0 ] || { fail "12 hosts: ${status[*]}" && cat err*; }
if command -v jq >/dev/null; then
    jq -e '.format == "symm-info/1" and (.hosts | length == 12 and all(.ok and .ranks == 1
        and .version != "" and .problem == "" and (.clock_offset | fabs) < 0.5
        and .clock_error >= 0 and .clock_error <= .round_trip)) and .hosts[7].name == "h7"' \
        out0 >/dev/null || { fail "JSON" && cat out0; }
fi

# ---- Hosts with a problem ------------------------------------------------------------------
seconds=3 left_out="1 3"
look 4 2
left_out=
[ "${status[*]}" = "1 0 1 0" ] || fail "missing: ${status[*]}" # the lowest of a host speaks
row out0 2 | grep -q "it has not come within" || { fail "host 1 is missing" && cat out0; }
row out0 6 | grep -q "it has not come within" || { fail "host 3 is missing" && cat out0; }
row out0 4 | head -1 | grep -q ' ok$' || { fail "host 2 is good" && cat out0; }
has err4 "2 hosts have a problem, of which rank 0 tells; this one is good"

of_host=([1]="SYMM_JOB_SECRET=$other")
look 3 1
[ "${status[*]}" = "1 1 1" ] || fail "a wrong secret: ${status[*]}"
has out0 "it does not know the job's secret"
has err1 "does not know the job's secret: give all hosts the same SYMM_JOB_SECRET"
row out0 2 | head -1 | grep -q ' ok$' || { fail "host 2 is good" && cat out0; }

of_host=([1]="-u SYMM_JOB_SECRET")
look 2 1
has err1 "needs a secret"
of_host=([1]="SYMM_BOOTSTRAP_ADDR=127.0.0.1 SYMM_BOOTSTRAP_PORT=9")
look 2 1
has err1 "rank 1 cannot reach rank 0 at 127.0.0.1:9"
row out0 1 | grep -q "it has not come within" || { fail "host 1 is elsewhere" && cat out0; }
of_host=([1]="SYMM_HOST_ADDRESS=10.255.255.1")
look 2 1
has err1 "10.255.255.1" # an address that it does not have
of_host=([1]="SYMM_HOST_ADDRESS=127.0.0.1 SYMM_SOCKET_IFNAME=none7")
look 2 1
[ "${status[*]}" = "0 0" ] || fail "SYMM_HOST_ADDRESS overrules: ${status[*]}"
of_host=([1]="-u SYMM_HOST_ADDRESS SYMM_SOCKET_IFNAME=none7")
look 2 1
has err1 "SYMM_SOCKET_IFNAME='none7': no interface that is up fits it"

# Another version: the same files with another number in them.
mkdir -p old/bin old/lib
for file in bin/symm-info lib/libsymm.so.0.2; do
    LC_ALL=C sed 's/0\.2\.0/0.1.9/g' "${BUILD_DIR:-build}/$file" >"old/$file"
    chmod +x "old/$file"
done
cat >either.sh <<END
#!/usr/bin/env bash
[ "\$RANK" = 1 ] && LD_LIBRARY_PATH=$work/old/lib exec $work/old/bin/symm-info "\$@"
exec $info "\$@"
END
chmod +x either.sh
of_host=()
if [ "$(LD_LIBRARY_PATH=$work/old/lib old/bin/symm-info --version)" = "symm-info 0.1.9" ]; then
    program=$work/either.sh
    look 3 1
    row out0 1 | grep -q "it has libsymm 0.1.9, rank 0's host has 0.2.0" ||
        { fail "another version" && cat out0 err1; }
    has err1 "it has libsymm 0.1.9"
    program=
else
    fail "no other version could be made"
fi

# A clock that is 7 s ahead.
if [ -e "$lib/libfake_clock.so" ]; then
    of_host=([2]="LD_PRELOAD=$lib/libfake_clock.so FAKE_CLOCK_AHEAD=7")
    look 3 1
    row out0 2 | grep -qE "its clock is (7|6\.99|7\.00)[0-9]* s ahead of that of rank 0's host" ||
        { fail "a clock" && cat out0; }
    of_host=()
else
    fail "libfake_clock.so is not built"
fi

# ---- Launchers -----------------------------------------------------------------------------
export WORLD_SIZE='' LOCAL_WORLD_SIZE='' MASTER_ADDR='' MASTER_PORT='' TORCHELASTIC_RUN_ID=''
unset WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID SYMM_BOOTSTRAP_PORT
checks=$((checks + 4))
timeout 60 "$info" --hosts >out 2>err || fail "no launcher: $(cat err)"
[ "$(grep -cE ' ok$' out)" = 1 ] || { fail "one host" && cat out; }
for each in 1 2; do # by symmrun's store, without a port
    port=$(free_port)
    for node in 0 1; do
        SYMM_HOST_ID=node$node SYMM_SECRET=$secret timeout 60 "$bin/symmrun" -n $each --nnodes 2 \
            --node-rank $node --rendezvous "127.0.0.1:$port" --no-prefix "$info" --hosts \
            >out$node 2>err$node &
        pids[node]=$!
    done
    for node in 0 1; do
        wait "${pids[node]}" || { fail "symmrun, $each a host" && cat err$node; }
    done
    [ "$(grep -cE ' ok$' out0)" = 2 ] || { fail "symmrun, $each a host" && cat out0; }
done
port=$(free_port)
for node in 0 1; do
    SYMM_HOST_ID=n$node SLURM_PROCID=$node SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID=$node \
        SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE='1(x2)' \
        SLURM_JOB_NODELIST=localhost,other SLURM_STEP_NODELIST=localhost,other \
        SYMM_JOB_SECRET=$secret SYMM_BOOTSTRAP_PORT=$port timeout 60 "$info" --hosts \
        >out$node 2>err$node &
    pids[node]=$!
done
for node in 0 1; do wait "${pids[node]}" || { fail "Slurm" && cat err$node; }; done
[ "$(grep -cE ' ok$' out0)" = 2 ] || { fail "Slurm" && cat out0; }
if command -v mpirun.openmpi >/dev/null; then # all on one host, as mpirun says
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun.openmpi \
        --oversubscribe -n 3 "$info" --hosts >out 2>err || fail "mpirun: $(cat err)"
    [ "$(grep -cE ' ok$' out)" = 1 ] || { fail "mpirun" && cat out; }
fi
# A network of its own, in which rank 0's host does not reach where the other's relay would listen.
two_networks >namespaces.sh
cat >>namespaces.sh <<'END'
one() {
    GROUP_RANK=$1 LOCAL_RANK=0 RANK=$1 SYMM_HOST_ID=h$1 SYMM_HOST_ADDRESS=$2 \
        timeout 60 "$info" --hosts --timeout 20 >out$1 2>err$1
}
export -f one
one 0 10.77.0.1 &
nsenter -t $other -n bash -c "one 1 $1" || :
wait $! || :
END
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=1 TORCHELASTIC_RUN_ID=ns
export SYMM_BOOTSTRAP_PORT=29401 SYMM_JOB_SECRET=$secret info
rm -f allowed
if unshare -Urn bash namespaces.sh 10.77.0.2 >log 2>&1; then
    checks=$((checks + 2))
    row out0 1 | grep -qE '10\.77\.0\.2 .* ok$' || { fail "namespaces" && cat out0 err?; }
    unshare -Urn bash namespaces.sh 127.0.0.1 >log 2>&1
    row out0 1 | grep -q "rank 0's host cannot connect to 127.0.0.1:.*(Connection refused)" ||
        { fail "an address that is not reached" && cat out0 err?; }
    has err1 "rank 0 says of this host: rank 0's host cannot connect to 127.0.0.1"
elif [ -e allowed ]; then
    fail "two network namespaces: $(cat log)"
else
    echo "network namespaces: skipped, not allowed here: $(tail -n 1 log)"
fi

"$info" --hosts --job >out 2>err && fail "--hosts with a section"
"$info" --timeout 3 >out 2>err && fail "--timeout without --hosts"

[ "$failed" = 0 ] && echo "$checks checks"
exit "$failed"
