"""`lunette.torch.nn.functional` and the modules by torch's names against torch itself, over drawn arguments and shapes.

`LUNETTE_DROPIN_SEED` and `LUNETTE_DROPIN_CASES` draw others, and more of them.
"""

import copy
import inspect
import io
import os
import pickle
import types
from random import Random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as theirs

import lunette.torch as lt
import lunette.torch.nn.functional as ours
from lunette.torch import eager
from tests.torch.cases import distinct
from tests.torch.test_replacement_fuzz import tensor_of

SEED = int(os.environ.get("LUNETTE_DROPIN_SEED", "0"))
CASES = int(os.environ.get("LUNETTE_DROPIN_CASES", "250"))

KINDS = ["max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "lp_pool", "max_unpool"]
NAMED = {
    "max_pool": "MaxPool",
    "avg_pool": "AvgPool",
    "adaptive_max_pool": "AdaptiveMaxPool",
    "adaptive_avg_pool": "AdaptiveAvgPool",
    "lp_pool": "LPPool",
    "max_unpool": "MaxUnpool",
}


def sizes(random, rank, low, high):
    """A size as callers write them: a number, one per axis, one for all in a tuple or a list, of any integer type."""
    each = tuple(random.randint(low, high) for _ in range(rank))
    return random.choice(
        [
            each[0],
            each[0],
            each,
            each[:1],
            list(each),
            [each[0]],
            torch.Size(each),
            np.int64(each[0]),
        ]
    )


def sliding(random, rank):
    k = random.randint(1, 4)
    kernel = random.choice([k, (k,), (k,) * rank, sizes(random, rank, 1, 4)])
    return {
        "kernel_size": kernel,
        "stride": random.choice([None, None, sizes(random, rank, 1, 3)]),
        "padding": random.choice([0, 0, sizes(random, rank, 0, 2)]),
    }


def arguments_of(random, kind, rank):
    """What a caller passes after the tensor, by name in torch's order."""
    if kind == "max_pool":
        given = sliding(random, rank) | {
            "dilation": random.choice([1, 1, sizes(random, rank, 1, 3)]),
            "ceil_mode": random.random() < 0.4,
            "return_indices": random.random() < 0.4,
        }
    elif kind == "avg_pool":
        given = sliding(random, rank) | {
            "ceil_mode": random.random() < 0.4,
            "count_include_pad": random.random() < 0.5,
        }
        if rank > 1:
            given["divisor_override"] = random.choice([None, None, 3, -2])
    elif kind == "lp_pool":
        given = {
            "norm_type": random.choice([1, 2, 2.0, 3.0, float("inf"), float("-inf")]),
            "kernel_size": random.choice([2, 3, (2,) * rank]) if rank > 1 else 2,
            "stride": random.choice([None, 1, 2]),
            "ceil_mode": random.random() < 0.4,
        }
    else:
        output = random.choice(
            [random.randint(0, 6), tuple(random.randint(1, 6) for _ in range(rank))]
        )
        if rank > 1 and random.random() < 0.3:
            output = [random.choice([None, random.randint(1, 6)]) for _ in range(rank)]
        given = {"output_size": output}
        if kind == "adaptive_max_pool":
            given["return_indices"] = random.random() < 0.4
    return given


def outcome(function, x, *arguments, **options):
    """(values …, gradient of x); None where the function refuses."""
    x = x.detach().requires_grad_(x.is_floating_point())
    try:
        y = function(x, *arguments, **options)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None
    values = y if isinstance(y, tuple) else (y,)
    if not x.requires_grad or not values[0].numel():
        return tuple(v.detach() for v in values)
    weights = torch.linspace(-1, 2, values[0].numel(), dtype=x.dtype).reshape(values[0].shape)
    (gradient,) = torch.autograd.grad((values[0] * weights).sum(), x)
    return (*(v.detach() for v in values), gradient)


def same(a, b, what):
    assert a is not None, what
    for mine, other in zip(a, b, strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape, what
        tolerance = 2e-5 if mine.dtype == torch.float32 else 1e-11
        assert torch.allclose(mine, other, rtol=tolerance, atol=tolerance, equal_nan=True), what


def check(seed):
    """Whether torch took the call, and gave what ours gives, as a function and as a module."""
    random = Random(seed)
    kind, rank = random.choice(KINDS[:5]), random.randint(1, 3)
    given, x = arguments_of(random, kind, rank), tensor_of(random, rank)
    if kind == "lp_pool":
        x = x.abs() + 0.5
    named = random.randint(0, len(given))  # how many are passed by position
    split = list(given.values())[:named], dict(list(given.items())[named:])
    what = f"seed {seed}: {kind}{rank}d{tuple(x.shape)} {x.stride()} {given}"
    expected = outcome(getattr(theirs, f"{kind}{rank}d"), x, *split[0], **split[1])
    if expected is None:
        return False
    same(outcome(getattr(ours, f"{kind}{rank}d"), x, *split[0], **split[1]), expected, what)
    name = f"{NAMED[kind]}{rank}d"
    try:
        module, plain = (getattr(place, name)(**given) for place in (lt.nn, nn))
    except TypeError:  # torch's module takes no such argument
        return True
    assert repr(module) == repr(plain) and vars(module).keys() == vars(plain).keys()
    same(outcome(module, x), expected, what)
    return True


def test_drawn_calls_agree_with_torch():
    taken = sum(check(SEED + n) for n in range(CASES))
    assert taken > CASES / 2


@pytest.mark.full
def test_many_drawn_calls_agree_with_torch():
    assert sum(check(SEED + 10_000 + n) for n in range(20 * CASES)) > 8 * CASES


# -- names and signatures --


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_names_defaults_and_order_are_torchs(kind, rank):
    function, other = getattr(ours, f"{kind}{rank}d"), getattr(theirs, f"{kind}{rank}d")
    mine = inspect.signature(function)
    assert (
        function.__name__ == f"{kind}{rank}d" and pickle.loads(pickle.dumps(function)) is function
    )
    if isinstance(other, types.BuiltinFunctionType):  # its text has the signature
        text = other.__doc__.strip().splitlines()[0].partition("(")[2].partition(")")[0]
        expected = [tuple(p.strip().partition("=")[::2]) for p in text.split(",")]
        found = [
            (p.name, "" if p.default is p.empty else str(p.default))
            for p in mine.parameters.values()
        ]
        assert found == expected
        return
    plain = getattr(
        theirs, f"{kind}{rank}d_with_indices", other
    )  # the two of a pair share their arguments
    expected = [(p.name, p.default) for p in inspect.signature(plain).parameters.values()]
    assert [(p.name, p.default) for p in mine.parameters.values()] == expected


def test_other_names_are_torchs():
    assert ours.relu is theirs.relu and lt.nn.Conv2d is nn.Conv2d
    assert lt.nn.functional is ours and lt.nn.modules is nn.modules
    with pytest.raises(AttributeError):
        ours.no_such_function  # noqa: B018


def test_equal_arguments_find_one_op(monkeypatch):
    seen = []
    forward = eager.forward
    monkeypatch.setattr(eager, "forward", lambda op, x: seen.append(op) or forward(op, x))
    monkeypatch.setattr(eager, "serves", lambda x: True)
    x = distinct((1, 2, 6, 6))
    for kernel in (2, 2, 2):
        ours.max_pool2d(x, kernel, padding=1)
    for kernel in ((2, 3), [2, 3]):
        ours.avg_pool2d(x, kernel)
    assert seen[0] is seen[1] is seen[2] and seen[3] is seen[4]


# -- indices --


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_with_indices_and_unpooled(rank):
    x = distinct((2, 3, *(8, 6, 4)[:rank]))
    y, places = getattr(ours, f"max_pool{rank}d_with_indices")(x, 2)
    other = getattr(theirs, f"max_pool{rank}d")(x, 2, return_indices=True)
    assert torch.equal(y, other[0]) and torch.equal(places, other[1])
    for size in (None, x.shape, list(x.shape[2:])):
        for lead in (0, 1):  # unbatched too
            a, b = (t[0] if lead else t for t in (y, places))
            expected = getattr(theirs, f"max_unpool{rank}d")(a, b, 2, output_size=size)
            assert torch.equal(
                getattr(ours, f"max_unpool{rank}d")(a, b, 2, output_size=size), expected
            )
            modules = [getattr(place, f"MaxUnpool{rank}d")(2) for place in (lt.nn, nn)]
            assert repr(modules[0]) == repr(modules[1])
            assert torch.equal(modules[0](a, b, size), expected)


def test_adaptive_with_indices():
    x = distinct((3, 9, 8))
    for a, b in zip(
        ours.adaptive_max_pool2d_with_indices(x, (2, None)),
        theirs.adaptive_max_pool2d(x, (2, None), return_indices=True),
        strict=True,
    ):
        assert torch.equal(a, b)


# -- where torch's own function serves --


def test_what_means_something_else_is_torchs():
    x = distinct((1, 1, 2, 9))
    plain = theirs.max_pool2d(x, 2, 1, 1, (3, 1))
    assert torch.equal(ours.max_pool2d(x, 2, 1, 1, (3, 1)), plain) and plain.isinf().any()
    assert ours.adaptive_avg_pool2d(x, (0, 3)).shape == (1, 1, 0, 3)
    integers = torch.arange(8).reshape(1, 1, 8)
    same(outcome(ours.avg_pool1d, integers, 3), outcome(theirs.avg_pool1d, integers, 3), "integers")


# -- refusals --

REFUSED = {
    "float": (ours.max_pool2d, (2.0,), "kernel_size=2.0"),
    "float in a tuple": (ours.max_pool2d, ((2.0, 2),), "kernel_size=2.0"),
    "bool": (ours.avg_pool2d, (True,), "not a bool"),
    "word": (ours.max_pool2d, ("2",), "kernel_size='2'"),
    "sizes": (ours.max_pool2d, ((2, 2, 2),), "for 3 axes"),
    "half": (ours.avg_pool2d, (2, 1, 2), "padding=2 on axis 0"),
    "flag": (ours.max_pool2d, (2, 1, 0, 1, 1), "ceil_mode=1"),
    "no kernel": (ours.max_pool2d, (0,), "at least 1"),
    "bins": (ours.adaptive_avg_pool2d, ((2,),), r"output_size=\(2,\)"),
    "negative bins": (ours.adaptive_max_pool2d, (-1,), "output_size=-1"),
    "rank": (ours.max_pool1d, (2,), "has 4 axes"),
    "rank of three": (ours.adaptive_avg_pool1d, (2,), "has 4 axes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_by_name(name):
    function, arguments, text = REFUSED[name]
    x = distinct((1, 1, 6, 6))
    ours.max_pool2d(x, 2), ours.max_pool2d(x, (2, 2)), ours.avg_pool2d(x, 1)  # equal keys, kept
    with pytest.raises((TypeError, ValueError), match=text):
        function(x, *arguments)


def test_unpooled_sizes_are_checked():
    y, places = ours.max_pool1d(distinct((1, 6)), 2, return_indices=True)
    for size, text in (
        ((9,), "output_size=9 on axis 0: expected 5 … 7"),
        ((1, 2), "tuple of 1"),
        (6, "tuple of 1"),
    ):
        with pytest.raises(ValueError, match=text):
            ours.max_unpool1d(y, places, 2, output_size=size)


# -- modules --


def test_modules_are_torchs_but_for_the_kernels():
    module = lt.nn.MaxPool2d(3, stride=2, padding=1, return_indices=True).eval()
    assert isinstance(module, nn.MaxPool2d) and not module.state_dict()
    x = distinct((2, 3, 9, 8)).to(memory_format=torch.channels_last)
    stream = io.BytesIO()
    torch.save(module, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), loaded):
        assert type(copied) is lt.nn.MaxPool2d and not copied.training
        assert all(
            torch.equal(a, b)
            for a, b in zip(copied(x), nn.MaxPool2d(3, 2, 1, return_indices=True)(x), strict=True)
        )
    module.kernel_size, module.return_indices = 2, False
    assert torch.equal(module(x), theirs.max_pool2d(x, 2, 2, 1))
    assert str(lt.replace(nn.Sequential(module))) == "no pooling modules"


def test_ours_serve(way):
    x = distinct((1, 2, 6, 6)).requires_grad_()
    assert "lunette" in ours.max_pool2d(x, 2).grad_fn.name()
    assert "lunette" in lt.nn.AvgPool2d(2)(x).grad_fn.name()


def test_gradients_of_every_order():
    x = distinct((1, 1, 5, 4)).abs().add(0.5).requires_grad_()
    for function in (
        lambda x: ours.lp_pool2d(x, 3, 2),
        lambda x: ours.avg_pool2d(x, 3, 1, 1),
        lambda x: ours.adaptive_max_pool2d(x, (2, None)),
    ):
        assert torch.autograd.gradcheck(function, x, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(function, x)


def test_one_compiled_graph():
    def network(x):
        x = ours.max_pool2d(x.relu(), 3, 2, 1)
        return ours.adaptive_avg_pool2d(lt.nn.AvgPool2d(2)(x), (2, None))

    torch._dynamo.reset()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    x = distinct((2, 3, 13, 12))
    assert torch.equal(compiled(x), network(x))
    torch._dynamo.reset()
