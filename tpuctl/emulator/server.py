"""The emulator's process: takes a name, a network and a port, writes them down, serves until it is told to stop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from tpuctl.base.chance import new_token
from tpuctl.base.clock import Clock
from tpuctl.base.errors import BusyError, TpuctlError, UserError
from tpuctl.base.process import identify
from tpuctl.emulator.addresses import NetworkLease, lease_network, runtime_directory
from tpuctl.emulator.cloud import Cloud
from tpuctl.emulator.control import Control
from tpuctl.emulator.options import ServerOptions
from tpuctl.emulator.scenario import Settings
from tpuctl.emulator.scenario_yaml import read_scenario
from tpuctl.emulator.service import Machines, NoMachines, Service
from tpuctl.emulator.state_file import ROOT_MARK, EmulatorState, id_of, make_directory, write_state


def serve(options: ServerOptions, clock: Clock) -> None:
    """Blocks until stopped. Raises BusyError when one of that name runs already, UserError for a bad scenario."""
    settings = Settings() if options.scenario is None else read_scenario(options.scenario)
    settings = settings.model_copy(update={"boot_by_themselves": options.machines == "none"})
    directory = make_directory(options.home, options.name)
    with _only_one(directory, options.name), _network() as lease, _root(options) as root:
        try:
            asyncio.run(_serve(options, settings, clock, directory, lease, root))
        finally:
            (directory / "state.json").unlink(missing_ok=True)


@contextmanager
def _only_one(directory: Path, name: str) -> Iterator[None]:
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise BusyError(f"emulator {name!r} is running already; see `tpuctl emulator status`") from error
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _network() -> Iterator[NetworkLease]:
    lease = lease_network(runtime_directory())
    try:
        yield lease
    finally:
        lease.close()


@contextmanager
def _root(options: ServerOptions) -> Iterator[Path]:
    """The VMs' directory: short, because socket names in it may have 107 bytes at most. Removed at the end."""
    if options.root is not None:
        try:
            options.root.mkdir(mode=0o700, parents=True, exist_ok=False)
        except FileExistsError as error:
            raise UserError(
                f"--root {options.root} exists already; it is removed at the end, so name a new one"
            ) from error
        root = options.root.absolute()
    else:
        root = Path(tempfile.mkdtemp(prefix="tpuemu-"))
    (root / ROOT_MARK).write_text(id_of(root))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def _serve(
    options: ServerOptions, settings: Settings, clock: Clock, directory: Path, lease: NetworkLease, root: Path
) -> None:
    cloud = Cloud(settings, options.seed, lease.network)
    service = Service(cloud, clock, _log)
    token = new_token()
    identity: dict[str, object] = {"id": id_of(root), "name": options.name, "root": str(root)}
    control = Control(service, token, identity)
    runner = web.AppRunner(service.app(control.add_routes), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    try:
        port = await _listen(runner, options.port)
        state = _state(options, root, lease, port, token)
        identity |= {
            "port": port,
            "pid": state.pid,
            "network": state.network,
            "url": state.url,
            "seed": cloud.world.seed,
        }
        machines = _machines(options, root, clock, service, port)
        cloud.advance(clock.now())
        write_state(directory, state)
        _log(f"serving {state.url}, network {state.network}, machines {options.machines} in {root}")
        await service.run(machines)
        _log("stopped")
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, port: int) -> int:
    site = web.TCPSite(runner, "127.0.0.1", port)
    try:
        await site.start()
    except OSError as error:
        raise TpuctlError(
            f"port {port} of 127.0.0.1 cannot be used: {error.strerror}; choose another with --port"
        ) from error
    return int(runner.addresses[0][1])


def _state(options: ServerOptions, root: Path, lease: NetworkLease, port: int, token: str) -> EmulatorState:
    me = identify(os.getpid())
    if me is None:
        raise TpuctlError("/proc cannot be read; the emulator needs Linux")
    return EmulatorState(
        name=options.name,
        id=id_of(root),
        pid=me.pid,
        pid_started=me.started,
        port=port,
        root=str(root),
        network=str(lease.network),
        token=token,
    )


def _machines(options: ServerOptions, root: Path, clock: Clock, service: Service, port: int) -> Machines:
    if options.machines == "none":
        return NoMachines()
    from tpuctl.emulator.machines import ProcessMachines

    machines: Machines = ProcessMachines(root, Path(sys.executable), clock, service.report, f"http://127.0.0.1:{port}")
    return machines


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
