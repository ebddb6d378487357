#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 7
# ctest: load 3
#
# symm-perf: its command line, its table byte for byte, its JSON, every operation on 1 to 4
# ranks, replays; it must detect wrong results and dead ranks.

# shellcheck source=tests/perf_tool.sh
. "$(dirname "$0")/perf_tool.sh"
programs=$source_dir/bench/programs

# ---- The command line ---------------------------------------------------------------

expect 0 help --help && says out "usage: symm-perf OP" help
expect 0 version --version && says out "symm-perf 0." version

# refused TEXT ARG...: exit status 2 and one sentence.
refused() {
    local text=$1
    shift
    expect 2 "refusal" "$@" || return
    says err "$text" "symm-perf $*"
    [ "$(wc -l < "$work/err")" = 1 ] || fail "symm-perf $*: not one line of error"
    [ ! -s "$work/out" ] || fail "symm-perf $*: wrote to stdout"
}
refused "no OP given"
refused "OP: found 'reduce_all'" reduce_all
refused "after the last argument" all_reduce extra
refused "unknown option" all_reduce --nonsense
refused "-b: its value is missing" all_reduce -b
refused "--tune: it takes no value" all_reduce --tune=1
refused "-b: found '8Q', allowed: bytes as 8, 64K, 4M or 1G" all_reduce -b 8Q
refused "-b: found '-8'" all_reduce -b -8
refused "-b: found '4 '" all_reduce -b '4 '
refused "-b: found ' 4'" all_reduce -b ' 4'
refused "-e: found '99999999999999999999'" all_reduce -e 99999999999999999999
refused "-b: found 16, allowed: at most -e, which is 8" all_reduce -b 16 -e 8
refused "-f: found '1', allowed: an integer from 2" all_reduce -f 1
refused "-d: found 'float31', allowed: float64 float32" all_reduce -d float31
refused "-o: found 'xor', allowed: sum avg prod min max band bor bxor all" all_reduce -o xor
refused "-o: found band of half, allowed: sum avg prod min max all, or -d with an integer" \
    all_reduce -d half -o band
refused "-n: found '0'" all_reduce -n 0
refused "-w: found '-1'" all_reduce -w -1
refused "-T: found '0'" all_reduce -T 0
refused "-G and --compare need GPUs" all_reduce -G 4 --backend host
refused "-G and --compare need GPUs" all_reduce --compare nccl,nccl-window --backend host
refused "NCCL has no put" put --compare nccl
refused "--compare: found 'gloo', allowed: nccl, nccl-window" all_reduce --compare gloo
refused "--compare: found '', allowed: nccl, nccl-window" all_reduce --compare ''
refused "--backend: found 'tpu', allowed: host, cuda" all_reduce --backend tpu
refused "--ranks: found '0'" all_reduce --ranks 0
refused "--plan and --delay belong to" all_reduce --delay 5
refused "no PROGRAM.json given" replay
refused "none.json: cannot be opened" replay "$work/none.json"
refused "cannot be read: Is a directory" replay "$work"
for flag in "-b 8" "-e 8" "-f 3" "-i 4" "-d int8" "-o max" "-c 1" "-w 0" "-r 0"; do
    # shellcheck disable=SC2086
    refused "${flag% *} does not belong to 'symm-perf replay'" replay "$work/none.json" $flag
done
refused "--algorithm do not belong to 'symm-perf replay'" replay "$work/none.json" \
    --algorithm copy_in
refused "-d: found int32, allowed with all_reduce_norm" all_reduce_norm -d int32
refused "--quant: found 'int4', allowed: none, tensor" all_reduce_norm --quant int4
refused "-e: found 4096, allowed with all_reduce_norm: a row of 8192 bytes" all_reduce_norm -e 4K
refused "--hidden: found '0'" all_reduce_norm --hidden 0
refused "--hidden and --quant belong to all_reduce_norm" all_reduce --hidden 64
refused "--compare and -o do not belong to 'symm-perf all_reduce_norm'" all_reduce_norm -o max
refused "-r: found 2, allowed: a rank below 2" broadcast -r 2 --ranks 2
expect 2 "unknown algorithm" all_reduce -b 8 -e 8 --ranks 2 --algorithm nonsense

# ---- The table and the JSON ----------------------------------------------------------

cat > "$work/header" <<'TABLE'
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
TABLE
expect 0 table all_reduce -b 8 -e 4K -f 4 -d float16 -o max --ranks 2 -J "$work/perf.json"
grep -A2 'out-of-place' "$work/out" | cmp - "$work/header" || fail "the table's header"
rows=$(grep -cE '^ {0,11}[0-9]+ {2}[ 0-9]{12} {6}half {5}max {6}-1( {2}[ 0-9.e+]{7} {2}[ 0-9.e+]{6} {2}[ 0-9.e+]{6} {7}0){2}$' "$work/out")
[ "$rows" = 5 ] || { fail "the table's rows: $rows of 5"; grep -v '^#' "$work/out"; }
says out "# Out of bounds values : 0 OK" "the table's foot"
says out "# Avg bus bandwidth    : " "the table's foot"
says out "#  Rank  1 Group  0 Pid " "the ranks"

jq -e '(.version == 2) and (.args | length > 3) and (.env | type == "array")
    and (.start_time | length == 19) and (.config.ranks == 2)
    and (.config.backend == "host") and (.devices | length == 2)
    and (.out_of_bounds == {count: 0, okay: true}) and (.average_bus_bandwidth.okay == true)
    and (.results | length == 5)
    and ([.results[] | .size] == [8, 32, 128, 512, 2048])
    and all(.results[]; .type == "half" and .dtype == "float16" and .redop == "max"
        and .root == -1 and .count * 2 == .size and .actual_iterations == 20
        and .experiment_name == "all_reduce"
        and all(.out_of_place, .in_place; .nwrong == 0 and .time >= 0 and .alg_bw >= 0
            and .bus_bw >= 0 and .wire_bw >= 0)
        and all(.out_of_place_per_iter, .in_place_per_iter; .min_us <= .p50_us
            and .p50_us <= .p95_us and .p95_us <= .p99_us and .p99_us <= .max_us
            and .avg_us > 0 and .stdev_us >= 0 and .cv_pct >= 0))' \
    "$work/perf.json" >/dev/null || { fail "the JSON"; head -c 2000 "$work/perf.json"; }

SYMM_JOB_SECRET=00112233445566778899aabbccddeeff \
    expect 0 "no checks" all_reduce -b 8 -e 8 -c 0 --ranks 2 -J "$work/secret.json"
# Of the job's secret, which symmrun sets, too, a report has neither name.
grep -q '"SYMM_JOB_ID=' "$work/secret.json" || fail "the report lacks the variables of the job"
! grep -qE 'SYMM_(JOB_)?SECRET=' "$work/secret.json" || fail "the report has the job's secret"
grep -qE ' N/A .* N/A$' "$work/out" || fail "-c 0 does not print N/A"
expect 2 "a JSON file that cannot be written" all_reduce -b 8 -e 8 -J "$work/no/such/file"

# Results that are lost are not a success, and no half of a file is left.
odd=$programs/odd-cycle-3.json
printf '%s\n' "symmrun 1 all_reduce --ranks 2 -n 3 -b 4 -e 8" \
    "symmrun 1 chain --ranks 2 -n 8 -b 4 -e 4" "symmrun 1 replay $odd --iterations 2" \
    "symmrun 1 overlap --ranks 2 -b 4 -e 4 -n 2" "symm-perf 2 all_reduce -b 8 -e 8" |
    while read -r writer wanted line; do
        read -ra words <<<"$line"
        if [ -w /dev/full ]; then
            "$perf" "${words[@]}" >/dev/full 2>"$work/err" </dev/null
            [ $? = "$wanted" ] || echo "symm-perf $line: a full stdout: exit status"
            says err "$writer: stdout: " "a full stdout"
        fi
        "$perf" "${words[@]}" >&- 2>"$work/err" </dev/null
        [ $? = "$wanted" ] || echo "symm-perf $line: a closed stdout: exit status"
        says err "$writer: stdout: " "a closed stdout"
    done >"$work/lost"
[ ! -s "$work/lost" ] || fail "lost results: $(cat "$work/lost")"
echo old > "$work/cut.json"
(
    trap '' XFSZ
    ulimit -f 4096
    "$perf" all_reduce -n 1 -w 0 -c 0 -b 4 -e 20000 -i 4 -J "$work/cut.json"
) >/dev/null 2>"$work/err"
[ $? = 2 ] || fail "a JSON file that gets too large: exit status"
says err "-J: $work/cut.json cannot be written: File too large" "a JSON file that gets too large"
[ "$(cat "$work"/cut.json*)" = old ] || fail "a JSON file that gets too large: it is cut"
ln -s there.json "$work/link.json"
expect 0 "a link to a JSON file" all_reduce -n 1 -w 0 -b 8 -e 8 -J "$work/link.json"
[ -L "$work/link.json" ] && [ -s "$work/there.json" ] || fail "a link is not followed"

# ---- Every operation ----------------------------------------------------------------

for op in all_reduce reduce_scatter all_gather broadcast all_to_all put get put_signal; do
    for ranks in 1 2 3; do
        expect 0 "$op" "$op" -b 1 -e 70000 -f 17 -c 6 -n 5 --ranks "$ranks" &&
            says out "Out of bounds values : 0 OK" "$op on $ranks ranks"
    done
done
for quant in none tensor row group group-column; do
    expect 0 "all_reduce_norm" all_reduce_norm --hidden 1000 -b 6000 -e 9000 -i 3000 -n 3 \
        --quant "$quant" --ranks 3 &&
        says out "Out of bounds values : 0 OK" "all_reduce_norm, $quant"
    [ "$(grep -vc '^#' "$work/out")" = 2 ] || fail "all_reduce_norm: not two rows"
done
for op in signal barrier; do
    expect 0 "$op" "$op" --ranks 3 -n 50
    [ "$(grep -vc '^#' "$work/out")" = 1 ] || fail "$op: not one row"
done
expect 0 "all dtypes and reductions" all_reduce -b 999 -e 9999 -f 10 -c 5 -n 2 -d all -o all \
    --ranks 3
[ "$(grep -vc '^#' "$work/out")" = 188 ] || fail "-d all -o all: not 188 rows"
expect 0 "bitwise, all dtypes" all_reduce -b 64 -e 64 -d all -o bor --ranks 2
[ "$(grep -vc '^#' "$work/out")" = 8 ] || fail "-d all -o bor: not the 8 integer dtypes"
expect 0 "no reduction" all_gather -b 64 -e 64 -d half -o band --ranks 2
[ "$(grep -vc '^#' "$work/out")" = 1 ] || fail "all_gather -o band: not 1 row"
expect 0 "a step" all_gather -b 100 -e 400 -i 100 -n auto -w auto --ranks 2
[ "$(grep -vc '^#' "$work/out")" = 4 ] || fail "-i 100: not 4 rows"
expect 0 "a root" broadcast -b 64 -e 64 -r 1 --ranks 2

# ---- Launchers ----------------------------------------------------------------------

if [ -x "$build/bin/symmrun" ]; then
    "$build/bin/symmrun" -n 2 -- "$perf" all_reduce -b 8 -e 64 >"$work/out" 2>"$work/err" ||
        fail "under symmrun"
    says out "2 ranks, backend host" "under symmrun"
    "$build/bin/symmrun" -n 2 -- "$perf" all_reduce --ranks 2 -b 8 -e 8 >"$work/out" \
        2>"$work/err" || fail "--ranks that fits under symmrun"
    "$build/bin/symmrun" -n 2 -- "$perf" all_reduce --ranks 3 >"$work/out" 2>"$work/err"
    [ $? = 2 ] || fail "--ranks that does not fit under symmrun is not refused"
    told="--ranks: found 3, allowed: 2, the ranks of this launcher's job"
    [ "$(grep -cF -- "$told" "$work/err")" = 1 ] ||
        fail "--ranks that does not fit under symmrun: not one complaint"
    cp "$perf" "$work/alone"
    LD_LIBRARY_PATH=$build/lib "$work/alone" all_reduce --ranks 2 >"$work/out" 2>"$work/err"
    [ $? = 3 ] || fail "--ranks without a symmrun: exit status"
    says err "symm-perf: cannot start 2 ranks by $work/symmrun: No such file" \
        "--ranks without a symmrun"
    "$build/bin/symmrun" -n 2 -- "$perf" replay "$programs/ring-pipeline-4.json" \
        >"$work/out" 2>"$work/err"
    [ $? = 2 ] || fail "a program of 4 ranks on 2 is not refused"
    [ "$(grep -c 'world: found 4, allowed:' "$work/err")" = 1 ] ||
        fail "a program of 4 ranks on 2: not one complaint"
fi

# ---- Replay -------------------------------------------------------------------------

for program in odd-cycle-3 ring-pipeline-4 tp2-dp2-two-streams llama3-8b-tp2-decode-b1 \
    llama3-8b-tp4-decode-b1; do
    expect 0 "$program" replay "$programs/$program.json" --iterations 2 &&
        says out "Out of bounds values : 0 OK" "$program"
done
expect 0 "every op" replay "$here/data/programs/every-op.json" --iterations 6 --delay 100 \
    -J "$work/replay.json"
jq -e '.replay | .nwrong == 0 and .results_checked == 1296 and .world == 4
    and .calls_per_period.p50_us > 0 and .buffer_bytes == 42352' "$work/replay.json" \
    >/dev/null || fail "the JSON of a replay"
expect 0 "every norm" replay "$here/data/programs/every-norm.json" --iterations 6 --delay 100 \
    -J "$work/replay.json"
jq -e '.replay | .nwrong == 0 and .results_checked == 1824' "$work/replay.json" >/dev/null ||
    fail "the JSON of a replay of norms"
refused "world: found 4, allowed: the job's number of ranks, which is 2" \
    replay "$programs/ring-pipeline-4.json" --ranks 2

# A program may have more ranks than a job.
cat > "$work/wide.json" <<'PROGRAM'
{"format": "symm-program/1", "name": "wide", "world": 65,
 "buffers": [{"name": "a", "dtype": "float32", "shape": [8]}],
 "ops": [{"op": "write", "buffers": ["a"]}]}
PROGRAM
refused "wide.json: world: found 65, allowed: 1 to 64" replay "$work/wide.json"
sed 's/65/256/' "$work/wide.json" > "$work/widest.json"
refused "widest.json: world: found 256, allowed: 1 to 64" replay "$work/widest.json"

# Well-formed, but more than a team of the library can do: 8 streams beside the first in one
# group, and 257 puts with waits in another order. One less of either runs.
"$here/limits.sh" streams 9 > "$work/nine.json"
refused "groups.world: found 8 streams beside the first" replay "$work/nine.json"
"$here/limits.sh" streams 8 > "$work/eight.json"
expect 0 "8 streams" replay "$work/eight.json" --iterations 2
"$here/limits.sh" puts 257 back > "$work/back.json"
refused "found put p256 with the signal of put p0" replay "$work/back.json"
"$here/limits.sh" puts 257 > "$work/puts.json"
expect 0 "257 puts" replay "$work/puts.json" --iterations 2
"$here/limits.sh" puts 256 back > "$work/back.json"
expect 0 "256 puts" replay "$work/back.json" --iterations 2
expect 2 "a plan" replay "$programs/odd-cycle-3.json" --plan "$programs/odd-cycle-3.json"
says err "--plan: " "a plan"
for path in "$work/none.plan" "$work"; do
    expect 2 "a plan that cannot be read" replay "$odd" --plan "$path"
    says err "--plan: $path: cannot be " "a plan that cannot be read"
done
if "$build/bin/symm-plan" plan "$odd" -o "$work/odd.plan" >"$work/out" 2>&1; then
    jq 'del(.plan_hash, .run_hash) | .buffers[0].bytes -= 256 | .buffers[].after = [0, 1, 2]' \
        "$work/odd.plan" > "$work/less.plan"
    expect 2 "a plan with less for a buffer" replay "$odd" --plan "$work/less.plan"
    says err "asks for 4096 bytes of float32" "a plan with less for a buffer"
fi

# ---- Wrong results are noticed -------------------------------------------------------

# Stands before libsymm and spoils one bit of some results of an operation.
cat > "$work/spoil.c" <<'SPOIL'
#include <dlfcn.h>
#include <stdlib.h>
#include "symm/symm.h"

symm_status symm_all_reduce(symm_team *team, const void *in, void *out, size_t count,
                            symm_dtype dtype, symm_op op, const symm_call *call,
                            symm_work **work)
{
    static int calls;
    symm_status (*real)(symm_team *, const void *, void *, size_t, symm_dtype, symm_op,
                        const symm_call *, symm_work **);

    *(void **)&real = dlsym(RTLD_NEXT, "symm_all_reduce");
    symm_status status = real(team, in, out, count, dtype, op, call, work);
    if (++calls == atoi(getenv("SPOIL_CALL")) && symm_team_rank(team) == 1)
        ((char *)out)[count * symm_dtype_size(dtype) * 3 / 4] ^= 1;
    return status;
}
SPOIL
if "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -I"$source_dir/include" -I"$build/include" \
    -o "$work/spoil.so" "$work/spoil.c" -ldl; then
    # 20 calls are warmup and timed, three elements of which are looked at; the first is
    # checked whole.
    export LD_PRELOAD=$work/spoil.so SPOIL_CALL=1
    expect 1 "one wrong bit" all_reduce -b 4K -e 4K --ranks 3
    says out "# Out of bounds values : 1 FAILED" "one wrong bit"
    export SPOIL_CALL=40
    expect 1 "one wrong bit in a replay" replay "$programs/llama3-8b-tp2-decode-b1.json" \
        --iterations 2
    says out "Out of bounds values : 1 FAILED" "one wrong bit in a replay"
    says err "ops[79] (all_reduce l19.mlp): 1 wrong element" "one wrong bit in a replay"
    unset LD_PRELOAD SPOIL_CALL
else
    fail "the spoiling library could not be compiled"
fi

# ---- Dead ranks are noticed ----------------------------------------------------------

"$perf" all_reduce -b 64 -e 64 -n 100000000 --ranks 3 >"$work/out" 2>"$work/err" &
pid=$!
victim=
for _ in $(seq 1000); do
    victim=$(sed -n 's/^#  Rank  2 Group  0 Pid *\([0-9]*\).*/\1/p' "$work/out")
    [ -z "$victim" ] || break
    sleep 0.1
done
sleep 0.3
kill -KILL "${victim:-$pid}"
wait "$pid"
status=$?
[ "$status" = 137 ] || [ "$status" = 3 ] || fail "a dead rank: exit status $status"
grep -q 'rank 2' "$work/err" || { fail "a dead rank is not named"; cat "$work/err"; }

[ "$failures" = 0 ] && echo "all right"
[ "$failures" = 0 ]
