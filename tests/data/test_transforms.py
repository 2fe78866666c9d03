"""Frames as a model is fed them."""

import torch

from harness.data.transforms import augment, pixels


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
