//! SQLite databases under the roots.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Rows};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin::Options;
use crate::error::{BuiltinError, Failure, check_size};
use crate::roots::Roots;
use crate::tool::{BLOCKING_SECONDS, Effect, Stop, Tool, Tools};

const LONGEST_SQL: usize = 64 * 1024;
const MOST_ROWS: usize = 5_000;
/// The most bytes of values that one answer carries.
const MOST_BYTES: usize = 256 * 1024;
/// A text or blob longer than this is cut in an answer.
const LONGEST_VALUE: usize = 16 * 1024;
/// The longest value that a statement may build.
const LONGEST_BUILT: i32 = 16 * 1024 * 1024;
const STEPS_BETWEEN_CHECKS: i32 = 1_000;

pub(crate) fn tools(options: &Options) -> Result<Vec<Tool>, BuiltinError> {
    let tools = Tools::new(Roots::new("sqlite", options)?)
        .blocking(LIST_TABLES, Effect::Reads, list_tables)
        .blocking(DESCRIBE_TABLE, Effect::Reads, describe_table)
        .blocking(QUERY, Effect::Reads, query)
        .blocking(EXECUTE, Effect::Changes, execute);
    Ok(tools.into_tools())
}

const QUERY: (&str, &str) = (
    "query",
    "Run a SQL SELECT on a SQLite database file and get the rows. Use it to look up, count, join or \
     aggregate data; it can't change anything.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Query {
    /// The database file, relative to the first allowed folder, or absolute.
    database: String,
    /// One SQL statement that reads. Use `?` for values.
    sql: String,
    /// The values for the `?` in the statement, in order: text, numbers, booleans or null.
    #[serde(default)]
    parameters: Vec<Value>,
    /// How many rows to give at most.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 5000))]
    max_rows: usize,
}

fn hundred() -> usize {
    100
}

fn query(roots: &Roots, arguments: Query, stop: &Stop) -> Result<Value, Failure> {
    check_size("The statement", &arguments.sql, LONGEST_SQL)?;
    let path = roots.existing(&arguments.database)?;
    let connection = open(&path, OpenFlags::SQLITE_OPEN_READ_ONLY, stop)?;
    let mut statement = connection.prepare(&arguments.sql).map_err(explained)?;
    if !statement.readonly() {
        return Err(Failure::invalid("This statement changes the database; query only reads."));
    }
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let parameters = parameters(&arguments.parameters)?;
    let rows = statement.query(rusqlite::params_from_iter(parameters)).map_err(explained)?;
    let (rows, more) = collect(rows, columns.len(), arguments.max_rows.clamp(1, MOST_ROWS))?;
    let mut answer = json!({"columns": columns, "row_count": rows.len(), "rows": rows});
    if more {
        answer["note"] = json!("There are more rows; use LIMIT and OFFSET, or raise max_rows.");
    }
    Ok(answer)
}

const EXECUTE: (&str, &str) = (
    "execute",
    "Run a SQL statement that changes a SQLite database file: INSERT, UPDATE, DELETE, CREATE, ALTER \
     or DROP. Use query for reading. Answers with the number of rows changed.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Execute {
    /// The database file, relative to the first allowed folder, or absolute.
    database: String,
    /// One SQL statement. Use `?` for values.
    sql: String,
    /// The values for the `?` in the statement, in order: text, numbers, booleans or null.
    #[serde(default)]
    parameters: Vec<Value>,
    /// Make the database file if there is none.
    #[serde(default)]
    create: bool,
}

fn execute(roots: &Roots, arguments: Execute, stop: &Stop) -> Result<Value, Failure> {
    check_size("The statement", &arguments.sql, LONGEST_SQL)?;
    let path = roots.writable(&arguments.database)?;
    if !arguments.create && !path.exists() {
        return Err(Failure::Missing(arguments.database));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let flags = if arguments.create { flags | OpenFlags::SQLITE_OPEN_CREATE } else { flags };
    let connection = open(&path, flags, stop)?;
    let mut statement = connection.prepare(&arguments.sql).map_err(explained)?;
    let parameters = rusqlite::params_from_iter(parameters(&arguments.parameters)?);
    if statement.column_count() > 0 {
        // RETURNING, or a SELECT after all.
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let rows = statement.query(parameters).map_err(explained)?;
        let (rows, _) = collect(rows, columns.len(), MOST_ROWS)?;
        let changed = connection.changes();
        return Ok(json!({"rows_changed": changed, "columns": columns, "rows": rows}));
    }
    let before = connection.total_changes();
    statement.execute(parameters).map_err(explained)?;
    // Of a statement such as CREATE TABLE, `changes` would tell the count of the one before.
    let changed = connection.total_changes() - before;
    let mut answer = json!({"rows_changed": changed});
    if changed > 0 {
        answer["last_insert_rowid"] = json!(connection.last_insert_rowid());
    }
    Ok(answer)
}

const LIST_TABLES: (&str, &str) = (
    "list_tables",
    "List the tables and views of a SQLite database file with their columns. Use it first, to learn \
     what a database holds before you query it.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListTables {
    /// The database file, relative to the first allowed folder, or absolute.
    database: String,
}

fn list_tables(roots: &Roots, arguments: ListTables, stop: &Stop) -> Result<Value, Failure> {
    let path = roots.existing(&arguments.database)?;
    let connection = open(&path, OpenFlags::SQLITE_OPEN_READ_ONLY, stop)?;
    let sql = "SELECT m.name, m.type, (SELECT group_concat(c.name, ', ') FROM pragma_table_info(m.name) c)
               FROM sqlite_schema m WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
               ORDER BY m.name LIMIT 1000";
    let mut statement = connection.prepare(sql).map_err(explained)?;
    let rows = statement
        .query_map([], |row| {
            let columns = row.get::<_, Option<String>>(2)?;
            Ok(json!({"name": row.get::<_, String>(0)?, "kind": row.get::<_, String>(1)?, "columns": columns}))
        })
        .map_err(explained)?;
    let tables = rows.collect::<Result<Vec<Value>, _>>().map_err(explained)?;
    Ok(json!({"tables": tables}))
}

const DESCRIBE_TABLE: (&str, &str) = (
    "describe_table",
    "Describe one table or view of a SQLite database: columns with types and keys, indexes, foreign \
     keys, row count and the SQL that made it. Use it to write a correct query.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DescribeTable {
    /// The database file, relative to the first allowed folder, or absolute.
    database: String,
    /// The table or view.
    table: String,
}

fn describe_table(roots: &Roots, arguments: DescribeTable, stop: &Stop) -> Result<Value, Failure> {
    let path = roots.existing(&arguments.database)?;
    let connection = open(&path, OpenFlags::SQLITE_OPEN_READ_ONLY, stop)?;
    let table = arguments.table.as_str();
    let made = "SELECT type, sql FROM sqlite_schema WHERE name = ?1 AND type IN ('table', 'view')";
    let about = connection.query_row(made, [table], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
    });
    let (kind, sql) = about.map_err(|error| match error {
        rusqlite::Error::QueryReturnedNoRows => {
            Failure::invalid(format!("There is no table `{table}`; list_tables names them."))
        }
        error => explained(error),
    })?;
    let list = |sql: &str, row: fn(&rusqlite::Row<'_>) -> rusqlite::Result<Value>| {
        let mut statement = connection.prepare(sql)?;
        statement.query_map([table], row)?.collect::<rusqlite::Result<Vec<Value>>>()
    };
    let columns =
        list("SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info(?1)", |row| {
            Ok(json!({
                "name": row.get::<_, String>(0)?, "type": row.get::<_, String>(1)?,
                "not_null": row.get::<_, bool>(2)?, "default": row.get::<_, Option<String>>(3)?,
                "primary_key": row.get::<_, i64>(4)? > 0,
            }))
        });
    let indexes = list(
        "SELECT i.name, i.\"unique\", (SELECT group_concat(c.name, ', ') FROM pragma_index_info(i.name) c)
         FROM pragma_index_list(?1) i",
        |row| {
            let columns = row.get::<_, Option<String>>(2)?;
            Ok(json!({"name": row.get::<_, String>(0)?, "unique": row.get::<_, bool>(1)?, "columns": columns}))
        },
    );
    let keys = list("SELECT \"from\", \"table\", \"to\" FROM pragma_foreign_key_list(?1)", |row| {
        let to = row.get::<_, Option<String>>(2)?;
        Ok(json!({"column": row.get::<_, String>(0)?, "table": row.get::<_, String>(1)?, "to": to}))
    });
    let count = format!("SELECT count(*) FROM \"{}\"", table.replace('"', "\"\""));
    let rows = connection.query_row(&count, [], |row| row.get::<_, i64>(0));
    Ok(json!({
        "table": table, "kind": kind,
        "columns": columns.map_err(explained)?,
        "indexes": indexes.map_err(explained)?,
        "foreign_keys": keys.map_err(explained)?,
        // Counting a huge table may take too long; then the count is left open.
        "row_count": rows.ok(),
        "sql": sql,
    }))
}

/// Opens a database that can reach no other file, and stops when it should.
fn open(path: &Path, flags: OpenFlags, stop: &Stop) -> Result<Connection, Failure> {
    if path.exists() && !path.is_file() {
        return Err(Failure::invalid("A database is a regular file."));
    }
    // The path is resolved already: a link that is there now was not there then.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags).map_err(explained)?;
    connection.busy_timeout(std::time::Duration::from_secs(3))?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_BUILT)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    let stop = stop.clone();
    connection.progress_handler(STEPS_BETWEEN_CHECKS, Some(move || stop.is_due()))?;
    connection.authorizer(Some(|context: AuthContext<'_>| match context.action {
        // VACUUM INTO attaches as well.
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => Authorization::Deny,
        AuthAction::Function { function_name: "load_extension" } => Authorization::Deny,
        AuthAction::Pragma { pragma_name, .. }
            if pragma_name.to_ascii_lowercase().ends_with("_store_directory") =>
        {
            Authorization::Deny
        }
        _ => Authorization::Allow,
    }))?;
    Ok(connection)
}

fn explained(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => Failure::TookTooLong(BLOCKING_SECONDS),
        Some(ErrorCode::AuthorizationForStatementDenied) => {
            Failure::invalid("A statement may not attach or write other files, or load extensions.")
        }
        Some(ErrorCode::ReadOnly) => {
            Failure::invalid("The database is open for reading only; changes go through execute.")
        }
        _ => match error {
            rusqlite::Error::MultipleStatement => Failure::invalid("Give one statement at a time."),
            error => Failure::Sql(error),
        },
    }
}

fn parameters(values: &[Value]) -> Result<Vec<SqlValue>, Failure> {
    let parameter = |value: &Value| match value {
        Value::Null => Ok(SqlValue::Null),
        Value::Bool(value) => Ok(SqlValue::Integer(i64::from(*value))),
        Value::String(text) => Ok(SqlValue::Text(text.clone())),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Ok(SqlValue::Integer(integer)),
            (None, Some(real)) => Ok(SqlValue::Real(real)),
            (None, None) => Err(Failure::invalid(format!("{number} is out of range."))),
        },
        Value::Array(_) | Value::Object(_) => {
            Err(Failure::invalid("A parameter is text, a number, a boolean or null."))
        }
    };
    values.iter().map(parameter).collect()
}

/// Rows up to the limits, and whether there are more.
fn collect(mut rows: Rows<'_>, columns: usize, most: usize) -> Result<(Vec<Value>, bool), Failure> {
    let mut collected = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next().map_err(explained)? {
        if collected.len() == most || bytes > MOST_BYTES {
            return Ok((collected, true));
        }
        let mut values = Vec::with_capacity(columns);
        for column in 0..columns {
            let value = json_of(row.get_ref(column).map_err(explained)?);
            bytes += 8 + value.as_str().map_or(0, str::len);
            values.push(value);
        }
        collected.push(Value::Array(values));
    }
    Ok((collected, false))
}

fn json_of(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => json!(integer),
        ValueRef::Real(real) if real.is_finite() => json!(real),
        ValueRef::Real(real) => json!(real.to_string()),
        ValueRef::Text(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            let end = text.floor_char_boundary(LONGEST_VALUE);
            let note = if end < text.len() {
                format!("… [{} bytes]", text.len())
            } else {
                String::new()
            };
            json!(format!("{}{note}", &text[..end]))
        }
        ValueRef::Blob(bytes) => {
            let shown = &bytes[..bytes.len().min(LONGEST_VALUE / 4)];
            let note = if shown.len() < bytes.len() { "…" } else { "" };
            let hex = data_encoding::HEXLOWER.encode(shown);
            json!(format!("x'{hex}{note}' [{} bytes]", bytes.len()))
        }
    }
}

#[cfg(test)]
mod tests;
