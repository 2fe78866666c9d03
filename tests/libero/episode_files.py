"""Records of episodes as two commands left them, comparable but for what may differ."""

from harness.libero.records import EpisodeRecord
from harness.store import read_lines


def episodes(results):
    """The records of all arms of all results under a folder, by (arm, key); each is there once."""
    records = [
        record for file in sorted(results.glob("**/episodes.jsonl")) for record in read_lines(file, EpisodeRecord)
    ]
    found = {(record.arm, record.key): record for record in records}
    assert len(found) == len(records), "an episode was recorded twice"
    return found


def alike(records):
    """The records without the times and the tries that they took."""
    return {of: record.model_copy(update={"wall_seconds": 0.0, "tries": 0}) for of, record in records.items()}
