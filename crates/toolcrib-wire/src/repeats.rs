//! Objects that have a key twice, of which readers take the one value or the other.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Keys of one object that are compared with each other one by one.
const FEW: usize = 16;

/// Whether any object in this JSON, at whatever depth, has the same key twice. What can't be read
/// is said to have.
///
/// ```
/// use toolcrib_wire::repeats_a_key;
///
/// assert!(repeats_a_key(r#"[{"path":1,"p\u0061th":2}]"#));
/// assert!(!repeats_a_key(r#"{"path":1,"in":{"path":2}}"#));
/// ```
pub fn repeats_a_key(json: &str) -> bool {
    let mut reader = serde_json::Deserializer::from_str(json);
    Once.deserialize(&mut reader).is_err() || reader.end().is_err()
}

/// Reads any value, and fails at a key that was there before.
#[derive(Clone, Copy)]
struct Once;

/// The keys of an object so far.
#[derive(Default)]
struct Keys<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> Keys<'de> {
    /// Whether a key is new.
    fn add(&mut self, key: Cow<'de, str>) -> bool {
        if self.few.contains(&key) {
            return false;
        }
        if self.few.len() < FEW {
            self.few.push(key);
            return true;
        }
        self.many.insert(key)
    }
}

impl<'de> DeserializeSeed<'de> for Once {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = Keys::default();
        while let Some(key) = map.next_key::<crate::fields::Key<'de>>()? {
            if !keys.add(key.0) {
                return Err(A::Error::custom("a key is there twice"));
            }
            map.next_value_seed(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_there_twice_at_any_depth_and_in_any_spelling() {
        for json in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"b":{"c":[1,{"d":null,"d":null}]}}"#,
            r#"[[{"\u0061":1.5e3,"a":true}]]"#,
            "{",
            "",
        ] {
            assert!(repeats_a_key(json), "{json}");
        }
        let many: Vec<String> = (0..40).map(|n| format!(r#""k{n}":{n}"#)).collect();
        for json in [
            r#"{"a":1,"A":2,"b":{"a":{"a":[]}},"":"a"}"#,
            r#" [1,-2,1.50,12345678901234567890123,null,true,"\u0000",{}] "#,
            "7",
            &format!("{{{}}}", many.join(",")),
        ] {
            assert!(!repeats_a_key(json), "{json}");
        }
        assert!(repeats_a_key(&format!(r#"{{{},"k39":0}}"#, many.join(","))));
        assert!(repeats_a_key(&format!(r#"{{{},"k0":0}}"#, many.join(","))));
    }
}
