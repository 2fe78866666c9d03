"""What a protocol makes of a scene's observation before the policy sees it: image size, state layout, hashes."""

from __future__ import annotations

import hashlib
import io
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.libero.records import Resizing, StateLayout

STATE_SIZES: dict[StateLayout, int] = {"eef_pos+axis_angle+gripper": 8, "joints+gripper": 9}
_JPEG_QUALITY = 95
"""TensorFlow's default in `tf.image.encode_jpeg`, which openvla-oft calls."""


class Percept(Protocol):
    """The part of a scene's observation that reaches a policy."""

    @property
    def images(self) -> dict[str, NDArray[np.uint8]]: ...

    @property
    def state(self) -> NDArray[np.float64]: ...

    @property
    def joints(self) -> NDArray[np.float64]: ...

    @property
    def gripper(self) -> NDArray[np.float64]: ...


def state_of(percept: Percept, layout: StateLayout) -> NDArray[np.float64]:
    """float64 (STATE_SIZES[layout],)."""
    if layout == "joints+gripper":
        return np.concatenate([percept.joints, percept.gripper])
    return percept.state


def resized(image: NDArray[np.uint8], resizing: Resizing) -> NDArray[np.uint8]:
    """uint8 (size, size, 3) of a square image (H, H, 3), by Pillow.

    openpi pads an image to a square first (`openpi_client/image_tools.py`); LIBERO's are square.
    """
    from PIL import Image

    picture = Image.fromarray(image)
    if resizing.jpeg_first:
        buffer = io.BytesIO()
        picture.save(buffer, format="JPEG", quality=_JPEG_QUALITY)
        picture = Image.open(buffer)
    kernel = {"bilinear": Image.Resampling.BILINEAR, "lanczos": Image.Resampling.LANCZOS}[resizing.kernel]
    return np.asarray(picture.resize((resizing.size, resizing.size), resample=kernel))


def images_sha256(images: dict[str, NDArray[np.uint8]]) -> str | None:
    """Hash of all pixels, cameras by name; None where nothing was rendered."""
    if not images:
        return None
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(images[camera]).tobytes() for camera in sorted(images))
    ).hexdigest()
