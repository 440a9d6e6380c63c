"""A model's own torch pooling modules, and convolutions if asked for, swapped for ours, where both mean the same.

All of it is decided before the first module is swapped, so a model is never left half replaced. Pooling functions that
the model's own methods call are served too, and `restore` undoes both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from lunette.arguments import choice, flag
from lunette.torch.conversion import Left, converted, is_convolution, is_pooling
from lunette.torch.functions import calls_of, plain_class, served
from lunette.torch.nn import Conv, Pool

__all__ = ["Change", "Replacement", "Served", "replace", "restore"]


@dataclass(frozen=True)
class Change:
    """One pooling module of a model: where it is, what it was, and what came of it.

    Parameters
    ----------
    name : str
        Where it is in the model.
    before : torch.nn.Module
        What was there.
    after : torch.nn.Module or None
        What is there now; None where it was left.
    reason : str
        Why it was left.

    Examples
    --------
    >>> import torch
    >>> import lunette as ln
    >>> model = torch.nn.Sequential(torch.nn.MaxPool2d(2))
    >>> [change.name for change in ln.torch.replace(model).changes]
    ['0']
    """

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
class Served:
    """Pooling functions that a method of a module calls: they are ours now, or there is a reason.

    Parameters
    ----------
    name : str
        Where the module is in the model.
    method : str
        Which of its methods calls them.
    functions : tuple of str
        Their names.
    reason : str
        Why they stay torch's.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.torch.Served("stem", "forward", ("max_pool2d",), "").functions
    ('max_pool2d',)
    """

    name: str
    method: str
    functions: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        about = (
            f"{self.name or '(the model itself)'}: {self.method} calls {', '.join(self.functions)}"
        )
        return f"left      {about}: {self.reason}" if self.reason else f"served    {about}"


@dataclass(frozen=True)
class Replacement:
    """What `replace` did to a model; `str` of it is a line per module, then one per method that calls pooling functions.

    Parameters
    ----------
    model : torch.nn.Module
        The model, changed in place.
    changes : tuple of Change
        One for each pooling module.
    functions : tuple of Served
        One for each method that calls pooling functions.
    when : {"faster", "always"}
        What was asked for.

    Examples
    --------
    >>> import torch
    >>> import lunette as ln
    >>> model = torch.nn.Sequential(torch.nn.MaxPool2d(2))
    >>> len(ln.torch.replace(model).changes)
    1
    """

    model: Any
    changes: tuple[Change, ...]
    functions: tuple[Served, ...] = ()
    when: str = "faster"

    @property
    def replaced(self) -> tuple[Change, ...]:
        """The modules that are ours now."""
        return tuple(c for c in self.changes if c.after is not None)

    @property
    def left(self) -> tuple[Change, ...]:
        """The pooling modules that stay torch's, each with the reason."""
        return tuple(c for c in self.changes if c.after is None)

    def __str__(self) -> str:
        lines = [str(c) for c in (*self.changes, *self.functions)] or ["no pooling modules"]
        return "\n".join(lines)


def replace(
    model: Any, when: str = "faster", functions: bool = True, convolutions: bool = False
) -> Replacement:
    """Swap the pooling modules of `model` in place; say which were swapped and which left, and why.

    Where the model itself is a pooling module, the new one is `.model` of the answer. With `functions`, torch's pooling
    functions that methods of the model call are served by ours too. With `when="faster"` calls that torch is the
    faster one at, by a rule and not by timing, stay torch's; `"always"` serves them all. With `convolutions`, `nn.Conv1d` to
    `nn.Conv3d` are swapped too: on a CPU ours are faster at volumes in small batches and at long depthwise windows.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place.
    when : {"faster", "always"}, default "faster"
        Which calls ours serve.
    functions : bool, default True
        Also torch's functions that methods of the model call.
    convolutions : bool, default False
        Also `nn.Conv1d` to `nn.Conv3d`.

    Returns
    -------
    Replacement
        What was done; print it to read it.

    Raises
    ------
    ValueError, TypeError
        For what is no model, or another word; the model is as it was.

    Examples
    --------
    >>> import torch
    >>> import lunette as ln
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.MaxPool2d(2))
    >>> replacement = ln.torch.replace(model)
    >>> type(model[1]).__module__.partition(".")[0]
    'lunette'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    choose = choice(when, "when", ("faster", "always")) == "faster"
    too = flag(convolutions, "convolutions")
    places = _places(model, lambda module: is_pooling(module) or (too and is_convolution(module)))
    quantised = any(_quantised(module) for module in model.modules())
    found: dict[int, tuple[Any, str]] = {}
    changes = []
    for place in places:
        if id(place.module) not in found:  # a module used in two places stays one module
            found[id(place.module)] = _successor(place.module, quantised, choose)
        changes.append(Change(place.name, place.module, *found[id(place.module)]))
    calls, steps = [], []
    if flag(functions, "functions"):
        for served_calls, step in _functions(model, quantised, choose):
            calls.append(served_calls)
            steps.append(step)
    _swap([(p, c.after) for p, c in zip(places, changes, strict=True) if c.after is not None])
    for step in steps:
        step()
    itself = found.get(id(model), (None, ""))[0]
    return Replacement(
        model if itself is None else itself,
        tuple(changes),
        tuple(calls),
        "faster" if choose else when,
    )


def restore(model: Any) -> Any:
    """Undo `replace`, in place: the modules that were there before are back, the same objects, and methods call torch's functions.

    The answer is the model; where it was itself a pooling module, torch's. What was set on our module since is set on torch's; one with
    hooks of its own is an error, before anything is changed. In a copy of a model the old modules are copies too.

    Parameters
    ----------
    model : torch.nn.Module
        One that `replace` has changed.

    Returns
    -------
    torch.nn.Module
        The model.

    Raises
    ------
    ValueError, TypeError
        For a module of ours with hooks of its own; the model is as it was.

    Examples
    --------
    >>> import torch
    >>> import lunette as ln
    >>> model = torch.nn.Sequential(torch.nn.MaxPool2d(2))
    >>> replacement = ln.torch.replace(model)
    >>> ln.torch.restore(model)
    Sequential(
      (0): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
    )
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    places = _places(
        model, lambda module: isinstance(module, (Conv, Pool)) and module.replaced is not None
    )
    for place in places:
        if any(vars(place.module).get(k) for k in HOOKS):
            raise ValueError(
                f"module {place.name or '(the model itself)'} has hooks that were registered after it was "
                "replaced, and they would be lost; remove them first"
            )
    modules = list(model.modules())
    _swap([(place, place.module.replaced) for place in places])
    for place in places:
        _give_back(place.module)
    for module in modules:
        if plain_class(module) is not type(module):
            module.__class__ = plain_class(module)
    return places[0].module.replaced if places and places[0].parent is None else model


def _functions(
    model: Any, quantised: bool, choose: bool
) -> Iterator[tuple[Served, Callable[[], None]]]:
    """The methods of a model's modules that call pooling functions, and how each module comes to call ours."""
    for name, module in model.named_modules():
        if plain_class(module) is not type(module):  # served before
            continue
        found = calls_of(type(module))
        reason, step = "", _nothing
        if any(not f.reason for f in found):
            try:
                if quantised:
                    raise Left(
                        "the model is quantised, and Lunette does not take quantised tensors"
                    )
                step = served(module, choose)
            except Left as left:
                reason = str(left)
        for n, f in enumerate(found):
            yield Served(name, f.method, f.names, f.reason or reason), _nothing if n else step


def _nothing() -> None:
    """No step to take."""


# -- where pooling modules are --


class _Place(NamedTuple):
    """A pooling module, its name, and the module that has it under `key`; None has the model itself."""

    name: str
    parent: Any
    key: str
    module: Any


def _places(model: Any, wanted: Callable[[Any], bool]) -> list[_Place]:
    """Every place of every module that is wanted once, in the order of `named_modules`."""
    places = [_Place("", None, "", model)] if wanted(model) else []
    seen = {id(model)}

    def look(path: str, parent: Any) -> None:
        # Names are not split at dots again: a key may hold one.
        for key, module in parent._modules.items():
            if module is None:
                continue
            name = f"{path}.{key}" if path else key
            if wanted(module):
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

HOOKS = tuple(k for k in STRUCTURE if k.endswith("hooks"))

OURS = ("always", "op", "preferred", "replaced", "return_indices")
"""What a module of ours has besides."""

KEPT = ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
"""Of these, what a successor takes over. The others are hooks: they may know the module that they are of."""

QUANTISED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.quantization")


def _successor(module: Any, quantised: bool, choose: bool) -> tuple[Any, str]:
    """Our module with all that was set on torch's, or None and why there is none."""
    try:
        after = converted(module)
        if quantised:
            raise Left("the model is quantised, and Lunette does not take quantised tensors")
        _take_over(after, module)
        # Past nn.Module's own __setattr__: the old module is not a part of the model.
        after.__dict__["replaced"] = module
        if isinstance(after, Conv):
            after.always = not choose
        elif choose and not after.return_indices:
            after.__dict__["preferred"] = module
    except Left as left:
        return None, str(left)
    return after, ""


def _take_over(after: Any, module: Any) -> None:
    own = vars(module)
    if any(own.get(k) for k in HOOKS):
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
        if name in OURS and name != "return_indices":
            raise Left(f"it has an attribute {name!r}, and so has Lunette's module")
    # torch's own arguments are kept too: a model may read the kernel_size of a module.
    after.__dict__.update({k: own[k] for k in KEPT if k in own})
    after.__dict__.update({k: v for k, v in more.items() if k != "return_indices"})


def _give_back(after: Any) -> None:
    """What was set on ours since, on torch's module."""
    own, before = vars(after), after.replaced
    kept = {k: v for k, v in own.items() if k not in STRUCTURE and k not in OURS}
    before.__dict__.update(kept, training=after.training)
    if "return_indices" in vars(before):
        before.return_indices = after.return_indices


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
