"""Frames and states, the same in training and in evaluation."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from harness.data.transforms import augment, pixels, resize, tool_frame


def test_resize_is_the_mean_of_the_area():
    frames = np.random.default_rng(0).integers(0, 256, (2, 24, 24, 3), dtype=np.uint8)
    expected = frames.reshape(2, 8, 3, 8, 3, 3).mean((2, 4))
    assert np.abs(resize(frames, 8) - expected).max() <= 0.5
    np.testing.assert_array_equal(resize(frames, 24), frames)


@pytest.mark.parametrize("size", [5, 16, 64])
def test_resize_keeps_flat_colour_and_does_not_depend_on_company(size):
    flat = np.full((1, 24, 36, 3), 77, np.uint8)
    assert (resize(flat, size) == 77).all()
    frames = np.random.default_rng(0).integers(0, 256, (3, 24, 36, 3), dtype=np.uint8)
    np.testing.assert_array_equal(resize(frames, size)[1:2], resize(frames[1:2], size))


def test_resize_weighs_partly_covered_pixels():
    frame = np.array([0, 90, 240], np.uint8)[None, None, :, None].repeat(3, 1).repeat(3, 3)
    # Two output pixels over three: each takes one whole pixel and half of the middle one.
    assert resize(frame, 2)[0, 0, :, 0].tolist() == [30, 190]


def test_pixels_span_minus_one_to_one():
    assert pixels(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1.0, 1.0]


def test_augment_shifts_by_at_most_one_pixel_and_ten_percent():
    column = torch.arange(20, 220, 20, dtype=torch.uint8)
    frames = column.expand(40, 2, 3, 10, 10).contiguous()
    seen = (augment(frames, torch.Generator().manual_seed(0)) + 1) * 127.5
    inner = seen[..., 2:-2]
    shifts = set()
    for image in inner.flatten(0, 1):
        row = image[0, 0]
        step = (row[1] - row[0]).item()  # 20 times the gain
        assert 18 <= step <= 22.001
        shifts.add(round((row[0].item() / (step / 20) - 60) / 20))
        assert torch.allclose(image, row.expand_as(image), atol=1e-3)  # all rows and colours moved together
    assert shifts == {-1, 0, 1}
    again = augment(frames, torch.Generator().manual_seed(0))
    assert torch.equal(again, augment(frames, torch.Generator().manual_seed(0)))
    assert not torch.equal(again, augment(frames, torch.Generator().manual_seed(1)))


def states_of(rotations: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((len(rotations), 3)), rotations, np.zeros((len(rotations), 2))], 1)


def test_tool_frame_is_the_rotation_from_pointing_down():
    rotations = np.random.default_rng(0).normal(size=(200, 3)) * 1.5
    expected = (Rotation.from_rotvec([np.pi, 0, 0]).inv() * Rotation.from_rotvec(rotations)).as_rotvec()
    np.testing.assert_allclose(tool_frame(states_of(rotations))[:, 3:6], expected, atol=1e-9)


def test_tool_frame_does_not_jump_where_the_axis_angle_flips():
    near, far = tool_frame(states_of(np.array([[3.14, 0.01, 0.02], [-3.14, 0.01, 0.02]])))
    assert np.abs(near).max() < 0.03 and np.abs(near - far).max() < 0.06
    state = np.array([1.0, 2, 3, np.pi, 0, 0, 7, 8])
    np.testing.assert_allclose(tool_frame(state), [1, 2, 3, 0, 0, 0, 7, 8], atol=1e-12)
