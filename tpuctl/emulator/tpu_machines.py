"""The machines of TPU nodes: their names, addresses and what their metadata servers say."""

from __future__ import annotations

from tpuctl.emulator.events import VmDescription, VmStart, VmStop
from tpuctl.emulator.tpu_disks import attach
from tpuctl.emulator.tpu_records import NodeRecord
from tpuctl.emulator.world import World

PROJECT_NUMBER = "100000000001"


def furnish(world: World, node: NodeRecord) -> None:
    """Names and addresses for all workers, before any of them starts: each knows the addresses of all."""
    workers = range(node.accelerator.hosts)
    node.vms = tuple(world.vm_name(f"{node.node_id}-w-{worker}", node.zone) for worker in workers)
    node.addresses = tuple(world.addresses.take() for _ in workers)


def start_machines(world: World, node: NodeRecord, slices: tuple[NodeRecord, ...]) -> None:
    """`slices`: all nodes of the same queued resource, in their order."""
    records = attach(world, node.name, node.disks)
    devices = {f"persistent-disk-{number}": record.bytes_name for number, record in enumerate(records, 1)}
    for worker, (name, address) in enumerate(zip(node.vms, node.addresses, strict=True)):
        vm = VmDescription(
            name=name,
            address=address,
            project=node.project,
            zone=node.zone,
            numeric_id=world.number(),
            attributes=_attributes(node, worker, slices),
            chips=node.accelerator.chips_per_host,
            preemptible=node.spot,
            disks=tuple(devices),
            disk_of_device=devices,
        )
        world.events.append(VmStart(vm))
    node.running = True


def stop_machines(world: World, node: NodeRecord) -> None:
    """The machines end, if they were started, and their addresses are free; doing it twice does nothing."""
    for name, address in zip(node.vms, node.addresses, strict=True):
        if node.running:
            world.events.append(VmStop(name))
        world.addresses.give_back(address)
        world.vm_names.discard(name)
    node.vms, node.addresses, node.booted, node.running = (), (), set(), False


def _attributes(node: NodeRecord, worker: int, slices: tuple[NodeRecord, ...]) -> dict[str, str]:
    """The user's metadata and the service's own; the service's win."""
    own = {
        "accelerator-type": node.accelerator.name,
        "agent-worker-number": str(worker),
        "instance-id": node.node_id,
        "tpu-env": _tpu_env(node, worker, slices),
        "worker-network-endpoints": ",".join(f"unknown:unknown:{address}" for address in node.addresses),
    }
    return {key: str(value) for key, value in (node.template.get("metadata") or {}).items()} | own


def _tpu_env(node: NodeRecord, worker: int, slices: tuple[NodeRecord, ...]) -> str:
    bounds = [int(part) for part in node.accelerator.topology.split("x")]
    bounds += [1] * (3 - len(bounds))
    chips = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}[node.accelerator.chips_per_host]
    hosts = [total // here for total, here in zip(bounds, chips, strict=True)]
    values = {
        "ACCELERATOR_TYPE": node.accelerator.name,
        "TYPE": node.accelerator.generation.wire_type,
        "TOPOLOGY": node.accelerator.topology,
        "NODE_ID": node.node_id,
        "UID": str(node.number),
        "WORKER_ID": str(worker),
        "ZONE": node.zone,
        "CONSUMER_PROJECT_ID": node.project,
        "CONSUMER_PROJECT_NUMBER": PROJECT_NUMBER,
        "PREEMPTIBLE": "true" if node.spot else "false",
        "RUNTIME_VERSION": str(node.template.get("runtimeVersion", "")),
        "CHIPS_PER_HOST_BOUNDS": ",".join(str(n) for n in chips),
        "HOST_BOUNDS": ",".join(str(n) for n in hosts),
    }
    if node.multislice is not None:
        values |= {
            "MEGASCALE_COORDINATOR_ADDRESS": f"{slices[0].addresses[0]}:8080",
            "MEGASCALE_NUM_SLICES": str(node.multislice[1]),
            "MEGASCALE_SLICE_ID": str(node.multislice[0]),
        }
    return "".join(f"{key}: '{value}'\n" for key, value in values.items())
