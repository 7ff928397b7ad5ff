//! Tables in CSV.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::LONGEST_INPUT;
use crate::error::{Failure, check_size};
use crate::tool::Stop;

const MOST_ROWS: usize = 1_000;
pub(super) const MOST_CELLS: usize = 2_000_000;

/// A table with a header.
pub(super) struct Table {
    columns: Vec<String>,
    rows: Vec<csv::StringRecord>,
}

impl Table {
    pub(super) fn parse(text: &str, delimiter: Option<char>) -> Result<Self, Failure> {
        check_size("The CSV", text, LONGEST_INPUT)?;
        let delimiter = u8::try_from(delimiter.unwrap_or(','))
            .map_err(|_| Failure::invalid("The delimiter must be one ASCII character."))?;
        let wrong = |error: csv::Error| Failure::invalid(format!("Not CSV: {error}."));
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .flexible(true)
            .from_reader(text.as_bytes());
        let columns: Vec<String> =
            reader.headers().map_err(wrong)?.iter().map(|name| name.trim().to_owned()).collect();
        let mut rows = Vec::new();
        let mut cells = columns.len();
        for row in reader.into_records() {
            let row = row.map_err(wrong)?;
            // A short row counts in full: it may yet be filled up.
            cells += row.len().max(columns.len()) + 1;
            if cells > MOST_CELLS {
                return Err(Failure::invalid(format!("The table has over {MOST_CELLS} cells.")));
            }
            rows.push(row);
        }
        Ok(Self { columns, rows })
    }

    fn column(&self, name: &str) -> Result<usize, Failure> {
        let found = self.columns.iter().position(|column| column == name);
        found.ok_or_else(|| {
            let columns = self.columns.join(", ");
            Failure::invalid(format!("There is no column `{name}`; there are {columns}."))
        })
    }

    /// Every row as an object.
    pub(super) fn into_objects(self) -> Value {
        let columns: Vec<usize> = (0..self.columns.len()).collect();
        self.rows.iter().map(|row| self.object(row, &columns)).collect()
    }

    fn object(&self, row: &csv::StringRecord, columns: &[usize]) -> Value {
        let cell = |column: &usize| {
            let name = self.columns.get(*column)?.clone();
            Some((name, typed(row.get(*column).unwrap_or_default())))
        };
        Value::Object(columns.iter().filter_map(cell).collect::<Map<_, _>>())
    }
}

/// A number or a boolean where the cell is written like one; `007` and `+1` stay text.
fn typed(cell: &str) -> Value {
    let is_plain = !cell.is_empty() && !cell.starts_with(['"', '[', '{']) && cell != "null";
    let parsed = is_plain.then(|| serde_json::from_str(cell).ok()).flatten();
    parsed.unwrap_or_else(|| Value::String(cell.to_owned()))
}

pub(super) const CSV_QUERY: (&str, &str) = (
    "csv_query",
    "Filter, sort and select rows of a CSV table, and count, sum or average by group. Use it to \
     answer questions about tabular data given as text.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CsvQuery {
    /// The CSV text; its first line names the columns.
    csv: String,
    /// Conditions that a row must all meet.
    #[serde(default, rename = "where")]
    conditions: Vec<Condition>,
    /// The columns to give, in this order; all if left out.
    columns: Option<Vec<String>>,
    /// Sort by this column, numbers as numbers.
    sort_by: Option<String>,
    /// Sort from the largest to the smallest.
    #[serde(default)]
    descending: bool,
    /// Give one row for each value of this column, with count, sum, mean, min and max.
    group_by: Option<String>,
    /// The column of numbers to sum up in each group.
    aggregate: Option<String>,
    /// How many rows to give at most.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1000))]
    limit: usize,
    /// What separates the cells; a comma if left out.
    delimiter: Option<char>,
}

fn hundred() -> usize {
    100
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Condition {
    /// The column to look at.
    column: String,
    /// How to compare the cell with the value.
    operator: Operator,
    /// The value to compare with; numbers are compared as numbers.
    value: String,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Operator {
    Equals,
    NotEquals,
    Contains,
    LessThan,
    AtMost,
    GreaterThan,
    AtLeast,
}

impl Operator {
    fn holds(self, cell: &str, value: &str) -> bool {
        let order = compare(cell, value);
        match self {
            Self::Equals => order.is_eq(),
            Self::NotEquals => order.is_ne(),
            Self::Contains => cell.contains(value),
            Self::LessThan => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::GreaterThan => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

/// Numbers come before text, so that the order is one even in a mixed column.
fn compare(one: &str, other: &str) -> Ordering {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

fn number(cell: &str) -> Option<f64> {
    cell.trim().parse().ok().filter(|number: &f64| number.is_finite()).map(|number| number + 0.0)
}

pub(super) fn csv_query(_: &(), arguments: CsvQuery, stop: &Stop) -> Result<Value, Failure> {
    let mut table = Table::parse(&arguments.csv, arguments.delimiter)?;
    for condition in &arguments.conditions {
        stop.check()?;
        let column = table.column(&condition.column)?;
        let holds = |row: &csv::StringRecord| {
            condition.operator.holds(row.get(column).unwrap_or_default(), &condition.value)
        };
        table.rows.retain(holds);
    }
    let limit = arguments.limit.clamp(1, MOST_ROWS);
    if let Some(group) = &arguments.group_by {
        return grouped(&table, group, arguments.aggregate.as_deref(), limit);
    }
    if arguments.aggregate.is_some() {
        return Err(Failure::invalid("`aggregate` goes with `group_by`."));
    }
    if let Some(column) = &arguments.sort_by {
        let column = table.column(column)?;
        let cell = |row: &csv::StringRecord| row.get(column).unwrap_or_default().to_owned();
        table.rows.sort_by(|one, other| {
            let order = compare(&cell(one), &cell(other));
            if arguments.descending { order.reverse() } else { order }
        });
    }
    let columns = match &arguments.columns {
        Some(names) => names.iter().map(|name| table.column(name)).collect::<Result<_, _>>()?,
        None => (0..table.columns.len()).collect::<Vec<usize>>(),
    };
    let rows: Vec<Value> =
        table.rows.iter().take(limit).map(|row| table.object(row, &columns)).collect();
    Ok(json!({"matched": table.rows.len(), "rows": rows}))
}

fn grouped(table: &Table, by: &str, of: Option<&str>, limit: usize) -> Result<Value, Failure> {
    let by_column = table.column(by)?;
    let of_column = of.map(|name| table.column(name)).transpose()?;
    let mut groups: std::collections::BTreeMap<&str, (usize, Numbers)> = Default::default();
    for row in &table.rows {
        let group = groups.entry(row.get(by_column).unwrap_or_default()).or_default();
        group.0 += 1;
        if let Some(number) = of_column.and_then(|column| number(row.get(column)?)) {
            group.1.add(number);
        }
    }
    let count = groups.len();
    let row = |(key, (count, numbers)): (&str, (usize, Numbers))| {
        let mut row = json!({by: typed(key), "count": count});
        if of.is_some() {
            numbers.describe(&mut row);
        }
        row
    };
    let rows: Vec<Value> = groups.into_iter().take(limit).map(row).collect();
    Ok(json!({"groups": count, "rows": rows}))
}

#[derive(Default)]
struct Numbers {
    count: usize,
    sum: f64,
    least: f64,
    most: f64,
}

impl Numbers {
    fn add(&mut self, number: f64) {
        let is_first = self.count == 0;
        self.count += 1;
        self.sum += number;
        self.least = if is_first { number } else { self.least.min(number) };
        self.most = if is_first { number } else { self.most.max(number) };
    }

    fn describe(&self, row: &mut Value) {
        if self.count > 0 {
            row["sum"] = json!(self.sum);
            row["mean"] = json!(self.sum / self.count as f64);
            row["min"] = json!(self.least);
            row["max"] = json!(self.most);
        }
    }
}

pub(super) const CSV_SUMMARY: (&str, &str) = (
    "csv_summary",
    "Summarise a CSV table: its columns, how many rows, and for each column the empty and distinct \
     values, minimum, maximum, sum and mean. Use it first to see what a table holds.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CsvSummary {
    /// The CSV text; its first line names the columns.
    csv: String,
    /// What separates the cells; a comma if left out.
    delimiter: Option<char>,
}

pub(super) fn csv_summary(_: &(), arguments: CsvSummary, stop: &Stop) -> Result<Value, Failure> {
    let table = Table::parse(&arguments.csv, arguments.delimiter)?;
    let mut columns = Vec::new();
    for (at, name) in table.columns.iter().enumerate().take(MOST_ROWS) {
        stop.check()?;
        let cells = table.rows.iter().map(|row| row.get(at).unwrap_or_default());
        let filled: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
        let distinct: std::collections::BTreeSet<&str> = filled.iter().copied().collect();
        let mut numbers = Numbers::default();
        filled.iter().filter_map(|cell| number(cell)).for_each(|number| numbers.add(number));
        let is_numeric = numbers.count == filled.len() && numbers.count > 0;
        let empty = table.rows.len() - filled.len();
        let mut column = json!({
            "name": name, "kind": if is_numeric { "number" } else { "text" },
            "empty": empty, "distinct": distinct.len(),
        });
        if is_numeric {
            numbers.describe(&mut column);
        } else {
            let clipped = |text: &&str| text.chars().take(60).collect::<String>();
            column["examples"] = distinct.iter().take(3).map(clipped).collect();
        }
        columns.push(column);
    }
    Ok(json!({"rows": table.rows.len(), "columns": columns}))
}
