"""Calls of torch's pooling functions that a model makes itself, served by ours.

`served(module)` gives a module a class of its own, made from its class: the same methods, but those that call pooling
functions find ours under the names by which they call torch's. Nothing else in the process changes, no other module's
calls cost more, and no thread sees another's. `replaced()` serves every call below it, at a cost for each torch function.
"""

from __future__ import annotations

import copyreg
import dis
from collections.abc import Callable, Iterator
from functools import lru_cache, update_wrapper
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.fx import GraphModule
from torch.nn import functional as theirs
from torch.overrides import TorchFunctionMode

from lunette.arguments import choice
from lunette.torch import eager
from lunette.torch.conversion import Left
from lunette.torch.nn import functional as ours
from lunette.torch.speed import is_slower

__all__ = ["Found", "calls_of", "plain_class", "replaced", "served"]

NAMES = tuple(n for n in ours.__all__ if hasattr(theirs, n) and "unpool" not in n)
"""What is served. Unpooling is not: of equal indices torch keeps any, and sends each a gradient."""

ALSO = {
    torch: {
        **{n: n for n in ("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d")},
        **{n: n for n in ("max_pool1d_with_indices", "adaptive_avg_pool1d")},
        "adaptive_max_pool1d": "adaptive_max_pool1d_with_indices",
    }
}
"""torch's own names of them, outside torch.nn.functional."""


# -- a function in the place of torch's --


def _instead(function: Any, name: str, choose: bool) -> Any:
    """Ours for plain tensors outside every mode of torch; torch's for all else, and for what ours refuses."""
    own = getattr(ours, name)

    def serve(*arguments: Any, **options: Any) -> Any:
        x = arguments[0] if arguments else options.get("input")
        if not eager.serves(x) or (choose and is_slower(x)):
            return function(*arguments, **options)
        try:
            return own(*arguments, **options)
        except (TypeError, ValueError):
            return function(*arguments, **options)

    return update_wrapper(serve, own)


class Table(NamedTuple):
    """Our functions, and torch's modules with ours in them."""

    functions: dict[Any, Any]
    modules: dict[Any, Any]


class _Module:
    """A module of torch's with some names of ours; no ModuleType, which looks long for a name before it asks here."""

    def __init__(self, module: ModuleType, own: dict[str, Any]) -> None:
        self.__dict__.update(own)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


@lru_cache(maxsize=2)
def _table(choose: bool) -> Table:
    places: dict[Any, dict[str, str]] = {theirs: {n: n for n in NAMES}, **ALSO}
    functions = {
        getattr(place, name): _instead(getattr(place, name), own, choose)
        for place, names in places.items()
        for name, own in names.items()
    }
    inside = {
        place: {name: functions[getattr(place, name)] for name in names}
        for place, names in places.items()
    }
    functional = _Module(theirs, inside[theirs])
    modules = _Module(nn, {"functional": functional})
    whole = _Module(torch, {"nn": modules, **inside[torch]})
    return Table(functions, {theirs: functional, nn: modules, torch: whole})


# -- all calls for a while --


class replaced(TorchFunctionMode):  # type: ignore[misc]
    """`with replaced():` serves torch's pooling functions by ours, in this thread, whoever calls them.

    torch hands every function over to a mode, which costs some microseconds for each.

    Parameters
    ----------
    when : {"faster", "always"}, default "faster"
        Which calls ours serve.

    Raises
    ------
    ValueError
        For another word.

    Examples
    --------
    >>> import torch
    >>> import lunette as ln
    >>> with ln.torch.replaced():
    ...     torch.nn.functional.max_pool2d(torch.zeros(1, 1, 4, 4), 2).shape
    torch.Size([1, 1, 2, 2])
    """

    def __init__(self, when: str = "faster") -> None:
        super().__init__()
        choose = choice(when, "when", ("faster", "always")) == "faster"
        self.functions = _table(choose).functions

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.functions.get(function, function)(*args, **(kwargs or {}))


# -- the calls in a module's own methods --


class Found(NamedTuple):
    """A method that calls pooling functions: which, or why they stay torch's."""

    method: str
    names: tuple[str, ...]
    reason: str


def calls_of(kind: type) -> list[Found]:
    """Which methods of a class call pooling functions."""
    found = []
    for name, method in _methods(kind):
        inner = method
        while hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        if not isinstance(inner, FunctionType):
            continue
        names = sorted({n for code in _codes(inner.__code__) for n in _called(code, inner)})
        if names:
            found.append(Found(name, tuple(names), _hindrance(method, inner)))
    return found


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods of a class that are its authors' and not torch's, those of a base last."""
    seen = set()
    for base in kind.__mro__:
        if base is object or base.__module__.partition(".")[0] in ("torch", "lunette"):
            continue
        for name, value in vars(base).items():
            if name not in seen:
                seen.add(name)
                yield name, value


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _called(code: CodeType, function: FunctionType) -> Iterator[str]:
    """The pooling functions that code names: by themselves, or as attributes of torch's modules."""
    table, scope = _table(True), function.__globals__
    globals_: list[Any] = [scope.get(n) for n in _names(code, True)]
    yield from (v.__name__ for v in globals_ if _is_key(v) and v in table.functions)
    if any(v is m for v in globals_ for m in table.modules):
        yield from _names(code, False) & {*NAMES, *ALSO[torch]}


def _names(code: CodeType, of_globals: bool) -> set[str]:
    """The names that code looks up among globals, or uses in any other way."""
    return {
        i.argval
        for i in dis.get_instructions(code)
        if i.opcode in dis.hasname and (i.opname == "LOAD_GLOBAL") is of_globals
    }


def _is_key(value: Any) -> bool:
    return callable(value) and getattr(type(value), "__hash__", None) is not None


def _hindrance(method: Any, inner: FunctionType) -> str:
    if method is not inner:
        return "it is decorated"
    for code in _codes(inner.__code__):
        both = {n for n in _names(code, True) & _names(code, False) if _new_name(n, inner, True)}
        if both:
            return f"it uses the name {min(both)!r} for something else too"
    return ""


def _new_name(name: str, function: FunctionType, choose: bool) -> str:
    """Under which name a function finds ours; nothing for other names."""
    value: Any = function.__globals__.get(name)
    table = _table(choose)
    end = "" if choose else "_always"
    for module in table.modules:
        if value is module:
            return f"__lunette_{module.__name__.replace('.', '_')}{end}__"
    if _is_key(value) and value in table.functions:
        return f"__lunette_{table.functions[value].__name__}{end}__"
    return ""


def _rewritten(function: FunctionType, choose: bool) -> FunctionType:
    """The same function, with ours for torch's pooling functions: other names in its code, beside the old in its module."""
    table, scope = _table(choose), function.__globals__

    def rename(code: CodeType) -> CodeType:
        asked = _names(code, True)
        new = {n: _new_name(n, function, choose) for n in asked}
        for name in asked:
            if new[name]:
                value = scope[name]
                here = table.modules if isinstance(value, ModuleType) else table.functions
                scope.setdefault(new[name], here[value])
        return code.replace(
            co_names=tuple(new.get(n) or n for n in code.co_names),
            co_consts=tuple(rename(c) if isinstance(c, CodeType) else c for c in code.co_consts),
        )

    made = FunctionType(
        rename(function.__code__),
        scope,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    for name in ("__annotations__", "__doc__", "__module__", "__qualname__"):
        setattr(made, name, getattr(function, name))
    return made


@lru_cache(maxsize=1024)
def _served_class(kind: Any, choose: bool) -> Any:
    methods: dict[str, Any] = {
        found.method: _rewritten(_method(kind, found.method), choose)
        for found in calls_of(kind)
        if not found.reason
    }
    own = {
        "__reduce_ex__": _reduce,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "_lunette_class": kind,
        "_lunette_choose": choose,
    }
    return type(kind)(kind.__name__, (kind,), methods | own)


def _method(kind: type, name: str) -> Any:
    return next(vars(base)[name] for base in kind.__mro__ if name in vars(base))


def _reduce(self: Any, protocol: Any) -> Any:
    """Copies and pickles know the class that this one is made from."""
    kind, choose = type(self)._lunette_class, type(self)._lunette_choose
    make, arguments, *rest = kind.__reduce_ex__(self, protocol)
    if make is copyreg.__newobj__ and arguments[0] is type(self):  # type: ignore[attr-defined]
        return _new, (kind, choose, *arguments[1:]), *rest
    return make, arguments, *rest


def _new(kind: Any, choose: bool, *arguments: Any) -> Any:
    made = _served_class(kind, choose)
    return made.__new__(made, *arguments)


def plain_class(module: Any) -> Any:
    """The class that a module had before it was served; its class where it was not."""
    return vars(type(module)).get("_lunette_class", type(module))


def served(module: Any, choose: bool) -> Callable[[], None]:
    """What gives a module its class with our functions; `Left` where it cannot have one."""
    kind: Any = type(module)
    if isinstance(module, (torch.jit.ScriptModule, GraphModule)):
        raise Left("it is scripted or traced; replace before")
    if "forward" in vars(module):
        raise Left("it has a 'forward' of its own, which would hide Lunette's")
    try:
        made = _served_class(kind, choose)
    except Exception as error:  # a metaclass, or __init_subclass__, may raise anything
        raise Left(f"no class can be made from {kind.__name__}: {error}") from error
    if made.__dictoffset__ != kind.__dictoffset__ or made.__basicsize__ != kind.__basicsize__:
        raise Left(f"its class {kind.__name__} lays out its objects in a way of its own")
    return lambda: setattr(module, "__class__", made)
