"""A program of a user, with a model of its own, that ``mypy --strict`` accepts."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import npformer as nf
from npformer.training import StepInfo, Trainer, TrainingSettings

Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Line:
    """y = w x."""

    width: int = 3

    def init(self, seed: int) -> dict[str, Float]:
        return {"w": np.zeros(self.width, np.float32)}

    def count(self, x: Float, y: Float) -> int:
        return len(x)

    def loss_and_grad(
        self,
        params: dict[str, Float],
        x: Float,
        y: Float,
        *,
        dropout_key: int | None,
        n_tokens: int,
        backend: Any,
    ) -> tuple[float, dict[str, Float], int]:
        error = x @ params["w"] - y
        loss = float((error**2).sum() / n_tokens)
        gradient = 2 * error @ x / n_tokens
        return loss, {"w": gradient.astype(np.float32)}, len(x)


def stop_early(trainer: Trainer, info: StepInfo) -> bool:
    return info.loss < 1e-6


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 3)).astype(np.float32)
    y = x @ np.array([1, 2, 3], np.float32)
    trainer = Trainer(Line(), nf.Adam(lr=nf.noam(3, 10)), seed=1, clip_norm=1.0)
    loss: float = trainer.step(x, y)
    batches = [(x, y)] * 200
    history: list[StepInfo] = trainer.fit(
        batches, validate=batches[:1], every=50, callbacks=[stop_early]
    )
    steps: int = trainer.n_steps
    flat: Float = trainer.flat_params
    settings: TrainingSettings = trainer.settings
    print(loss, history[-1].loss, trainer.last.loss, steps, flat, settings.clip_norm, trainer)
    model = nf.Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    params = model.init(0)
    src = np.array([[3, 4]])
    print(model.logits(params, src, np.array([[1, 3]])).shape)
    print(nf.greedy_decode(model, params, src, bos_id=1, eos_id=2, max_len=4))
    trainer.save(sys.argv[1], {"note": 1})
    arrays, info = trainer.load(sys.argv[1])
    print(sorted(arrays), info["note"])
    train_by_hand(x, y)
    train_a_model_of_npformer_by_hand()
    use_modules(trainer, history)


def train_by_hand(x: Float, y: Float) -> None:
    model = Line()
    optimizer = nf.Lion(lr=0.01, weight_decay=0.1)
    params = model.init(0)
    state: dict[str, Any] = optimizer.init(params)
    batches = nf.batches(x, y, size=16, epochs=2)
    for rows, targets in batches.from_step(1):
        loss, grads, _ = model.loss_and_grad(
            params, rows, targets, dropout_key=None, n_tokens=16, backend="cpu"
        )
        clipped, norm = nf.clip_by_global_norm(grads, max_norm=1.0)
        optimizer.step(params, clipped, state)
        print(loss, norm)
    print(len(batches), state["n_steps"])


def train_a_model_of_npformer_by_hand() -> None:
    model = nf.LanguageModel(11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    optimizer = nf.AdamW(lr=0.01)
    params = model.init(0)
    state: dict[str, Any] = optimizer.init(params)
    for _ in range(2):
        loss, grads, n_tokens = model.loss_and_grad(params, np.array([[3, 4, 5]]))
        clipped, norm = nf.clip_by_global_norm(grads, max_norm=1.0)
        optimizer.step(params, clipped, state)
        optimizer.step(params, grads, state)
        print(loss, n_tokens, norm)


def use_modules(trainer: Trainer, history: list[StepInfo]) -> None:
    """What is reached through ``nf``, without an import of its own."""
    sizes: dict[str, int] = {path: x.size for path, x in nf.tree.leaves(trainer.params)}
    zeros = nf.tree.map_leaves(np.zeros_like, trainer.params)
    params, taken, left = nf.tree.merged(trainer.params, zeros)
    flat, _ = nf.tree.flatten(params)
    print(sizes, nf.tree.count(params), taken, left, flat.dtype, nf.tree.not_finite(params))
    nf.tree.check_like(params, trainer.params)
    model = nf.LanguageModel(11, d_model=8, n_heads=2, n_layers=1, d_ff=8)
    print(nf.models.LowRank(model, model.init(0), rank=2), nf.models.describe(model)["name"])
    print(nf.training.load_checkpoint, nf.decoding.Hypothesis)
    print(nf.data.BOS, nf.language.Writer, nf.translation.Translator)
    print(nf.diagnosis.Findings, nf.gradients.cotangent((2,)))
    print(nf.cpu.ops.name, nf.cpu.softmax(np.zeros(2)))
    print(nf.reference.ops.name, nf.reference.softmax(np.zeros(2)), nf.layers.LayerSettings)
    nf.show_config()


def draw(history: list[StepInfo], folder: str) -> None:
    nf.plots.plot_loss(history, f"{folder}/loss.png")
    weights = [np.ones((1, 2, 2))]
    nf.plots.plot_attention(weights, ["a", "b"], ["c", "d"], f"{folder}/attention.png")
    nf.plots.plot_positional_encoding(f"{folder}/positions.svg", length=9)


def continued(folder: str, text: str) -> str:
    model, params, tokenizer = nf.pretrained.load(folder)
    said = nf.sample(model, params, [tokenizer.encode(text)], max_len=9, seed=0)
    return str(tokenizer.decode(said[0]))


if __name__ == "__main__":
    main()
