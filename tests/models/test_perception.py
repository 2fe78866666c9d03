"""The Perception Encoder: its rotation by complex numbers, its shapes by hand."""

import torch

from harness.models.perception import PerceptionConfig, PerceptionEncoder, grid_rotation, rotate_pairs


def test_rotation_is_by_column_and_row_with_the_class_token_at_rest():
    """Pairs of channels as complex numbers, turned by angle = place · 10000^(−2k/d), d the channels of an axis."""
    grid, head_dim = 3, 8
    x = torch.randn(1, 2, 1 + grid**2, head_dim)
    turned = rotate_pairs(x, grid_rotation(grid, head_dim, x))
    before, after = (torch.view_as_complex(t.unflatten(-1, (-1, 2)).contiguous()) for t in (x, turned))
    assert torch.equal(turned[:, :, 0], x[:, :, 0])
    for row in range(grid):
        for column in range(grid):
            token = 1 + row * grid + column
            angle = torch.tensor([column + 1, (column + 1) / 100, row + 1, (row + 1) / 100])
            torch.testing.assert_close(after[:, :, token], before[:, :, token] * torch.exp(1j * angle))


def test_attention_depends_on_where_tokens_stand_to_each_other():
    """The product of a rotated query and key is the same for all pairs with the same offset in row and column."""
    query, key = torch.randn(2, 16)
    rotation = grid_rotation(4, 16, query)
    queries, keys = (rotate_pairs(x.expand(17, -1), rotation)[1:].unflatten(0, (4, 4)) for x in (query, key))
    products = (queries[1:, :-1] * keys[:-1, 1:]).sum(-1)
    torch.testing.assert_close(products, products[0, 0].expand(3, 3))


def test_tokens_are_a_sixteenth_of_the_patches():
    encoder = PerceptionEncoder(PerceptionConfig(width=16, layers=1, heads=2, patch=4), image_size=32)
    assert encoder(torch.randn(3, 3, 32, 32)).shape == (3, encoder.tokens, 64) == (3, 4, 64)
    published = PerceptionConfig(width=1024, layers=23, heads=16, patch=14)
    with torch.device("meta"):
        assert PerceptionEncoder(published, image_size=728).tokens == 169


def test_tokens_stand_where_their_pixels_do():
    """With its layers' outputs scaled to nothing the encoder is local: a token changes with its own pixels only."""
    encoder = PerceptionEncoder(PerceptionConfig(width=8, layers=1, heads=1, patch=4), image_size=64)
    for scale in (encoder.blocks[0].ls_1, encoder.blocks[0].ls_2):
        scale.data.zero_()
    image = torch.randn(1, 3, 64, 64)
    other = image.clone()
    other[..., 24:28, 52:56] += 1  # patch in row 6, column 13; the convolutions see 7 patches around 4 · (row, column)
    changed = (encoder(image) - encoder(other)).abs().sum(-1)[0].unflatten(0, (4, 4)) > 0
    assert changed.nonzero().tolist() == [[1, 3], [2, 3]]


def test_the_class_token_is_read_by_attention_and_then_left_out():
    encoder = PerceptionEncoder(PerceptionConfig(width=16, layers=1, heads=2, patch=4), image_size=16)
    image = torch.randn(1, 3, 16, 16)
    before = encoder(image)
    encoder.class_embedding.data.neg_()
    assert before.shape[1] == 1
    assert not torch.allclose(before, encoder(image))
