#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Strangers at the rendezvous of `symmrun --nnodes`: for any number of their connections and
# anything that they send or omit, both nodes join soon, and the log stays short. Signals end
# the wait at once. SYMM_TEST_LONG=1: 10,000 connections of each kind instead of 1,100 (node
# 0 keeps 258).
# ctest: cost 5
# ctest: load 2

set -u
export LC_ALL=C
symmrun=${BUILD_DIR:-build}/bin/symmrun
[ -x "$symmrun" ] || { echo 'not built: skipped'; exit 77; }
command -v python3 >/dev/null || { echo 'no python3: skipped'; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
symmrun=$(realpath "$symmrun")
cd "$work" || exit 1

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

cat >strangers.py <<'END'
"""strangers.py SYMMRUN KIND COUNT LIMIT: a job of two nodes among COUNT strangers of a KIND."""
import os, resource, signal, socket, struct, subprocess, sys, threading, time

run, kind, count, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
if hard != resource.RLIM_INFINITY:
    count = min(count, hard - 64)
probe = socket.socket()
probe.bind(("127.0.0.1", 0))
port = probe.getsockname()[1]
probe.close()
secret = "00112233445566778899aabbccddeeff"

def handshake(version=1, node=1, nodes=2, ranks=1):
    return struct.pack("!IIIIII", 0x53594D4E, version, node, nodes, ranks, 0) + os.urandom(16)

def node(rank, env_secret=secret, nodes=2, extra=()):
    env = dict(os.environ, SYMM_SECRET=env_secret)
    args = [run, "-n", "1", "--nnodes", str(nodes), "--node-rank", str(rank), "--rendezvous",
            "127.0.0.1:%d" % port, "--bind", "none", *extra, "--", "true"]
    return subprocess.Popen(args, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

sends = {"silent": b"", "partial": handshake()[:39], "byte": b"S", "garbage": b"GET / HTTP/1.0\r\n\r\n",
         "handshake": handshake(), "loud": handshake() + b"x" * 100000, "version": handshake(version=9),
         "wrong": handshake() + b"\0" * 8, "magic": b"NMYS" + handshake()[4:], "gone": None}
start = time.time()
first = node(0)
strangers = []
while len(strangers) < count:
    try:
        c = socket.create_connection(("127.0.0.1", port), 5)
        c.setblocking(False)
        if sends[kind] is None:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
            strangers.append(None)
            continue
        if sends[kind]:
            c.send(sends[kind])
        strangers.append(c)
    except OSError:
        assert time.time() - start < 60 and first.poll() is None, "node 0 does not listen"
        time.sleep(0.02)
began = time.time()
second = node(1)
texts = {}
def read(name, process):
    texts[name] = process.communicate(timeout=90)[1]
threads = [threading.Thread(target=read, args=a) for a in (("0", first), ("1", second))]
for t in threads: t.start()
for t in threads: t.join()
took = time.time() - began
lines = texts["0"].count("\n")
print("%s x %d: exit %d and %d, %.2f s, %d lines" % (kind, count, first.returncode, second.returncode, took, lines))
if first.returncode or second.returncode or took > limit or lines > 12:
    print(texts["0"][-1500:], texts["1"][-1500:])
    sys.exit(1)
END

failed=0
count=1100 limit=20
[ -z "${SYMM_TEST_LONG-}" ] || count=10000 limit=60
for kind in silent partial handshake garbage wrong gone; do
    timeout 120 python3 strangers.py "$symmrun" $kind $count $limit || failed=1
done
for kind in byte loud version magic; do
    timeout 120 python3 strangers.py "$symmrun" $kind 70 $limit || failed=1
done

# With few descriptors node 0 keeps fewer strangers, and node 1 still comes in.
(ulimit -n 300 && timeout 120 python3 strangers.py "$symmrun" silent 1100 $limit) || failed=1

# Handshakes of node 1 that someone has recorded, of an earlier job with the same secret, come when
# node 0 has confirmed node 1, which counts the connection from then on: it stays.
cat >recorded.py <<'END'
"""recorded.py SYMMRUN PORT: node 0, and this program as node 1 and as those that repeat it."""
import os, socket, struct, subprocess, sys, time

secret = bytes.fromhex("00112233445566778899aabbccddeeff")
mask = (1 << 64) - 1

def turn(x, bits):
    return (x << bits | x >> 64 - bits) & mask

def siphash(data):
    """SipHash-2-4 with 128 bits."""
    k = struct.unpack("<QQ", secret)
    v = [k[0] ^ 0x736F6D6570736575, k[1] ^ 0x646F72616E646F6D ^ 0xEE, k[0] ^ 0x6C7967656E657261, k[1] ^ 0x7465646279746573]
    def rounds(count):
        for _ in range(count):
            v[0] = v[0] + v[1] & mask; v[1] = turn(v[1], 13) ^ v[0]; v[0] = turn(v[0], 32)
            v[2] = v[2] + v[3] & mask; v[3] = turn(v[3], 16) ^ v[2]
            v[0] = v[0] + v[3] & mask; v[3] = turn(v[3], 21) ^ v[0]
            v[2] = v[2] + v[1] & mask; v[1] = turn(v[1], 17) ^ v[2]; v[2] = turn(v[2], 32)
    data += bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", data):
        v[3] ^= word; rounds(2); v[0] ^= word
    v[2] ^= 0xEE; rounds(4); first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD; rounds(4)
    return struct.pack("<QQ", first, v[0] ^ v[1] ^ v[2] ^ v[3])

def greet():
    """A connection of node 1 of 2 with one rank, its handshake and the answer."""
    for _ in range(600):
        try:
            c = socket.create_connection(("127.0.0.1", int(sys.argv[2])), 5)
            break
        except OSError:
            time.sleep(0.05)
    first = struct.pack("!IIII", 0x53594D4E, 4, 1, 2 << 16 | 1) + os.urandom(16)
    first += siphash(b"g" + first)
    c.settimeout(20)
    c.sendall(first)
    answer = c.recv(64, socket.MSG_WAITALL)
    assert len(answer) == 64, "no answer"
    return c, first, answer[:48]

args = [sys.argv[1], "-n", "1", "--nnodes", "2", "--node-rank", "0", "--rendezvous", "127.0.0.1:" + sys.argv[2], "--", "true"]
node = subprocess.Popen(args, env=dict(os.environ, SYMM_SECRET=secret.hex()), stderr=subprocess.DEVNULL)
try:
    c, first, second = greet()
    c.sendall(siphash(b"b" + first + second))
    assert c.recv(16, socket.MSG_WAITALL) == siphash(b"c" + first + second), "no confirmation"
    recorded = [greet() for _ in range(8)]
    c.sendall(siphash(b"d" + first + second))
    assert c.recv(1) != b"", "node 0 has hung up on the node that it had confirmed"
finally:
    node.kill()
    node.wait()
END
timeout 90 python3 recorded.py "$symmrun" "$(free_port)" || failed=1

# ---- Signals, and what is not node 0 ------------------------------------------------------

export SYMM_SECRET=00112233445566778899aabbccddeeff
fail() {
    echo "FAILED: $*"
    failed=1
}
for node in 0 1; do
    "$symmrun" -n 1 --nnodes 2 --node-rank $node --rendezvous "127.0.0.1:$(free_port)" -- \
        true 2>err &
    pid=$!
    # Its signals come through a descriptor once SIGUSR1 (bit 9 of the mask) is blocked.
    for _ in $(seq 400); do
        mask=$(awk '/^SigBlk/ { print $2 }' /proc/$pid/status)
        (((0x${mask:-0} & 0x200) != 0)) && break
        sleep 0.05
    done
    kill -USR1 $pid
    sleep 0.3
    kill -0 $pid || fail "SIGUSR1 has ended node $node in its rendezvous"
    began=$SECONDS
    kill -TERM $pid
    wait $pid
    status=$?
    [ $status = 143 ] || fail "SIGTERM in the rendezvous of node $node: exit status $status"
    [ $((SECONDS - began)) -lt 20 ] || fail "SIGTERM in the rendezvous of node $node is late"
    grep -q 'ends the wait for the other nodes' err || fail "node $node: $(cat err)"
done
# The wrong program at the rendezvous address is named at once.
port=$(free_port)
python3 -c "
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', $port)); s.listen(); c = s.accept()[0]; c.recv(100); c.sendall(b'SSH-2.0-server\r\n'); c.recv(100)" 2>/dev/null &
python=$!
timeout -k 5 40 "$symmrun" -n 1 --nnodes 2 --node-rank 1 --rendezvous "127.0.0.1:$port" -- true 2>err
status=$?
[ $status = 1 ] && grep -q 'is no symmrun' err || fail "another program: exit status $status, $(cat err)"
kill $python 2>/dev/null
wait $python 2>/dev/null

[ "$failed" = 0 ] || exit 1
echo 'all came in'
