"""One control step of robosuite's arm loop (50 ms, 25 physics steps), bit for bit and without its repeated work.

robosuite 1.4.0 (`environments/base.py: step`, `controllers/osc.py`) evaluates the whole dynamics three times in each
physics step: before the controller, inside it, and in `mj_step`. The first and the second see the same positions,
velocities and controls, so they agree in everything but the constraint solver's warm start; the third differs from
them in the controls alone. Here the stages that would give the same bits again are left out: positions and velocities
are computed once, the solver runs as often as it did. Sensors that nobody reads are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class ArmLoop:
    """Carries out control steps of a single-armed domain under robosuite's `OSC_POSE` with fixed impedance.

    Args:
        domain: LIBERO's `BDDLBaseDomain`; its model must not be rebuilt.
    """

    def __init__(self, domain: Any) -> None:
        import mujoco

        self._mujoco, self._domain = mujoco, domain
        sim, (robot,) = domain.sim, domain.robots
        self._model, self._data = sim.model._model, sim.data._data
        self._robot = robot
        self._site = sim.model.site_name2id(robot.controller.eef_name)
        self._substeps = int(domain.control_timestep / domain.model_timestep)
        self._arm_actuators = list(robot._ref_joint_actuator_indexes)
        self._fingers = [sim.model.actuator_name2id(name) for name in robot.gripper.actuators]
        self._torque_low, self._torque_high = (np.array(limit) for limit in robot.torque_limits)
        span = sim.model.actuator_ctrlrange[self._fingers]
        self._finger_middle = 0.5 * (span[:, 1] + span[:, 0])
        self._finger_half = 0.5 * (span[:, 1] - span[:, 0])

    def step(self, action: Array, sample: Callable[[], None]) -> None:
        """Applies one action for 50 ms.

        Args:
            action: float64 (7,): position, orientation, gripper, each in [-1, 1].
            sample: called at the physics step after which robosuite samples its observables.
        """
        if len(action) != self._robot.action_dim:
            raise ValueError(f"an action has {self._robot.action_dim} numbers, got {len(action)}")
        mujoco, model, data = self._mujoco, self._model, self._data
        controller = self._robot.controller
        arm, grip = action[: controller.control_dim], np.sign(action[controller.control_dim :])
        clock = _SampleClock(self._domain._observables.values(), self._domain.model_timestep)
        for substep in range(self._substeps):
            mujoco.mj_forward(model, data)
            if controller.new_update:  # not in the first step after a reset, which acts on what the reset saw
                mujoco.mj_fwdConstraint(model, data)  # the controller's own forward pass: only the warm start moves
                self._perceive(controller)
            if substep == 0:
                controller.set_goal(arm)
            torques = np.clip(_torques(controller), self._torque_low, self._torque_high)
            data.ctrl[self._fingers] = self._finger_middle + self._finger_half * self._move_fingers(grip)
            data.ctrl[self._arm_actuators] = torques
            controller.new_update = True
            self._integrate()
            if clock.tick():
                sample()
        clock.store()
        self._domain.timestep += 1
        self._domain.cur_time += self._domain.control_timestep

    def _perceive(self, controller: Any) -> None:
        """What `Controller.update` reads of the arm, by number instead of by name."""
        mujoco, model, data = self._mujoco, self._model, self._data
        qpos, qvel = controller.qpos_index, controller.qvel_index
        along, around = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        mujoco.mj_jacSite(model, data, along, around, self._site)
        controller.ee_pos = np.array(data.site_xpos[self._site])
        controller.ee_ori_mat = np.array(data.site_xmat[self._site].reshape([3, 3]))
        controller.ee_pos_vel = np.dot(along, data.qvel)
        controller.ee_ori_vel = np.dot(around, data.qvel)
        controller.joint_pos = np.array(data.qpos[qpos])
        controller.joint_vel = np.array(data.qvel[qvel])
        controller.J_pos = np.array(along[:, qvel])
        controller.J_ori = np.array(around[:, qvel])
        controller.J_full = np.vstack([controller.J_pos, controller.J_ori])
        mass = np.empty((model.nv, model.nv))
        mujoco.mj_fullM(model, mass, data.qM)
        controller.mass_matrix = mass[qvel, :][:, qvel]
        controller.new_update = False

    def _move_fingers(self, direction: Array) -> Array:
        """`PandaGripper.format_action`: the command moves by 0.01 in each physics step."""
        gripper = self._robot.gripper
        moved = gripper.current_action + np.array([-1.0, 1.0]) * gripper.speed * direction
        gripper.current_action = np.clip(moved, -1.0, 1.0)
        return np.asarray(gripper.current_action)

    def _integrate(self) -> None:
        """`mj_step` with new controls after a forward pass at the same positions and velocities."""
        mujoco, model, data = self._mujoco, self._model, self._data
        before = data.time
        mujoco.mj_checkPos(model, data)
        mujoco.mj_checkVel(model, data)
        blown_up = data.time != before  # and was reset by the checks: nothing computed before holds
        (mujoco.mj_step if blown_up else mujoco.mj_step2)(model, data)


def _torques(controller: Any) -> Array:
    """`OperationalSpaceController.run_controller`, for goals without interpolation and uncoupled pose control.

    Written with robosuite's own compiled functions and in its order of operations, hence its bits.
    """
    from robosuite.utils.control_utils import nullspace_torques, opspace_matrices, orientation_error

    turn = orientation_error(controller.goal_ori, controller.ee_ori_mat)
    force = (controller.goal_pos - controller.ee_pos) * controller.kp[0:3] - controller.ee_pos_vel * controller.kd[0:3]
    torque = turn * controller.kp[3:6] - controller.ee_ori_vel * controller.kd[3:6]
    _, lambda_pos, lambda_ori, nullspace = opspace_matrices(
        controller.mass_matrix, controller.J_full, controller.J_pos, controller.J_ori
    )
    wrench = np.concatenate([np.dot(lambda_pos, force), np.dot(lambda_ori, torque)])
    torques = np.dot(controller.J_full.T, wrench) + controller.torque_compensation
    torques += nullspace_torques(
        controller.mass_matrix, nullspace, controller.initial_joint, controller.joint_pos, controller.joint_vel
    )
    return np.asarray(torques)


class _SampleClock:
    """When robosuite's observables sample: once in each control period, at a physics step that depends on how their
    clocks were left. All of a LIBERO domain's observables run in step, so one clock stands for them."""

    def __init__(self, observables: Sequence[Any], timestep: float) -> None:
        self._observables, self._timestep = [each for each in observables if each.is_enabled()], timestep
        settings = {
            (each._time_since_last_sample, each._sampled, each._sampling_timestep, each._current_delay)
            for each in self._observables
        }
        if len(settings) != 1:
            raise ValueError("observables of one scene sample at different moments")
        ((self._time, self._sampled, self._period, self._delay),) = settings

    def tick(self) -> bool:
        """One physics step later: whether to sample now. The arithmetic is `Observable.update`'s."""
        self._time += self._timestep
        due = not self._sampled and self._period - self._delay >= self._time
        self._sampled = self._sampled or due
        if self._time >= self._period:
            due = due or not self._sampled
            self._time %= self._period
            self._sampled = False
        return due

    def store(self) -> None:
        """Leaves the observables' clocks as robosuite would have left them."""
        for each in self._observables:
            each._time_since_last_sample, each._sampled = self._time, self._sampled
