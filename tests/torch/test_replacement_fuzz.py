"""Random torch pooling modules and models: replaced, they give what torch gives, errors included.

`LUNETTE_REPLACE_SEED` and `LUNETTE_REPLACE_CASES` draw others, and more of them.
"""

import copy
import io
import os
import pickle
from random import Random

import numpy as np
import pytest
import torch
from torch import nn

import lunette.torch as lt
from tests.torch.cases import distinct

SEED = int(os.environ.get("LUNETTE_REPLACE_SEED", "0"))
CASES = int(os.environ.get("LUNETTE_REPLACE_CASES", "60"))

ODD = (
    2.0,
    "2",
    True,
    None,
    (),
    -1,
    0,
    (2, 2, 2, 2),
    np.int64(2),
    (np.int32(3),),
    torch.tensor(2),
    torch.tensor([2]),
)
FLAGS = (True, False, False, True, 1, None, np.bool_(True))


def sizes(random, rank, low, high, odd=0.06):
    """A size as models write them: a number, one per axis, one in a tuple or a list; sometimes none of these."""
    if random.random() < odd:
        return random.choice(ODD)
    each = tuple(random.randint(low, high) for _ in range(rank))
    return random.choice([each[0], each, each[:1], list(each), [each[0]]])


def flag(random):
    return random.choice(FLAGS[:4]) if random.random() < 0.95 else random.choice(FLAGS)


def sliding(random, rank):
    """The arguments of a sliding module, with windows that may be longer than the input."""
    return {
        "kernel_size": sizes(random, rank, 1, 5),
        "stride": random.choice([None, sizes(random, rank, 1, 4)]),
        "padding": random.choice([0, 0, sizes(random, rank, 0, 2)]),
        "ceil_mode": flag(random),
    }


def module_of(random, rank):
    kind = random.choice(["max", "max", "avg", "avg", "adaptive max", "adaptive avg"])
    if kind == "max":
        dilation = random.choice([1, 1, sizes(random, rank, 1, 2)])
        indices = random.random() < 0.3
        return getattr(nn, f"MaxPool{rank}d")(
            **sliding(random, rank), dilation=dilation, return_indices=indices
        )
    if kind == "avg":
        more = {"count_include_pad": flag(random)}
        if rank > 1:
            more["divisor_override"] = random.choice([None, None, None, 3, 1, 0, -2, 2.0])
        try:
            return getattr(nn, f"AvgPool{rank}d")(**sliding(random, rank), **more)
        except TypeError:  # AvgPool1d reads its sizes when it is made
            return nn.AvgPool1d(2)
    output = sizes(random, rank, 0 if random.random() < 0.05 else 1, 9)
    if rank > 1 and random.random() < 0.2:
        output = tuple(random.choice([None, random.randint(1, 9)]) for _ in range(rank))
    if kind == "adaptive max":
        return getattr(nn, f"AdaptiveMaxPool{rank}d")(output, return_indices=random.random() < 0.3)
    return getattr(nn, f"AdaptiveAvgPool{rank}d")(output)


def tensor_of(random, rank):
    lead = random.choice([(2, 3), (1, 1), (3,), (2, 17), (0, 2)])
    shape = (*lead, *(random.randint(1, 9) for _ in range(rank)))
    x = distinct(shape, random.choice([torch.float64, torch.float32]), random.randint(0, 99))
    if len(shape) in (4, 5) and random.random() < 0.3:
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        return x.to(memory_format=last)
    if random.random() < 0.2:
        return x.transpose(-1, -2).contiguous().transpose(-1, -2) if len(shape) > 1 else x
    return x


def outcome(module, x):
    """(values, gradient of x), or None where the module refuses."""
    x = x.detach().requires_grad_()
    try:
        y = module(x)
    except (RuntimeError, ValueError, TypeError):
        return None
    values = y if isinstance(y, tuple) else (y,)
    weights = torch.linspace(-1, 2, values[0].numel(), dtype=x.dtype).reshape(values[0].shape)
    (gradient,) = torch.autograd.grad((values[0] * weights).sum(), x)
    return (*(v.detach() for v in values), gradient)


def same(a, b, what):
    assert (a is None) == (b is None), what
    for ours, theirs in zip(a or (), b or (), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, what
        tolerance = 1e-5 if ours.dtype == torch.float32 else 1e-12
        assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance), what


def check_module(seed):
    random = Random(seed)
    rank = random.randint(1, 3)
    module = module_of(random, rank)
    module.i = seed
    module.train(random.random() < 0.5)
    report = lt.replace(module)
    (change,) = report.changes
    assert (change.after is None) == bool(change.reason), report
    if change.after is None:
        assert report.model is module
        return False
    after = report.model
    assert after.i == seed and after.training == module.training
    copies = [after, copy.deepcopy(after), pickle.loads(pickle.dumps(after))]
    for _ in range(3):
        x = tensor_of(random, rank)
        # torch has no kernel for some layouts.
        expected = outcome(module, x) or outcome(module, x.reshape(-1).clone().reshape(x.shape))
        if expected is None and isinstance(module, nn.AvgPool3d):
            continue  # it alone refuses an axis shorter than the kernel
        for ours in copies:
            same(outcome(ours, x), expected, (seed, module, x.shape, x.dtype))
    return True


def test_modules():
    replaced = sum(check_module(SEED * 10**6 + i) for i in range(CASES))
    assert replaced > CASES // 3, "odd arguments are the exception"


@pytest.mark.full
def test_many_modules():
    for i in range(20 * CASES):
        check_module((SEED + 1) * 10**6 + i)


# -- models --


class Net(nn.Module):
    """Modules in containers of every kind, some in two places, with things set on them."""

    def __init__(self, random):
        super().__init__()
        pools = [self.pool(random) for _ in range(3)]
        self.layers = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), random.choice(pools), nn.ReLU())
        self.named = nn.ModuleDict({"one": random.choice(pools), "two": nn.BatchNorm2d(3)})
        self.listed = nn.ModuleList([random.choice(pools), nn.Dropout(0.0)])
        self.again = random.choice([self.layers[1], pools[0], nn.Identity()])
        self.head = nn.Linear(3, 2)

    @staticmethod
    def pool(random):
        pool = random.choice(
            [
                nn.MaxPool2d(3, 1, 1),
                nn.MaxPool2d((2,), 1, ceil_mode=True),
                nn.AvgPool2d([3], [1], 1),
                nn.AvgPool2d((3, 2), 1, padding=(1,), count_include_pad=False),
                nn.AdaptiveMaxPool2d((7, 5)),
                nn.AdaptiveAvgPool2d((None, 6)),
                nn.LPPool2d(2, 2, 1),
            ]
        )
        pool.tag = random.randint(0, 9)
        if random.random() < 0.3:
            pool.register_buffer("seen", torch.tensor(float(pool.tag)))
        if random.random() < 0.2:
            pool.register_forward_hook(lambda module, args, output: output + module.tag)
        return pool

    def forward(self, x):
        for layer in (self.layers, self.named["one"], self.named["two"], *self.listed, self.again):
            x = layer(x)
            x = x + getattr(layer, "tag", 0)
        return self.head(x.mean((-1, -2)))


def check_model(seed):
    random = Random(seed)
    torch.manual_seed(seed)
    before = Net(random).double().train(random.random() < 0.5)
    after = copy.deepcopy(before)
    report = lt.replace(after)
    assert report.model is after
    assert list(after.state_dict()) == list(before.state_dict())
    names = [n for n, _ in before.named_modules(remove_duplicate=False)]
    assert [n for n, _ in after.named_modules(remove_duplicate=False)] == names
    x = distinct((2, 2, 12, 11), seed=seed)
    same_model(after, before, x)
    file = io.BytesIO()
    torch.save(before.state_dict(), file)
    file.seek(0)
    after.load_state_dict(torch.load(file))
    same_model(copy.deepcopy(after), before, x)


def same_model(after, before, x):
    results = []
    for model in (copy.deepcopy(after), copy.deepcopy(before)):  # batch norm keeps what it saw
        y = model(x)
        y.square().sum().backward()
        results.append((y, *(p.grad for p in model.parameters())))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_models():
    for i in range(max(1, CASES // 5)):
        check_model(SEED * 10**6 + i)


@pytest.mark.full
def test_many_models():
    for i in range(2 * CASES):
        check_model((SEED + 1) * 10**6 + i)
