//! An MCP server that misbehaves on purpose, one flag per fault.
//!
//! Without a flag it is a well-behaved little server with four tools. Every flag is one way to go
//! wrong, and every fault can be limited, so that a test may end it and watch the other side
//! recover. Messages are written by hand: a library would keep it from misbehaving.
//!
//! The parts, in reading order:
//!
//! 1. [`FAULTS`]: the catalogue, from which the flags and `--help` are made.
//! 2. `options`, `limits`: what the command line says; when a fault strikes.
//! 3. `server`, `tools`: what is answered when all is well.
//! 4. `script`: an answer as a list of acts. A fault is a change of that list.
//! 5. `faults/`: one file per family.
//! 6. `stdio`, `http`: the two ways to perform a script.

mod catalog;
mod faults;
mod http;
mod limits;
mod options;
mod script;
mod server;
mod stdio;
mod tools;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

pub use catalog::{Eras, FAULTS, Family, Fault, Transports, Value, When};
use options::{Options, Task};
use server::Server;

/// Why it can't serve.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("can't keep the record {path}: {source}; name a file that can be written")]
    Record { path: String, source: std::io::Error },
    #[error("can't listen on port {port}: {source}; name another, or 0 for any that is free")]
    Listen { port: u16, source: std::io::Error },
    #[error("can't start: {0}")]
    Start(std::io::Error),
}

/// The command: reads the arguments and serves until the client goes.
pub fn main() -> ExitCode {
    let options = match options::parse(std::env::args_os()) {
        Task::Serve(options) => *options,
        Task::List => {
            let text = serde_json::to_string_pretty(FAULTS).unwrap_or_default();
            let _ = writeln!(std::io::stdout(), "{text}");
            return ExitCode::SUCCESS;
        }
    };
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "toolcrib-hostile: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve(options: Options) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::Start)?;
    let served = runtime.block_on(async {
        let port = options.http;
        let server = Arc::new(Server::new(options)?);
        faults::at_start(&server);
        match port {
            Some(port) => http::serve(server, port).await,
            None => {
                stdio::serve(server).await;
                Ok(())
            }
        }
    });
    // A thread may still wait for input that never comes.
    runtime.shutdown_background();
    served
}
