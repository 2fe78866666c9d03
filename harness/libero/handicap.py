"""Arms between the expert and nothing: the scripted expert with a flaw of known size, `expert:noise=0.3,frozen=80`."""

from __future__ import annotations

from pydantic import Field, ValidationError

from harness.errors import BadInput
from harness.records import Value

_PREFIX = "expert:"


class Handicap(Value):
    """What is wrong with an expert; several flaws add up. Its draws depend on the episode alone."""

    noise: float = Field(default=0.0, ge=0)
    """Standard deviation of Gaussian noise on the six components of motion, in the actions' units."""
    wrong_object: float = Field(default=0.0, ge=0, le=1)
    """Probability of taking another object for the one that the task names, once for the whole episode."""
    release: int | None = Field(default=None, ge=0)
    """From this step on the gripper stays open, whatever it holds."""
    frozen: int | None = Field(default=None, ge=0)
    """From this step on it does not move."""


def handicap_of(arm: str) -> Handicap | None:
    """The handicap that an arm's name states; None for the name of any other arm.

    Raises:
        BadInput: an arm `expert:…` with an unknown flaw, or a size that it cannot have.
    """
    if not arm.startswith(_PREFIX):
        return None
    flaws: dict[str, str] = {}
    for part in arm.removeprefix(_PREFIX).split(","):
        name, equals, size = part.strip().partition("=")
        if name not in Handicap.model_fields:
            raise BadInput("policy", None, name, "a flaw of the expert", choices=Handicap.model_fields)
        if not equals or name in flaws:
            raise BadInput("policy", name, part.strip(), "each flaw once with its size, as in expert:noise=0.3")
        flaws[name] = size
    try:
        return Handicap.model_validate(flaws, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise BadInput("policy", name, flaws[name], first["msg"].lower().removeprefix("input should be ")) from None
