#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""rooms.py ROOT [--arrows] - checks every #include below ROOT against tests/rooms.txt, whose
head explains the table.

Prints each violation on a line and exits with 1 if there is one:
- an #include that its room may not have, or whose path does not begin at its part's root;
- a system header outside of the files that may include it;
- a circle of modules (x.c and x.h are one module) that is not listed, or a listed circle that
  does not exist;
- a room whose README.md is missing, too long, or names other rooms after "May include:".
--arrows prints the arrows between rooms and the number of files of each.
"""

import collections
import fnmatch
import os
import re
import sys

C_HEADERS = """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp
signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath
threads time uchar wchar wctype""".split()
# Compiled for a framework of the user: roots of their own.
FRAMEWORKS = [f"symm/python/symm/{name}/src" for name in ("torch", "jax")]
PARTS = ["include", "symm", "kernels", "planner", "bench"]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)')


class Table:
    """tests/rooms.txt."""

    def __init__(self, path):
        self.rooms, self.system, self.circles = {}, {}, []
        entry = ""
        with open(path, encoding="utf-8") as file:
            for line in list(file) + ["end"]:
                line = line.split("#")[0].rstrip()
                if line[:1].isspace():
                    entry += " " + line.strip()
                elif line:
                    self.add(entry)
                    entry = line

    def add(self, entry):
        if not entry:
            return
        head, rest = entry.split(":", 1)
        words = rest.split()
        if head.startswith("<"):
            self.system[head.strip("<>")] = words
        elif head == "circle":
            self.circles.append(sorted(words))
        else:
            self.rooms[head] = words


def sources(root):
    """Paths below ROOT of all files that have #include lines."""
    for part in PARTS:
        for folder, _, names in os.walk(os.path.join(root, part)):
            for name in names:
                if re.search(r"\.(c|h|cu|cuh|cpp|hpp)(\.in)?$", name):
                    yield os.path.relpath(os.path.join(folder, name), root)


def resolve(root, name):
    """The file that "NAME" is, in the one way it may be written; None: there is none."""
    if name.startswith("symm/"):
        for end in ("", ".in"):
            if os.path.isfile(os.path.join(root, "include", name + end)):
                return "include/" + name + end
        return None
    if os.path.normpath(name) != name or name.startswith("."):
        return None
    roots = [part for part in PARTS[1:] if part != "kernels"]
    tries = [f"{part}/{name}" for part in [*roots, *FRAMEWORKS]]
    if name.startswith("kernels/"):
        tries = [name]
    found = [path for path in tries if os.path.isfile(os.path.join(root, path))]
    return found[0] if len(found) == 1 else None


def module(path):
    return re.sub(r"\.\w+(\.in)?$", "", path)


def circles(edges):
    """Sets of modules that all reach each other, each sorted."""
    reach = {}
    for start in edges:
        seen, todo = set(), list(edges[start])
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += edges.get(at, ())
        reach[start] = seen
    found = set()
    for a in edges:
        if a in reach[a]:
            found.add(tuple(sorted(b for b in reach[a] if a in reach.get(b, ()))))
    return sorted(list(circle) for circle in found)


class Check:
    def __init__(self, root, table):
        self.root, self.table = root, table
        self.said = []
        self.edges, self.arrows = collections.defaultdict(set), collections.Counter()

    def say(self, file, number, name, why):
        self.said.append(f"{file}:{number}: {name}: {why}")

    def project(self, file, number, name):
        room, target = os.path.dirname(file), resolve(self.root, name)
        if target is None:
            self.say(file, number, name, "no such header, or not written from its part's root")
            return
        if module(target) != module(file):
            self.edges[module(file)].add(module(target))
        there = os.path.dirname(target)
        if there != room:
            self.arrows[room, there] += 1
        if there in (room, "include/symm"):
            return
        allowed = self.table.rooms.get(room, [])
        if room == "include/symm":
            self.say(file, number, name, "public headers include only public headers")
        elif there not in allowed and target not in allowed:
            self.say(file, number, name, f"{room} may not include {there} (tests/rooms.txt)")

    def system(self, file, number, name):
        part = file.split("/")[0]
        if part == "include":
            if name[:-2] not in C_HEADERS:
                self.say(file, number, name, "only headers of the C standard")
        elif name.startswith("symm/"):  # as a user of the library writes it
            user = part == "bench" or file.startswith(("symm/tools/", "planner/tool/"))
            if not user or resolve(self.root, name) is None:
                self.say(file, number, name, "only tools may write <symm/...>")
        else:
            for pattern, files in self.table.system.items():
                allowed = any(fnmatch.fnmatch(file, f) for f in files)
                if fnmatch.fnmatch(name, pattern) and not allowed:
                    self.say(file, number, name, "only for " + (", ".join(files) or "tests"))

    def readmes(self):
        """Each room's README.md says what the table says."""
        for room, allowed in self.table.rooms.items():
            path = os.path.join(self.root, room, "README.md")
            if room == "include/symm" or not os.path.isdir(os.path.dirname(path)):
                continue
            text = ""
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    text = file.read()
            match = re.search(r"^May include: ([^.]*(?:\.h[^.]*)*)\.$", text, re.M)
            named = re.split(r",\s+", match[1]) if match else []
            if text.count("\n") > 10:
                self.say(room + "/README.md", 1, room, "more than ten lines")
            elif named != ["include/symm"] + allowed:
                self.say(room + "/README.md", 1, room, 'no "May include:" as in rooms.txt')

    def read(self, file):
        with open(os.path.join(self.root, file), encoding="utf-8", errors="replace") as text:
            for number, line in enumerate(text, 1):
                match = INCLUDE.match(line)
                if match and match[1]:
                    self.project(file, number, match[1])
                elif match:
                    self.system(file, number, match[2])

    def run(self):
        for file in sorted(sources(self.root)):
            if os.path.dirname(file) not in self.table.rooms:
                self.say(file, 1, os.path.dirname(file), "no room of tests/rooms.txt")
            self.read(file)
        self.readmes()
        found = circles(self.edges)
        for circle in found:
            if circle not in self.table.circles:
                self.say("circle", 1, " ".join(circle), "these modules include each other")
        for circle in self.table.circles:
            if circle not in found:
                self.say("tests/rooms.txt", 1, " ".join(circle), "no such circle")
        return self.said


def main(root, *options):
    check = Check(root, Table(os.path.join(root, "tests", "rooms.txt")))
    said = check.run()
    if "--arrows" in options:
        for (a, b), count in sorted(check.arrows.items()):
            print(f"{a} -> {b} ({count})")
    print("\n".join(said), end="\n" if said else "")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
