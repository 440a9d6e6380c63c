"""A Zarr array read within bounds: chunk files of a known largest size, streams of a known content.

The Zarr library reads a chunk that is a folder, or a shard that is cut short, as if it were not
there, and decodes whatever a stream gives. So files are read here, and codecs that can grow are put
behind `bounded.expand`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import zarr
from numcodecs.abc import Codec as Numcodec
from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.codecs import ShardingCodec
from zarr.codecs._v2 import V2Codec
from zarr.core.buffer import default_buffer_prototype
from zarr.registry import get_pipeline_class

from lunette.scale import zarr_metadata
from lunette.scale.bounded import EXPANDING, expand
from lunette.scale.containers import Container

__all__ = ["open_bounded"]


def open_bounded(
    container: Container, inner: str, version: int, found: dict[str, Any], largest: int
) -> Any:
    """The array whose checked metadata this is; `largest` is what one of its files may have."""
    store = BoundedStore(container, largest)
    array = zarr.open_array(store, path=inner or None, mode="r", zarr_format=version)
    metadata: Any = array.metadata
    codecs: Any
    if version == 3:
        codecs = _guarded(metadata.codecs)
    else:
        size = int(np.prod(metadata.chunks, dtype=object)) * array.dtype.itemsize
        cells = size // array.dtype.itemsize
        filters = tuple(_guarded_2(f, 16 * cells, False) for f in metadata.filters or ())
        last = _guarded_2(metadata.compressor, 16 * cells if filters else size, not filters)
        codecs = [V2Codec(filters=filters or None, compressor=last)]
    pipeline = get_pipeline_class().from_codecs(codecs)
    object.__setattr__(array._async_array, "codec_pipeline", pipeline)
    return array


class BoundedStore(Store):  # type: ignore[misc]
    """The files of a container, none larger than it has reason to be; to be read."""

    supports_writes = supports_deletes = supports_listing = supports_partial_writes = False

    def __init__(self, container: Container, largest: int = 0) -> None:
        super().__init__(read_only=True)
        self.container, self.largest = container, largest

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """The bytes of a file; None only where there is no such name."""
        data = await asyncio.to_thread(self._bytes, key, byte_range)
        prototype = prototype or default_buffer_prototype()
        return None if data is None else prototype.buffer.from_bytes(data)

    def _bytes(self, key: str, request: Any) -> bytes | None:
        span: Any = None
        if isinstance(request, RangeByteRequest):
            span = (request.start, request.end)
        elif isinstance(request, OffsetByteRequest):
            span = (request.offset, None)
        elif isinstance(request, SuffixByteRequest):
            span = request.suffix
        name = key.rpartition("/")[2]
        metadata = name in (*zarr_metadata.NAMES, ".zattrs", ".zmetadata")
        return self.container.read(key, span, zarr_metadata.LARGEST if metadata else self.largest)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> list[Any]:
        """Several of them."""
        return [await self.get(key, prototype, span) for key, span in key_ranges]

    async def exists(self, key: str) -> bool:
        """Whether there is such a name."""
        return await self.get(key) is not None

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = Store.__hash__

    async def set(self, key: str, value: Any) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError

    def list(self) -> Any:
        raise NotImplementedError

    def list_prefix(self, prefix: str) -> Any:
        raise NotImplementedError

    def list_dir(self, prefix: str) -> Any:
        raise NotImplementedError


# -- codecs --


def _guarded(codecs: Any) -> list[Any]:
    """The same codecs, with those that can grow put behind a bound."""
    found: list[Any] = []
    exact = False  # whether the next codec gives just the bytes of the chunk
    for one in codecs:
        codec = one
        if isinstance(codec, ShardingCodec):
            codec = ShardingCodec(
                chunk_shape=codec.chunk_shape,
                codecs=_guarded(codec.codecs),
                index_codecs=codec.index_codecs,
                index_location=codec.index_location,
            )
        elif isinstance(codec, BytesBytesCodec):
            name = str(codec.to_dict()["name"]).removeprefix("numcodecs.")
            if name in EXPANDING:
                codec = _Bounded(codec, name, exact)
            exact = False
        if isinstance(codec, ArrayBytesCodec):
            exact = not isinstance(codec, ShardingCodec)
        found.append(codec)
    return found


class _Bounded(BytesBytesCodec):  # type: ignore[misc]
    """A codec whose decoder has room for the chunk and no more."""

    is_fixed_size = False

    def __init__(self, codec: Any, name: str, exact: bool) -> None:
        self.codec, self.name, self.exact = codec, name, exact

    def to_dict(self) -> Any:
        return self.codec.to_dict()

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        raise NotImplementedError

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        cells = int(np.prod(chunk_spec.shape, dtype=object))
        size = cells * chunk_spec.dtype.to_native_dtype().itemsize
        limit = size if self.exact else 2 * size + (64 << 10)
        data = chunk_bytes.as_numpy_array()
        found = await asyncio.to_thread(expand, self.name, data, limit, self.exact)
        return chunk_spec.prototype.buffer.from_bytes(memoryview(found))

    async def _encode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        raise NotImplementedError


def _guarded_2(codec: Any, limit: int, exact: bool) -> Any:
    """The same for Zarr 2; a codec that gives as much as it takes is left as it is."""
    if codec is None or codec.codec_id not in EXPANDING:
        return codec
    return _Bounded2(codec.codec_id, limit, exact)


class _Bounded2(Numcodec):  # type: ignore[misc]
    codec_id = "lunette-bounded"

    def __init__(self, name: str, limit: int, exact: bool) -> None:
        self.name, self.limit, self.exact = name, limit, exact

    def decode(self, buf: Any, out: Any = None) -> Any:
        """What the stream holds, within the bound."""
        return expand(self.name, np.asarray(buf).view(np.uint8), self.limit, self.exact)

    def encode(self, buf: Any) -> Any:
        raise NotImplementedError
