#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 30
#
# Spin explores the models of the signal round (tests/model/rounds.pml), of the relayed broadcast
# (relay.pml) and of an exchange over the tree of hosts (tree.pml) completely: no error, for the
# round with deaths, mistakes and late ranks, for the tree with lost connections and relays; an
# error for every mutant. SYMM_TEST_LONG set: the largest of the tree, too. Exit 77 without spin.

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
failed=0

# explore WANTED OPTION...: WANTED is right or wrong.
explore() {
    local wanted=$1 found states
    shift
    rm -f pan pan.*
    if ! spin -a "$@" "$model" >spin.out 2>&1 ||
        ! cc -O1 -DSAFETY -DVECTORSZ=2048 -DMEMLIM=2000 -o pan pan.c >cc.out 2>&1 ||
        ! timeout 500 ./pan -m1000000 >pan.out 2>&1; then
        echo "FAILED: $*: could not be explored"
        cat spin.out cc.out pan.out 2>/dev/null | head -n 20
        failed=1
        return
    fi
    found=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out)
    states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' pan.out)
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

explore right -DRANKS=2 -DCALLS=5
explore right -DRANKS=2 -DCALLS=4 -DTIMEOUTS
explore right -DRANKS=3 -DCALLS=3
explore right -DRANKS=3 -DCALLS=2 -DTIMEOUTS
explore wrong -DRANKS=2 -DCALLS=3 -DSLOTS=1 -DDEATHS=0
explore wrong -DRANKS=2 -DCALLS=3 -DIGNORE_TAGS
explore wrong -DRANKS=2 -DCALLS=3 -DIGNORE_DEATH
explore wrong -DRANKS=2 -DCALLS=3 -DTIMEOUTS -DNO_CANCEL

model=$root/tests/model/relay.pml
explore right -DRANKS=2 -DPARTS=1 -DCALLS=4
explore right -DRANKS=2 -DPARTS=1 -DCALLS=4 -DBARRIERS
explore right -DRANKS=3 -DPARTS=1 -DCALLS=3
explore right -DRANKS=3 -DPARTS=1 -DCALLS=3 -DBARRIERS
explore right -DRANKS=3 -DPARTS=2 -DCALLS=3
explore right -DRANKS=3 -DPARTS=3 -DCALLS=2 -DBARRIERS
explore wrong -DRANKS=3 -DNO_ENTRY
explore wrong -DRANKS=3 -DPARTS=3 -DNO_LAG
explore wrong -DRANKS=3 -DNO_EXIT

model=$root/tests/model/tree.pml
explore right -DGIVE_UPS=0
explore right -DDEATHS=0
# Both at once: 2.7 million states, 12 s.
[ -z "${SYMM_TEST_LONG-}" ] || explore right
for mutant in NO_RESEND EARLY_GO NO_OUTCOME ANY_VERDICT NO_SAY_AGAIN NO_PARTIAL EARLY_HAVE; do
    explore wrong "-D$mutant"
done
exit "$failed"
