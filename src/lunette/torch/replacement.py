"""A model's own torch pooling modules swapped for ours, where both mean the same.

All of it is decided before the first module is swapped, so a model is never left half replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from lunette.torch.conversion import Left, converted, is_pooling
from lunette.torch.nn import Pool

__all__ = ["Change", "Replacement", "replace"]


@dataclass(frozen=True)
class Change:
    """One pooling module of a model: where it is, what it was, and what came of it."""

    name: str
    before: Any
    after: Any | None
    reason: str

    def __str__(self) -> str:
        name, before = self.name or "(the model itself)", _shown(self.before)
        if self.after is None:
            return f"left      {name}: {before}: {self.reason}"
        return f"replaced  {name}: {before} → {self.after.op!r}"


@dataclass(frozen=True)
class Replacement:
    """What `replace` did to a model; `str` of it is a line per module."""

    model: Any
    changes: tuple[Change, ...]

    @property
    def replaced(self) -> tuple[Change, ...]:
        """The modules that are ours now."""
        return tuple(c for c in self.changes if c.after is not None)

    @property
    def left(self) -> tuple[Change, ...]:
        """The pooling modules that stay torch's, each with the reason."""
        return tuple(c for c in self.changes if c.after is None)

    def __str__(self) -> str:
        lines = [str(c) for c in self.changes] or ["no pooling modules"]
        return "\n".join(lines)


def replace(model: Any) -> Replacement:
    """Swap the pooling modules of `model` in place; say which were swapped and which left, and why.

    Where the model itself is a pooling module, the new one is `.model` of the answer. Calls of
    `torch.nn.functional` inside a model's own `forward` are not modules and stay.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    places = _places(model)
    quantised = any(_quantised(module) for module in model.modules())
    found: dict[int, tuple[Pool | None, str]] = {}
    changes = []
    for place in places:
        if id(place.module) not in found:  # a module used in two places stays one module
            found[id(place.module)] = _successor(place.module, quantised)
        changes.append(Change(place.name, place.module, *found[id(place.module)]))
    _swap([(p, c.after) for p, c in zip(places, changes, strict=True) if c.after is not None])
    itself = found.get(id(model), (None, ""))[0]
    return Replacement(model if itself is None else itself, tuple(changes))


# -- where pooling modules are --


class _Place(NamedTuple):
    """A pooling module, its name, and the module that has it under `key`; None has the model itself."""

    name: str
    parent: Any
    key: str
    module: Any


def _places(model: Any) -> list[_Place]:
    """Every place of every pooling module once, in the order of `named_modules`."""
    places = [_Place("", None, "", model)] if is_pooling(model) else []
    seen = {id(model)}

    def look(path: str, parent: Any) -> None:
        # Names are not split at dots again: a key may hold one.
        for key, module in parent._modules.items():
            if module is None:
                continue
            name = f"{path}.{key}" if path else key
            if is_pooling(module):
                places.append(_Place(name, parent, key, module))
            if id(module) not in seen:
                seen.add(id(module))
                look(name, module)

    look("", model)
    return places


def _swap(pairs: list[tuple[_Place, Any]]) -> None:
    """Put each successor in its place, or, where one of the places does not take it, none."""
    done = []
    try:
        for place, after in pairs:
            if place.parent is not None:
                done.append(place)
                place.parent._modules[place.key] = after
    except BaseException:
        for place in done:
            place.parent._modules[place.key] = place.module
        raise


# -- what takes a module's place --

STRUCTURE = vars(nn.Module())
"""What every module has of its own."""

KEPT = ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
"""Of these, what a successor takes over. The others are hooks: they may know the module that they are of."""

QUANTISED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.quantization")


def _successor(module: Any, quantised: bool) -> tuple[Pool | None, str]:
    """Our module with all that was set on torch's, or None and why there is none."""
    try:
        after = converted(module)
        if quantised:
            raise Left("the model is quantised, and Lunette does not take quantised tensors")
        _take_over(after, module)
    except Left as left:
        return None, str(left)
    return after, ""


def _take_over(after: Pool, module: Any) -> None:
    own = vars(module)
    hooked = [k for k in STRUCTURE if k.endswith("hooks") and own.get(k)]
    if hooked:
        raise Left("it has hooks, which would be lost")
    more = {k: v for k, v in own.items() if k not in STRUCTURE}
    for name, value in more.items():
        # A word or a number that hides a method of all modules hides it as before; YOLO's `type` is one.
        if name == "forward" or (callable(value) and hasattr(type(after), name)):
            raise Left(f"it has a {name!r} of its own, which would hide Lunette's")
        if getattr(value, "__self__", None) is module:
            raise Left(
                f"its attribute {name!r} is a method of it, which would be of the old module"
            )
        if name in vars(after) and name != "return_indices":
            raise Left(f"it has an attribute {name!r}, and so has Lunette's module")
    # torch's own arguments are kept too: a model may read the kernel_size of a module.
    after.__dict__.update({k: own[k] for k in KEPT if k in own})
    after.__dict__.update({k: v for k, v in more.items() if k != "return_indices"})


def _quantised(module: Any) -> bool:
    """Whether modules beside this one are given quantised tensors, now or once it is converted."""
    place = type(module).__module__
    return place.startswith(QUANTISED) and not place.startswith("torch.ao.nn.quantized.dynamic")


def _shown(module: Any) -> str:
    """A module's repr; its class where a strange argument leaves it without one."""
    try:
        return repr(module)
    except Exception:
        return f"{type(module).__name__}(…)"
