"""Two vectors are added on the first GPU, by libcuda alone: what no look at files can prove, that a kernel runs."""

from __future__ import annotations

import ctypes
import os
import re
import stat
from collections.abc import Collection
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

from gpuward.agents.validator.workload import ValidationError

COUNT: Final = 50_000
THREADS: Final = 256
PTX: Final = b"""\
.version 6.0
.target sm_50
.address_size 64
.visible .entry vector_add(.param .u64 left, .param .u64 right, .param .u64 sum, .param .u32 count)
{
    .reg .pred %beyond;
    .reg .f32 %value<4>;
    .reg .b32 %number<6>;
    .reg .b64 %place<8>;
    ld.param.u64 %place1, [left];
    ld.param.u64 %place2, [right];
    ld.param.u64 %place3, [sum];
    ld.param.u32 %number1, [count];
    mov.u32 %number2, %ctaid.x;
    mov.u32 %number3, %ntid.x;
    mov.u32 %number4, %tid.x;
    mad.lo.s32 %number5, %number2, %number3, %number4;
    setp.ge.u32 %beyond, %number5, %number1;
    @%beyond bra END;
    cvta.to.global.u64 %place1, %place1;
    cvta.to.global.u64 %place2, %place2;
    cvta.to.global.u64 %place3, %place3;
    mul.wide.u32 %place4, %number5, 4;
    add.s64 %place5, %place1, %place4;
    add.s64 %place6, %place2, %place4;
    add.s64 %place7, %place3, %place4;
    ld.global.f32 %value1, [%place5];
    ld.global.f32 %value2, [%place6];
    add.f32 %value3, %value1, %value2;
    st.global.f32 [%place7], %value3;
END:
    ret;
}
\0"""


DEVICES: Final = ("nvidiactl", "nvidia-uvm")
"""What libcuda opens in /dev beside the GPUs."""
WSL: Final = "dxg"
"""The device in place of all of NVIDIA's where Linux runs in Windows."""
REMEDIES: Final = {
    "CUDA_ERROR_OUT_OF_MEMORY":
        "others hold the GPU's memory, `nvidia-smi` on the node names their processes",
    "CUDA_ERROR_DEVICE_UNAVAILABLE":
        "another process has the GPU for itself, `nvidia-smi` on the node names it, and the compute mode",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH":
        "the libraries in this container are of another version than the driver that is loaded, see the driver pod on this node",
    "CUDA_ERROR_SYSTEM_NOT_READY":
        "the GPUs are not set up, where they have NVSwitches by the fabric manager, see the driver pod on this node",
}
"""What to do, by what libcuda says; https://docs.nvidia.com/cuda/cuda-driver-api lists the errors."""


def remedy(code: str, devices: Collection[str], visible: str | None) -> str:
    """Return what an error of libcuda's comes from and what to do, by the devices in /dev and CUDA_VISIBLE_DEVICES."""
    if code in REMEDIES:
        return REMEDIES[code]
    missing = [f"/dev/{name}" for name in DEVICES if name not in devices]
    if not any(re.fullmatch(r"nvidia\d+", name) for name in devices):
        missing.insert(0, "/dev/nvidia0 or another GPU")
    if missing and WSL not in devices:
        return f"this container lacks {', '.join(missing)}: see the toolkit pod on this node, and what this pod asks for"
    if code == "CUDA_ERROR_NO_DEVICE" and visible is not None:
        return f"CUDA_VISIBLE_DEVICES is {visible!r}, and names none of this container's GPUs"
    return "see `dmesg` on the node for errors of the GPU (Xid)"


def _devices() -> set[str]:
    """Return the names of the character devices in /dev."""
    with os.scandir("/dev") as found:
        return {each.name for each in found if stat.S_ISCHR(each.stat(follow_symlinks=False).st_mode)}


class Cuda:
    """Call libcuda; what it refuses is an error with its name."""

    def __init__(self) -> None:
        try:
            self._library: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise ValidationError(f"libcuda.so.1 cannot be loaded ({error}): the container runtime did not put the driver's "
                                  "libraries into this container, see the toolkit pod on this node") from None

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises ValidationError where it fails."""
        number = getattr(self._library, name)(*arguments)
        if number:
            said = c_char_p()
            self._library.cuGetErrorName(c_int(number), byref(said))
            code = said.value.decode() if said.value else str(number)
            raise ValidationError(
                f"{name} failed with {code}: {remedy(code, _devices(), os.environ.get('CUDA_VISIBLE_DEVICES'))}")


def add_vectors() -> str:
    """Add two vectors on the first GPU; return what did it, in words. Raises ValidationError."""
    cuda, device, context = Cuda(), c_int(), c_void_p()
    cuda.call("cuInit", c_uint(0))
    version, count = c_int(), c_int()
    cuda.call("cuDriverGetVersion", byref(version))
    cuda.call("cuDeviceGetCount", byref(count))
    if count.value == 0:
        raise ValidationError("libcuda sees no GPU: none was given to this container")
    cuda.call("cuDeviceGet", byref(device), c_int(0))
    name = ctypes.create_string_buffer(256)
    cuda.call("cuDeviceGetName", name, c_int(256), device)
    cuda.call("cuDevicePrimaryCtxRetain", byref(context), device)
    try:
        cuda.call("cuCtxSetCurrent", context)
        _add(cuda)
    finally:
        cuda.call("cuDevicePrimaryCtxRelease_v2", device)
    major, minor = version.value // 1000, version.value % 1000 // 10
    return f"{name.value.decode(errors='replace')} added two vectors of {COUNT} numbers (CUDA {major}.{minor})"


def _add(cuda: Cuda) -> None:
    module, function = c_void_p(), c_void_p()
    cuda.call("cuModuleLoadData", byref(module), c_char_p(PTX))
    cuda.call("cuModuleGetFunction", byref(function), module, c_char_p(b"vector_add"))
    vector = c_float * COUNT
    left, right, total = vector(*range(COUNT)), vector(*(2 * number for number in range(COUNT))), vector()
    places = [c_uint64(), c_uint64(), c_uint64()]
    size = c_size_t(ctypes.sizeof(vector))
    for place in places:
        cuda.call("cuMemAlloc_v2", byref(place), size)
    for place, values in zip(places, (left, right), strict=False):
        cuda.call("cuMemcpyHtoD_v2", place, values, size)
    number = c_uint(COUNT)
    arguments = (c_void_p * 4)(*(ctypes.cast(byref(each), c_void_p) for each in (*places, number)))
    blocks, one = c_uint(-(-COUNT // THREADS)), c_uint(1)
    cuda.call("cuLaunchKernel", function, blocks, one, one, c_uint(THREADS), one, one, c_uint(0), None, arguments, None)
    cuda.call("cuCtxSynchronize")
    cuda.call("cuMemcpyDtoH_v2", total, places[2], size)
    for place in places:
        cuda.call("cuMemFree_v2", place)
    if wrong := next((index for index in range(COUNT) if total[index] != 3.0 * index), None):
        raise ValidationError(f"the GPU added wrongly: {left[wrong]} + {right[wrong]} = {total[wrong]}; do not use it")
