"""The base of everything that reaches the disk: typed, closed, versioned, and free of NaN."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from harness.errors import DamagedRecord


class Added:
    """Marks a field (`Annotated[float, ADDED]`) that was added when values without it were on disk already. At its
    default such a field is in no digest, so that what was recorded before stays comparable."""


ADDED = Added()


class Value(BaseModel):
    """A frozen piece of a record. Unknown keys and non-finite numbers are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def digest(self, exclude: set[str] | None = None) -> str:
        """First 12 hex digits of the SHA-256 of this value as canonical JSON."""
        plain = self.model_dump(mode="json", exclude=exclude)
        _leave_out_added(self, plain)
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _leave_out_added(value: Any, plain: Any) -> None:
    """Takes added fields at their defaults out of `plain`, which is `value` as JSON has it; at any depth."""
    if isinstance(value, Value):
        for name, described in type(value).model_fields.items():
            held = getattr(value, name)
            if ADDED in described.metadata and held == described.default:
                plain.pop(name, None)
            elif name in plain:
                _leave_out_added(held, plain[name])
    elif isinstance(value, list | tuple):
        for held, part in zip(value, plain, strict=True):
            _leave_out_added(held, part)
    elif isinstance(value, dict):
        for held, part in zip(value.values(), plain.values(), strict=True):
            _leave_out_added(held, part)


class Record(Value):
    """A whole file. `SCHEMA` is raised with every change of meaning; readers refuse a newer one."""

    SCHEMA: ClassVar[int] = 1
    schema_version: int = 0

    @model_validator(mode="before")
    @classmethod
    def _check_schema(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        found = data.get("schema_version", cls.SCHEMA)
        if isinstance(found, int) and found > cls.SCHEMA:
            raise DamagedRecord(
                f"{cls.__name__} has schema {found}, this harness reads up to {cls.SCHEMA}: "
                "it was written by a newer harness; upgrade with `pip install -U vla-harness`"
            )
        return {**data, "schema_version": found}


def unknown_name(expected: str, choices: Iterable[str]) -> PydanticCustomError:
    """A value that is none of some names; `suite_file.explain` suggests the nearest."""
    return PydanticCustomError("unknown_name", "{expected}", {"expected": expected, "choices": list(choices)})
