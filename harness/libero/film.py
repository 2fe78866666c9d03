"""Frames as a video, and episodes as a contact sheet."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadInput

CONTROL_HZ = 20
"""LIBERO's control frequency: a video at this rate runs in the simulation's own time."""
_QUALITY = {"crf": "18", "preset": "veryfast"}
_LABEL_PIXELS = 16
_GAP_PIXELS = 4


def write_video(path: Path, frames: Iterable[NDArray[np.uint8]], frames_per_second: int = CONTROL_HZ) -> int:
    """Writes H.264 in whatever container the file's name asks for; returns how many frames there were.

    Args:
        frames: uint8 (H, W, 3), all alike; an odd row or column is left out, as the format wants.

    Raises:
        BadInput: no frames, or a name whose ending is no video format.
    """
    import av

    count = 0
    try:
        container = av.open(str(path), mode="w")
    except (av.FFmpegError, ValueError) as error:
        raise BadInput("--output", None, str(path), f"a video file such as x.mp4 ({error})") from None
    with container:
        stream = container.add_stream("libx264", rate=Fraction(frames_per_second), options=_QUALITY)
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            even = frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]
            if count == 0:
                stream.height, stream.width = even.shape[:2]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")))
            count += 1
        if count:
            container.mux(stream.encode())
    if count == 0:
        path.unlink(missing_ok=True)
        raise BadInput("EPISODE", None, None, "an episode with frames")
    return count


def contact_sheet(rows: list[tuple[str, list[NDArray[np.uint8]]]]) -> NDArray[np.uint8]:
    """One row of frames per episode, each below its label: uint8 (H, W, 3).

    Args:
        rows: label, and frames of one size; rows may differ in how many they have.
    """
    from PIL import Image, ImageDraw

    height, width = rows[0][1][0].shape[:2]
    columns = max(len(frames) for _, frames in rows)
    row_height, column_width = _LABEL_PIXELS + height + _GAP_PIXELS, width + _GAP_PIXELS
    sheet = Image.new("RGB", (columns * column_width, len(rows) * row_height), "white")
    pen = ImageDraw.Draw(sheet)
    for row, (label, frames) in enumerate(rows):
        pen.text((2, row * row_height + 2), label, fill="black")
        for column, frame in enumerate(frames):
            sheet.paste(Image.fromarray(frame), (column * column_width, row * row_height + _LABEL_PIXELS))
    return np.asarray(sheet)
