"""`replace` on unusual modules and models: what it swaps means the same, what it leaves has a reason, all or nothing."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import lunette.torch as lt
from tests.torch.cases import distinct

IMAGE = (2, 3, 9, 8)


def same_values(model, before, x):
    torch.testing.assert_close(model(x), before(x), rtol=1e-12, atol=1e-14)


# -- one size for every axis --

ONE_ELEMENT = [
    (nn.AvgPool2d((2,)), 2),
    (nn.AvgPool2d([2]), 2),
    (nn.MaxPool2d((3,), (2,), (1,)), 2),
    (nn.MaxPool2d([2], dilation=(2,)), 2),
    (nn.MaxPool2d(3, ()), 2),
    (nn.AvgPool2d((3, 2), [1], padding=(1,)), 2),
    (nn.MaxPool3d((2,), stride=[1]), 3),
    (nn.AvgPool3d(2, (2,), (1,)), 3),
    (nn.MaxPool1d((2,)), 1),
    (nn.AvgPool1d([3], [2], [1]), 1),
    (nn.AdaptiveAvgPool1d((3,)), 1),
    (nn.MaxPool2d(np.int64(2)), 2),
    (nn.MaxPool2d(torch.tensor(2)), 2),
    (nn.AdaptiveMaxPool2d(torch.Size([2, 3])), 2),
]


@pytest.mark.parametrize(("module", "rank"), ONE_ELEMENT, ids=lambda m: repr(m)[:50])
def test_one_size_is_for_every_axis(module, rank):
    report = lt.replace(module)
    assert not report.left
    same_values(report.model, module, distinct((2, 3, *(7, 8, 6)[:rank])))


# -- windows longer than the input --


class Fire(nn.Module):
    """SqueezeNet's block: an input of 24 × 24 leaves its last pooling two cells for a window of three."""

    def __init__(self, channels, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeeze, 1)
        self.wide, self.narrow = (
            nn.Conv2d(squeeze, expand, 3, padding=1),
            nn.Conv2d(squeeze, expand, 1),
        )

    def forward(self, x):
        x = self.squeeze(x).relu()
        return torch.cat([self.wide(x).relu(), self.narrow(x).relu()], 1)


def squeezenet():
    pool = {"kernel_size": 3, "stride": 2, "ceil_mode": True}
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2),
        nn.MaxPool2d(**pool),
        Fire(8, 2, 4),
        nn.MaxPool2d(**pool),
        Fire(8, 2, 4),
        nn.MaxPool2d(**pool),
        Fire(8, 2, 4),
        nn.AdaptiveAvgPool2d((1, 1)),
    ).double()


@pytest.mark.parametrize("side", [17, 24, 31, 40])
def test_squeezenet_on_small_images(side):
    torch.manual_seed(0)
    before = squeezenet()
    after = copy.deepcopy(before)
    assert len(lt.replace(after).replaced) == 4
    x = distinct((1, 3, side, side))
    same_values(after, before, x)


def test_a_window_that_torch_refuses_is_refused_by_ours():
    for side in range(1, 5):
        module = nn.MaxPool2d(6, 2, ceil_mode=True)
        ours, x = lt.replace(module).model, distinct((1, 1, side, side))
        with pytest.raises(RuntimeError, match="too small"):
            module(x)
        with pytest.raises(ValueError, match="longer than the padded input"):
            ours(x)


# -- what was set on a module --


class Darknet(nn.Module):
    """As YOLO's models are run: every module has its number and says where its input comes from."""

    def __init__(self):
        super().__init__()
        layers = [
            nn.Conv2d(3, 4, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.MaxPool2d(2, 1),
            nn.AdaptiveAvgPool2d(2),
        ]
        for i, m in enumerate(layers):
            m.i, m.f, m.type = i, -1, type(m).__name__
            m.np = sum(p.numel() for p in m.parameters())
        layers[4].f = 1
        self.model = nn.Sequential(*layers)

    def forward(self, x):
        y = []
        for m in self.model:
            x = m(x if m.f == -1 else y[m.f])
            assert m.i == len(y) and m.np >= 0 and m.type
            y.append(x)
        return x


def test_attributes_are_kept():
    before = Darknet().double()
    after = copy.deepcopy(before)
    report = lt.replace(after)
    assert len(report.replaced) == 3
    same_values(after, before, distinct((1, 3, 8, 8)))
    pool = after.model[1]
    assert (pool.i, pool.f, pool.type, pool.np, pool.kernel_size) == (1, -1, "MaxPool2d", 0, 2)


def test_buffers_parameters_and_submodules_are_kept():
    module = nn.MaxPool2d(2)
    module.register_buffer("calls", torch.tensor(3))
    module.register_buffer("scratch", torch.tensor(4), persistent=False)
    module.scale = nn.Parameter(torch.ones(2))
    module.inner = nn.Sequential(nn.AvgPool2d(2), nn.Linear(2, 2))
    model = nn.Sequential(OrderedDict(pool=module)).eval()
    keys, parameters = list(model.state_dict()), list(model.parameters())
    report = lt.replace(model)
    assert [c.name for c in report.replaced] == ["pool", "pool.inner.0"]
    assert list(model.state_dict()) == keys and "pool.scratch" not in keys
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert isinstance(model.pool.inner[0], lt.nn.AvgPool)
    assert model.pool.scratch == 4 and not model.pool.training
    model.load_state_dict(model.state_dict())


def hooked(register):
    module = nn.MaxPool2d(2)
    getattr(module, register)(lambda *_: None)
    return module


def own_forward():
    module = nn.MaxPool2d(2)
    module.forward = lambda x: x
    return module


def own_train():
    module = nn.MaxPool2d(2)
    module.train = lambda mode=True: module
    return module


def own_method():
    module = nn.MaxPool2d(2)
    module.pooled = module.extra_repr
    return module


def with_op():
    module = nn.MaxPool2d(2)
    module.op = "mine"
    return module


def parametrised():
    module = nn.MaxPool2d(2)
    module.scale = nn.Parameter(torch.ones(2))
    parametrize.register_parametrization(module, "scale", nn.Softplus())
    return module


def compiled():
    module = nn.MaxPool2d(2)
    module.compile(backend="eager")
    return module


def without(name):
    module = nn.MaxPool2d(2)
    delattr(module, name)
    return module


class Own(nn.MaxPool2d):
    pass


class Strange:
    def __index__(self):
        raise RuntimeError("no number today")


LEFT = {
    **{
        name: (lambda name=name: hooked(name), "hooks")
        for name in (
            "register_forward_hook",
            "register_forward_pre_hook",
            "register_full_backward_hook",
            "register_full_backward_pre_hook",
            "register_state_dict_post_hook",
            "register_state_dict_pre_hook",
            "register_load_state_dict_pre_hook",
            "register_load_state_dict_post_hook",
        )
    },
    "own forward": (own_forward, "'forward' of its own"),
    "own train": (own_train, "'train' of its own"),
    "own method": (own_method, "'pooled' is a method of it"),
    "an attribute of ours": (with_op, "attribute 'op'"),
    "parametrised": (parametrised, "parametrised"),
    "compiled": (compiled, "_compiled_call_impl"),
    "subclass": (lambda: Own(2), "class of its own"),
    "no kernel": (lambda: without("kernel_size"), "kernel_size"),
    "no ceil_mode": (lambda: without("ceil_mode"), "ceil_mode"),
    "float": (lambda: nn.MaxPool2d(2.0), "kernel_size=2.0"),
    "word": (lambda: nn.AvgPool2d("2"), "kernel_size='2'"),
    "bool": (lambda: nn.AvgPool2d(True), "not a bool"),
    "tensor": (lambda: nn.MaxPool2d(torch.tensor([2, 2])), "tensor with axes"),
    "tensor of one": (lambda: nn.MaxPool2d(torch.tensor([2])), "tensor with axes"),
    "strange": (lambda: nn.MaxPool2d(Strange()), "does not take its arguments"),
    "no padding": (lambda: nn.MaxPool2d(2, padding=None), "padding=None"),
    "zero stride": (lambda: nn.MaxPool2d(2, 0), "stride=0"),
    "negative": (lambda: nn.MaxPool2d(-2), "kernel_size=-2"),
    "three sizes": (lambda: nn.MaxPool2d((2, 2, 2)), "for 3 axes"),
    "two sizes": (lambda: nn.AvgPool3d((2, 2)), "for 2 axes"),
    "ceil 1": (lambda: nn.MaxPool2d(2, ceil_mode=1), "ceil_mode=1"),
    "include 0": (lambda: nn.AvgPool2d(2, count_include_pad=0), "count_include_pad=0"),
    "divisor": (lambda: nn.AvgPool2d(2, divisor_override=-1), "divisor_override=-1"),
    "half": (lambda: nn.MaxPool2d(2, padding=2), "more than half"),
    "adaptive of one": (lambda: nn.AdaptiveAvgPool2d((2,)), r"output_size=(2,)"),
    "adaptive None": (lambda: nn.AdaptiveMaxPool1d(None), "output_size=None"),
    "adaptive number": (lambda: nn.AdaptiveAvgPool2d(np.int64(2)), "output_size"),
    "adaptive empty": (lambda: nn.AdaptiveAvgPool1d(0), "empty result"),
    "scripted": (lambda: torch.jit.script(nn.MaxPool2d(2)), "scripted"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_has_a_reason(name):
    make, reason = LEFT[name]
    module = make()
    model = nn.Sequential(OrderedDict(before=nn.MaxPool2d(2), odd=module, after=nn.AvgPool2d(2)))
    report = lt.replace(model)
    assert [c.name for c in report.replaced] == ["before", "after"]
    (left,) = report.left
    assert left.name == "odd" and reason in left.reason
    assert model.odd is module
    assert "left      odd: " in str(report)


def test_quantised_models_are_left():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.pool = torch.ao.quantization.QuantStub(), nn.MaxPool2d(2)
            self.dequant = torch.ao.quantization.DeQuantStub()

        def forward(self, x):
            return self.dequant(self.pool(self.quant(x)))

    model = Model()
    assert "quantised" in lt.replace(model).left[0].reason
    assert torch.equal(model(torch.ones(1, 1, 4, 4)), torch.ones(1, 1, 2, 2))


# -- where modules are --


def test_a_scripted_model_is_left_as_it_is():
    model = torch.jit.script(nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2)))
    report = lt.replace(nn.Sequential(model, nn.MaxPool2d(2)))
    assert [c.name for c in report.left] == ["0.1"]
    assert [c.name for c in report.replaced] == ["1"]


def test_modules_under_several_parents_and_odd_names():
    shared = nn.MaxPool2d(2)
    block = nn.Sequential(shared, nn.Identity())
    model = nn.ModuleDict({"a": block, "b": block, "c": nn.ModuleList([shared, None])})
    model._modules["with.dot"] = nn.AvgPool2d(2)
    report = lt.replace(model)
    assert [c.name for c in report.changes] == ["a.0", "c.0", "with.dot"]
    assert isinstance(shared, nn.MaxPool2d)
    assert model["a"][0] is model["b"][0] is model["c"][0]
    assert isinstance(model["a"][0], lt.nn.MaxPool)
    assert isinstance(model._modules["with.dot"], lt.nn.AvgPool)


def test_modules_in_a_circle():
    model = nn.Sequential(nn.MaxPool2d(2))
    model[0].owner = model
    assert [c.name for c in lt.replace(model).replaced] == ["0"]
    assert isinstance(model[0], lt.nn.MaxPool) and model[0].owner is model


def test_a_place_that_takes_nothing_leaves_the_model_as_it_was():
    class Sealed(OrderedDict):
        def __setitem__(self, key, value):
            if isinstance(value, lt.nn.Pool):
                raise RuntimeError("sealed")
            super().__setitem__(key, value)

    model = nn.Sequential(nn.MaxPool2d(2), nn.Sequential(nn.AvgPool2d(2)))
    before = list(model.modules())
    model[1].__dict__["_modules"] = Sealed(model[1]._modules)
    with pytest.raises(RuntimeError, match="sealed"):
        lt.replace(model)
    assert all(a is b for a, b in zip(model.modules(), before, strict=True))


def test_replacing_twice_changes_nothing():
    model = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2))
    lt.replace(model)
    first = model[0]
    assert str(lt.replace(model)) == "no pooling modules" and model[0] is first


def test_a_replaced_module_is_copied_and_pickled_with_its_attributes():
    module = nn.MaxPool2d(2, return_indices=True)
    module.i = 7
    after = lt.replace(module).model
    x = distinct(IMAGE)
    for copied in (copy.deepcopy(after), pickle.loads(pickle.dumps(after))):
        assert copied.i == 7
        assert all(torch.equal(a, b) for a, b in zip(copied(x), module(x), strict=True))
