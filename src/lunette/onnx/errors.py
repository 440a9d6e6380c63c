"""What a file that is not read says."""

from __future__ import annotations

__all__ = ["ReadError"]


class ReadError(ValueError):
    """A network or a property that is malformed, too large, or says what is not understood here.

    Examples
    --------
    >>> import lunette as ln
    >>> try:
    ...     ln.onnx.loads_property("(assert")
    ... except ln.onnx.ReadError as error:
    ...     print("refused")
    refused
    """
