#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 40
# ctest: load 2
#
# Spin explores the models of tests/model/ completely: no error in the model as it is, an error in
# every mutant. Each model's head says which functions it models, its claims and its mutants.
# SYMM_TEST_LONG set: larger sizes, too. Exit 77 without spin. tcc compiles a search in 10 ms, cc in
# 0.3 to 1 s.

set -u
export LC_ALL=C
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
model=$root/tests/model/rounds.pml # which one is explored
if ! command -v spin >/dev/null || ! command -v cc >/dev/null; then
    echo "skipped: spin or cc is missing"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0 searches=0 mutants=0
quick=(cc -O0)
! command -v tcc >/dev/null || quick=(tcc)

# What a model says it models must be there: names with an underscore, and files.
grep -rohE --include='*.[ch]' --include='*.cu*' '[A-Za-z0-9_]+' "$root"/{symm,kernels,include} |
    awk '!seen[$0]++' >words
for each in "$root"/tests/model/*.pml; do
    sed -n '/^ \* Functions: /,/^ \*$/p' "$each" >head
    [ -s head ] || { echo "FAILED: ${each##*/} names no functions" && failed=1; }
    for name in $(grep -oE '[a-z0-9_/]*_[a-z0-9_]+(\.[ch])?' head | grep -v / | sort -u); do
        grep -qxF -e "${name%.[ch]}" words && continue
        echo "FAILED: ${each##*/} models $name, which is not there"
        failed=1
    done
    for file in $(grep -oE '[a-z0-9_/]+/[a-z0-9_]+\.(c|h|cuh?)\b' head); do
        [ -e "$root/$file" ] || { echo "FAILED: ${each##*/}: there is no $file" && failed=1; }
    done
done

# search KIND WANTED OPTION...: WANTED is right or wrong. KIND: states, or cycles: is there one in
# which nothing gets on? fair: the same, where every process that can go on does.
# ORDER: in which order states of a mutant are explored; the same order in each run. Both the stack
# (-m) and the table of states (-w) are cleared first, which takes longer than most searches: 10,000
# steps are six times the deepest of the small sizes.
search() {
    local kind=$1 wanted=$2 found states what=-DSAFETY arguments='-m10000 -w18'
    local compile=("${quick[@]}")
    shift 2
    if [ "$wanted" = right ]; then
        arguments='-m10000 -w21'
    elif [ "$kind" = states ]; then
        what="$what ${ORDER:--DP_RAND}" # meets the errors in fewer states than the usual order
    fi
    [ -z "${LARGE-}" ] || { compile=(cc -O2) && arguments='-m1000000 -w22'; }
    case $kind in
    cycles) what='-DNP -DNOFAIR' arguments="$arguments -l" ;;
    fair) what='-DNP' arguments="$arguments -l -f" ;;
    esac
    searches=$((searches + 1))
    [ "$wanted" = right ] || mutants=$((mutants + 1))
    rm -f pan pan.*
    # shellcheck disable=SC2086 # lists of options
    if ! spin -a "$@" "$model" >spin.out 2>&1 ||
        ! "${compile[@]}" $what -DVECTORSZ=2048 -DMEMLIM=${MEMORY:-2000} -o pan pan.c \
            >cc.out 2>&1 ||
        ! timeout 500 ./pan $arguments >pan.out 2>&1; then
        echo "FAILED: $*: could not be explored"
        cat spin.out cc.out pan.out 2>/dev/null | head -n 20
        failed=1
        return
    fi
    found=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out)
    states=$(sed -n 's/^ *\([0-9e.+]*\) states, stored.*/\1/p' pan.out)
    if grep -q 'max search depth too small\|out of memory' pan.out; then
        echo "FAILED: $*: not explored completely"
        failed=1
    elif [ "$wanted" = right ] && [ "$found" != 0 ]; then
        echo "FAILED: $*: $(grep -m 1 '^pan:[0-9]' pan.out)"
        failed=1
    elif [ "$wanted" = wrong ] && [ "$found" = 0 ]; then
        echo "FAILED: $*: the mutant was not found in $states states"
        failed=1
    else
        echo "$*: $states states, $(grep -m 1 '^pan:[0-9]' pan.out || echo no error)"
    fi
}

explore() {
    search states "$@"
}

# explore_long WANTED OPTION...: only with SYMM_TEST_LONG.
explore_long() {
    [ -z "${SYMM_TEST_LONG-}" ] || LARGE=1 MEMORY=8000 search states "$@"
}

begin() {
    model=$root/tests/model/$1.pml
    echo "== $1"
}

begin rounds
explore right -DRANKS=2 -DCALLS=5
explore right -DRANKS=2 -DCALLS=4 -DTIMEOUTS
explore right -DRANKS=3 -DCALLS=3
explore right -DRANKS=3 -DCALLS=2 -DTIMEOUTS
explore wrong -DRANKS=2 -DCALLS=3 -DSLOTS=1 -DDEATHS=0
explore wrong -DRANKS=2 -DCALLS=3 -DIGNORE_TAGS
explore wrong -DRANKS=2 -DCALLS=3 -DIGNORE_DEATH
explore wrong -DRANKS=2 -DCALLS=3 -DTIMEOUTS -DNO_CANCEL

begin relay
explore right -DRANKS=2 -DPARTS=1 -DCALLS=4
explore right -DRANKS=2 -DPARTS=1 -DCALLS=4 -DBARRIERS
explore right -DRANKS=3 -DPARTS=1 -DCALLS=3
explore right -DRANKS=3 -DPARTS=1 -DCALLS=3 -DBARRIERS
explore right -DRANKS=3 -DPARTS=2 -DCALLS=2
explore_long right -DRANKS=3 -DPARTS=2 -DCALLS=3 # 1.5 million states
explore right -DRANKS=3 -DPARTS=3 -DCALLS=2 -DBARRIERS
explore wrong -DRANKS=3 -DNO_ENTRY
explore wrong -DRANKS=3 -DPARTS=3 -DNO_LAG
explore wrong -DRANKS=3 -DNO_EXIT

begin channels
explore right
explore right -DRANKS=3 -DCALLS=1
explore_long right -DCALLS=3
for mutant in KEY_FIRST NO_RECHECK NO_RESTORE NO_DONE ONE_LOOK FORGET; do
    explore wrong "-D$mutant"
done

begin tree
explore right -DGIVE_UPS=0
explore right -DDEATHS=0
explore right -DCUTS=0
explore_long right -DCUTS=0 -DGIVE_UPS=0 -DLEADS=1
explore right -DGONE=1 -DDEATHS=0 -DCUTS=0
# Two at once: up to 3.4 million states, 15 s each.
explore_long right
explore_long right -DGONE=1 -DDEATHS=0
explore wrong -DGONE=1 -DDEATHS=0 -DCUTS=0 -DNO_ASK
explore_long right -DLEADS=1
for mutant in NO_RESEND EARLY_GO EARLY_HAVE NO_KEEP; do
    explore wrong "-D$mutant"
done
for mutant in NO_OUTCOME ANY_VERDICT NO_SAY_AGAIN NO_PARTIAL; do
    explore_long wrong "-D$mutant"
done
explore_long wrong -DCUTS=0 -DGIVE_UPS=0 -DLEADS=1 -DNO_KEEP

begin shrink
explore right -DRANKS=2 -DDEATHS=1 -DCALLS=2 -DTIMEOUTS -DFINALIZE
explore_long right -DRANKS=2 -DDEATHS=0 -DCALLS=2 -DFAILS=1 -DTIMEOUTS
explore right -DRANKS=3 -DDEATHS=0
search cycles right -DRANKS=2 -DDEATHS=1 -DTIMEOUTS
explore_long right -DRANKS=2 -DDEATHS=1 -DCALLS=2 -DFAILS=1 -DTIMEOUTS -DFINALIZE
explore_long right -DRANKS=3 -DDEATHS=1
explore_long right -DRANKS=3 -DDEATHS=2
explore_long right -DRANKS=3 -DDEATHS=0 -DLATES=1
explore_long right -DRANKS=3 -DDEATHS=1 -DFINALIZE
explore_long right -DRANKS=3 -DDEATHS=1 -DFAILS=1
explore wrong -DRANKS=3 -DDEATHS=1 -DNO_CAS
ORDER='-DP_RAND -DT_RAND' explore wrong -DRANKS=2 -DDEATHS=0 -DCALLS=3 -DTIMEOUTS -DNO_RECHECK
explore wrong -DRANKS=2 -DDEATHS=0 -DCALLS=2 -DTIMEOUTS -DONE_PLACE
explore wrong -DRANKS=2 -DDEATHS=1 -DGATHER_IGNORES_DEATH
explore wrong -DRANKS=2 -DDEATHS=1 -DCONCLUDE_IGNORES_DEATH
explore wrong -DRANKS=2 -DDEATHS=1 -DCALLS=2 -DSTALE_JOIN
explore wrong -DRANKS=2 -DDEATHS=1 -DCALLS=2 -DFAILS=1 -DSTALE_MARK
explore wrong -DRANKS=2 -DDEATHS=0 -DCALLS=2 -DNO_HISTORY
explore wrong -DRANKS=3 -DDEATHS=1 -DLATES=1 -DWIDE_AMONG
explore wrong -DRANKS=2 -DDEATHS=0 -DFAILS=1 -DMARK_EARLY
explore wrong -DRANKS=2 -DDEATHS=0 -DFAILS=1 -DFAIL_ALONE
explore wrong -DRANKS=2 -DDEATHS=0 -DFAILS=1 -DDONE_ALONE
search cycles wrong -DRANKS=2 -DDEATHS=1 -DTIMEOUTS -DRETRY_BLINDLY

begin shrink_hosts
explore right -DDEATHS=1 -DDEAD=4 # of two ranks that are left
explore right -DDEATHS=0 -DLATE
explore_long right -DDEATHS=1           # 0.6 million states
explore_long right -DDEATHS=1 -DFAILS=1 # 2.3 million states
for mutant in NO_PROMISE NO_TAKE_OVER ANY_VIEW EARLY_DONE NO_NEW_ROUND; do
    explore wrong "-D$mutant"
done
stops=(-DDEATHS=0 -DSTOPS=1 -DCALLS=2 -DDEAD=4) # of two ranks one stops, in one of two calls
explore right "${stops[@]}"
explore_long right -DDEATHS=0 -DSTOPS=1 # 1 million states
for mutant in NO_GIVE_UP LEAVE LATE_DONE NO_PASS OLD_CELLS; do
    explore wrong "${stops[@]}" "-D$mutant"
done
explore_long wrong -DDEATHS=0 -DSTOPS=1 -DHASTY

begin exchange
explore right -DRANKS=2 -DSTEPS=2 -DLATES=1 -DBADS=1
explore right -DRANKS=3 -DDEATHS=0
explore right -DRANKS=3 -DDEATHS=1
explore_long right -DRANKS=3 -DDEATHS=0 -DLATES=1
explore_long right -DRANKS=3 -DDEATHS=0 -DBADS=1
explore wrong -DRANKS=3 -DDEATHS=0 -DNO_DONE
explore wrong -DRANKS=2 -DDEATHS=0 -DEARLY_DONE
explore wrong -DRANKS=2 -DDEATHS=0 -DSTEPS=2 -DLATES=1 -DNO_FAIL
explore wrong -DRANKS=2 -DSTEPS=2 -DLATES=1 -DNO_LAST_LOOK
explore wrong -DRANKS=2 -DDEATHS=0 -DSTEPS=2 -DLOOK_TAKES
explore wrong -DRANKS=2 -DSTEPS=2 -DLATES=1 -DNO_PAST
explore wrong -DRANKS=2 -DNO_DRAIN
explore wrong -DRANKS=3 -DIGNORE_DEATH
explore wrong -DRANKS=2 -DDEATHS=0 -DBADS=1 -DOWN_FIRST
explore right -DRANKS=2 -DDEATHS=1 -DSTEPS=3 -DSKIPS=2
explore right -DRANKS=2 -DSTEPS=2 -DLATES=1 -DSKIPS=1
explore_long right -DRANKS=3 -DDEATHS=0 -DSTEPS=2 -DSKIPS=1 # 5.6 million states
for mutant in NO_MISSED LATE_ASK NO_REPEAT; do
    explore wrong -DRANKS=2 -DDEATHS=0 -DSTEPS=2 -DSKIPS=1 "-D$mutant"
done

begin signal
explore right -DFAILURE
explore right -DBLOCKS=2 -DPUTS=4 -DFAILURE
explore_long right -DBLOCKS=3 -DFAILURE
explore wrong -DSIGNAL_FIRST
explore wrong -DEQUAL
explore wrong -DPLAIN_ORDER
explore wrong -DNO_BACK
explore wrong -DBLOCKS=2 -DFIRST_BLOCK
explore wrong -DBLOCKS=2 -DNO_RESET
explore wrong -DBLOCKS=2 -DNO_DEPEND
explore wrong -DFAILURE -DIGNORE_RAISED
explore wrong -DFAILURE -DIGNORE_FAILURE
explore wrong -DUNDONE_LATE

begin tokens
explore right -DFAILURE -DCALLS=2
explore right -DREUSE -DCALLS=2
explore_long right -DFAILURE
explore_long right -DFAILURE -DGRAPH
explore_long right -DREUSE -DCALLS=2 -DFAILURE
for mutant in ROOM_FIRST TOKEN_FIRST NO_ROOM; do
    explore wrong "-D$mutant"
done
explore_long wrong -DCLEAR_LATE
for mutant in NO_COPY COPY_FIRST END_FIRST END_ONCE; do
    explore wrong -DFAILURE -DCALLS=2 "-D$mutant"
done
explore_long wrong -DFAILURE -DCALLS=2 -DNO_END
explore wrong -DREUSE -DFAILURE -DCALLS=2 -DKEEP_DIRTY
explore wrong -DREUSE -DCALLS=2 -DNO_ZERO

begin ring
explore right -DUNITS=1
explore right -DSENDERS=2 -DSENDS=1 -DUNITS=1
explore right -DANY -DUNITS=1
explore right -DDEATHS=1 -DSENDS=1
explore right -DTIMEOUTS -DSENDS=1
search fair right -DDEATHS=1 -DSENDS=1 -DUNITS=1
# Up to 7 million states, 10 s each.
explore_long right
explore_long right -DRECEIVERS=2
explore_long right -DSENDERS=2 -DSENDS=1
explore_long right -DSENDERS=2 -DRECEIVERS=2 -DSENDS=1 -DUNITS=1
explore_long right -DANY
explore_long right -DBOTH_ANY
explore_long right -DDEATHS=1
explore_long right -DDEATHS=1 -DANY -DUNITS=1
explore_long right -DTIMEOUTS
for mutant in EARLY_FILL EARLY_FREE NO_WAKE COUNT_LATE NO_LAST_LOOK; do
    explore wrong "-D$mutant"
done
for mutant in NO_ROOM NO_HELD; do
    explore_long wrong "-D$mutant"
done
explore wrong -DSENDERS=2 -DSENDS=1 -DUNITS=1 -DNO_END
explore_long wrong -DRECEIVERS=2 -DGIVE_EARLY
explore wrong -DRECEIVERS=2 -DUNITS=1 -DIGNORE_BUSY
explore wrong -DANY -DUNITS=1 -DANY_NAMED
explore wrong -DDEATHS=1 -DSENDS=1 -DIGNORE_DEATH
explore wrong -DTIMEOUTS -DSENDS=1 -DNO_RESTART

begin budget
explore right -DCALLS=2 -DOTHERS=1 -DGIVE_UPS=0
explore right -DCALLS=1 -DOTHERS=1
explore right -DCALLS=1 -DOTHERS=1 -DGIVE_UPS=0 -DCAPTURES=2
# Up to 11 million states, two minutes.
explore_long right -DCALLS=2
explore_long right -DCALLS=2 -DOTHERS=1 -DGIVE_UPS=0 -DRETURNS=1
explore_long right -DCALLS=2 -DOTHERS=1 -DGIVE_UPS=0 -DDEATHS=1
explore_long right -DLATER -DPARTS=2
explore_long right -DCALLS=1 -DOTHERS=1 -DCAPTURES=2
explore_long right -DCALLS=1 -DOTHERS=2 -DGIVE_UPS=0 -DCAPTURES=2
explore_long right -DCALLS=2 -DOTHERS=1 -DGIVE_UPS=0 -DCAPTURES=1
for mutant in CLAIM_FIRST NO_RECHECK NO_BEFORE WIDE; do
    explore wrong -DCALLS=2 "-D$mutant"
done
explore wrong -DCALLS=2 -DOTHERS=1 -DGIVE_UPS=0 -DRETURNS=1 -DNO_KEEP
explore wrong -DCALLS=2 -DDEATHS=1 -DNO_BREAK
explore wrong -DCALLS=2 -DGIVE_UPS=0 -DCAPTURES=1 -DCOUNTED
for mutant in NO_AGAIN AGAIN_FREE CLAIM_EARLY NO_PIN; do
    explore wrong -DCALLS=1 -DGIVE_UPS=0 -DCAPTURES=2 "-D$mutant"
done
for mutant in NO_RESTORE NO_DONE RECHECK_WORDS NO_COMPARE KEEP_FREE; do
    explore_long wrong -DCALLS=2 "-D$mutant"
done
explore_long wrong -DCALLS=2 -DOTHERS=4 -DNO_BOUNDARY
explore_long wrong -DOTHERS=3 -DANY_CHANGE
explore_long wrong -DLATER -DPARTS=2 -DBOUNDARY_ALWAYS

begin sleep
explore right -DSLEEPERS=3
explore right -DCANCEL
explore right -DFENCE -DNO_SLICE
search fair right -DDEATHS=1
explore wrong -DNO_SLICE
explore wrong -DCANCEL -DFENCE -DNO_SLICE
explore wrong -DFENCE -DNO_SLICE -DNO_COMPARE
explore wrong -DFENCE -DNO_SLICE -DCOUNT_LATE
explore wrong -DFENCE -DNO_SLICE -DWAKE_FIRST
explore wrong -DFENCE -DNO_SLICE -DWAKE_ONE
explore wrong -DFENCE -DNO_SLICE -DCOUNT_SHARED
explore wrong -DNO_POLL
search fair wrong -DDEATHS=1 -DNO_DEADLINE

begin lamport
explore right -DCALLS=6
explore right -DROUNDS=2 -DCALLS=4
explore right -DROUNDS=3 -DFENCES -DCALLS=4
explore right -DROOT -DSLOTS=2
explore right -DLL -DSLOTS=2 -DROUNDS=2
explore right -DLL -DSLOTS=2 -DROOT
explore wrong -DSLOTS=1
explore wrong -DLL -DSLOTS=1
explore wrong -DROUNDS=3 -DCALLS=3
explore wrong -DNO_CLEAN
explore wrong -DNO_DEPEND
explore wrong -DROOT -DNO_MEET
explore wrong -DROOT -DSLOTS=2 -DMEET_FIRST
explore wrong -DLL -DSLOTS=2 -DANY_FLAG

begin liveness
explore right
explore right -DSIGNAL
for mutant in DEATHS_FIRST ONE_PASS ARRIVED_SKIPS ASK_TWICE NO_REREAD NO_RERECORD FINISH_LATE \
    IGNORE_DEATH IGNORE_FINISHED; do
    explore wrong "-D$mutant"
done
explore wrong -DSIGNAL -DNO_CAUSE

begin handshake
explore right -DCUTS=3
search cycles right
explore_long right -DCUTS=5
for mutant in NO_FINISH EARLY_OPEN REPLACE_LOST NO_DEADLINE NO_GUEST_DEADLINE; do
    explore wrong "-D$mutant"
done
search cycles wrong -DKEEP_OLD
search cycles wrong -DSAME_NONCE

begin leave
explore right
explore right -DA_CONNECTS
explore_long right -DRANKS=6
explore_long right -DRANKS=6 -DA_CONNECTS
for mutant in ANY_LEFT KEEP_CHANGES NO_SETTLE QUIET; do
    explore wrong "-D$mutant"
    explore wrong -DA_CONNECTS "-D$mutant"
done
explore wrong -DA_CONNECTS -DNO_ADOPT

begin join
explore right
explore right -DCUTS=1
explore wrong -DNO_RETRY
explore wrong -DLEAVE_EARLY
explore wrong -DCUTS=1 -DCOUNT_TWICE
explore wrong -DCUTS=1 -DREFUSE_AGAIN
explore wrong -DCUTS=1 -DNO_HAVE
if [ -n "${SYMM_TEST_LONG-}" ]; then
    explore right -DFAILS=1
    explore right -DHOSTS=4 -DCUTS=1
    explore right -DHOSTS=4 -DCUTS=2
    explore right -DHOSTS=4 -DCUTS=1 -DFAILS=1
    explore right -DHOSTS=4 -DARITY=2 -DCUTS=1
    explore right -DHOSTS=4 -DARITY=2 -DCUTS=2
    explore wrong -DFAILS=1 -DNO_REASON
    explore wrong -DANY_PARENT
    explore wrong -DONCE
fi

echo "$searches searches, $mutants of them mutants"
exit "$failed"
