"""Secret Manager v1: the few calls that one shared secret needs. A value is in no message and no log."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from googleapiclient import discovery

from tpuctl.base.clock import Clock, SystemClock
from tpuctl.cloud.access import http_for
from tpuctl.cloud.errors import NotFoundError, TransientError
from tpuctl.cloud.failures import cloud_call
from tpuctl.cloud.retry import reading

TIMEOUT_S = 20.0


class RestSecrets:
    """SecretApi. Safe to use from several threads: each call has its own connection."""

    def __init__(self, endpoint: str, project: str, *, http: Any = None, clock: Clock | None = None) -> None:
        self._endpoint, self._project, self._http = endpoint, project, http
        self._clock: Clock = clock or SystemClock()
        with cloud_call(f"use {endpoint}"):
            service = discovery.build(
                "secretmanager",
                "v1",
                http=http or http_for(endpoint, TIMEOUT_S),
                static_discovery=True,
                cache_discovery=False,
                client_options={"api_endpoint": f"{endpoint}/"},
            )
        # Each of these builds its methods anew from the document when asked for, which costs more than a call.
        self._secrets = service.projects().secrets()
        self._versions = self._secrets.versions()

    def create_secret(self, name: str, value: str, labels: Mapping[str, str]) -> None:
        """Killed between its two calls it leaves a secret without a version: read_secret says NotFoundError then."""
        body = {"replication": {"automatic": {}}, "labels": dict(labels)}
        create = self._secrets.create(parent=f"projects/{self._project}", secretId=name, body=body)
        self._execute(create, f"create secret {name!r}")
        payload = {"payload": {"data": base64.b64encode(value.encode()).decode()}}
        self._execute(
            self._secrets.addVersion(parent=self._path(name), body=payload), f"add the version of secret {name!r}"
        )

    def read_secret(self, name: str) -> str:
        what = f"read secret {name!r}"
        call = self._versions.access(name=f"{self._path(name)}/versions/latest")
        answer = reading(lambda: self._execute(call, what), self._clock)
        try:
            return base64.b64decode(answer["payload"]["data"], validate=True).decode()
        except (KeyError, TypeError, binascii.Error, UnicodeDecodeError):
            # Without its cause: the cause's text may hold the value.
            raise TransientError(f"{what}: the answer holds no readable value") from None

    def has_secret(self, name: str) -> bool:
        call = self._secrets.get(name=self._path(name))
        try:
            reading(lambda: self._execute(call, f"get secret {name!r}"), self._clock)
        except NotFoundError:
            return False
        return True

    def delete_secret(self, name: str) -> None:
        self._execute(self._secrets.delete(name=self._path(name)), f"delete secret {name!r}")

    def _path(self, name: str) -> str:
        return f"projects/{self._project}/secrets/{name}"

    def _execute(self, call: Any, what: str) -> Any:
        with cloud_call(what):
            return call.execute(http=self._http or http_for(self._endpoint, TIMEOUT_S), num_retries=0)
