"""What the CPU of this process is: its name, features and `Limits`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import llvmlite.binding as llvm

from tilewright import config
from tilewright.limits import Limits


def initialize() -> None:
    """Make LLVM's native target, printer and assembler ready; harmless when repeated."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@dataclass(frozen=True)
class Host:
    """A CPU as LLVM names it: triple, name, the features that it has, and those that it lacks.

    A virtual machine may hide features that the name implies, so both are said.
    """

    triple: str
    cpu: str
    features: frozenset[str]
    missing: frozenset[str] = frozenset()

    @staticmethod
    def here() -> Host:
        """Return the CPU that this process runs on."""
        initialize()
        known = dict(llvm.get_host_cpu_features())
        features = frozenset(k for k, on in known.items() if on)
        return Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), features,
                    frozenset(known) - features)

    @cached_property
    def feature_text(self) -> str:
        return ",".join([*(f"+{name}" for name in sorted(self.features)),
                         *(f"-{name}" for name in sorted(self.missing))])

    @property
    def device(self) -> str:
        """What times depend on: the CPU's name, and the features that it has and lacks."""
        return f"{self.cpu} {self.triple} {self.feature_text}"

    @property
    def identity(self) -> str:
        """What object code depends on, besides its source."""
        version = ".".join(map(str, llvm.llvm_version_info))
        return f"{self.triple} {self.cpu} {self.feature_text} llvm {version}"

    @property
    def rounds(self) -> bool:
        """Whether there are instructions for floor, ceil and the like."""
        return bool(self.features & {"sse4.1", "sse4.2", "avx", "avx2", "avx512f"})

    @property
    def converts_half(self) -> bool:
        """Whether there are instructions between float16 and float32."""
        return not self.x86 or bool(self.features & {"f16c", "avx512f"})

    @property
    def x86(self) -> bool:
        return self.triple.startswith(("x86_64", "i686", "amd64"))

    @property
    def attributes(self) -> str:
        """The attributes of functions compiled for this CPU."""
        wide = {"prefer-vector-width": str(8 * self.vector_bytes)} if self.x86 else {}
        pairs = {"target-cpu": self.cpu, "target-features": self.feature_text, **wide}
        return " ".join(f'"{k}"="{v}"' for k, v in pairs.items() if v)

    @property
    def vector_bytes(self) -> int:
        if "avx512f" in self.features:
            return 64
        return 32 if "avx2" in self.features else 16

    @property
    def registers(self) -> int:
        return 32 if "avx512f" in self.features or not self.x86 else 16

    @cached_property
    def caches(self) -> tuple[int, int, int]:
        """Bytes of the data caches: first and second level of one core, and the shared last."""
        found = _linux_caches() if sys.platform.startswith("linux") else \
            _darwin_caches() if sys.platform == "darwin" else {}
        defaults = Limits()
        l1, l2 = found.get(1, defaults.l1), found.get(2, defaults.l2)
        return l1, l2, max(found.get(3, defaults.l3), l2)

    def limits(self) -> Limits:
        l1, l2, l3 = self.caches
        return Limits(vector_bytes=self.vector_bytes, registers=self.registers, l1=l1, l2=l2,
                      l3=l3, threads=config.current().threads)


_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _size(text: str) -> int:
    text = text.strip()
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text or 0)


def _linux_caches() -> dict[int, int]:
    found: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if (index / "type").read_text().strip() != "Instruction":
                found[int((index / "level").read_text())] = _size((index / "size").read_text())
        except (OSError, ValueError):  # a virtual machine may hide any of these files
            continue
    return {level: size for level, size in found.items() if size > 0}


def _darwin_caches() -> dict[int, int]:
    found: dict[int, int] = {}
    for level, name in ((1, "hw.l1dcachesize"), (2, "hw.l2cachesize"), (3, "hw.l3cachesize")):
        try:
            text = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True,
                                  timeout=5, check=False).stdout
            found[level] = _size(text)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            continue
    return {level: size for level, size in found.items() if size > 0}
