"""Compiles kernels.c for this CPU, once, and calls it.

Reads kernels.c; writes ~/.cache/podium/kernels-<hash>.so (or below $XDG_CACHE_HOME). It needs Linux and a C compiler,
gcc or clang under the name cc. Without them `problem` says what is missing, and torch computes instead.

Whoever can write a library that is loaded runs code in this process. So a library in the cache is loaded only if the
user owns it and its folder, nobody else can write to them, and its last bytes are the hash of the others. Otherwise it
is compiled again; where the cache's folder belongs to somebody else, into a private folder that this process deletes.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podium.basics.disk import atomic
from podium.basics.errors import PodiumError

SOURCE = Path(__file__).with_name("kernels.c")
PARTS = 64  # of the rows, each summed by one thread
MOST_TOKENS = 256  # in a window of attention
# -march=native allows the instructions of this CPU, -ffast-math several sums at once in place of one. -ffast-math must
# not reach the linker: the whole process would round very small numbers to 0.
COMPILE = (
    *("-std=c11", "-O3", "-march=native", "-ffast-math", "-fno-finite-math-only", "-fopenmp", "-fPIC", "-c"),
    *(f"-DPARTS={PARTS}", f"-DMOST_TOKENS={MOST_TOKENS}"),
)
LINK = ("-shared", "-Wl,--no-undefined", "-lm")
DEPTHWISE_SIDES = (3, 5, 7, 9)  # of the kernels that kernels.c computes
SLOWEST_COMPILER = 60.0  # seconds
HASH_BYTES = 32  # at the end of a compiled library; the loader ignores them
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def problem() -> str:
    """Returns why there are no kernels here; nothing if there are."""
    return _library()[1]


def gelu_with_bias(inputs: Tensor, bias: Tensor) -> Tensor:
    """Returns the GELU of bfloat16 rows and a float32 bias."""
    outputs = torch.empty_like(inputs)
    _call("gelu_with_bias", inputs, bias, outputs, *inputs.shape)
    return outputs


def gelu_gradient(inputs: Tensor, bias: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the gradients of the inputs (bfloat16) and of the bias (float32)."""
    result, sums = torch.empty_like(inputs), torch.empty(PARTS, inputs.shape[1])
    _call("gelu_gradient", inputs, bias, gradient, result, sums, *inputs.shape)
    return result, sums.sum(0)


def softmax_with_bias(scores: Tensor, bias: Tensor, mask: Tensor | None) -> None:
    """Turns bfloat16 scores [windows, heads, tokens, tokens] into probabilities; bias and mask are float32."""
    windows, heads, tokens, _ = scores.shape
    _call("softmax_with_bias", scores, bias, mask, windows, heads, tokens, 0 if mask is None else len(mask))


def depthwise_gradients(
    images: Tensor, gradient: Tensor, weight: Tensor, stride: int, margins: tuple[int, int], for_images: bool
) -> tuple[Tensor, Tensor | None]:
    """Returns the gradients of a depthwise convolution's weights, in float32, and of its images if they are wanted.

    Images and gradient are both bfloat16 or both float32, [n, channels, height, width] in the channels-last layout.
    The margins are those above the images and at their left.
    """
    count, channels, height, width = images.shape
    rows, columns = gradient.shape[2:]
    side = weight.shape[-1]
    weight_gradient = torch.empty(channels, 1, side, side)
    image_gradient = torch.empty_like(images) if for_images else None
    shape = (count, height, width, channels, rows, columns, side, stride, *margins)
    is_bfloat16 = images.dtype == torch.bfloat16
    tensors = (images, gradient, is_bfloat16, weight.float().contiguous(), weight_gradient, image_gradient)
    if not _call("depthwise_gradients", *tensors, *shape):
        raise torch.OutOfMemoryError(f"the gradient of a depthwise convolution of {height} x {width} pixels")
    return weight_gradient, image_gradient


def clamp_gradient(gradient: Tensor, outputs: Tensor | None, highest: float) -> tuple[Tensor, Tensor]:
    """Returns the gradient where the outputs of a ReLU lie between 0 and `highest`, and its sum for each channel.

    Without outputs, all of it passes. Both are [n, channels, height, width] in the channels-last layout, of bfloat16 or
    float32; the sums are float32.
    """
    channels = gradient.shape[1]
    sums = torch.empty(PARTS, channels)
    passed = gradient if outputs is None else torch.empty_like(gradient)
    rows, is_bfloat16 = gradient.numel() // channels, gradient.dtype == torch.bfloat16
    _call("clamp_gradient", gradient, outputs, passed, sums, rows, channels, is_bfloat16, highest)
    return passed, sums.sum(0)


def _call(name: str, *arguments: Tensor | float | None) -> int:
    library, missing = _library()
    assert library is not None, missing
    result: int = getattr(library, name)(*(_as_c(value) for value in arguments))
    return result


def _as_c(value: Tensor | float | None) -> Any:
    if value is None or isinstance(value, Tensor):
        return ctypes.c_void_p(None if value is None else value.data_ptr())
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_int(value) if isinstance(value, bool) else ctypes.c_long(value)


# --- compiling ---------------------------------------------------------------------------------------


@cache
def _library() -> tuple[ctypes.CDLL | None, str]:
    """Returns the compiled kernels, or why there are none."""
    if sys.platform != "linux":
        return None, "the kernels need Linux"
    threads = _thread_library()
    if threads is None:
        return None, "torch was built without OpenMP"
    key = hashlib.sha256("\n".join((SOURCE.read_text(), *COMPILE, *LINK, str(threads), _cpu())).encode()).hexdigest()
    name = f"kernels-{key[:16]}.so"
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "podium")
    try:
        if _take_folder(cache_folder):
            return _load(cache_folder / name, threads)
        with tempfile.TemporaryDirectory() as folder:  # deleted once the library is in memory
            return _load(Path(folder, name), threads)
    except OSError as error:
        return None, f"{cache_folder} cannot be used ({error.strerror})"


def _take_folder(folder: Path) -> bool:
    """Makes the folder, and keeps others from writing to it; returns False if it belongs to somebody else."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        return False
    if status.st_mode & WRITABLE_BY_OTHERS:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~WRITABLE_BY_OTHERS)
    return True


def _load(path: Path, threads: Path) -> tuple[ctypes.CDLL | None, str]:
    """Loads the library, compiled anew unless it is there and sound; returns it, or why there is none."""
    if not _is_sound(path):
        failure = _compile(path, threads)
        if failure:
            return None, failure
    try:
        return ctypes.CDLL(str(path)), ""
    except OSError as error:
        return None, f"{path} cannot be loaded ({error})"


def _is_sound(path: Path) -> bool:
    """Returns whether the library is the user's own, nobody else can write to it, and its hash is right."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & WRITABLE_BY_OTHERS:
            return False
        content = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-HASH_BYTES]).digest() == content[-HASH_BYTES:]


def _compile(path: Path, threads: Path) -> str:
    """Returns why it failed, or nothing."""
    compiler = shutil.which("cc")
    if compiler is None:
        return "there is no C compiler (cc)"
    try:
        with atomic(path) as library, tempfile.TemporaryDirectory() as folder:
            compiled = Path(folder, "kernels.o")
            for words in ((*COMPILE, SOURCE, "-o", compiled), (compiled, threads, *LINK, "-o", library)):
                subprocess.run((compiler, *words), check=True, capture_output=True, text=True, timeout=SLOWEST_COMPILER)
            content = library.read_bytes()
            library.write_bytes(content + hashlib.sha256(content).digest())
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~WRITABLE_BY_OTHERS)
    except subprocess.SubprocessError as error:
        message = str(getattr(error, "stderr", None) or "").strip() or str(error)
        return f"{compiler} fails ({message.splitlines()[0]})"
    except (PodiumError, OSError) as error:
        return str(error)
    return ""


def _thread_library() -> Path | None:
    """Returns the OpenMP library that torch has loaded. With another, two sets of threads would share the cores."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split()[-1])
        if path.name.startswith(("libgomp", "libiomp", "libomp")):
            return path
    return None


def _cpu() -> str:
    """Returns the instructions of this CPU; machines that share a home folder may differ in them."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.machine()
