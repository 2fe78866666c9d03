"""Reading a suite's TOML, with `--set` applied, and saying in one sentence what is wrong with it."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from harness.backends.options import BACKENDS
from harness.errors import BadInput
from harness.libero.protocol import PRESETS
from harness.models import names_function
from harness.suite import CellSettings, Data, Suite

_MESSAGES = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a string",
    "list_type": "a list",
    "too_short": "at least one entry",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


def load_suite(path: Path, overrides: list[str] | None = None) -> Suite:
    """Reads and checks a suite file.

    Args:
        path: the TOML file.
        overrides: `key.path=value` strings, the value in TOML (`throughput.steps=10`, `seed=3`).

    Raises:
        BadInput: the file is missing, not TOML, or a key or value in it is wrong.
    """
    try:
        plain = tomllib.loads(path.read_text())
    except FileNotFoundError:
        known = [str(file) for file in sorted(path.parent.glob("*.toml"))] if path.parent.is_dir() else []
        raise BadInput("SUITE", None, str(path), "a suite file", known) from None
    except IsADirectoryError:
        raise BadInput("SUITE", None, str(path), "a suite file, not a folder") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(path, None, None, f"TOML, but: {error}") from None
    return suite_from(path, plain, overrides or [])


def suite_from(source: Path | str, plain: dict[str, Any], overrides: list[str]) -> Suite:
    """Checks the tables of a suite, wherever they came from. Raises BadInput."""
    for override in overrides:
        _apply(plain, override)
    try:
        suite = Suite.model_validate(plain)
    except ValidationError as error:
        raise explain(source, error) from None
    _check_references(source, suite)
    return suite


def _apply(plain: dict[str, Any], override: str) -> None:
    key, sign, text = override.partition("=")
    if not sign or not key.strip():
        raise BadInput("--set", None, override, "key=value, such as throughput.steps=10")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word is meant as a string
    *tables, last = key.strip().split(".")
    table = plain
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise BadInput("--set", key.strip(), value, f"a key below a table, but {name} holds a value")
    table[last] = value


def _check_references(path: Path | str, suite: Suite) -> None:
    """Names in one part of the suite that must exist in another."""
    if suite.throughput is not None and suite.throughput.reference not in suite.backends:
        raise BadInput(path, "throughput.reference", suite.throughput.reference, "a key of [backends]", suite.backends)
    for name in suite.learning.backends if suite.learning else []:
        if name not in suite.backends:
            raise BadInput(path, "learning.backends", name, "a key of [backends]", suite.backends)
        if suite.backends[name].settings.stack == "external":
            raise BadInput(path, "learning.backends", name, "a stack that exports its weights, which external does not")
    for table, names in (("models", suite.models), ("backends", suite.backends)):
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9_]+", name):
                raise BadInput(path, table, name, "a name of letters, digits and _")
    _check_models(path, suite)
    _check_cells(path, suite)
    if suite.evaluation is not None and suite.evaluation.protocol not in PRESETS:
        raise BadInput(path, "evaluation.protocol", suite.evaluation.protocol, "a preset", PRESETS)
    learnt = [arm for arm in (suite.evaluation.arms if suite.evaluation else []) if arm.startswith("learned")]
    if learnt and suite.learning is None:
        raise BadInput(path, "evaluation.arms", learnt[0], "a [learning] table that makes the checkpoints")
    _check_data(path, suite.data)


def _check_models(path: Path | str, suite: Suite) -> None:
    for name, entry in suite.models.items():
        if names_function(entry.model) and not _importable(entry.model.partition(":")[0]):
            expected = "a module that can be imported here (is its package installed, or on PYTHONPATH?)"
            raise BadInput(path, f"models.{name}.model", entry.model, expected)
        if entry.init is not None and not Path(entry.init).exists():
            raise BadInput(path, f"models.{name}.init", entry.init, "a checkpoint: a safetensors file or a folder")


def _check_cells(path: Path | str, suite: Suite) -> None:
    """Cells, models and backends that the suite speaks of are its own."""
    cells = [f"{model}-{backend}" for model in suite.models for backend in suite.backends]
    for label in suite.unsupported:
        if label not in cells:
            raise BadInput(path, "unsupported", label, "a cell, MODEL-BACKEND", cells)
    if suite.selection is None:
        return
    chosen = (("models", suite.selection.models, suite.models), ("backends", suite.selection.backends, suite.backends))
    for table, names, known in chosen:
        for name in names:
            if name not in known:
                raise BadInput(path, f"selection.{table}", name, f"a key of [{table}]", known)


def _importable(module: str) -> bool:
    """Whether a module is there, without running it."""
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False


_FOLDERS = {
    "libero_hdf5": "a folder of *_demo.hdf5 files",
    "lerobot": "the folder of a LeRobot data set",
    "dexdata": "a folder of Dexdata, .jsonl files",
}
_BY_TASK = ("task_suite", "tasks", "episodes", "action_noise", "frame_stride")
_BY_SET = ("cameras", "first_episodes")


def _check_data(path: Path | str, data: Data) -> None:
    """A source that is read from somewhere says where, and no key is given that it does not read."""
    if data.source in _FOLDERS and data.path is None:
        raise BadInput(path, "data.path", None, f"{_FOLDERS[data.source]}, since data.source is {data.source}")
    whole_set = data.source in ("lerobot", "dexdata")
    for key in _BY_TASK if whole_set else _BY_SET:
        if key in data.model_fields_set:
            reason = f"nothing, since data.source is {data.source}, which is "
            reason += "read as a whole or up to first_episodes" if whole_set else "chosen by tasks and episodes"
            raise BadInput(path, f"data.{key}", getattr(data, key), reason)


def explain(source: Path | str, error: ValidationError) -> BadInput:
    """The first finding of pydantic as a BadInput with its dotted key and the nearest valid name."""
    fault = error.errors()[0]
    loc = fault["loc"]
    key = ".".join(_visible(loc)) or None
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        table = ".".join(_visible(loc[:-1])) or "the top level"
        return BadInput(
            source, ".".join(_visible(loc[:-1])) or None, str(loc[-1]), f"a key of {table}", _keys_at(loc[:-1])
        )
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = value.get("backend") if isinstance(value, dict) else value
        return BadInput(source, f"{key}.backend", tag, "a backend", BACKENDS)
    choices: list[str] = []
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context.get("expected", ""))
        expected = "one of" if choices else str(context.get("expected"))
    elif kind == "unknown_name":
        expected, choices = context["expected"], context["choices"]
    elif kind == "missing":
        value, expected = None, "a value here; the key is missing"
    elif kind == "value_error":
        expected = str(context.get("error", fault["msg"]))
    else:
        expected = _MESSAGES.get(kind, fault["msg"].removeprefix("Input should be "))
    return BadInput(source, key, value, expected, choices)


_HIDDEN = {"options", "settings", *BACKENDS}
"""Steps of pydantic's path that are not in the file (`BackendEntry` splits a flat table)."""


def _visible(loc: tuple[int | str, ...]) -> list[str]:
    if len(loc) > 2 and loc[0] == "backends":
        return [str(part) for part in (*loc[:2], *(p for p in loc[2:] if p not in _HIDDEN))]
    return [str(part) for part in loc]


def _keys_at(loc: tuple[int | str, ...]) -> list[str]:
    """Valid keys of the table at a path, found by walking the types of `Suite`."""
    model: type[BaseModel] = Suite
    if len(loc) > 2 and loc[0] == "backends":
        options = next((BACKENDS[str(part)] for part in loc[2:] if part in BACKENDS), None)
        model, loc = CellSettings, tuple(part for part in loc[2:] if part not in _HIDDEN)
        if not loc:
            return [*(options.model_fields if options else ()), *CellSettings.model_fields]
    for part in loc:
        field = model.model_fields.get(str(part)) or next(
            (f for f in model.model_fields.values() if f.alias == part), None
        )
        if field is None:
            continue  # a list index, or a key of the author's own choosing
        model = _model_in(field.annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not isinstance(annotation, UnionType) and not get_args(annotation):
        return annotation if issubclass(annotation, BaseModel) else None
    found = (_model_in(inner) for inner in get_args(annotation))
    return next((model for model in found if model is not None), None)
