"""Compressed batches: every codec of Kafka, and never more than the limit."""

import struct

import cramjam
import pytest
from kafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode

from config.kafka.wire_format import XERIAL, decompress

PLAIN = b"".join(b"%d," % number for number in range(20_000))
CODECS = {
    "gzip": (1, gzip_encode),
    "snappy of Java": (2, snappy_encode),
    "snappy": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (3, lz4_encode),
    "zstd": (4, zstd_encode),
}
each_codec = pytest.mark.parametrize(("number", "encode"), CODECS.values(), ids=CODECS)


@each_codec
def test_what_was_compressed_comes_back(number, encode):
    assert decompress(number, encode(PLAIN), len(PLAIN)) == (PLAIN, True)


@each_codec
@pytest.mark.parametrize("limit", [1, 40_000, len(PLAIN) - 1])
def test_nothing_beyond_the_limit_is_made(number, encode, limit):
    found, whole = decompress(number, encode(PLAIN), limit)
    assert not whole
    assert len(found) == limit
    if encode is not CODECS["snappy"][1]:  # one block, which can only be read wholly
        read = len(found.rstrip(b"\0"))
        assert read >= limit - 32_768
        assert found[:read] == PLAIN[:read]


@pytest.mark.parametrize("name", ["gzip", "snappy of Java", "lz4", "zstd"])
def test_what_was_compressed_in_two_parts_is_read_to_the_end(name):
    number, encode = CODECS[name]
    assert decompress(number, encode(PLAIN) + encode(b"the end"), 10**6) == (PLAIN + b"the end", True)


def test_many_frames_of_lz4_take_no_longer_than_their_bytes():
    """Each is fed a step of what follows: all of it, copied for each frame, would be gigabytes."""
    frames = lz4_encode(b"x") * 20_000
    assert decompress(3, frames, 10**6) == (b"x" * 20_000, True)
    assert decompress(3, frames + b"no frame", 10**6) == (b"x" * 20_000, True)
    with pytest.raises(ValueError, match="it is cut off"):
        decompress(3, frames[:-6], 10**6)


@each_codec
def test_damage_is_said_to_be_damage(number, encode):
    data = bytearray(encode(PLAIN))
    data[:60] = b"\xff" * 60
    with pytest.raises(ValueError, match="cannot be decompressed"):
        decompress(number, bytes(data), 10**6)


@pytest.mark.parametrize("length", [-4, 2**31 - 1, 0])
def test_a_block_of_any_length_comes_to_an_end(length):
    data = XERIAL + b"\0" * 8 + struct.pack(">i", length) + b"\x01\x00a"
    with pytest.raises(ValueError, match="cannot be decompressed"):
        decompress(2, data, 1000)


def test_a_codec_that_nobody_knows_is_named():
    with pytest.raises(ValueError, match="codec 7, which is unknown"):
        decompress(7, b"", 10)
