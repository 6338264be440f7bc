# SPDX-License-Identifier: Apache-2.0
"""A few cases instead of all: chosen so that whatever two (or three) values of different axes can meet in a case do meet in a
chosen one.

Faults that depend on how settings combine mostly need two of them, rarely three (Kuhn, Wallace, Gallo: Software Fault
Interactions and Implications for Software Testing, IEEE Transactions on Software Engineering 30(6), 2004). Cases that must
exist together are only ever taken from the list of possible ones, so nothing has to be known about which values exclude each
other.
"""
import heapq
import itertools


def meetings(values, strength):
    """Every choice of `strength` axes, with the values there."""
    return {(axes, tuple(values[axis] for axis in axes)) for axes in itertools.combinations(range(len(values)), strength)}


def cover(cases, needs):
    """Cases that together have every need that any of `cases` has. needs(case): a set. Greedy: always the case with most needs
    that none before it had, the first of equals; so the choice is the same every time."""
    needed = [needs(case) for case in cases]
    missing = set().union(*needed)
    heap = [(-len(need), i) for i, need in enumerate(needed)]
    heapq.heapify(heap)
    chosen = []
    while missing:
        _, i = heapq.heappop(heap)
        # What a case adds only shrinks: one that is still first with its new count is the best.
        entry = (-len(needed[i] & missing), i)
        if heap and entry > heap[0]:
            heapq.heappush(heap, entry)
            continue
        chosen.append(cases[i])
        missing -= needed[i]
    return chosen
