"""The table of kernels: which row serves, why others refuse, and that the page shows it. No kernel is compiled."""

import ctypes
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette as ln
from cases import kernel_table
from lunette.cli import app
from lunette.kernels.cpu.explain import TABLES
from lunette.kernels.cpu.explain import explain as of_kernels
from lunette.kernels.cpu.jit import cache
from lunette.kernels.cpu.select import argmax, forward, vjp

CALLS = (
    forward.forward_call,
    argmax.indices_call,
    argmax.offsets_call,
    argmax.tangent_call,
    vjp.gradient_call,
)

K3S2, K2S2 = ln.MaxPool((3, 3), stride=2, padding=1), ln.MaxPool((2, 2))
ALL, FAR = ln.MaxPool((3, 3), 2, 1, ties="all"), ln.MaxPool((30, 30), 30)
MEAN, LSE = ln.AvgPool((3, 3), 2, 1), ln.SmoothMaxPool((3, 3), 1.0, 2, 1)
LSE2 = ln.SmoothMaxPool((2, 2), 1.0)
LARGE_LSE, GLOBAL = ln.SmoothMaxPool((9, 9), 1.0), ln.GlobalMaxPool(2)
LONG = ln.MaxPool((9, 9), 1, 4)

ROWS = [
    ("forward", LARGE_LSE, (2, 3, 40, 50), False, "lse-fwd-any-pairs"),
    ("forward", K2S2, (8, 256, 8, 8), False, "any-fwd-interleave"),
    ("forward", LSE, (2, 32, 20, 30), True, "lse-fwd-nhwc"),
    ("forward", LSE, (2, 3, 40, 50), False, "lse-fwd-nchw"),
    ("forward", ln.GlobalAvgPool(2), (2, 3, 7, 7), False, "mean-fwd-nchw-narrow"),
    ("forward", MEAN, (2, 32, 20, 30), True, "mean-fwd-nhwc-fold"),
    ("forward", MEAN, (2, 3, 40, 50), False, "mean-fwd-nchw-fold"),
    ("forward", ln.AvgPool((25,), 1), (2, 3, 900), False, "mean-fwd-nchw-1d"),
    ("forward", ln.AvgPool((25, 25), 1), (2, 3, 60, 70), False, "mean-fwd-any-separable"),
    ("forward", GLOBAL, (2, 3, 40, 50), False, "max-fwd-nchw-reduce-window"),
    ("forward", ln.MaxPool((2, 2, 2)), (2, 3, 16, 16, 16), False, "max-fwd-nchw-fold-depth-outer"),
    ("forward", K3S2, (2, 32, 20, 30), True, "max-fwd-nhwc-fold"),
    ("forward", K3S2, (2, 3, 40, 50), False, "max-fwd-nchw-fold"),
    ("forward", LONG, (2, 3, 40, 50), False, "max-fwd-any-separable"),
    ("forward_with_indices", K3S2, (2, 3, 40, 50), False, "argmax-fwd-nchw"),
    ("forward_with_indices", K3S2, (2, 32, 20, 30), True, "argmax-fwd-nhwc"),
    ("forward_with_indices", GLOBAL, (2, 3, 40, 50), False, "argmax-fwd-nchw-global"),
    ("forward_with_indices", FAR, (2, 3, 90, 90), False, "argmax-fwd-nchw-reduce-window"),
    ("forward_with_indices", LONG, (2, 3, 40, 50), False, "argmax-fwd-any-separable"),
    ("jvp", LARGE_LSE, (2, 3, 40, 50), False, "lse-jvp-any-pairs"),
    ("jvp", K3S2, (2, 32, 20, 30), True, "max-jvp-nhwc"),
    ("jvp", ALL, (2, 32, 20, 30), True, "tied-jvp-nhwc"),
    ("jvp", LSE2, (2, 32, 20, 30), True, "lse-jvp-nhwc"),
    ("jvp", K3S2, (2, 3, 40, 50), False, "max-jvp-nchw"),
    ("jvp", GLOBAL, (2, 3, 40, 50), False, "max-jvp-nchw-global"),
    ("jvp", FAR, (2, 3, 90, 90), False, "max-jvp-nchw-reduce-window"),
    ("jvp", LONG, (2, 3, 40, 50), False, "max-jvp-any-separable"),
    ("jvp", ALL, (2, 3, 40, 50), False, "any-jvp-reference"),
    ("vjp", LARGE_LSE, (2, 3, 40, 50), False, "lse-vjp-any-pairs"),
    ("vjp", K3S2, (2, 32, 20, 30), True, "max-vjp-nhwc-gather"),
    ("vjp", ALL, (2, 32, 20, 30), True, "tied-vjp-nhwc-gather"),
    ("vjp", LSE, (2, 32, 20, 30), True, "lse-vjp-nhwc-gather"),
    ("vjp", ln.AvgPool((2, 2)), (2, 3, 40, 50), False, "mean-vjp-any-upsample"),
    ("vjp", MEAN, (2, 64, 20, 30), True, "mean-vjp-nhwc-gather"),
    ("vjp", MEAN, (2, 3, 40, 50), False, "mean-vjp-any-separable"),
    ("vjp", K3S2, (2, 3, 40, 50), False, "max-vjp-nchw-gather"),
    ("vjp", LSE, (2, 3, 40, 50), False, "lse-vjp-nchw-gather"),
    ("vjp", GLOBAL, (2, 3, 40, 50), False, "max-vjp-nchw-global"),
    ("vjp", FAR, (2, 3, 90, 90), False, "max-vjp-nchw-scatter"),
    ("vjp", LONG, (2, 3, 40, 50), False, "max-vjp-any-separable"),
    ("vjp", ALL, (2, 3, 40, 50), False, "any-vjp-reference"),
]


KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * cache.PARAMETERS)


def forget():
    for call in CALLS:
        call.cache_clear()


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch):
    """A kernel is a name here; programs that hold one are forgotten afterwards."""
    made = {}

    def named(*name):
        return made.setdefault(name, KERNEL(lambda *_: 0))

    monkeypatch.setattr(cache, "_kernel", named)
    forget()
    yield
    forget()


def array(shape, last):
    laid = (shape[0], *shape[2:], shape[1]) if last else shape
    x = np.zeros(laid, np.float32)
    return np.moveaxis(x, -1, 1) if last else x


@pytest.mark.parametrize(("verb", "op", "shape", "last", "row"), ROWS)
def test_the_row_that_serves(verb, op, shape, last, row):
    found = ln.explain(op, array(shape, last), verb=verb)
    names = [r.name for r in TABLES[verb]]
    assert found.row == row
    assert [name for name, _ in found.refused] == names[: names.index(row)]
    assert all(why for _, why in found.refused) and found.schedule


def test_most_rows_have_a_case_here():
    known = {row for *_, row in ROWS}
    assert len(known) == len(ROWS)
    rows = {row.name for verb, rows in TABLES.items() for row in rows}
    assert known <= rows and len(known) >= 0.7 * len(rows)


def test_taps_are_explained_too():
    found = of_kernels(K3S2, "forward_with_offsets", array((2, 3, 40, 50), False))
    assert found.row == "argmax-taps-nchw"


def test_names_are_unique_and_the_reference_is_last():
    names = [row.name for rows in TABLES.values() for row in rows]
    assert len(set(names)) == len(names)
    for verb, rows in TABLES.items():
        assert rows[-1].name.endswith("reference") or verb == "forward_with_offsets"


def test_it_prints_refusals_and_the_schedule():
    text = str(ln.explain(K3S2, array((8, 64, 56, 56), False)))
    assert "served by max-fwd-nchw-fold:" in text
    assert "max-fwd-nhwc-fold" in text and "channels are not contiguous" in text
    assert "for other reductions" in text and "kernel" in text and "bytes a thread" in text


def test_what_no_kernel_serves_says_so():
    assert ln.explain(ln.MaxPool((2,)), np.array([1 + 0j, 2]).astype(object)).row == "spec"
    assert ln.explain(ln.MinPool((2,)), np.zeros((2, 8), np.int8)).row == "integers"
    x, weight = np.zeros((1, 2, 8, 8), np.float32), np.zeros((3, 2, 3, 3), np.float32)
    assert ln.explain(ln.Conv((3, 3)), x, weight).row == "cpu"
    with pytest.raises(ValueError, match="verb"):
        ln.explain(K2S2, np.zeros((4, 4), np.float32), verb="backward")


def test_the_command_line():
    run = CliRunner().invoke
    asked = ["explain", "max", "2,32,20,30", "--window", "3,3", "--stride", "2", "--verb", "vjp"]
    said = run(app, [*asked, "--padding", "1", "--channels-last"])
    assert said.exit_code == 0 and "max-vjp-nhwc-gather" in said.output
    assert run(app, ["explain", "max", "2,x"]).exit_code == 2


def test_the_page_shows_the_table():
    """`python -m cases.kernel_table` writes it."""
    assert kernel_table.written() == kernel_table.table()


def test_the_traced_call_leads_to_files_that_are_there():
    page = kernel_table.PAGE.read_text()
    targets = re.findall(r"\]\(https://github.com/[^/]+/[^/]+/blob/main/([^)]+)\)", page)
    assert len(targets) > 8
    for target in targets:
        assert (kernel_table.PAGE.parents[1] / target).is_file(), target


def test_the_page_is_short_enough_to_be_read():
    assert len(kernel_table.PAGE.read_text().split()) <= 2500
