"""Secret Manager v1, the few calls that one shared secret needs. Values appear in no log."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field

from tpuctl.base.units import Instant
from tpuctl.emulator.access import check_api, check_permission
from tpuctl.emulator.calls import Call
from tpuctl.emulator.filters import matches
from tpuctl.emulator.wire import Answer, Json, ServiceError
from tpuctl.emulator.world import World

_PATH = re.compile(
    r"/v1/projects/(?P<project>[^/:]+)/secrets(?:/(?P<name>[^/:]+)(?:/versions/(?P<version>[^/:]+))?)?(?::(?P<verb>\w+))?"
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,255}")


@dataclass(slots=True)
class SecretRecord:
    path: str
    created: Instant
    labels: dict[str, str]
    replication: Json
    versions: list[bytes] = field(default_factory=list, repr=False)

    def document(self) -> Json:
        return {
            "name": self.path,
            "createTime": self.created.iso(),
            "labels": dict(self.labels),
            "replication": self.replication,
        }


class SecretManagerApi:
    def __init__(self, world: World) -> None:
        self._world = world
        self._secrets: dict[str, SecretRecord] = {}

    def owns(self, path: str) -> bool:
        return path.startswith("/v1/projects/")

    def handle(self, call: Call) -> Answer:
        """Raises ServiceError."""
        match = _PATH.fullmatch(call.request.path)
        if match is None:
            raise ServiceError("NOT_FOUND", f"The requested URL {call.request.path} was not found on this server.")
        project, name, version, verb = (match[key] or "" for key in ("project", "name", "version", "verb"))
        check_api(self._world.settings, "secretmanager", project)
        path = f"projects/{project}/secrets/{name}"
        method = call.request.method
        if method == "POST" and not name:
            return self._create(call, project)
        if method == "GET" and not name:
            return self._list(call, project)
        permission = "secretmanager.versions.access" if verb == "access" else f"secretmanager.secrets.{method.lower()}"
        check_permission(self._world.settings, permission, path)
        match (method, bool(version), verb):
            case ("GET", False, ""):
                record = self._get(path)
                return Answer(record.document(), resource=path, labels=record.labels)
            case ("DELETE", False, ""):
                return self._delete(call, path)
            case ("POST", False, "addVersion"):
                return self._add_version(call, path)
            case ("GET", True, "access"):
                return self._access(path, version)
            case _:
                raise ServiceError("UNIMPLEMENTED", f"{method} {call.request.path}: not emulated.")

    def _create(self, call: Call, project: str) -> Answer:
        name, body = call.request.query.get("secretId", ""), call.request.document()
        path = f"projects/{project}/secrets/{name}"
        check_permission(self._world.settings, "secretmanager.secrets.create", path)
        if not _NAME.fullmatch(name):
            raise ServiceError(
                "INVALID_ARGUMENT", "The provided Secret ID does not match the expected format [[a-zA-Z_0-9]+]."
            )
        if not body.get("replication"):
            raise ServiceError("INVALID_ARGUMENT", "The replication policy is required.")
        if path in self._secrets:
            raise ServiceError("ALREADY_EXISTS", f"Secret [{path}] already exists.")
        record = SecretRecord(path, call.now, dict(body.get("labels") or {}), body["replication"])
        self._secrets[path] = record
        self._world.note(call.now, path, "EXISTS", "created", record.labels)
        return Answer(record.document(), effect=True, resource=path, labels=record.labels)

    def _list(self, call: Call, project: str) -> Answer:
        check_permission(self._world.settings, "secretmanager.secrets.list", f"projects/{project}")
        text = call.request.query.get("filter", "")
        names = sorted(path for path in self._secrets if path.startswith(f"projects/{project}/"))
        found = [(path, self._secrets[path].document()) for path in names]
        found = [(path, document) for path, document in found if matches(text, document)]
        page, token = call.page([item for _, item in found], [path for path, _ in found], 100, "pageSize")
        return Answer({"secrets": page, "totalSize": len(found)} | ({"nextPageToken": token} if token else {}))

    def _delete(self, call: Call, path: str) -> Answer:
        record = self._get(path)
        del self._secrets[path]
        self._world.note(call.now, path, "GONE", "deleted", record.labels)
        return Answer({}, effect=True, resource=path, labels=record.labels)

    def _add_version(self, call: Call, path: str) -> Answer:
        record = self._get(path)
        data = (call.request.document().get("payload") or {}).get("data", "")
        try:
            record.versions.append(base64.b64decode(data, validate=True))
        except (binascii.Error, TypeError) as error:
            raise ServiceError("INVALID_ARGUMENT", "Invalid value at 'payload.data' (TYPE_BYTES).") from error
        document = {
            "name": f"{path}/versions/{len(record.versions)}",
            "createTime": call.now.iso(),
            "state": "ENABLED",
        }
        return Answer(document, effect=True, resource=path, labels=record.labels)

    def _access(self, path: str, version: str) -> Answer:
        record = self._get(path)
        number = len(record.versions) if version == "latest" else int(version) if version.isdigit() else 0
        if not 1 <= number <= len(record.versions):
            raise ServiceError("NOT_FOUND", f"Secret Version [{path}/versions/{version}] not found.")
        value = record.versions[number - 1]
        document = {
            "name": f"{path}/versions/{number}",
            "payload": {"data": base64.b64encode(value).decode()},
        }
        return Answer(document, resource=path, labels=record.labels)

    def _get(self, path: str) -> SecretRecord:
        record = self._secrets.get(path)
        if record is None:
            raise ServiceError("NOT_FOUND", f"Secret [{path}] not found.")
        return record
