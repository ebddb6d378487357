#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# SYMM_TRACE and symm-info trace: each rank's file is right by the format's rules and has as many
# slices as calls were made; samples, limits and folders; the merged file's clocks agree by
# barriers' entries and exits; over hosts it states their error; a killed rank's file is mended.
# ctest: cost 9
# ctest: load 2

set -u
bin=${BUILD_DIR:?}/bin
check=${SOURCE_DIR:?}/tests/trace_check.py
for need in symmrun symm-info trace_program; do
    [ -x "$bin/$need" ] || {
        echo "$bin/$need is not built"
        exit 77
    }
done
command -v python3 >/dev/null || {
    echo "needs python3"
    exit 77
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

fail() {
    echo "FAIL: $*"
    failed=1
}

program=trace_program
# job RANKS ENV... -- ARGUMENTS: runs $program; what has to be in the traces goes to wanted.
job() {
    local ranks=$1 variables=()
    shift
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift
    rm -rf "$folder/trace"
    env SYMM_RUNTIME_DIR="$folder" SYMM_BACKEND=host SYMM_TRACE="$folder/trace/" \
        "${variables[@]}" "$bin/symmrun" -n "$ranks" --no-prefix "$bin/$program" "$@" \
        >"$folder/out" 2>"$folder/err"
    status=$?
    sort "$folder/out" >"$folder/wanted"
}

# slices FILTER: what the traces of all ranks have, less what FILTER names.
slices() {
    local file
    for file in "$folder"/trace/*.json; do
        python3 "$check" "$file" || echo "not right: $file"
    done | grep -Ev "$1" | sort >"$folder/found"
}

same() {
    diff "$folder/wanted" "$folder/found" || fail "$1: other slices than calls"
}

merge() {
    "$bin/symm-info" trace "$folder/trace" -o "$folder/merged.json" 2>"$folder/err"
}

merged() {
    python3 "$check" "$folder/merged.json" --merged >"$folder/all" || fail "$1: merged"
}

# number KEY: of the merged file's metadata.
number() {
    python3 -c "import json, sys
print(json.dumps(json.load(open(sys.argv[1]))['otherData'][sys.argv[2]]))" \
        "$folder/merged.json" "$1"
}

# All kinds of calls, one that fails, waits.
job 3 -- calls=50 streams=2000 puts=5 barriers=3 late=100 fail
[ "$status" = 0 ] || fail "the program: $(cat "$folder/err")"
slices ' (wait|failure) '
same "calls"
slices ' (put|barrier|all_reduce|signal_wait) '
[ "$(grep -c 'failure 1$' "$folder/found")" = 3 ] || fail "a failure is not shown on each rank"
grep -Eq 'rank 0 wait ([2-9]|[1-9][0-9]+)$' "$folder/found" ||
    fail "rank 0 has not waited twice: $(grep 'rank 0 wait' "$folder/found")"
grep -h '"late"' "$folder"/trace/*rank0.json | grep '"wait"' |
    grep -q '"awaited": \[1\]' || fail "who was late is not shown"
grep -q '"failure".*"SYMM_ERR_TIMEOUT".*rank 1 did not arrive' "$folder"/trace/*rank0.json ||
    fail "why it failed is not shown"
merge || fail "merge"
merged "calls"
[ "$(number missing) $(number cut) $(number dropped) $(number clock_error_us)" = \
    "[] [] 0 0" ] || fail "metadata of one host"
"$bin/symm-info" trace "$folder/trace" | cmp -s - "$folder/merged.json" || fail "to stdout"

# Hosts: rank 2's clock is 7 s beside, which its own host's CLOCK_REALTIME makes good.
file=$(echo "$folder"/trace/*rank2.json)
python3 - "$file" <<'END'
import re, sys
text = open(sys.argv[1]).read()
text = re.sub(r'"boot": "[^"]*"', '"boot": "another"', text)
text = re.sub(r'"realtime_offset_us": (\d+)',
              lambda m: f'"realtime_offset_us": {int(m[1]) - 7000000}', text)
text = re.sub(r'"ts": (\d+)', lambda m: f'"ts": {int(m[1]) + 7000000}', text)
open(sys.argv[1], "w").write(text)
END
sed -i 's/"realtime_error_us": [^}]*/"realtime_error_us": 40/' "$folder"/trace/*rank[01].json
sed -i 's/"realtime_error_us": [^}]*/"realtime_error_us": 25/' "$file"
merge || fail "merge of hosts"
merged "hosts"
awk '/^offset/ {found = $2 > -1000} END {exit !found}' "$folder/all" ||
    fail "hosts: clocks: $(grep offset "$folder/all") us"
[ "$(number clock_error_us)" = 65 ] || fail "hosts: the error of clocks is not stated"
sed -i 's/"realtime_error_us": 25/"realtime_error_us": null/' "$file"
merge || fail "merge of hosts"
[ "$(number clock_error_us)" = null ] || fail "hosts: an unknown error is stated"
mv "$file" "$folder/kept"
merge || fail "merge without rank 2"
[ "$(number missing)" = "[2]" ] || fail "a missing rank is not stated"
sed 's/"job": "/"job": "x/' "$folder/kept" >"$file"
! merge || fail "files of two jobs are merged"
grep -q "another job" "$folder/err" || fail "two jobs are not told"
sed '5s/}//' "$folder/kept" >"$file"
cp "$folder/merged.json" "$folder/earlier"
! merge || fail "a bad line is merged"
cmp "$folder/merged.json" "$folder/earlier" || fail "a merge that fails changes the earlier file"
[ "$(ls "$folder"/merged.json*)" = "$folder/merged.json" ] || fail "a failed merge leaves a file"

# Clocks: some barrier's exit comes at most 10 us after its entry on the other rank, and never
# before it. A rank's moments are in the order of the machine, however busy it is; that one of 2,000
# barriers is quick is asked of builds without sanitizers.
job 2 -- barriers=2000
merge && merged "barriers"
most=10
! nm "$bin/trace_program" | grep -q '__[at]san_' || most=100000
awk -v most="$most" '/^offset/ {found = $2 >= 0 && $3 <= most} END {exit !found}' "$folder/all" ||
    fail "clocks: $(grep offset "$folder/all") us"

# One call in ten; a limit.
job 1 SYMM_TRACE_SAMPLE=10 -- calls=2000
slices none
awk '/all_reduce/ {found = $4 >= 195 && $4 <= 205} END {exit !found}' "$folder/found" ||
    fail "sample: $(cat "$folder/found")"
job 1 SYMM_TRACE_LIMIT=30 -- calls=100
slices none
printf 'rank 0 all_reduce 30\nrank 0 dropped 71\n' | diff - "$folder/found" || fail "limit"
grep -q "71 events less" "$folder/err" || fail "the limit is not told"

# Names: a file for each rank; one file for two ranks, a folder that cannot be made.
job 2 SYMM_TRACE="$folder/t%r.json" -- calls=1
[ -s "$folder/t0.json" ] && [ -s "$folder/t1.json" ] || fail "names with %r"
job 2 SYMM_TRACE="$folder/t.json" -- calls=1
[ "$status" != 0 ] && grep -q '%r' "$folder/err" || fail "one file for two ranks"
job 1 SYMM_TRACE="$folder/no/no" -- calls=1
[ "$status" != 0 ] && grep -q 'cannot be made' "$folder/err" || fail "a folder that cannot be made"

# A rank that is killed; a file that is cut within a line.
job 2 -- calls=100 die
merge || fail "merge after a death"
[ "$(number cut)" = "[1]" ] || fail "death: the cut file is not named"
merged "death"
grep -Ev '^offset| wait ' "$folder/all" >"$folder/found"
same "death"
whole=$(grep -c '"pid": 1' "$folder/merged.json")
truncate -s -20 "$folder"/trace/*rank1.json
merge || fail "merge of a cut line"
merged "cut"
[ "$(grep -c '"pid": 1' "$folder/merged.json")" = $((whole - 1)) ] || fail "cut: not one line has gone"

# Beyond RLIMIT_FSIZE the earlier file stays; a link is followed.
cp "$folder/merged.json" "$folder/earlier"
! (ulimit -f 1 && merge) || fail "a merged file beyond the limit"
cmp "$folder/merged.json" "$folder/earlier" || fail "the earlier file is lost"
[ "$(ls "$folder"/merged.json*)" = "$folder/merged.json" ] || fail "beyond the limit: a file is left"
ln -s merged.json "$folder/link.json"
"$bin/symm-info" trace "$folder/trace" -o "$folder/link.json" 2>"$folder/err"
[ -L "$folder/link.json" ] || fail "merge: a link is replaced"

# CUDA: launches are slices.
if [ -e "$BUILD_DIR/lib/libfake_cuda.so" ]; then
    mkdir "$folder/kernels"
    for file in "$SOURCE_DIR"/kernels/cuda/*.cu; do # the fake driver wants modules by their looks
        printf '\x50\xed\x55\xba\1\0\0\0\0\0\0\0\0\0\0\0' \
            >"$folder/kernels/$(basename "$file" .cu).fatbin"
    done
    for late in 400 1600 6400; do # the watchdog looks at the device every 100 ms
        job 2 SYMM_BACKEND=cuda SYMM_CUDA_LIBRARY="$BUILD_DIR/lib/libfake_cuda.so" \
            FAKE_CUDA_DEVICES=2 SYMM_KERNELS="$folder/kernels" -- \
            calls=20 streams=20 puts=5 barriers=3 late=$late linger
        [ "$status" = 0 ] || fail "CUDA: the program: $(cat "$folder/err")"
        ! grep -qh '"wait".*"late"' "$folder"/trace/*rank0.json || break
    done
    slices ' (wait|failure) '
    same "CUDA"
    [ "$(grep -h '"all_reduce"' "$folder"/trace/*.json | grep -c '"state": "launched"')" = 82 ] ||
        fail "CUDA: launches"
    [ "$(cat "$folder"/trace/*.json | grep '"ph": "C"' | grep -c 'on the device: team 0')" -ge 2 ] ||
        fail "CUDA: no track says how far the device is"
    grep -h '"wait"' "$folder"/trace/*rank0.json | grep '"late"' | grep -q '"awaited": \[1\]' ||
        fail "CUDA: who was late is not shown"
    grep -q '"name": "device: team 0, channel 0"' "$folder"/trace/*rank0.json ||
        fail "CUDA: no row of the channel"
    merge && merged "CUDA"

    # Calls in a graph are slices where they are captured; replays make none, and are counted.
    program=graph_program
    job 2 SYMM_BACKEND=cuda SYMM_CUDA_LIBRARY="$BUILD_DIR/lib/libfake_cuda.so" SYMM_SIGHT=1 \
        FAKE_CUDA_DEVICES=2 SYMM_KERNELS="$folder/kernels" -- eager=50 replays=40
    [ "$status" = 0 ] || fail "a graph: the program: $(cat "$folder/err")"
    slices ' wait '
    same "a graph"
    for state in "launched 100" "captured 6"; do
        [ "$(cat "$folder"/trace/*.json | grep -c "\"state\": \"${state% *}\"")" = "${state#* }" ] ||
            fail "a graph: not $state"
    done
    merge && merged "a graph"
fi

exit $failed
