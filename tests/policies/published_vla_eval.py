"""Serves chunks by the published `vla-eval` package, in an environment that has it and not the harness.

`python published_vla_eval.py PORT`: action k of an episode is k in its first element, the brightest pixel in its
second, the state's first element in its third.
"""

import sys

import numpy as np
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.model_servers.serve import serve


class Counting(PredictModelServer):
    def __init__(self):
        super().__init__(chunk_size=4)

    def predict(self, obs, ctx):
        rows = np.zeros((4, 7), np.float32)
        rows[:, 0] = ctx.step + np.arange(4)
        rows[:, 1] = obs["images"]["agentview"].max()
        rows[:, 2] = obs["states"][0]
        return {"actions": rows}

    def get_observation_params(self):
        return {"send_wrist_image": True, "send_state": True, "quat_no_antipodal": True}

    def get_action_spec(self):
        return {}

    def get_observation_spec(self):
        return {}


serve(Counting(), host="127.0.0.1", port=int(sys.argv[1]))
