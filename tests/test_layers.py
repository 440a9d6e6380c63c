"""The CPU kernels and the bounds stand in layers, as their pages draw them: each knows those below."""

import ast
from pathlib import Path

import pytest

import lunette

CPU = Path(lunette.__file__).parent / "kernels" / "cpu"
NAME = "lunette.kernels.cpu"

BELOW = [
    {"jit"},
    {"tuning"},
    {"schedule"},
    {"memory"},
    {"simd"},
    {"micro"},
    {"loops"},
    {"reference"},
    {"threadpool"},
    {"program", "xla"},
    {"layout", "conv"},
    {"select"},
    {"pooling", "convolution"},
    {"integers", "explain"},
]
"""The layers, the lowest first. What stands side by side does not know of each other."""

LEVEL = {name: level for level, names in enumerate(BELOW) for name in names}


def layer(path):
    """The folder of a module, or the module itself where it is in none."""
    return path.relative_to(CPU).parts[0].removesuffix(".py")


def known(path):
    """The layers that a module imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(NAME):
            inside = node.module.removeprefix(NAME).lstrip(".")
            yield from [inside.split(".")[0]] if inside else [alias.name for alias in node.names]


def test_every_module_has_a_layer():
    assert {layer(path) for path in CPU.rglob("*.py")} - {"__init__"} == set(LEVEL)


@pytest.mark.parametrize("name", sorted(LEVEL))
def test_a_layer_knows_only_those_below_it(name):
    above = [
        (str(path.relative_to(CPU)), other)
        for path in CPU.rglob("*.py")
        if layer(path) == name
        for other in known(path)
        if other != name and LEVEL[other] >= LEVEL[name]
    ]
    assert not above


def test_the_map_names_every_file():
    """In the table of its folder."""
    text = (Path(__file__).parents[1] / "docs" / "kernel-files.md").read_text()
    top, *parts = text.split("\n`kernels/threads.py`")[0].split("\n### `")
    tables = {"": top} | {part.split("/`")[0]: part for part in parts}
    files = [path.relative_to(CPU) for path in CPU.rglob("*.py") if path.name != "__init__.py"]
    missing = [str(f) for f in files if f"`{f.name}`" not in tables["/".join(f.parts[:-1])]]
    assert not missing


BOUNDS = CPU.parents[1] / "bounds"
BOUNDS_BELOW = [
    {"check", "box"},
    {"affine"},
    {"windows"},
    {"deployed", "relax"},
    {"network"},
    {"pull", "attack", "reading"},
    {"parts"},
    {"tiles"},
    {"tighten"},
    {"outputs"},
    {"certificate", "split"},
]
"""The files of `lunette.bounds`, the lowest first."""

BOUNDS_MAY_KNOW = {
    "arguments",
    "cached",
    "check",
    "dispatch",
    "inputs",
    "ops",
    "reductions",
    "regions",
    "tape",
}
"""What of the rest of the project bounds are made of; no kernel, no adapter, no spec."""


def imports(path):
    """Modules of lunette that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lunette"):
            parts = node.module.split(".")
            if node.module in ("lunette", "lunette.bounds"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield ".".join(parts)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("lunette"))


def test_a_file_of_the_bounds_knows_only_those_below_it():
    level = {name: n for n, names in enumerate(BOUNDS_BELOW) for name in names}
    files = [path for path in BOUNDS.glob("*.py") if path.stem != "__init__"]
    assert {path.stem for path in files} == set(level)
    for path in files:
        for module in imports(path):
            top, *rest = module.split(".")[1:]
            if top == "bounds":
                assert level[rest[0]] < level[path.stem], (path.name, module)
            else:
                assert top in BOUNDS_MAY_KNOW, (path.name, module)


def test_the_checker_knows_nothing_of_the_project():
    assert not list(imports(BOUNDS / "check.py"))


def test_only_the_front_knows_the_bounds():
    """The command line and the public names may; no layer below does."""
    root = CPU.parents[1]
    for path in root.rglob("*.py"):
        if BOUNDS in path.parents or path.relative_to(root).parts[0] in (
            "__init__.py",
            "cli.py",
            "verify",
        ):
            continue
        assert not [m for m in imports(path) if m.startswith("lunette.bounds")], path


def test_only_the_front_knows_verification_and_the_reader_of_networks():
    """The tape knows no file; the reader knows no bounds; the command line knows both."""
    root = CPU.parents[1]
    allowed = {
        "lunette.onnx": ("__init__.py", "onnx", "verify"),
        "lunette.verify": ("cli.py", "verify"),
    }
    for path in root.rglob("*.py"):
        for name, folders in allowed.items():
            if path.relative_to(root).parts[0] not in folders:
                assert not [m for m in imports(path) if m.startswith(name)], path


KNOWS = """
adapters: arguments axes boxes dispatch encoding functional inputs jax ops positions reductions regions torch unpooling
axes: arguments ops
bounds: arguments cached check dispatch inputs ops reductions tape
boxes: ops
check: axes cached inputs lunette ops platform reductions regions spec
cli: check explanation lunette scale tour verify warmup_command
dispatch: adapters annotations arguments axes inputs loading memory ops
drawing: inputs ops regions spec
encoding: ops reductions regions
explanation: arguments axes dispatch inputs kernels.cpu lunette ops reductions
functional: adapters annotations arguments axes dispatch inputs ops spec unpooling
inputs: arguments ops
jax: arguments axes background dispatch encoding inputs kernels.cpu kernels.threads kernels.triton loading offsets ops reductions regions unpooling
kernels.cpu: background boxes cached explanation kernels.threads loading offsets ops positions reductions regions
kernels.threads: arguments background kernels.gates loading platform
kernels.triton: cached kernels.cpu ops reductions regions
loading: background
lunette: bounds check dispatch explanation functional kernels.threads offsets onnx ops reductions regions scale spec tape testing torch torchlean warmup
memory: platform
offsets: arguments axes dispatch inputs kernels.cpu memory ops positions reductions spec
onnx: arguments inputs ops spec tape
ops: annotations arguments axes dispatch drawing records reductions regions
reductions: arguments records
regions: arguments records
scale: adapters arguments dispatch inputs kernels.cpu kernels.threads ops platform positions reductions regions
spec: arguments axes boxes inputs memory ops positions reductions regions unpooling
tape: arguments axes dispatch inputs ops reductions spec
testing: arguments check inputs ops reductions regions spec
torch: adapters annotations arguments cached dispatch encoding kernels.cpu kernels.threads kernels.triton memory offsets ops reductions regions unpooling
torchlean: annotations arguments inputs ops regions spec
tour: lunette spec
unpooling: inputs ops
verify: bounds lunette onnx spec
warmup: arguments memory offsets ops platform reductions
warmup_command: warmup
"""
"""What each folder or file of the house knows of the others, at once or when it is first needed; of itself it knows all."""


def room(parts):
    """The folder or file at the top of the house; of the kernels, the one below."""
    return ".".join(parts[: 2 if parts[0] == "kernels" else 1])


def test_no_arrow_of_the_house_is_new():
    root = CPU.parents[1]
    rooms = {path.name.removesuffix(".py") for path in root.iterdir()}
    allowed = {line.split(":")[0]: line.split(":")[1].split() for line in KNOWS.strip().split("\n")}
    for path in root.rglob("*.py"):
        parts = [part.removesuffix(".py") for part in path.relative_to(root).parts]
        here = "lunette" if parts == ["__init__"] else room(parts)
        if here == "__main__":
            continue
        for module in imports(path):
            names = module.split(".")[1:]
            there = room(names) if names and names[0] in rooms else "lunette"
            assert there in (here, "kernels", *allowed.get(here, ())), (str(path), module)
