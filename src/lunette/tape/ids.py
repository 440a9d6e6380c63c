"""What a tape's methods return: the number of a node, which also knows the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lunette.tape.tape import Tape

__all__ = ["Id"]


class Id(int):
    """A node's number, 0 for the first. Hash, order and equality are those of the number.

    Arithmetic (`+ - * / @` and unary `-`) records a new node instead; a number or an array on the
    other side becomes a constant. Ids of different tapes are never equal.

    Parameters
    ----------
    number : int
        The place of the node on its tape.
    tape : Tape
        Whose node it is.

    Examples
    --------
    >>> import lunette as ln
    >>> tape = ln.Tape()
    >>> x = tape.leaf([1.0, 2.0], "x")
    >>> int(x), x.name, x.shape, (x + 1.0).value.tolist()
    (0, 'x', (2,), [2.0, 3.0])
    """

    tape: Tape
    __array_ufunc__ = None  # so that `array + id` asks the id, and np.exp(id) is an error

    def __new__(cls, number: int, tape: Tape) -> Id:
        self = super().__new__(cls, number)
        self.tape = tape
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the node's value; known after `release`, too."""
        return self.tape._nodes[int(self)].shape

    @property
    def dtype(self) -> Any:
        """The dtype of the node's value."""
        return self.tape._nodes[int(self)].dtype

    @property
    def name(self) -> str:
        """The node's name."""
        return self.tape._nodes[int(self)].name

    @property
    def value(self) -> Any:
        """The node's value: `tape.value(id)`."""
        return self.tape.value(self)

    def __repr__(self) -> str:
        return f"<{int(self)} {self.name}: {self.shape} {self.dtype}>"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Id):
            return self.tape is other.tape and int(self) == int(other)
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r}: an id belongs to its tape; it cannot be pickled or copied")

    def __copy__(self) -> Id:
        return self

    def __deepcopy__(self, memo: Any) -> Id:
        return self

    def __add__(self, other: Any) -> Id:
        return self.tape._operate("add", self, other)

    def __radd__(self, other: Any) -> Id:
        return self.tape._operate("add", other, self)

    def __sub__(self, other: Any) -> Id:
        return self.tape._operate("sub", self, other)

    def __rsub__(self, other: Any) -> Id:
        return self.tape._operate("sub", other, self)

    def __mul__(self, other: Any) -> Id:
        return self.tape._operate("mul", self, other)

    def __rmul__(self, other: Any) -> Id:
        return self.tape._operate("mul", other, self)

    def __truediv__(self, other: Any) -> Id:
        return self.tape._operate("div", self, other)

    def __rtruediv__(self, other: Any) -> Id:
        return self.tape._operate("div", other, self)

    def __matmul__(self, other: Any) -> Id:
        return self.tape._operate("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Id:
        return self.tape._operate("matmul", other, self)

    def __neg__(self) -> Id:
        return self.tape._operate("neg", self)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        return _refused("**", self)

    def __floordiv__(self, other: Any) -> Any:
        return _refused("//", self)

    def __mod__(self, other: Any) -> Any:
        return _refused("%", self)

    __rpow__ = __pow__
    __rfloordiv__ = __floordiv__
    __rmod__ = __mod__


def _refused(operator: str, node: Id) -> Any:
    raise TypeError(f"{operator} of {node!r}: no such op on a tape; see lunette.tape.register")
