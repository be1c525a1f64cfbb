"""A simulated CUDA device for tests on machines without a GPU, and a counter of its work.

`activate()` puts one or more devices into a CPU-only torch that has not been imported yet:
`torch.cuda.is_available()` is then true, `.to("cuda")` moves tensors, and what a GPU would refuse
is refused: tensors of two devices in one operation, `.numpy()` on the device, a CPU generator for
a CUDA tensor, random states of the other kind. Memory that is read before it is written holds NaN.
Results are those of the CPU's kernels. simulated_gpu.cpp says how it works; it is built once for
each version of itself and of torch, in the user's cache folder.

Run any script or module on it with `python tests/device/run.py SCRIPT ...` or `... -m MODULE ...`,
for instance `-m pytest tests/test_sb3.py`. Settings are environment variables, which the processes
of torchrun inherit: SIMULATED_GPUS, the number of devices (1), and SIMULATED_GPU_RANDOM=cpu, which
gives the generators on the device the random numbers of CPU generators of the same seed. A run
then has the metrics of the same run on the CPU, but cannot be resumed exactly.

Not simulated: the rounding and the layouts of cuDNN and cuBLAS, Triton, asynchrony, streams,
graphs, time, and NCCL, in whose place gloo sums and broadcasts.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("simulated_gpu.cpp")
TORCH = "2.13"
"""The version whose internals the C++ source uses."""
ROOT = Path(__file__).parents[2]


def unavailable() -> str:
    """Return why there can be no simulated device here, or an empty string."""
    if platform.system() != "Linux":
        return f"the simulated GPU is built on Linux alone, this is {platform.system()}"
    if importlib.util.find_spec("torch") is None:
        return "the simulated GPU needs torch, which is not installed"
    version = importlib.metadata.version("torch")
    if not version.startswith(f"{TORCH}."):
        return f"the simulated GPU is written for torch {TORCH}, this is torch {version}"
    if (_torch_folder() / "lib" / "libtorch_cuda.so").exists():
        return "this torch is built for CUDA; the simulated GPU needs the CPU-only build"
    if shutil.which("g++") is None and not _library().exists():
        return "the simulated GPU needs a compiler: g++ was not found"
    return ""


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _compile_command(output: Path) -> list[str]:
    torch = _torch_folder()
    return [
        *("g++", "-std=c++20", "-O1", "-fPIC", "-shared", str(SOURCE), "-o", str(output)),
        *(f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include", f"-L{torch}/lib"),
        *(f"-Wl,-rpath,{torch}/lib", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"),
    ]


def _library() -> Path:
    """Return where the library of this source and this torch is or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "adops_wrappers"
    parts = [*_compile_command(Path()), importlib.metadata.version("torch"), SOURCE.read_text()]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache / f"simulated_gpu-{key}.so"


def build() -> Path:
    """Return the library, compiled if need be (about 20 s); several processes may call this."""
    from filelock import FileLock  # comes with torch

    library = _library()
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(library.with_suffix(".lock")):
            if not library.exists():
                partial = library.with_suffix(".partial")
                command = _compile_command(partial)
                result = subprocess.run(command, capture_output=True, text=True)
                if result.returncode:
                    raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr[-4000:]}")
                partial.replace(library)
    return library


# Counting


@dataclass
class Counts:
    """What was done on the device."""

    launches: int = 0
    """Kernels started."""
    uploads: int = 0
    """Copies from host to device for which the host waits."""
    downloads: int = 0
    """Copies from device to host for which the host waits."""
    async_copies: int = 0
    """Copies through pinned memory for which nobody waits."""
    syncs: int = 0
    """Other waits of the host for the device: `.item()`, boolean masks, synchronize()."""
    initialisations: int = 0
    """Calls that would have made a CUDA context in a process that has none."""
    upload_bytes: int = 0
    download_bytes: int = 0
    lines: Counter[str] = field(default_factory=Counter, repr=False, compare=False)
    """How often each line of the project started a kernel, copied, or made the host wait."""

    def record(self, kind: str, what: str, size: int) -> None:
        """Take in one event of simulated_gpu.cpp."""
        self.lines[f"{kind} ({what}) at {_own_line()}"] += 1
        if kind == "launch":
            self.launches += 1
        elif kind == "sync":
            self.syncs += 1
        elif kind == "upload":
            self.uploads += 1
        elif kind == "download":
            self.downloads += 1
        elif kind == "initialisation":
            self.initialisations += 1
        else:
            self.async_copies += 1
        if kind.endswith("upload"):
            self.upload_bytes += size
        elif kind.endswith("download"):
            self.download_bytes += size

    def copy(self) -> Counts:
        """Return what has been counted so far."""
        return Counts(**{**vars(self), "lines": self.lines.copy()})

    def __sub__(self, earlier: Counts) -> Counts:
        numbers = vars(self).keys() - {"lines"}
        difference = {name: getattr(self, name) - getattr(earlier, name) for name in numbers}
        return Counts(**difference, lines=self.lines - earlier.lines)


def _own_line() -> str:
    frame: Any = sys._getframe(1)
    own = f"{ROOT}{os.sep}"
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(own) and name != __file__ and "site-packages" not in name:
            return f"{name[len(own) :]}:{frame.f_lineno}"
        frame = frame.f_back
    in_main = threading.current_thread() is threading.main_thread()
    return "torch" if in_main else "the backward pass"


_LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64)
_listening: list[Counts] = []


@_LISTENER
def _listen(kind: bytes, what: bytes, size: int) -> None:
    for counts in _listening:
        counts.record(kind.decode(), what.decode(), size)


@contextmanager
def counting() -> Iterator[Counts]:
    """Count what happens inside on all devices."""
    counts = Counts()
    _listening.append(counts)
    _lib().simulated_gpu_set_listener(_listen)
    try:
        yield counts
    finally:
        _listening.remove(counts)
        if not _listening:
            _lib().simulated_gpu_set_listener(None)


@contextmanager
def _uncounted() -> Iterator[None]:
    kept = _listening[:]
    _listening.clear()
    try:
        yield
    finally:
        _listening[:] = kept


def peak_memory() -> int:
    """Return the most bytes that tensors on the devices held at once since `reset_peak_memory`."""
    return int(_lib().simulated_gpu_peak_bytes())


def reset_peak_memory() -> None:
    """Measure `peak_memory` from here."""
    _lib().simulated_gpu_reset_peak()


# Activation

_loaded: ctypes.CDLL | None = None


def active() -> bool:
    """Whether this process has simulated devices."""
    return _loaded is not None


def _lib() -> ctypes.CDLL:
    if _loaded is None:
        raise RuntimeError("There is no simulated GPU in this process: start it with run.py.")
    return _loaded


def activate() -> None:
    """Load the library and let Python's side of torch.cuda use it; before torch is imported."""
    global _loaded
    if "torch" in sys.modules:
        raise RuntimeError("activate() must come before torch is imported: start with run.py.")
    reason = unavailable()
    if reason:
        raise RuntimeError(reason)
    _loaded = ctypes.CDLL(str(build()), mode=ctypes.RTLD_GLOBAL)
    _loaded.simulated_gpu_peak_bytes.restype = ctypes.c_int64
    assert _loaded.simulated_gpu_has_hooks()
    _patch_cuda(_loaded)
    _patch_storages()
    _patch_distributed()


class _Properties:
    name, major, minor, multi_processor_count = "Simulated GPU", 8, 6, 82
    total_memory, warp_size, gcnArchName = 24 * 2**30, 32, ""
    regs_per_multiprocessor, max_threads_per_multi_processor = 65536, 1536


def _patch_cuda(lib: ctypes.CDLL) -> None:
    import torch
    from torch.cuda import random

    count = lib.simulated_gpu_device_count()

    def exchange(index: int) -> int:
        before = int(lib.simulated_gpu_current_device())
        if index >= count:
            raise RuntimeError("CUDA error: invalid device ordinal")
        if index >= 0:
            lib.simulated_gpu_set_device(index)
        return before

    def set_device(device: Any) -> None:
        exchange(device if isinstance(device, int) else torch.device(device).index or 0)

    def initialise() -> None:
        _listen(b"initialisation", b"torch.cuda", 0)

    def synchronize(device: Any = None) -> None:
        _listen(b"sync", b"torch.cuda.synchronize", 0)

    replacements: dict[str, Any] = {
        "_lazy_init": initialise,
        "_initialized": True,
        "_exchange_device": exchange,
        "_maybe_exchange_device": lambda index: exchange(index),  # dynamo wants two functions
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: count,
        "current_device": lambda: int(lib.simulated_gpu_current_device()),
        "set_device": set_device,
        "synchronize": synchronize,
        "get_device_properties": lambda device=None: _Properties(),
        "get_device_capability": lambda device=None: (_Properties.major, _Properties.minor),
        "get_device_name": lambda device=None: _Properties.name,
    }
    for name, value in replacements.items():
        setattr(torch.cuda, name, value)
        if hasattr(random, name):
            setattr(random, name, value)
    lib.simulated_gpu_hand_out_defaults(1)
    torch.cuda.default_generators = tuple(torch.Generator(f"cuda:{i}") for i in range(count))
    lib.simulated_gpu_hand_out_defaults(0)
    torch.version.cuda = "12.8"


def _patch_storages() -> None:
    """Replace what is not compiled into a CPU build; deepcopy and torch.load need it."""
    import torch

    storage = torch.UntypedStorage
    clone, to = storage.clone, storage.to

    def on_device(source: Any, device: Any) -> Any:
        empty = torch.empty(source.nbytes(), dtype=torch.uint8, device=device)
        return empty.untyped_storage().copy_(source)

    def new_clone(self: Any) -> Any:
        return on_device(self, self.device) if self.device.type == "cuda" else clone(self)

    def new_to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
        device = torch.device(device)
        if device.type == "cuda" and self.device != device:
            return on_device(self, device)
        return to(self, device=device, non_blocking=non_blocking)

    storage.clone, storage.to = new_clone, new_to


def _patch_distributed() -> None:
    """Let gloo do NCCL's work, on copies in host memory."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    init, all_reduce, broadcast = dist.init_process_group, dist.all_reduce, dist.broadcast

    def init_process_group(backend: str, **keywords: Any) -> None:
        init(backend.replace(",cuda:nccl", "").replace("nccl", "gloo"), **keywords)

    def through_host(collective: Any, tensor: Any, *rest: Any, **keywords: Any) -> None:
        if not tensor.is_cuda:
            collective(tensor, *rest, **keywords)
            return
        if not tensor.is_contiguous():
            raise ValueError("Tensors must be contiguous")
        if tensor.device.index != int(os.environ.get("LOCAL_RANK", 0)):
            raise ValueError(f"{tensor.device} is not the device of this rank")
        with _uncounted():
            host = tensor.cpu()
            collective(host, *rest, **keywords)
            tensor.copy_(host)

    dist.init_process_group = init_process_group
    dist.all_reduce = lambda tensor, *a, **k: through_host(all_reduce, tensor, *a, **k)
    dist.broadcast = lambda tensor, *a, **k: through_host(broadcast, tensor, *a, **k)
