from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.suite import parse_ranges
from harness.suite_file import load_suite

SUITES = Path(__file__).parents[1] / "suites"
FSDP2 = SUITES / "fsdp2.toml"


@pytest.mark.parametrize("file", sorted(SUITES.glob("*.toml")), ids=lambda file: file.stem)
def test_every_shipped_suite_loads(file: Path) -> None:
    assert load_suite(file).description


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("nonsense=1", "= 'nonsense': expected a key of the top level"),
        ("throughput.stps=3", "throughput = 'stps': expected a key of throughput"),
        ("throughput.stps=3", 'did you mean "steps"?'),
        ("backends.zero3.zero_stag=2", 'did you mean "zero_stage"?'),
        ("backends.fsdp2.stack=external", "learning.backends = 'fsdp2': expected a stack that exports its weights"),
        ("backends.fsdp2.profile.base=dexbotc", 'did you mean "dexbotic"?'),
        ("backends.fsdp2.profile.layers=[]", "= 'layers': expected a key of backends.fsdp2.profile (base, cast_model"),
        ("defaults.optimizer.lrr=1", "defaults.optimizer = 'lrr'"),
        ("backends.zero2.backend=fsdp3", "backends.zero2.backend = 'fsdp3': expected a backend (ddp, deepspeed, fsdp"),
        ("backends.zero3.zero_stage=4", "backends.zero3.zero_stage = 4: expected 1, 2 or 3"),
        ("models.pi0.model=pi1", "models.pi0.model = 'pi1': expected a known model, or module:function ("),
        ("defaults.micro_batch=0", "defaults.micro_batch = 0: expected greater than or equal to 1"),
        ("backends.fsdp2.micro_batch=0", "backends.fsdp2.micro_batch = 0: expected greater than or equal to 1"),
        ('defaults.micro_batch="x"', "defaults.micro_batch = 'x': expected a whole number"),
        ("defaults=3", "defaults = 3: expected a table"),
        ("schema=2", "schema = 2: expected 1"),
        ("data.tasks=[]", "data.tasks = []: expected at least one entry"),
        ("throughput.reference=zero4", "throughput.reference = 'zero4': expected a key of [backends]"),
        ('learning.backends=["zero9"]', "learning.backends = 'zero9': expected a key of [backends]"),
        ("throughput.steps.more=1", "--set: throughput.steps.more = 1: expected a key below a table"),
        ("throughput.steps", "--set = 'throughput.steps': expected key=value"),
        ('data={source="libero_hdf5"}', "data.path: expected a folder of *_demo.hdf5 files"),
        (
            'data={source="lerobot"}',
            "data.path: expected the folder of a LeRobot data set, since data.source is lerobot",
        ),
        (
            'data={source="dexdata", path="x", tasks=[1]}',
            "data.tasks = [1]: expected nothing, since data.source is dexdata",
        ),
        (
            'data={source="dexdata", path="x", cameras={agent="images_1"}}',
            "expected the simulator's cameras as keys, not agent (agentview, robot0_eye_in_hand)",
        ),
        ("data.first_episodes=3", "data.first_episodes = 3: expected nothing, since data.source is expert"),
        ('evaluation.arms=["exprt"]', 'did you mean "expert"?'),
        ('evaluation.arms=["expert:nois=0.3"]', 'did you mean "noise"?'),
        ('evaluation.arms=["expert:noise=-1"]', "'expert:noise=-1': expected greater than or equal to 0"),
        ("data.normalisation=zscore", 'did you mean "z-score"?'),
        (
            "models.pi0.reading.delta_action=true",
            "a key of models.pi0.reading (delta_actions, normalisation, tokenizer)",
        ),
    ],
)
def test_what_is_wrong_is_said_with_key_value_and_expectation(override: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_suite(FSDP2, [override])
    assert says in str(caught.value)


def test_a_graded_expert_may_play() -> None:
    found = load_suite(SUITES / "fsdp2.toml", ['evaluation.arms=["expert:noise=0.3,frozen=90", "still"]'])
    assert found.evaluation is not None
    assert found.evaluation.arms == ["expert:noise=0.3,frozen=90", "still"]


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("a = = 1")
    with pytest.raises(BadInput, match=r"x\.toml: expected TOML, but: .*line 1"):
        load_suite(file)


def test_a_file_that_is_not_there_suggests_its_neighbours() -> None:
    with pytest.raises(BadInput, match=r'did you mean ".*fsdp2\.toml"'):
        load_suite(SUITES / "fsdp22.toml")


def test_set_reaches_into_tables_and_takes_bare_words() -> None:
    suite = load_suite(FSDP2, ["throughput.steps=7", "defaults.precision=bf16", "seed=3"])
    assert suite.throughput is not None
    assert (suite.throughput.steps, suite.defaults.precision, suite.seed) == (7, "bf16", 3)


def test_ranges() -> None:
    assert parse_ranges("0, 3,40-42") == [0, 3, 40, 41, 42]
    for wrong in ("", "a", "3-1", "1;2"):
        with pytest.raises(ValueError, match="range"):
            parse_ranges(wrong)
