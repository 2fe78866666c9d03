"""What `[data]` names is looked for before anything is started."""

import pytest
from episode_sets import FPS, SHAPE, episodes, write_dexdata

from harness.data.dexdata import DexData
from harness.data.lerobot import LeRobot
from harness.data.lerobot_writer import write_lerobot
from harness.data.sources import check_paths, open_source
from harness.errors import BadInput
from harness.suite import Data


def test_each_source_has_its_reader(tmp_path):
    write_lerobot(tmp_path / "lerobot", episodes(), FPS)
    write_dexdata(tmp_path / "dexdata", episodes(), "image")
    for name, kind in (("lerobot", LeRobot), ("dexdata", DexData)):
        data = Data(source=name, path=str(tmp_path / name), first_episodes=2)
        check_paths(data)
        source = open_source(data, tmp_path / name, SHAPE)
        assert isinstance(source, kind) and len(source) == 2
    check_paths(Data())
    assert len(open_source(Data(tasks=[0, 3]), None, SHAPE)) == 2


@pytest.mark.parametrize("source", ["lerobot", "dexdata", "libero_hdf5"])
def test_a_path_that_is_not_there_names_its_neighbours(tmp_path, source):
    (tmp_path / "demonstrations").mkdir()
    with pytest.raises(BadInput, match=r"suite: data\.path = .*did you mean .*demonstrations"):
        check_paths(Data(source=source, path=str(tmp_path / "demonstration")))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("lerobot", "a LeRobot data set"),
        ("dexdata", "a folder of Dexdata"),
        ("libero_hdf5", "a file of demonstrations"),
    ],
)
def test_a_folder_of_something_else_is_told(tmp_path, source, expected):
    with pytest.raises(BadInput, match=expected):
        check_paths(Data(source=source, path=str(tmp_path)))


def test_a_tokenizer_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BadInput, match=r"suite: data\.tokenizer"):
        check_paths(Data(tokenizer=str(tmp_path / "nothing")))
