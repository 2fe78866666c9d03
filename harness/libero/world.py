"""What a scripted expert may know of a scene: exact poses, collision shapes, contacts, and the goal.

Reads MuJoCo's arrays through robosuite's objects and imports neither.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.libero.geometry import Array, Boxes
from harness.libero.joint import Joint

_MESH, _BOX, _CYLINDER, _CAPSULE, _ELLIPSOID, _SPHERE = 7, 6, 5, 3, 4, 2
"""MuJoCo's `mjtGeom`."""
_PLANE = 0
_SLIDE = 2
"""MuJoCo's `mjtJoint`."""

_PLACEMENT_TRIES = 20

_RANGES = {
    "open": "default_open_ranges",
    "close": "default_close_ranges",
    "turnon": "default_turnon_ranges",
    "turnoff": "default_turnoff_ranges",
}
"""Where LIBERO's fixtures keep the joint positions that a predicate asks for (`articulated_objects.py`)."""


class World:
    """A privileged, read-only view of one scene (but for `jitter`).

    Args:
        domain: LIBERO's `BDDLBaseDomain`, reset in place; its model must not be rebuilt.
    """

    def __init__(self, domain: Any) -> None:
        self._domain = domain
        self._geoms: dict[str, list[int]] = {}
        self._parts: dict[int, NDArray[np.bool_]] = {}
        self._shapes: dict[str, tuple[NDArray[np.int64], Array]] = {}

    # --- the goal ----------------------------------------------------------------------------------------

    @cached_property
    def goal(self) -> tuple[tuple[str, ...], ...]:
        """The conjuncts of the BDDL goal: `("on", "akita_black_bowl_1", "plate_1")`, names in lower case."""
        return tuple(tuple(part) for part in self._domain.parsed_problem["goal_state"])

    def holds(self, conjunct: tuple[str, ...]) -> bool:
        """LIBERO's own judgement of one conjunct, now."""
        return bool(self._domain._eval_predicate(list(conjunct)))

    # --- things ------------------------------------------------------------------------------------------

    @cached_property
    def movable(self) -> tuple[str, ...]:
        """Objects that can be carried."""
        return tuple(self._domain.objects_dict)

    def is_region(self, name: str) -> bool:
        """Whether a name is a region (a MuJoCo site) and not an object or a fixture."""
        return name in self._domain.object_sites_dict

    def parent(self, region: str) -> str | None:
        """The object or fixture a region belongs to; None for a part of the floor or of a table."""
        site = self._domain.object_sites_dict[region]
        return getattr(site, "parent_name", None)

    def base(self, target: str) -> str:
        """The object or fixture that a region belongs to; an object or fixture itself."""
        return (self.parent(target) if self.is_region(target) else None) or target

    def half_size(self, region: str) -> Array:
        """Half extents of a region along the world's axes, metres: float64 (3,)."""
        rotation = np.asarray(self._domain.sim.data.get_site_xmat(region)).reshape(3, 3)
        size = np.asarray(self._domain.object_sites_dict[region].size, dtype=np.float64)
        return np.asarray(np.abs(rotation @ size))

    def position(self, name: str) -> Array:
        """Of an object's, a fixture's or a region's origin, metres: float64 (3,)."""
        data = self._domain.sim.data
        if self.is_region(name):
            return np.array(data.get_site_xpos(name), dtype=np.float64)
        return np.array(data.body_xpos[self._domain.obj_body_id[name]], dtype=np.float64)

    def rotation(self, name: str) -> Array:
        """Of an object or fixture: float64 (3, 3)."""
        data = self._domain.sim.data
        return np.array(data.body_xmat[self._domain.obj_body_id[name]], dtype=np.float64).reshape(3, 3)

    def shapes(self, name: str) -> Array:
        """Surface points of each collision shape of an object or fixture, world frame: float64 (shapes, points, 3)."""
        geoms, local = self._local_shapes(name)
        data = self._domain.sim.data
        rotation = np.asarray(data.geom_xmat)[geoms].reshape(-1, 3, 3)
        return np.asarray(local @ rotation.transpose(0, 2, 1) + np.asarray(data.geom_xpos)[geoms][:, None])

    @cached_property
    def bodies(self) -> tuple[str, ...]:
        """Every object and fixture that has collision shapes."""
        return tuple(name for name in self._domain.obj_body_id if self._geoms_of(name))

    # --- moving parts ------------------------------------------------------------------------------------

    def joint(self, name: str) -> Joint | None:
        """Of the drawer, door or knob that a region or a fixture names; None where nothing moves."""
        domain = self._domain
        owner = domain.object_sites_dict[name] if self.is_region(name) else domain.fixtures_dict.get(name)
        joints = list(getattr(owner, "joints", None) or ())
        if len(joints) != 1:
            return None
        model, data = domain.sim.model, domain.sim.data
        number = int(model.joint_name2id(joints[0]))
        return Joint(
            slides=int(model.jnt_type[number]) == _SLIDE,
            anchor=np.array(data.xanchor[number], dtype=np.float64),
            axis=np.array(data.xaxis[number], dtype=np.float64),
            position=float(data.qpos[model.jnt_qposadr[number]]),
            body=int(model.jnt_bodyid[number]),
        )

    def wanted_range(self, conjunct: tuple[str, ...]) -> tuple[float, float] | None:
        """Joint positions, low and high, that LIBERO means by `("open", name)`; None where that has no meaning."""
        predicate, name = conjunct
        fixture = self.parent(name) if self.is_region(name) else name
        properties = getattr(self._domain.fixtures_dict.get(fixture), "object_properties", {})
        limits = properties.get("articulation", {}).get(_RANGES.get(predicate))
        return (float(min(limits)), float(max(limits))) if limits else None

    def body(self, name: str) -> int:
        """MuJoCo's number of an object's or a fixture's body."""
        return int(self._domain.obj_body_id[name])

    def boxes(self, body: int) -> Boxes:
        """Boxes about the collision shapes of a body and all that is fixed or hinged to it, world frame."""
        return self._boxes(self._part_of(body))

    def boxes_besides(self, body: int, movable: bool = True) -> Boxes:
        """Boxes about every other collision shape but the robot's, with or without the movable objects."""
        others = ~self._part_of(body)
        return self._boxes(others if movable else others & ~self._loose)

    def lid(self, region: str) -> str | None:
        """What must be open for something to get into a region: its drawer or door; None for an open one."""
        owners = (region, self.parent(region)) if self.is_region(region) else ()
        for owner in owners:
            if owner is not None and self.joint(owner) is not None and self.wanted_range(("open", owner)) is not None:
                return owner
        return None

    # --- the hand ----------------------------------------------------------------------------------------

    def hand(self) -> tuple[Array, Array]:
        """The gripper site: position (3,) in metres and rotation (3, 3); its z axis points out of the fingers."""
        data, robot = self._domain.sim.data, self._domain.robots[0]
        position = np.array(data.site_xpos[robot.eef_site_id], dtype=np.float64)
        return position, np.array(data.site_xmat[robot.eef_site_id], dtype=np.float64).reshape(3, 3)

    def wrist(self) -> float:
        """Angle of the arm's last joint, radians: −2.8973 to 2.8973."""
        return float(self._domain.sim.data.qpos[self._domain.robots[0]._ref_joint_pos_indexes[-1]])

    def opening(self) -> float:
        """Distance between the finger pads, metres: 0 to 0.08."""
        joints = self._domain.robots[0]._ref_gripper_joint_pos_indexes
        first, second = self._domain.sim.data.qpos[joints]
        return float(first - second)

    def gripped(self, name: str) -> bool:
        """Whether both fingers touch the object."""
        gripper = self._domain.robots[0].gripper
        touching = self._touching(name)
        return all(
            any(geom in touching for geom in self._names_to_ids(gripper.important_geoms[finger]))
            for finger in ("left_finger", "right_finger")
        )

    def supported(self, name: str) -> bool:
        """Whether the object touches anything but the robot and itself."""
        return bool(self._touching(name) - self._robot_geoms)

    # --- draws -------------------------------------------------------------------------------------------

    def jitter(self, generator: np.random.Generator, most_m: float) -> None:
        """Moves each free-standing object by up to `most_m` in x and y, unless that brings two closer than they may.

        Two objects may come as near as their horizontal radii allow, as in robosuite's placement samplers, or stay
        as near as they were drawn. Objects on or in another object or fixture, and those that carry one, stay.
        """
        domain = self._domain
        regions = domain.parsed_problem["regions"]
        tied: set[str] = set()
        for relation in domain.parsed_problem["initial_state"]:
            if relation[0] in ("on", "in"):
                base = regions[relation[2]]["target"] if relation[2] in regions else relation[2]
                if base in domain.obj_body_id:
                    tied |= {relation[1], base}
        for name in self.movable:
            offsets = generator.uniform(-most_m, most_m, size=(_PLACEMENT_TRIES, 2))
            if name not in tied:
                self._move_aside(name, offsets)
        domain.sim.forward()

    def _move_aside(self, name: str, offsets: Array) -> None:
        domain = self._domain
        joint = domain.objects_dict[name].joints[-1]
        pose = np.array(domain.sim.data.get_joint_qpos(joint), dtype=np.float64)
        old = pose[:2].copy()
        others = [other for other in domain.obj_body_id if other != name]
        centres = np.array([self._placed_position(other)[:2] for other in others]).reshape(-1, 2)
        radii = np.array([self._radius(name) + self._radius(other) for other in others])
        allowed = np.minimum(radii, np.linalg.norm(centres - old, axis=1))
        for offset in offsets:
            if np.all(np.linalg.norm(centres - (old + offset), axis=1) >= allowed):
                pose[:2] = old + offset
                domain.sim.data.set_joint_qpos(joint, pose)
                return

    def _placed_position(self, name: str) -> Array:
        """Where an object was put, before MuJoCo's kinematics ran."""
        domain = self._domain
        if name in domain.objects_dict:
            return np.asarray(domain.sim.data.get_joint_qpos(domain.objects_dict[name].joints[-1])[:3])
        return np.asarray(domain.sim.model.body_pos[domain.obj_body_id[name]])

    def _radius(self, name: str) -> float:
        return float(getattr(self._domain.get_object(name), "horizontal_radius", 0.0))

    # --- shapes and contacts -----------------------------------------------------------------------------

    def _geoms_of(self, name: str) -> list[int]:
        if name not in self._geoms:
            model = self._domain.sim.model
            root = self._domain.obj_body_id[name]
            self._geoms[name] = [
                geom
                for geom in range(model.ngeom)
                if self._descends(int(model.geom_bodyid[geom]), root)
                and (model.geom_contype[geom] or model.geom_conaffinity[geom])
            ]
        return self._geoms[name]

    @cached_property
    def _solid(self) -> NDArray[np.int64]:
        """The geoms that anything can touch, planes and the robot's left out."""
        model = self._domain.sim.model
        touchable = np.asarray(model.geom_contype).astype(bool) | np.asarray(model.geom_conaffinity).astype(bool)
        geoms = np.flatnonzero(touchable & (np.asarray(model.geom_type) != _PLANE))
        return np.array([geom for geom in geoms if int(geom) not in self._robot_geoms], dtype=np.int64)

    @cached_property
    def _loose(self) -> NDArray[np.bool_]:
        """Which of them belong to movable objects."""
        return np.isin(self._solid, [geom for name in self.movable for geom in self._geoms_of(name)])

    @cached_property
    def _local_boxes(self) -> tuple[Array, Array]:
        """Their boxes in their own frames: middles and half extents, (n, 3)."""
        points = [self._local_points(int(geom)) for geom in self._solid]
        low = np.array([part.min(axis=0) for part in points])
        high = np.array([part.max(axis=0) for part in points])
        return (low + high) / 2, (high - low) / 2

    def _part_of(self, body: int) -> NDArray[np.bool_]:
        """Which solid geoms belong to a body."""
        if body not in self._parts:
            bodies = np.asarray(self._domain.sim.model.geom_bodyid)[self._solid]
            self._parts[body] = np.array([self._descends(int(other), body) for other in bodies])
        return self._parts[body]

    def _boxes(self, which: NDArray[np.bool_]) -> Boxes:
        data, geoms = self._domain.sim.data, self._solid[which]
        axes = np.asarray(data.geom_xmat, dtype=np.float64)[geoms].reshape(-1, 3, 3)
        middles, halves = self._local_boxes
        shift = np.einsum("nij,nj->ni", axes, middles[which])
        return Boxes(np.asarray(data.geom_xpos)[geoms] + shift, axes, halves[which])

    def _descends(self, body: int, root: int) -> bool:
        parents = self._domain.sim.model.body_parentid
        while body not in (0, root):
            body = int(parents[body])
        return body == root

    def _local_shapes(self, name: str) -> tuple[NDArray[np.int64], Array]:
        """The collision geoms of an object and their points in each geom's frame, padded by repeating the first."""
        if name not in self._shapes:
            geoms = self._geoms_of(name)
            points = [self._local_points(geom) for geom in geoms]
            most = max((len(part) for part in points), default=1)
            padded = [np.concatenate([part, np.repeat(part[:1], most - len(part), axis=0)]) for part in points]
            self._shapes[name] = np.array(geoms, dtype=np.int64), np.array(padded).reshape(len(geoms), most, 3)
        return self._shapes[name]

    def _local_points(self, geom: int) -> Array:
        model = self._domain.sim.model
        kind, size = int(model.geom_type[geom]), np.asarray(model.geom_size[geom])
        if kind == _MESH:
            mesh = int(model.geom_dataid[geom])
            first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
            return np.asarray(model.mesh_vert[first : first + count], dtype=np.float64)
        if kind in (_CYLINDER, _CAPSULE):
            half_height = size[1] + (size[0] if kind == _CAPSULE else 0.0)
            angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
            ring = size[0] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            return np.concatenate([np.c_[ring, np.full(12, z)] for z in (-half_height, half_height)])
        half = {_BOX: size, _ELLIPSOID: size, _SPHERE: np.repeat(size[0], 3)}[kind]
        signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
        return np.asarray(signs * half, dtype=np.float64)

    def _touching(self, name: str) -> set[int]:
        """Geoms of others in contact with the object."""
        data = self._domain.sim.data
        own = set(self._geoms_of(name))
        touching: set[int] = set()
        for index in range(data.ncon):
            contact = data.contact[index]
            first, second = int(contact.geom1), int(contact.geom2)
            if (first in own) != (second in own):
                touching.add(second if first in own else first)
        return touching

    @cached_property
    def _robot_geoms(self) -> set[int]:
        model = self._domain.sim.model
        names = [model.body_id2name(int(body)) or "" for body in model.geom_bodyid]
        return {geom for geom, name in enumerate(names) if name.startswith(("robot0_", "gripper0_", "mount0_"))}

    def _names_to_ids(self, names: list[str]) -> list[int]:
        return [int(self._domain.sim.model.geom_name2id(name)) for name in names]
