"""Frames out of and into video files, through PyAV (FFmpeg's own libraries, no external program)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from harness.data.source import Place

if TYPE_CHECKING:
    from av.video.stream import VideoStream

CODEC, PIXEL_FORMAT = "libx264", "yuv420p"
_OPTIONS = {"crf": "18", "g": "2", "bf": "0", "preset": "veryfast"}
"""Two frames between key frames, as LeRobot writes its own videos, so that any frame is near one; no frame refers to
a later one. H.264 decodes everywhere; a constant rate factor of 18 is commonly taken as visually lossless."""


def read_clip(place: Place, start_seconds: float, count: int, fps: float) -> NDArray[np.uint8]:
    """The `count` frames that follow one another from `start_seconds` on: uint8 (count, H, W, 3).

    Raises:
        DamagedEpisode: the video is cut off, or a frame is missing; counted from `start_seconds`.
    """
    frames: list[NDArray[np.uint8]] = []
    try:
        for seconds, frame in _decoded(place.file, start_seconds):
            number = round((seconds - start_seconds) * fps)
            if number < len(frames):
                continue  # between the key frame and the start
            if number > len(frames):
                break
            frames.append(frame)
            if len(frames) == count:
                return place.stack(frames)
    except _BrokenVideo as fault:
        raise place.damage(len(frames), str(fault)) from None
    raise place.damage(len(frames), f"the video has {len(frames)} of {count} frames")


def read_frames(place: Place, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The frames of these numbers, counted from 0 in the order of display: uint8 (len(numbers), H, W, 3).

    Raises:
        DamagedEpisode: the video is cut off.
    """
    wanted = set(numbers.tolist())
    kept: dict[int, NDArray[np.uint8]] = {}
    reason = "the video ends before it"
    try:
        for number, (_, frame) in enumerate(_decoded(place.file)):
            if number in wanted:
                kept[number] = frame
            if len(kept) == len(wanted):
                return place.stack([kept[number] for number in numbers.tolist()])
    except _BrokenVideo as fault:
        reason = str(fault)
    raise place.damage(min(wanted - kept.keys()), reason)


class _BrokenVideo(Exception):
    pass


def _decoded(file: Path, start_seconds: float = 0.0) -> Iterator[tuple[float, NDArray[np.uint8]]]:
    """Frames from the key frame before `start_seconds` on, in the order of display: (seconds, uint8 (H, W, 3))."""
    import av

    try:
        with av.open(str(file)) as container:
            if not container.streams.video:
                raise _BrokenVideo("the file holds no video")
            stream = container.streams.video[0]
            if start_seconds > 0 and stream.time_base:
                container.seek(int(start_seconds / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                yield float(frame.time or 0.0), np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    except (av.FFmpegError, OSError) as error:
        raise _BrokenVideo(f"not a whole video ({error.strerror})") from None


class VideoWriter:
    """Frames into one MP4 file, as H.264. Height and width must be even, and the same for all frames.

    Args:
        path: the file; whole only after `close`.
    """

    def __init__(self, path: Path, fps: int) -> None:
        import av

        self.path, self.frames, self._fps = path, 0, fps
        self._container = av.open(str(path), "w", format="mp4")
        self._stream = cast("VideoStream", self._container.add_stream(CODEC, rate=fps, options=dict(_OPTIONS)))
        self._stream.pix_fmt = PIXEL_FORMAT
        self._stream.time_base = Fraction(1, fps)

    @property
    def seconds(self) -> float:
        """When the next frame will be shown."""
        return self.frames / self._fps

    def add(self, frames: NDArray[np.uint8]) -> None:
        """uint8 (n, H, W, 3)."""
        import av

        if self.frames == 0:
            self._stream.height, self._stream.width = frames.shape[1:3]
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            frame.pts, frame.time_base = self.frames, Fraction(1, self._fps)
            self._container.mux(self._stream.encode(frame))
            self.frames += 1

    def close(self) -> None:
        self._container.mux(self._stream.encode())
        self._container.close()
