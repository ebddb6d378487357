# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# hosts_stage.sh - sourced by the tests of jobs over hosts that one machine plays: a folder that goes
# when the test ends, no launcher's variables, the stand-in engine, and how a failure is said.

set -u
export LC_ALL=C
bin=${BUILD_DIR:-build}/bin
lib=${BUILD_DIR:-build}/lib
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir -m 700 runtime engine
# shellcheck disable=SC2034
failed=0 checks=0
for name in $(compgen -e | grep -E '^(OMPI_|PMIX_|PMI_|SLURM_|MPI_|HYDI_|TORCH|MASTER_|NCCL_|SYMM_)'); do
    unset "$name"
done
export SYMM_RUNTIME_DIR=$work/runtime SYMM_HEAP_BYTES=1G SYMM_TIMEOUT=100
export SYMM_ENGINE=$lib/libfake_engine.so SYMM_FAKE_ENGINE_DIR=$work/engine
# shellcheck disable=SC2034
secret=00112233445566778899aabbccddeeff

fail() {
    echo "FAILED: $*"
    failed=1
}
has() { grep -qF -- "$2" "$1" || { fail "'$2' is not in $1:" && head -c 900 "$1"; }; }

# A port that nobody listens at now; below those that the kernel gives.
free_port() {
    local port
    for _ in $(seq 100); do
        port=$((10000 + RANDOM % 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port && return; }
    done
}

# The begin of a script for unshare -Urn: a network of its own, that of process $other beside it,
# and a cable between: 10.77.0.1 here, 10.77.0.2 there. It leaves the file `allowed`.
two_networks() {
    cat <<'END'
set -eu
ip link set lo up
unshare -n sleep 300 &
other=$!
trap 'kill $other' EXIT
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do
    sleep 0.05
done
ip link add here type veth peer name there netns $other
ip addr add 10.77.0.1/24 dev here
ip link set here up
nsenter -t $other -n ip addr add 10.77.0.2/24 dev there
nsenter -t $other -n ip link set there up
nsenter -t $other -n ip link set lo up
touch allowed
END
}
