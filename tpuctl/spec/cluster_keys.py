"""The keys of the cluster spec."""

from __future__ import annotations

from tpuctl.spec.keys import DEADLINE, DURATION, FLAG, NAME, TEXT, TEXTS, Block, Key, one_of, whole
from tpuctl.spec.pool import MAX_POOL_SLICES

HEAD = Block(
    "head",
    (
        Key("zone", "Zone of the head VM; best in the region of the slices.", TEXT, required=True),
        Key("machine", "Machine type of the head VM. It is on-demand and runs no training.", TEXT, "e2-standard-4"),
        Key("service_account", "Service account of the head VM; empty: the project's default one.", TEXT, '""'),
        Key(
            "reach",
            "How the client reaches the head: at its internal address. `ssh` and `iap` are refused: not there yet.",
            one_of("auto", "direct", "ssh", "iap"),
            "auto",
        ),
    ),
    {"machine_type": "machine", "type": "machine", "region": "zone"},
)

ENDPOINTS = Block(
    "endpoints",
    (
        Key("tpu", "Root of the Cloud TPU API; empty: Google's.", TEXT, '""'),
        Key("compute", "Root of the Compute Engine API; empty: Google's.", TEXT, '""'),
        Key("secretmanager", "Root of the Secret Manager API; empty: Google's.", TEXT, '""'),
        Key("storage", "Root of the Cloud Storage API; empty: Google's.", TEXT, '""'),
    ),
)

GRANT = Block(
    "grant",
    (
        Key("until", "Last day of the grant, UTC. Absent: no end is known.", {"type": "string", "format": "date"}),
        Key(
            "chips",
            "Chips granted, by `zone/generation/tier`. Pools outside, or together larger, are refused.",
            {
                "type": "object",
                "propertyNames": {"pattern": "^[a-z0-9-]+/v[0-9a-z]+/(spot|on-demand|reserved)$"},
                "additionalProperties": whole(1),
            },
            required=True,
        ),
    ),
)

NETWORK = Block(
    "network",
    (
        Key("network", "VPC network of head and slices.", TEXT, "default"),
        Key("subnetwork", "Its subnetwork; empty: the region's.", TEXT, '""'),
        Key("external_ips", "Whether VMs get external addresses. Without, they need a NAT.", FLAG, "true"),
        Key("tags", "Network tags, for firewall rules.", TEXTS, "[]"),
    ),
)

DETECTION = Block(
    "detection",
    (
        Key(
            "hold",
            "How long the verdict on an attempt waits for evidence of a preemption. At least 6s; under 20s hosts are "
            "asked so often that busy ones may be called dead, which is for tests.",
            DURATION,
            "25s",
        ),
        Key("rejoin", "How long a slice that lost contact may take to come back. Not less than hold.", DURATION, "90s"),
        Key(
            "young",
            "A slice that is lost so soon after READY, or never comes up, counts against its zone and type: three "
            "within two hours, and they are asked less often for a while. `none`: never.",
            DEADLINE,
            "15m",
        ),
    ),
)

DEADLINES = Block(
    "deadlines",
    (
        Key("queue", "From the request to the start of provisioning.", DEADLINE, "none"),
        Key("provision", "From there to ACTIVE.", DEADLINE, "2h"),
        Key("boot", "From ACTIVE to a READY node.", DEADLINE, "20m"),
        Key("join", "From a READY node to all hosts in Ray.", DEADLINE, "10m"),
    ),
)

VALID = Block(
    "valid",
    (
        Key("after", "Not before this time, e.g. 2026-12-05T08:00:00Z.", TEXT),
        Key(
            "until",
            "A duration: each request is good for so long, and is renewed at once when it expires. Or a time: "
            "nothing is asked for after it.",
            TEXT,
        ),
    ),
)

DATA_DISK = Block(
    "data disk",
    (
        Key("disk", "Name of a disk in the slice's zone, or its full path.", TEXT, required=True),
        Key("mode", "Slices of several hosts can only read.", one_of("read-only", "read-write"), "read-only"),
    ),
)

NOTIFY = Block(
    "notify",
    (
        Key("command", "Shell command that the head runs, with a JSON document on its input.", TEXT, '""'),
        Key("webhook", "URL to which the head posts the same document.", TEXT, '""'),
    ),
)

_SLICES = {
    "anyOf": [
        whole(0, MAX_POOL_SLICES),
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "min": whole(0, MAX_POOL_SLICES),
                "max": {"anyOf": [whole(0, MAX_POOL_SLICES), {"const": "grant"}]},
            },
            "required": ["max"],
        },
    ]
}
_PAIRS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}

POOL = Block(
    "pool",
    (
        Key("name", "A plain name of at most 16 characters.", {**NAME, "maxLength": 16}, required=True),
        Key(
            "accelerator",
            "Type of its slices, e.g. v4-32; v5e-N means v5litepod-N. A list is in order of preference.",
            {"anyOf": [TEXT, {**TEXTS, "minItems": 1}]},
            required=True,
        ),
        Key("zones", "Zones, in order of preference.", {**TEXTS, "minItems": 1}, required=True),
        Key("tier", "What kind of capacity is asked for.", one_of("spot", "on-demand", "reserved"), "spot"),
        Key("reservation", "Of tier reserved: the reservation's name; empty: any of the project.", TEXT, '""'),
        Key("runtime", "TPU software version; absent: the usual one of the generation.", TEXT),
        Key(
            "slices",
            "How many slices are wanted: a number, or `{min: 0, max: 4}`: more than min while queued runs want them, "
            "and `max: grant` as many as the grant has chips for.",
            _SLICES,
            required=True,
        ),
        Key(
            "idle",
            "Slices above min are given back after so long without a run. A granted spot slice costs nothing.",
            {"anyOf": [DURATION, {"const": "never"}]},
            "never",
        ),
        Key("valid", "When the service may fulfil a request.", block=VALID),
        Key("labels", "Labels of its nodes, besides ours.", _PAIRS, "{}"),
        Key("metadata", "Metadata attributes of its hosts, besides ours.", _PAIRS, "{}"),
        Key("data_disks", "Disks attached to its hosts.", each=DATA_DISK),
        Key("deadlines", "When a slice that does not come on is given up and asked for anew.", block=DEADLINES),
    ),
    {
        "spot": "tier",
        "count": "slices",
        "replicas": "slices",
        "size": "slices",
        "num_slices": "slices",
        "zone": "zones",
        "region": "zones",
        "type": "accelerator",
        "accelerator_type": "accelerator",
        "version": "runtime",
        "runtime_version": "runtime",
    },
)

CLUSTER = Block(
    "cluster",
    (
        Key("version", "Version of this format.", {"const": 1}, "1"),
        Key(
            "cluster",
            "A plain name of at most 16 characters. It marks all that is ours.",
            {**NAME, "maxLength": 16},
            required=True,
        ),
        Key("project", "Google Cloud project. Any word on the emulator.", TEXT, required=True),
        Key("backend", "The cloud, or the emulator on this machine.", one_of("gcp", "emulator"), "gcp"),
        Key("head", "The head VM: Ray's head and tpuctl's records.", block=HEAD, required=True),
        Key("endpoints", "Roots of the APIs. TPUCTL_EMULATOR sets all four.", block=ENDPOINTS),
        Key("grant", "What may be used, or `none`. Required with backend gcp.", block=GRANT),
        Key(
            "software",
            "Python, Ray and packages of the hosts.",
            {"type": "object"},
            later="choosing the hosts' software",
        ),
        Key("network", "Network of all VMs.", block=NETWORK),
        Key("hosts", "Service account and disk of the hosts.", {"type": "object"}, later="accounts and disks of hosts"),
        Key(
            "storage",
            "Where runs keep checkpoints: one region and its root, a gs:// URL, or on the emulator file:///DIRECTORY.",
            {"type": "object", "additionalProperties": TEXT, "maxProperties": 1},
            "{}",
        ),
        Key("egress", "A limit on traffic that costs.", {"type": "object"}, later="limits on traffic that costs"),
        Key("notify", "Who is told of paused pools, ended runs, a grant that ends, passes that stop.", block=NOTIFY),
        Key(
            "ttl",
            "Without a command of a user for so long, all slices are given back.",
            DEADLINE,
            "none",
        ),
        Key("detection", "How soon losses are believed.", block=DETECTION),
        Key("pools", "The slices wanted.", each=POOL, required=True),
    ),
    {"name": "cluster", "slices": "pools", "nodes": "pools", "bucket": "storage", "project_id": "project"},
)
