"""Draws calls of every public constructor and function with arguments of any kind, and says what is wrong with an answer.

Run as a program it draws `--count` calls from `--seed` under a limit of address space, and prints what it found as JSON.
"""

import argparse
import contextlib
import json
import random
import re
import reprlib
import signal
import sys
import time
import warnings
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import numpy as np

import lunette as ln

HANG = 120
"""Seconds after which a call counts as one that does not end; a kernel may have to be compiled meanwhile."""


class Raises:
    """Every question about it is an error of another kind."""

    def __index__(self):
        raise ZeroDivisionError("index")

    def __len__(self):
        raise KeyError("len")

    def __iter__(self):
        raise RuntimeError("iter")

    def __repr__(self):
        raise OSError("repr")

    def __float__(self):
        raise MemoryError("float")

    def __bool__(self):
        raise LookupError("bool")


class Quiet(Raises):
    __repr__ = object.__repr__


class HostileTuple(tuple):
    __slots__ = ()

    def __len__(self):
        raise ZeroDivisionError("len")

    def __iter__(self):
        raise ZeroDivisionError("iter")

    def __getitem__(self, i):
        raise ZeroDivisionError("item")


class HostileList(list):
    def __iter__(self):
        while True:
            yield 1

    def __len__(self):
        return 1 << 40


class HostileText(str):
    __slots__ = ()

    def __eq__(self, other):
        raise ZeroDivisionError("eq")

    __hash__ = str.__hash__


class Word(str):
    __slots__ = ()


class Unhashable:
    __hash__ = None


class Large:
    def __index__(self):
        return 10**4400


class Two(IntEnum):
    two = 2


class Number(int):
    pass


def nasty(rng):
    """A value that few arguments expect."""
    return rng.choice(
        [
            lambda: rng.choice([True, False, np.True_, np.False_]),
            lambda: rng.choice([np.int8, np.uint8, np.int32, np.int64, np.uint64])(
                rng.randint(0, 4)
            ),
            lambda: np.uint64(2**63 + rng.randint(0, 5)),
            lambda: rng.choice([np.float16, np.float32, np.float64, np.longdouble])(2),
            lambda: rng.choice([2.0, 2.5, -0.0, 0.0, float("nan"), float("inf"), -float("inf")]),
            lambda: rng.choice([0, -1, -(2**63), -(10**400), -(10**5000)]),
            lambda: 2 ** rng.choice([16, 31, 32, 40, 62, 63, 64, 65, 99]) + rng.randint(-2, 2),
            lambda: rng.choice([10**18, 10**30, 10**40, 10**400, 10**5000]),
            lambda: rng.choice([Decimal(2), Fraction(2), Fraction(1, 3), Fraction(10**400, 3)]),
            lambda: rng.choice(["2", "same", "valid", "", "é" * 1000, b"2", "first", "split"]),
            lambda: rng.choice([None, Ellipsis, slice(2), int, lambda: 2, object(), 2 + 0j]),
            lambda: rng.choice([(), [], (2,), [2], (2, 2), [2, 2], (1, 2, 3), (2,) * 65]),
            lambda: (1,) * rng.choice([60, 64, 66, 100_000]),
            lambda: rng.choice([((1, 1),), ((1, 2), (3, 4)), ((0, 10**18),), ((((1,),),),)]),
            lambda: ((1, nasty(rng)), rng.randint(0, 2)),
            lambda: (nasty(rng),) * rng.randint(1, 2),
            lambda: (n for n in (2, 2)),
            lambda: iter(int, 1),
            lambda: rng.choice([range(2), range(10**12), {2}, frozenset({2}), {}, {"x": 2}]),
            lambda: rng.choice([bytearray(2), memoryview(b"22"), array_of(rng)]),
            lambda: array_of(rng),
            lambda: rng.choice([Raises(), Quiet(), Unhashable(), Large(), Two.two, Number(2)]),
            lambda: rng.choice([HostileTuple((2, 2)), HostileTuple(), HostileList([2, 2])]),
            lambda: rng.choice([HostileText("same"), HostileText("x"), Word("same"), Word("all")]),
            lambda: rng.choice([ln.MaxPool((2,)), ln.Max(), ln.Sliding(2), ln.MaxPool]),
        ]
    )()


def array_of(rng):
    return rng.choice(
        [
            np.array(2),
            np.array([2]),
            np.array([2, 2]),
            np.zeros((2, 2)),
            np.array(2.0),
            np.array([None]),
            np.zeros(10**6),
        ]
    )


def some_size(rng):
    return rng.choice([1, 1, 2, 2, 3, 4, 7, 100, 10**9, 2**40]) if rng.random() < 0.9 else 2**62


def per_axis(rng, rank):
    if rng.random() < 0.5:
        return some_size(rng)
    return tuple(some_size(rng) for _ in range(rank))


def some_padding(rng, rank):
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(["same", "valid", 0, 1])
    if kind < 0.6:
        return per_axis(rng, rank)
    return tuple((rng.randint(0, 3), some_size(rng)) for _ in range(rank))


VALUES = {
    "kernel": lambda rng, rank: tuple(some_size(rng) for _ in range(rank)),
    "output_size": lambda rng, rank: tuple(some_size(rng) for _ in range(rank)),
    "stride": lambda rng, rank: rng.choice([None, per_axis(rng, rank), per_axis(rng, rank)]),
    "dilation": per_axis,
    "padding": some_padding,
    "output_padding": lambda rng, rank: rng.choice([0, 0, 1, (1,) * rank]),
    "groups": lambda rng, rank: rng.choice([1, 1, 2]),
    "ceil_mode": lambda rng, rank: rng.random() < 0.5,
    "count_include_pad": lambda rng, rank: rng.random() < 0.5,
    "keepdims": lambda rng, rank: rng.random() < 0.5,
    "return_indices": lambda rng, rank: rng.random() < 0.5,
    "divisor_override": lambda rng, rank: rng.choice([None, 1, 3, 10**20]),
    "ties": lambda rng, rank: rng.choice(["first", "all", "split"]),
    "sparse": lambda rng, rank: rng.random() < 0.5,
    "beta": lambda rng, rank: rng.choice([1.0, -2.0, 1e300, 1e-300, 3, np.float32(0.5)]),
    "ndim": lambda rng, rank: rank,
    "backend": lambda rng, rank: rng.choice([None, None, "cpu", "gpu"]),
    "axes": lambda rng, rank: rng.choice([None, 0, tuple(rng.sample(range(-4, 4), rank))]),
    "dtype": lambda rng, rank: rng.choice([None, "same"]),
    "regions": lambda rng, rank: tuple(
        rng.choice([ln.Sliding(2, 1, 1), ln.Adaptive(3), ln.Global()]) for _ in range(rank)
    ),
    "reduction": lambda rng, rank: rng.choice([ln.Max(), ln.Mean(), ln.SmoothMax(1.0)]),
    "n": lambda rng, rank: rng.randint(1, 2),
}

POOLS = {
    "MaxPool": "kernel stride padding dilation ceil_mode ties",
    "MinPool": "kernel stride padding dilation ceil_mode ties",
    "ModePool": "kernel stride padding dilation ceil_mode sparse",
    "AvgPool": "kernel stride padding dilation ceil_mode count_include_pad divisor_override",
    "SmoothMaxPool": "kernel beta stride padding dilation ceil_mode count_include_pad",
    "AdaptiveAvgPool": "output_size",
    "AdaptiveMaxPool": "output_size ties",
    "GlobalAvgPool": "ndim keepdims",
    "GlobalMaxPool": "ndim keepdims ties",
    "Pool": "regions reduction keepdims",
}
CONVOLUTIONS = {
    "Conv": "kernel stride padding dilation groups",
    "ConvTranspose": "kernel stride padding output_padding dilation groups",
}
RECORDS = {
    "Sliding": "kernel stride padding dilation ceil_mode",
    "Adaptive": "output_size",
    "Max": "ties",
    "Min": "ties",
    "Mode": "ties sparse",
    "Mean": "count_include_pad divisor_override",
    "RoundedMean": "count_include_pad",
    "SmoothMax": "beta count_include_pad",
    "set_num_threads": "n",
}
FUNCTIONS = {
    "max_pool": "x " + POOLS["MaxPool"] + " return_indices backend",
    "min_pool": "x " + POOLS["MinPool"] + " return_indices backend",
    "mode_pool": "x " + POOLS["ModePool"] + " backend",
    "avg_pool": "x " + POOLS["AvgPool"] + " backend",
    "smooth_max_pool": "x " + POOLS["SmoothMaxPool"] + " backend",
    "adaptive_avg_pool": "x output_size backend",
    "adaptive_max_pool": "x output_size ties return_indices backend",
    "global_avg_pool": "x ndim keepdims backend",
    "global_max_pool": "x ndim keepdims ties backend",
    "conv": "x weight bias stride padding dilation groups backend",
    "conv_transpose": "x weight bias stride padding output_padding dilation groups backend",
    "max_unpool": "values indices output_size",
}
for _table in (POOLS, CONVOLUTIONS, FUNCTIONS):
    _table |= {name: f"{of} axes" for name, of in _table.items()}
for _table, _name in ((POOLS, "AvgPool"), (FUNCTIONS, "avg_pool")):
    _table[_name] += " dtype"
EVERY = {**POOLS, **CONVOLUTIONS, **RECORDS, **FUNCTIONS}
FIRST_SIZES = {"kernel", "output_size", "ndim", "n", "regions", "reduction", "beta"}
"""What has no default, beside the operands."""

SHAPES = {"shape", "axis", "result", "gradient", "operand", "dtype"}


def operand(rng, name, rank):
    dtype = rng.choice(["f2", "f4", "f4", "f8"])
    lengths = tuple(rng.choice([1, 2, 3, 5]) for _ in range(rank))
    if rng.random() < 0.05:
        lengths = (0, *lengths[1:])
    if name == "weight":
        shape = (2, rng.choice([1, 2, 2]), *lengths)
    elif name == "bias":
        return None if rng.random() < 0.6 else np.ones(2, "f4")
    elif name == "indices":
        return np.zeros((2, *lengths), np.int64)
    else:
        shape = (rng.choice([0, 1, 2, 2]), *lengths)
    made = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float64).reshape(shape)
    if name == "x" and rng.random() < 0.1:
        return (9 * made).astype(rng.choice(["u1", "i8", "?"]))
    return made.astype(dtype)


def draw(rng, likely_nasty):
    """(name of a function, its arguments by name)."""
    name = rng.choice(list(EVERY))
    rank = rng.choice([1, 1, 2, 2, 3, 4])
    given = {}
    for parameter in EVERY[name].split():
        operands = parameter in ("x", "weight", "bias", "values", "indices")
        if not operands and parameter not in FIRST_SIZES and rng.random() < 0.4:
            continue
        if operands:
            given[parameter] = operand(rng, parameter, rank)
        else:
            given[parameter] = VALUES[parameter](rng, rank)
        if not operands and rng.random() < likely_nasty:
            given[parameter] = nasty(rng)
    if name == "conv" and given["x"].ndim == rank + 1 and rng.random() < 0.8:
        given["x"] = given["x"][None].repeat(2, 1)[:, : given["weight"].shape[1]]
        given["weight"] = given["weight"].astype(given["x"].dtype)
    if name == "conv_transpose" and rng.random() < 0.8:
        given["x"] = np.resize(given["x"], (2, *given["x"].shape[1:])).astype("f4")
        given["weight"] = given["weight"].astype("f4")
    if name == "max_unpool" and rng.random() < 0.8:
        given["indices"] = np.zeros(given["values"].shape, np.int64)
    return name, given


# -- what is wrong with an answer --


def wrong(name, given, counts):
    """None, or what a call did that it should not; its result is compared with the specification where that is small."""
    try:
        result = getattr(ln, name)(**given)
        if name in POOLS or name in CONVOLUTIONS:
            result = use(result)
    except (ValueError, TypeError) as error:
        counts["refused"] += 1
        return complaint(name, str(error))
    except Hang:
        return f"no answer after {HANG} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    counts["answered"] += 1
    if name in FUNCTIONS and "backend" in EVERY[name] and not isinstance(result, tuple):
        return disagreement(name, given, result)
    return None


def use(op):
    """An op says what it is: its text reads back, and it has a shape for a shape."""
    assert eval(repr(op), vars(ln)) == op and hash(op) == hash(eval(repr(op), vars(ln)))
    with contextlib.suppress(ValueError):
        if isinstance(op, ln.ops.pooling.Pooling):
            op.out_shape((10**18,) * op.rank)
    return op


def complaint(name, message):
    if len(message) > 2000:
        return f"a message of {len(message)} characters"
    names = set(EVERY[name].split()) | SHAPES
    if not any(re.search(rf"\b{word}\b", message) for word in names):
        return f"names no argument: {message[:300]}"
    return None


def disagreement(name, given, result):
    cells = sum(a.size for a in given.values() if isinstance(a, np.ndarray)) + result.size
    if cells > 300 or given.get("backend") == "spec" or not result.size:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = getattr(ln, name)(**{**given, "backend": "spec"})
    loose = 1e-2 if result.dtype.itemsize == 2 else 1e-4
    near = np.allclose(result.astype("f8"), expected.astype("f8"), loose, loose, equal_nan=True)
    if result.shape != expected.shape or result.dtype != expected.dtype or not near:
        return f"{result.ravel()[:5]} of {result.shape}; the specification has {expected.ravel()[:5]} of {expected.shape}"
    return None


class Hang(Exception):
    pass


def alarm(*_):
    raise Hang


def text(value):
    try:
        return reprlib.repr(value)
    except Exception as error:
        return f"{type(value).__name__} ({type(error).__name__})"


def short(given):
    return {
        name: f"array{value.shape}{value.dtype}" if isinstance(value, np.ndarray) else text(value)
        for name, value in given.items()
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=2000)
    options = parser.parse_args()
    import resource

    ln.max_pool(np.zeros((2, 2)), (2, 2))  # Numba is there before the limit is
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    limit = taken + (options.megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGALRM, alarm)
    threads = ln.get_num_threads()
    rng, found, slowest = random.Random(options.seed), [], (0.0, "")
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", ln.SlowPathWarning)
    counts = {"answered": 0, "refused": 0}
    for number in range(options.count):
        name, given = draw(rng, rng.choice([0.0, 0.1, 0.4]))
        started = time.monotonic()
        signal.alarm(HANG)
        problem = wrong(name, given, counts)
        signal.alarm(0)
        took = time.monotonic() - started
        ln.set_num_threads(threads)
        if took > slowest[0]:
            slowest = took, f"{number} {name} {short(given)}"
        if problem:
            found.append(f"{number} {name}({short(given)}): {problem}")
    json.dump({"calls": options.count, **counts, "wrong": found, "slowest": slowest}, sys.stdout)


if __name__ == "__main__":
    main()
