"""Units of files by the names that OME-NGFF has for them, and the symbols of OME-TIFF."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["SYMBOLS", "positive", "unit_named"]

SYMBOLS = {
    "meter": "m",
    "decimeter": "dm",
    "centimeter": "cm",
    "millimeter": "mm",
    "micrometer": "µm",
    "nanometer": "nm",
    "picometer": "pm",
    "femtometer": "fm",
    "kilometer": "km",
    "angstrom": "Å",
    "inch": "in",
    "foot": "ft",
    "yard": "yd",
    "mile": "mi",
    "parsec": "pc",
    "second": "s",
    "millisecond": "ms",
    "microsecond": "µs",
    "nanosecond": "ns",
    "minute": "min",
    "hour": "h",
    "day": "d",
}

NAMES = {symbol: name for name, symbol in SYMBOLS.items()}
NAMES |= {"um": "micrometer", "μm": "micrometer", "us": "microsecond", "μs": "microsecond"}
NAMES |= {"sec": "second", "msec": "millisecond", "hr": "hour", "ang": "angstrom"}
NAMES |= {f"{name}s": name for name in SYMBOLS} | {name: name for name in SYMBOLS}
NAMES |= {"micron": "micrometer", "microns": "micrometer", "inches": "inch", "feet": "foot"}


def unit_named(text: Any) -> str | None:
    """The name of a unit; None for one that is not known, such as `pixel`."""
    if not isinstance(text, str):
        return None
    text = text.replace("\\u00B5", "µ").strip()  # as ImageJ writes it
    return NAMES.get(text) or NAMES.get(text.casefold())


def positive(value: Any) -> float | None:
    """A size that can be one: a positive, finite number."""
    try:
        size = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return size if math.isfinite(size) and size > 0 else None
