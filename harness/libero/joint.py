"""The joint of a drawer, a door or a knob, on arrays alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.libero.geometry import Array, turning


@dataclass(frozen=True)
class Joint:
    """What moves a drawer, a door or a knob, as it is now.

    Attributes:
        slides: along `axis`, or else turns about it.
        anchor: a point on the axis, world frame, metres (3,).
        axis: unit vector, world frame (3,).
        position: metres or radians.
        body: MuJoCo's number of the part.
    """

    slides: bool
    anchor: Array
    axis: Array
    position: float
    body: int

    def motion(self, to: float) -> tuple[Array, Array]:
        """Rotation (3, 3) and shift (3,) of the world's points that belong to the part when it moves there."""
        by = to - self.position
        if self.slides:
            return np.eye(3), by * self.axis
        rotation = turning(self.axis, by)
        return rotation, self.anchor - rotation @ self.anchor

    def velocity(self, point: Array) -> Array:
        """Of a point (3,) of the part, per unit of joint speed: (3,)."""
        return self.axis if self.slides else np.cross(self.axis, point - self.anchor)
