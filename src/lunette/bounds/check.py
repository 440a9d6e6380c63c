"""Replays a certificate of bounds in exact integers: `python check.py certificate.json`.

Standard library alone; nothing that the producer computed is believed. Every number is an integer
times a power of two: nothing is rounded, nothing divided. A step's box comes from interval
arithmetic, or is claimed and proved by going backward. Prints `verified` (exit status 0),
`rejected` (1: a claim does not follow) or `error` (2: this is no certificate).
"""

import json
import math
import sys
from itertools import product
from typing import Any

FLOATS = {"float32": (24, -149, 127), "float64": (53, -1074, 1023)}  # 2⁻ᵘ, smallest, largest
BYTES, BITS, ROOM, WORK = 1 << 28, 1 << 16, 1 << 26, 1 << 31  # of a file, a number, memory, time


class Rejected(Exception):
    """A claim does not follow."""


class Malformed(Exception):
    """This is no certificate."""


def need(holds: Any, message: str, kind: Any = Malformed) -> None:
    if not holds:
        raise kind(message)


def get(record: Any, name: str, kind: Any, where: str) -> Any:
    need(type(record) is dict and name in record, f"{where}: field {name!r} is missing")
    need(type(record[name]) is kind, f"{where}: field {name!r}: expected {kind.__name__}")
    return record[name]


def whole(values: Any, low: int, high: int, where: str) -> Any:
    """A list of integers between two ends, both included."""
    fits = type(values) is list and all(type(v) is int and low <= v <= high for v in values)
    need(fits, f"{where}: expected a list of integers from {low} to {high}")
    return values


def numbers(record: Any, name: str, count: Any, where: str) -> Any:
    """`count` integers (None: any number), and the exponent of two that scales them all."""
    given, where = get(record, name, dict, where), f"{where}: field {name!r}"
    ints, e = get(given, "int", list, where), get(given, "exp", int, where)
    need(abs(e) <= 1200, f"{where}: exponent out of range")
    need(count in (None, len(ints)), f"{where}: expected {count} numbers, found {len(ints)}")
    fits = all(type(v) is int and v.bit_length() <= BITS for v in ints)
    need(fits, f"{where}: expected integers of at most {BITS} bits")
    return ints, e


def at(ints: Any, e: int, lower: int) -> Any:
    """The same numbers at an exponent that is not higher."""
    return ints if e == lower else [v << (e - lower) for v in ints]


def add(x: Any, y: Any) -> Any:
    """The sum of two scaled integers."""
    e = min(x[1], y[1])
    return (x[0] << (x[1] - e)) + (y[0] << (y[1] - e)), e


class Checker:
    """The steps so far, each with its box: low ends, high ends, exponent."""

    def __init__(self, given: Any) -> None:
        need(type(given) is dict and given.get("format") == "lunette-bounds-1", "field 'format'")
        name = get(given, "arithmetic", str, "certificate")
        need(name in ("exact", *FLOATS), "field 'arithmetic': expected exact, float32 or float64")
        self.unit, self.eta, self.top = FLOATS.get(name, (0, 0, 0))
        self.work, self.room, self.steps = 0, 0, []  # type: int, int, list[Any]
        for k, step in enumerate(get(given, "steps", list, "certificate")):
            op = get(step, "op", str, f"step {k}")
            need(op in ("input", "move", "conv", "rows", "mean", "max"), f"step {k}: field 'op'")
            self.read(k, step, op, f"step {k} ({op})")
        self.claims = get(given, "rows", list, "certificate")
        need(self.steps and self.claims, "certificate: no step or no row")
        for r, claim in enumerate(self.claims):
            self.prove(claim, f"row {r}")

    def read(self, k: int, given: Any, op: str, where: str) -> None:
        of = whole(get(given, "of", list, where), 0, k - 1, f"{where}: field 'of'")
        need(len(of) <= 64 and bool(of) == (op != "input"), f"{where}: field 'of'")
        sides, step = [self.steps[j]["box"] for j in of], {"op": op, "of": of}
        step["e"] = min([b[2] for b in sides], default=0)
        step["x"] = [[v for b in sides for v in at(b[i], b[2], step["e"])] for i in (0, 1)]
        step["ends"] = [sum(len(b[0]) for b in sides[:n]) for n in range(len(of) + 1)]
        self.steps.append(step)
        self.spend(0, step["ends"][-1])
        if op == "input":
            step["box"] = self.box(given, None, where)
        elif op == "move":
            top = step["ends"][-1] - 1
            index = whole(given.get("index"), 0, top, f"{where}: field 'index'")
            step["rows"], step["we"] = [((i,), (1,)) for i in index], 0
            step["box"] = (*([side[i] for i in index] for side in step["x"]), step["e"])
        elif op == "max":
            self.maximum(step, given, where)
        else:
            self.sums(step, given, where, *getattr(self, op)(step, given, where))
        longest = max(max(map(abs, side)) for side in step["box"][:2]).bit_length()
        need(longest <= BITS and k < 4096, f"{where}: numbers too long, or too many steps")

    def spend(self, work: int, room: int = 0) -> None:
        self.work, self.room = self.work + work, self.room + room
        need(self.work <= WORK and self.room <= ROOM, "certificate: too much work or memory")

    def box(self, given: Any, count: Any, where: str) -> Any:
        lo, a = numbers(given, "lo", count, where)
        hi, b = numbers(given, "hi", len(lo), where)
        lo, hi, e = at(lo, a, min(a, b)), at(hi, b, min(a, b)), min(a, b)
        need(lo and all(x <= y for x, y in zip(lo, hi)), f"{where}: a box is empty")
        return lo, hi, e

    def places(self, step: Any, given: Any, channels: int, where: str) -> Any:
        """Each window's cells of one channel (None: padding); and the first cell of each channel."""
        items = whole([given.get("items")], 1, 1 << 24, f"{where}: field 'items'")[0]
        space = whole(given.get("space"), 1, 1 << 24, f"{where}: field 'space'")
        axes, found, area = get(given, "axes", list, where), [[0]], math.prod(space)  # type: Any
        fits = len(axes) == len(space) <= 16 and items * channels * area == step["ends"][-1]
        need(fits, f"{where}: fields 'items', 'space' and 'axes' do not fit its operand")
        for n, axis in zip(space, axes, strict=True):
            need(type(axis) is list, f"{where}: field 'axes': expected a list for each axis")
            axis = [whole(window, -1, n - 1, f"{where}: field 'axes'") for window in axis]
            self.spend(0, sum(map(len, found)) * sum(map(len, axis)) * items)
            found = [
                [None if p is None or q < 0 else p * n + q for p in a for q in b]
                for a, b in product(found, axis)
            ]
        return found, range(0, items * channels * area, area), area

    def conv(self, step: Any, given: Any, where: str) -> Any:
        """Weights (out, channels/groups, taps); a linear map is one without axes."""
        names = ("channels", "groups", "taps")
        values = [given.get(n) for n in names]
        channels, groups, taps = whole(values, 1, 1 << 24, f"{where}: fields {names}")
        places, firsts, area = self.places(step, given, channels, where)
        bias, eb = numbers(given, "bias", None, where)
        out, depth = len(bias), channels // groups
        fits = (
            out and channels % groups == out % groups == 0 and all(len(p) == taps for p in places)
        )
        need(fits, f"{where}: fields 'groups', 'bias', 'taps' and 'axes' do not fit")
        weight, e = numbers(given, "weight", out * depth * taps, where)
        self.spend(0, len(firsts) // channels * len(places) * len(weight))
        rows = []
        for item, o in product(firsts[::channels], range(out)):
            first, own = item + o // (out // groups) * depth * area, o * depth * taps
            for place in places:
                real = [(p, j) for j, p in enumerate(place) if p is not None]
                cells = [first + c * area + p for c in range(depth) for p, _ in real]
                rows.append(
                    (cells, [weight[own + c * taps + j] for c in range(depth) for _, j in real])
                )
        constants = [b for _ in firsts[::channels] for b in bias for _ in places]
        return rows, e, constants, eb, None

    def rows(self, step: Any, given: Any, where: str) -> Any:
        """Any sums, cell by cell."""
        cells, top = get(given, "cells", list, where), step["ends"][-1] - 1
        cells = [whole(c, 0, top, f"{where}: field 'cells'") for c in cells]
        weight, e = numbers(given, "weight", sum(map(len, cells)), where)
        weights = iter(weight)
        rows = [(c, [next(weights) for _ in c]) for c in cells]
        return rows, e, *numbers(given, "bias", len(rows), where), None

    def windows(self, step: Any, given: Any, where: str) -> Any:
        places, firsts, _ = self.places(step, given, 1, where)
        return [[f + p for p in place if p is not None] for f in firsts for place in places]

    def mean(self, step: Any, given: Any, where: str) -> Any:
        """Sums over divisors; 1/d is taken for a multiple of 2⁻⁸⁰, and the rest is an error."""
        cells = self.windows(step, given, where)
        divisors = whole(given.get("divisors"), 1, 1 << 40, f"{where}: field 'divisors'")
        need(len(divisors) == len(cells), f"{where}: field 'divisors': expected {len(cells)}")
        rows = [(c, [(1 << 80) // d] * len(c)) for c, d in zip(cells, divisors, strict=True)]
        return rows, -80, [0] * len(rows), 0, divisors

    def sums(self, step: Any, given: Any, where: str, *form: Any) -> None:
        """Boxes and errors of sums: γ_m·(Σ|w||x| + |b|) + 2m·η, γ_m ≤ m·u + 2(m·u)²."""
        (rows, e, bias, eb, means), (low, high), ex, u = form, step["x"], step["e"], self.unit
        base = min(e + ex, eb, ex)
        err = min(base - 2 * u, self.eta)
        lo, hi, errors = [], [], []
        for (cells, weights), b in zip(rows, at(bias, eb, base), strict=True):
            self.spend(len(cells))
            a = z = size = total = 0
            for i, w in zip(cells, weights, strict=True):
                x, y = low[i], high[i]
                a, z = (a + w * x, z + w * y) if w >= 0 else (a + w * y, z + w * x)
                size, total = size + abs(w) * max(-x, y), total + max(-x, y)
            (a, z, size), m = at((a, z, size), e + ex, base), len(cells) + 1
            loss = (0 if means is None else total) << (e + ex - err)
            if u:
                size += abs(b)
                need(m << 6 <= 1 << u, f"{where}: sums too long for the arithmetic")
                most = size if means is None else total << (ex - base)
                need(most.bit_length() + base < self.top, f"{where}: may overflow", Rejected)
                loss += size * ((m << u) + 2 * m * m) << (base - 2 * u - err)
                loss += 2 * m << (self.eta - err)
            errors.append(loss)
            lo.append((a + b << base - err) - loss)
            hi.append((z + b << base - err) + loss)
        step.update(rows=rows, we=e, bias=(bias, eb), errors=(errors, err), box=(lo, hi, err))
        if "box" in given:
            step["box"] = box = self.box(given["box"], len(lo), where)
            for i, ends in enumerate(zip(lo, hi, *box[:2], strict=True)):
                for sign in (1, -1):
                    known, end = (
                        ends[0 if sign > 0 else 1] * sign,
                        ends[2 if sign > 0 else 3] * -sign,
                    )
                    if add((known, err), (end, box[2]))[0] < 0:
                        known = self.pull({i: sign}, 0, {})
                        need(
                            add(known, (end, box[2]))[0] >= 0, f"{where}: box of cell {i}", Rejected
                        )

    def maximum(self, step: Any, given: Any, where: str) -> None:
        step["windows"] = cells = self.windows(step, given, where)
        step["zero"] = zero = whole(given.get("zero"), 0, 1, f"{where}: field 'zero'")
        fits = len(zero) == len(cells) and all(c or z for c, z in zip(cells, zero, strict=True))
        need(fits, f"{where}: field 'zero': expected one per window, 1 where none is read")
        lo, hi = (
            [max([s[i] for i in c] + [0] * z) for c, z in zip(cells, zero)] for s in step["x"]
        )
        step["box"], step["relax"] = (lo, hi, step["e"]), self.relaxation(step, given, where)

    def relaxation(self, step: Any, given: Any, where: str) -> Any:
        """`Σ share·x ≤ y ≤ Σ slope·x + offset` on the box: one corner for each cell decides."""
        (low, high), ex, windows = step["x"], step["e"], step["windows"]
        given, count = get(given, "relax", dict, where), sum(map(len, windows))
        (slopes, es), (shares, ep) = (numbers(given, n, count, where) for n in ("slope", "share"))
        offsets, eo = numbers(given, "offset", len(windows), where)
        need(es <= 0 and ep <= 0, f"{where}: field 'relax': exponents above 0")
        base, first, result = min(es + ex, eo), 0, []
        self.spend(count)
        for i, (cells, zero, offset) in enumerate(zip(windows, step["zero"], offsets, strict=True)):
            s, p = (side[first : first + len(cells)] for side in (slopes, shares))
            first, one, whole_share = first + len(cells), 1 << -es, 1 << -ep
            floor = sum(v * low[j] for v, j in zip(s, cells, strict=True))
            needs = [v * low[j] + (one - v) * high[j] for v, j in zip(s, cells)] + [0] * zero
            holds = all(0 <= v <= one for v in s) and all(v >= 0 for v in p)
            holds = holds and (sum(p) <= whole_share if zero else sum(p) == whole_share)
            gap = ((floor - max(needs)) << (es + ex - base)) + (offset << (eo - base))
            need(holds and gap >= 0, f"{where}: relaxation of window {i}", Rejected)
            result.append((cells, s, p, offset))
        return result, es, ep, eo

    def pull(self, row: Any, e: int, own: Any) -> Any:
        """The least value of a linear function of the last step, as a scaled integer."""
        total, waiting = (0, 0), {len(self.steps) - 1: (row, e)}
        for k in range(len(self.steps) - 1, -1, -1):
            if k not in waiting:
                continue
            step, (a, e), b = self.steps[k], waiting.pop(k), {}  # type: Any, Any, Any
            need(e > -BITS, "certificate: numbers too long")
            if step["op"] == "input":
                lo, hi, ex = step["box"]
                total = add(
                    total, (sum(v * (lo if v > 0 else hi)[i] for i, v in a.items()), e + ex)
                )
                continue
            if step["op"] == "max":
                windows, es, ep, eo = own.get(k, step["relax"])
                lost, down = 0, min(es, ep)
                for w, v in a.items():
                    cells, slopes, shares, offset = windows[w]
                    lost += v * offset if v < 0 else 0
                    v, parts = (v << ep - down, shares) if v > 0 else (v << es - down, slopes)
                    self.work += len(cells)
                    for i, s in zip(cells, parts):
                        if s and v:
                            b[i] = b.get(i, 0) + v * s
                total = add(total, (lost, e + eo))
            else:
                rows, down = step["rows"], step["we"]
                for w, v in a.items():
                    self.work += len(rows[w][0])
                    for i, s in zip(*rows[w]) if v else ():
                        b[i] = b.get(i, 0) + v * s
                if step["op"] != "move":
                    (bias, eb), (errors, err) = step["bias"], step["errors"]
                    total = add(total, (sum(v * bias[w] for w, v in a.items()), e + eb))
                    total = add(total, (-sum(abs(v) * errors[w] for w, v in a.items()), e + err))
            self.spend(len(a) + len(b))
            for n, p in enumerate(step["of"]):
                first, last = step["ends"][n : n + 2]
                part = {i - first: v for i, v in b.items() if first <= i < last}
                old, eo = waiting.get(p, ({}, e + down))
                base = min(eo, e + down)
                merged = {i: v << eo - base for i, v in old.items()}
                for i, v in part.items():
                    merged[i] = merged.get(i, 0) + (v << e + down - base)
                waiting[p] = merged, base
        return total

    def prove(self, claim: Any, where: str) -> None:
        row, e = numbers(claim, "row", len(self.steps[-1]["box"][0]), where)
        (least,), el = numbers(claim, "least", 1, where)
        own = {}
        for key, given in get(claim, "own", dict, where).items() if "own" in claim else ():
            known = key.isdecimal() and len(key) < 9 and int(key) < len(self.steps)
            need(known and "zero" in self.steps[int(key)], f"{where}: field 'own': no such max")
            own[int(key)] = self.relaxation(self.steps[int(key)], given, f"{where}: field 'own'")
        found = add(self.pull(dict(enumerate(row)), e, own), (-least, el))
        need(found[0] >= 0, f"{where}: its bound does not follow", Rejected)


def once(pairs: Any) -> Any:
    need(len(dict(pairs)) == len(pairs), "a field stands twice")
    return dict(pairs)


def no_number(text: str) -> None:
    raise Malformed(f"{text[:20]}: expected integers only")


def check(text: str) -> str:
    """What is to be said of a certificate: `verified …`, `rejected: …` or `error: …`."""
    try:
        need(len(text) <= BYTES, f"longer than {BYTES} bytes")
        hooks: Any = {"parse_float": no_number, "parse_constant": no_number}
        given = json.loads(text, object_pairs_hook=once, **hooks)
        return f"verified: {len(Checker(given).claims)} rows"
    except Rejected as why:
        return f"rejected: {why}"
    except (Malformed, ValueError, RecursionError) as why:
        return f"error: {str(why)[:300]}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python check.py certificate.json")
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        said = check(file.read(BYTES + 1))
    print(said)
    sys.exit({"v": 0, "r": 1, "e": 2}[said[0]])
