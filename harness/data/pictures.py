"""Still images as pixels."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from harness.data.source import Place


def picture(place: Place, frame: int, source: Path | BinaryIO) -> NDArray[np.uint8]:
    """An image file (PNG, JPEG, …) as uint8 (H, W, 3). Raises DamagedEpisode for `frame`."""
    from PIL import Image

    try:
        with Image.open(source) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # SyntaxError is Pillow's word for a broken PNG
        raise place.damage(frame, f"not a readable image ({error})") from None
