"""Scripted experts: a task's BDDL goal and the simulator's exact state in, ordinary actions out."""

from harness.libero.expert.expert import Expert, uncovered_reason

__all__ = ["Expert", "uncovered_reason"]
