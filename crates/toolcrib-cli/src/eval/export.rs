//! Rankings as files, for other programs to score.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use super::measure::{Part, Run};

#[derive(Serialize)]
struct Line<'a> {
    set: &'a str,
    id: &'a Value,
    ranked: &'a [Arc<str>],
}

/// Writes a run. What it is, if there are several, becomes part of the file's name.
pub(super) fn write(
    file: &Path,
    what: impl IntoIterator<Item = String>,
    parts: &[Part<'_>],
    run: &Run,
) -> anyhow::Result<()> {
    let file = place(file, what);
    let shown = file.display();
    let out = File::create(&file).with_context(|| format!("can't write {shown}"))?;
    let mut out = BufWriter::new(out);
    for (part, answers) in parts.iter().zip(&run.answers) {
        for (query, answer) in part.queries.iter().zip(answers) {
            let line = Line { set: &part.set.name, id: &query.id, ranked: &answer.ranked };
            serde_json::to_writer(&mut out, &line)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush().with_context(|| format!("can't write {shown}"))
}

/// `run.jsonl`, or `run.pool.lexical.jsonl`.
fn place(file: &Path, what: impl IntoIterator<Item = String>) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    for what in what {
        name.push(format!(".{what}"));
    }
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}
