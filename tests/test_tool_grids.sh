#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Jobs over hosts on the host backend with Open MPI's engine: every collective, dtype and reduction
# over grids of hosts x ranks, equal and unequal, in and out of the order of ranks, and a program
# of several teams. symm-perf compares every element, in place and out of place, with sums that
# are rounded where symm.h says so: steps that are another way's give other bits.
# 3 x 2 and small irregular grids, and sums over 3 x 5; with SYMM_TEST_LONG=1 all of it over
# 3 x 5, 2 x 8, 4 x 8 and 16 x 4, and larger messages.
# ctest: cost 11
# ctest: load 3

long=${SYMM_TEST_LONG:-} # the stage unsets it
programs=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}/bench/programs
# shellcheck source=tests/hosts_stage.sh
. "${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}/tests/hosts_stage.sh"
mpirun=$(command -v mpirun.openmpi || command -v mpirun)
if [ -z "$mpirun" ] || [ ! -e "$lib/libsymm_mpi.so" ] || ! "$mpirun" --version | grep -q open-mpi; then
    echo "skipped: Open MPI's mpirun and libsymm_mpi.so are needed"
    exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader
export SYMM_ENGINE=mpi SYMM_JOB_SECRET=$secret SYMM_TEAM_BYTES=8M

# Rank r is on host number r of $HOSTS.
cat >rank.sh <<'END'
set -- $HOSTS -- "$@"
shift "$OMPI_COMM_WORLD_RANK"
export SYMM_HOST_ID=host$1
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
END

# on "HOST OF EACH RANK" COMMAND...: $status, output in out and err
on() {
    local ranks
    export HOSTS=$1
    shift
    checks=$((checks + 1))
    ranks=$(wc -w <<<"$HOSTS")
    timeout 300 "$mpirun" --oversubscribe -n "$ranks" sh rank.sh "$@" >out 2>err </dev/null
    status=$?
}

# Rows that the last symm-perf has found wrong, and what it has said.
complain() {
    fail "$* over the hosts $HOSTS: status $status"
    awk 'NF == 13 && ($9 > 0 || $13 > 0)' out | head -3
    grep -v '^-\|^$\|mpirun\|Primary job' err | head -3
}

perf() { on "$1" "$bin/symm-perf" "${@:2}" --no-pin; }
right() {
    perf "$@" -n 1 -w 0
    { [ "$status" = 0 ] && grep -q 'Out of bounds values : 0 OK' out &&
        grep -qF "$(wc -w <<<"$1") ranks" out; } || complain "${@:2}"
}

# all_right HOSTS SIZES...: every collective, every dtype, every reduction that the dtype takes.
all_right() {
    local rows
    for op in all_reduce reduce_scatter; do
        right "$1" "$op" -d all -o all "${@:2}"
        rows=$(grep -cE '^ +[0-9]+ +[0-9]+ +[a-z0-9]+ +[a-z]+ ' out)
        [ "$rows" = $((94 * sizes)) ] || fail "$op over $1: $rows rows instead of 94 x $sizes"
    done
    for op in all_gather all_to_all "broadcast -r $(($(wc -w <<<"$1") - 2))"; do
        # shellcheck disable=SC2086
        right "$1" $op -d all "${@:2}"
    done
}

# grid HOSTS RANKS: the hosts of all ranks, in blocks.
grid() {
    local h r
    for ((h = 0; h < $1; h++)); do
        for ((r = 0; r < $2; r++)); do echo -n "$h "; done
    done
}

# ---- Grids ----------------------------------------------------------------------------
sizes=2 # the smaller one does not divide by the ranks
small=(-b 1000 -e 9000 -i 7000)
all_right "$(grid 3 2)" "${small[@]}"
right "$(grid 3 5)" all_reduce -d all "${small[@]}"
# Unequal numbers of ranks, hosts in turns, and both.
right "0 0 1 1 1" all_reduce -d all -o all "${small[@]}"
right "0 1 2 0 1 2" reduce_scatter -d all -o all "${small[@]}"
right "0 1 1 0 2" all_reduce -d float8_e5m2 -o all "${small[@]}" --algorithm engine
right "0 1 1 0 2" broadcast -r 3 -d int8 "${small[@]}"
right "0 0 1 1 2" all_reduce_norm -d bfloat16 --hidden 64 -b 1K -e 4K
perf "0 0 1 1" replay "$programs/tp2-dp2-two-streams.json" --iterations 2
[ "$status" = 0 ] || complain replay
if [ -n "$long" ]; then
    for shape in "3 5" "2 8" "4 8" "16 4"; do
        # shellcheck disable=SC2086
        all_right "$(grid $shape)" "${small[@]}"
    done
    for hosts in "0 0 1 1 1" "0 1 2 0 1 2" "0 1 1 0 2"; do
        all_right "$hosts" "${small[@]}"
    done
    sizes=1
    all_right "$(grid 3 5)" -b 1000000 -e 1000000
    all_right "$(grid 2 8)" -b 6M -e 6M
fi

[ -z "$(ls runtime)$(ls engine)" ] || fail "left behind: $(ls runtime engine)"
[ "$failed" = 0 ] && echo "$checks checks"
exit "$failed"
