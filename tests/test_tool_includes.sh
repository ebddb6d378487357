#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Who may include whom, by grep over every #include of the tree:
#   include/symm   its own headers and those of the C standard
#   the tools      (symm/symmrun*, symm/symm_info*) include/symm; headers of their own name
#   bench          include/symm and bench
#   symm           include/symm, symm, kernels/launch.h, reduce.h and cuda_launch.h
#   kernels        include/symm and kernels
#   planner        include/symm and planner
#   <hwloc.h> only in symm/topology.c, and so on: see system_rule
# Tests may include anything. The check then proves on copies of the tree that it can fail.

set -u
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}

c_headers=" assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp \
signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string \
tgmath threads time uchar wchar wctype "

# part_of FILE: sets part to what the file belongs to.
part_of() {
    case $1 in
    include/symm/*) part=include ;;
    symm/symmrun* | symm/symm_info*) part=tool ;;
    *) part=${1%%/*} ;;
    esac
}

# project_rule ROOT FILE NAME: whether FILE may have #include "NAME"; else why says what may.
project_rule() {
    local name=$3
    case $name in
    symm/*/*) ;;
    symm/*) [ ! -e "$1/include/$name" ] && [ ! -e "$1/include/$name.in" ] || return 0 ;;
    esac
    part_of "$2"
    case $part in
    include) why="public headers include only public headers" ;;
    tool)
        case $name in symmrun*.h | symm_info*.h) return ;; esac
        # The server of symmrun's store and its client share the layout of the messages.
        [ "$2:$name" = symm/symmrun_store.c:store.h ] && return
        # A keyed hash in one header, by which the nodes of a job prove themselves.
        [ "$2:$name" = symm/symmrun_nodes.c:siphash.h ] && return
        [ "$2:$name" = symm/symmrun_rendezvous.c:siphash.h ] && return
        why="tools include only headers of include/symm"
        ;;
    symm)
        case ${name#kernels/} in launch.h | reduce.h | cuda_launch.h) return ;; esac
        case $name in */* | symmrun*) ;; *) [ -e "$1/symm/$name" ] && return ;; esac
        why="symm includes only include/symm, symm, kernels/{launch,reduce,cuda_launch}.h"
        ;;
    *)
        case $name in */*) ;; *) [ -e "$1/$part/$name" ] && return ;; esac
        # How a failure is told is one thing for the whole library.
        [ "$part:$name" = planner:status.h ] && return
        why="$part includes only headers of include/symm and $part"
        ;;
    esac
    return 1
}

# system_rule ROOT FILE NAME: the same for #include <NAME>.
system_rule() {
    local file=$2 name=$3
    part_of "$file"
    if [ "$part" = include ]; then
        case $c_headers in *" ${name%.h} "*) return ;; esac
        why="public headers use only headers of the C standard"
        return 1
    fi
    case $name in
    symm/*) # as a user of the library writes it
        case $part in tool | bench) project_rule "$@" && return ;; esac
        why="only tools and bench may write <symm/...>, and only for public headers"
        ;;
    hwloc.h | hwloc/*)
        [ "$file" = symm/topology.c ] && return
        why="hwloc is for symm/topology.c alone"
        ;;
    cuda.h | cuda_runtime*.h)
        case $file in symm/backend_cuda* | symm/cuda_driver* | kernels/*.cu*) return ;; esac
        why="CUDA is for the CUDA backend and its driver table alone"
        ;;
    nccl.h)
        case $file in symm/engine_nccl* | bench/nccl_*) return ;; esac
        why="NCCL is for its engine and its benchmark alone"
        ;;
    mpi.h)
        case $file in bench/mpi_* | symm/engine_mpi*) return ;; esac
        why="MPI is for its engine and the programs to compare with alone"
        ;;
    jansson.h)
        case $file in bench/* | planner/*_json.c | planner/json_read.h) return ;; esac
        why="jansson is for bench alone, and for the planner's readers of JSON"
        ;;
    cmocka.h) why="cmocka is for tests alone" ;;
    *) return 0 ;;
    esac
    return 1
}

# check ROOT: prints every violation; the status says whether there was none.
check() {
    local line file number name why part bad=0
    while IFS= read -r line; do
        file=${line%%:*} line=${line#*:}
        number=${line%%:*}
        if [[ ${line#*:} =~ include[[:space:]]*\"([^\"]+)\" ]]; then
            name=${BASH_REMATCH[1]}
            project_rule "$1" "$file" "$name" && continue
        elif [[ ${line#*:} =~ include[[:space:]]*\<([^\>]+)\> ]]; then
            name=${BASH_REMATCH[1]}
            system_rule "$1" "$file" "$name" && continue
        fi
        echo "$file:$number: $name: $why" && bad=1
    done < <(cd "$1" && grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' \
        --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.h.in' \
        include symm kernels planner bench 2>/dev/null)
    # One name in two folders: which one is meant would depend on the order of -I.
    while IFS= read -r name; do
        echo "$name: a header of this name is both in symm and in kernels" && bad=1
    done < <(cd "$1" && find symm kernels -name '*.h' -printf '%f\n' | sort | uniq -d)
    return $bad
}

# must_fail FILE LINE TEXT: with LINE added to FILE the check fails and says TEXT.
must_fail() {
    local said status
    mkdir -p "$(dirname "$copy/$1")"
    [ ! -e "$copy/$1" ] || cp "$copy/$1" "$copy.kept"
    printf '%s\n' "$2" >>"$copy/$1"
    said=$(check "$copy")
    status=$?
    rm "$copy/$1"
    [ ! -e "$copy.kept" ] || mv "$copy.kept" "$copy/$1"
    planted=$((planted + 1))
    if [ "$status" -eq 0 ]; then
        echo "planted in $1, not found: $2"
    elif ! grep -qF "$3" <<<"$said"; then
        echo "planted in $1: $2: expected \"$3\", got: $said"
    else
        return
    fi
    missed=1
}

files=$(cd "$root" && find include symm kernels -name '*.[ch]' | wc -l)
if [ "$files" -lt 10 ]; then
    echo "only $files files found below $root: nothing to check?"
    exit 1
fi
check "$root" || exit 1

copy=$(mktemp -d)/tree
trap 'rm -rf "$(dirname "$copy")"' EXIT
mkdir "$copy"
for folder in include symm kernels planner bench; do
    [ ! -d "$root/$folder" ] || cp -r "$root/$folder" "$copy"
done
planted=0 missed=0
must_fail include/symm/symm.h '#include <pthread.h>' 'only headers of the C standard'
must_fail include/symm/symm.h '#include "status.h"' 'only public headers'
must_fail symm/symmrun.c '#include "status.h"' 'tools include only'
must_fail symm/symm_info.c '#  include "symm/job.h"' 'tools include only'
must_fail bench/symm_perf.c '#include "reduce.h"' 'bench includes only'
must_fail bench/symm_perf.c '#include "../symm/status.h"' 'bench includes only'
must_fail symm/team.c '#include "reduce_tables.h"' 'symm includes only'
must_fail symm/team.c '#include "symm/status.h"' 'symm includes only'
must_fail symm/team.c '#include <symm/symm.h>' 'may write <symm/...>'
must_fail bench/symm_perf.c '#include <symm/job.h>' 'may write <symm/...>'
must_fail symm/team.c '#include <hwloc.h>' 'symm/topology.c alone'
must_fail symm/team.c '#include <jansson.h>' 'bench alone'
must_fail kernels/reduce.c '#include "status.h"' 'kernels includes only'
must_fail kernels/reduce.c '#include <cuda.h>' 'CUDA is for'
must_fail planner/place.c '#include "heap.h"' 'planner includes only'
must_fail kernels/status.h '' 'both in symm and in kernels'
[ "$missed" = 0 ] || exit 1
check "$copy" || exit 1
echo "$files files keep the include rules; all of $planted planted violations were found"
