"""Files that are not read: each error names the node, the tensor or the field."""

import gzip
import os
import re
import time

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import lunette as ln
from lunette.onnx import ReadError
from tests.onnx.models import model, parsed, runtime, single


def refused(data, match):
    with pytest.raises(ReadError, match=match):
        net = ln.onnx.loads(data)
        shape = tuple(n or 1 for n in net.inputs[0].shape)
        net(np.ones(shape, np.float32))


def changed(data, change):
    made = parsed(data)
    change(made)
    return made.SerializeToString()


RELU = single("Relu", (2, 3))
CONV = single("Conv", (1, 2, 5, 5), np.ones((1, 2, 3, 3), np.float32))


@pytest.mark.parametrize(
    "data, match",
    [
        (b"", "no graph"),
        (b"not an onnx file at all", "not an ONNX file"),
        (RELU[:-7], "not an ONNX file"),
        (single("Relu", (2,), opset=7), "version 7.*8 … 22"),
        (changed(RELU, lambda m: m.opset_import[0].__setattr__("version", 99)), "version 99"),
        (changed(RELU, lambda m: m.graph.node[0].__setattr__("op_type", "Mystery")), "node 0.*'Mystery'"),
        (changed(RELU, lambda m: m.graph.node[0].__setattr__("domain", "com.me")), "node 0.*'com.me'"),
        (changed(RELU, lambda m: m.graph.node[0].__setattr__("op_type", "Loop")), "node 0.*'Loop'"),
        (
            changed(RELU, lambda m: m.graph.node[0].attribute.append(helper.make_attribute("slope", 1.0))),
            "node 0.*'slope' is unknown",
        ),
        (
            changed(CONV, lambda m: m.graph.node[0].attribute.append(helper.make_attribute("group", 1.5))),
            "node 0.*'group' has the wrong type",
        ),
        (single("MaxPool", (1, 1, 4)), "'kernel_shape' is missing"),
        (single("Conv", (1, 2, 5), np.ones((1, 2, 3), np.float32), kernel_shape=[4]), r"kernel_shape=\[4\]"),
        (single("Conv", (1, 3, 5), np.ones((1, 2, 3), np.float32)), "node 0"),
        (single("Conv", (1, 2, 5), np.ones((1, 2, 3), np.float32), pads=[-1, 0]), r"pads=\[-1, 0\]"),
        (single("Conv", (1, 2, 5), np.ones((1, 2, 3), np.float32), strides=[0]), r"strides=\[0\]"),
        (single("Conv", (1, 2, 5), np.ones((1, 2, 3), np.float32), group=0), "group=0"),
        (single("Conv", (1, 2, 5), np.ones((1, 2, 3), np.float32), auto_pad="MAYBE"), "auto_pad='MAYBE'"),
        (
            single("Conv", (1, 2, 5), np.ones((1, 2, 3), np.float32), auto_pad="SAME_UPPER", pads=[1, 1]),
            "auto_pad='SAME_UPPER' and pads",
        ),
        (single("Conv", (1, 1, 5), np.ones((1, 1, 3), np.float32), pads=[2**40, 0]), "elements"),
        (single("MaxPool", (1, 1, 4), kernel_shape=[2], pads=[2, 0]), "padding alone"),
        (single("MaxPool", (1, 1, 1), kernel_shape=[2], dilations=[2], pads=[1, 1]), "padding alone"),
        (single("AveragePool", (1, 1, 4), kernel_shape=[9]), "node 0"),
        (single("Expand", (1,), np.array([2**40])), "node 0.*elements"),
        (single("Reshape", (2, 3), np.array([4, -1])), "node 0"),
        (single("Reshape", (2, 3), np.array([-1, -1])), "at most one -1"),
        (single("Gather", (2, 3), np.array([5])), "indices reach"),
        (single("Pad", (3,), np.array([3, 0]), mode="reflect"), "too wide"),
        (single("Slice", (3,), np.array([0]), np.array([2]), np.array([0]), np.array([0])), "steps"),
        (single("Slice", (3,), np.array([0]), np.array([2]), np.array([5])), "axes=5"),
        (single("Squeeze", (2, 3), np.array([0])), "length 1"),
        (single("Transpose", (2, 3), perm=[0, 0]), "perm"),
        (single("Concat", (2, 3), np.ones((3, 2), np.float32), axis=0), "do not meet"),
        (single("MatMul", (2, 3), np.ones((2, 3), np.float32)), "node 0"),
        (single("Add", (2, 3), np.ones(3)), "float64 in a network of float32"),
        (single("Cast", (2,), to=11), "float32 throughout"),
        (single("Cast", (2,), to=8), "STRING"),
        (single("Resize", (1, 1, 3), None, np.ones(3, np.float32), mode="linear"), "mode='linear'"),
        (single("ArgMax", (2, 3), select_last_index=1), "select_last_index"),
        (single("ScatterND", (2, 3), np.array([[0]]), np.ones((1, 3), np.float32), reduction="add"), "reduction"),
        (single("Add", (2, 3), np.array([1, np.nan, 1], np.float32)), r"'c0' holds nan at \(1,\)"),
        (single("Add", (2, 3), np.array([1, np.inf, 1], np.float32)), "'c0' holds inf"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_refused_by_name(data, match):
    refused(data, match)


def test_an_attribute_that_nobody_looks_at_is_an_error(monkeypatch):
    monkeypatch.setitem(ln.onnx.network.OPERATORS, "LeakyRelu", lambda run, step, x: x)
    refused(single("LeakyRelu", (2,), alpha=0.5), r"node 0.*attribute alpha=0\.5 is not read")


def test_cycles_gaps_and_names_made_twice():
    relu = helper.make_node
    cycle = [relu("Relu", ["b"], ["a"]), relu("Relu", ["a"], ["b"]), relu("Add", ["a", "x"], ["y"])]
    refused(model(cycle, {"x": (2,)}), "cyclic")
    refused(model([relu("Relu", ["y"], ["y"])], {"x": (2,)}), "cyclic")
    refused(model([relu("Relu", ["gone"], ["y"])], {"x": (2,)}), "node 0.*'gone'")
    refused(model([relu("Relu", ["x"], ["z"])], {"x": (2,)}), "output 'y'")
    refused(model([relu("Relu", ["x"], ["y"])] * 2, {"x": (2,)}), "node 1.*'y'")
    refused(model([relu("Relu", [""], ["y"])], {"x": (2,)}), "input 0 is missing")
    refused(model([relu("Relu", ["x", "x"], ["y"])], {"x": (2,)}), "2 inputs")


def test_steps_in_any_order_are_sorted():
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]
    assert np.array_equal(ln.onnx.loads(model(nodes, {"x": (2,)}))(np.float32([1, -2])), [0, 2])


def test_a_deep_graph_needs_no_recursion():
    nodes = [helper.make_node("Neg", [f"v{k}"], [f"v{k + 1}"]) for k in reversed(range(5000))]
    net = ln.onnx.loads(model(nodes, {"v0": (1,)}, ["v5000"]))
    assert net(np.float32([3])) == 3


def test_an_output_that_is_not_computed():
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2])
    data = model([node, helper.make_node("Cast", ["places"], ["z"], to=1)], {"x": (1, 1, 4)}, ["z"])
    refused(data, "'places', an output that is not computed")


def test_declared_shapes_are_held_to():
    net = ln.onnx.loads(RELU)
    for wrong in (np.zeros((3, 2)), np.zeros(6), np.zeros((2, 3, 1))):
        with pytest.raises(ValueError, match="input 'x' has shape"):
            net(wrong)
    with pytest.raises(TypeError, match="float16"):
        net(np.zeros((2, 3), np.float16))
    with pytest.raises(TypeError, match="int64"):
        net(np.zeros((2, 3), int))
    with pytest.raises(TypeError, match="takes x"):
        net()

    def lie(made):
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [5]))

    refused(changed(RELU, lie), "output 'y' has shape")


def test_open_sizes_are_those_of_the_input():
    net = ln.onnx.loads(single("Relu", ("batch", 3)))
    assert net.inputs[0].shape == (None, 3)
    assert net(np.ones((7, 3), np.float32)).shape == (7, 3)


# -- tensors that lie about themselves --


def test_a_tensor_whose_shape_needs_more_than_it_holds():
    data = single("Add", (2,), np.ones(2, np.float32))
    refused(
        changed(data, lambda m: m.graph.initializer[0].dims.__setitem__(0, 2**40)),
        "'c0'.*max_bytes",
    )
    refused(
        changed(data, lambda m: m.graph.initializer[0].dims.__setitem__(0, 3)), "needs 3 elements"
    )
    refused(changed(data, lambda m: m.graph.initializer[0].dims.__setitem__(0, -1)), "'c0'.*shape")
    refused(changed(data, lambda m: m.graph.initializer[0].__setattr__("data_type", 8)), "STRING")
    refused(changed(data, lambda m: m.graph.initializer[0].__setattr__("data_type", 77)), "'c0'")


def test_size_limits(tmp_path):
    (tmp_path / "n.onnx").write_bytes(RELU)
    (tmp_path / "n.onnx.gz").write_bytes(gzip.compress(RELU))
    (tmp_path / "bomb.onnx.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    (tmp_path / "half.onnx.gz").write_bytes(gzip.compress(RELU)[:-9])
    for name in ("n.onnx", "n.onnx.gz"):
        assert ln.onnx.load(tmp_path / name).operators == ("Relu",)
        with pytest.raises(ReadError, match=f"{name}.*max_bytes=10"):
            ln.onnx.load(tmp_path / name, max_bytes=10)
    with pytest.raises(ReadError, match="max_bytes=1000"):
        ln.onnx.load(tmp_path / "bomb.onnx.gz", max_bytes=1000)
    with pytest.raises(ReadError, match="damaged gzip"):
        ln.onnx.load(tmp_path / "half.onnx.gz")
    with pytest.raises(FileNotFoundError):
        ln.onnx.load(tmp_path / "absent.onnx")


# -- external data --


def external(tmp_path, location, **fields):
    made = parsed(single("Add", (2,), np.float32([5, 6])))
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **fields}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (folder / "n.onnx").write_bytes(made.SerializeToString())
    return folder


def test_external_data_in_the_folder_is_read(tmp_path):
    folder = external(tmp_path, "w/data.bin", offset=4, length=8)
    (folder / "w").mkdir()
    (folder / "w" / "data.bin").write_bytes(np.float32([0, 5, 6]).tobytes())
    assert np.array_equal(ln.onnx.load(folder / "n.onnx")(np.zeros(2, np.float32)), [5, 6])
    with pytest.raises(ReadError, match="'c0' has external data"):
        ln.onnx.loads((folder / "n.onnx").read_bytes())


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "", "a/../../secret", "link", "l/secret", "."]
)
def test_external_data_elsewhere_is_refused(tmp_path, location):
    folder = external(tmp_path, location)
    (tmp_path / "secret").write_bytes(np.float32([5, 6]).tobytes())
    os.symlink(tmp_path / "secret", folder / "link")
    os.symlink(tmp_path, folder / "l")
    with pytest.raises(ReadError, match=r"tensor 'c0'.*external data"):
        ln.onnx.load(folder / "n.onnx")


@pytest.mark.parametrize(
    "fields", [{"offset": 4}, {"offset": -1}, {"length": 4}, {"length": 10**30}, {"what": 1}]
)
def test_external_data_that_is_not_there(tmp_path, fields):
    folder = external(tmp_path, "data", **fields)
    (folder / "data").write_bytes(np.float32([5, 6]).tobytes())
    with pytest.raises(ReadError, match="tensor 'c0'"):
        ln.onnx.load(folder / "n.onnx")


def test_a_second_name_of_a_file_is_refused(tmp_path):
    folder = external(tmp_path, "data")
    (tmp_path / "secret").write_bytes(np.float32([5, 6]).tobytes())
    os.link(tmp_path / "secret", folder / "data")
    with pytest.raises(ReadError, match="one name"):
        ln.onnx.load(folder / "n.onnx")


# -- anything at all --

SOUND = [CONV, RELU, single("Gemm", (2, 3), np.ones((3, 4), np.float32), np.ones(4, np.float32))]
COUNT = int(os.environ.get("LUNETTE_ONNX_CASES", "150"))


@settings(max_examples=COUNT, deadline=None, derandomize=True)
@given(
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
)
def test_changed_bytes_are_read_or_refused(data, changes):
    """And what is read is what onnxruntime reads."""
    found = bytearray(data)
    for place, byte in changes:
        found[place % len(found)] = byte
    begin = time.monotonic()
    try:
        net = ln.onnx.loads(bytes(found))
        x = np.ones([n or 1 for n in net.inputs[0].shape or ()], np.float32)
        if x.size > 10**6:
            return
        y = net(x)
    except (ReadError, TypeError) as error:
        assert re.search(r"\w", str(error))
        return
    finally:
        assert time.monotonic() - begin < 60
    try:
        expected = runtime(bytes(found), x)[0]
    except Exception:
        return  # onnxruntime refuses more
    if isinstance(y, np.ndarray) and y.size == expected.size:
        assert np.allclose(
            y.reshape(-1), expected.reshape(-1), rtol=1e-4, atol=1e-4, equal_nan=True
        )


def test_the_rest_of_lunette_needs_no_onnx():
    import subprocess
    import sys

    code = "import sys, lunette; lunette.Tape; assert 'onnx' not in sys.modules; lunette.onnx; assert 'onnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_numpy_helper_reads_what_we_read():
    """Every dtype that is read, by both forms in which elements are stored."""
    from lunette.onnx.tensors import DTYPES, to_array

    for number, dtype in DTYPES.items():
        array = np.array([[0, 1], [1, 0]]).astype(dtype)
        raw = numpy_helper.from_array(array)
        assert np.array_equal(to_array(raw, "t", None, 100), array)
        typed = helper.make_tensor("t", number, (2, 2), array.reshape(-1).tolist())
        assert (
            np.array_equal(to_array(typed, "t", None, 100), array)
            and to_array(typed, "t", None, 100).dtype == dtype
        )
