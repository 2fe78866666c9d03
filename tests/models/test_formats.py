"""Checkpoints in other projects' names: there and back, and every fault in one message."""

import json
import pickle
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from published import CLASSES, SMALL, observed, small, transformers_pi0
from safetensors.torch import load_file, save_file
from torch import Tensor

from harness.errors import BadInput, DamagedRecord
from harness.models import build
from harness.models.base import VLA
from harness.models.formats.files import INDEX, WEIGHTS, Tensors, _split
from harness.models.formats.rules import FORMATS, HARNESS
from harness.models.formats.transfer import convert, load_checkpoint

THEIRS = [name for name in FORMATS if name != HARNESS.name]


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> dict[str, Path]:
    """Each small model's weights under our names, by class."""
    root = tmp_path_factory.mktemp("own")
    files = {}
    for kind in CLASSES:
        files[kind] = root / kind / WEIGHTS
        files[kind].parent.mkdir()
        save_file({name: tensor.contiguous() for name, tensor in small(kind, 0).state_dict().items()}, files[kind])
    return files


def sampled(model: VLA) -> Tensor:
    return model.eval().sample(observed(model.shape), torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", THEIRS)
def test_there_and_back_in_shards(own, name, tmp_path):
    kind = FORMATS[name].model
    files = convert(small(kind, 1), own[kind], FORMATS[name], tmp_path, shard_bytes=250_000)
    index = json.loads((tmp_path / INDEX).read_text())
    assert len(files) > 1 and {file.name for file in files} == set(index["weight_map"].values())
    assert index["metadata"]["total_size"] == sum(4 * p.numel() for p in small(kind, 1).parameters())
    assert all(file.stat().st_size < 260_000 for file in files if len(load_file(file)) > 1)

    model = small(kind, 1)
    assert load_checkpoint(model, tmp_path).name == name
    first = small(kind, 0)
    weights = first.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert torch.equal(sampled(model), sampled(first))
    assert not torch.allclose(sampled(model), sampled(small(kind, 1)))

    # And from there to our own names again, in one file.
    convert(model, tmp_path, HARNESS, tmp_path / "again")
    again = load_file(tmp_path / "again" / WEIGHTS)
    assert again.keys() == weights.keys()
    assert all(torch.equal(value, weights[key]) for key, value in again.items())


NAMES = {
    "transformers-pi0": {
        "model.vlm.language_model.embed_tokens.weight",
        "model.dit.layers.1.self_attn.q_proj.weight",
        "model.dit.norm.weight",
        "model.vlm.vision_tower.embeddings.patch_embedding.weight",
        "model.vlm.multi_modal_projector.linear.bias",
        "embed_action_time.action_time_mlp_in.weight",
        "action_out_proj.weight",
    },
    "openpi-pi0": {
        "paligemma_with_expert.paligemma.lm_head.weight",
        "paligemma_with_expert.paligemma.model.language_model.layers.0.mlp.up_proj.weight",
        "paligemma_with_expert.paligemma.model.vision_tower.vision_model.post_layernorm.weight",
        "paligemma_with_expert.paligemma.model.multi_modal_projector.linear.weight",
        "paligemma_with_expert.gemma_expert.model.norm.weight",
        "state_proj.weight",
        "action_time_mlp_out.bias",
    },
    "openpi-pi05": {
        "paligemma_with_expert.gemma_expert.model.layers.1.input_layernorm.dense.bias",
        "paligemma_with_expert.gemma_expert.model.norm.dense.weight",
        "time_mlp_in.weight",
    },
    "lerobot-pi0": {
        "model.paligemma_with_expert.paligemma.lm_head.weight",
        "model.paligemma_with_expert.gemma_expert.model.layers.0.self_attn.o_proj.weight",
        "model.action_in_proj.weight",
    },
    "lerobot-pi05": {
        "model.paligemma_with_expert.gemma_expert.model.layers.0.post_attention_layernorm.dense.weight",
        "model.time_mlp_out.bias",
    },
    "dexbotic-pi0": {
        "model.llm.layers.1.self_attn.k_proj.weight",
        "model.llm.embed_tokens.weight",
        "model.action_expert.layers.0.mlp.gate_proj.weight",
        "model.action_expert.norm.weight",
        "model.mm_vision_tower.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
        "model.mm_projector.weight",
        "model.state_proj.weight",
    },
    "dexbotic-pi05": {"model.action_expert.norm.dense.weight", "model.time_mlp_in.bias"},
    "dexbotic-dm0": {
        "model.llm.layers.0.self_attn.q_norm.weight",
        "model.action_expert.model.layers.1.self_attn.k_norm.weight",
        "model.action_expert.model.norm.weight",
        "model.mm_vision_tower.vision_tower.conv1.weight",
        "model.mm_vision_tower.vision_tower.class_embedding",
        "model.mm_vision_tower.vision_tower.transformer.resblocks.1.attn.in_proj_weight",
        "model.mm_vision_tower.vision_tower.transformer.resblocks.1.attn.in_proj_bias",
        "model.mm_vision_tower.vision_tower.transformer.resblocks.0.attn.out_proj.bias",
        "model.mm_vision_tower.vision_tower.transformer.resblocks.0.ls_1.gamma",
        "model.mm_vision_tower.vision_tower.transformer.resblocks.0.mlp.c_proj.weight",
        "model.mm_vision_tower.vision_tower.transformer.resblocks.0.ln_2.weight",
        "model.mm_vision_tower.vision_tower.vit_downsampler2.bias",
        "model.mm_projector.weight",
        "model.action_time_mlp_in.weight",
    },
    "dexbotic-cogact": {
        "model.llm.layers.0.self_attn.q_proj.bias",
        "model.llm.embed_tokens.weight",
        "model.llm.norm.weight",
        "model.mm_vision_tower.vision_tower.vision_model.pre_layrnorm.weight",
        "model.mm_vision_tower.vision_tower.vision_model.encoder.layers.1.self_attn.q_proj.weight",
        "model.mm_vision_tower.vision_tower.vision_model.encoder.layers.2.self_attn.q_proj.weight",
        "model.mm_projector.0.weight",
        "model.mm_projector.2.bias",
        "model.action_head.net.x_embedder.linear.weight",
        "model.action_head.net.t_embedder.mlp.2.weight",
        "model.action_head.net.z_embedder.uncondition",
        "model.action_head.net.positional_embedding",
        "model.action_head.net.blocks.1.attn.qkv.weight",
        "model.action_head.net.blocks.1.mlp.fc2.bias",
        "model.action_head.net.final_layer.linear.weight",
    },
}
"""Names read off each project's source."""


@pytest.mark.parametrize("name", THEIRS)
def test_names_are_those_of_the_project(name):
    model = small(FORMATS[name].model, 0)
    published = [FORMATS[name].published(key) for key in model.state_dict()]
    assert None not in published and len(set(published)) == len(published)
    assert NAMES[name] <= set(published)
    assert all(
        FORMATS[name].canonical(theirs) == theirs and not FORMATS[name].is_unread(theirs) for theirs in published
    )


@pytest.mark.parametrize(("whole", "name"), [(True, "openpi-pi0"), (False, "transformers-pi0")])
def test_transformers_own_checkpoint_comes_in_whole(whole, name, tmp_path):
    """`save_pretrained` writes its pi0 in the names openpi has, not in those of its modules."""
    theirs = transformers_pi0()
    weights = theirs.state_dict()
    if whole:
        theirs.save_pretrained(tmp_path, max_shard_size="250KB")
        assert (tmp_path / INDEX).is_file()
    else:
        save_file(weights, tmp_path / WEIGHTS)
    model = small("Pi0", 1)
    assert load_checkpoint(model, tmp_path).name == name
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[FORMATS["transformers-pi0"].published(key)])


@pytest.mark.parametrize("name", ["transformers-pi0", "lerobot-pi0"])
def test_transformers_reads_what_we_write(own, name, tmp_path):
    theirs = transformers_pi0()
    convert(small("Pi0", 1), own["Pi0"], FORMATS[name], tmp_path)
    theirs.config.save_pretrained(tmp_path)
    read = type(theirs).from_pretrained(tmp_path).state_dict()
    for key, tensor in small("Pi0", 0).state_dict().items():
        assert torch.equal(tensor, read[FORMATS["transformers-pi0"].published(key)])


def rewritten(source: Path, folder: Path, change) -> Path:
    """The checkpoint with its dict of tensors changed in place by `change`."""
    weights = load_file(source)
    change(weights)
    folder.mkdir(exist_ok=True)
    save_file(weights, folder / WEIGHTS)
    return folder


@pytest.mark.parametrize(
    ("name", "canonical", "alias"),
    [
        ("openpi-pi0", "paligemma.model.vision_tower.vision_model.", "paligemma.model.vision_tower."),
        ("lerobot-pi0", "paligemma.model.vision_tower.vision_model.", "paligemma.vision_tower.vision_model."),
        ("lerobot-pi0", "paligemma.lm_head.", "paligemma.model.language_model.embed_tokens."),
        ("lerobot-pi05", "paligemma.lm_head.", "paligemma.language_model.lm_head."),
        ("openpi-pi05", "paligemma.model.language_model.", "paligemma.language_model.model."),
        ("openpi-pi0", "paligemma.model.multi_modal_projector.", "paligemma.multi_modal_projector."),
        ("dexbotic-pi0", "model.mm_projector.", "model.mm_projector.0."),
        ("dexbotic-cogact", "vision_tower.vision_model.", "vision_tower."),
        ("transformers-pi0", "model.vlm.vision_tower.", "model.vlm.vision_tower.vision_model."),
    ],
)
def test_other_spellings_are_read(own, name, canonical, alias, tmp_path):
    kind = FORMATS[name].model
    convert(small(kind, 1), own[kind], FORMATS[name], tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    assert any(canonical in key for key in weights)
    save_file({key.replace(canonical, alias): value for key, value in weights.items()}, tmp_path / WEIGHTS)
    model, first = small(kind, 1), small(kind, 0).state_dict()
    load_checkpoint(model, tmp_path)
    assert all(torch.equal(value, first[key]) for key, value in model.state_dict().items())


def test_what_nobody_reads_may_be_there(own, tmp_path):
    convert(small("CogAct", 1), own["CogAct"], FORMATS["dexbotic-cogact"], tmp_path)
    extra = {
        "lm_head.weight": torch.zeros(3),
        "model.action_head.net.history_embedder.linear.weight": torch.zeros(3),
        "model.mm_vision_tower.vision_tower.vision_model.embeddings.position_ids": torch.zeros(3),
    }
    load_checkpoint(small("CogAct", 1), rewritten(tmp_path / WEIGHTS, tmp_path, lambda weights: weights.update(extra)))


def test_one_tensor_under_two_names_must_be_one(own, tmp_path):
    convert(small("Pi0", 1), own["Pi0"], FORMATS["lerobot-pi0"], tmp_path)
    paligemma = "model.paligemma_with_expert.paligemma."
    second = f"{paligemma}model.language_model.embed_tokens.weight"

    def add(weights: dict[str, Tensor], factor: float) -> None:
        weights[second] = weights[f"{paligemma}lm_head.weight"] * factor

    load_checkpoint(small("Pi0", 1), rewritten(tmp_path / WEIGHTS, tmp_path / "tied", lambda w: add(w, 1.0)))
    with pytest.raises(DamagedRecord, match="1 twice with different values"):
        load_checkpoint(small("Pi0", 1), rewritten(tmp_path / WEIGHTS, tmp_path / "untied", lambda w: add(w, 2.0)))


def test_every_fault_is_in_one_message(own, tmp_path):
    convert(small("CogAct", 1), own["CogAct"], FORMATS["dexbotic-cogact"], tmp_path)

    def damage(weights: dict[str, Tensor]) -> None:
        for name in [name for name in weights if ".blocks.1." in name]:
            del weights[name]
        weights["model.llm.norm.weight"] = torch.zeros(3)
        weights["extra.one"] = torch.zeros(1)
        weights["extra.two"] = torch.zeros(1)

    model = small("CogAct", 1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(DamagedRecord) as caught:
        load_checkpoint(model, rewritten(tmp_path / WEIGHTS, tmp_path, damage))
    text = str(caught.value)
    assert "not CogAct's weights in the names of dexbotic-cogact: 8 missing (" in text
    assert text.count("model.action_head.net.blocks.1.") == 5 and ", …); 2 unexpected (extra.one, extra.two)" in text
    assert "1 of another shape (model.llm.norm.weight is (3,), not (64,))" in text
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_another_models_checkpoint_is_refused(own, tmp_path):
    save_file({"weight": torch.zeros(1)}, tmp_path / WEIGHTS)
    with pytest.raises(BadInput, match="tensors of Pi0 in one of the formats harness, transformers-pi0, openpi-pi0"):
        load_checkpoint(small("Pi0", 0), tmp_path)
    with pytest.raises(BadInput, match=r'dexbotic-dm0.*expected a format of Pi0.*did you mean "dexbotic-pi0"'):
        convert(small("Pi0", 0), own["Pi0"], FORMATS["dexbotic-dm0"], tmp_path)


def test_parts_that_no_published_model_has_are_named(tmp_path):
    model = build("cogact", "tiny")
    save_file(dict(model.state_dict()), tmp_path / WEIGHTS)
    with pytest.raises(BadInput, match=r"dexbotic-cogact has no names for vision\.convolutions\.0\.weight"):
        convert(model, tmp_path, FORMATS["dexbotic-cogact"], tmp_path / "out")


class Bomb:
    def __reduce__(self):
        return Path("exploded").touch, ()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.ckpt"])
def test_pickles_are_never_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(BadInput, match="never read"):
        Tensors(tmp_path / name)
    with pytest.raises(BadInput, match=f"{name} may be pickled, which is never read"):
        Tensors(tmp_path)
    (tmp_path / name).rename(tmp_path / WEIGHTS)
    with pytest.raises(DamagedRecord, match="not a readable safetensors file"):
        Tensors(tmp_path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("{", "not an index"),
        ('{"weight_map": []}', "not an index"),
        ('{"weight_map": {}}', "names no files"),
        ('{"weight_map": {"a": "../a.safetensors"}}', "outside of its folder"),
        ('{"weight_map": {"a": 3}}', "not an index"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors: not a readable safetensors file"),
    ],
)
def test_a_damaged_index(index, says, tmp_path):
    (tmp_path / INDEX).write_text(index)
    with pytest.raises(DamagedRecord, match=says):
        Tensors(tmp_path)


def test_a_shard_cut_off(own, tmp_path):
    files = convert(small("Pi0", 1), own["Pi0"], FORMATS["openpi-pi0"], tmp_path, shard_bytes=250_000)
    files[1].write_bytes(files[1].read_bytes()[:-10])
    with pytest.raises(DamagedRecord, match=files[1].name):
        load_checkpoint(small("Pi0", 1), tmp_path)


def test_weights_are_cast_to_the_models_dtype(own, tmp_path):
    halves = rewritten(own["Pi05"], tmp_path, lambda w: w.update({name: value.bfloat16() for name, value in w.items()}))
    model, first = small("Pi05", 1), small("Pi05", 0).state_dict()
    load_checkpoint(model, halves)
    assert all(
        value.dtype is torch.float32 and torch.equal(value, first[key].bfloat16().float())
        for key, value in model.state_dict().items()
    )
    convert(model, halves, FORMATS["dexbotic-pi05"], tmp_path / "out")
    assert {value.dtype for value in load_file(tmp_path / "out" / WEIGHTS).values()} == {torch.bfloat16}


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 80))
def test_shards_hold_everything_once_and_no_more_than_fits(sizes, limit):
    named = {str(number): size for number, size in enumerate(sizes)}
    shards = list(_split(named, limit))
    assert [name for shard in shards for name in shard] == list(named)
    assert all(len(shard) == 1 or sum(named[name] for name in shard) <= limit for shard in shards)
    joined = [sum(named[name] for name in one + other[:1]) for one, other in pairwise(shards)]
    assert all(size > limit for size in joined)


def test_every_class_with_a_format_is_tested():
    assert {chosen.model for chosen in FORMATS.values()} - {"VLA"} == set(CLASSES) == set(SMALL)
