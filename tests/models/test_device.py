"""The processor that computes, its precision, and what its errors mean."""

import pytest
import torch

from podium.errors import PodiumError
from podium.models.device import CPU_MICRO_BATCH, micro_batch_limit, pick_device, pick_precision
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
