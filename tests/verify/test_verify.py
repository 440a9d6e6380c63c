"""Verdicts: proofs that hold, counterexamples that others see too, and nothing from bad files."""

import copy
import json
import os
import re
from fractions import Fraction

import numpy as np
import pytest
from onnx import helper
from typer.testing import CliRunner

import lunette as ln
from lunette.cli import app
from lunette.verify import Rejected, certificate, recheck, verify
from tests.onnx.cases import CASES
from tests.onnx.models import model, runtime, single

SEEDS = int(os.environ.get("LUNETTE_VERIFY_SEEDS", "12"))
runner = CliRunner()


def text(lower, upper, unsafe, outputs):
    """A property: a box, and formulas of which all are unsafe together."""
    lines = [f"(declare-const X_{i} Real)" for i in range(len(lower))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(outputs)]
    lines += [f"(assert (>= X_{i} {v}))" for i, v in enumerate(lower)]
    lines += [f"(assert (<= X_{i} {v}))" for i, v in enumerate(upper)]
    return "\n".join([*lines, *(f"(assert {u})" for u in unsafe)])


def absolute(factor=1.0):
    """|x₀| + |x₁|, by four relus: between 0 and 2 on [−1, 1]²."""
    first = np.float32([[1, 0], [-1, 0], [0, 1], [0, -1]]) * np.float32(factor)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "v"], ["y"], transB=1),
    ]
    return model(nodes, {"x": (1, 2)}, constants={"w": first, "v": np.ones((1, 4), np.float32)})


def pooled(seed, count=4):
    """A small network with a convolution, a max pooling and a linear map, and random weights."""
    generator = np.random.default_rng(seed)

    def weights(*shape):
        return generator.normal(size=shape).astype(np.float32)

    pool = ["MaxPool", "AveragePool"][seed % 2]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node(pool, ["r"], ["p"], kernel_shape=[2], strides=[2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "a"], ["y"], transB=1),
    ]
    constants = {"w": weights(2, 1, 3), "b": weights(2), "v": weights(2, count), "a": weights(2)}
    return model(nodes, {"x": (1, 1, count)}, constants=constants)


def asked(data, lower, upper, unsafe, outputs, **options):
    net = ln.onnx.loads(data)
    prop = ln.onnx.loads_property(text(lower, upper, unsafe, outputs))
    return net, prop, verify(net, prop, data=data, **options)


def test_a_bound_that_holds_is_verified_and_certified():
    data = absolute()
    net, prop, verdict = asked(data, [-1, -1], [1, 1], ["(>= Y_0 2.01)"], 1)
    assert verdict.result == "unsat" and verdict.boxes >= 1
    document = json.dumps(certificate(net, prop, verdict, data, b""))
    assert "of this network" in recheck(document, net, prop)
    assert "of the network in it" in recheck(document)


def test_halves_are_cut_where_one_box_does_not_do():
    data = pooled(0)
    net, prop, verdict = asked(data, [-1] * 4, [1] * 4, ["(>= Y_0 -3.1)"], 2)
    assert verdict.result == "unsat" and verdict.boxes > 1
    document = json.loads(json.dumps(certificate(net, prop, verdict, data, b"")))
    assert recheck(json.dumps(document), net, prop).startswith(f"1 cases, {verdict.boxes} boxes")
    root = document["cases"][0]["proof"]
    for lie in (
        {"axis": 3 - root["axis"]},
        {"halves": root["halves"][::-1]},
        {"halves": root["halves"][:1] * 2},
    ):
        document["cases"][0]["proof"] = root | lie
        with pytest.raises(Rejected):
            recheck(json.dumps(document))


def test_a_counterexample_is_seen_by_all():
    _, prop, verdict = asked(absolute(), [-1, -1], [1, 1], ["(>= Y_0 1.9)"], 1)
    found = verdict.counterexample
    assert verdict.result == "sat" and found.replays == {"onnxruntime": True, "exact": True}
    (expected,) = runtime(absolute(), found.inputs)
    assert prop.cases[0].holds(found.inputs.reshape(-1).tolist(), expected.reshape(-1).tolist())
    pairs = re.findall(r"\(([XY]_\d+) ([^()]+)\)", found.text())
    assert [name for name, _ in pairs] == ["X_0", "X_1", "Y_0"]
    assert [float(v) for _, v in pairs[:2]] == found.inputs.reshape(-1).tolist()


def test_a_maximum_that_one_point_alone_reaches():
    """2 is reached at four corners; the deployed network may round, so no proof is possible."""
    verdict = asked(absolute(), [-1, -1], [1, 1], ["(>= Y_0 2)"], 1)[2]
    assert verdict.result == "sat"
    assert np.array_equal(np.abs(verdict.counterexample.inputs), [[1, 1]])


def test_several_boxes_and_conjunctions():
    data = absolute()
    unsafe = [
        "(or (and (<= X_0 0) (>= Y_0 3)) (and (>= X_0 0) (>= Y_0 2.5) (<= Y_0 9)) (and (>= Y_0 4)))"
    ]
    net, prop, verdict = asked(data, [-1, -1], [1, 1], unsafe, 1)
    assert len(prop.cases) == 3 and verdict.result == "unsat" and len(verdict.proofs) == 3
    assert recheck(json.dumps(certificate(net, prop, verdict, data, b"")), net, prop)


def test_sides_that_no_float_holds_are_the_nearest_float():
    _, _, verdict = asked(absolute(), ["0.1", "0.1"], ["0.1", "0.1"], ["(<= Y_0 1)"], 1)
    assert verdict.result == "sat"
    assert np.array_equal(verdict.counterexample.inputs, np.float32([[0.1, 0.1]]))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_verdicts_against_many_points(seed):
    """No point of the box contradicts a proof, and every counterexample is one for onnxruntime."""
    data = pooled(seed)
    net = ln.onnx.loads(data)
    generator = np.random.default_rng(seed)
    lower = np.round(generator.uniform(-1, 0, 4), 3)
    upper = np.round(lower + generator.uniform(0, 0.5, 4), 3)
    points = (lower + generator.uniform(size=(60, 4)) * (upper - lower)).astype(np.float32)
    points = np.clip(
        points, *(np.nextafter(np.float32(e), np.float32(0.0)) for e in (lower, upper))
    )
    values = np.array([net(p.reshape(1, 1, 4)).reshape(-1) for p in points])
    edge = np.quantile(values[:, 0], generator.choice([0.5, 1.0])) + generator.choice(
        [0, 0.02, 0.3]
    )
    unsafe = [f"(>= Y_0 {edge:.4f})", f"(<= Y_1 {values[:, 1].max() + 1:.4f})"]
    prop = ln.onnx.loads_property(text(lower, upper, unsafe, 2))
    verdict = verify(net, prop, data=data, timeout=20, seed=seed)
    (case,) = prop.cases
    broken = [y for p, y in zip(points, values, strict=True) if case.holds(p.tolist(), y.tolist())]
    if verdict.result == "unsat":
        assert not broken
        document = json.dumps(certificate(net, prop, verdict, data, b""))
        assert "of this network" in recheck(document, net, prop)
    elif verdict.result == "sat":
        x = verdict.counterexample.inputs
        (y,) = runtime(data, x)
        assert all(c.holds(y.reshape(-1).tolist()) for c in case.unsafe[0])
        assert all(lo <= Fraction(v) <= hi for lo, v, hi in zip(case.lower, x.reshape(-1).tolist(), case.upper, strict=True))  # fmt: skip
    else:
        assert verdict.reason


@pytest.mark.parametrize("seed", range(max(2, SEEDS // 4)))
def test_many_inputs_are_cut_inside(seed):
    """Proofs that cut maxima: no point contradicts them, and they have no certificate."""
    data = pooled(seed, 12)
    net = ln.onnx.loads(data)
    points = np.random.default_rng(seed).uniform(-1, 1, (200, 1, 1, 12)).astype(np.float32)
    largest = max(float(net(p)[0, 0]) for p in points)
    for more in (0.0, 1.0, 2.0, 4.0, 8.0):
        _, prop, verdict = asked(
            data,
            [-1] * 12,
            [1] * 12,
            [f"(>= Y_0 {largest + more:.4f})"],
            2,
            timeout=60 if more == 8 else 1.5,
        )
        if verdict.result == "unsat":
            bound = -float(prop.cases[0].unsafe[0][0].bound)
            assert largest < bound
            if verdict.boxes > 1:
                with pytest.raises(ValueError, match="inside of the network"):
                    certificate(net, prop, verdict, data, b"")
            break
    assert verdict.result == "unsat"


@pytest.mark.parametrize("count", [4, 12])
@pytest.mark.parametrize("seed", range(max(2, SEEDS // 4)))
def test_what_is_broken_is_never_verified(seed, count, monkeypatch):
    """Also where no counterexample is looked for, and some of the conjunctions are refuted."""
    for search in ("candidates", "descents"):
        monkeypatch.setattr(f"lunette.verify.engine.{search}", lambda *_, **more: iter(()))
    data = pooled(seed, count)
    net = ln.onnx.loads(data)
    x = np.random.default_rng(seed).uniform(-0.5, 0.5, (1, 1, count)).astype(np.float32)
    first, second = net(x).reshape(-1).tolist()
    holds = f"(and (<= Y_0 {first + 0.01:.5f}) (>= Y_1 {second - 0.01:.5f}))"
    for unsafe in (
        f"(or (and (>= Y_0 1000)) {holds} (and (<= Y_1 -1000)))",
        f"(or (and (>= Y_0 {first - 0.01:.5f})) (and (>= Y_0 1000) (<= Y_1 0)))",
    ):
        verdict = asked(data, [-0.5] * count, [0.5] * count, [unsafe], 2, timeout=0.4)[2]
        assert verdict.result in ("timeout", "unknown")


# -- certificates that lie --


def changes(document):
    """Certificates of which each says something that does not follow."""

    def leaf(found):
        node = found["cases"][0]["proof"]
        while "halves" in node:
            node = node["halves"][0]
        return node["bounds"]

    def changed(name, change):
        found = copy.deepcopy(document)
        change(found)
        return name, found

    def each_input(found, side, by):
        step = leaf(found)["steps"][0]
        step[side] = [v + by for v in step[side]]

    case = document["cases"][0]
    yield changed("bound", lambda d: d["cases"][0]["unsafe"][0][0].update(bound="-1"))
    yield changed(
        "coefficient", lambda d: d["cases"][0]["unsafe"][0][0].update(coefficients=[[0, "1"]])
    )
    yield changed(
        "another output", lambda d: d["cases"][0]["unsafe"][0][0].update(coefficients=[[1, "-1"]])
    )
    yield changed("the other way", lambda d: d["cases"][0]["unsafe"][0][0].update(coefficients=[[0, "1"]], bound="5"))  # fmt: skip
    yield changed("nothing unsafe", lambda d: d["cases"][0].update(unsafe=[]))
    yield changed("one more conjunction", lambda d: d["cases"][0]["unsafe"].append([]))
    yield changed("wider box", lambda d: d["cases"][0].update(upper=["2"] * len(case["upper"])))
    yield changed("narrow leaf", lambda d: each_input(d, "lo", 1))
    yield changed("least", lambda d: leaf(d)["rows"][0]["least"]["int"].__setitem__(0, 10**9))
    yield changed("row", lambda d: leaf(d)["rows"][0]["row"]["int"].__setitem__(0, 2))
    yield changed("no proof", lambda d: d["cases"][0].pop("proof"))
    yield changed("outputs", lambda d: d["cases"][0].update(outputs=[[0, 0]]))
    yield changed("outputs twice", lambda d: d["cases"][0].update(outputs=[[0, 0], [0, 1]]))
    yield changed("a cut", lambda d: d["cases"][0].update(proof={"axis": 0, "at": {"int": [0], "exp": 0}, "halves": [d["cases"][0]["proof"]]}))  # fmt: skip
    yield changed("format", lambda d: d.update(format="lunette-verify-0"))
    yield changed("no case", lambda d: d.update(cases=[]))
    yield changed("weights", lambda d: leaf(d)["steps"][1]["weight"]["int"].__setitem__(0, 77))


def test_certificates_that_lie_are_rejected():
    data = absolute()
    net, prop, verdict = asked(data, [-1, -1], [1, 1], ["(>= Y_0 2.01)"], 1)
    document = json.loads(json.dumps(certificate(net, prop, verdict, data, b"")))
    assert recheck(json.dumps(document), net, prop)
    count = 0
    for name, found in changes(document):
        count += 1
        with pytest.raises(Rejected):
            pytest.fail(f"{name}: {recheck(json.dumps(found))}")
        with pytest.raises(Rejected):
            pytest.fail(f"{name}: {recheck(json.dumps(found), net, prop)}")
    assert count == 17


def test_a_certificate_of_another_network_or_property():
    data = absolute()
    net, prop, verdict = asked(data, [-1, -1], [1, 1], ["(>= Y_0 2.01)"], 1)
    document = json.dumps(certificate(net, prop, verdict, data, b""))
    other = ln.onnx.loads(model([helper.make_node("Gemm", ["x", "w"], ["y"])], {"x": (1, 2)}, constants={"w": np.ones((2, 1), np.float32)}))  # fmt: skip
    with pytest.raises(Rejected, match=r"network|outputs"):
        recheck(document, other, prop)
    alike = ln.onnx.loads(absolute(0.5))
    with pytest.raises(Rejected, match="steps are not those"):
        recheck(document, alike, prop)
    wider = ln.onnx.loads_property(text([-1, -1], [1, 2], ["(>= Y_0 2.01)"], 1))
    with pytest.raises(Rejected, match="property"):
        recheck(document, net, wider)
    for bad in ("", "{", "[]", '{"format": 1}', "1e5", '{"a": 1, "a": 2}', "[" * 100_000):
        with pytest.raises(Rejected):
            recheck(bad)


# -- what is not decided --


def test_what_the_inputs_decide_is_unknown():
    data = CASES["ArgMax"]
    verdict = asked(data, [0] * 12, [1] * 12, ["(>= Y_0 100)"], 12, timeout=10)[2]
    assert verdict.result == "unknown" and "decide" in verdict.reason


def test_ops_without_bounds_are_unknown_by_name():
    verdict = asked(single("Exp", (1, 2)), [0, 0], [1, 1], ["(>= Y_0 9)"], 2, timeout=10)[2]
    assert verdict.result == "unknown" and "exp" in verdict.reason


def test_no_time_is_a_timeout():
    verdict = asked(absolute(), [-1, -1], [1, 1], ["(>= Y_0 2.0000001)"], 1, timeout=1e-6)[2]
    assert verdict.result == "timeout"


def test_halves_of_floats_are_unknown():
    data = single("Relu", (1, 2), kind=10)
    verdict = asked(data, [0, 0], [1, 1], ["(>= Y_0 9)"], 2)[2]
    assert verdict.result == "unknown" and "float16" in verdict.reason


@pytest.mark.parametrize("end", ["1e39", "1e400", "-1e39"])
def test_a_box_past_the_floats(end):
    with pytest.raises(ln.onnx.ReadError, match="X_1 reaches past"):
        asked(
            absolute(),
            [0, min(end, "0", key=float)],
            [1, max(end, "0", key=float)],
            ["(>= Y_0 9)"],
            1,
        )


def test_a_box_as_small_as_floats_go():
    low = "1e-46"  # between 0 and the smallest float32
    verdict = asked(absolute(), [low, low], [low, low], ["(>= Y_0 1)"], 1)[2]
    assert verdict.result == "unsat"


@pytest.mark.parametrize(
    "lower, outputs, match", [([0, 0, 0], 1, "3 inputs"), ([0, 0], 2, "2 outputs")]
)
def test_a_property_of_another_network(lower, outputs, match):
    prop = ln.onnx.loads_property(text(lower, [1] * len(lower), ["(>= Y_0 9)"], outputs))
    with pytest.raises(ln.onnx.ReadError, match=match):
        verify(ln.onnx.loads(absolute()), prop)


# -- the commands --


@pytest.fixture
def files(tmp_path):
    (tmp_path / "net.onnx").write_bytes(absolute())
    for name, edge in (("holds", 2.01), ("breaks", 1.9)):
        (tmp_path / f"{name}.vnnlib").write_text(text([-1, -1], [1, 1], [f"(>= Y_0 {edge})"], 1))
    return tmp_path


def command(*words):
    return runner.invoke(app, [str(w) for w in words])


def test_verify_and_recheck(files):
    certified, written = files / "c.json", files / "out.txt"
    said = command("verify", files / "net.onnx", files / "holds.vnnlib", "--certificate", certified, "--result", written)  # fmt: skip
    assert said.exit_code == 0 and said.stdout == "unsat\n" and written.read_text() == "unsat\n"
    pair = ("--network", files / "net.onnx", "--property", files / "holds.vnnlib")
    again = command("recheck", certified, *pair)
    assert again.exit_code == 0 and again.stdout.startswith("verified: 1 cases")
    lie = certified.read_text().replace('"-201/100"', '"-1/2"')
    certified.write_text(lie)
    assert command("recheck", certified).exit_code == 1
    assert command("recheck", certified, *pair[:2]).exit_code == 2
    assert command("recheck", files / "absent.json").exit_code == 2


def test_a_falsified_property(files):
    said = command("verify", files / "net.onnx", files / "breaks.vnnlib")
    lines = said.stdout.splitlines()
    assert said.exit_code == 1 and lines[0] == "sat" and lines[1].startswith("((X_0 ")


def test_bad_files_give_no_verdict(files):
    (files / "bad.onnx").write_bytes(b"junk")
    (files / "bad.vnnlib").write_text("(assert")
    good = files / "net.onnx", files / "holds.vnnlib"
    for words in (
        (files / "bad.onnx", good[1]),
        (good[0], files / "bad.vnnlib"),
        (files / "absent.onnx", good[1]),
        (*good, "--max-bytes", 20),
    ):
        said = command("verify", *words)
        assert said.exit_code == 2 and said.stdout == "error\n", words
        assert "error: " in said.stderr
    for words in ((*good, "--timeout", 0), (*good, "--certificate", files / "no" / "c.json")):
        assert command("verify", *words).exit_code == 2


def test_timeout_has_its_own_status(files):
    said = command("verify", files / "net.onnx", files / "holds.vnnlib", "--timeout", 1e-9)
    assert said.exit_code == 4 and said.stdout == "timeout\n"
