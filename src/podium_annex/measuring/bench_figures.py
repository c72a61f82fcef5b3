"""The figures of `podium bench`, as it writes them to a file and shows them in a table."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from podium.basics.image_size import ImageSize
from podium.basics.terminal import table


@dataclass(frozen=True)
class Rate:
    """Images per second over several windows."""

    median: float
    lowest: float
    highest: float

    @staticmethod
    def of(rates: Sequence[float]) -> "Rate":
        return Rate(*(round(rate, 2) for rate in (statistics.median(rates), min(rates), max(rates))))

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.lowest)} to {_short(self.highest)})"


@dataclass(frozen=True)
class Measurement:
    model: str
    image_size: ImageSize
    batch_size: int
    precision: str
    device: str
    workers: int
    bare_step: Rate  # of timm's own model
    training: Rate
    training_share: float  # of the bare step's rate
    share_by_window: Rate  # the same in each window, and its extremes
    windows: int
    bare_forward: Rate
    prediction: Rate
    prediction_share: float
    operators: dict[str, int]  # how many parts of the model were exchanged, by kind
    operator_gains: dict[str, float]  # how many times as fast forward and backward are with them
    no_kernels: str  # why the kernels could not be compiled; empty if they were
    # From the start of the process (for a later model: from the end of the one before) to the first step.
    first_step_seconds: float
    peak_memory_mb: float
    gpu_memory_mb: float | None  # the most that was held, with the plain loop's model and optimiser
    versions: dict[str, str]


def bench_table(measurements: Sequence[Measurement]) -> str:
    rows, notes = [], []
    for measured in measurements:
        name = f"{measured.model} {measured.image_size} px x {measured.batch_size}"
        memory = f"{measured.gpu_memory_mb or measured.peak_memory_mb:,.0f} MB"
        share, first_step = f"{measured.training_share:z.3f}", f"{measured.first_step_seconds:.1f} s"
        rows.append([name, "training step", measured.bare_step, measured.training, share, first_step, memory])
        share = f"{measured.prediction_share:z.3f}"
        rows.append(["", "forward pass", measured.bare_forward, measured.prediction, share, "", ""])
        low, high = f"{measured.share_by_window.lowest:.2f}", f"{measured.share_by_window.highest:.2f}"
        notes.append(
            f"{measured.model}: medians of {measured.windows} measurements in turn; the share of training lay between"
            f" {low} and {high}"
        )
        notes.append(f"{measured.model}: {_describe_operators(measured)}")
    first = measurements[0]
    title = f"images/s on {first.device}, {first.precision}, {first.workers} workers"
    text = table([title, "", "timm, plain loop", "podium", "share", "first step", "peak memory"], rows)
    return "\n".join([text, *notes])


def _describe_operators(measured: Measurement) -> str:
    """Returns which parts were exchanged, and how many times as fast forward and backward are with them."""
    gains = measured.operator_gains
    exchanged = ", ".join(f"{kind} in {count} ({gains[kind]:.2f}x)" for kind, count in measured.operators.items())
    missing = f"; no kernels: {measured.no_kernels}" if measured.no_kernels else ""
    return (f"faster operators: {exchanged}" if exchanged else "all operators as timm builds them") + missing


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
