"""Digits, data-parallel over all hosts of the attempt: scikit-learn's images, an MLP, Adam, checkpoints that resume.

Made to be killed anywhere. The batch of a step is a function of (seed, step) alone, a checkpoint holds parameters,
optimizer state and step, and threads are fixed: on the same number of devices an interrupted run ends with the same
bits as an undisturbed one. Each rank reads the checkpoint, rank 0 writes it.

Settings, from the environment: STEPS, STEP_DELAY (seconds, to make it last), CHECKPOINT_EVERY, SEED.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

# One thread a process, before JAX is loaded: sums are then always taken in the same order.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits

import tpuctl.jax

STEPS = int(os.environ.get("STEPS", "200"))
STEP_DELAY_S = float(os.environ.get("STEP_DELAY", "0"))
CHECKPOINT_EVERY = int(os.environ.get("CHECKPOINT_EVERY", "20"))
SEED = int(os.environ.get("SEED", "0"))
BATCH = 256
SIZES = (64, 128, 64, 10)
TERMINATED = 128 + signal.SIGTERM  # not 0: a run that was interrupted is not done

asked_to_stop = False


def on_sigterm(*_: object) -> None:
    global asked_to_stop
    asked_to_stop = True


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test images as float32 in [0, 1], and labels; the same split everywhere."""
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int32)
    order = np.random.default_rng(12345).permutation(len(images))
    test, train = order[:360], order[360:]
    return images[train], labels[train], images[test], labels[test]


def first_parameters() -> np.ndarray:
    """All weights and biases in one vector: one sum over the hosts a step, and one array in the checkpoint."""
    draw = np.random.default_rng(SEED)
    layers = [
        (draw.normal(0, np.sqrt(2.0 / rows), (rows, columns)), np.zeros(columns)) for rows, columns in pairwise(SIZES)
    ]
    return np.concatenate([part.ravel() for layer in layers for part in layer]).astype(np.float32)


def layers_of(vector: jax.Array) -> Iterator[tuple[jax.Array, jax.Array]]:
    at = 0
    for rows, columns in pairwise(SIZES):
        weights = vector[at : at + rows * columns].reshape(rows, columns)
        at += rows * columns
        yield weights, vector[at : at + columns]
        at += columns


def logits_of(vector: jax.Array, images: jax.Array) -> jax.Array:
    *hidden, (weights, bias) = layers_of(vector)
    for inner_weights, inner_bias in hidden:
        images = jax.nn.relu(images @ inner_weights + inner_bias)
    return images @ weights + bias


def save(path: Path, state: Any, step: int) -> None:
    """Whole or not at all: a rank that is killed here leaves the checkpoint before."""
    beside = path.with_suffix(".tmp")
    with beside.open("wb") as file:
        np.savez(file, step=step, **{f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))})
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def restore(path: Path, like: Any) -> tuple[Any, int]:
    with np.load(path) as saved:
        leaves = [saved[f"leaf{i}"] for i in range(len(jax.tree.leaves(like)))]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), int(saved["step"])


def digest_of(parameters: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(parameters))).hexdigest()


def say(text: str) -> None:
    if jax.process_index() == 0:
        print(text, flush=True)


class Trainer:
    def __init__(self) -> None:
        self.mesh = Mesh(np.array(jax.devices()), ("data",))
        self.split, self.whole = NamedSharding(self.mesh, P("data")), NamedSharding(self.mesh, P())
        self.optimizer = optax.adam(2e-3)
        self.images, self.labels, self.test_images, self.test_labels = load_data()
        self.update = jax.jit(self._update, donate_argnums=0, out_shardings=self.whole)

    def _update(self, state: Any, images: jax.Array, labels: jax.Array, wishes: jax.Array) -> Any:
        def part(parameters: jax.Array, images: jax.Array, labels: jax.Array, wishes: jax.Array) -> jax.Array:
            def loss_of(vector: jax.Array) -> jax.Array:
                logits = logits_of(vector, images)
                return optax.softmax_cross_entropy_with_integer_labels(logits, labels).sum() / BATCH

            loss, gradient = jax.value_and_grad(loss_of)(parameters)
            # The loss and all ranks' wishes to stop travel with the gradient: one sum a step, and all see the same.
            mine = jnp.concatenate([gradient, loss[None], wishes])
            return jax.lax.psum(mine, "data")

        parameters, moments = state
        inner = (P(), P("data"), P("data"), P("data"))
        total = jax.shard_map(part, mesh=self.mesh, in_specs=inner, out_specs=P(), check_vma=False)(
            parameters, images, labels, wishes
        )
        gradient, loss, stops = total[:-2], total[-2], total[-1]
        changes, moments = self.optimizer.update(gradient, moments, parameters)
        return (optax.apply_updates(parameters, changes), moments), loss, stops

    def place(self, array: np.ndarray, sharding: NamedSharding) -> jax.Array:
        """Every process has the whole array; each device gets its part."""
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    def begin(self, checkpoint: Path) -> tuple[Any, int]:
        parameters = first_parameters()
        state, step = (parameters, self.optimizer.init(parameters)), 0
        if checkpoint.exists():
            state, step = restore(checkpoint, state)
            say(f"resumed from step {step}")
        return jax.tree.map(lambda leaf: self.place(np.asarray(leaf), self.whole), state), step

    def batch(self, step: int) -> tuple[jax.Array, jax.Array]:
        chosen = np.random.default_rng([SEED, step]).permutation(len(self.images))[:BATCH]
        return self.place(self.images[chosen], self.split), self.place(self.labels[chosen], self.split)

    def wishes(self) -> jax.Array:
        wish = np.full(jax.device_count(), float(asked_to_stop), np.float32)
        return self.place(wish, self.split)

    def accuracy(self, parameters: Any) -> float:
        guesses = np.asarray(logits_of(np.asarray(parameters), self.test_images)).argmax(axis=1)
        return float((guesses == self.test_labels).mean())


def main() -> None:
    tpuctl.jax.initialize()
    signal.signal(signal.SIGTERM, on_sigterm)  # only now: JAX's preemption service takes the signal for itself
    directory = Path(os.environ.get("TPUCTL_CHECKPOINT_DIR", "checkpoints"))
    directory.mkdir(parents=True, exist_ok=True)
    checkpoint = directory / "checkpoint.npz"
    attempt = os.environ.get("TPUCTL_ATTEMPT", "1")
    say(f"attempt {attempt}: {jax.process_count()} processes, {jax.device_count()} devices")
    trainer = Trainer()
    state, step = trainer.begin(checkpoint)
    while step < STEPS:
        images, labels = trainer.batch(step)
        state, loss, stops = trainer.update(state, images, labels, trainer.wishes())
        step += 1
        say(f"step {step} loss {float(loss):.6f}")
        stop = float(stops) > 0
        if jax.process_index() == 0 and (stop or step % CHECKPOINT_EVERY == 0 or step == STEPS):
            save(checkpoint, state, step)
        if stop and step < STEPS:
            say(f"stopped at step {step}, checkpoint written")
            sys.exit(TERMINATED)
        time.sleep(STEP_DELAY_S)
    accuracy, digest = trainer.accuracy(state[0]), digest_of(state[0])
    say(f"test accuracy {accuracy:.4f}")
    say(f"digest {digest}")
    if jax.process_index() == 0:
        beside = directory / "result.json.tmp"
        beside.write_text(json.dumps({"accuracy": accuracy, "digest": digest, "steps": step, "attempt": int(attempt)}))
        beside.replace(directory / "result.json")


if __name__ == "__main__":
    main()
