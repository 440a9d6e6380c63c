"""Replays a certificate of bounds in exact integers: `python check.py certificate.json`.

Every number is an integer times a power of two. Cells of all steps are numbered in one row. Says
`verified` (exit status 0), `rejected` (1: a claim does not follow) or `error` (2: no certificate).
"""

# fmt: off
import json
import sys

FLOATS = {"exact": (0, 0, 0), "float32": (24, -149, 127), "float64": (53, -1074, 1023)}
BYTES, WORK, MOST = 1 << 28, 1 << 30, 1 << 1000  # of a file, of sums, of an integer
Rejected = type("Rejected", (Exception,), {})

def need(holds, message, kind=ValueError):
    if not holds:
        raise kind(message)
def get(record, name, kind, where):
    where = f"{where}: field {name!r}"
    need(type(record) is dict and name in record, f"{where} is missing")
    need(type(record[name]) is kind, f"{where}: expected {kind.__name__}")
    return record[name]
def whole(record, name, count, low, high, where):
    """A list of `count` integers (None: any number) between two ends, both included."""
    values, where = get(record, name, list, where), f"{where}: field {name!r}"
    need(count in (None, len(values)), f"{where}: expected {count} numbers, found {len(values)}")
    need(all(type(v) is int and low <= v <= high for v in values), f"{where}: expected integers in its range")
    return values
def lists(record, name, top, where):
    return [whole({name: v}, name, None, 0, top, f"{where}, {i}") for i, v in enumerate(get(record, name, list, where))]
def windows(record, name, top, where):
    """What each output reads: its first cell, and a pattern of cells counted from there."""
    given, where = get(record, name, dict, where), f"{where}: field {name!r}"
    patterns, at = lists(given, "patterns", top, where), whole(given, "at", None, 0, top, where)
    like = whole(given, "like", len(at), 0, len(patterns) - 1, where)
    found = [(a, patterns[k]) for a, k in zip(at, like, strict=True)]
    need(sum(len(c) for _, c in found) <= WORK >> 3, "certificate: too much work")
    need(all(a + max(c, default=0) <= top for a, c in found), f"{where}: a cell past the last one")
    return found
def numbers(record, name, count, where):
    given, where = get(record, name, dict, where), f"{where}: field {name!r}"
    e = whole({"exp": [given.get("exp")]}, "exp", 1, -1200, 0, where)[0]  # all are times 2ᵉ
    return whole(given, "int", count, -MOST, MOST, where), e
def add(x, y):
    e = min(x[1], y[1])
    return (x[0] << x[1] - e) + (y[0] << y[1] - e), e

class Checker:
    def __init__(self, given):
        need(type(given) is dict and given.get("format") == "lunette-bounds-1", "field 'format'")
        name = get(given, "arithmetic", str, "certificate")
        need(name in FLOATS, f"field 'arithmetic': expected one of {', '.join(FLOATS)}")
        (self.unit, self.eta, self.top), self.work, self.steps = FLOATS[name], 0, []
        self.e = whole({"exp": [given.get("exp")]}, "exp", 1, -1200, 0, "certificate")[0]
        self.low, self.high, self.claims = [], [], get(given, "rows", list, "certificate")
        for k, step in enumerate(get(given, "steps", list, "certificate")):
            op = get(step, "op", str, f"step {k}")
            need(op in ("input", "sums", "max") and k < 4096, f"step {k}: field 'op': {op[:20]!r}")
            {"input": self.keep, "sums": self.sums, "max": self.max}[op](step, f"step {k} ({op})")
        need(self.claims, "certificate: field 'rows' is empty")
        for r, claim in enumerate(self.claims):
            self.prove(claim, f"row {r}")

    def keep(self, given, where, op="input", count=None, **more):
        """A step with the box that is given; its cells come after those of all steps before."""
        lo = whole(given, "lo", count, -MOST, MOST, where)
        hi = whole(given, "hi", len(lo), -MOST, MOST, where)
        need(all(x <= y for x, y in zip(lo, hi, strict=True)), f"{where}: an empty box")
        self.steps.append({"op": op, "first": len(self.low), **more})
        self.low += lo
        self.high += hi

    def sums(self, given, where):
        """Weights × cells and a constant, within γ_m·(Σ|w||x| + |b|) + 2m·η, γ_m ≤ mu + 2(mu)²."""
        low, high, u, first = self.low, self.high, self.unit, len(self.low)
        table, e = numbers(given, "weight", None, where)
        cells = windows(given, "cells", len(low) - 1, where)
        values, eb = numbers(given, "bias", None, where)
        kinds = whole(given, "kinds", len(cells), 0, len(values) - 1, where)
        if means := "divisors" in given:  # 1/d as a multiple of 2⁻⁸⁰; the rest is an error
            divisors, e = whole(given, "divisors", len(cells), 1, 1 << 40, where), -80
            rows = [(*c, [(1 << 80) // d] * len(c[1])) for c, d in zip(cells, divisors, strict=True)]
        else:  # `which` weights the outputs of a kind have
            which = [[table[i] for i in w] for w in lists(given, "which", len(table) - 1, where)]
            fits = len(which) == len(values) and [len(which[k]) for k in kinds]
            need(fits == [len(c) for _, c in cells], f"{where}: field 'which' does not fit the others")
            rows = [(*c, which[k]) for c, k in zip(cells, kinds, strict=True)]
        bias = [values[k] for k in kinds]
        base, errors, ends = min(e + self.e, eb), [], ([], [])
        err = min(base - 2 * u, self.eta)
        for (at, places, weights), b in zip(rows, bias, strict=True):
            a = z = size = total = 0
            for i, w in zip(places, weights, strict=True):
                x, y = low[at + i], high[at + i]
                a, z = (a + w * x, z + w * y) if w >= 0 else (a + w * y, z + w * x)
                size, total = size + (abs(w) + means) * max(-x, y), total + max(-x, y)
            shift, m, up = b << eb - base, len(places) + 1, e + self.e - base
            loss = means * total << e + self.e - err
            if u:
                size = (size << up) + abs(shift)
                need(m << 6 <= 1 << u, f"{where}: sums too long for the arithmetic")
                most = max(size, means * total << self.e - base).bit_length() + base
                need(most < self.top, f"{where}: may overflow", Rejected)
                loss += (size * ((m << u) + 2 * m * m) << base - 2 * u - err) + (2 * m << self.eta - err)
            errors.append(loss)
            ends[0].append(((a << up) + shift << base - err) - loss)
            ends[1].append(((z << up) + shift << base - err) + loss)
        self.keep(given, where, "sums", len(rows), rows=rows, we=e, bias=(bias, eb), err=(errors, err))
        for name, sign, known in (("lo", 1, ends[0]), ("hi", -1, ends[1])):
            for i, (v, end) in enumerate(zip(known, given[name], strict=True)):
                if (v - (end << self.e - err)) * sign < 0:
                    gap = add(self.pull({first + i: sign}, 0, {}), (-end * sign, self.e))
                    need(gap[0] >= 0, f"{where}: {name!r} of {i} does not follow", Rejected)

    def max(self, given, where):
        """The largest cell of a window, and 0 where `zero` is 1."""
        cells = [[a + i for i in c] for a, c in windows(given, "windows", len(self.low) - 1, where)]
        pairs = list(zip(cells, whole(given, "zero", len(cells), 0, 1, where), strict=True))
        need(all(c or z for c, z in pairs), f"{where}: field 'zero': expected 1 of an empty window")
        relax, sides = self.relaxation(pairs, given, where), (self.low, self.high)
        lo, hi = ([max([s[i] for i in c] + [0] * z) for c, z in pairs] for s in sides)
        self.keep({"lo": lo, "hi": hi}, where, "max", pairs=pairs, relax=relax)

    def relaxation(self, pairs, given, where):
        """`Σ share·x ≤ y ≤ Σ slope·x + offset` on the box: one corner for each cell decides."""
        given, count = get(given, "relax", dict, where), sum(len(c) for c, _ in pairs)
        (slopes, es), (shares, ep) = (numbers(given, n, count, where) for n in ("slope", "share"))
        offsets, eo = numbers(given, "offset", len(pairs), where)
        base, first, result, low, high = min(es + self.e, eo), 0, [], self.low, self.high
        for i, ((cells, zero), offset) in enumerate(zip(pairs, offsets, strict=True)):
            s, p = (side[first : first + len(cells)] for side in (slopes, shares))
            first, one, full = first + len(cells), 1 << -es, 1 << -ep
            ends = [(v * low[j], (one - v) * high[j]) for v, j in zip(s, cells, strict=True)]
            gap = sum(v for v, _ in ends) - max([v + w for v, w in ends] + [0] * zero)
            holds = (gap << es + self.e - base) + (offset << eo - base) >= 0
            holds &= min([*s, *p], default=0) >= 0 and max(s, default=0) <= one
            holds &= sum(p) == full or (zero == 1 and sum(p) < full)
            need(holds, f"{where}: relaxation of window {i} does not hold", Rejected)
            result.append((cells, s, p, offset))
        return result, es, ep, eo

    def pull(self, row, e, own):
        """The least value of a linear function of cells, as a scaled integer."""
        total = (0, 0)
        for k in range(len(self.steps) - 1, -1, -1):
            step, first = self.steps[k], self.steps[k]["first"]
            self.work += 1 + len(row) * (1 - e // 512)  # long numbers take longer
            need(self.work <= WORK and e > -60000, "certificate: too much work")
            mine = [(i - first, v) for i, v in row.items() if v and i >= first]
            rest = {i: v for i, v in row.items() if i < first}
            if step["op"] == "input":
                ends = ((self.low if v > 0 else self.high)[first + i] * v for i, v in mine)
                row, total = rest, add(total, (sum(ends), e + self.e))
                continue
            if step["op"] == "max":
                maxima, es, ep, eo = own.get(k, step["relax"])
                total = add(total, (sum(v * maxima[i][3] for i, v in mine if v < 0), e + eo))
                down, up = min(es, ep), (es - min(es, ep), ep - min(es, ep))
                parts = [(v << up[v > 0], 0, maxima[i][0], maxima[i][1 + (v > 0)]) for i, v in mine]
            else:
                down, (bias, eb), (errors, err) = step["we"], step["bias"], step["err"]
                parts = [(v, *step["rows"][i]) for i, v in mine]
                total = add(total, (sum(v * bias[i] for i, v in mine), e + eb))
                total = add(total, (-sum(abs(v) * errors[i] for i, v in mine), e + err))
            row, e = {i: v << -down for i, v in rest.items()}, e + down
            for v, at, cells, weights in parts:
                self.work += len(cells) * (1 - e // 512)
                for i, w in zip(cells, weights, strict=True):
                    row[at + i] = row.get(at + i, 0) + v * w
        return total

    def prove(self, claim, where):
        cells = whole(claim, "cells", None, 0, len(self.low) - 1, where)
        row, e = numbers(claim, "row", len(cells), where)
        (least,), el = numbers(claim, "least", 1, where)
        need(len(set(cells)) == len(cells), f"{where}: field 'cells': one stands twice")
        own = {}
        maxima = {str(k): k for k, step in enumerate(self.steps) if step["op"] == "max"}
        for key, given in get(claim, "own", dict, where).items() if "own" in claim else ():
            need(key in maxima, f"{where}: field 'own': step {key[:20]} is no max")
            pairs, about = self.steps[maxima[key]]["pairs"], f"{where}: field 'own', {key}"
            own[maxima[key]] = self.relaxation(pairs, given, about)
        row = dict(zip(cells, row, strict=True))
        direct = sum(v * (self.low if v > 0 else self.high)[i] for i, v in row.items()), e + self.e
        above = [add(bound, (-least, el))[0] for bound in (direct, self.pull(row, e, own))]
        need(max(above) >= 0, f"{where}: its lower bound does not follow", Rejected)

def check(text):
    """What is to be said of a certificate: `verified …`, `rejected: …` or `error: …`."""
    try:
        need(len(text) <= BYTES, f"longer than {BYTES} bytes")
        given = json.loads(text, parse_int=lambda t: int(t) if len(t) < 400 else t[:20])
        return f"verified: {len(Checker(given).claims)} rows"
    except (Rejected, ValueError, RecursionError) as why:
        return f"{'rejected' if type(why) is Rejected else 'error'}: {str(why)[:300]}"

if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        sys.exit(print(said := check(file.read(BYTES + 1))) or "vre".index(said[0]))
