"""The benchmarks measure what they say: the same work as the peers, ratios, goals, and a page."""

import json
from pathlib import Path

import pytest

import lunette
from benchmarks import peers, pooling, report, versions
from benchmarks.timing import Copy, interleaved
from cases.workloads import WORKLOADS, by_name
from lunette import dispatch


def row(name, ours, goal=None, times=None, beside=None, **others):
    return {
        "name": name,
        "shape": [1],
        "goal": goal,
        "times": times or {},
        "copy_gb_s": 10.0,
        "ms": {"lunette": ours, **others},
        "beside": beside or {},
        "of_copy": {"lunette": 0.5, **dict.fromkeys(others, 0.1)},
    }


RESULTS = {
    "machine": {
        "date": "2026-01-01",
        "processor": "a processor",
        "cores": 2,
        "memory_gib": 8,
        "system": "Linux",
        "python": "3.11",
        "versions": {"numpy": "2"},
    },
    "rows": [
        row(
            "a",
            2.0,
            0.6,
            {"best": 2, "torch eager": 4, "b": 0.5},
            {"b": 1.0},
            JAX=5.0,
            **{"torch eager": 9.0},
        ),
        row("b", 1.0),
    ],
}


def test_verdicts_by_hand():
    found = report.verdicts(RESULTS["rows"][0])
    assert found == [
        ("of copy", 0.5, 0.6),
        ("× best", 2.5, 2),
        ("× torch eager", 4.5, 4),
        ("× b", 0.5, 0.5),
    ]


def test_a_goal_without_its_peer_is_not_judged():
    alone = row("a", 2.0, None, {"JAX": 3})
    assert report.verdicts(alone) == []


def test_the_section_is_replaced_and_others_stay(tmp_path):
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n\nIntroduction.\n\n## Another\n\nKept.\n")
    for _ in range(2):
        report.write_section(page, report.HEADING, report.markdown(RESULTS, "chart.svg"))
    text = page.read_text()
    assert text.count(report.HEADING) == 1 and "Kept." in text and "Introduction." in text
    assert "| a | 1 | 2.00 | 0.50 |" in text
    report.write_section(page, "## Another", "Changed.\n")
    assert "Kept." not in page.read_text() and report.HEADING in page.read_text()


def test_results_are_saved_and_read_back(tmp_path):
    path = tmp_path / "deep" / "results.json"
    report.save(RESULTS, path)
    assert report.load(path) == json.loads(json.dumps(RESULTS))


def test_the_chart_is_the_same_file_for_the_same_figures(tmp_path):
    report.draw(RESULTS, tmp_path / "one.svg")
    report.draw(RESULTS, tmp_path / "two.svg")
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    assert "best peer" in drawn


def test_interleaved_calls_everyone_in_turns():
    called = []
    functions = {name: lambda name=name: called.append(name) for name in "ab"}
    timings = interleaved(functions, seconds=0, rounds=3, least=2, warm=0)
    assert called == ["a", "b", *(["a", "a", "b", "b"] * 3)]
    assert timings["a"].calls == 6 and timings["a"].fastest <= timings["a"].seconds


def test_a_row_has_a_fraction_of_the_copy_for_everyone():
    copy = Copy(1 << 16)
    workload = by_name("mean k2s2").twin
    found = pooling.measure(workload, copy, ["torch eager"], seconds=0.001)
    assert set(found["ms"]) == set(found["of_copy"]) == {"lunette", "torch eager"}
    seconds = found["ms"]["lunette"] / 1e3
    expected = workload.bytes_moved / seconds / (found["copy_gb_s"] * 1e9)
    assert found["of_copy"]["lunette"] == pytest.approx(expected)


OFFERED = [w for w in WORKLOADS if w.op.rank < 4 and w.verb != "jvp" and w.dtype != "uint8"]


@pytest.mark.parametrize("workload", OFFERED, ids=lambda w: w.name)
def test_torch_does_the_same_work(workload):
    """Its answer on the small twin is ours, so its time on the large one may be compared."""
    twin = workload.twin
    x, grad = twin.array(), twin.result_like()
    verb = getattr(dispatch, twin.verb)
    ours = verb(twin.op, x, grad) if twin.verb == "vjp" else verb(twin.op, x)
    assert peers.prepare("torch eager", twin, x, grad, ours) is not None


def test_a_peer_that_computes_something_else_is_left_out(capsys):
    twin = by_name("max k2s2").twin
    x, grad = twin.array(), twin.result_like()
    wrong = dispatch.forward(twin.op, x) + 1
    assert peers.prepare("torch eager", twin, x, grad, wrong) is None
    assert "something else" in capsys.readouterr().out


def test_a_model_without_pooling_has_the_same_shapes():
    torch = pytest.importorskip("torch")
    from benchmarks import torch_models

    layers = [
        torch.nn.MaxPool2d(3, 2, 1),
        torch.nn.AvgPool2d(3, 1, 1),
        torch.nn.AdaptiveAvgPool2d(2),
    ]
    model, x = torch.nn.Sequential(*layers), torch.randn(2, 3, 17, 12)
    expected = [layer(x).shape for layer in layers]
    least = torch_models.without_pooling(model)
    assert [type(layer) for layer in least] == [torch_models.Strided] * 3
    assert [layer(x).shape for layer in least] == expected
    assert torch.equal(least[0](x), x[:, :, ::2, ::2][..., :9, :6])


def test_drawn_rows_are_summed_up_by_hand():
    from benchmarks import draw

    times = [{"ours": 1.0, "eager": 4.0, "compile": 2.0}, {"ours": 2.0, "eager": 1.0}]
    rows = [{"forward": t, "both": t} for t in times]
    assert "| cuda, 2 layers | 1.00, 0.50, 1 of 2 | 1.00, 0.50, 1 of 2 |" in draw._summary(
        rows, "cuda"
    )
    assert draw._summary([], "cuda") == "no layer was measured"


def test_versions_are_compared_by_the_median_of_pairs():
    """A slow moment hits all three versions of a round, so it changes no ratio."""
    times = {"before": [1.0, 10.0, 1.0], "after": [1.5, 15.0, 1.5], "again": [1.0, 10.0, 1.1]}
    assert versions.ratios(times) == (1.5, 1.0)


@pytest.mark.full
def test_a_version_against_itself():
    source = Path(lunette.__file__).parents[1]
    found = versions.compare(source, source, ["max k2s2"], rounds=1)
    assert all(ratio > 0 for ratio in found["max k2s2"])
