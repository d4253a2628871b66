"""How a client gets to the agent. Today: straight to the head's internal address, from inside the network."""

from __future__ import annotations

from tpuctl.base.errors import UserError

AGENT_PORT = 7578
DIRECT = frozenset({"auto", "direct"})


class ReachError(UserError):
    """The wished way does not exist yet."""


def check_reach(reach: str) -> None:
    """Raises ReachError for ways that later work brings; called before anything is made."""
    if reach not in DIRECT:
        raise ReachError(
            f"`head.reach: {reach}` is not there yet. Use `auto` or `direct` and run tpuctl where the head's internal "
            "address answers: on a VM of the same network, or through a VPN or tunnel of your own."
        )


def agent_address(internal: str) -> str:
    """The agent's root for an internal address; "" while the VM has none."""
    return f"http://{internal}:{AGENT_PORT}" if internal else ""


def unreachable_hint(address: str) -> str:
    return (
        f"{address} does not answer from this machine. Is it inside the head's network? Tunnels (`head.reach: ssh` or "
        "`iap`) are not there yet."
    )
