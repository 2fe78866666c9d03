"""Frames resized to what a model looks at."""

import numpy as np
import pytest

from harness.data.images import resize


def test_resize_is_the_mean_of_the_area():
    frames = np.random.default_rng(0).integers(0, 256, (2, 24, 24, 3), dtype=np.uint8)
    expected = frames.reshape(2, 8, 3, 8, 3, 3).mean((2, 4))
    assert np.abs(resize(frames, 8) - expected).max() <= 0.5
    np.testing.assert_array_equal(resize(frames, 24), frames)


@pytest.mark.parametrize("size", [5, 16, 64])
def test_resize_keeps_flat_colour_and_does_not_depend_on_company(size):
    flat = np.full((1, 24, 24, 3), 77, np.uint8)
    assert (resize(flat, size) == 77).all()
    frames = np.random.default_rng(0).integers(0, 256, (3, 24, 36, 3), dtype=np.uint8)
    np.testing.assert_array_equal(resize(frames, size)[1:2], resize(frames[1:2], size))


def test_resize_weighs_partly_covered_pixels():
    frame = np.array([0, 90, 240], np.uint8)[None, None, :, None].repeat(3, 1).repeat(3, 3)
    # Two output pixels over three: each takes one whole pixel and half of the middle one.
    assert resize(frame, 2)[0, 0, :, 0].tolist() == [30, 190]


@pytest.mark.parametrize(("height", "width"), [(12, 24), (24, 12), (10, 24)])
def test_what_is_not_square_gets_black_bars(height, width):
    flat = np.full((2, height, width, 3), 200, np.uint8)
    small = resize(flat, 8)
    assert small.shape == (2, 8, 8, 3)
    filled = small[0, :, :, 0] == 200
    rows, columns = filled.any(1), filled.any(0)
    assert (filled == rows[:, None] & columns).all() and (small[:, ~filled] == 0).all()
    short, long = sorted((rows.sum(), columns.sum()))
    assert long == 8 and short == round(8 * min(height, width) / 24)
    narrow = rows if rows.sum() < 8 else columns
    before, after = narrow.argmax(), narrow[::-1].argmax()
    assert after - before in (0, 1)
