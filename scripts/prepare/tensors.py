"""Writes safetensors files; a full disk is told as one sentence."""
from safetensors import SafetensorError
from safetensors.numpy import save_file

from errors import PreparationError


def write(tensors, path, metadata):
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:  # the library's own form of OSError
        raise PreparationError(f"{path} cannot be written: {error}; nothing half-made is left") from error
