//! Objects of which one member is changed and the rest stay as they are.

use std::borrow::Cow;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// The members of an object, in order, each as the JSON it came as.
///
/// ```
/// use toolcrib_wire::Fields;
///
/// let mut tool = Fields::parse(r#"{"name":"add","x-vendor":1.0}"#).unwrap();
/// tool.set("name", &"math__add");
/// assert_eq!(tool.to_raw().get(), r#"{"name":"math__add","x-vendor":1.0}"#);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> Fields<'a> {
    /// Reads an object; `None` if the text is none.
    pub fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// A member.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// A member, read as what it should be; `None` if it is missing or something else.
    pub fn read<'b, T: Deserialize<'b>>(&'b self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// Changes a member in its place, or adds it at the end.
    pub fn set(&mut self, name: &'a str, value: &impl Serialize) {
        // Types of our own with string keys: they serialise.
        let value: Cow<'a, RawValue> = Cow::Owned(to_raw_value(value).unwrap_or_default());
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, place)) => *place = value,
            None => self.0.push((name.into(), value)),
        }
    }

    /// Adds those members of another object that this one lacks.
    pub fn add_missing(&mut self, other: Self) {
        for (name, value) in other.0 {
            if self.get(&name).is_none() {
                self.0.push((name, value));
            }
        }
    }

    /// The members, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Takes a member out.
    pub fn remove(&mut self, name: &str) -> Option<Cow<'a, RawValue>> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    /// Keeps the members whose names are wanted.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|(key, _)| wanted(key));
    }

    /// The names of the members, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// Whether it has no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object as JSON.
    pub fn to_raw(&self) -> Box<RawValue> {
        to_raw_value(self).unwrap_or_default()
    }

    /// The same as text.
    pub fn to_text(&self) -> String {
        Box::<str>::from(self.to_raw()).into_string()
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    members.push((key.0, Cow::Borrowed(map.next_value::<&'de RawValue>()?)));
                }
                Ok(Fields(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[derive(Deserialize)]
pub(crate) struct Key<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_leaves_the_rest_as_it_was() {
        let text = r#"{"b":1e3,"a":{"x" : 12345678901234567890123},"\u0062c":null}"#;
        let mut fields = Fields::parse(text).unwrap();
        assert_eq!(fields.read::<f64>("b"), Some(1000.0));
        assert_eq!(fields.read::<String>("b"), None);
        assert_eq!(fields.get("bc").map(RawValue::get), Some("null"));
        fields.set("new", &[1]);
        fields.set("b", &"x");
        assert!(fields.remove("bc").is_some() && fields.remove("bc").is_none());
        let expected = r#"{"b":"x","a":{"x" : 12345678901234567890123},"new":[1]}"#;
        assert_eq!(fields.to_raw().get(), expected);
        fields.retain(|name| name != "a");
        fields.add_missing(Fields::parse(r#"{"b":1,"z":2.0}"#).unwrap());
        assert_eq!(fields.to_raw().get(), r#"{"b":"x","new":[1],"z":2.0}"#);
        assert_eq!(fields.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b", "new", "z"]);
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in ["[]", "7", "", "{", "null"] {
            assert!(Fields::parse(text).is_none(), "{text}");
        }
    }
}
