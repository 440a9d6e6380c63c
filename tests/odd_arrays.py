"""Kinds of arrays that users bring: those that must be served as their values, and those to refuse."""

import tempfile
from fractions import Fraction

import ml_dtypes
import numpy as np

UNIT = "m"


class Plain(np.ndarray):
    """A subclass that adds nothing but a name."""


class Quantity(np.ndarray):
    """As astropy's and unyt's: units, and arithmetic of its own."""

    unit = UNIT
    value = property(lambda self: self.view(np.ndarray))

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        raise AssertionError("computed with units")


class Tagged(np.ndarray):
    """Units that are an attribute of the object alone."""


class OwnWay(np.ndarray):
    """No units, but functions of its own: a masked array that is not NumPy's, say."""

    def __array_function__(self, function, types, arguments, options):
        raise AssertionError("computed in its own way")


class Duck:
    """Gives an array when asked."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        return self.x


class Interface:
    """NumPy's array interface and nothing else."""

    def __init__(self, x):
        self.x = x
        self.__array_interface__ = x.__array_interface__


class DuckQuantity(Duck):
    """As pint's: no subclass, but with units."""

    units = UNIT
    magnitude = property(lambda self: self.x)


class Held(DuckQuantity):
    """A quantity that computes as arrays do, so that other libraries hold it as it is."""

    shape, ndim, dtype, size = (property(lambda self, n=n: getattr(self.x, n)) for n in
                                ("shape", "ndim", "dtype", "size"))  # fmt: skip

    def __array_function__(self, function, types, arguments, options):
        return NotImplemented

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return NotImplemented

    def __getitem__(self, key):
        return Held(self.x[key])

    def astype(self, dtype, **options):
        return Held(self.x.astype(dtype))


class Liar(Duck):
    """Says that it has a shape and a dtype that it has not."""

    shape, dtype, ndim = (7, 7, 7), np.dtype("float32"), 3


class Refuses(Duck):
    """As a sparse array that will not be made dense."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("too large to be dense")


def unaligned(x):
    memory = np.zeros(x.nbytes + 1, np.uint8)
    out = memory[1:].view(x.dtype).reshape(x.shape)
    out[...] = x
    assert not out.flags.aligned or x.itemsize == 1
    return out


def mapped(x):
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the map holds it
    out = np.memmap(file, x.dtype, "w+", shape=x.shape)
    out[...] = x
    return out


def tagged(x):
    out = x.view(Tagged)
    out.units = UNIT
    return out


def read_only(x):
    out = x.copy()
    out.flags.writeable = False
    return out


def strided(x):
    out = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)[..., ::2]
    out[...] = x
    return out


def swapped(x):
    return x.astype(x.dtype.newbyteorder("S")) if x.dtype.kind != "O" else x


SERVED = {
    "as it is": lambda x: x,
    "other byte order": swapped,
    "other byte order, strided": lambda x: strided(swapped(x)),
    "Fortran order": np.asfortranarray,
    "reversed memory": lambda x: x[..., ::-1].copy()[..., ::-1],
    "strided": strided,
    "unaligned": unaligned,
    "read-only": read_only,
    "memory map": mapped,
    "record array": lambda x: x.view(np.recarray),
    "subclass": lambda x: x.view(Plain),
    "list": lambda x: x.tolist(),
    "array protocol": Duck,
    "array protocol, other byte order": lambda x: Duck(swapped(x)),
    "array protocol that lies about itself": Liar,
    "array interface": Interface,
}
"""Name → the same values in another guise."""


def objects(*values):
    def make(x):
        out = np.empty(x.shape, object)
        for i, place in enumerate(np.ndindex(x.shape)):
            out[place] = values[i % len(values)]
        return out

    return make


REFUSED = {
    "masked array": np.ma.masked_invalid,
    "masked array, nothing masked": np.ma.array,
    "list of masked arrays": lambda x: [np.ma.array(row) for row in x],
    "protocol that gives a masked array": lambda x: Duck(np.ma.array(x)),
    "quantity": lambda x: x.view(Quantity),
    "list of quantities": lambda x: [row.view(Quantity) for row in x],
    "protocol that gives a quantity": lambda x: Duck(x.view(Quantity)),
    "quantity that is no array": DuckQuantity,
    "units on the object": tagged,
    "functions of its own": lambda x: x.view(OwnWay),
    "structured": lambda x: np.zeros(x.shape, "f8,i4"),
    "record": lambda x: np.zeros(x.shape, "f8,i4").view(np.recarray),
    "dates": lambda x: x.astype("M8[s]"),
    "durations": lambda x: x.astype("m8[s]"),
    "complex": lambda x: x.astype(complex),
    "longdouble": lambda x: x.astype(np.longdouble),
    "float8": lambda x: x.astype(ml_dtypes.float8_e4m3fn),
    "int4": lambda x: x.astype(ml_dtypes.int4),
    "words": lambda x: x.astype(str),
    "bytes": lambda x: x.astype("S8"),
    "void": lambda x: np.zeros(x.shape, "V8"),
    "strings": lambda x: x.astype(str).astype(np.dtypes.StringDType()),
    "None": lambda x: None,
    "dict": lambda x: {"x": x},
    "set": lambda x: {1.0, 2.0},
    "generator": lambda x: (row for row in x),
    "ragged": lambda x: [[1.0], [1.0, 2.0]],
    "not dense": Refuses,
    "no axes": lambda x: np.array(1.0),
    "Fractions and floats": objects(Fraction(1, 3), 0.5),
    "float and float32": objects(0.5, np.float32(0.5)),
    "objects that are no numbers": objects("a", None),
    "arrays in an array": objects(np.ones(2)),
    "quantities in an array": objects(np.ones(2).view(Quantity)),
    "bools among objects": objects(True),
}
"""Name → what no entry may take for numbers."""
