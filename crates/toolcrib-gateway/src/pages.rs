//! Long lists in pages.

use serde_json::value::RawValue;
use toolcrib_wire::RpcError;

use crate::request::Params;

/// Where a page begins, and the list it is of. To clients it is a text without meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    offset: usize,
    /// Of the list's hash, what tells it from the list before a change.
    of: u32,
}

/// A page: which entries, and where the next one begins, if there is one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) next: Option<String>,
}

impl Cursor {
    /// Reads a cursor; `None` if it was not given out here.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (offset, of) = text.strip_prefix("v1.")?.split_once('.')?;
        let is_number = offset.bytes().all(|byte| byte.is_ascii_digit());
        let of = (of.len() == 8 && is_number).then(|| u32::from_str_radix(of, 16).ok())??;
        Some(Self { offset: offset.parse().ok()?, of })
    }

    fn write(self) -> String {
        format!("v1.{}.{:08x}", self.offset, self.of)
    }

    /// Whether it is of the list with this hash.
    pub(crate) fn is_of(self, hash: u64) -> bool {
        self.of == short(hash)
    }
}

/// The page of a list with `count` entries and this hash that a request asks for.
pub(crate) fn page(
    cursor: Option<&RawValue>,
    count: usize,
    hash: u64,
    size: usize,
) -> Result<Page, RpcError> {
    let stale = "No such cursor: the list may have changed; list again from the beginning";
    let from = match cursor.filter(|cursor| cursor.get() != "null") {
        None => 0,
        given => {
            let cursor = Params::text(given).and_then(|text| Cursor::parse(&text));
            let cursor = cursor.filter(|cursor| cursor.is_of(hash) && cursor.offset < count);
            cursor.ok_or_else(|| RpcError::invalid_params(stale))?.offset
        }
    };
    let to = count.min(from.saturating_add(size.max(1)));
    let next = (to < count).then(|| Cursor { offset: to, of: short(hash) }.write());
    Ok(Page { from, to, next })
}

#[allow(clippy::cast_possible_truncation, reason = "a part of the hash is meant")]
fn short(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cursor: &str, hash: u64) -> Option<(usize, usize, Option<String>)> {
        let raw = RawValue::from_string(cursor.to_owned()).unwrap();
        let page = page(Some(&raw), 25, hash, 10).ok()?;
        Some((page.from, page.to, page.next))
    }

    #[test]
    fn pages_follow_one_another_to_the_end() {
        let (mut cursor, mut seen) = ("null".to_owned(), Vec::new());
        loop {
            let (from, to, next) = at(&cursor, 7).unwrap();
            seen.extend(from..to);
            let Some(next) = next else { break };
            cursor = format!("{next:?}");
        }
        assert_eq!(seen, (0..25).collect::<Vec<_>>());
        assert_eq!(page(None, 0, 7, 10).unwrap(), Page { from: 0, to: 0, next: None });
    }

    #[test]
    fn a_cursor_is_good_for_one_state_of_one_list() {
        let next = format!("{:?}", at("null", 7).unwrap().2.unwrap());
        assert!(at(&next, 7).is_some() && at(&next, 8).is_none());
        for wrong in ["7", "\"\"", "\"v1.10\"", "\"v1.+9.00000007\"", "\"v1.99.00000007\"", "[]"] {
            assert!(at(wrong, 7).is_none(), "{wrong}");
        }
    }
}
