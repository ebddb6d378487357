#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# limits.sh - prints programs at the limits of the library, for other tests.
#   limits.sh streams N        an all-reduce on each of N streams, the first included
#   limits.sh puts N [back]    N puts on one stream, and their waits in the same order, or
#                              in the opposite one

set -eu

# list COUNT FORMAT [back]: comma between, % in the format is the number, from 0.
list() {
    local order=(seq 0 $(($1 - 1)))
    [ "${3-}" != back ] || order=(seq $(($1 - 1)) -1 0)
    "${order[@]}" | sed "s/.*/$2/" | paste -sd ,
}

echo '{"format": "symm-program/1", "name": "limits", "world": 2, "loop": true,'
case $1 in
streams)
    echo "\"streams\": [$(list "$2" '"s&"')],"
    echo "\"buffers\": [$(list "$2" '{"name": "b&", "bytes": 8}')],"
    echo "\"ops\": [$(list "$2" '{"op": "all_reduce", "site": "x&", "in": "b&", "stream": "s&"}')]}"
    ;;
puts)
    echo "\"buffers\": [$(list "$2" '{"name": "a&", "bytes": 8}, {"name": "b&", "bytes": 8}')],"
    echo "\"ops\": [$(list "$2" '{"op": "write", "buffers": ["a&"]}'),"
    echo "$(list "$2" '{"op": "put", "site": "p&", "src": "a&", "dst": "b&", "shift": 1}'),"
    echo "$(list "$2" '{"op": "wait", "site": "p&"}' "${3-}")]}"
    ;;
esac
