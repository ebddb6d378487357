#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 6
# ctest: load 3
#
# symm-perf --tune and --regret: a table that jq, the library and symm-plan can read, for the
# host and for the fake driver's GPUs; points that the budget omits; refusals. Then the
# readers of tables and comparisons: costs_source, bench/compare_report.py, bench/plot.sh.

# shellcheck source=tests/perf_tool.sh
. "$(dirname "$0")/perf_tool.sh"

# ---- Refusals -----------------------------------------------------------------------

refused() {
    local text=$1
    shift
    expect 2 refusal "$@" && says err "$text" "symm-perf $*"
}
refused "--tune and --regret are two runs" --tune --regret
refused "--budget belongs to --tune" all_reduce --budget 5
refused "--budget: found '0'" --tune --budget 0
refused "OP: found 'put', allowed with --tune and --regret" put --tune
refused "do not belong to --tune" --tune --algorithm copy_in
for flag in n w c r f i; do
    refused "-$flag does not belong to --tune and --regret" --tune "-$flag" 4
done
refused "-n does not belong to --tune and --regret" --regret -n 4
refused "between 2 to 64 ranks; this job has 1" --tune -e 4K
refused "-o: found 'table.json', allowed: sum" all_reduce -o table.json
refused "-o: $work/no/table.json cannot be written" all_reduce --tune -d float32 -b 64 -e 64 \
    --ranks 2 -o "$work/no/table.json"

# ---- The host's table ---------------------------------------------------------------

table=$work/table.json
expect 0 tune --tune --ranks 2 --backend host -b 8 -e 16 -o "$table" --budget 200
says out "sizes measured in" tune
! grep -q 'left out' "$work/out" || fail "a large budget leaves something out"
[ "$(find "$work" -name 'table.json*' | wc -l)" = 1 ] || fail "the table is not alone"
jq -e '.format == "symm-costs/1" and .barrier_us > 0 and .machine.ranks == 2
    and (.machine.key | startswith("host: ")) and (.algorithms | has("copy_in"))
    and all(.algorithms[]; .latency_us > 0 and .bytes_per_us > 0)
    and ([.measured[].collective] | unique ==
         ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"])
    and ([.measured[].ranks] | unique == [2])
    and ([.measured[].data] | unique == ["any", "float", "float32", "half", "int32", "other"])
    and ([.measured[] | select(.in_place) | .collective] | unique == ["all_reduce"])
    and ([.measured[] | select(.collective == "all_reduce" and .data == "half" and
          .algorithm == "copy_in" and .ranks == 2 and (.in_place | not)) | .points[][0]] ==
         [8, 12, 16])
    and ([.measured[] | select(.collective == "all_reduce" and .data == "half" and
          (.in_place | not)) | .algorithm] | sort ==
         ["copy_in", "one_shot_pull", "two_shot_inplace"])
    and all(.measured[].points[]; .[1] > 0)' "$table" >/dev/null ||
    { fail "the table"; head -c 1500 "$table"; }
expect 0 "one collective" broadcast --tune --ranks 2 --backend host -b 64 -e 64 -o "$work/one"
[ "$(jq -r '[.measured[].collective] | unique[]' "$work/one")" = broadcast ] ||
    fail "broadcast --tune measures something else"
# Teams of all ranks and of two. Three ranks on two cores take turns: one collective only.
expect 0 "three ranks" broadcast --tune --ranks 3 --backend host -b 64 -e 64 -o "$work/three"
jq -e '.machine.ranks == 3 and ([.measured[].ranks] | unique == [2, 3])' "$work/three" >/dev/null ||
    fail "the teams of three ranks"
# What is no file is written to, not replaced.
mkfifo "$work/pipe"
cat "$work/pipe" >"$work/piped" &
expect 0 "to a pipe" broadcast --tune --ranks 2 --backend host -b 64 -e 64 -o "$work/pipe"
wait
[ -p "$work/pipe" ] || fail "a pipe was replaced by a file"
grep -q '"symm-costs/1"' "$work/piped" || fail "nothing came through the pipe"

expect 0 "a small budget" --tune --ranks 2 --backend host -e 64K -o "$work/cut" --budget 0.01
says out "# left out: all_reduce of float32 over 2 ranks: " "a small budget"
says out "a larger --budget than 0.01 s measures them" "a small budget"

# A copy in which copy_in is the cheapest by far, whatever was measured.
jq '(.measured[] | select(.algorithm == "copy_in") | .points[][1]) = 0.01' "$table" \
    > "$work/cheap.json"
export SYMM_COSTS=$work/cheap.json
expect 0 "the table is used" all_reduce --ranks 2 --backend host -b 1K -e 1K -J "$work/perf.json"
jq -r '.results[0].in_place.explain' "$work/perf.json" | grep -qE \
    'took copy_in .*: the cheapest by the cost table \(0.01 us by the table, two_shot_inplace' ||
    { fail "the table is not used"; jq '.results[0].in_place' "$work/perf.json"; }
expect 0 regret all_reduce --regret --ranks 2 --backend host -d float32 -e 1K
[ "$(grep -cE '^ +2  all_reduce      float32  (out|in ) .* copy_in .* [0-9]+\.[0-9]$' \
    "$work/out")" = 8 ] || { fail "the regrets"; cat "$work/out"; }
says out "# largest regret: " regret
unset SYMM_COSTS
expect 0 "no table" all_reduce --ranks 2 --backend host -b 4K -e 4K -J "$work/perf.json"
jq -r '.results[0].in_place.explain' "$work/perf.json" | grep -qE \
    'took two_shot_inplace .* \([0-9.]+ us by the model, copy_in [0-9.]+ us\)$' ||
    fail "a choice without a table does not tell the model"
SYMM_COSTS=$here/data/programs/every-op.json expect 2 "a foreign file" all_reduce --ranks 2
says err 'every-op.json: format: found "symm-program/1", allowed: "symm-costs/1"' "a foreign file"

if [ -x "$build/bin/symm-plan" ]; then
    "$build/bin/symm-plan" plan "$source_dir/bench/programs/odd-cycle-3.json" --table "$table" \
        -o "$work/plan.json" >"$work/out" 2>&1 || { fail "symm-plan --table"; cat "$work/out"; }
fi

# ---- GPUs ---------------------------------------------------------------------------

if [ -e "$build/lib/libfake_cuda.so" ]; then
    mkdir "$work/kernels"
    for source in "$source_dir"/kernels/cuda/*.cu; do
        printf '\x50\xed\x55\xba\1\0\0\0\0\0\0\0\0\0\0\0' \
            > "$work/kernels/$(basename "$source" .cu).fatbin"
    done
    export SYMM_CUDA_LIBRARY=$build/lib/libfake_cuda.so SYMM_KERNELS=$work/kernels
    export SYMM_ENGINE=none
    expect 0 "tuning GPUs" all_reduce --tune --backend cuda --ranks 2 -b 16 -e 64 -d bfloat16 \
        -G 2 -o "$work/gpu.json" &&
        jq -e '(.machine.key | startswith("cuda: Fake GPU, ")) and .machine.links == ["-A", "A-"]
            and .machine.driver_cuda == "13.0"
            and ([.measured[] | select(.in_place | not) | .algorithm] | contains(["ll_push",
                "lamport_push", "two_shot_push", "one_shot_pull", "copy_in"]))
            and all(.measured[].points; length == 5)' "$work/gpu.json" >/dev/null ||
        { fail "the GPUs' table"; head -c 1000 "$work/gpu.json"; }
    SYMM_COSTS=$work/gpu.json expect 0 "regret on GPUs" all_reduce --regret --backend cuda \
        --ranks 2 -d bfloat16 -b 24 -e 24 -G 2
    [ "$(grep -c '^ *2  all_reduce' "$work/out")" = 2 ] || fail "regret on GPUs: not two rows"
    SYMM_OVERSUBSCRIBE=1 FAKE_CUDA_DEVICES=1 expect 0 "ranks on one GPU" all_reduce \
        --backend cuda --ranks 2 -b 16 -e 16 -n 2 -w 0
    [ "$(grep -c '^#  Rank .* device  0 \[cuda\]' "$work/out")" = 2 ] ||
        { fail "not both ranks are on device 0"; cat "$work/out"; }
    unset SYMM_CUDA_LIBRARY SYMM_KERNELS SYMM_ENGINE
fi

# ---- What is made of them -------------------------------------------------------------

costs_source=$build/symm/select/costs_source
"$costs_source" "$work/tables.c" "$table" || fail "costs_source refuses a table of --tune"
[ "$(grep -c '^    {sizeof(symm_costs_curve), SYMM_PROGRAM_' "$work/tables.c")" = \
    "$(jq '.measured | length' "$table")" ] ||
    fail "costs_source leaves out curves"
refused_table() { # EDIT SAID: the table after the sed command EDIT
    sed "$1" "$table" > "$work/bad.json"
    rm -f "$work/bad.c"
    "$costs_source" "$work/bad.c" "$work/bad.json" 2>"$work/err"
    [ $? = 2 ] && [ ! -e "$work/bad.c" ] || fail "costs_source takes a table after $1"
    says err "$2" "costs_source after $1"
}
"$costs_source" "$work/bad.c" "$work/none.json" 2>"$work/err" && fail "costs_source reads no file"
says err "none.json: No such file" "costs_source without a file"
refused_table '/"collective"/d' "a machine, and curves at the end"
refused_table '/^ "machine"/d' "a machine, and curves at the end"
refused_table '$d; /^ \]/d' "a machine, and curves at the end"
refused_table 's/"collective": "all_reduce"/"collective": "put"/' "a collective"
refused_table 's/"algorithm": "copy_in"/"algorithm": "ll_psh"/' "an algorithm of a collective"
refused_table 's/"data": "[a-z0-9]*"/"data": "int4"/' "float32 half float int32 other any"
refused_table 's/\[\[/[[1e30, 1], [/' "bytes above those before them"
refused_table 's/\[\([0-9]*\), [0-9.]*\]\]/[\1, 0]]/' "us above 0"
refused_table 's/"ranks": 2, "points"/"ranks": 1, "points"/' "a curve as symm-perf --tune writes it"
refused_table 's/\]}\(,*\)$/], "x": 1}\1/' "the last member of a curve"
refused_table 's/"latency_us": /&-/' "latency_us, 0 or more"
refused_table 's/"key": "/&a\\/' "names of machines"

if command -v python3 >/dev/null; then
    python() { python3 -B "$@"; }
    expect 0 "figures" all_reduce --ranks 2 --backend host -b 8 -e 4K -f 8 -J "$work/run.json"
    printf 'an MPI\t8\t0.001\t2\nan MPI\t512\t1e6\t1e6\n' > "$work/all_reduce-float32-2.tsv"
    echo '{"date": "today", "backend": "host", "machine": "this", "method": "so",
        "versions": {"x": "1"}}' > "$work/machine"
    report() { python "$source_dir/bench/compare_report.py" "$@"; }
    report merge "$work/all.json" "$work/machine" "$work/run.json" \
        "$work/all_reduce-float32-2.tsv" &&
        jq -e '.format == "symm-compare/1" and (.figures | length) == 10
            and .versions.libsymm != null and (.figures[0] | keys ==
            ["bytes", "dtype", "op", "p50", "p99", "ranks", "who"])' "$work/all.json" \
            >/dev/null || fail "compare_report.py merge"
    report markdown "$work/all.json" > "$work/compare.md" || fail "compare_report.py markdown"
    grep -qE '^\| 8 B \| \*\*[0-9.]+ / [0-9.]+\*\* \| \*\*.*\| 0\.00 \|' "$work/compare.md" ||
        { fail "a loss is not bold"; cat "$work/compare.md"; }
    grep -qE '^\| 512 B \| [0-9]' "$work/compare.md" || fail "a win is bold"
    report figures "$work/all.json" all_reduce float64 2 latency >/dev/null 2>&1 &&
        fail "figures that are not there"
    if command -v gnuplot >/dev/null; then
        bash "$source_dir/bench/compare.sh" plot "$work/all.json" "$work/plots" >"$work/out" ||
            fail "compare.sh plot"
        for what in latency bandwidth; do
            grep -q '</svg>' "$work/plots/all_reduce_float32_2_$what.svg" || fail "no $what.svg"
        done
        [ -s "$work/plots/compare.md" ] || fail "no compare.md"
    fi
    python "$source_dir/bench/compare_torch.py" --json "$work/torch.json" -b 0 2>/dev/null
    [ $? = 2 ] || fail "compare_torch.py -b 0 is not refused"
fi

[ "$failures" = 0 ] && echo "all right"
[ "$failures" = 0 ]
