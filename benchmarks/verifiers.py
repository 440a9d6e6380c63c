"""Other verifiers beside this one: `python -m benchmarks.verifiers [geometries | cost | radii]`.

`geometries`: a convolution and one pooling, at one point. Do the bounds of auto_LiRPA hold what torch
returns; does Marabou return what onnxruntime does? `cost`: processor time of one pass of bounds on a
network of two max poolings. `radii`: certified radii beside auto_LiRPA's CROWN and
α-CROWN. Each
part is left out where the package is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import lunette as ln

WINDOWS: list[tuple[str, dict[str, Any]]] = [
    ("max", {"kernel": 2, "stride": 2}),
    ("max", {"kernel": 3, "stride": 3}),
    ("max", {"kernel": 3, "stride": 2}),
    ("max", {"kernel": 3, "stride": 1}),
    ("max", {"kernel": 2, "stride": 3}),
    ("max", {"kernel": 2, "stride": 2, "padding": 1}),
    ("max", {"kernel": 3, "stride": 2, "padding": 1}),
    ("max", {"kernel": 3, "stride": 3, "padding": 1}),
    ("max", {"kernel": 4, "stride": 2, "padding": 2}),
    ("max", {"kernel": 2, "stride": 2, "dilation": 2}),
    ("max", {"kernel": 2, "stride": 2, "ceil_mode": True}),
    ("max", {"kernel": 3, "stride": 2, "ceil_mode": True}),
    ("mean", {"kernel": 2, "stride": 2}),
    ("mean", {"kernel": 3, "stride": 2}),
    ("mean", {"kernel": 2, "stride": 2, "padding": 1}),
    ("mean", {"kernel": 2, "stride": 2, "padding": 1, "count_include_pad": False}),
    ("mean", {"kernel": 2, "stride": 2, "ceil_mode": True}),
]


def there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def quiet(call: Any) -> Any:
    """What a call gives, or the first line of what it raises."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return call()
    except Exception as error:
        return f"refused: {(str(error) or type(error).__name__).splitlines()[0][:60]}"


def pool_of(torch: Any, kind: str, given: dict[str, Any]) -> Any:
    options = dict(given)
    kernel = options.pop("kernel")
    return {"max": torch.nn.MaxPool2d, "mean": torch.nn.AvgPool2d}[kind](kernel, **options)


def lirpa(module: Any, x: Any, radius: float, method: str, **options: Any) -> Any:
    """Lower and upper bounds of a torch module's outputs by auto_LiRPA."""
    from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

    bounded = BoundedModule(module.eval(), x.new_zeros(x.shape))
    box = BoundedTensor(x, PerturbationLpNorm(norm=np.inf, eps=radius))
    found = bounded.compute_bounds((box,), method=method, **options)
    return [b.detach().numpy() for b in found if b is not None]


def outside(found: Any, y: np.ndarray) -> str:
    """How many numbers lie outside of bounds at one point, but for a little rounding."""
    if isinstance(found, str):
        return found
    return f"{int(((y < found[0] - 1e-5) | (y > found[1] + 1e-5)).sum())} of {y.size} outside"


def marabou(kind: str, given: dict[str, Any], weight: Any, bias: Any, x: np.ndarray) -> str:
    """Marabou's value of the network at a point, beside onnxruntime's."""
    import onnx
    import onnxruntime
    from maraboupy import Marabou
    from onnx import TensorProto, helper, numpy_helper

    sizes = {n: [given[n]] * 2 for n in ("kernel", "stride", "dilation") if n in given}
    names = {"kernel": "kernel_shape", "stride": "strides", "dilation": "dilations"}
    options: dict[str, Any] = {names[n]: v for n, v in sizes.items()}
    options["pads"] = [given.get("padding", 0)] * 4
    options["ceil_mode"] = int(given.get("ceil_mode", False))
    if kind == "mean":
        options["count_include_pad"] = int(given.get("count_include_pad", True))
    op = {"max": "MaxPool", "mean": "AveragePool"}[kind]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node(op, ["c"], ["y"], **options),
    ]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", x.shape), ("y", None))
    ]
    held = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    (y,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(model, path)
        net = Marabou.read_onnx(str(path))
        log, how = str(Path(folder) / "log"), Marabou.createOptions(verbosity=0)
        z = np.asarray(net.evaluateWithMarabou([x], filename=log, options=how)[0])
    if z.shape != y.shape:
        return f"wrong: shape {z.shape[2:]} for {y.shape[2:]}"
    return "right" if np.abs(z - y).max() < 1e-3 else f"wrong by {np.abs(z - y).max():.2g}"


def geometries() -> None:
    import torch

    rng = np.random.default_rng(0)
    for kind, given in WINDOWS:
        x = rng.random((1, 1, 7, 7)).astype(np.float32)
        weight = rng.normal(size=(1, 1, 3, 3)).astype(np.float32)
        bias = np.array([-1.0], np.float32)  # below 0, so that padding must not win
        conv = torch.nn.Conv2d(1, 1, 3, padding=1)
        conv.weight.data, conv.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
        body = torch.nn.Sequential(conv, pool_of(torch, kind, given), torch.nn.Flatten())
        count = body(torch.from_numpy(x)).numel()
        last = torch.nn.Linear(count, count, bias=False)
        last.weight.data = torch.eye(count)
        module = torch.nn.Sequential(*body, last)
        y = module(torch.from_numpy(x)).detach().numpy()
        tape = ln.Tape()
        leaf = tape.leaf(x)
        op = {"max": ln.MaxPool, "mean": ln.AvgPool}[kind](
            **{**given, "kernel": (given["kernel"],) * 2}
        )
        z = tape.reshape(tape.apply(op, tape.conv(weight, bias, leaf, padding=1)), (1, -1))
        box = ln.bounds(tape, z, {leaf: ln.Box(x, x)})
        said = [f"lunette {outside((box.lo, box.hi), y)}"]
        if there("auto_LiRPA"):
            found = quiet(lambda m=module, x=x: lirpa(m, torch.from_numpy(x), 0.0, "backward"))
            said.append(f"auto_LiRPA {outside(found, y)}")
        if there("maraboupy"):
            found = quiet(lambda k=kind, g=given, w=weight, b=bias, x=x: marabou(k, g, w, b, x))
            said.append(f"Marabou {found}")
        what = ", ".join(f"{n} {v}" for n, v in given.items())
        print(f"{kind:5}{what:58}{'; '.join(said)}", flush=True)


def networks(kind: str, seed: int) -> tuple[Any, Any, Any, np.ndarray]:
    """The same random network as a tape and as a torch module, and an input."""
    import torch

    from benchmarks.bounds import built

    x = np.random.default_rng(100 + seed).random((1, 1, 8, 8)).astype(np.float32)
    tape, leaf, y = built(kind, x, seed)
    pool: Any = torch.nn.AvgPool2d(2) if kind == "mean" else torch.nn.MaxPool2d(2)
    layers = [torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), pool]
    if kind in ("two", "global"):
        layers += [torch.nn.Conv2d(4, 6, 3, padding=1), torch.nn.ReLU()]
        layers.append(torch.nn.MaxPool2d(2 if kind == "two" else 4))
    width = torch.nn.Sequential(*layers)(torch.zeros(1, 1, 8, 8)).numel()
    layers += [torch.nn.Flatten(), torch.nn.Linear(width, 10)]
    module = torch.nn.Sequential(*layers)
    constants = [tape.value(n) for n in range(len(tape._nodes)) if tape._nodes[n].rule is None]
    values = [v for v in constants if v.shape != x.shape]
    for p, v in zip(module.parameters(), values, strict=True):
        p.data = torch.from_numpy(np.array(v))
    got = module(torch.from_numpy(x)).detach().numpy()
    assert np.allclose(got, tape.value(y), atol=1e-4), "not the same network"
    return (tape, leaf, y), module, torch, x


def cost() -> None:
    (tape, leaf, y), module, torch, x = networks("two", 0)
    torch.set_num_threads(1)
    box = {leaf: ln.Box(x - 0.02, x + 0.02)}
    times: dict[str, list[float]] = {"lunette": [], "real": [], "auto_LiRPA": []}
    from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

    bounded = quiet(lambda: BoundedModule(module.eval(), torch.zeros(x.shape)))
    tensor = BoundedTensor(torch.from_numpy(x), PerturbationLpNorm(norm=np.inf, eps=0.02))
    calls = {
        "lunette": lambda: ln.bounds(tape, y, box),
        "real": lambda: ln.bounds(tape, y, box, deployment=None),
        "auto_LiRPA": lambda: bounded.compute_bounds((tensor,), method="backward"),
    }
    for _ in range(12):
        for name, call in calls.items():
            begin = time.process_time()
            quiet(call)
            times[name].append(time.process_time() - begin)
    best = {name: min(values) for name, values in times.items()}
    print(
        f"two max poolings, one pass: lunette / auto_LiRPA {best['lunette'] / best['auto_LiRPA']:.2f}; "
        f"with / without the deployed term {best['lunette'] / best['real']:.2f}"
    )


def radii(images: int) -> None:
    from benchmarks.bounds import ours, radius_of

    for kind in ("one", "two", "global", "mean"):
        ratios = []
        for seed in range(images):
            (tape, _, y), module, torch, x = networks(kind, seed)
            logits = tape.value(y)[0]
            best = int(logits.argmax())
            rows = np.zeros((9, 1, 10))
            rows[:, 0, best] = 1
            rows[np.arange(9), 0, [c for c in range(10) if c != best]] = -1
            matrix = torch.from_numpy(rows.reshape(1, 9, 10).astype(np.float32))

            def holds(
                r: float, m: Any = module, x: Any = x, c: Any = matrix, t: Any = torch
            ) -> bool:
                """By either method: α-CROWN is refused by an assertion on some boxes."""
                for method in ("backward", "CROWN-Optimized"):
                    found = quiet(
                        lambda how=method: lirpa(m, t.from_numpy(x), r, how, C=c, bound_upper=False)
                    )
                    if not isinstance(found, str) and found[0].min() > 0:
                        return True
                return False

            own = radius_of(
                lambda r, k=kind, x=x, s=seed, w=rows: ours(k, x, s, w, r, "tight").min() > 0
            )
            other = radius_of(holds)
            ratios.append(own / other if other else np.nan)
        print(
            f"{kind:8}certified radius, ours / auto_LiRPA's CROWN or α-CROWN {np.round(ratios, 2)}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["geometries", "cost", "radii"])
    parser.add_argument("--images", type=int, default=2)
    options = parser.parse_args()
    for name in options.what:
        if name == "geometries":
            geometries()
        elif there("auto_LiRPA"):
            cost() if name == "cost" else radii(options.images)
        else:
            print(f"{name}: auto_LiRPA is not installed")


if __name__ == "__main__":
    main()
