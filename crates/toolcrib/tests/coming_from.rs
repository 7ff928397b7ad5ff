//! Every name that `docs/coming-from.md` gives is in the code at its end, which is compiled.

#![allow(clippy::unwrap_used)]

const PAGE: &str = include_str!("../../../docs/coming-from.md");

#[test]
fn every_row_leads_to_an_item_that_exists() {
    let (tables, code) = PAGE.split_once("```rust").unwrap();
    let rows: Vec<&str> = tables
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| there"))
        .collect();
    assert!(rows.len() > 40, "{}", rows.len());
    for row in rows {
        let ours = row.trim_matches('|').rsplit_once(" | ").unwrap().1;
        let names: Vec<&str> = ours.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            // A command of the binary has tests of its own.
            assert!(name.starts_with("toolcrib ") || code.contains(name), "{name} in {row}");
        }
    }
}
