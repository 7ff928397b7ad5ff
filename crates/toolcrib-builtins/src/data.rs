//! Data in text: JSON, YAML, TOML, CSV, differences, hashes, encodings.

mod convert;
mod json;
mod table;
mod text;

use crate::tool::{Effect, Tool, Tools};

/// The longest text that these tools take.
const LONGEST_INPUT: usize = 4 * 1024 * 1024;

pub(crate) fn tools() -> Vec<Tool> {
    Tools::new(())
        .blocking(json::JSON_QUERY, Effect::Reads, json::json_query)
        .blocking(json::JSON_VALIDATE, Effect::Reads, json::json_validate)
        .blocking(convert::CONVERT_DATA, Effect::Reads, convert::convert_data)
        .blocking(table::CSV_QUERY, Effect::Reads, table::csv_query)
        .blocking(table::CSV_SUMMARY, Effect::Reads, table::csv_summary)
        .blocking(text::DIFF_TEXT, Effect::Reads, text::diff_text)
        .blocking(text::HASH_TEXT, Effect::Reads, text::hash_text)
        .blocking(text::ENCODE_TEXT, Effect::Reads, text::encode_text)
        .blocking(text::DECODE_TEXT, Effect::Reads, text::decode_text)
        .blocking(text::REGEX_EXTRACT, Effect::Reads, text::regex_extract)
        .into_tools()
}

#[cfg(test)]
mod tests;
