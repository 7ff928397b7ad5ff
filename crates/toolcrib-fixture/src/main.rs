//! `toolcrib-fixture`: the test server as a program.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use toolcrib_fixture::{Eras, Server, http, stdio};

/// A complete MCP server to test with. Speaks on standard input and output unless told otherwise.
#[derive(Parser)]
#[command(name = "toolcrib-fixture")]
struct Args {
    /// Listen here for streamable HTTP at /mcp; port 0 takes a free one. The URL is printed.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Cut lists into pages of this many.
    #[arg(long, value_name = "N")]
    page_size: Option<usize>,
    /// The eras of MCP to speak.
    #[arg(long, value_enum, value_name = "ERA", default_value = "both")]
    era: Eras,
    /// Write here what becomes of each call, a line of JSON each.
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("toolcrib-fixture: {error}\n");
            let _ = tokio::io::stderr().write_all(text.as_bytes()).await;
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> std::io::Result<()> {
    let mut server = Server::new(args.page_size).speaking(args.era);
    if let Some(path) = &args.journal {
        server = server.noting(path)?;
    }
    let server = Arc::new(server);
    match args.http {
        Some(address) => listen(server, address).await,
        None => stdio::serve(server, tokio::io::stdin(), tokio::io::stdout()).await,
    }
}

async fn listen(server: Arc<Server>, address: SocketAddr) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let url = format!("http://{}/mcp\n", listener.local_addr()?);
    let mut stdout = tokio::io::stdout();
    stdout.write_all(url.as_bytes()).await?;
    stdout.flush().await?;
    http::serve(server, listener).await
}
