"""Levels added to an image that is there: nothing existing is touched, and the metadata comes last."""

import json
import shutil

import numpy as np
import pytest
import zarr

from tests.scale.commands import halved, lunette, volume
from tests.scale.kills import run
from tests.scale.test_kept import OMERO, image
from tests.scale.test_kills import contents, moments


def made(folder, version, data):
    image(folder, version, data, {"omero": OMERO})
    return folder


def changed(before, after):
    return {k for k in before | after if before.get(k) != after.get(k)}


@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_levels_are_added(tmp_path, version, consolidated):
    x = volume((20, 24), "u2")
    path = made(tmp_path / "in.zarr", version, x)
    if consolidated:
        zarr.consolidate_metadata(str(path))
    before = contents(tmp_path)
    lunette("pyramid", path, "--in-place", "--levels", 2, "--op", "mean")
    own = {".zattrs"} if version == "0.4" else {"zarr.json"}
    own |= {".zmetadata"} if version == "0.4" and consolidated else set()
    touched = {k for k in changed(before, contents(tmp_path)) if k in before}
    assert touched == {f"in.zarr/{name}" for name in own}
    group = zarr.open_group(str(path), mode="r", use_consolidated=consolidated)
    expected = x
    for level in "012":
        np.testing.assert_array_equal(group[level][...], expected)
        expected = halved(expected)
    found = group.attrs.asdict()
    ome = found if version == "0.4" else found["ome"]
    assert ome["omero"] == OMERO
    assert found["lab"] == {"room": 7}
    rows = ome["multiscales"][0]["datasets"]
    assert [d["path"] for d in rows] == ["0", "1", "2"]
    assert rows[2]["coordinateTransformations"][0]["scale"] == [2.0, 2.0]
    lunette("pyramid", path, "--in-place", "--levels", 1, "--op", "mean")  # from the last of them
    group = zarr.open_group(str(path), mode="r", use_consolidated=consolidated)
    np.testing.assert_array_equal(group["3"][...], expected)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.zarr"]


def test_transformations_of_the_whole_image_are_not_applied_twice(tmp_path):
    path = made(tmp_path / "in.zarr", "0.5", volume((8, 8)))
    metadata = json.loads((path / "zarr.json").read_text())
    whole = [{"type": "scale", "scale": [10.0, 10.0]}]
    metadata["attributes"]["ome"]["multiscales"][0]["coordinateTransformations"] = whole
    (path / "zarr.json").write_text(json.dumps(metadata))
    lunette("pyramid", path, "--in-place", "--levels", 1)
    rows = json.loads((path / "zarr.json").read_text())["attributes"]["ome"]["multiscales"][0]
    assert rows["datasets"][1]["coordinateTransformations"][0]["scale"] == [1.0, 1.0]
    assert rows["coordinateTransformations"] == whole


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_killed_at_any_step_and_resumed(tmp_path, version):
    place = tmp_path / "place"
    place.mkdir()
    path = made(place / "in.zarr", version, volume((20, 24)))
    begin = ["pyramid", path, "--in-place", "--levels", 2, "--threads", 1, "--quiet"]
    before = contents(place)
    shutil.copytree(path, tmp_path / "saved")
    code, output, steps = run(begin, place)
    assert code == 0, output
    after = contents(place)
    old = json.loads(before[f"in.zarr/{'.zattrs' if version == '0.4' else 'zarr.json'}"])
    for moment in moments(steps, 8):
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "saved", path)
        code, output, _ = run(begin, place, kill_at=moment)
        assert code == -9, output
        now = contents(place)
        assert all(now[k] in (before[k], after[k]) for k in before), moment
        key = f"in.zarr/{'.zattrs' if version == '0.4' else 'zarr.json'}"
        if json.loads(now[key]) != old:  # then every level stands under its name
            assert all(now.get(k) == v for k, v in after.items()), moment
        code, output, _ = run([*begin, "--resume"], place)
        if code:
            assert "there is no journal" in output, (moment, output)
            if now[key] == before[key]:
                code, output, _ = run(begin, place)
                assert code == 0, output
        now = contents(place)
        now.pop("in.zarr.lock", None)
        assert now == after, (moment, changed(now, after))


def test_what_is_refused(tmp_path):
    path = made(tmp_path / "in.zarr", "0.5", volume((8, 8)))
    np.save(tmp_path / "in.npy", volume((8, 8)))
    before = contents(tmp_path)
    for arguments, words in [
        ((path, tmp_path / "out.zarr", "--in-place"), "either OUT or --in-place"),
        ((path,), "either OUT or --in-place"),
        ((path, "--in-place", "--force"), "--force"),
        ((path, "--in-place", "--format", "0.4"), "--format 0.4"),
        ((path / "0", "--in-place"), "no group of one multiscale image"),
        ((tmp_path / "in.npy", "--in-place"), "no folder"),
        ((path, "--in-place", "--levels", 9), "would be empty"),
    ]:
        assert words in lunette("pyramid", *arguments, code=1)
        assert contents(tmp_path) == before
    (path / "1").mkdir()  # of somebody else
    assert "exists" in lunette("pyramid", path, "--in-place", "--levels", 1, code=1)
