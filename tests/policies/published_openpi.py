"""Asks a policy server by the published `openpi-client` package, in an environment that has it and not the harness.

`python published_openpi.py HOST PORT` prints what it got as one line of JSON.
"""

import json
import sys

import numpy as np
from openpi_client.image_tools import convert_to_uint8, resize_with_pad
from openpi_client.websocket_client_policy import WebsocketClientPolicy

client = WebsocketClientPolicy(host=sys.argv[1], port=int(sys.argv[2]))
image = np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)
request = {
    "observation/image": convert_to_uint8(resize_with_pad(image, 48, 48)),
    "observation/wrist_image": convert_to_uint8(resize_with_pad(image[::-1], 48, 48)),
    "observation/state": np.linspace(-0.5, 0.5, 8),
    "prompt": "reach for object 1",
}
first, again = client.infer(request), client.infer(request)
try:
    client.infer({"prompt": "no image"})
    error = ""
except RuntimeError as refused:
    error = str(refused)
print(
    json.dumps(
        {
            "metadata": client.get_server_metadata(),
            "actions": first["actions"].tolist(),
            "dtype": first["actions"].dtype.str,
            "repeats": bool((first["actions"] == again["actions"]).all()),
            "timing": sorted(first["server_timing"]),
            "error": error,
        }
    )
)
