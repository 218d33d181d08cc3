"""Reads and writes safetensors files, types that NumPy lacks included; a full disk is told as one sentence."""
import dataclasses
import json
import struct

import numpy as np
from safetensors import SafetensorError, TensorSpec, serialize_file

from errors import PreparationError

_NUMPY = {"float32": "float32", "int64": "int64", "int32": "int32"}
_FORMAT = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}  # the file's names and the library's


@dataclasses.dataclass(frozen=True)
class Stored:
    """A tensor as its file keeps it."""
    dtype: str         # the library's name: "bfloat16"
    shape: tuple
    data: np.ndarray   # its bytes, in any type


def bfloat16(array):
    """float32 as bfloat16, rounded to nearest, ties to even; finite values only."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return Stored("bfloat16", array.shape, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16))


def _spec(tensor):
    shape = list(tensor.shape)
    dtype, data = (tensor.dtype, tensor.data) if isinstance(tensor, Stored) else (_NUMPY[tensor.dtype.name], tensor)
    return TensorSpec(dtype=dtype, shape=shape, data_ptr=data.ctypes.data, data_len=data.nbytes)


def write(tensors, path, metadata):
    """`tensors`: name -> NumPy array or Stored."""
    tensors = {name: tensor if isinstance(tensor, Stored) else np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    try:
        serialize_file({name: _spec(tensor) for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:  # the library's own form of OSError
        raise PreparationError(f"{path} cannot be written: {error}; nothing half-made is left") from error


def read(path):
    """name -> Stored, mapped and not copied. A file that is none, or cut off, is told as one sentence."""
    size = path.stat().st_size
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        data = np.memmap(path, np.uint8, "r", offset=8 + length)
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            if end > len(data):
                raise PreparationError(f"{path}: tensor '{name}' ends at byte {end} of {len(data)}: the file is cut off")
            tensors[name] = Stored(_FORMAT.get(entry["dtype"], entry["dtype"]), tuple(entry["shape"]), data[begin:end])
    except (ValueError, KeyError, struct.error) as error:
        raise PreparationError(f"{path} is no safetensors file, or cut off ({size} bytes)") from error
    return tensors
