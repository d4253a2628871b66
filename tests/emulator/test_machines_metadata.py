"""The metadata server of a machine, as programs on it see it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import aiohttp
import pytest

from tpuctl.emulator.events import GuestAttribute, VmDescription
from tpuctl.emulator.metadata import FLAVOR, MetadataServer
from tpuctl.testing.machines import lab_address, until

VM = VmDescription(
    name="n-w-1",
    address=lab_address(200),
    project="my-project",
    zone="us-central2-b",
    numeric_id=4711,
    attributes={"agent-worker-number": "1", "my-key": "a\nb", "startup-script": "true"},
    preemptible=True,
)


class Client:
    def __init__(self, server: MetadataServer, session: aiohttp.ClientSession, reports: list[GuestAttribute]) -> None:
        self.server = server
        self.reports = reports
        self._session = session

    async def call(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None, body: str | None = None
    ) -> tuple[int, str, Mapping[str, str]]:
        url = f"http://{self.server.host}{path}"
        given = {"Metadata-Flavor": "Google"} if headers is None else headers
        async with self._session.request(method, url, headers=given, data=body, allow_redirects=False) as answer:
            assert answer.headers["Metadata-Flavor"] == "Google"
            return answer.status, await answer.text(), answer.headers

    async def text(self, key: str) -> str:
        status, text, _ = await self.call(f"/computeMetadata/v1/{key}")
        assert status == 200, text
        return text


def ask(story: Callable[[Client], Coroutine[Any, Any, None]], vm: VmDescription = VM) -> None:
    async def inside() -> None:
        reports: list[GuestAttribute] = []
        server = MetadataServer(vm, reports.append)
        await server.start()
        try:
            async with aiohttp.ClientSession() as session:
                await story(Client(server, session, reports))
        finally:
            await server.stop()

    asyncio.run(inside())


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("instance/name", "n-w-1"),
        ("instance/id", "4711"),
        ("instance/zone", "projects/100000000001/zones/us-central2-b"),
        ("instance/hostname", "n-w-1.us-central2-b.c.my-project.internal"),
        ("instance/preempted", "FALSE"),
        ("instance/maintenance-event", "NONE"),
        ("instance/attributes/my-key", "a\nb"),
        ("instance/attributes/", "agent-worker-number\nmy-key\nstartup-script\n"),
        ("instance/network-interfaces/0/ip", VM.address),
        ("instance/service-accounts/default/scopes", "https://www.googleapis.com/auth/cloud-platform"),
        ("project/project-id", "my-project"),
        ("project/numeric-project-id", "100000000001"),
        ("universe/universe-domain", "googleapis.com"),
    ],
    ids=lambda word: None if word != VM.address else "own-address",  # it differs from process to process
)
def test_keys(key: str, text: str) -> None:
    async def story(client: Client) -> None:
        assert await client.text(key) == text

    ask(story)


def test_manners_of_the_real_server() -> None:
    async def story(client: Client) -> None:
        name = "/computeMetadata/v1/instance/name"
        assert (await client.call(name, headers={}))[0] == 403
        assert (await client.call(name, headers={**FLAVOR, "X-Forwarded-For": "1.2.3.4"}))[0] == 403
        assert (await client.call("/", headers={}))[0] == 200
        assert (await client.call("/computeMetadata/v1/instance/attributes/none"))[0] == 404
        assert (await client.call(name, method="PUT", body="x"))[0] == 405
        status, _, headers = await client.call("/computeMetadata/v1/instance/attributes?recursive=true")
        assert (status, headers["Location"]) == (301, "/computeMetadata/v1/instance/attributes/?recursive=true")

    ask(story)


def test_recursive_answer_is_json_in_camel_case_with_the_users_keys_as_written() -> None:
    async def story(client: Client) -> None:
        instance = json.loads(await client.text("instance/?recursive=true"))
        assert instance["maintenanceEvent"] == "NONE"
        assert instance["attributes"]["my-key"] == "a\nb"
        assert instance["networkInterfaces"] == [{"ip": VM.address}]
        assert instance["id"] == 4711
        assert "attributes/my-key a\nb\n" in await client.text("instance/?recursive=true&alt=text")
        assert await client.text("instance/name?alt=json") == '"n-w-1"'

    ask(story)


def test_googles_client_library_finds_itself_on_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(client: Client) -> None:
        script = (
            "import google.auth.compute_engine._metadata as m, google.auth.transport.requests as r\n"
            "from google.auth.compute_engine import Credentials\n"
            "request = r.Request(); assert m.ping(request); c = Credentials(); c.refresh(request)\n"
            "print(m.get_project_id(request), c.token, c.service_account_email)"
        )
        environment = {"GCE_METADATA_HOST": client.server.host, "GCE_METADATA_IP": client.server.host}
        python = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, env=environment, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await python.communicate()
        project, token, email = out.decode().split()
        assert project == "my-project"
        assert token == "ya29.emulated-4711"
        assert email == "100000000001-compute@developer.gserviceaccount.com"

    ask(story)


def test_wait_for_change_wakes_at_the_notice() -> None:
    async def story(client: Client) -> None:
        key = "/computeMetadata/v1/instance/preempted"
        _, text, headers = await client.call(key)
        assert text == "FALSE"
        query = f"?wait_for_change=true&timeout_sec=30&last_etag={headers['ETag']}"
        waiting = asyncio.create_task(client.call(key + query))
        plain = asyncio.create_task(client.call(key + "?wait_for_change=true"))
        other = asyncio.create_task(client.call("/computeMetadata/v1/instance/name?wait_for_change=true"))
        await until(lambda: client.server.waiting == 3, "three waiting requests")

        client.server.set_preempted(preempted=True)

        assert (await asyncio.wait_for(waiting, 2))[1] == "TRUE"
        assert (await asyncio.wait_for(plain, 2))[1] == "TRUE"
        assert client.server.waiting == 1  # another key's change does not wake it
        other.cancel()
        await until(lambda: client.server.waiting == 0, "the wait to end with its client")

    ask(story)


def test_wait_for_change_with_an_old_etag_answers_at_once() -> None:
    async def story(client: Client) -> None:
        key = "/computeMetadata/v1/instance/preempted?wait_for_change=true&last_etag=0"
        assert (await asyncio.wait_for(client.call(key), 2))[1] == "FALSE"
        assert (await client.call(key + "&timeout_sec=soon"))[0] == 400


def test_wait_for_change_ends_with_the_value_as_it_is() -> None:
    async def story(client: Client) -> None:
        key = "/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=0"
        assert (await asyncio.wait_for(client.call(key), 2))[1] == "FALSE"

    ask(story)


def test_guest_attributes_are_reported_and_readable() -> None:
    async def story(client: Client) -> None:
        path = "/computeMetadata/v1/instance/guest-attributes/tpuctl/stage"
        assert (await client.call(path))[0] == 404
        assert (await client.call(path, "PUT", body="booting"))[0] == 200
        assert (await client.call(path))[1] == "booting"
        assert client.reports == [GuestAttribute("n-w-1", "tpuctl", "stage", "booting")]
        assert (await client.call(path, "PUT", body="x" * 300_000))[0] == 413
        assert (await client.call(path, "DELETE"))[0] == 200
        assert (await client.call(path, "DELETE"))[0] == 404

    ask(story)


@pytest.mark.parametrize(("value", "status"), [("TRUE", 200), ("true", 200), ("FALSE", 403), (None, 403)])
def test_an_instance_writes_guest_attributes_only_when_its_owner_allowed_it(value: str | None, status: int) -> None:
    attributes = {} if value is None else {"enable-guest-attributes": value}
    vm = VmDescription("head", lab_address(201), "p", "z", 1, attributes)

    async def story(client: Client) -> None:
        path = "/computeMetadata/v1/instance/guest-attributes/a/b"
        assert (await client.call(path, "PUT", body="x"))[0] == status
        assert len(client.reports) == (status == 200)

    ask(story, vm)


def test_held_server_answers_only_after_release() -> None:
    async def story(client: Client) -> None:
        client.server.hold()
        call = asyncio.create_task(client.text("instance/name"))
        await asyncio.sleep(0.1)
        assert not call.done()
        client.server.release()
        assert await asyncio.wait_for(call, 2) == "n-w-1"

    ask(story)


def test_stop_does_not_wait_for_those_who_wait() -> None:
    async def story(client: Client) -> None:
        key = "/computeMetadata/v1/instance/preempted?wait_for_change=true"
        waiting = asyncio.create_task(client.call(key))
        await until(lambda: client.server.waiting == 1, "a waiting request")
        client.server.hold()
        await asyncio.wait_for(client.server.stop(), 2)
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(waiting, 2)

    ask(story)


def test_next_port_is_taken_when_the_first_is_in_use() -> None:
    async def story(client: Client) -> None:
        second = MetadataServer(VM, client.reports.append)
        await second.start()
        assert second.port != client.server.port
        await second.stop()

    ask(story)
