"""The window explorer in a real browser: its values, winners' gradients and lines are the library's."""

import itertools
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import lunette as ln
from tests.test_front import ROOT

PAGE = (ROOT / "docs" / "explorer.html").read_text(encoding="utf-8")
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
X = np.array([[(i * 5 + j * 7 + i * j) % 10 for j in range(7)] for i in range(7)], float)

browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no chromium on this machine: apt-get install chromium, and the explorer is tested in it",
)


def settings():
    """Every setting that the page offers."""
    sizes = itertools.product(range(1, 6), range(1, 5), (0, 1, 2, 3, "same"), (1, 2, 3))
    for (kernel, stride, padding, dilation), ceil in itertools.product(sizes, (False, True)):
        shared = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil}
        for op, ties in itertools.product(("MaxPool", "MinPool"), ("first", "all", "split")):
            yield op, kernel, {**shared, "ties": ties}
        for include in (True, False):
            yield "AvgPool", kernel, {**shared, "count_include_pad": include}
            for beta in (0.5, 4, -1):
                yield (
                    "SmoothMaxPool",
                    kernel,
                    {**shared, "count_include_pad": include, "beta": beta},
                )


def answers(chosen):
    """What the page is asked, and what the library says: values, the gradient and the op; None for an error."""
    found = []
    for op, kernel, options in chosen:
        asked = {"count_include_pad": True, "ties": "first", "beta": 1, **options}
        asked |= {"op": op, "kernel": kernel}
        try:
            made = getattr(ln, op)((kernel, kernel), **options)
            y = ln.spec.forward(made, X)
            gradient = ln.spec.vjp(made, X, np.ones_like(y))
            expected = {"y": y.tolist(), "g": gradient.tolist()}
        except ValueError:
            expected = None
        found.append((asked, expected))
    return found


SCRIPT = """<pre id=result></pre><script>
const near = (a, b) => a.length === b.length && a.every((r, i) => r.length === b[i].length && r.every((v, j) => Math.abs(v - b[i][j]) < 1e-9));
let agreed = 0; const lines = [], wrong = [];
for (const [asked, e] of CASES) {
  const z = run(X, asked);
  if (e === null ? z === null : z && near(z.y, e.y) && near(z.g, e.g)) agreed++; else wrong.push(asked);
  lines.push(line(asked));
}
document.getElementById("result").textContent = "RESULT" + JSON.stringify({agreed, lines, wrong: wrong.slice(0, 3)}) + "END";
</script>"""


def in_browser(folder, script, width=1200):
    page = folder / "page.html"
    page.write_text(PAGE + script, encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        f"--window-size={width},900", f"--user-data-dir={folder / 'user'}", "--dump-dom", f"file://{page}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    return json.loads(re.search(r"RESULT(.*?)END</pre>", done.stdout, re.S)[1].replace("&gt;", ">"))


def check(folder, chosen):
    cases = answers(chosen)
    script = SCRIPT.replace("CASES", json.dumps(cases)).replace("run(X,", f"run({X.tolist()},")
    found = in_browser(folder, script)
    assert not found["wrong"] and found["agreed"] == len(cases)
    for (op, kernel, options), line in zip(chosen, found["lines"], strict=True):
        made = eval(line, {"ln": ln})
        assert made == getattr(ln, op)((kernel, kernel), **options), line
    return len(cases)


@browser
def test_some_settings(tmp_path):
    assert check(tmp_path, list(settings())[::41]) > 200


@browser
@pytest.mark.full
def test_every_setting(tmp_path):
    assert check(tmp_path, list(settings())) > 8000


@browser
def test_keys_and_taps_do_what_they_say(tmp_path):
    script = """<pre id=result></pre><script>
const key = (id, k) => $(id).dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true, cancelable: true}));
key("b", "ArrowUp"); const moved = String(hot);
key("a", "ArrowRight"); key("a", "9"); const typed = x[0][1];
document.querySelector("#a rect[data-i='2'][data-j='3']").dispatchEvent(new MouseEvent("click", {bubbles: true}));
$("op").value = 2; $("op").onchange();
const hidden = document.querySelector("label[data-name=ties]").hidden;
$("kernel").value = 4; $("padding").value = 0; $("dilation").value = 2;
for (const id of ["kernel", "padding", "dilation"]) $(id).onchange();
$("result").textContent = "RESULT" + JSON.stringify({moved, typed, tapped: x[2][3], hidden,
  error: $("said").textContent, wide: document.documentElement.scrollWidth <= innerWidth}) + "END";
</script>"""
    found = in_browser(tmp_path, script, 400)
    before = int(X[2, 3])
    assert found == {
        "moved": "0,1", "typed": 9, "tapped": (before + 1) % 10, "hidden": True, "wide": True,
        "error": "ValueError: the window is longer than the padded input",
    }  # fmt: skip


def test_the_page_needs_nothing_else():
    assert not re.search(r"(src|href)\s*=|@import|fetch\(|https?://", PAGE)
