#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# symm-info dump over jobs of four: as JSON of running ranks, one of which is stopped; what SYMM_DUMP
# leaves when ranks fail, compared; PyTorch's format; files that are none.

needs=(symm-info)
# shellcheck source=tests/sight_stage.sh
. "${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}/tests/sight_stage.sh"
command -v jq >/dev/null || {
    echo "needs jq"
    exit 77
}

fail() {
    echo "FAIL: $*"
    cut -c 1-400 "$folder/out" "$folder/err" | sed 's/^/    /' | head -n 60
    failed=1
}

# dump STATUS ARGUMENT...: output in out, messages in err.
dump() {
    local wanted=$1 status
    shift
    "$bin/symm-info" dump "$@" >"$folder/out" 2>"$folder/err"
    status=$?
    [ "$status" = "$wanted" ] || fail "dump $*: exit status $status, not $wanted"
}

has() { grep -qF -- "$1" "$folder/out" || fail "'$1' is not in the output"; }
holds() { jq -e "$1" "$folder/out" >/dev/null || fail "not true: $1"; }

# until_holds FILTER: dumps the job until the filter is true, ten seconds at least.
until_holds() {
    for _ in $(seq 200); do
        dump 0 "${pids[@]}"
        jq -e "$1" "$folder/out" >/dev/null && return
        sleep 0.05
    done
    fail "not true: $1"
}

# ---- Running ranks -----------------------------------------------------------------------

start loop
until_holds '.ranks | map(.calls > 20) | all'
kill -STOP "${pids[2]}"
until_holds '[.ranks[] | select(.rank == 3).waits[] | .waited_ns > 1100000000] | any'
holds '.format == "symm-dump/1" and .unread.bad == 0 and (.ranks | map(.rank)) == [0, 1, 2, 3]'
holds ".ranks | map(.pid) == [${pids[0]}, ${pids[1]}, ${pids[2]}, ${pids[3]}]"
holds '.ranks[2].process == "stopped"'
holds '.ranks[3].waits[0] | .op == "all_reduce" and .name == "layer 1" and .bytes == 32 and
    (.awaited | index(2)) != null and .missing == (.awaited | length)'
holds '.ranks[3] | .last_calls[-1] as $last | (.sites[] | select(.id == $last.site)) |
    .name == "layer 1" and .dtype == "float32" and .count == 8 and .calls == $last.step and
    (.reason | length > 3) and $last.state == "running"'
holds '.ranks[0].teams | map(.size) == [4, 2] and .[1].members == [0, 2]'
holds '.ranks | map(.failures == [] and (.last_calls | length > 10 and length <= 1024)) | all'
dump 1 --compare "${pids[@]}"
has 'first difference: rank 2 in world at step '
grep -qE 'no call, where rank|not arrived in all_reduce' "$folder/out" || fail 'not said what differs'
dump 0 -o "$folder/live.json" "${pids[@]}"
[ ! -s "$folder/out" ] || fail '-o: something on the standard output'
jq -e '.ranks | length == 4' "$folder/live.json" >/dev/null || fail '-o: not all ranks'
dump 1 "$folder/live.json"
has 'first difference: rank 2 in world at step '
# Read and written again it is the same, but for times.
dump 0 --format json "$folder/live.json"
strip='del(.ranks[].clock, .ranks[].waits[].waited_ns, .unread)'
[ "$(jq -S "$strip" "$folder/out")" = "$(jq -S "$strip" "$folder/live.json")" ] ||
    fail 'a dump that was read and written again differs'
# Rank 2 alone is the cause: what waits elsewhere is not named; in its call it is not arrived.
jq '(.ranks[2].last_calls) = [.ranks[2].last_calls[] | select(.number < 40)] |
    .ranks[2].calls = 39' "$folder/live.json" >"$folder/cause.json"
dump 1 "$folder/cause.json"
has 'first difference: rank 2 in '
! grep -E '^first difference: .*rank [013][ ,].* in world' "$folder/out" || fail 'another cause'
jq '[.ranks[] | select(.rank != 2)][1] as $other | .ranks[2].last_calls = $other.last_calls |
    .ranks[2].sites = $other.sites | .ranks[2].calls = $other.calls' "$folder/live.json" \
    >"$folder/late.json"
dump 1 "$folder/late.json"
has "not arrived in all_reduce 'layer 1' 8 float32 sum, where others wait"
# A call that a rank alone left out, among others.
jq '.ranks[1].last_calls |= del(.[-5])' "$folder/live.json" >"$folder/gap.json"
dump 1 "$folder/gap.json"
has 'first difference: rank 1 in world at step '
kill -CONT "${pids[2]}"
for _ in $(seq 200); do # until no rank has waited for long
    "$bin/symm-info" dump --compare "${pids[@]}" >"$folder/out" 2>&1 && break
    sleep 0.05
done
dump 0 --compare "${pids[@]}"
has 'no difference'
stop
for _ in $(seq 200); do # until they are gone
    "$bin/symm-info" dump "${pids[@]}" >/dev/null 2>&1 || break
    sleep 0.05
done
dump 1 "${pids[@]}"
holds '.ranks == []'

# Calls between two ranks: they have steps, meet those of the other rank, and are no difference.
start receive
until_holds '[.ranks[0].waits[] | .op == "recv" and .name == "message" and .step == 2 and
    .awaited == [2] and .waited_ns > 1100000000] | any'
holds '.ranks[0] | .last_calls[-1] as $last | (.sites[] | select(.id == $last.site)) |
    .op == "recv" and .root == 2 and .channel == 4294967294 and $last.step == 2 and
    $last.state == "running"'
dump 0 --compare "${pids[@]}"
has 'no difference'
has "rank 0 in world: running recv 'message' 8 float32, with rank 2, number 2; there the last is number 1: done send 'message'"
stop
start signal
until_holds '[.ranks[1].waits[] | .op == "signal_wait" and .step == 2 and .awaited == [3] and
    .waited_ns > 1100000000] | any'
dump 0 --compare "${pids[@]}"
has 'no difference'
has "rank 1 in world: running signal_wait 'flag', signal 7, with rank 3, number 2; there the last is number 1: done signal 'flag'"
has "rank 0 in world: done signal 'flag', signal 2, with rank 2, number 1"
stop

# ---- What failed ranks leave ------------------------------------------------------------------

mkdir "$folder/none"
export SYMM_DUMP=$folder/none
start end
wait "$run" || fail "a job that does not fail: $(cat "$folder/said")"
run=
[ -z "$(ls "$folder/none")" ] || fail 'a job that did not fail left files'

# failing MODE TIMEOUT: its files are in $folder/MODE.
failing() {
    mkdir "$folder/$1"
    SYMM_DUMP=$folder/$1 SYMM_TIMEOUT=$2 start "$1"
    for _ in $(seq 400); do
        [ "$(ls "$folder/$1" | grep -c 'json$')" -ge "$3" ] && break
        sleep 0.05
    done
    sleep 0.2
    stop
    cp "$folder/said" "$folder/out"
}

failing differ 20 4
[ "$(ls "$folder/differ" | grep -cE '^[A-Za-z0-9_.-]+\.rank[0-3]\.json$')" = 4 ] ||
    fail "not four files: $(ls "$folder/differ")"
[ "$(ls "$folder/differ" | wc -l)" = 4 ] || fail "more than four files"
dump 1 "$folder/differ"
has "first difference: rank 1 in world at step 6: all_reduce 'layer 3' 16 float32 sum, where rank 0"
has "all_reduce 'layer 2' 8 float32 sum"
grep -qE '^\* +6 ' "$folder/out" || fail 'the difference is not marked'

# symmrun shows them at the end of a job that has failed, of this job alone.
SYMM_DUMP=$folder/differ SYMM_TIMEOUT=20 "$bin/symmrun" -n 4 --timeout 2 --grace 1 -- \
    "$bin/sight_program" differ >"$folder/out" 2>&1
grep -q 'symmrun: the last calls of the ranks' "$folder/out" || fail 'symmrun shows no calls'
has "first difference: rank 1 in world at step 6: all_reduce 'layer 3' 16 float32 sum, where rank 0"
newest=$(ls -t "$folder/differ" | head -n 1)
rm "$folder/differ/${newest%.rank*}".rank?.json
[ "$(ls "$folder/differ" | wc -l)" = 4 ] || fail 'not the first job alone is left'
SYMM_DUMP=$folder/differ "$bin/symmrun" -n 1 -- false >"$folder/out" 2>&1
grep -q 'the last calls' "$folder/out" && fail 'symmrun shows calls of another job'

failing behind 1 3
grep -qE 'did not arrive at .*layer 2.*; see .*/behind/.*\.rank[023]\.json' "$folder/out" ||
    fail 'the error does not end with the file'
jq -e '.ranks[0].failures[0].status_name == "SYMM_ERR_TIMEOUT"' \
    "$folder"/behind/*.rank0.json >/dev/null || fail 'the failure is not in the file'
rm -f "$folder"/behind/*.rank1.json
dump 1 "$folder/behind"
has 'rank 1 left no file'

SYMM_DUMP=$folder/absent "$bin/sight_program" >"$folder/out" 2>&1
grep -q 'SYMM_DUMP' "$folder/out" || fail 'a folder that is absent'
unset SYMM_DUMP

# ---- For PyTorch ----------------------------------------------------------------------------------

dump 0 --format torch -o "$folder/torch" "$folder/differ"
[ "$(ls "$folder/torch" | tr '\n' ' ')" = 'rank0 rank1 rank2 rank3 ' ] || fail 'not four pickles'
if command -v python3 >/dev/null; then
    python3 - "$folder/torch/rank1" >"$folder/out" 2>&1 <<'END' || fail 'the pickle of rank 1'
import pickle, sys
dump = pickle.load(open(sys.argv[1], "rb"))
group, = dump["pg_config"].values()
assert group["ranks"] == "[0, 1, 2, 3]" and group["desc"] == "world", group
entries = dump["entries"]
assert [e["collective_seq_id"] for e in entries] == [1, 2, 3, 4, 5, 6], entries
assert all(e["profiling_name"] == "nccl:all_reduce" for e in entries)
assert [e["input_sizes"] for e in entries] == [[[8]]] * 5 + [[[16]]], entries
assert entries[0]["state"] == "completed" and entries[5]["state"] == "started"
assert entries[5]["frames"][0]["name"] == "layer 3"
END
fi
dump 2 --format torch "$folder/differ"

# ---- An output that is no regular file ------------------------------------------------------------------
# As /dev/null or /dev/stdout: it is written to, and stays.

ln -s target "$folder/link"
dump 0 --format json -o "$folder/link" "$folder/live.json"
[ -L "$folder/link" ] && jq -e .ranks "$folder/target" >"$folder/out" || fail 'a link is replaced'
mkdir "$folder/traces" && ln -s "$folder/none/x" "$folder/traces/out"
"$bin/symm-info" trace -o "$folder/traces/out" "$folder/traces" 2>"$folder/err" &&
    fail 'no trace is merged'
[ -L "$folder/traces/out" ] || fail 'a link is removed'

# ---- Files that are none ------------------------------------------------------------------------------

mkdir "$folder/bad"
dump 1 "$folder/bad"
for text in '' '{' '[]' '{"format": "symm-dump/2", "ranks": []}' '{"format": "symm-dump/1"' \
    '{"format": "symm-dump/1", "ranks": [{"rank": 5, "size": 2}]}' '"\ud800"' \
    "$(printf '[%.0s' $(seq 1000000))" '{"format": "symm-dump/1", "ranks": [{}]}'; do
    printf '%s' "$text" >"$folder/bad/x.json"
    dump 1 "$folder/bad"
    [ -s "$folder/err" ] || fail "nothing is said of ${text:0:40}"
done
# Values of anything: no crash, and JSON again.
jq '.ranks[].last_calls[].site = 4294967295 | .ranks[].waits = [range(100) |
    {missing: 2147483647, awaited: [-1, 99999999999], since_ns: 1}] |
    .ranks[].teams[].slot = 300 | .ranks[].sites[].count = 18446744073709551615' \
    "$folder/live.json" >"$folder/bad/x.json"
"$bin/symm-info" dump "$folder/bad" >"$folder/out" 2>"$folder/err"
[ $? -le 1 ] || fail 'odd values'
"$bin/symm-info" dump --format json "$folder/bad" >"$folder/out" 2>"$folder/err"
holds '.ranks | length == 4'
dump 2 --nonsense
dump 2 12 x
dump 2 --compare --format json
exit "$failed"
