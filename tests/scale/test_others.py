"""Images that ome-zarr-py 0.18 and ngff-zarr 0.50 wrote, kept in Zip files: all that is in them is understood.

They hold numbers drawn by `default_rng(0).integers(0, 200, (2, 12, 20, 24))`, the first channel alone
where ngff-zarr wrote them.
"""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr

from lunette.scale.opening import open_source
from tests.scale.commands import halved, lunette

FIXTURES = Path(__file__).parent / "fixtures"
CELLS = np.random.default_rng(0).integers(0, 200, (2, 12, 20, 24)).astype("u2")


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("writer", ["ome-zarr", "ngff-zarr"])
@pytest.mark.parametrize("packed", [True, False])
def test_an_image_of_another_writer(tmp_path, writer, version, packed):
    source = FIXTURES / f"{writer}-{version}.zip"
    if not packed:
        zipfile.ZipFile(source).extractall(tmp_path / "in.zarr")
        source = tmp_path / "in.zarr"
    out = tmp_path / "out.zarr"
    lunette("pyramid", source, out, "--levels", 1, "--op", "mean")
    group = zarr.open_group(str(out), mode="r")
    x = CELLS if writer == "ome-zarr" else CELLS[0]
    np.testing.assert_array_equal(group["0"][...], x)
    # ngff-zarr's cells are four times as long along z, which is therefore kept.
    np.testing.assert_array_equal(
        group["1"][...], halved(x, (1, 2, 3) if writer == "ome-zarr" else (1, 2))
    )
    assert group.metadata.zarr_format == (2 if version == "0.4" else 3)
    found = open_source(out)
    if writer == "ngff-zarr":
        assert (found.axes, found.scale) == ("zyx", (2, 0.5, 0.5))
        assert found.units == ("micrometer",) * 3
        return
    assert found.axes == "czyx"
    if not packed:
        np.testing.assert_array_equal(group["labels/cells/s0"][...], CELLS[0] > 100)
