"""One step of a model as FSDP2 runs it, on one rank: what touches a sharded parameter, and which dtypes meet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from harness.backends.modules import dtype_name
from harness.data.batch import Batch
from harness.models.base import VLA

_TORCH = str(Path(torch.__file__).parent)
_SHARDING = str(Path(torch.__file__).parent / "distributed" / "fsdp")
_PRODUCTS = {
    *("linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "einsum"),
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("scaled_dot_product_attention", "bilinear"),
}
"""Names of functions that take floating tensors of one dtype only."""
_ACROSS_DEVICES = {"to", "copy_", "type_as", "__getitem__", "__setitem__", "set_", "__set__"}


@dataclass(frozen=True)
class Read:
    """A parameter used while the unit that holds it was sharded."""

    unit: str
    parameter: str
    """Its own name in the model."""
    module: str
    """The module inside the unit that outside code called, or the owner of the parameter that it took."""
    line: str | None
    """Where it did so."""
    direct: str | None
    """Module path of the forward around it that was run without a call, by `line`; None where there is none."""
    of_dtype: bool
    """Only its dtype was asked for: the shard's may differ from the one that the forward computes in."""


@dataclass(frozen=True)
class DirectCall:
    """A forward that was run without a call of its module, so without its hooks."""

    module: str
    line: str | None


@dataclass(frozen=True)
class Mix:
    """Tensors that met in one product although they differ in dtype or device."""

    module: str
    """The module whose forward was running."""
    function: str
    kinds: tuple[str, ...]
    """The dtypes or devices, in the order of the arguments."""
    line: str | None


@dataclass(frozen=True)
class Failure:
    """An exception of the forward or the backward."""

    module: str
    error: str
    line: str | None


@dataclass
class Trace:
    """What one step showed."""

    reads: list[Read] = field(default_factory=list)
    direct_calls: list[DirectCall] = field(default_factory=list)
    mixes: list[Mix] = field(default_factory=list)
    loss_dtype: torch.dtype | None = None
    failure: Failure | None = None


def trace_sharded(model: VLA, units: list[nn.Module], batch: Batch) -> Trace:
    """Shards `model` in place, `units` (innermost first) before the root, and makes one step in bfloat16.

    Parameters are gathered as bfloat16 and inputs are the model's to cast, as `harness.backends.fsdp2` has it. What
    would fail is noted and helped over, so that one step shows all of it: a sharded parameter is replaced by its
    values, dtypes that differ by the last argument's.
    """
    trace, running = Trace(), _Running(model)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    with _one_rank():
        mesh = init_device_mesh("cpu", (1,))
        try:
            for module in (*units, model):
                fully_shard(module, mesh=mesh, mp_policy=policy)
            with _Watch(model, running, trace):
                loss = model(batch)
            trace.loss_dtype = loss.dtype
            loss.float().backward()
        except Exception as error:  # a stranger's code may raise anything
            trace.failure = failure_of(error, model)
    trace.direct_calls = running.direct_calls
    return trace


def trace_devices(model: VLA, batch: Batch) -> list[Mix]:
    """Where tensors of two devices meet in a forward on `meta`: model and batch lie there, what is left over not.

    A forward that reads values cannot run on `meta`; it is watched up to there.
    """
    watch = _DeviceWatch(_Running(model))
    with suppress(Exception), watch:  # a stranger's code may raise anything
        model(batch)
    return watch.mixes


class _Running:
    """Which forwards are running, and whether each was entered by a call of its module."""

    def __init__(self, model: nn.Module) -> None:
        self.stack: list[tuple[str, bool, str | None]] = []
        self.direct_calls: list[DirectCall] = []
        self._called: list[str] = []
        for path, module in model.named_modules():
            module.register_forward_pre_hook(self._before(path), prepend=True)
            module.forward = self._around(path, module.forward)

    @property
    def module(self) -> str:
        return self.stack[-1][0] if self.stack else ""

    def direct(self, unit: str) -> tuple[str, str | None] | None:
        """The innermost forward at or below `unit` that was not entered by a call, and the line that entered it."""
        inside = [entry for entry in self.stack if not entry[1] and is_at_or_below(entry[0], unit)]
        return (inside[-1][0], inside[-1][2]) if inside else None

    def entered(self, unit: str) -> tuple[str, str | None] | None:
        """The outermost forward below `unit` that runs, and the line that called it."""
        return next(((path, line) for path, _, line in self.stack if is_at_or_below(path, unit)), None)

    def _before(self, path: str) -> Callable[..., None]:
        return lambda _module, _inputs: self._called.append(path)

    def _around(self, path: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(forward)
        def run(*arguments: Any, **named: Any) -> Any:
            called = self._called[-1:] == [path]
            if called:
                self._called.pop()
            line = user_line()
            if not called:
                self.direct_calls.append(DirectCall(path, line))
            self.stack.append((path, called, line))
            try:
                return forward(*arguments, **named)
            finally:
                self.stack.pop()

        return run


class _Watch(TorchFunctionMode):
    """Sees every torch function of a forward, FSDP's own work aside."""

    def __init__(self, model: nn.Module, running: _Running, trace: Trace) -> None:
        super().__init__()
        self._running, self._trace = running, trace
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._kept = list(model.parameters())  # an id is a name only as long as its object lives
        self._units = [path for path, module in model.named_modules() if isinstance(module, FSDPModule)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        line = user_line()
        if line is None:
            return func(*args, **kwargs)
        sharded: list[str] = []
        args, kwargs = tree_map(lambda value: self._gathered(value, sharded), (args, kwargs))
        name = getattr(func, "__name__", "")
        if name in _PRODUCTS:
            args, kwargs = self._unmixed(name, (args, kwargs), line)
        result = func(*args, **kwargs)
        of_dtype = isinstance(result, torch.dtype)
        if sharded and (of_dtype or any(isinstance(leaf, Tensor) for leaf in tree_leaves(result))):
            for parameter in sharded:
                self._read(parameter, line, of_dtype)
        return result

    def _gathered(self, value: Any, sharded: list[str]) -> Any:
        if not isinstance(value, DTensor) or id(value) not in self._names:
            return value
        sharded.append(self._names[id(value)])
        whole = value.to_local()
        return whole.bfloat16() if whole.is_floating_point() else whole

    def _unmixed(self, name: str, arguments: Any, line: str) -> Any:
        floating = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        dtypes = [leaf.dtype for leaf in floating]
        if len(set(dtypes)) < 2 or torch.is_autocast_enabled(floating[0].device.type):
            return arguments
        kinds = tuple(dtype_name(dtype) for dtype in dtypes)
        self._trace.mixes.append(Mix(self._running.module, name, kinds, line))
        return tree_map(lambda leaf: leaf.to(dtypes[-1]) if any(leaf is one for one in floating) else leaf, arguments)

    def _read(self, parameter: str, line: str, of_dtype: bool) -> None:
        unit = max((path for path in self._units if is_at_or_below(parameter, path)), key=len)
        direct = self._running.direct(unit)
        called_in, line_of_call = direct or (None, None)
        module, line_of_use = self._running.entered(unit) or (parameter.rpartition(".")[0], line)
        self._trace.reads.append(
            Read(unit, parameter, module, line_of_call if direct else line_of_use, called_in, of_dtype)
        )


class _DeviceWatch(TorchFunctionMode):
    """Sees every torch function of a forward on `meta`, and moves what is elsewhere there once it is noted."""

    def __init__(self, running: _Running) -> None:
        super().__init__()
        self._running = running
        self.mixes: list[Mix] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, line = getattr(func, "__name__", ""), user_line()
        # Scalars on the host may meet anything, and so may indices that lie there.
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.ndim]
        devices = tuple(leaf.device.type for leaf in tensors)
        if len(set(devices)) > 1 and name not in _ACROSS_DEVICES:
            self.mixes.append(Mix(self._running.module, name, devices, line))
            args, kwargs = tree_map(
                lambda leaf: leaf.to("meta") if isinstance(leaf, Tensor) and leaf.ndim else leaf, (args, kwargs)
            )
        return func(*args, **kwargs)


def is_at_or_below(path: str, above: str) -> bool:
    """Whether a module's or a parameter's path is `above` or leads through it."""
    return above in ("", path) or path.startswith(f"{above}.")


def user_line() -> str | None:
    """`file:line` of the innermost code outside of torch; None when FSDP itself is at work, or nobody else is."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_SHARDING):
            return None
        if file != __file__ and not file.startswith(_TORCH) and not file.startswith("<"):
            return short_line(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def short_line(file: str, number: int) -> str:
    """`file:line`, relative to the working directory where it lies below."""
    path = Path(file)
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{number}"


def failure_of(error: BaseException, model: nn.Module | None = None) -> Failure:
    """An exception by the innermost code outside of torch that it passed through, and the module at work there."""
    paths = {} if model is None else {id(module): path for path, module in model.named_modules()}
    module, line, trace = "", None, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name != "__getattr__":
            module = paths.get(id(frame.f_locals.get("self")), module)
        if frame.f_code.co_filename != __file__ and not frame.f_code.co_filename.startswith(_TORCH):
            line = short_line(frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return Failure(module, f"{type(error).__name__}: {error}", line)


@contextmanager
def _one_rank() -> Iterator[None]:
    """The default process group is one of this process alone. There must be none before."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        dist.destroy_process_group()
