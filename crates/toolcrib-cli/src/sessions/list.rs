//! What is known of sessions without reading them.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::styling::Style;
use serde::Serialize;
use toolcrib::SessionMeta;

use super::keep::{FOLDER, MODEL, here};
use crate::args::Context;
use crate::output::{self, GREEN, Rows, number, shortened};

/// What a program is told of a session.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    id: &'a str,
    title: Option<&'a str>,
    messages: u64,
    labels: &'a BTreeMap<String, String>,
    /// In seconds since 1970.
    created_at: u64,
    changed_at: u64,
    forked_from: Option<&'a str>,
    /// The process that goes on with it.
    in_use_by: Option<u32>,
}

impl<'a> Row<'a> {
    pub(super) fn new(meta: &'a SessionMeta) -> Self {
        let since_1970 =
            |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self {
            id: &meta.id,
            title: meta.title.as_deref(),
            messages: meta.messages,
            labels: &meta.labels,
            created_at: since_1970(meta.created_at),
            changed_at: since_1970(meta.changed_at),
            forked_from: meta.forked_from.as_deref(),
            in_use_by: meta.in_use_by,
        }
    }
}

/// The most characters of a folder's name. Its end tells more than its beginning.
const MOST_OF_FOLDER: usize = 28;

/// A table of sessions.
pub(super) fn describe(metas: &[SessionMeta], context: &Context) -> String {
    let now = SystemTime::now();
    let rows: Vec<[String; 6]> = metas
        .iter()
        .map(|meta| {
            let label = |name| meta.labels.get(name).map(String::as_str).unwrap_or("-");
            [
                meta.id.clone(),
                if meta.in_use_by.is_some() { "in use".to_owned() } else { age(meta, now) },
                number(meta.messages),
                meta.title.clone().unwrap_or_else(|| "-".to_owned()),
                label(MODEL).to_owned(),
                folder(label(FOLDER), context),
            ]
        })
        .collect();
    let titles = ["ID", "CHANGED", "MESSAGES>", "TITLE", "MODEL", "FOLDER"];
    let width = |at: usize| {
        let widths = rows.iter().map(|row| row[at].chars().count());
        widths.chain([titles[at].trim_end_matches('>').len()]).max().unwrap_or_default() + 2
    };
    let others: usize = [0, 1, 2, 4, 5].into_iter().map(width).sum();
    let room = output::columns().saturating_sub(others).clamp(20, 60);
    let mut table = Rows::new(&titles);
    for (row, meta) in rows.iter().zip(metas) {
        let [id, age, messages, title, model, folder] = row;
        let style = if meta.in_use_by.is_some() { GREEN } else { Style::new() };
        table.add(style, [id, age, messages, &shortened(title, room), model, folder]);
    }
    table.to_string()
}

fn age(meta: &SessionMeta, now: SystemTime) -> String {
    output::ago(meta.changed_at, now)
}

/// A folder as people write it: `.` for this one, `~` for home.
pub(super) fn folder(folder: &str, context: &Context) -> String {
    if here().is_some_and(|here| here == folder) {
        return ".".to_owned();
    }
    let home = context.env.home().map(|home| home.display().to_string());
    let within = home.as_deref().and_then(|home| folder.strip_prefix(home));
    let shown = match within {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("~{rest}"),
        _ => folder.to_owned(),
    };
    let length = shown.chars().count();
    match length > MOST_OF_FOLDER {
        true => ['…'].into_iter().chain(shown.chars().skip(length + 1 - MOST_OF_FOLDER)).collect(),
        false => shown,
    }
}
