"""Which partition a run lives in: Kafka's murmur2 over the run id, computed by us since client defaults disagree."""

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of(run_id: str, partition_count: int) -> int:
    """(murmur2(utf-8 run_id) & 0x7fffffff) mod partition_count, as Kafka's Java client computes it for a key."""
    return (murmur2(run_id.encode()) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with Kafka's seed 0x9747b28c, unsigned."""
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = (int.from_bytes(data[at : at + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    tail = data[whole:]
    if tail:
        h = ((h ^ int.from_bytes(tail, "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)
