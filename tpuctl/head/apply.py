"""Carries out a head plan, one action after the other. Stopped anywhere, the next observation goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import assert_never

from tpuctl.base.chance import Chance, new_token
from tpuctl.base.ids import Zone
from tpuctl.cloud.errors import AlreadyExistsError, NotFoundError
from tpuctl.cloud.model import ComputeApi, SecretApi
from tpuctl.head.model import (
    CreateDisk,
    CreateSecret,
    DeleteDisk,
    DeleteHead,
    DeleteSecret,
    HeadAction,
    HeadNames,
    InsertHead,
)

Say = Callable[[str], None]
Metadata = Callable[[Zone], Mapping[str, str]]


@dataclass(frozen=True)
class HeadApplier:
    """`metadata` makes the head's for the zone it goes to. `say` hears what is being done, before it is done."""

    compute: ComputeApi
    secrets: SecretApi
    names: HeadNames
    chance: Chance
    metadata: Metadata
    say: Say

    def apply(self, action: HeadAction) -> str:
        """The name that turned out to be taken, or "". Taken is fine when it is ours: the next observation tells.

        Raises CloudError: the rest of the plan is void.
        """
        self.say(describe(action))
        try:
            self._do(action)
        except AlreadyExistsError:
            return _name(action)
        return ""

    def _do(self, action: HeadAction) -> None:
        match action:
            case CreateSecret():
                if action.replace_empty:
                    with suppress(NotFoundError):
                        self.secrets.delete_secret(action.name)
                self.secrets.create_secret(action.name, new_token(), self.names.labels)
            case CreateDisk():
                labels, request_id = self.names.labels, self.chance.request_id()
                self.compute.insert_disk(action.zone, action.name, action.size_gb, labels, request_id)
            case InsertHead():
                request = replace(action.request, metadata=self.metadata(action.request.zone))
                self.compute.insert_instance(request, self.chance.request_id())
            case DeleteHead():
                with suppress(NotFoundError):
                    self.compute.delete_instance(action.zone, action.name, self.chance.request_id())
            case DeleteDisk():
                with suppress(NotFoundError):
                    self.compute.delete_disk(action.zone, action.name, self.chance.request_id())
            case DeleteSecret():
                with suppress(NotFoundError):
                    self.secrets.delete_secret(action.name)
            case _:
                assert_never(action)


def describe(action: HeadAction) -> str:
    match action:
        case CreateSecret():
            return f"make secret {action.name} ({action.reason})"
        case CreateDisk():
            return f"make disk {action.name} in {action.zone} ({action.reason})"
        case InsertHead():
            return f"make head {action.request.name} in {action.request.zone} ({action.reason})"
        case DeleteHead():
            return f"delete head {action.name} in {action.zone} ({action.reason})"
        case DeleteDisk():
            return f"delete disk {action.name} in {action.zone} ({action.reason})"
        case DeleteSecret():
            return f"delete secret {action.name} ({action.reason})"
        case _:
            assert_never(action)


def _name(action: HeadAction) -> str:
    return action.request.name if isinstance(action, InsertHead) else action.name
