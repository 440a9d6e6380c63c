"""The checker verifies what is true, rejects what is false, and judges nothing that is malformed."""

import copy
import json
import os
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import lunette as ln
from lunette.bounds import Box, Deployment, certificate, check, least_values
from tests.bounds import nets

FLOAT32 = Deployment()
EDITS = int(os.environ.get("LUNETTE_CERTIFICATE_EDITS", "40"))


def made(seed, deployment=FLOAT32, width=0.3, **options):
    rng, layers, shape = nets.finished(seed, outputs=2)
    lo, hi = nets.box(rng, shape, width)
    tape, x, y = nets.record(layers, np.zeros(shape, np.float32))
    boxes = {x: Box(lo, hi)}
    return certificate(tape, y, boxes, deployment=deployment, **options), (tape, y, boxes)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("deployment", [None, Deployment(), Deployment("float64")], ids=repr)
def test_certificates_are_verified(seed, deployment):
    document, (tape, y, boxes) = made(seed, deployment)
    assert check.check(json.dumps(document)) == "verified: 4 rows"
    box = ln.bounds(tape, y, boxes, method="crown", deployment=deployment)
    least, room = least_values(document), 1e-8 * (1 + np.abs(box.lo).max())
    assert (least[:2] >= box.lo.reshape(-1) - room).all()
    assert (-least[2:] <= box.hi.reshape(-1) + room).all()


def test_rows_of_every_affine_step():
    """Transposed and grouped convolution, sums of two paths, matrices, means of axes, scales."""
    rng = np.random.default_rng(3)
    tape = ln.Tape()
    x = tape.leaf(np.zeros((1, 2, 5, 5), np.float32))
    z = tape.conv(
        nets.numbers(rng, 4, 1, 3, 3), nets.numbers(rng, 4), x, padding=1, groups=2, dilation=1
    )
    z = tape.relu(z)
    z = tape.conv_transpose(nets.numbers(rng, 4, 3, 2, 2), None, z, stride=2)
    z = tape.apply(ln.AvgPool((3, 3), stride=2, padding=1, ceil_mode=True), z)
    z = tape.sub(tape.mul(z, np.float32(0.75)), tape.relu(tape.neg(z)))
    z = tape.concatenate([tape.mean(z, axis=(2, 3)), tape.sum(z, axis=(2, 3))], axis=1)
    z = tape.matmul(tape.transpose(z), nets.numbers(rng, 1, 4))
    z = tape.div(tape.add(z, nets.numbers(rng, 4)), np.float32(4.0))
    lo, hi = nets.box(rng, (1, 2, 5, 5), 0.1)
    document = certificate(tape, z, {x: Box(lo, hi)}, method="crown")
    assert check.check(json.dumps(document)).startswith("verified")
    least = least_values(document)
    half = len(least) // 2
    for point in nets.points(rng, lo, hi, 6):
        y = replay(document, lambda i, a, b, p=point: Fraction(float(p.reshape(-1)[i])))["rows"]
        assert all(v >= Fraction(b) for v, b in zip(y, least, strict=True))
    assert (least[:half] <= -least[half:]).all()


# -- a second reading of certificates, in fractions, at points --


class Wrong(Exception):
    """A claim of a certificate is false at a point."""


def power(exponent):
    if abs(exponent) > 2000:  # past the checker's range, and past patience
        raise ValueError(exponent)
    return Fraction(2) ** exponent


def scaled(given):
    return [v * power(given["exp"]) for v in given["int"]]


def windows(given):
    """The cells of each output: those of its pattern, from its first one on."""
    likes = zip(given["at"], given["like"], strict=True)
    return [[at + i for i in given["patterns"][like]] for at, like in likes]


def replay(document, choose):
    """Values of all cells where the inputs are chosen; `Wrong` where a claim is false there."""
    unit, cells, ends = power(document["exp"]), [], {}
    for k, step in enumerate(document["steps"]):
        first = len(cells)
        if step["op"] == "input":
            cells += [
                choose(i, a * unit, b * unit)
                for i, (a, b) in enumerate(zip(step["lo"], step["hi"], strict=True))
            ]
        elif step["op"] == "max":
            for window, zero in zip(windows(step["windows"]), step["zero"], strict=True):
                cells.append(max([cells[i] for i in window] + [Fraction(0)] * (zero == 1)))
            ends[k] = first
            relaxed(step, step["relax"], cells, first)
        else:
            bias, table = scaled(step["bias"]), scaled(step["weight"])
            kinds = step["kinds"]
            for n, places in enumerate(windows(step["cells"])):
                if "divisors" in step:
                    total = sum((cells[i] for i in places), Fraction(0)) / step["divisors"][n]
                else:
                    total = sum(
                        (
                            cells[i] * table[w]
                            for i, w in zip(places, step["which"][kinds[n]], strict=True)
                        ),
                        Fraction(0),
                    )
                cells.append(total + bias[kinds[n]])
        if "lo" in step:
            for v, a, b in zip(cells[first:], step["lo"], step["hi"], strict=True):
                if not a * unit <= v <= b * unit:
                    raise Wrong
    rows = []
    for claim in document["rows"]:
        rows.append(
            sum(
                (cells[i] * r for i, r in zip(claim["cells"], scaled(claim["row"]), strict=True)),
                Fraction(0),
            )
        )
        if rows[-1] < scaled(claim["least"])[0]:
            raise Wrong
        for k, own in claim.get("own", {}).items():
            relaxed(document["steps"][int(k)], own["relax"], cells, ends[int(k)])
    return {"rows": rows, "cells": cells}


def relaxed(step, given, cells, first):
    slopes, shares, offsets = (
        scaled(given["slope"]),
        scaled(given["share"]),
        scaled(given["offset"]),
    )
    at = 0
    for n, window in enumerate(windows(step["windows"])):
        y = cells[first + n]
        above = sum((slopes[at + j] * cells[i] for j, i in enumerate(window)), offsets[n])
        below = sum((shares[at + j] * cells[i] for j, i in enumerate(window)), Fraction(0))
        at += len(window)
        if not below <= y <= above:
            raise Wrong


def is_false(document, generator):
    """Whether some claim fails at a corner or at a random point of the box; None: not readable."""

    def corner(i, a, b):
        return generator.choice((a, b))

    def inside(i, a, b):
        return a + (b - a) * Fraction(generator.randrange(17), 16)

    try:
        replay(document, corner)
        replay(document, inside)
    except Wrong:
        return True
    except (IndexError, ValueError, KeyError, TypeError, ZeroDivisionError, AttributeError):
        return None
    return False


def places(node, path=()):
    """Every integer of a document, with its path."""
    if isinstance(node, int):
        yield path, node
    elif isinstance(node, (dict, list)):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from places(value, (*path, key))


def edited(document, found, generator):
    """The document with one integer changed: a little, a lot, its sign, or to another's value."""
    path, value = generator.choice(found)
    change = generator.randrange(5)
    shift = 1 << generator.randrange(70)
    new = (value + shift, value - shift, -value, 0, generator.choice(found)[1])[change]
    changed = copy.deepcopy(document)
    node = changed
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = new
    return changed, path


def small(seed, deployment):
    """A certificate short enough to be read many times: conv, relu, max pool or mean, linear."""
    rng = np.random.default_rng(seed)
    pool = (ln.MaxPool((2, 2)), ln.AvgPool((2, 2)), ln.MaxPool((3, 3), stride=2, padding=1))[
        seed % 3
    ]
    layers = [nets.conv(rng, 1, 2, (2, 2)), ("relu", {}), ("max", {"op": pool}), ("flatten", {})]
    tape, _, y = nets.record(layers, np.zeros((1, 1, 5, 5), np.float32))
    layers.append(nets.linear(rng, tape.value(y).shape[1], 2))
    lo, hi = nets.box(rng, (1, 1, 5, 5), 0.3)
    tape, x, y = nets.record(layers, np.zeros((1, 1, 5, 5), np.float32))
    return certificate(tape, y, {x: Box(lo, hi)}, deployment=deployment)


def false_edits(seed, count):
    """How many edits were made, and how many of them made a claim false; each of those is caught."""
    generator = random.Random(seed)
    document = small(seed, (None, FLOAT32)[seed % 2])
    by_field = {}
    for path, value in places(document):
        by_field.setdefault(tuple(k for k in path if isinstance(k, str)), []).append((path, value))
    tried = caught = 0
    while caught < count:
        changed, path = edited(document, generator.choice(list(by_field.values())), generator)
        tried += 1
        said = check.check(json.dumps(changed))
        assert said.split(":")[0] in ("verified", "rejected", "error")
        if is_false(changed, generator):
            assert not said.startswith("verified"), (seed, path)
            caught += 1
    return tried, caught


def test_false_certificates_are_not_verified():
    for seed in (0, 1, 3, 5):
        assert false_edits(seed, EDITS // 4)[1] == EDITS // 4


@pytest.mark.full
@pytest.mark.parametrize("seed", range(14))
def test_many_false_certificates_are_not_verified(seed):
    assert false_edits(seed, max(EDITS, 60))[1] >= 60


def test_what_was_almost_true_is_rejected():
    """A claim one step of its grid past what can be proved, and each part of a relaxation."""
    document, _ = made(1, None, method="crown")
    generator = random.Random(0)
    values = [
        replay(document, lambda i, a, b: generator.choice((a, b)))["rows"][0] for _ in range(40)
    ]
    claim = document["rows"][0]["least"]
    for excess in (Fraction(1, 1000), Fraction(1)):
        least = min(values) + excess
        changed = copy.deepcopy(document)
        exp = claim["exp"]
        changed["rows"][0]["least"]["int"] = [int(least / Fraction(2) ** exp) + 1]
        assert (
            check.check(json.dumps(changed)) == "rejected: row 0: its lower bound does not follow"
        )


def moved(weight, x, factor):
    """Verdicts on a float32 certificate as it is, and with rows at a factor of the real network's."""
    tape = ln.Tape()
    leaf = tape.leaf(x)
    y = tape.linear(tape.linear(leaf, weight), np.ones((1, len(weight)), np.float32))
    boxes, rows = {leaf: Box(x, x)}, np.ones((1, 1, 1))
    exact, deployed = (certificate(tape, y, boxes, rows, deployment=d) for d in (None, FLOAT32))
    good = check.check(json.dumps(deployed))
    least = exact["rows"][0]["least"]
    deployed["rows"][0]["least"] = {
        "exp": least["exp"] - 8,
        "int": [int(least["int"][0] * 256 * factor)],
    }
    return good, check.check(json.dumps(deployed))


def test_the_deployed_error_is_charged_on_the_way_back():
    """What is proved of the real network does not follow for float32."""
    cancel = np.array([[2.0**24, -(2.0**24), 1], [2.0**24, 1, -(2.0**24)]], np.float32)
    tiny = np.full((2, 3), 2.0**-80, np.float32)  # every product is below the smallest number
    for weight, size, factor in ((cancel, 1.0, 0.5), (tiny, 2.0**-72, 0.5)):
        verdicts = moved(weight, np.full((1, 3), size, np.float32), factor)
        assert verdicts == ("verified: 1 rows", "rejected: row 0: its lower bound does not follow")


def test_sums_that_may_overflow_are_rejected():
    tape = ln.Tape()
    x = tape.leaf(np.ones((1, 2), np.float32))
    y = tape.mul(x, np.float32(2.0**126))
    document = certificate(tape, y, {x: Box(1.0, 4.0)}, deployment=None)
    assert check.check(json.dumps(document)) == "verified: 4 rows"
    document["arithmetic"] = "float32"
    assert check.check(json.dumps(document)) == "rejected: step 1 (sums): may overflow"


# -- what is no certificate --


def hostile():
    """Names and texts."""
    document, _ = made(2)
    for path, value in list(places(document))[:: max(1, len(list(places(document))) // 40)]:
        for name, new in (
            ("float", 0.5),
            ("text", "1"),
            ("null", None),
            ("bool", True),
            ("list", [[]]),
        ):
            changed = copy.deepcopy(document)
            node = changed
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = new
            yield f"{name} at {path}", json.dumps(changed)
        del value
    for key in ("format", "arithmetic", "exp", "steps", "rows"):
        yield f"no {key}", json.dumps({k: v for k, v in document.items() if k != key})
    for k, step in enumerate(document["steps"]):
        for key in step:
            if key not in ("divisors",):
                changed = copy.deepcopy(document)
                del changed["steps"][k][key]
                yield f"step {k} without {key}", json.dumps(changed)
            if isinstance(step[key], list):
                changed = copy.deepcopy(document)
                changed["steps"][k][key].append(0)
                yield f"step {k}, longer {key}", json.dumps(changed)
    text = json.dumps(document)
    yield "long number", text.replace('"exp": ', '"exp": ' + "1" * 1000000, 1)
    yield "long numbers", text.replace('"lo": [', '"lo": [' + "9" * 1000000 + ", ", 1)
    yield "NaN", text.replace('"lo": [', '"lo": [NaN, ', 1)
    yield "Infinity", text.replace('"lo": [', '"lo": [Infinity, ', 1)
    yield "cut", text[: len(text) // 2]
    yield "deep", "[" * 100000
    yield "empty", ""
    yield "number", "5"
    yield "huge exponent", text.replace('"exp": -', '"exp": -99999', 1)


def test_hostile_texts_get_an_error_and_no_verdict():
    for name, text in hostile():
        said = check.check(text)
        assert said.startswith("error: "), (name, said)
        if name.startswith(("no ", "float", "step", "long numbers", "NaN")):
            assert "field" in said or "fit" in said, (name, said)


def test_work_is_bounded(monkeypatch):
    document, _ = made(2)
    bomb = copy.deepcopy(document)
    (step,) = [s for s in bomb["steps"] if s["op"] == "sums"][:1]
    step["cells"] = {"patterns": [[0] * 20000], "at": [0] * 20000, "like": [0] * 20000}
    assert check.check(json.dumps(bomb)) == "error: certificate: too much work"
    monkeypatch.setattr(check, "WORK", 100)
    assert check.check(json.dumps(document)) == "error: certificate: too much work"
    monkeypatch.setattr(check, "BYTES", 10)
    assert check.check(json.dumps(document)).startswith("error: longer than")


# -- the file alone --


def test_the_checker_stands_alone_and_is_short(tmp_path):
    source = Path(check.__file__).read_text()
    imports = {
        line.split()[1] for line in source.splitlines() if line.startswith(("import ", "from "))
    }
    assert imports <= set(sys.stdlib_module_names)
    assert len(source.splitlines()) < 200
    (tmp_path / "check.py").write_text(source)
    document, _ = made(0)
    (tmp_path / "good.json").write_text(json.dumps(document))
    document["rows"][0]["least"]["int"][0] += 1 << 80
    (tmp_path / "false.json").write_text(json.dumps(document))
    (tmp_path / "bad.json").write_text("{}")
    for name, status, word in (
        ("good", 0, "verified"),
        ("false", 1, "rejected"),
        ("bad", 2, "error"),
    ):
        command = [sys.executable, "-I", "check.py", f"{name}.json"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout.split(":")[0]) == (status, word), done


def test_what_has_no_certificate_is_refused_by_name():
    tape = ln.Tape()
    x = tape.leaf(np.zeros((1, 4), np.float32))
    boxes = {x: Box(np.zeros((1, 4)), np.ones((1, 4)))}
    with pytest.raises(ValueError, match="certificates know sums and max, not smooth max"):
        certificate(tape, tape.smooth_max_pool(x, 2.0, kernel=(2,)), boxes)
    with pytest.raises(ValueError, match="powers of two"):
        certificate(tape, tape.div(x, np.float32(3.0)), boxes)
    with pytest.raises(ValueError, match="flush_subnormals"):
        certificate(tape, tape.relu(x), boxes, deployment=Deployment(flush_subnormals=True))
    with pytest.raises(ValueError, match="expected 'crown' or 'tight'"):
        certificate(tape, tape.relu(x), boxes, method="ibp")
