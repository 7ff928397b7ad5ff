//! Words that name the same thing in the names of tools.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::analyze::{Term, stem};

/// Groups of words that stand for each other. Several words for one (`pull-request`) are each
/// looked for.
const GROUPS: &[&str] = &[
    "create add new make insert register",
    "delete remove erase destroy drop",
    "list enumerate browse",
    "get fetch read retrieve load view show",
    "update edit modify change patch set rename",
    "send post publish message",
    "search find query lookup locate",
    "start run launch execute trigger begin",
    "stop kill terminate end cancel abort",
    "upload attach import",
    "download export save",
    "copy duplicate clone",
    "move transfer",
    "enable activate",
    "disable deactivate",
    "check verify validate test",
    "close resolve complete finish",
    "picture image photo",
    "repo repository",
    "pr pull-request",
    "mr merge-request",
    "k8s kubernetes",
    "db database",
    "dir directory folder",
    "doc document",
    "env environment",
    "msg message",
    "config configuration preferences",
    "auth authentication",
    "issue ticket",
    "user member account",
    "price cost",
    "weather forecast",
    "email mail",
    "comment reply note",
    "job task",
    "schedule calendar event",
];

/// The terms that stand for a stemmed word.
pub(crate) fn synonyms(stemmed: &str) -> &'static [Term] {
    static TABLE: OnceLock<HashMap<String, Vec<Term>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: HashMap<String, Vec<Term>> = HashMap::new();
        for group in GROUPS {
            for word in group.split(' ').filter(|word| !word.contains('-')) {
                let others = group.split(' ').filter(|other| *other != word);
                let terms = others.flat_map(|other| other.split('-')).map(|w| Term::of(&stem(w)));
                table.entry(stem(word).into_owned()).or_default().extend(terms);
            }
        }
        table
    });
    table.get(stemmed).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_finds_the_others_of_its_group_and_not_itself() {
        let create = synonyms(&stem("create"));
        assert!(create.contains(&Term::of(&stem("add"))));
        assert!(!create.contains(&Term::of(&stem("create"))));
        assert_eq!(synonyms("pr").len(), 2);
        assert!(synonyms("zebra").is_empty());
    }
}
