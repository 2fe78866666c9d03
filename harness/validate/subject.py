"""A model under examination: built when a rule first asks, run once for all rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from harness.backends.modules import sharding_units
from harness.data.batch import Batch
from harness.models.base import VLA
from harness.models.flops import blank_batch
from harness.validate.tracing import Failure, Mix, Trace, failure_of, trace_devices, trace_sharded

_SEED = 0
_SAMPLES = 2


@dataclass(frozen=True)
class Step:
    """One forward and backward without any backend, in float32.

    Attributes:
        called: paths of the modules that were called and gave a tensor that needs a gradient.
        reached: those of them whose output the backward reached.
        failure: what ended it early.
    """

    called: frozenset[str]
    reached: frozenset[str]
    failure: Failure | None


@dataclass(frozen=True)
class MetaBuild:
    """A build under `torch.device("meta")`.

    Attributes:
        left: names of parameters and buffers that are elsewhere all the same.
        mixes: products and sums of the forward in which devices met.
        failure: why there is none.
    """

    left: tuple[str, ...] = ()
    mixes: tuple[Mix, ...] = ()
    failure: Failure | None = None


class Subject:
    """One model, and what is seen of it. `build` makes it anew, on torch's current default device."""

    def __init__(self, build: Callable[[], VLA]) -> None:
        self._build = build

    def fresh(self) -> VLA:
        """Another copy with the same weights, in float32 on the CPU."""
        torch.manual_seed(_SEED)
        return self._build()

    @cached_property
    def model(self) -> VLA:
        return self.fresh()

    @cached_property
    def units(self) -> dict[str, nn.Module]:
        """Module path → what the model's profile has as a unit of its own, innermost first. Raises BadInput."""
        paths = {id(module): path for path, module in self.model.named_modules()}
        return {paths[id(unit)]: unit for unit in sharding_units(self.model)}

    @cached_property
    def step(self) -> Step:
        """Leaves gradients on `model`."""
        called: set[str] = set()
        reached: set[str] = set()
        handles = [
            module.register_forward_hook(_output_watch(path, called, reached))
            for path, module in self.model.named_modules()
        ]
        failure = None
        try:
            self.model(sample_batch(self.model)).backward()
        except Exception as error:  # a stranger's code may raise anything
            failure = failure_of(error, self.model)
        for handle in handles:
            handle.remove()
        return Step(frozenset(called), frozenset(reached), failure)

    @cached_property
    def strays(self) -> str | None:
        """Path of the innermost module that gives something else when torch's global generator stands elsewhere.

        None where there is none: all that is random comes from the batch's own generator.
        """
        first, second = (self._outputs(seed) for seed in (_SEED, _SEED + 1))
        return next((path for (path, before), (_, after) in zip(first, second, strict=False) if before != after), None)

    @torch.no_grad()
    def _outputs(self, seed: int) -> list[tuple[str, str]]:
        """Module path and digest of the output, in the order in which modules of one forward ended."""
        outputs: list[tuple[str, str]] = []
        handles = [
            module.register_forward_hook(partial(_keep_output, path, outputs))
            for path, module in self.model.named_modules()
        ]
        batch = sample_batch(self.model)
        torch.manual_seed(seed)
        self.model(batch)
        for handle in handles:
            handle.remove()
        return outputs

    @cached_property
    def sharded(self) -> Trace:
        """A step with the profile's units."""
        return self.sharded_by(list(self.units))

    def sharded_by(self, paths: list[str]) -> Trace:
        """A step of a fresh copy with the modules at these paths, innermost first, as units."""
        model = self.fresh()
        return trace_sharded(model, [model.get_submodule(path) for path in paths], sample_batch(model))

    @cached_property
    def on_meta(self) -> MetaBuild:
        try:
            with torch.device("meta"):
                model = self._build()
        except Exception as error:  # a stranger's code may raise anything
            return MetaBuild(failure=failure_of(error))
        state = [*model.named_parameters(), *model.named_buffers()]
        left = tuple(name for name, tensor in state if not tensor.is_meta)
        mixes = () if left else tuple(trace_devices(model, sample_batch(model, "meta")))
        return MetaBuild(left, mixes)


def _output_watch(path: str, called: set[str], reached: set[str]) -> Callable[..., None]:
    def watch(_module: nn.Module, _inputs: object, output: object) -> None:
        for leaf in tree_leaves(output):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                called.add(path)
                leaf.register_hook(lambda _gradient: reached.add(path))  # type: ignore[no-untyped-call]

    return watch


def _keep_output(
    path: str, outputs: list[tuple[str, str]], _module: nn.Module, _inputs: object, output: object
) -> None:
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    outputs.append((path, str([tensor.double().norm().item() for tensor in tensors])))


def sample_batch(model: VLA, device: str = "cpu") -> Batch:
    """Two samples of noise: every camera is there, every word counts."""
    shape = model.shape
    blank = blank_batch(model, _SAMPLES, "cpu")
    random = torch.Generator().manual_seed(_SEED)
    seen = blank.observation
    observation = replace(
        seen,
        images=torch.rand(seen.images.shape, generator=random) * 2 - 1,
        image_masks=torch.ones_like(seen.image_masks),
        input_ids=torch.randint(shape.vocabulary, seen.input_ids.shape, generator=random),
        attention_mask=torch.ones_like(seen.attention_mask),
        state=torch.randn(seen.state.shape, generator=random),
    )
    actions = torch.randn(blank.actions.shape, generator=random)
    return Batch(observation, actions, blank.generator).to(torch.device(device))
