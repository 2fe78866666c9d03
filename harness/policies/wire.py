"""Arrays in msgpack, as openpi and vla-eval write them. Nothing that is read can run code: no pickles, no objects.

The two differ in the keys of an array's map: bytes in openpi (`packages/openpi-client/.../msgpack_numpy.py`), text in
vla-eval (`src/vla_eval/protocol/numpy_codec.py`), which knows compressed images besides.
"""

from __future__ import annotations

import io
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from harness.policies.base import PolicyFault

_PLAIN_KINDS = "biuf"
"""Dtype kinds that may travel: booleans, integers, floating point."""


def pack_openpi(message: dict[str, Any]) -> bytes:
    """A map with NumPy arrays and scalars in it, for openpi."""
    return bytes(msgpack.packb(message, default=_openpi_map))


def unpack_openpi(data: bytes) -> dict[str, Any]:
    """Raises PolicyFault when it is not a map in openpi's format."""
    return _unpack(data, _from_openpi)


def pack_vla_eval(message: dict[str, Any]) -> bytes:
    """A map with NumPy arrays in it, for vla-eval. Images travel uncompressed, as any array may."""
    return bytes(msgpack.packb(message, default=_vla_eval_map))


def unpack_vla_eval(data: bytes) -> dict[str, Any]:
    """Raises PolicyFault when it is not a map in vla-eval's format."""
    return _unpack(data, _from_vla_eval)


def png(image: NDArray[np.uint8]) -> bytes:
    """uint8 (H, W, 3) as a PNG file: lossless."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


def _unpack(data: bytes, hook: Any) -> dict[str, Any]:
    try:
        message = msgpack.unpackb(data, object_hook=hook, strict_map_key=False)
    except Exception as error:  # msgpack has no common base class for what malformed input raises
        raise PolicyFault(f"not a readable msgpack message ({type(error).__name__}: {error})") from None
    if not isinstance(message, dict):
        raise PolicyFault(f"a message must be a map, found {type(message).__name__}")
    return message


def _openpi_map(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        _check_kind(value.dtype)
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic):
        _check_kind(value.dtype)
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"{type(value).__name__} does not travel")


def _from_openpi(found: dict[Any, Any]) -> Any:
    if b"__ndarray__" in found:
        return _array(found[b"data"], found[b"dtype"], found[b"shape"])
    if b"__npgeneric__" in found:
        return _dtype(found[b"dtype"]).type(found[b"data"])
    return found


def _vla_eval_map(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        _check_kind(value.dtype)
        return {"__ndarray__": True, "data": value.tobytes(), "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} does not travel")


def _from_vla_eval(found: dict[Any, Any]) -> Any:
    if "__image__" in found:
        if found["format"] == "raw":
            return _array(found["data"], found["dtype"], found["shape"])
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(found["data"]), formats=("PNG", "JPEG")))
    if "__ndarray__" in found:
        return _array(found["data"], found["dtype"], found["shape"])
    return found


def _array(data: bytes, dtype: str, shape: list[int]) -> NDArray[Any]:
    return np.frombuffer(data, dtype=_dtype(dtype)).reshape(shape).copy()


def _dtype(text: str) -> np.dtype[Any]:
    found = np.dtype(text)
    _check_kind(found)
    return found


def _check_kind(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in _PLAIN_KINDS:
        raise ValueError(f"arrays of {dtype} do not travel")
