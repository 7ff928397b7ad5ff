//! The arguments of a verb, read as a model means them.

use indexmap::IndexSet;
use serde_json::{Map, Value};

use crate::Call;
use crate::arguments::{Problem, read};

pub(super) struct Args(Map<String, Value>);

impl Args {
    pub(super) fn of(call: &Call) -> Result<Self, Problem> {
        read(Some(&call.arguments)).map(Self)
    }

    /// The first of these that holds text. Models that fill every field send `""` or `"null"`
    /// for what they mean to leave out; numbers are taken as written.
    pub(super) fn text(&self, keys: &[&str]) -> Option<String> {
        keys.iter().find_map(|key| {
            match self.0.get(*key)? {
                Value::String(text) => Some(text.trim().to_owned()),
                Value::Number(number) => Some(number.to_string()),
                Value::Array(items) => {
                    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                    Some(words.join(", "))
                }
                _ => None,
            }
            .filter(|text| !text.is_empty() && !text.eq_ignore_ascii_case("null"))
        })
    }

    /// A number of results: fractions are cut, text is read, anything else is `default`; the
    /// outcome lies between 1 and `most`.
    pub(super) fn limit(&self, default: usize, most: usize) -> usize {
        let given = ["limit", "max_results", "top_k", "k"].iter().find_map(|key| self.0.get(*key));
        let number = match given {
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse::<f64>().ok(),
            _ => None,
        };
        let number = number.filter(|number| !number.is_nan());
        // A float beyond the range of integers becomes the nearest of them.
        number.map_or(default, |number| number as usize).clamp(1, most.max(1))
    }

    /// A list of names: an array, or text with commas. Empty or missing means none were given.
    pub(super) fn names(&self, keys: &[&str]) -> Vec<String> {
        let mut names: IndexSet<String> = IndexSet::new();
        let mut add = |text: &str| {
            let given = crate::find::split_names(text).into_iter();
            let real = given.filter(|name| !name.eq_ignore_ascii_case("null"));
            names.extend(real.map(str::to_owned));
        };
        match keys.iter().find_map(|key| self.0.get(*key)) {
            Some(Value::String(text)) => match serde_json::from_str::<Vec<String>>(text) {
                Ok(list) => list.iter().for_each(|name| add(name)),
                Err(_) => add(text),
            },
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).for_each(add),
            _ => {}
        }
        names.into_iter().collect()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Everything but these.
    pub(super) fn without(&self, keys: &[&str]) -> Map<String, Value> {
        let rest = self.0.iter().filter(|(key, _)| !keys.contains(&key.as_str()));
        rest.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn args(value: Value) -> Args {
        Args::of(&Call::new("x", value)).unwrap()
    }

    #[test]
    fn a_limit_of_any_kind_has_an_answer() {
        let cases = [
            (json!({}), 5),
            (json!({"limit": null}), 5),
            (json!({"limit": 3}), 3),
            (json!({"limit": 0}), 1),
            (json!({"limit": -7}), 1),
            (json!({"limit": 2.9}), 2),
            (json!({"limit": "4"}), 4),
            (json!({"limit": " 4.5 "}), 4),
            (json!({"limit": "many"}), 5),
            (json!({"limit": "NaN"}), 5),
            (json!({"limit": "inf"}), 20),
            (json!({"limit": 1e308}), 20),
            (json!({"limit": u64::MAX}), 20),
            (json!({"limit": [3]}), 5),
            (json!({"max_results": 7}), 7),
        ];
        for (given, expected) in cases {
            assert_eq!(args(given.clone()).limit(5, 20), expected, "{given}");
        }
    }

    #[test]
    fn text_that_says_nothing_is_left_out() {
        for nothing in [json!({}), json!({"q": ""}), json!({"q": " null "}), json!({"q": null})] {
            assert_eq!(args(nothing.clone()).text(&["q"]), None, "{nothing}");
        }
        assert_eq!(args(json!({"name": "", "q": "x"})).text(&["name", "q"]).as_deref(), Some("x"));
        assert_eq!(args(json!({"q": ["a", "b"]})).text(&["q"]).as_deref(), Some("a, b"));
    }

    #[test]
    fn names_come_as_a_list_or_as_text() {
        for list in [json!(["a", " b ", "", "a"]), json!("a, b,,a"), json!("[\"a\",\"b\"]")] {
            assert_eq!(args(json!({"n": list})).names(&["n"]), ["a", "b"]);
        }
        for nothing in [json!(null), json!([]), json!(""), json!(7), json!("null")] {
            assert!(args(json!({"n": nothing})).names(&["n"]).is_empty());
        }
    }
}
