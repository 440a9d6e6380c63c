"""Pooling in torch's own operators: ONNX, programs that do without this package, and compiled calls."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import lunette as ln
import lunette.torch as lt
from lunette.reductions import Max, Mean, SmoothMax
from lunette.regions import Adaptive, Global, Sliding
from tests.torch.cases import distinct

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

SHAPE = (2, 3, 9, 10)

pytestmark = pytest.mark.filterwarnings("ignore")
"""torch's exporters warn of themselves."""


@pytest.fixture(autouse=True, scope="module")
def way():
    """Once: what is exported is neither a call at once nor a registered operator."""


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def exported(model, x, **options):
    """The file that torch.onnx.export writes, checked, and the names of its nodes but constants."""
    file = io.BytesIO()
    options = {"dynamo": False, "opset_version": 18} | options
    torch.onnx.export(model, (x,), file, input_names=["x"], **options)
    written = onnx.load_from_string(file.getvalue())
    onnx.checker.check_model(written)
    return written, [n.op_type for n in written.graph.node if n.op_type != "Constant"]


def run(written, x):
    session = runtime.InferenceSession(
        written.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x.numpy()})


STANDARD = {
    "MaxPool": [
        ln.MaxPool((3, 3), 2, 1),
        ln.MaxPool((3, 3), 2, 1, ceil_mode=True),
        ln.MaxPool((2, 2), ceil_mode=True),
        ln.MaxPool((2, 3), 1, dilation=2),
        ln.MaxPool((3, 3), 2, 1, ties="all"),
        ln.MaxPool((3, 3), 2, ((0, 1), (1, 0))),
        ln.MaxPool((3, 3), 1, "same"),
        ln.MaxPool((3, 3), 2, "same"),
        ln.MaxPool((3, 3), 1, 2, dilation=2),
        ln.MaxPool((3, 3), 1, padding=2),
        ln.MaxPool((3,), 2),
        ln.MaxPool((2, 2, 2)),
        ln.MinPool((2, 2)),
        ln.AdaptiveMaxPool((3, 2)),
    ],
    "AveragePool": [
        ln.AvgPool((3, 3), 2, 1),
        ln.AvgPool((3, 3), 2, 1, count_include_pad=False),
        ln.AvgPool((2, 2), ceil_mode=True),
        ln.AvgPool((3, 3), 2, ((0, 1), (1, 0))),
        ln.AvgPool((3, 3), 1, "same"),
        ln.AvgPool((3, 3), 2, divisor_override=5),
        ln.AvgPool((3,), 2, divisor_override=5),
        ln.AvgPool((2, 2, 2)),
        ln.AdaptiveAvgPool((3, 2)),
        ln.Pool((Sliding(1), Adaptive(5)), Mean()),
    ],
    "GlobalAveragePool": [ln.AdaptiveAvgPool((1, 1)), ln.GlobalAvgPool(2), ln.GlobalAvgPool(1)],
    "ReduceMean": [ln.GlobalAvgPool(2, keepdims=False), ln.GlobalAvgPool(4)],
    "ReduceMax": [ln.GlobalMaxPool(2), ln.GlobalMaxPool(1, keepdims=False)],
    "ReduceLogSumExp": [ln.Pool((Global(), Global()), SmoothMax(2.0))],
}


@pytest.mark.parametrize(
    ("node", "op"), [(node, op) for node, ops in STANDARD.items() for op in ops], ids=repr
)
def test_a_standard_node_gives_the_same(node, op):
    x = distinct(SHAPE, torch.float32)
    written, names = exported(Called(op), x)
    assert node in names and not any(n.domain for n in written.graph.node)
    np.testing.assert_allclose(run(written, x)[0], op(x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (ln.SmoothMaxPool((2, 2), 2.0), "smooth max of windows"),
        (ln.AdaptiveAvgPool((3, 3)), "axis 1 of length 10 has 3 bins"),
        (ln.AdaptiveMaxPool((5, 2)), "axis 0 of length 9 has 5 bins"),
        (ln.MaxPool((2, 2), 1, padding=4), "padding alone"),
        (ln.MaxPool((2, 2), 1, padding=(0, 3), dilation=12), "padding alone|longer"),
        (ln.AvgPool((2, 2), dilation=2), "dilation"),
        (ln.AvgPool((3, 3), 3, 1, ceil_mode=True), "ceil_mode with padding"),
        (ln.AvgPool((3, 3), 2, padding=2, count_include_pad=False), "count_include_pad"),
        (ln.AvgPool((2, 2), ceil_mode=True, divisor_override=3), "divisor_override"),
        (ln.MaxPool((1, 1, 2, 2)), "4 axes"),
        (ln.Pool((Sliding(2), Adaptive(2)), Max()), "one kind"),
    ],
    ids=repr,
)
def test_elsewhere_an_error_says_why(op, reason):
    with pytest.raises(TypeError, match=f"no standard ONNX operator.*({reason})"):
        exported(Called(op), distinct(SHAPE, torch.float32))


def test_integers_have_none():
    x = torch.arange(16).reshape(1, 4, 4)
    with pytest.raises(lt.Unlowered, match=r"x has dtype torch.int64"):
        exported(Called(ln.MaxPool((2, 2))), x)


def test_winners_are_the_second_result_of_maxpool():
    x = distinct(SHAPE, torch.float32)
    layer = lt.nn.MaxPool((3, 3), 2, 1, return_indices=True)
    written, names = exported(layer, x)
    values, places = layer(x)
    assert "MaxPool" in names
    found = run(written, x)
    assert np.array_equal(found[0], values.numpy()) and np.array_equal(found[1], places.numpy())


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.MaxPool2d(3, 2, 1),
        nn.ReLU(),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    ).eval()


def test_a_replaced_model_gives_the_nodes_that_it_gave():
    model, x = small_network(), torch.randn(1, 3, 17, 19)
    _, before = exported(model, x)
    lt.replace(model, when="always")
    axes = {"x": {0: "n", 2: "h", 3: "w"}}
    written, after = exported(model, x, dynamic_axes=axes)
    assert after == before
    other = torch.randn(3, 3, 23, 16)  # sizes that were not there at the export
    with torch.no_grad():
        expected = model(other).numpy()
    np.testing.assert_allclose(run(written, other)[0], expected, rtol=1e-4, atol=1e-6)


def test_convolutions_of_ours_are_torchs_in_a_file():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 2, 3)).eval()
    lt.replace(model, when="always", convolutions=True)
    assert isinstance(model[0], lt.nn.Conv)
    x = torch.randn(1, 3, 9, 10)
    written, names = exported(model, x)
    assert names == ["Conv", "MaxPool", "Conv"]
    with torch.no_grad():
        np.testing.assert_allclose(run(written, x)[0], model(x).numpy(), rtol=1e-4, atol=1e-6)
    with lt.lowered(required=True):
        assert "lunette" not in torch.export.export(model, (x,)).graph_module.code


@pytest.mark.full
def test_the_exporter_of_exported_programs():
    pytest.importorskip("onnxscript")
    model, x = small_network(), torch.randn(2, 3, 17, 19)
    lt.replace(model, when="always")
    written, names = exported(model, x, dynamo=True, verbose=False)
    assert {"MaxPool", "AveragePool"} <= set(names)
    with torch.no_grad():
        np.testing.assert_allclose(run(written, x)[0], model(x).numpy(), rtol=1e-4, atol=1e-6)
    with pytest.raises(Exception, match="no standard ONNX operator"):
        exported(Called(ln.SmoothMaxPool((2, 2), 2.0)), x, dynamo=True, verbose=False)


def test_a_learned_beta_over_whole_axes():
    layer = Called(None)
    layer.beta = nn.Parameter(torch.tensor(1.5))
    op = ln.Pool((Global(), Global()), SmoothMax(9.0))
    from lunette.adapters import torch as adapter

    layer.function = lambda x: adapter.forward_with_beta(op, x, layer.beta)
    x = torch.randn(SHAPE)
    written, names = exported(layer, x)
    assert "ReduceLogSumExp" in names
    np.testing.assert_allclose(run(written, x)[0], layer(x).detach().numpy(), rtol=1e-5)


# -- programs and compiled calls --


def exported_program(x, **options):
    model = small_network()
    lt.replace(model, when="always")
    with lt.lowered(required=True):
        return model, torch.export.export(model, (x,), **options)


def test_an_exported_program_has_no_operators_of_ours():
    x = torch.randn(2, 3, 17, 19)
    model, program = exported_program(x)
    assert "lunette" not in program.graph_module.code
    assert "max_pool2d" in program.graph_module.code
    torch.testing.assert_close(program.module()(x), model(x))


RUN = """
import sys, torch
program = {load}
x, y = torch.load({case!r})
torch.testing.assert_close(program(x), y)
assert "lunette" not in sys.modules
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", ["export", "AOTInductor"])
def test_a_program_runs_where_this_package_is_not_loaded(tmp_path, kind):
    x = torch.randn(2, 3, 17, 19)
    model, program = exported_program(x, dynamic_shapes=({0: torch.export.Dim("n")},))
    if kind == "export":
        torch.export.save(program, tmp_path / "program.pt2")
        load = f"torch.export.load({str(tmp_path / 'program.pt2')!r}).module()"
    else:
        file = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "program.pt2")
        )
        load = f"torch._inductor.aoti_load_package({file!r})"
    with torch.no_grad():
        torch.save((x, model(x)), tmp_path / "case.pt")
    code = RUN.format(load=load, case=str(tmp_path / "case.pt"))
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_has_no_operator_stays_ours_or_is_an_error():
    model, x = Called(ln.SmoothMaxPool((2, 2), 2.0)), torch.randn(SHAPE)
    with lt.lowered():
        program = torch.export.export(model, (x,))
    assert "lunette.pool" in program.graph_module.code
    with lt.lowered(required=True), pytest.raises(Exception, match="no operator of torch"):
        torch.export.export(model, (x,))
    with lt.lowered(required=True):
        assert torch.equal(model(x), ln.SmoothMaxPool((2, 2), 2.0)(x))  # a call at once


@pytest.mark.parametrize(
    "op",
    [
        ln.MaxPool((3, 3), 2, 1),
        ln.AvgPool((2, 2), ceil_mode=True),
        ln.GlobalMaxPool(2, ties="split"),
        ln.GlobalMaxPool(2),  # stays ours: torch has no such gradient
        ln.AdaptiveAvgPool((4, 3)),
    ],
    ids=repr,
)
def test_compiled_calls_have_the_same_derivatives(op):
    torch._dynamo.reset()
    seen = []

    def backend(graph, inputs):
        seen.append(graph.code)
        return graph

    x = distinct(SHAPE).requires_grad_()
    other = x.detach().clone().requires_grad_()
    compiled = torch.compile(lambda x: op(x.relu()) + 1, backend=backend, fullgraph=True)
    with lt.lowered():
        value = compiled(other)
    assert ("lunette" in seen[0]) == (op == ln.GlobalMaxPool(2))
    expected = op(x.relu()) + 1
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(y.square().sum(), z)[0] for y, z in ((value, other), (expected, x)))
    )
    compiled(other)  # outside, it is compiled anew
    assert "lunette" in seen[1 if len(seen) > 1 else 0]


@pytest.mark.parametrize("bad", [1, "yes", None])
def test_required_is_a_flag(bad):
    with pytest.raises(TypeError, match="required="):
        lt.lowered(required=bad)
