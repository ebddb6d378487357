#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# symmrun reports a rank that the kernel's out-of-memory killer ended: in a real memory cgroup
# of 256 MiB, if the user may make one, and with fake cgroup files in a mount namespace, of
# both versions. A rank that is killed otherwise is not reported as out of memory.

set -u
export LC_ALL=C
symmrun=$(realpath "${BUILD_DIR:-build}/bin/symmrun") && [ -x "$symmrun" ] || exit 77
work=$(mktemp -d) || exit 1
group=''
trap 'rm -rf "$work"; [ -z "$group" ] || rmdir "$group" 2>/dev/null' EXIT
cd "$work" || exit 1
failed=0 checks=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# ---- A real cgroup ---------------------------------------------------------------------

# enter_group: makes $group with a limit; the shell that calls it goes into it.
make_group() {
    local root
    for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
        group=$root/symmtest.$$
        mkdir "$group" 2>/dev/null || continue
        { echo 268435456 >"$group/memory.limit_in_bytes" ||
            echo 268435456 >"$group/memory.max"; } 2>/dev/null || { rmdir "$group" && continue; }
        { echo 0 >"$group/memory.swap.max"; } 2>/dev/null
        return 0
    done
    group=''
    return 1
}

if [ "$(id -u)" = 0 ] && make_group; then
    # Half of what is doubled at each step is more than the limit, soon.
    (
        echo "$BASHPID" >"$group/cgroup.procs" && touch entered &&
            exec timeout 60 "$symmrun" -n 2 --grace 0.2 -- bash -c \
                '[ "$RANK" = 1 ] || exec sleep 30; x=$(head -c 4000000 /dev/zero | tr "\0" x)
                 while :; do x=$x$x; done'
    ) >out 2>err
    status=$?
    if [ -e entered ] && grep -qE '^oom_kill [1-9]' "$group/memory.oom_control" \
        "$group/memory.events" 2>/dev/null; then
        checks=$((checks + 1))
        [ $status = 137 ] || fail "a rank that the kernel killed: exit status $status"
        grep -q "rank 1 was killed by SIGKILL (signal 9); the kernel's out-of-memory killer" err ||
            fail "not said what it was: $(cat err)"
        grep -q "268435456 bytes" err || fail "the limit is not named: $(cat err)"
    else
        echo "the kernel killed nothing in $group: left out"
    fi
else
    echo 'no memory cgroup may be made: left out'
fi

# ---- Files of our own ------------------------------------------------------------------

# with_files FILE TEXT LIMIT_FILE LIMIT: symmrun where the file counts; the rank counts on.
cat >inside.sh <<'END'
set -eu
mount -t tmpfs none /sys/fs/cgroup
while IFS=: read -r id list path; do # where this process is, as symmrun reads it
    case ,$list, in *,memory,*) at=/sys/fs/cgroup/memory$path; break ;; esac
    [ -n "$list" ] || unified=/sys/fs/cgroup$path
done </proc/self/cgroup
if [ -n "${at-}" ]; then
    file=memory.oom_control limit=memory.limit_in_bytes
else
    at=${unified:?} file=memory.events limit=memory.max
fi
[ "$1" = named ] || case $at in /sys/fs/cgroup/memory*) at=/sys/fs/cgroup/memory ;; *) at=/sys/fs/cgroup ;; esac
mkdir -p "$at"
printf 'low 0\noom_kill_disable 0\noom 7\noom_kill 4\n' >"$at/$file"
echo "$2" >"$at/$limit"
touch mounted
export count=$at/$file
run() { set +e; "$symmrun" -n 1 -- sh -c "$1" >out 2>"$2"; echo $? >>statuses; }
run 'sed -i "s/oom_kill 4/oom_kill 6/" "$count"; kill -KILL $$' killed
run 'sed -i "s/oom_kill 6/oom_kill 7/" "$count"; exit 137' child
run 'kill -KILL $$' other
END
export symmrun
for place in named root; do
    rm -f mounted statuses
    if unshare -m bash inside.sh $place 1048576 >log 2>&1 || [ -e mounted ]; then
        checks=$((checks + 3))
        [ "$(tr '\n' ' ' <statuses)" = '137 137 137 ' ] || fail "exit statuses $(cat statuses)"
        grep -q 'has ended 2 processes since.* is 1048576 bytes' killed || fail "$place: $(cat killed)"
        grep -q 'exited with status 137; .* has ended 1 process since' child || fail "$place: $(cat child)"
        ! grep -q 'out-of-memory' other || fail "$place, another SIGKILL: $(cat other)"
    else
        echo "mount namespaces: left out, $(tail -n 1 log)"
    fi
done
if unshare -m bash inside.sh named max >log 2>&1; then
    ! grep -q 'where memory' killed || fail "a limit that is none: $(cat killed)"
fi

[ "$failed" = 0 ] || exit 1
[ "$checks" -gt 0 ] || exit 77
echo "$checks checks"
