//! Which partition a key belongs to: murmur2 as Java's default partitioner computes it, so that a
//! Java producer, librdkafka (`partitioner=murmur2_random`) and dueline agree on every key.

/// The partition of `key` among `partitions` (0 when there are none).
#[must_use]
pub fn partition_for(key: &[u8], partitions: u32) -> u32 {
    if partitions == 0 { 0 } else { (murmur2(key) & 0x7fff_ffff) % partitions }
}

fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // Java's lengths are 32-bit; a Kafka key cannot be longer.
    let mut h = SEED ^ u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> R;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = chunks.remainder();
    if !tail.is_empty() {
        for (i, byte) in tail.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that Apache Kafka's own unit test of `Utils.murmur2` expects.
    #[test]
    fn murmur2_agrees_with_java() {
        let cases: [(&str, i32); 5] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("abc", 479_470_107),
        ];
        for (key, expected) in cases {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), expected, "{key}");
        }
    }

    #[test]
    fn no_partitions_is_no_panic() {
        assert_eq!(partition_for(b"x", 0), 0);
    }
}
