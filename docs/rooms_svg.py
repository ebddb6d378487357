#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws docs/rooms.svg from tests/rooms.txt: python3 docs/rooms_svg.py

A room stands above all rooms whose headers it may include. An arrow is drawn only where no path
over other rooms leads to the same room. Every room may also include include/symm. A dashed arrow
stands for single headers of the lower room. A room without a folder is left out.
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PUBLIC = "include/symm"
BOX_HEIGHT, LAYER, GAP, DUMMY, MARGIN, SWEEPS = 30, 82, 16, 10, 24, 60
COLOURS = {"include": "#fff3c4", "kernels": "#d9ead3", "symm": "#d6e4f5",
           "planner": "#f6dccb", "tools": "#e6dcef"}


def part_of(room):
    tool = room == "planner/tool" or room.startswith(("bench", "symm/tools"))
    return "tools" if tool else room.split("/")[0]


def read_table(path):
    """{room: {lower room: whether all of its headers}}"""
    entries = []
    for line in open(path, encoding="utf-8"):
        line = line.rstrip()
        if not line or line.startswith("#"):
            continue
        if line[0].isspace():
            entries[-1] += line
        else:
            entries.append(line)
    entries = [e.split(":", 1) for e in entries if e[0] != "<" and not e.startswith("circle")]
    entries = [e for e in entries if os.path.isdir(os.path.join(ROOT, e[0]))]
    table = {room: {} for room, _ in entries}
    for room, names in entries:
        for name in names.split():
            lower = name if name in table else os.path.dirname(name)
            if lower in table:
                table[room][lower] = table[room].get(lower, False) or name in table
        if room != PUBLIC:
            table[room].setdefault(PUBLIC, True)
    return table


def reaches(table, start, goal):
    return start == goal or any(reaches(table, lower, goal) for lower in table[start])


def reduce_arrows(table):
    return [(room, lower, whole) for room, lowers in table.items()
            for lower, whole in lowers.items()
            if not any(other != lower and reaches(table, other, lower) for other in lowers)]


def layer_of(table, room):
    return 1 + max((layer_of(table, lower) for lower in table[room]), default=-1)


class Node:
    def __init__(self, name, layer):
        self.name, self.layer, self.x = name, layer, 0.0
        self.width = 7.4 * len(name) + 20 if name else DUMMY
        self.near = []


def build(table, arrows):
    nodes = {room: Node(room, layer_of(table, room)) for room in table}
    layers = [[] for _ in range(1 + max(n.layer for n in nodes.values()))]
    for room in sorted(nodes, key=list(table).index):
        layers[nodes[room].layer].append(nodes[room])
    chains = []
    for upper, lower, whole in arrows:
        chain = [nodes[upper]]
        for layer in range(nodes[upper].layer - 1, nodes[lower].layer, -1):
            chain.append(Node("", layer))
            layers[layer].append(chain[-1])
        chain.append(nodes[lower])
        for a, b in zip(chain, chain[1:]):
            a.near.append(b)
            b.near.append(a)
        chains.append((chain, whole))
    return layers, chains


def spread(layer):
    """Keeps the order and the gaps, as near as can be to where the nodes would like to be."""
    for left, right in zip(layer, layer[1:]):
        least = left.x + (left.width + right.width) / 2 + GAP
        right.x = max(right.x, least)
    for right, left in zip(layer[::-1], layer[-2::-1]):
        most = right.x - (left.width + right.width) / 2 - GAP
        push = left.x - most
        if push > 0:
            left.x = most


def arrange(layers):
    for layer in layers:
        at = 0.0
        for node in layer:
            node.x, at = at + node.width / 2, at + node.width + GAP
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            want = {}
            for node in layer:
                near = [n.x for n in node.near] or [node.x]
                want[node] = sum(near) / len(near)
            if sweep < SWEEPS * 2 // 3:
                layer.sort(key=lambda n: want[n])
            for node in layer:
                node.x = want[node]
            middle = sum(n.x for n in layer) / len(layer)
            spread(layer)
            shift = middle - sum(n.x for n in layer) / len(layer)
            for node in layer:
                node.x += shift
    left = min(n.x - n.width / 2 for layer in layers for n in layer)
    for layer in layers:
        for node in layer:
            node.x += MARGIN - left
    return max(n.x + n.width / 2 for layer in layers for n in layer) + MARGIN


def draw(table):
    layers, chains = build(table, reduce_arrows(table))
    width = arrange(layers)
    top = MARGIN + LAYER * (len(layers) - 1)
    height = top + BOX_HEIGHT + MARGIN + 24
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
           ' font-family="DejaVu Sans Mono, monospace" font-size="12">',
           '<title>The rooms of libsymm and which may include which</title>',
           '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
           ' markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
           '<rect width="100%" height="100%" fill="#ffffff"/>']
    for chain, whole in chains:
        points = [(chain[0].x, top - LAYER * chain[0].layer + BOX_HEIGHT)]
        for node in chain[1:-1]:
            y = top - LAYER * node.layer
            points += [(node.x, y), (node.x, y + BOX_HEIGHT)]
        points.append((chain[-1].x, top - LAYER * chain[-1].layer))
        text = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        dash = "" if whole else ' stroke-dasharray="5 4"'
        out.append(f'<polyline points="{text}" fill="none" stroke="#777"{dash}'
                   ' marker-end="url(#tip)"/>')
    for layer in layers:
        for node in layer:
            if not node.name:
                continue
            y = top - LAYER * node.layer
            out.append(f'<rect x="{node.x - node.width / 2:.0f}" y="{y}" rx="5"'
                       f' width="{node.width:.0f}" height="{BOX_HEIGHT}" stroke="#444"'
                       f' fill="{COLOURS[part_of(node.name)]}"/>')
            out.append(f'<text x="{node.x:.0f}" y="{y + 19}" text-anchor="middle">'
                       f'{node.name}</text>')
    out.append(f'<text x="{MARGIN}" y="{height - MARGIN:.0f}" font-size="11" fill="#333">'
               'Arrow: may include headers of (dashed: single headers). Left out where a '
               'longer path leads to the same room; the list: tests/rooms.txt</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    svg = draw(read_table(os.path.join(ROOT, "tests", "rooms.txt")))
    with open(os.path.join(ROOT, "docs", "rooms.svg"), "w", encoding="utf-8") as file:
        file.write(svg)


if __name__ == "__main__":
    sys.exit(main())
