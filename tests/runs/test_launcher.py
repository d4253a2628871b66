"""The launcher with real bash and a real watchdog, without Ray: what a program is given, and what a host refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.base.ids import Epoch, PoolName, QrName, RunId, RunName, SliceName, Zone
from tpuctl.base.process import ProcessId, processes_with_environment, send_signal
from tpuctl.base.units import Instant
from tpuctl.runs.bundle import pack
from tpuctl.runs.launcher import Ended, Launcher, Prepared, Refused
from tpuctl.runs.orders import Order, OrderedSlice, RunDocument
from tpuctl.runs.program import Coordinator, Place, environment_of, places

EPOCH = Epoch("t6m8gb")
SLICES = tuple(
    OrderedSlice(SliceName(f"v4-{n}"), QrName(f"lab-v4-{n}-{EPOCH}-1"), Zone("zone-b"), PoolName("v4"), "v4-16", 2, 4)
    for n in range(2)
)
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def a_document(command: str | tuple[str, ...], env: dict[str, str] | None = None, bundle: str = "") -> RunDocument:
    pairs = tuple((env or {}).items())
    return RunDocument(
        RunName("r"), RunId("r-1-abcd"), EPOCH, command, pairs, "gs://b/r", 3.0, bundle, 25.0, 10.0, PoolName("v4")
    )


def an_order(*slices: OrderedSlice, epoch: Epoch = EPOCH) -> Order:
    return Order(1, epoch, 1, slices or SLICES[:1], Instant(0.0))


class Host:
    def __init__(self, root: Path) -> None:
        self.vm, self.work = root, root / "attempts/r-1-abcd/1"
        (root / "dev").mkdir()
        (root / "dev/accel0").touch()
        (root / "show.py").write_text(SHOW)
        (root / "token").write_text("secret\n")
        self.write_host(worker=0)
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": "/home/tpu",
            "PYTHONPATH": "/remote",
            "TPUCTL_VM_DIR": str(root),
            "TPU_DEV_ROOT": str(root / "dev"),
            "RAY_ADDRESS": "1.2.3.4:5",
            "OMP_NUM_THREADS": "1",
            "TPU_VISIBLE_CHIPS": "0,1,2,3",
            "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1",
            "MEGASCALE_NUM_SLICES": "3",
            "MEGASCALE_COORDINATOR_ADDRESS": "10.9.9.9",
            "MEGASCALE_TRANSPORT_TYPE": "grpc",
            "TPUCTL_RANK": "77",
            "PYTHONBREAKPOINT": "ray.util.rpdb.set_trace",
        }
        self.launcher = Launcher(SystemClock(), self.environment)

    def write_host(self, worker: int, agent: str = "http://127.0.0.1:9") -> None:
        host = {"incarnation": SLICES[0].incarnation, "worker": worker, "address": "127.0.0.1", "agent": agent}
        (self.vm / "host.json").write_text(json.dumps(host))

    def start(self, document: RunDocument, order: Order | None = None) -> None:
        order = order or an_order()
        prepared = self.launcher.prepare(document, order, places(order)[0])
        assert isinstance(prepared, Prepared), prepared
        assert self.launcher.start(prepared.coordinator, prepared.now_s + 30) is None

    def run(self, document: RunDocument, order: Order | None = None) -> Ended:
        self.start(document, order)
        return self.launcher.wait()

    def shown(self) -> tuple[list[str], dict[str, str]]:
        arguments, environment = json.loads((self.work / "rank.log").read_text())
        return arguments, environment


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def show(host: Host, line: str, env: dict[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    ended = host.run(a_document(line.replace("show.py", str(host.vm / "show.py")), env))
    assert ended == Ended(0, None, "exit", ())
    return host.shown()


# A27 to A31: commands and environments, byte for byte.


def test_redirect_of_a_shell_line_lands_in_the_attempts_directory(host: Host) -> None:
    host.run(a_document("echo test > output.txt"))

    assert (host.work / "output.txt").read_text() == "test\n"


def test_list_is_argv_and_no_shell_sees_it(host: Host) -> None:
    host.run(a_document(("python", str(host.vm / "show.py"), "a b", "c>d", "$HOME", "")))

    assert host.shown()[0] == ["a b", "c>d", "$HOME", ""]
    assert not (host.work / "d").exists()


@pytest.mark.parametrize(
    "line",
    [
        'python show.py --name "hello world"',
        """python show.py --resource "{'ps-a':{'cnt':1}}" --extra '' --msg "it's 5% \\"ok\\" \\\\ done\"""",
        "python show.py 'tab\there' $'new\\nline' \"$((1+2))\" é \"a\"'b'",
    ],
)
def test_quoting_is_that_of_a_local_bash(host: Host, line: str) -> None:
    local = ["bash", "-c", line.replace("show.py", str(host.vm / "show.py"))]
    expected = json.loads(subprocess.run(local, capture_output=True, check=True, env=host.environment).stdout)[0]

    assert show(host, line)[0] == expected


def test_line_that_lost_its_backslash_fails_with_127_and_says_which(host: Host) -> None:
    """A29."""
    line = f"python {host.vm}/show.py \\\n  --save-interval 10m\n  --steps 10000"

    assert host.run(a_document(line)).code == 127
    assert "--steps" in (host.work / "rank.log").read_text()


def test_environment_values_arrive_byte_for_byte(host: Host) -> None:
    env = {
        "A": "a=b=c==",
        "URL": "http://h:8080/p?q=1&r=2#x",
        "P": "C:\\dir x",
        "S": "  lead and trail  ",
        "J": '{"k": "v"}',
        "E": "",
        "N": "two\nlines é",
    }

    _, seen = show(host, "python show.py", env)

    assert {name: seen[name] for name in env} == env


def test_variables_are_expanded_on_the_host(host: Host) -> None:
    """A31."""
    line = "PYTHONPATH=$PYTHONPATH:proj/tests CI=1 python show.py -m 'not slow and not net' \"$HOME/x y\""

    arguments, seen = show(host, line)

    assert arguments == ["-m", "not slow and not net", "/home/tpu/x y"]
    assert (seen["PYTHONPATH"], seen["CI"]) == ("/remote:proj/tests", "1")


def test_pipe_does_not_hide_the_status(host: Host) -> None:
    """A36."""
    assert host.run(a_document("python -c 'import sys; sys.exit(3)' 2>&1 | tee run.log")).code == 3


# The names that are ours.


def test_program_sees_the_documented_names_and_nothing_of_ray_or_ours_else(host: Host) -> None:
    _, seen = show(host, "python show.py")

    ours = {name: value for name, value in seen.items() if name.startswith(("TPUCTL_", "JAX_"))}
    assert ours.pop("TPUCTL_COORDINATOR") == ours.pop("JAX_COORDINATOR_ADDRESS")
    assert ours == {
        "TPUCTL_RUN": "r",
        "TPUCTL_RUN_ID": "r-1-abcd",
        "TPUCTL_ATTEMPT": "1",
        "TPUCTL_CHECKPOINT_DIR": "gs://b/r",
        "TPUCTL_RANK": "0",
        "TPUCTL_WORLD_SIZE": "2",
        "TPUCTL_SLICE_ID": "0",
        "TPUCTL_NUM_SLICES": "1",
        "TPUCTL_ACCELERATOR": "v4-16",
        "TPUCTL_CHIPS": "4",
        "TPUCTL_POOL": "v4",
        "TPUCTL_ZONE": "zone-b",
    }
    strange = [name for name in seen if name.startswith(("RAY_", "MEGASCALE_", "OMP_")) or name.endswith("_BOUNDS")]
    assert strange == []
    assert "PYTHONBREAKPOINT" not in seen
    assert "TPU_VISIBLE_CHIPS" not in seen
    assert seen["TPU_DEV_ROOT"] == host.environment["TPU_DEV_ROOT"]


def test_multislice_names_describe_this_gang_and_not_the_platforms() -> None:
    """A37: the platform stamped three slices and an old address on the host; even the spec cannot override ours."""
    own = {"MEGASCALE_NUM_SLICES": "3", "MEGASCALE_COORDINATOR_ADDRESS": "10.9.9.9"}
    order = an_order(*SLICES)
    document = a_document("x", {"MEGASCALE_NUM_SLICES": "7", "OMP_NUM_THREADS": "8"})
    coordinator = Coordinator("127.0.0.5", 8500, 8501)

    seen = [environment_of(own, document, order, place, coordinator) for place in places(order)]
    single = environment_of(own, document, an_order(), places(an_order())[0], coordinator)

    assert [each["MEGASCALE_SLICE_ID"] for each in seen] == ["0", "0", "1", "1"]
    assert {each["MEGASCALE_NUM_SLICES"] for each in seen} == {"2"}
    assert {each["MEGASCALE_COORDINATOR_ADDRESS"] for each in seen} == {"127.0.0.5"}
    assert [each["TPUCTL_RANK"] for each in seen] == ["0", "1", "2", "3"]
    assert {each["OMP_NUM_THREADS"] for each in seen} == {"8"}, "what the user asks for is the user's"
    assert not any(name.startswith("MEGASCALE_") for name in single)


# What a host refuses.


def refusal(host: Host, document: RunDocument | None = None, order: Order | None = None, worker: int = 0) -> str:
    order = order or an_order()
    answer = host.launcher.prepare(document or a_document("true"), order, Place(worker, 0, worker, order.slices[0]))
    assert isinstance(answer, Refused), answer
    return answer.reason


def test_host_refuses_an_order_for_another_worker_or_incarnation(host: Host) -> None:
    assert (
        refusal(host, worker=1) == f"this host is worker 0 of {SLICES[0].incarnation}, not 1 of {SLICES[0].incarnation}"
    )
    assert SLICES[1].incarnation in refusal(host, order=an_order(SLICES[1]))


def test_host_refuses_an_older_epoch_and_remembers_a_newer_one(host: Host) -> None:
    newer = Epoch("t6m8gz")
    order = an_order(epoch=newer)
    assert isinstance(host.launcher.prepare(a_document("true"), order, places(order)[0]), Prepared)

    assert (host.vm / "epoch").read_text() == "t6m8gz\n"
    assert refusal(host) == f"the order is of epoch {EPOCH}, this host has heard of {newer}"


def test_host_whose_chips_are_in_use_refuses_and_kills_nobody(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A44 (c)."""
    monkeypatch.setattr("tpuctl.runs.launcher.CHIPS_PATIENCE_S", 0.2)
    chip = host.vm / "dev/accel0"
    with chip.open() as device:
        holder = subprocess.Popen(["sleep", "60"], stdin=device)

    reason = refusal(host)

    assert f"{chip} by process {holder.pid}" in reason
    assert holder.poll() is None
    holder.kill()
    holder.wait()


# The working directory.


@pytest.fixture
def agent() -> Iterator[tuple[str, dict[str, bytes], list[str]]]:
    """An agent that has bundles, behind the token. Yields its URL, its bundles, and the paths asked for."""
    bundles: dict[str, bytes] = {}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            data = bundles.get(self.path.rsplit("/", 1)[1], b"")
            self.send_response(200 if self.headers["Authorization"] == "Bearer secret" else 401)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bundles, asked
        server.shutdown()
        thread.join()


def test_working_directory_is_fetched_once_and_each_attempt_has_its_own_copy(
    host: Host, tmp_path: Path, agent: tuple[str, dict[str, bytes], list[str]]
) -> None:
    url, bundles, asked = agent
    source = tmp_path / "source"
    source.mkdir()
    (source / "data.txt").write_text("first\n")
    digest, bundles_data = pack(source)
    bundles[digest] = bundles_data
    host.write_host(0, url)

    host.run(a_document("cat data.txt; echo changed > data.txt", bundle=digest))
    second = Launcher(SystemClock(), host.environment)
    order = Order(2, EPOCH, 1, SLICES[:1], Instant(0.0))
    second.prepare(a_document("true", bundle=digest), order, places(order)[0])

    assert (host.work / "rank.log").read_text() == "first\n"
    assert (host.vm / "attempts/r-1-abcd/2/data.txt").read_text() == "first\n"
    assert asked == [f"/v1/bundles/{digest}"]


def test_no_proxy_of_the_environment_gets_the_token(
    host: Host, tmp_path: Path, agent: tuple[str, dict[str, bytes], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A VM's http_proxy is common; the agent is on our own network, and the call carries the cluster's secret."""
    url, bundles, asked = agent
    (tmp_path / "source").mkdir()
    digest, data = pack(tmp_path / "source")
    bundles[digest] = data
    host.write_host(0, url)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    host.run(a_document("true", bundle=digest))

    assert asked == [f"/v1/bundles/{digest}"]


def test_agent_that_refuses_is_not_asked_again_and_its_words_are_told(
    host: Host, agent: tuple[str, dict[str, bytes], list[str]]
) -> None:
    url, _, asked = agent
    (host.vm / "token").write_text("an old one\n")
    host.write_host(0, url)

    assert "could not be fetched" in (text := refusal(host, a_document("true", bundle="ab" * 32)))
    assert "HTTP 401" in text
    assert len(asked) == 1


def test_damaged_bundle_is_refused(host: Host, agent: tuple[str, dict[str, bytes], list[str]]) -> None:
    url, bundles, _ = agent
    bundles["ab" * 32] = b"something else"
    host.write_host(0, url)

    assert "arrived damaged" in refusal(host, a_document("true", bundle="ab" * 32))


# Ends.


def test_lease_that_was_renewed_before_the_program_started_counts(host: Host) -> None:
    """The order to start may have waited on its way for longer than the lease that it carries."""
    order = an_order()
    prepared = host.launcher.prepare(a_document("echo lives"), order, places(order)[0])
    assert isinstance(prepared, Prepared)

    host.launcher.beat(prepared.now_s + 30, 0)
    assert host.launcher.start(prepared.coordinator, prepared.now_s - 1) is None

    assert host.launcher.wait() == Ended(0, None, "exit", ())


def test_log_is_passed_on_as_bytes_in_pieces(host: Host) -> None:
    """A49."""
    host.run(a_document(r"printf 'caf\303'; printf '\251 \201 \0 50%%\r'"))

    assert host.launcher.read_log(0) == b"caf\xc3\xa9 \x81 \0 50%\r"
    assert host.launcher.read_log(4) == b"\xa9 \x81 \0 50%\r"


def test_everything_is_ended_although_the_watchdog_itself_was_killed(host: Host) -> None:
    host.start(a_document("setsid sleep 100 & sleep 100 & echo ready; wait"))
    while b"ready" not in host.launcher.read_log(0):
        SystemClock().sleep(0.01)
    watchdog = _watchdog_of(host)

    send_signal(watchdog, signal.SIGKILL)
    ended = host.launcher.wait()

    assert (ended.why, ended.left) == ("watchdog gone", ())
    assert processes_with_environment("TPUCTL_RUN_ID=r-1-abcd\0") == []


def _watchdog_of(host: Host) -> ProcessId:
    (found,) = [
        process
        for process in processes_with_environment(f"TPUCTL_VM_DIR={host.vm}\0")
        if b"watchdog.py" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    ]
    return found
