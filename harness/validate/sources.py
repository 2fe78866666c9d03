"""Rules on source text: what a model's own files, or a training script, do that no run on one rank would show."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import BadInput
from harness.validate.findings import Finding, Severity, place
from harness.validate.subject import Subject
from harness.validate.tracing import short_line

_DEVICE_SOURCES = ("LOCAL_RANK", "local_rank", "set_device", "local_process_index", "Accelerator", "Trainer")
"""Words of a script that takes its device from its place on the node, or leaves that to a library which does."""
_LAUNCHED = ("init_process_group", "init_device_mesh", "init_distributed", "Accelerator", "Trainer", "PartialState")
"""Words of a script that joins the ranks torchrun started."""
_WRAPPERS = ("fully_shard", "FSDP", "FullyShardedDataParallel")
_UNSHARDED_STATES = ("sched", "scaler", "sampler", "loader", "generator")
"""Parts of names whose state dicts hold no parameters."""


@dataclass(frozen=True)
class Breach:
    """A line of a file that breaks a rule."""

    rule: str
    number: int
    severity: Severity
    why: str
    change: str


SourceRule = Callable[[ast.Module], Iterable[Breach]]


def unsharded_save(tree: ast.Module) -> Iterator[Breach]:
    """`torch.save` of a state dict that was not gathered.

    Under FSDP2 it holds DTensors of one rank, under ZeRO-3 empty tensors; all ranks write the same file. A state dict
    of `get_model_state_dict`, or one read inside `FSDP.state_dict_type(…)`, is whole; DCP saves each rank's shards.
    """
    for function in _functions(tree):
        plain = {
            target.id
            for node in _own(function)
            if isinstance(node, ast.Assign) and _holds_state_dict(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        gathered = any(_name(item.context_expr) == "state_dict_type" for item in _withs(function))
        for node in _own(function):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.save" and node.args):
                continue
            saved = node.args[0]
            names = {inner.id for inner in ast.walk(saved) if isinstance(inner, ast.Name)}
            if not gathered and (_holds_state_dict(saved) or names & plain):
                yield Breach(
                    "unsharded-save",
                    node.lineno,
                    "error",
                    "torch.save of a state dict that nobody gathered writes one rank's shards, or empty tensors",
                    "leave checkpoints to the harness; or torch.distributed.checkpoint, or get_model_state_dict first",
                )


def fixed_device(tree: ast.Module) -> Iterator[Breach]:
    """A device with a number in it, or moved to by name: each process has the one of its LOCAL_RANK.

    With "cuda:0" all processes of a node share its first GPU (huggingface/lerobot#4009: out of memory on resume).
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"cuda:\d+", node.value):
            yield _device(node, f'"{node.value}" is the same GPU for every process of a node')
        elif isinstance(node, ast.Call):
            numbered = node.args[1:2] if _name(node) == "device" else node.args[:1]
            if _name(node) in ("cuda", "set_device", "device") and _is_number(numbered):
                yield _device(node, "the number of the GPU is the same for every process of a node")


def moves_itself(tree: ast.Module) -> Iterator[Breach]:
    """A model that goes to the GPU by itself: where it lies is the backend's to say, and on `meta` it lies nowhere."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        named = [keyword.value for keyword in node.keywords if keyword.arg == "device"]
        moved = [*(node.args if _name(node) == "to" else []), *named]
        if (_name(node) == "cuda" and not node.args) or any(
            isinstance(value, ast.Constant) and value.value == "cuda" for value in moved
        ):
            yield _device(node, "a tensor is put on the GPU, wherever the model lies")


def legacy_cache(tree: ast.Module) -> Iterator[Breach]:
    """`past_key_values[i]`, and lists of keys and values inside a cache.

    transformers 5 has cache objects only: no `__getitem__`, `key_cache` or `to_legacy_cache`. `update` and the layers'
    own `keys` and `values` work in both.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and (old := _of_old_caches(node)):
            yield Breach(
                "legacy-cache",
                node.lineno,
                "error",
                f"`{old}`: a cache of transformers 5 is an object that cannot be indexed",
                "use cache.update(keys, values, layer), which returns both, or cache.layers[i].keys and .values",
            )


def _of_old_caches(node: ast.expr) -> str:
    """The text of an expression that only a cache of transformers 4 understands; empty for any other."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        named = _name(node.value) in ("past_key_values", "past_key_value")
        return ast.unparse(node) if named and not _is_text(node.slice) else ""
    if isinstance(node, ast.Attribute) and node.attr in ("key_cache", "value_cache"):
        return node.attr if _name(node.value) != "self" else ""
    if isinstance(node, ast.Call) and _name(node) in ("to_legacy_cache", "from_legacy_cache"):
        return _name(node)
    return ""


def late_sharding(tree: ast.Module) -> Iterator[Breach]:
    """An optimizer that is built above the sharding of the same function.

    `fully_shard` replaces the parameters; the optimizer goes on updating those of before, without an error.
    """
    for function in _functions(tree):
        calls = sorted((n for n in _own(function) if isinstance(n, ast.Call)), key=lambda call: call.lineno)
        sharded = [call.lineno for call in calls if _name(call) in _WRAPPERS]
        for call in calls:
            if re.fullmatch(r"(\w*Adam\w*|SGD|Adafactor|Lion|Muon|RMSprop)", _name(call)) and any(
                line > call.lineno for line in sharded
            ):
                yield Breach(
                    "optimizer-before-sharding",
                    call.lineno,
                    "error",
                    f"{_name(call)} holds the parameters that the sharding below replaces: the loss will not change",
                    "build the optimizer after fully_shard, on the DTensors of model.parameters()",
                )


def sharded_alone(tree: ast.Module) -> Iterator[Breach]:
    """`fully_shard` of the root alone, or of the root before its layers (PyTorch's FSDP2: bottom-up)."""
    for function in _functions(tree):
        loops = [node for node in _own(function) if isinstance(node, _LOOPS)]
        calls = [n for n in _own(function) if isinstance(n, ast.Call) and _name(n) == "fully_shard" and n.args]
        layers = {id(call): loop for loop in loops for inner in ast.walk(loop) for call in calls if inner is call}
        roots = [call for call in calls if id(call) not in layers]
        if roots and not layers:
            why = "only the root is sharded: every rank gathers the whole model for each forward and backward"
            yield Breach("root-alone", roots[-1].lineno, "warning", why, "shard each layer first, then the root")
        for root in roots:
            inside = re.compile(rf"\b{re.escape(ast.unparse(root.args[0]))}\.")
            if any(loop.lineno > root.lineno and inside.search(ast.unparse(loop)) for loop in layers.values()):
                why = "the root is sharded before its layers, whose parameters it then holds already"
                yield Breach("root-first", root.lineno, "error", why, "go bottom-up: each layer first, the root last")


def called_by_forward(tree: ast.Module) -> Iterator[Breach]:
    """`model.forward(batch)` in a script: no hook runs, so nothing is gathered, and DDP does not reduce.

    Silent where the function uses `unshard()`, or the file registers a method by `register_fsdp_forward_method`.
    """
    if "register_fsdp_forward_method" in _words(tree):
        return
    for function in _functions(tree):
        if any(_name(node) == "unshard" for node in _own(function) if isinstance(node, ast.Call)):
            continue
        for node in _own(function):
            if isinstance(node, ast.Call) and _name(node) == "forward" and isinstance(node.func, ast.Attribute):
                receiver = ast.unparse(node.func.value)
                if receiver not in ("self", "super()", "cls"):
                    why = f"{receiver}.forward(…) runs without the hooks in which FSDP and ZeRO-3 gather parameters"
                    yield Breach("direct-forward", node.lineno, "error", why, f"call {receiver}(…)")


def no_ranks(tree: ast.Module) -> Iterator[Breach]:
    """A script that never joins a process group trains once per process, each alone, and nobody notices."""
    if not _words(tree) & set(_LAUNCHED):
        why = "the script joins no process group: under torchrun each process would train alone, on the same data"
        yield Breach("no-process-group", 1, "error", why, "init_process_group() under torchrun, or build a Trainer")


def one_device_for_all(tree: ast.Module) -> Iterator[Breach]:
    """A script that uses CUDA and never asks which process of its node it is."""
    uses = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.Constant) and node.value == "cuda")
        or (isinstance(node, ast.Call) and _name(node) == "cuda")
    ]
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    if uses and not (_words(tree) | texts) & set(_DEVICE_SOURCES):
        yield _device(uses[0], "every process takes the default GPU, which is the first")


MODEL_RULES: tuple[SourceRule, ...] = (unsharded_save, fixed_device, moves_itself, legacy_cache, late_sharding)
SCRIPT_RULES: tuple[SourceRule, ...] = (
    *(no_ranks, one_device_for_all, fixed_device, late_sharding, sharded_alone),
    *(called_by_forward, unsharded_save, legacy_cache),
)


def check_script(script: Path) -> list[Finding]:
    """What the rules find in a training script; `where` is its name.

    Raises:
        BadInput: it is not there, or it is not Python.
    """
    if not script.is_file():
        raise BadInput("entry", None, str(script), "a training script")
    return [_finding(breach, script.name, script) for breach in _breaches(_parsed(script), SCRIPT_RULES)]


def own_sources(subject: Subject) -> list[Finding]:
    """The files of the model's package in which the classes of its modules stand."""
    package = type(subject.model).__module__.partition(".")[0]
    files: dict[Path, dict[str, str]] = {}
    for path, module in subject.model.named_modules():
        for cls in type(module).__mro__:
            file = Path(getattr(sys.modules[cls.__module__], "__file__", None) or "")
            if cls.__module__.partition(".")[0] == package and file.is_file():
                files.setdefault(file, {}).setdefault(cls.__name__, path)
    found = []
    for file, classes in files.items():
        tree = _parsed(file)
        spans = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name in classes]
        for breach in _breaches(tree, MODEL_RULES):
            around = [span.name for span in spans if span.lineno <= breach.number <= (span.end_lineno or 0)]
            found.append(_finding(breach, place(classes[around[-1]]) if around else file.name, file))
    return found


_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef)


def _breaches(tree: ast.Module, rules: Iterable[SourceRule]) -> list[Breach]:
    return sorted({breach for rule in rules for breach in rule(tree)}, key=lambda breach: breach.number)


def _finding(breach: Breach, where: str, file: Path) -> Finding:
    return Finding(
        rule=breach.rule,
        where=where,
        severity=breach.severity,
        why=breach.why,
        change=breach.change,
        line=short_line(str(file), breach.number),
    )


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_text())
    except SyntaxError as error:
        raise BadInput(file, None, error.text, f"Python, but: {error.msg} in line {error.lineno}") from None


def _device(node: ast.expr, why: str) -> Breach:
    return Breach(
        "fixed-device", node.lineno, "error", why, "take the device of an input; in a script, that of LOCAL_RANK"
    )


def _functions(tree: ast.Module) -> Iterator[ast.Module | ast.FunctionDef | ast.AsyncFunctionDef]:
    yield tree
    yield from (node for node in ast.walk(tree) if isinstance(node, _SCOPES))


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or a file that do not belong to a function inside it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _own(child)


def _withs(scope: ast.AST) -> Iterator[ast.withitem]:
    return (item for node in _own(scope) if isinstance(node, ast.With) for item in node.items)


def _name(node: ast.expr) -> str:
    """The last name of `a`, `b.a` or `b.a(…)`."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _holds_state_dict(node: ast.expr) -> bool:
    return any(
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr == "state_dict"
        and not any(word in ast.unparse(inner.func.value).lower() for word in _UNSHARDED_STATES)
        for inner in ast.walk(node)
    )


def _words(tree: ast.Module) -> set[str]:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _is_number(arguments: list[ast.expr]) -> bool:
    return any(isinstance(value, ast.Constant) and type(value.value) is int for value in arguments)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
