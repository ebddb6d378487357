#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""trace_check.py FILE [--merged] - checks a trace by the rules of the trace event format, and that
slices of one row nest; then prints what is in it, sorted:

    rank R OP N          N slices of the category "call", by name
    rank R wait N        slices of waits
    rank R failure N     instant events
    rank R dropped N
    offset US US         the least time from a barrier's entry on one rank to its exit on another:
                         the smallest and the largest of all pairs; negative: clocks disagree
Exits with 1 and a sentence if a rule is broken.
"""

import collections
import json
import sys

# What an event has beside name, ph, pid, tid (trace event format, "Event descriptions").
NEEDED = {"X": {"ts": (int, float), "dur": (int, float)},
          "i": {"ts": (int, float), "s": str},
          "C": {"ts": (int, float), "args": dict},
          "M": {"args": dict}}
METADATA = {"process_name": {"name": str}, "thread_name": {"name": str},
            "process_sort_index": {"sort_index": int}, "symm_trace": {"format": str},
            "symm_trace_end": {"dropped": int}}
CALL_ARGS = ("number", "state", "epoch", "bytes", "channel", "team")
STATES = ("done", "failed", "launched", "captured")


def refuse(why, event=None):
    sys.exit(f"trace_check: {why}" + (f": {json.dumps(event)}" if event else ""))


def check_event(event):
    if not isinstance(event, dict):
        refuse("an event is no object", event)
    for key, kind in {"name": str, "ph": str, "pid": int, "tid": int}.items():
        if not isinstance(event.get(key), kind):
            refuse(f"no {key}", event)
    if event["ph"] not in NEEDED:
        refuse("a phase that the library has not", event)
    for key, kind in NEEDED[event["ph"]].items():
        if not isinstance(event.get(key), kind) or isinstance(event[key], bool):
            refuse(f"no {key}", event)
    if event.get("ts", 0) < 0 or event.get("dur", 0) < 0:
        refuse("a negative time", event)
    if event["ph"] == "i" and event["s"] not in "gpt":
        refuse("no such scope", event)
    if event["ph"] == "C" and not all(isinstance(v, (int, float))
                                      for v in event["args"].values()):
        refuse("a counter of no number", event)
    if event["ph"] == "M":
        for key, kind in METADATA.get(event["name"], {"": str}).items():
            if not isinstance(event["args"].get(key), kind):
                refuse(f"metadata without {key}", event)
    if event.get("cat") == "call":
        for key in CALL_ARGS:
            if key not in event["args"]:
                refuse(f"a call without {key}", event)
        if event["args"]["state"] not in STATES:
            refuse("a call of no state", event)


def ns(event, key):
    return round(event[key] * 1000)


def check_rows(events):
    """Slices of a row lie in each other or beside each other, waits in their calls, but for the
    rows of waits on a device."""
    rows = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = ns(event, "ts")
            rows[event["pid"], event["tid"]].append((begin, -ns(event, "dur"), event))
    for row in rows.values():
        stack = []
        for begin, dur, event in sorted(row, key=lambda slice: slice[:2]):
            while stack and stack[-1][0] <= begin:
                stack.pop()
            if stack and begin - dur > stack[-1][0]:
                refuse("a slice that ends after the one it is in", event)
            if event["cat"] == "wait" and event["tid"] < 1000000000 and not (
                    stack and stack[-1][1]["cat"] == "call"
                    and stack[-1][1]["name"] == event["args"]["op"]):
                refuse("a wait outside of its call", event)
            stack.append((begin - dur, event))


def check_ends(events):
    ranks = {event["pid"] for event in events}
    for rank in ranks:
        own = [e for e in events if e["pid"] == rank]
        if own[0]["name"] != "symm_trace" or own[0]["args"].get("rank") != rank:
            refuse(f"rank {rank} does not begin with what it is", own[0])
        numbers = [e["args"]["number"] for e in own if e.get("cat") == "call"]
        if len(set(numbers)) != len(numbers):
            refuse(f"rank {rank} has a call twice")
        # A captured call has no step of its own: its replays have.
        steps = [(e["args"]["team"], e["args"]["channel"], e["args"]["epoch"]) for e in own
                 if e.get("cat") == "call" and "algorithm" in e["args"]
                 and e["args"]["state"] != "captured"]
        if len(set(steps)) != len(steps) or any(step[2] == 0 for step in steps):
            refuse(f"rank {rank} has two calls of one step, or a call of none")


def offsets(events):
    """The least time from entry to exit of the same barrier, over barriers, for pairs of ranks."""
    barriers = collections.defaultdict(dict)
    for event in events:
        if event.get("cat") == "call" and event["name"] == "barrier":
            barriers[event["args"]["epoch"]][event["pid"]] = event
    least = {}
    for ranks in barriers.values():
        for a, entry in ranks.items():
            for b, other in ranks.items():
                if a != b:
                    span = ns(other, "ts") + ns(other, "dur") - ns(entry, "ts")
                    least[a, b] = min(span, least.get((a, b), span))
    return sorted(least.values())


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        whole = json.load(file)
    merged = "--merged" in sys.argv[2:]
    if isinstance(whole, dict) != merged:
        refuse("not an object" if merged else "not an array")
    events = whole["traceEvents"] if merged else whole
    for event in events:
        check_event(event)
    check_rows(events)
    check_ends(events)
    counts = collections.Counter()
    for event in events:
        if event.get("cat") in ("call", "wait", "failure"):
            counts[event["pid"], event["name"]] += 1
        if event["name"] == "symm_trace_end":
            counts[event["pid"], "dropped"] += event["args"]["dropped"]
    for (rank, name), count in sorted(counts.items()):
        if count:
            print(f"rank {rank} {name} {count}")
    spans = offsets(events)
    if merged and spans:
        print(f"offset {spans[0] / 1000} {spans[-1] / 1000}")


main()
