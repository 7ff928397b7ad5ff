//! A folder with everything the demonstration needs, gone with it.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use toolcrib::builtins::Builtin;

/// Something to be found in the folder that the servers may use.
const README: &str = "# Shop\n\nWhat we sell, and what we sold.\n";

pub(super) fn build() -> anyhow::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("toolcrib-demo-").tempdir();
    let folder = folder.context("there is no place for temporary files")?;
    fill(folder.path()).context("the demonstration's folder can't be filled")?;
    Ok(folder)
}

fn fill(folder: &Path) -> anyhow::Result<()> {
    let shop = folder.join("shop");
    fs::create_dir(&shop)?;
    fs::write(shop.join("README.md"), README)?;
    let program = std::env::current_exe()?;
    let data = folder.join("data");
    // As anybody would write it for any server.
    let servers: Map<String, Value> = Builtin::ALL
        .into_iter()
        .map(|server| {
            let name = server.name();
            let args = json!(["builtin", name, "--root", shop, "--data-dir", data]);
            (name.to_owned(), json!({"command": program, "args": args}))
        })
        .collect();
    fs::write(folder.join("mcp.json"), json!({"mcpServers": servers}).to_string())?;
    Ok(())
}
