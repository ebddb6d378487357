#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 3
# ctest: load 3
#
# symm-perf overlap and chain: their options, tables and JSON on 2 and 3 ranks, on the host
# and over the fake CUDA driver, also with the fake NCCL; they must detect a wrong put, a
# wrong reduction and a failing callback.

# shellcheck source=tests/perf_tool.sh
. "$(dirname "$0")/perf_tool.sh"

# refused TEXT ARG...: exit status 2 and one sentence.
refused() {
    local text=$1
    shift
    expect 2 "refusal" "$@" && says err "$text" "symm-perf $*"
    [ ! -s "$work/out" ] || fail "symm-perf $*: wrote to stdout"
}

# rows N WHAT: the table has N rows, none of them with a wrong element.
rows() {
    [ "$(grep -cE '^ *[0-9]+ .* 0$' "$work/out")" = "$1" ] ||
        { fail "$2: not $1 rows"; cat "$work/out"; }
    says out "# Out of bounds values : 0 OK" "$2"
}

# Rows of `by` for the sizes given: the sum and the ratio follow from the times beside them.
overlap_json() {
    jq -e --arg by "$1" --argjson sizes "$2" '
        [.results[] | select(.by == $by)] | (map(.size) == $sizes) and
        all(.[]; (.put_next.p50_us + .put_second.p50_us + .all_reduce.p50_us) as $sum
            | ([.put_next.p50_us, .put_second.p50_us, .all_reduce.p50_us] | max) as $most
            | .nwrong == 0 and $most > 0 and .together.p50_us > 0
            and ((.sum_us - $sum) | fabs) < $sum * 1e-6
            and ((.ratio * $most / .together.p50_us - 1) | fabs) < 1e-6)' \
        "$work/perf.json" >/dev/null || { fail "JSON of overlap, $1"; cat "$work/perf.json"; }
}

chain_json() {
    jq -e --argjson sizes "$1" '(.results | map(.size) == $sizes)
        and all(.results[]; .nwrong == 0 and .device_us > 0 and .burst.p50_us > 0
            and all(.call, .compute, .then, .iteration;
                .p50_us > 0 and .p50_us <= .p99_us))' \
        "$work/perf.json" >/dev/null || { fail "JSON of chain"; cat "$work/perf.json"; }
}

# ---- The command line ---------------------------------------------------------------

refused "-d and -o do not belong to 'symm-perf overlap'" overlap -d float16
refused "-d and -o do not belong to 'symm-perf chain'" chain -o max
refused "-b: found 3, allowed with chain: 4 or more" chain -b 3
refused "-G does not belong to 'symm-perf chain'" chain -G 4
refused "--compare: found nccl-window, allowed with overlap: nccl" overlap \
    --compare nccl-window
refused "NCCL has no chain" chain --compare nccl
refused "-b: found 131072, allowed: at most -e, which is 65536" chain -b 128K

# ---- On the host --------------------------------------------------------------------

export SYMM_BACKEND=host
for ranks in 1 2 3; do
    expect 0 overlap overlap --ranks "$ranks" -b 6 -e 100K -f 125 -n 5 -J "$work/perf.json" &&
        rows 3 "overlap on $ranks ranks"
    overlap_json symm "[4,748,93748]"
    expect 0 chain chain --ranks "$ranks" -b 8 -e 16K -f 45 -n 300 -J "$work/perf.json" &&
        rows 3 "chain on $ranks ranks"
    chain_json "[8,360,16200]"
done
expect 0 "no checks" overlap --ranks 2 -b 8 -e 8 -n 1 -c 0
grep -qE '^ +8 .* N/A$' "$work/out" || fail "-c 0 does not print N/A"

# ---- What goes wrong is noticed -------------------------------------------------------

# Stands before libsymm: some results get a wrong bit, errors of callbacks are forgotten.
cat > "$work/spoil.c" <<'SPOIL'
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "symm/symm.h"

#define REAL(name) (*(void **)&real = dlsym(RTLD_NEXT, name))

static bool now(const char *what)
{
    static int calls;

    return strcmp(getenv("SPOIL"), what) == 0 && ++calls == atoi(getenv("SPOIL_CALL"));
}

symm_status symm_put(symm_team *team, void *dst, const void *src, size_t bytes, int peer,
                     const symm_call *call, symm_work **work)
{
    symm_status (*real)(symm_team *, void *, const void *, size_t, int,
                        const symm_call *, symm_work **);

    REAL("symm_put");
    if (symm_team_rank(team) == 1 && now("put"))
        bytes -= 4;
    return real(team, dst, src, bytes, peer, call, work);
}

symm_status symm_all_reduce(symm_team *team, const void *in, void *out, size_t count,
                            symm_dtype dtype, symm_op op, const symm_call *call,
                            symm_work **work)
{
    symm_status (*real)(symm_team *, const void *, void *, size_t, symm_dtype, symm_op,
                        const symm_call *, symm_work **);

    REAL("symm_all_reduce");
    return real(team, in, out, count, dtype, now("reduce") ? SYMM_MAX : op, call, work);
}
SPOIL

# spoiled WHAT CALL TEXT ARG...: exit status 1, and the text in the output.
spoiled() {
    local what=$1 call=$2 text=$3
    shift 3
    export LD_PRELOAD=$work/spoil.so SPOIL=$what SPOIL_CALL=$call
    expect 1 "a wrong $what" "$@"
    unset LD_PRELOAD
    says out "$text" "a wrong $what"
}

if "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -I"$source_dir/include" -I"$build/include" \
    -o "$work/spoil.so" "$work/spoil.c" -ldl; then
    # The first two puts are checked before anything is timed.
    spoiled put 1 "values : 1 FAILED" overlap --ranks 3 -b 1K -e 1K -n 2
    spoiled put 2 "values : 1 FAILED" overlap --ranks 2 -b 1K -e 1K -n 2
    spoiled reduce 1 " FAILED" overlap --ranks 2 -b 1K -e 1K -n 2
    spoiled reduce 150 " FAILED" chain --ranks 2 -b 1K -e 1K -n 100
else
    fail "the spoiling library could not be compiled"
fi

# ---- Over the fake driver -------------------------------------------------------------

if [ -e "$build/lib/libfake_cuda.so" ]; then
    export SYMM_BACKEND=cuda SYMM_CUDA_LIBRARY=$build/lib/libfake_cuda.so
    export SYMM_KERNELS=$work/kernels # it asks only that they look like modules
    mkdir "$work/kernels"
    for file in "$source_dir"/kernels/cuda/*.cu; do
        printf '\x50\xed\x55\xba\1\0\0\0\0\0\0\0\0\0\0\0' \
            > "$work/kernels/$(basename "$file" .cu).fatbin"
    done
    for ranks in 2 3; do
        for graph in 0 3; do
            expect 0 overlap overlap --ranks "$ranks" -b 8 -e 1K -f 128 -n 3 -w 1 \
                -G "$graph" -J "$work/perf.json" && rows 2 "overlap, $ranks ranks, -G $graph"
            overlap_json symm "[8,1024]"
        done
    done
    expect 0 "the copy engine" overlap --ranks 2 -b 64 -e 64 -n 2 --algorithm copy_engine
    rows 1 "the copy engine"
    expect 0 chain chain --ranks 2 -b 8 -e 1K -f 128 -n 200 -J "$work/perf.json" &&
        rows 2 "chain over the fake driver"
    chain_json "[8,1024]"
fi

if [ -e "$build/lib/libfake_nccl.so" ] && [ -n "${SYMM_KERNELS:-}" ]; then
    export SYMM_NCCL_LIB=$build/lib/libfake_nccl.so SYMM_ENGINE=none
    for ranks in 2 3; do
        expect 0 "beside NCCL" overlap --ranks "$ranks" -b 8 -e 1K -f 128 -n 2 -w 1 \
            --compare nccl -J "$work/perf.json" && rows 4 "beside NCCL"
        overlap_json symm "[8,1024]"
        overlap_json nccl "[8,1024]"
        # The one that is compared with finds new inputs, too: its results are those of the last.
        expect 0 "all_reduce beside NCCL" all_reduce --ranks "$ranks" -b 8 -e 1K -f 128 -n 7 -w 1 \
            --compare nccl -J "$work/perf.json"
        jq -e '.results | length == 2 and all(.[]; .nccl.nwrong == 0)' "$work/perf.json" \
            >/dev/null || fail "NCCL's inputs"
    done
fi

[ "$failures" = 0 ] && echo "all right"
[ "$failures" = 0 ]
