# SPDX-License-Identifier: Apache-2.0
"""Mutants of C files, all in one text: at a chosen place the original and one change of it, and a number that says which runs
(mutant.h). So a tree is built once for all mutants.

Changes: an arithmetic, comparing or logical operator for its neighbour, a condition negated, a number one larger, a statement left
out. Places in constants, declarations of arrays and macros are left alone.
"""
import random

OTHER = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
         "&&": "||", "||": "&&", "+=": "-=", "-=": "+=", "&": "|", "|": "&"}


class Place:
    def __init__(self, start, end, alternative, what, line, deletes=False):
        self.start, self.end, self.alternative, self.what, self.line, self.deletes = start, end, alternative, what, line, deletes
        self.number = None


def extent(cursor):
    return cursor.extent.start.offset, cursor.extent.end.offset


def is_plain(text, start, end):
    return 0 <= start < end <= len(text) and text[start:end].count("(") == text[start:end].count(")")


def operator_between(text, left, right):
    words = text[left:right].split()
    return words[0] if len(words) == 1 and words[0] in OTHER else None


def binary(text, cursor):
    children = list(cursor.get_children())
    if len(children) != 2:
        return None
    (start, left), (right, end) = extent(children[0]), extent(children[1])
    operator = operator_between(text, left, right)
    if not operator or not is_plain(text, start, end) or (start, end) != extent(cursor):
        return None
    changed = "(%s) %s (%s)" % (text[start:left], OTHER[operator], text[right:end])
    return Place(start, end, changed, "`%s` for `%s`" % (OTHER[operator], operator), cursor.extent.start.line)


def condition(text, cursor, kinds):
    first = next(cursor.get_children(), None)
    if first is None or first.kind in (kinds.DECL_STMT, kinds.BINARY_OPERATOR):
        return None  # operators are changed by themselves
    start, end = extent(first)
    return Place(start, end, "!(%s)" % text[start:end], "condition negated", first.extent.start.line) if is_plain(text, start, end) else None


def number(text, cursor):
    start, end = extent(cursor)
    return Place(start, end, "%s + 1" % text[start:end], "one more", cursor.extent.start.line) if text[start:end].isdigit() else None


def statement(text, cursor):
    start, end = extent(cursor)
    good = is_plain(text, start, end) and text[end:end + 1] == ";"
    return Place(start, end, None, "left out", cursor.extent.start.line, deletes=True) if good else None


def places_of(cursor, text, path, kinds, found, parent=None):
    """All places below a cursor that is inside of a function."""
    for child in cursor.get_children():
        if str(child.location.file) != path:
            continue
        kind = child.kind
        if kind in (kinds.ENUM_DECL, kinds.CASE_STMT) and kind == kinds.ENUM_DECL:
            continue
        if kind == kinds.VAR_DECL and (str(child.storage_class).endswith("STATIC") or "[" in child.type.spelling):
            continue
        place = None
        if kind in (kinds.BINARY_OPERATOR, kinds.COMPOUND_ASSIGNMENT_OPERATOR):
            place = binary(text, child)
        elif kind in (kinds.IF_STMT, kinds.WHILE_STMT):
            place = condition(text, child, kinds)
        elif kind == kinds.INTEGER_LITERAL and cursor.kind in (kinds.BINARY_OPERATOR, kinds.RETURN_STMT, kinds.CALL_EXPR):
            place = number(text, child)
        if place:
            found.append(place)
        elif cursor.kind == kinds.COMPOUND_STMT and kind in (kinds.CALL_EXPR, kinds.BINARY_OPERATOR):
            place = statement(text, child)
            if place and not text[place.start:place.end].lstrip().startswith("assert"):
                found.append(place)
        inside = list(child.get_children())
        if kind == kinds.CASE_STMT:  # its label is a constant
            inside = inside[1:]
            for one in inside:
                places_of_one(one, text, path, kinds, found, child)
            continue
        places_of(child, text, path, kinds, found, cursor)


def places_of_one(cursor, text, path, kinds, found, parent):
    class Holder:
        kind = parent.kind

        @staticmethod
        def get_children():
            return [cursor]
    places_of(Holder, text, path, kinds, found, parent)


def find_places(index, path, arguments):
    """Places of one file; kinds: clang.cindex.CursorKind."""
    import clang.cindex
    kinds = clang.cindex.CursorKind
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not text.isascii():
        return text, []  # offsets are bytes
    unit, found = index.parse(path, args=arguments), []
    for cursor in unit.cursor.get_children():
        if str(cursor.location.file) == path and cursor.kind == kinds.FUNCTION_DECL and cursor.is_definition():
            places_of(cursor, text, path, kinds, found)
    unique = {}
    for place in found:
        unique.setdefault((place.start, place.end, place.deletes), place)
    return text, sorted(unique.values(), key=lambda p: (p.start, -p.end))


def crosses(a, b):
    """Neither apart nor one inside of the other, or the same."""
    apart = a.end <= b.start or b.end <= a.start
    inside = (a.start <= b.start and b.end <= a.end) or (b.start <= a.start and a.end <= b.end)
    return not apart and (not inside or (a.start, a.end) == (b.start, b.end))


def choose(rng, places, count):
    chosen = []
    for place in rng.sample(places, len(places)):
        if len(chosen) < count and not any(crosses(place, other) for other in chosen):
            chosen.append(place)
    return chosen


def render(text, start, end, places):
    """text[start:end) with the places that lie in it; outer ones first in the list."""
    out, at, rest = [], start, [p for p in places if start <= p.start and p.end <= end]
    while rest:
        outer = rest[0]
        inner = [p for p in rest[1:] if outer.start <= p.start and p.end <= outer.end]
        rest = [p for p in rest[1:] if p not in inner]
        out.append(text[at:outer.start])
        original = render(text, outer.start, outer.end, inner)
        if outer.deletes:
            out.append("if (!zp_m(%d)) %s" % (outer.number, original))
        else:
            out.append("(zp_m(%d) ? (%s) : (%s))" % (outer.number, outer.alternative, original))
        at = outer.end
    out.append(text[at:end])
    return "".join(out)


def instrument(text, places):
    return render(text, 0, len(text), sorted(places, key=lambda p: (p.start, -p.end)))
