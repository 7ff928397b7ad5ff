//! Content fingerprints: equal content, equal fingerprint, on any machine and in any process.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A 128-bit content hash, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Hashes `parts` so that moving a boundary between two of them changes the result.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(bytes)
    }

    /// The fingerprint of a JSON value, whatever the order of its keys.
    pub fn of_json(value: &serde_json::Value) -> Self {
        let mut value = value.clone();
        value.sort_all_objects();
        Self::of([value.to_string().as_bytes()])
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The first eight digits, for names and messages.
    pub(crate) fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(D::Error::custom("a fingerprint has 32 hexadecimal digits"));
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(D::Error::custom)?;
            *byte = u8::from_str_radix(pair, 16).map_err(D::Error::custom)?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_between_parts_count() {
        let ab_c = Fingerprint::of([&b"ab"[..], b"c"]);
        let a_bc = Fingerprint::of([&b"a"[..], b"bc"]);
        assert_ne!(ab_c, a_bc);
    }

    #[test]
    fn it_survives_json() {
        let fingerprint = Fingerprint::of([&b"x"[..]]);
        let json = serde_json::to_string(&fingerprint).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), fingerprint);
        assert!(serde_json::from_str::<Fingerprint>("\"zz\"").is_err());
        assert!(serde_json::from_str::<Fingerprint>(&format!("\"{}\"", "é".repeat(16))).is_err());
    }
}
