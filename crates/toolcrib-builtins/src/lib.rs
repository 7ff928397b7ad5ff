//! Real tools that need no key, in seven servers: files, git, sqlite, notes, data, time, web; and
//! exec, the shell, for those who ask for it.
//!
//! Each server is a [`Toolset`](toolcrib_runtime::Toolset). Registered in process or run as an MCP
//! server, it offers the same names, descriptions and schemas. [`Builtin`] names the servers,
//! [`Options`] says what they may touch, [`BuiltinTools`] is one that is open.
//!
//! What they may touch is decided here, not by the model: paths are resolved and then must lie
//! under the given roots, git runs without a repository's own commands, SQL can't attach other
//! files, and web addresses are checked after every redirect and every name lookup. Only a command
//! that exec runs may do what the user may; it gets none of this program's secrets by its
//! environment.

mod builtin;
mod data;
mod error;
mod exec;
mod files;
mod git;
mod notes;
mod roots;
mod sqlite;
mod time;
mod tool;
mod web;

pub use builtin::{Builtin, BuiltinTools, Options, UnknownBuiltin};
pub use error::BuiltinError;
