//! What servers and the gateway need around them.

use std::process::{Command, Stdio};

use super::report::{Check, Kind};
use crate::args::Context;
use crate::fleet::Fleet;
use crate::output::{counted, one_line};

/// A configuration that can be read, and what is odd about it.
pub(super) fn configuration(context: &Context) -> Check {
    let config = &context.config;
    let summary = match &config.file {
        Some(file) => format!("{}: {}", file.display(), counted(config.servers.len(), "server")),
        None => "none, so the built-in servers are used".to_owned(),
    };
    let mut check = Check::new(Kind::Configuration, "configuration", summary);
    for warning in &config.warnings {
        check.advice(warning, "correct the file");
    }
    for path in config.tools.iter().filter(|path| !path.exists()) {
        let what = format!("`tools` names {}, which does not exist", path.display());
        check.problem(what, "correct or remove it");
    }
    let models = config.models().map(drop);
    for error in [models, config.policy().map(drop)].into_iter().filter_map(Result::err) {
        check.problem(format!("{error:#}"), "correct it");
    }
    check
}

/// A configuration that can't be read.
pub(super) fn unreadable(error: &anyhow::Error) -> Check {
    let mut check = Check::new(Kind::Configuration, "configuration", "can't be used");
    let what = format!("{error:#}");
    let fix = match what.starts_with("can't read configuration") {
        true => "name a file that can be read, or leave out --config",
        false => "correct the file; `toolcrib config schema` has every key",
    };
    check.problem(what, fix);
    check
}

/// Where what servers listed is kept.
pub(super) fn cache(fleet: &Fleet) -> Check {
    let name = "cache";
    let elsewhere = "make its folder writable, or name another as `cache_dir` under [gateway]";
    match &fleet.store {
        Ok(Some(store)) => {
            let path = store.path().display().to_string();
            let mut check = Check::new(Kind::Cache, name, path);
            if let Err(error) = store.flush() {
                check.problem(format!("what servers listed was not kept: {error}"), elsewhere);
            }
            check
        }
        Ok(None) => {
            let mut check = Check::new(Kind::Cache, name, "none");
            let fix = "set HOME, or name a folder as `cache_dir` under [gateway]";
            check.advice("there is no home folder, so every start lists every server anew", fix);
            check
        }
        Err(reason) => {
            let mut check = Check::new(Kind::Cache, name, "can't be used");
            check.problem(format!("what servers list is not remembered: {reason}"), elsewhere);
            check
        }
    }
}

/// This program, and what its built-in servers need.
pub(super) fn environment() -> Check {
    let version = env!("CARGO_PKG_VERSION");
    let git = Command::new("git").arg("--version").stdin(Stdio::null()).output();
    match git.ok().filter(|output| output.status.success()) {
        Some(output) => {
            let git = one_line(&String::from_utf8_lossy(&output.stdout));
            Check::new(Kind::Environment, "environment", format!("toolcrib {version}, {git}"))
        }
        None => {
            let mut check =
                Check::new(Kind::Environment, "environment", format!("toolcrib {version}"));
            check.advice("git was not found, so the built-in git tools can't work", "install git");
            check
        }
    }
}
