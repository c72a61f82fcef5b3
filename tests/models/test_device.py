"""The processor that computes, its precision, and what its errors mean."""

from collections.abc import Generator
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest
import torch

from podium.basics.errors import PodiumError
from podium.models import device
from podium.models.device import CPU_MICRO_BATCH, copied_ahead, micro_batch_limit, pick_device, pick_precision
from podium.models.hardware_errors import explain_hardware_errors

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:99", "no_such_device"])
def test_a_device_that_does_not_work_is_refused(name: str) -> None:
    with pytest.raises(PodiumError, match=f"--device {name} does not work here .*; use --device cpu"):
        pick_device(name)


def test_float16_is_refused_on_a_cpu() -> None:
    assert pick_precision("bfloat16", CPU) == torch.bfloat16
    with pytest.raises(PodiumError, match="--precision float16 needs a GPU; use bfloat16 or float32"):
        pick_precision("float16", CPU)


def test_a_cpu_takes_fewer_images_at_once_the_larger_they_are() -> None:
    assert micro_batch_limit(CPU, 224) == CPU_MICRO_BATCH
    assert micro_batch_limit(CPU, 448) == CPU_MICRO_BATCH // 4
    assert micro_batch_limit(CPU, 4096) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), "again with --workers 0"),
        (RuntimeError("x does not have a deterministic implementation"), "leave out --deterministic"),
        (ValueError("Expected more than 1 value per channel when training"), "use a larger --batch-size"),
        (RuntimeError("CUDA error: out of memory"), "does not hold a batch of 8; try --batch-size 4"),
        (RuntimeError("it is not deterministic because it uses CuBLAS and you have CUDA"), "CUBLAS_WORKSPACE_CONFIG"),
        (RuntimeError("GET was unable to find an engine to execute this computation"), "try --batch-size 4"),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), "try --batch-size 4"),
    ],
)
def test_an_error_of_the_hardware_becomes_advice(error: Exception, message: str) -> None:
    with pytest.raises(PodiumError, match=message), explain_hardware_errors(batch_size=8):
        raise error


def test_any_other_error_stays_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="a mistake in the code"), explain_hardware_errors(batch_size=8):
        raise RuntimeError("a mistake in the code")


# --- copying ahead -----------------------------------------------------------------------------------


class FakeStream:
    """A queue of copies; it writes down what happens."""

    log: ClassVar[list[str]] = []

    def record_event(self) -> str:
        return f"copy {sum(line.startswith('copy') for line in self.log)}"

    def synchronize(self) -> None:
        self.log.append("all is copied")

    def wait_event(self, event: str) -> None:
        self.log.append(f"the GPU waits for {event}")


class FakeTensor:
    """A tensor that is copied, and whose memory a stream uses."""

    device = torch.device("cuda")

    def __init__(self, number: int) -> None:
        self.number = number

    def to(self, device: torch.device, non_blocking: bool) -> "FakeTensor":
        assert non_blocking
        FakeStream.log.append(f"copy {self.number}")
        return self

    def record_stream(self, stream: FakeStream) -> None:
        FakeStream.log.append(f"{self.number} is in use")


def test_a_batch_is_copied_before_the_step_of_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeStream.log.clear()
    device._copy_stream.cache_clear()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream())
    batches: Any = ((FakeTensor(number), FakeTensor(number)) for number in (1, 2, 3))
    for images, _ in copied_ahead(batches, torch.device("cuda")):
        FakeStream.log.append(f"step {vars(images)['number']}")
    short = [line for line in FakeStream.log if "in use" not in line]
    assert list(dict.fromkeys(short)) == [
        *("copy 1", "copy 2", "the GPU waits for copy 2", "step 1"),
        *("copy 3", "the GPU waits for copy 4", "step 2"),
        *("the GPU waits for copy 6", "step 3", "all is copied"),
    ]
    device._copy_stream.cache_clear()
    assert FakeStream.log.index("1 is in use") < FakeStream.log.index("step 1")


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_a_loader_is_closed_with_the_batches_that_are_copied_ahead(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    device._copy_stream.cache_clear()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream())
    closed = []

    def batches() -> Generator[Any]:
        try:
            for number in range(9):
                yield FakeTensor(number), FakeTensor(number)
        finally:
            closed.append(True)

    ahead = copied_ahead(batches(), torch.device(name))
    assert vars(next(ahead)[0])["number"] == 0
    ahead.close()
    device._copy_stream.cache_clear()
    assert closed
