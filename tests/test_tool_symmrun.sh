#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 16
#
# symmrun with small shell scripts as ranks: variables, output, exit statuses, failures,
# deadlines, signals; no process outlives it, however it ends.

set -u
export LC_ALL=C
# symmrun leaves alone what it finds ignored, as nohup does with SIGHUP.
if [ -z "${signals_are_default-}" ]; then
    signals_are_default=1 exec env --default-signal=HUP,INT,QUIT,TERM,PIPE bash "$0" "$@"
fi
bin=${BUILD_DIR:-build}/bin
symmrun=$bin/symmrun
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# A duration that no other sleep on this machine has: what is left over is found by it.
long=9876.$$
failed=0 checks=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# run EXPECTED_STATUS ARGUMENT...: symmrun's stdout in out, stderr in err, time in took (ms).
run() {
    local expected=$1 status began
    shift
    checks=$((checks + 1))
    began=$(date +%s%N)
    "$symmrun" "$@" >out 2>err
    status=$?
    took=$((($(date +%s%N) - began) / 1000000))
    if [ "$status" -ne "$expected" ]; then
        fail "symmrun $*: exit status $status, expected $expected"
        sed 's/^/    /' err
    fi
}

# begin ARGUMENT...: the same in the background; waits until each rank has printed "up".
begin() {
    local want
    want=$1
    checks=$((checks + 1))
    shift
    rm -f out err
    "$symmrun" -n "$want" "$@" >out 2>err &
    pid=$!
    for _ in $(seq 2000); do
        [ "$(grep -c up out 2>/dev/null)" = "$want" ] && return
        sleep 0.05
    done
    fail "symmrun -n $want $*: the ranks did not start"
}

# ended EXPECTED_STATUS: of what was begun.
ended() {
    local status
    wait "$pid" 2>/dev/null
    status=$?
    [ "$status" -eq "$1" ] || fail "$2: exit status $status, expected $1"
}

# has FILE TEXT, lacks FILE TEXT, same FILE LINES
has() { grep -qF -- "$2" "$1" || { fail "'$2' is not in $1:" && head -c 600 "$1"; }; }
lacks() { ! grep -qF -- "$2" "$1" || { fail "'$2' is in $1:" && head -c 600 "$1"; }; }
same() {
    [ "$(sort "$1")" = "$(printf '%s\n' "$2" | sort)" ] ||
        { fail "$1 should be '$2', is:" && head -c 600 "$1"; }
}
# within LEAST MOST WHAT: milliseconds. What must not be waited for takes minutes.
within() {
    if [ "$took" -lt "$1" ] || [ "$took" -gt "$2" ]; then
        fail "$3: took $took ms, not $1 to $2"
    fi
}

# Nothing with our duration runs; a killed process may take a moment to be gone.
nothing_left() {
    for _ in $(seq 1200); do
        pgrep -f "sleep $long" >/dev/null || return
        sleep 0.05
    done
    fail "$1: still running: $(pgrep -af "sleep $long")"
    pgrep -f "sleep $long" | xargs -r kill -KILL
}

# ---- Command line ----------------------------------------------------------------------

run 0 --help
has out '--log-dir'
run 0 --version
has out 'symmrun '
run 2
has err '-n is missing'
run 2 -n 2
has err 'no program'
for n in 0 -1 x 1x 4097 99999999999999999999 ''; do
    run 2 -n "$n" true
    has err "'$n'"
done
run 2 -n 2 --nproc-per-node 3 true
has err "--nproc-per-node: found '3', allowed: the same number as before, 2"
run 2 -np 2 true
has err '-np 2 is -n 2 here'
run 0 -n 2 --nproc-per-node 2 true
run 0 --nproc-per-node=2 true
run 2 -n 2 --timeout 0 true
run 2 -n 2 --timeout nan true
run 2 -n 2 --grace -1 true
run 2 -n 2 --bind socket true
has err "--bind: found 'socket', allowed: core, none"
for place in host host: :29400 host:abc host:0 host:65536 host:99999999999 host:29400x; do
    run 2 -n 1 --nnodes 2 --node-rank 0 --rendezvous "$place" true
    has err "--rendezvous: found '$place', allowed: HOST:PORT, the port a number from 1 to 65535"
done
run 0 -n 1 --nnodes 1 --node-rank 0 --rendezvous host:29400 true
run 2 -n 2 --tee true
run 2 -n 2 --no-such-option true
has err 'symmrun --help'

# ---- Variables, streams, binding -------------------------------------------------------

RANK=7 SYMM_RANK=3 SYMM_WORLD_SIZE=9 SYMM_JOB_ID=old TORCHELASTIC_USE_AGENT_STORE=True \
    run 0 -n 2 --no-prefix -- env
for name in RANK LOCAL_RANK ROLE_RANK; do
    has out "$name=0"
    has out "$name=1"
done
for pair in WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 ROLE_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1 \
    MASTER_ADDR=127.0.0.1 TORCHELASTIC_RESTART_COUNT=0 ROLE_NAME=default; do
    [ "$(grep -cx "$pair" out)" = 2 ] || fail "not both ranks have $pair"
done
lacks out SYMM_RANK
lacks out SYMM_WORLD_SIZE
lacks out USE_AGENT_STORE
lacks out SYMM_JOB_ID=old
for name in MASTER_PORT TORCHELASTIC_RUN_ID SYMM_JOB_ID SYMM_SECRET SYMM_STORE; do
    [ "$(grep "^$name=" out | sort -u | wc -l)" = 1 ] || fail "$name is not one for all ranks"
done
grep -qxE 'SYMM_SECRET=[0-9a-f]{32}' out || fail 'SYMM_SECRET is not 32 hex digits'
grep -qxE 'SYMM_STORE=127\.0\.0\.1:[0-9]+' out || fail 'SYMM_STORE is not an address'
one=$(grep -h -E '^SYMM_(JOB_ID|SECRET)=' out | sort -u)
[ "$(grep -cx 'CUDA_DEVICE_MAX_CONNECTIONS=32' out)" = 2 ] || fail 'not 32 hardware queues'
run 0 -n 2 --no-prefix -- env
[ "$one" != "$(grep -h -E '^SYMM_(JOB_ID|SECRET)=' out | sort -u)" ] || fail 'one name, two jobs'

CUDA_DEVICE_MAX_CONNECTIONS=1 run 0 -n 2 --no-prefix -- printenv CUDA_DEVICE_MAX_CONNECTIONS
same out $'1\n1'
CUDA_DEVICE_MAX_CONNECTIONS='' run 0 -n 1 --no-prefix -- printenv CUDA_DEVICE_MAX_CONNECTIONS
same out 32
# With MPS the ranks on a device take their queues from one pool.
mkdir mps && mkfifo mps/control
for pair in 1:32 3:32 4:24 8:12 64:2; do
    CUDA_MPS_PIPE_DIRECTORY=$PWD/mps run 0 -n "${pair%:*}" --no-prefix -- \
        printenv CUDA_DEVICE_MAX_CONNECTIONS
    [ "$(sort -u out)" = "${pair#*:}" ] || fail "not ${pair#*:} queues each for ${pair%:*} ranks"
done

# The ranks' bootstrap has a private directory, which goes with the job.
private() { env -u SYMM_RUNTIME_DIR -u XDG_RUNTIME_DIR "$symmrun" --no-prefix "$@"; }
# shellcheck disable=SC2016
private -n 2 -- sh -c 'stat -c "%n %a %u" "$SYMM_RUNTIME_DIR"
    mkdir -m 700 "$SYMM_RUNTIME_DIR/symm-$(id -u)" 2>/dev/null
    mkfifo "$SYMM_RUNTIME_DIR/symm-$(id -u)/left$RANK"' >out || fail 'a private directory: exit status'
place=$(sed -n '1s/ .*//p' out)
same out "$place 700 $(id -u)"$'\n'"$place 700 $(id -u)"
case $place in /tmp/symmrun-"$(id -u)"-??????) ;; *) fail "the private directory is '$place'" ;; esac
[ ! -e "$place" ] || fail "$place is left"
SYMM_RUNTIME_DIR=/some/where run 0 -n 1 --no-prefix -- printenv SYMM_RUNTIME_DIR
same out /some/where
mkdir -m 700 login
XDG_RUNTIME_DIR=$work/login env -u SYMM_RUNTIME_DIR "$symmrun" -n 1 --no-prefix -- printenv SYMM_RUNTIME_DIR >out
[ "${#work}" -gt 26 ] || grep -q "^$work/login/symmrun-" out || fail "XDG_RUNTIME_DIR is not used: $(cat out)"
[ -z "$(ls login)" ] || fail 'the directory in XDG_RUNTIME_DIR is left'
# One whose symmrun and reaper were killed goes with the next job; one in use stays.
stale=$(mktemp -d "/tmp/symmrun-$(id -u)-XXXXXX")
mkdir -m 700 "$stale/symm-$(id -u)" && mkfifo "$stale/symm-$(id -u)/0123"
# Locked by its descriptor: by its name flock would make a file if another job has swept it before.
for _ in 1 2 3 4 5; do
    held=$(mktemp -d "/tmp/symmrun-$(id -u)-XXXXXX")
    { exec 8<"$held"; } 2>/dev/null && flock -n 8 && [ -d "$held" ] && break
done
private -n 1 -- true 8<&-
[ ! -e "$stale" ] || fail 'the directory of a killed job is left'
[ -d "$held" ] || fail 'the directory of a running job was removed'
exec 8<&-
rmdir "$held" 2>/dev/null
# A umask that keeps the owner out of what is made: the directory and the sockets are usable all the
# same. root may use them with any mode.
as=() uid=$(id -u)
[ "$uid" != 0 ] || { uid=61234 && as=(setpriv --reuid "$uid" --regid "$uid" --clear-groups); }
if "${as[@]}" test -x "$bin/rank_program" 2>/dev/null; then
    (cd / && umask 777 && env -u SYMM_RUNTIME_DIR -u XDG_RUNTIME_DIR "${as[@]}" "$symmrun" -n 2 -- \
        "$bin/rank_program") >out 2>err || fail "a umask of 777: $(cat err)"
    [ -z "$(find /tmp -maxdepth 1 -name "symmrun-$uid-*")" ] || fail 'a directory is left'
fi

# Descriptors, signal mask and SIGPIPE are what symmrun itself was started with.
run 0 -n 1 --no-prefix -- ls /proc/self/fd
ls /proc/self/fd >plain
same out "$(cat plain)"
run 0 -n 1 --no-prefix -- cat /proc/self/status
cat /proc/self/status >plain
[ "$(grep SigBlk out)" = "$(grep SigBlk plain)" ] || fail 'the signal mask has changed'
ignored=$(awk '/SigIgn/ { print $2 }' out plain | tr '\n' ' ')
(((0x${ignored% * } & 0x1000) == (0x${ignored#* } & 0x1000))) || fail 'SIGPIPE has changed'

printf 'typed\n' >in
"$symmrun" -n 2 -- cat <in >out || fail 'stdin: exit status'
same out '[0] typed'

run 0 -n 2 -- sh -c 'echo out; echo err >&2; printf "no newline"'
same out $'[0] out\n[1] out\n[0] no newline\n[1] no newline'
same err $'[0] err\n[1] err'
run 0 -n 1 --no-prefix -- printf 'a\n\nb'
same out $'a\n\nb'

# Lines of 3 MB from three ranks at once stay whole.
# shellcheck disable=SC2016
run 0 -n 3 -- sh -c 'for i in 1 2; do head -c 3000000 /dev/zero | tr "\0" $RANK; echo; done'
[ "$(wc -l <out)" = 6 ] || fail "long lines: $(wc -l <out) lines"
awk '{ c = substr($0, 2, 1); sub(/^\[[0-9]\] /, ""); if (length($0) != 3000000) exit 1
       gsub(c, ""); if (length($0)) exit 1 }' out || fail 'long lines were mixed or cut'

# A reader that is slow, and one that goes away.
# shellcheck disable=SC2016
lines=$("$symmrun" -n 2 -- seq 100000 | { sleep 0.5 && wc -l; })
[ "$lines" = 200000 ] || fail "slow reader: $lines lines"
# One that pauses for longer than what ranks leave behind is waited for: the ranks have ended long since.
lines=$("$symmrun" -n 2 -- seq 20000 | { sleep 2.5 && wc -l; })
[ "$lines" = 40000 ] || fail "a reader's pause after the end of the ranks: $lines lines"
lines=$("$symmrun" -n 2 -- sh -c 'seq 20000 >&2' 2>&1 >/dev/null | { sleep 2.5 && wc -l; })
[ "$lines" = 40000 ] || fail "a reader's pause, stderr: $lines lines"
# A pause of symmrun itself.
{ "$symmrun" -n 2 -- seq 20000 & echo $! >paused && wait $! && echo 0 >status; } 2>err |
    { sleep 0.7 && kill -STOP "$(cat paused)" && sleep 2 && kill -CONT "$(cat paused)" && wc -l; } >out
[ "$(cat out status)" = $'40000\n0' ] || fail "stopped with output that waits: $(cat out status)"
# A signal ends the wait for the reader. What is lost then shows in the exit status.
for which in 1 2; do
    rm -f reader
    mkfifo reader
    exec 9<>reader
    case $which in
    1) "$symmrun" -n 1 -- seq 20000 >reader 2>err & ;;
    2) "$symmrun" -n 1 -- sh -c 'seq 20000 >&2' >out 2>reader & ;;
    esac
    pid=$!
    # Until the rank has ended: a zombie, beside the reaper.
    for _ in $(seq 1200); do
        ! ps -o stat=,comm= --ppid "$pid" | grep -q '^Z' || break
        sleep 0.05
    done
    kill -TERM "$pid"
    wait "$pid"
    status=$?
    [ "$status" = 143 ] || fail "a signal while output waits for its reader: exit status $status, stream $which"
    exec 9<&-
done
# The ranks of the latter end as they would without symmrun, if they write for ever, too.
timeout -s KILL 60 "$symmrun" -n 2 -- yes 2>err | head -n 1 >out
[ "${PIPESTATUS[0]}" = 141 ] || fail 'a reader that went away: the ranks have not got SIGPIPE'
grep -q '^symmrun: rank [01] was killed by SIGPIPE' err || fail 'a reader that went away: not said'
# Who does not mind SIGPIPE may go on; a rank that writes its files, too, does.
timeout -s KILL 60 "$symmrun" -n 1 -- sh -c 'trap "" PIPE; seq 100000; touch went_on; exit 3' 2>err | head -n 1 >out
[ "${PIPESTATUS[0]}" = 3 ] && [ -e went_on ] || fail 'a rank that ignores SIGPIPE did not go on'
"$symmrun" -n 1 --log-dir logs --tee -- seq 100000 | head -n 1 >out
[ "${PIPESTATUS[0]}" = 0 ] || fail '--tee: a reader that went away changed the exit status'
[ "$(tail -n 1 logs/rank0.out)" = 100000 ] || fail '--tee: a reader that went away cut the file'

# Output that cannot be written is not lost silently.
"$symmrun" -n 2 -- echo hi >&- 2>err
[ $? = 1 ] || fail 'a closed stdout: not exit status 1'
same err 'symmrun: stdout: Bad file descriptor; what the ranks write there is lost'
"$symmrun" -n 2 -- sh -c 'echo hi; exit 3' >&- 2>err
[ $? = 3 ] || fail 'a closed stdout: not the exit status of the rank that failed'
"$symmrun" -n 1 -- printf unended >&- 2>err
[ $? = 1 ] || fail 'a closed stdout and a line without its end: not exit status 1'
"$symmrun" -n 1 -- sh -c 'echo hi >&2' >out 2>&-
[ $? = 1 ] || fail 'a closed stderr: not exit status 1'
"$symmrun" -n 1 -- sh -c 'cat; echo hi' <&- >out 2>err || fail 'a closed stdin: exit status'
same out '[0] hi'
"$symmrun" -n 2 -- true >&- 2>&- <&- || fail 'closed streams that nothing is written to'
if [ -w /dev/full ]; then
    "$symmrun" -n 2 -- sh -c 'echo hi; sleep 0.2; echo hi' >/dev/full 2>err
    [ $? = 1 ] || fail 'a full stdout: not exit status 1'
    same err 'symmrun: stdout: No space left on device; what the ranks write there is lost'
    "$symmrun" -n 2 -- sh -c 'echo hi; exit 3' >/dev/full 2>err
    [ $? = 3 ] || fail 'a full stdout: not the exit status of the rank that failed'
    "$symmrun" -n 2 -- sh -c 'echo hi >&2' >out 2>/dev/full
    [ $? = 1 ] || fail 'a full stderr: not exit status 1'
    for option in --help --version; do
        "$symmrun" $option >/dev/full 2>err
        [ $? = 1 ] || fail "$option to a full disk: not exit status 1"
        same err 'symmrun: stdout: No space left on device'
        "$symmrun" $option >&- 2>err
        [ $? = 1 ] || fail "$option to a closed stdout: not exit status 1"
    done
fi
# The limit of a file's size does not end symmrun, and ranks have their default action.
(ulimit -f 1 && exec "$symmrun" -n 1 --no-prefix -- head -c 5000 /dev/zero) >out 2>err
[ $? = 1 ] || fail 'a limit on the size of stdout: not exit status 1'
same err 'symmrun: stdout: File too large; what the ranks write there is lost'
(ulimit -f 1 && exec "$symmrun" -n 1 -- head -c 5000 /dev/zero) 2>err | cat >out
[ "${PIPESTATUS[0]}" = 0 ] || fail 'ranks that write to a pipe are kept from it by ulimit -f'
run 153 -n 1 -- sh -c 'ulimit -f 1; exec head -c 5000 /dev/zero >big'
has err 'killed by SIGXFSZ'

run 0 -n 2 -v -- true
grep -qE 'bound|binding' err || fail '--verbose does not speak of binding'
run 0 -n 2 -v --bind none -- true
lacks err bound
run 0 -n 64 -v -- true
[ "$(nproc)" -ge 64 ] || has err '64 ranks on'

# ---- Files -----------------------------------------------------------------------------

run 0 -n 2 --log-dir logs -- sh -c 'echo out; printf err >&2'
same out ''
same logs/rank0.out out
same logs/rank1.err err
run 0 -n 2 --log-dir logs --tee -- sh -c 'echo new; printf err >&2'
same out $'[0] new\n[1] new'
same err $'[0] err\n[1] err'
same logs/rank1.out new
[ "$(wc -c <logs/rank0.err)" = 3 ] || fail '--tee: the file is not what the rank wrote'
# A limit of 1 KiB on files: symmrun goes on, and says what is not whole.
(ulimit -f 1 && exec "$symmrun" -n 1 --no-prefix --log-dir full --tee -- head -c 5000 /dev/zero) \
    2>err | wc -c >out
[ "${PIPESTATUS[0]}" = 1 ] || fail 'a file that is incomplete: not exit status 1'
same out 5001
same err 'symmrun: rank 0: full/rank0.out is incomplete: File too large'
touch file
run 1 -n 2 --log-dir file -- true
same err "symmrun: cannot use 'file' for --log-dir: Not a directory"
mkfifo pipe
run 1 -n 2 --log-dir pipe -- true
same err "symmrun: cannot use 'pipe' for --log-dir: Not a directory"
run 1 -n 2 --log-dir no/such/place -- true
has err 'no/such/place'

# What lies under a rank's name already and is no file of this user's own: an error that
# leaves it as it is, even with a rank that would have come before.
# squatted WHAT COMMAND: with logs/rank1.err made by COMMAND.
squatted() {
    rm -rf logs
    mkdir logs
    echo precious >precious
    eval "$2"
    for tee in '' --tee; do
        run 1 -n 2 --timeout 20 --log-dir logs $tee -- sh -c 'echo lost; echo lost >&2'
        has err "logs/rank1.err cannot be written: it is there already and $1"
        within 0 15000 "$2"
    done
    same precious precious
    [ ! -e new ] || fail "$2: symmrun has made what the link names"
}
squatted 'is a symbolic link' 'ln -s ../precious logs/rank1.err'
squatted 'is a symbolic link' 'ln -s ../new logs/rank1.err'
squatted 'is a symbolic link' 'ln -s rank1.err logs/rank1.err'
squatted 'is a symbolic link' 'ln -s /dev/null logs/rank1.err'
squatted 'has a second name' 'ln precious logs/rank1.err'
squatted 'is no regular file' 'mkfifo logs/rank1.err'
squatted 'is no regular file' 'mkfifo logs/rank1.err; sleep 20 <>logs/rank1.err & reader=$!'
kill "$reader"
wait "$reader" 2>/dev/null
squatted 'is no regular file' 'mkdir logs/rank1.err'
if [ "$(id -u)" = 0 ] && chown 54321 precious 2>/dev/null; then
    squatted 'belongs to another user' 'echo old >logs/rank1.err; chown 54321 logs/rank1.err'
    same logs/rank1.err old
    mkdir elsewhere
    ln -s elsewhere theirs
    chown -h 54321 theirs
    run 1 -n 1 --log-dir theirs -- true
    same err "symmrun: cannot use 'theirs' for --log-dir: it is a link of another user"
    [ -z "$(ls elsewhere)" ] || fail "another user's link was followed"
    mknod logs/rank0.out c 1 3 2>/dev/null &&
        run 1 -n 1 --log-dir logs -- true && has err 'is no regular file'
fi
rm -rf logs mine
mkdir mine
ln -s mine logs # a link of the user's own may name the directory
run 0 -n 1 --log-dir logs -- echo hi
same mine/rank0.out hi
run 0 -n 1 --log-dir logs -- echo new
same mine/rank0.out new
run 3 -n 2 --log-dir logs -- sh -c 'exit 3'
has err 'see logs/rank'

# ---- Failures --------------------------------------------------------------------------

# shellcheck disable=SC2016
run 7 -n 3 --grace 0.3 -- sh -c 'test $RANK = 1 && exit 7; sleep '$long
has err 'rank 1 exited with status 7; the other ranks have 0.3 s'
within 200 60000 'grace 0.3'
nothing_left 'after a failure'
has err 'SIGTERM to rank 0, rank 2, not ended after 0.3 s'
lacks err SIGKILL
# shellcheck disable=SC2016
run 137 -n 2 --grace 0.2 -- sh -c 'test $RANK = 0 && kill -KILL $$; sleep '$long
has err 'rank 0 was killed by'
# Ranks that end in time are not disturbed, and do not change the status.
# shellcheck disable=SC2016
run 4 -n 2 --grace 60 -- sh -c 'test $RANK = 1 && exit 4; trap "echo TERM" TERM; sleep 0.5; echo bye; exit 9'
same out '[0] bye'
within 400 60000 'a rank that ends by itself'
# Those that ignore SIGTERM are killed a second later.
# shellcheck disable=SC2016
run 5 -n 2 --grace 0 -- sh -c 'trap "" TERM; touch up$RANK
    while [ ! -e up0 ]; do sleep 0.02; done; test $RANK = 1 && exit 5; sleep '$long
has err 'SIGTERM to rank 0, not ended after 0 s'
has err 'SIGKILL to rank 0, not ended by SIGTERM'
within 900 60000 'SIGKILL after SIGTERM'
nothing_left 'after SIGKILL'

run 127 -n 3 -- /no/such/program
[ "$(grep -c 'no/such/program' err)" = 1 ] || fail 'no such program: not told once'
[ "$(wc -l <err)" = 1 ] || { fail 'no such program: more than one line' && cat err; }
within 0 60000 'no such program'
run 127 -n 2 -- /etc/passwd
has err 'Permission denied'

# What a rank leaves behind may still write a little, and is then ended.
# For half a second: on a busy machine that may be too short.
for _ in 1 2 3 4 5; do
    run 0 -n 1 -- sh -c '(sleep 0.2; echo late) & echo done'
    grep -q late out && break
done
same out $'[0] done\n[0] late'
run 0 -n 2 -- sh -c "sleep $long & sleep $long >/dev/null 2>&1 & echo done"
within 500 60000 'processes left behind'
nothing_left 'processes left behind'

# ---- Deadline --------------------------------------------------------------------------

run 124 -n 2 --timeout 0.3 -- sleep $long
has err 'timeout after 0.3 s: ending rank 0, rank 1'
within 300 60000 timeout
run 124 -n 2 --timeout 3 -- sh -c "trap '' TERM; sleep $long; sleep $long"
within 3900 60000 'timeout, SIGTERM ignored'
nothing_left timeout
run 0 -n 2 --timeout 120 -- true
within 0 60000 'timeout not reached'

# ---- Signals ---------------------------------------------------------------------------

for signal in INT:130 TERM:143 HUP:129; do
    begin 2 -- sh -c "echo up; sleep $long"
    kill -s "${signal%:*}" "$pid"
    ended "${signal#*:}" "${signal%:*}"
    has err "SIG${signal%:*}: passed on"
    nothing_left "${signal%:*}"
done
# Ranks that end well on SIGTERM.
begin 2 -- sh -c "trap 'echo bye; exit 0' TERM; echo up; sleep $long & wait"
kill -TERM "$pid"
ended 0 'SIGTERM, handled'
[ "$(grep -c bye out)" = 2 ] || fail 'not both ranks have got SIGTERM'
# Stubborn ones: grace, SIGTERM, SIGKILL; and a second signal does not wait.
begin 2 --grace 0.2 -- sh -c "trap '' TERM INT; echo up; sleep $long; sleep $long"
kill -INT "$pid"
ended 137 'SIGINT, ignored'
begin 2 --grace 60 -- sh -c "trap '' TERM INT; echo up; sleep $long; sleep $long"
kill -TERM "$pid"
for _ in $(seq 1200); do # two signals at once would be one
    ! grep -q 'SIGTERM: passed on' err || break
    sleep 0.05
done
kill -TERM "$pid"
ended 137 'SIGTERM twice'
has err 'again'
nothing_left 'ignored signals'

# SIGUSR1 and SIGUSR2 go to the ranks, to no process that these have started, and end nothing.
for signal in USR1 USR2; do
    begin 2 -- bash -c "trap 'got=1' $signal; sleep $long & echo up
        until [ -n \"\${got-}\" ]; do sleep 0.02; done
        kill -0 \$! && echo got; kill \$!; until [ -e end ]; do sleep 0.02; done; exit 0"
    kill -s $signal "$pid"
    for _ in $(seq 1200); do
        [ "$(grep -c got out)" = 2 ] && break
        sleep 0.05
    done
    [ "$(grep -c got out)" = 2 ] || fail "not both ranks have got SIG$signal"
    kill -0 "$pid" || fail "SIG$signal has ended symmrun"
    touch end
    ended 0 $signal
    rm end
done
# One that comes before the ranks are programs waits for them.
begin 1 -- sh -c 'echo up; sleep 20'
kill -USR1 "$pid"
ended 138 'SIGUSR1, not handled by the rank'
has err 'rank 0 was killed by SIGUSR1'
# One that symmrun was told to ignore stays ignored, as with nohup.
rm -f out
(trap '' USR1 && exec "$symmrun" -n 1 -- sh -c 'echo up; sleep 1; exit 0') >out 2>err &
pid=$!
for _ in $(seq 1200); do
    grep -q up out && break
    sleep 0.05
done
kill -USR1 "$pid"
ended 0 'SIGUSR1, ignored'

# SIGKILL of symmrun: the ranks, what they have started, and the reaper go.
unset SYMM_RUNTIME_DIR XDG_RUNTIME_DIR
begin 3 -- sh -c "echo up; echo place \$SYMM_RUNTIME_DIR; sleep $long & sleep $long; sleep $long"
place=$(sed -n 's/.*place //p' out | head -n 1)
reaper=$(pgrep -P "$pid" symmrun-reaper) || fail 'there is no reaper'
kill -KILL "$pid"
ended 137 SIGKILL
nothing_left 'SIGKILL of symmrun'
for _ in $(seq 1200); do
    grep -q '^State:.[RSD]' "/proc/${reaper:-0}/status" 2>/dev/null || break
    sleep 0.05
done
! grep -q '^State:.[RSD]' "/proc/${reaper:-0}/status" 2>/dev/null || fail 'the reaper is left'

[ -n "$place" ] && [ ! -e "$place" ] || fail "the directory '$place' is left"

[ "$failed" = 0 ] || exit 1
echo "all of $checks runs went as they should"
