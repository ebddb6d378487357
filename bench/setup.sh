# shellcheck shell=bash disable=SC2034 # the sourcing scripts use the lists
# SPDX-License-Identifier: MIT
#
# setup.sh - functions of tests/run.sh and bench/demo.sh: install missing packages, configure,
# build. To be sourced by bash; defines functions only and never ends the shell.
#
# Nothing is installed, configured or built twice, so a second run is quick and needs no
# network. If packages cannot be installed, a message says so and the build goes on: it leaves
# out optional parts and fails at required ones.

setup_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Debian's package : a command or pkg-config module whose presence proves it installed.
setup_build_packages=(
    gcc:gcc g++:g++ cmake:cmake ninja-build:ninja pkg-config:pkg-config
    libcmocka-dev:+cmocka libhwloc-dev:+hwloc libjansson-dev:+jansson scdoc:scdoc jq:jq
    python3:python3 spin:spin tcc:tcc abigail-tools:abidw)
# For the tests of the Python package.
setup_python_packages=(python3-dev:python3-config python3-venv:-)
setup_compare_packages=(
    gnuplot-nox:gnuplot openmpi-bin:mpirun.openmpi libopenmpi-dev:mpicc.openmpi
    mpich:mpirun.mpich libmpich-dev:mpicc.mpich)

setup_say() { printf '== %s\n' "$*"; }

# Whether PACKAGE:SIGN is installed, by its sign or by Debian's records.
setup_has() {
    case ${1#*:} in
    +*) pkg-config --exists "${1#*:+}" 2>/dev/null && return ;;
    *) command -v "${1#*:}" >/dev/null 2>&1 && return ;;
    esac
    [ "$(dpkg-query -W -f='${db:Status-Status}' "${1%%:*}" 2>/dev/null)" = installed ]
}

# setup_packages PACKAGE:SIGN...: installs the missing packages; 1 if any is still missing.
# Sets setup_installed to the packages installed.
setup_packages() {
    local entry missing=() as_root=() left=()
    setup_installed=
    for entry; do
        setup_has "$entry" || missing+=("${entry%%:*}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    setup_say "missing: ${missing[*]}"
    if ! command -v apt-get >/dev/null 2>&1; then
        setup_say "there is no apt-get here: install them by other means"
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            setup_say "not root and no sudo: run apt-get install ${missing[*]}"
            return 1
        fi
        as_root=(sudo -n)
    fi
    "${as_root[@]}" apt-get update </dev/null ||
        setup_say "apt-get update failed, trying with the lists that are there"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y \
        --no-install-recommends "${missing[@]}" </dev/null
    hash -r
    setup_installed=${missing[*]}
    for entry; do
        setup_has "$entry" || left+=("${entry%%:*}")
    done
    [ ${#left[@]} -eq 0 ] || setup_say "could not be installed: ${left[*]}"
    [ ${#left[@]} -eq 0 ]
}

# Sets setup_nvcc_help to what nvcc --help says.
setup_nvcc() {
    local nvcc
    setup_nvcc_help=
    nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc)
    if [ -n "$nvcc" ]; then
        setup_nvcc_help=$("$nvcc" --help)
        setup_say "nvcc: $nvcc ($("$nvcc" --version | grep -o 'release [0-9.]*'))"
    else
        setup_say "nvcc: none"
    fi
}

# setup_configure PRESET DIR: does nothing if DIR was configured for this tree and
# setup_packages installed nothing. A new DIR gets the options of the array setup_options, too.
setup_options=()
setup_configure() {
    local cache=$2/CMakeCache.txt generator=() fresh=()
    if grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$setup_root" "$cache" &&
        { [ -e "$2/build.ninja" ] || [ -e "$2/Makefile" ]; }; then
        [ -n "${setup_installed:-}" ] || return 0
    else
        fresh=(--fresh "${setup_options[@]}")
        ! command -v ninja >/dev/null 2>&1 || generator=(-G Ninja)
    fi
    setup_say "configuring $1 in ${2#"$setup_root"/}"
    (cd "$setup_root" &&
        cmake --preset "$1" -B "$2" "${fresh[@]}" "${generator[@]}" </dev/null)
}

# setup_build DIR [TARGET...]: builds as much as possible; 1 if anything failed.
setup_build() {
    local dir=$1 target options=() all=()
    shift
    for target; do
        options+=(--target "$target")
    done
    if [ -e "$dir/build.ninja" ]; then all=(-- -k 0); else all=(-- -k); fi
    setup_say "building ${dir#"$setup_root"/} $*"
    cmake --build "$dir" --parallel "$(nproc)" "${options[@]}" "${all[@]}" </dev/null
}
