"""The sizes a model fixes for its inputs. No torch here: plans, cards and readers need it too."""

from __future__ import annotations

from pydantic import Field

from harness.records import Value

CAMERAS = ("agentview", "robot0_eye_in_hand")
"""LIBERO's cameras as the simulator names them, in the order every data set of it has them."""
ABSENT = "absent"
"""Name of a camera slot that LIBERO has no camera for: its images are black and masked."""


class InputShape(Value):
    """What a model of one size wants to be fed."""

    cameras: tuple[str, ...] = Field(min_length=1)
    """Camera names as the simulator says them, in the model's order. A camera the data lacks is masked."""
    image_size: int = Field(ge=8)
    """Height and width of the square frames, in pixels."""
    text_slots: int = Field(ge=1)
    prompt_template: str = "{prompt}"
    """Text around the instruction, for a checkpoint's own tokenizer; the word tokenizer needs none. With `{state}` in
    it the prompt tells the robot's state too (`harness.data.state_prompt`)."""
    vocabulary: int = Field(ge=3)
    """Rows of the text embedding, padding and unknown word included."""
    state_dim: int = Field(ge=8)
    """LIBERO's 8 state values, padded with zeros up to this."""
    action_dim: int = Field(ge=7)
    """LIBERO's 7 action values, padded with zeros up to this."""
    chunk: int = Field(ge=1)
    """Actions predicted per look."""

    @property
    def state_in_prompt(self) -> bool:
        return "{state}" in self.prompt_template
