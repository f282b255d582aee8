"""Decompresses record batches, never beyond a limit: a few kilobytes may stand for gigabytes."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame
import zstandard

XERIAL = b"\x82SNAPPY\x00"  # of Java's clients: 16 bytes of header, then blocks, each after its length
XERIAL_HEADER = 16
GZIP = b"\x1f\x8b"
STEP = 16_384  # bytes that gzip is fed at once: what follows a member is copied, and there may be very many


def decompress(codec: int, data: bytes, limit: int) -> tuple[bytes, bool]:
    """At most `limit` bytes of what `data` holds, and whether that is all of it; ValueError if it is damaged.

    `codec` is the number in the record batch's attributes: 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    """
    try:
        found = CODECS[codec](data, limit + 1)
    except KeyError:
        raise ValueError(f"compressed with codec {codec}, which is unknown") from None
    except (
        ValueError,
        zlib.error,
        zstandard.ZstdError,
        RuntimeError,
        struct.error,
        cramjam.DecompressionError,
    ) as error:
        raise ValueError(f"cannot be decompressed: {error}") from error
    return found[:limit], len(found) <= limit


def _gzip(data: bytes, most: int) -> bytes:
    """Member by member; what follows the last one and is none is ignored, as Java's clients do."""
    found, at = bytearray(), 0
    while at < len(data) and len(found) < most and (at == 0 or data.startswith(GZIP, at)):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof and len(found) < most:
            if not (piece := data[at : at + STEP]):
                raise ValueError("it is cut off")
            found += member.decompress(piece, most - len(found))
            at += len(piece) - len(member.unused_data)
    return bytes(found)


def _snappy(data: bytes, most: int) -> bytes:
    """Block by block; one that would go beyond `most` is filled with zeros, because it cannot be read in part."""
    found = io.BytesIO()
    for block in _snappy_blocks(data):
        if found.tell() + cramjam.snappy.decompress_raw_len(block) >= most:
            return found.getvalue().ljust(most, b"\0")
        found.write(bytes(cramjam.snappy.decompress_raw(block)))
    return found.getvalue()


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    if not data.startswith(XERIAL):
        yield data
        return
    at = 0
    while at < len(data):
        if data.startswith(XERIAL, at):  # another stream may follow
            at += XERIAL_HEADER
            continue
        (length,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : (at := at + 4 + length)]
    if at > len(data):
        raise ValueError("the last block is cut off")


def _lz4(data: bytes, most: int) -> bytes:
    """The first frame, which is all that brokers and clients read."""
    frame = lz4.frame.LZ4FrameDecompressor()
    found = frame.decompress(data, max_length=most)
    if len(found) < most and not frame.eof:
        raise ValueError("it is cut off")
    return bytes(found)


def _zstd(data: bytes, most: int) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read(most)


CODECS: dict[int, Callable[[bytes, int], bytes]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
