import json
import subprocess
import sys

import pytest

from harness.libero.gpu import EglDevice, device_variables

# As on a machine with four GPUs, whose EGL order is not CUDA's, and a software renderer.
DEVICES = [EglDevice(0, 2), EglDevice(1, 0), EglDevice(2, None), EglDevice(3, 1), EglDevice(4, 3)]


def chosen(environment, count=6):
    found = [device_variables(number, DEVICES, environment) for number in range(count)]
    assert all(variables["CUDA_VISIBLE_DEVICES"] == "" for variables in found if variables)
    return [variables.get("MUJOCO_EGL_DEVICE_ID") for variables in found]


def test_simulators_are_dealt_out_over_the_gpus_and_never_on_the_software_renderer():
    assert chosen({}) == ["0", "1", "3", "4", "0", "1"]


def test_visible_devices_are_cudas_and_are_translated():
    assert chosen({"CUDA_VISIBLE_DEVICES": "3,0"}) == ["4", "1", "4", "1", "4", "1"]


@pytest.mark.parametrize("environment", [{"CUDA_VISIBLE_DEVICES": ""}, {"MUJOCO_EGL_DEVICE_ID": "2"}])
def test_no_gpu_or_the_users_own_choice_is_left_alone(environment):
    assert chosen(environment) == [None] * 6


def test_a_machine_without_gpus_sets_nothing():
    assert device_variables(0, [EglDevice(0, None)], {}) == {}
    assert device_variables(0, [], {}) == {}


def test_egl_can_be_asked():
    done = subprocess.run([sys.executable, "-m", "harness.libero.gpu"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("no EGL here")
    assert all(set(device) == {"egl", "cuda"} for device in json.loads(done.stdout))
