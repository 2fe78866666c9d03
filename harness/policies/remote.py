"""Policies behind a URL: which client a scheme stands for. Imports a client only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from harness.errors import BadInput
from harness.policies.base import Policy


def _openpi(url: str) -> Policy:
    from harness.policies.openpi import OpenpiPolicy

    return OpenpiPolicy(url)


def _vla_eval(url: str) -> Policy:
    from harness.policies.vla_eval import VlaEvalPolicy

    return VlaEvalPolicy(url)


def _dexbotic(url: str) -> Policy:
    from harness.policies.dexbotic import DexboticPolicy

    return DexboticPolicy(url)


def _dexbotic_v1(url: str) -> Policy:
    from harness.policies.dexbotic import DexboticV1Policy

    return DexboticV1Policy(url)


_Client = Callable[[str], Policy]

SCHEMES: dict[str, tuple[str, _Client]] = {
    "ws": ("ws", _openpi),
    "wss": ("wss", _openpi),
    "vla-eval+ws": ("ws", _vla_eval),
    "vla-eval+wss": ("wss", _vla_eval),
    "dexbotic+http": ("http", _dexbotic),
    "dexbotic+https": ("https", _dexbotic),
    "dexbotic-v1+http": ("http", _dexbotic_v1),
    "dexbotic-v1+https": ("https", _dexbotic_v1),
}
"""Scheme → the scheme on the wire, and its client."""


def is_url(text: str) -> bool:
    """Whether a policy is named by a URL."""
    return "://" in text


def check_url(url: str) -> None:
    """Raises BadInput when no client speaks the scheme, or there is no host."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise BadInput("--policy", None, scheme, "a scheme of a policy server", SCHEMES)
    if not rest.strip("/"):
        raise BadInput("--policy", None, url, f"{scheme}://host:port")


def remote_policy(url: str) -> Policy:
    """The client for a URL. Nothing is sent yet. Raises BadInput as `check_url`."""
    check_url(url)
    scheme, _, rest = url.partition("://")
    wire, client = SCHEMES[scheme]
    return client(f"{wire}://{rest}")
