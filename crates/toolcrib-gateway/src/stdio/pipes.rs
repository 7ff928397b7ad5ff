//! Standard input and output without a thread in between.
//!
//! Tokio reads standard input on a thread of its own, which costs two switches a message. Where
//! the streams are pipes or sockets, as they are under every client, they are used directly.

use tokio::io::{AsyncRead, AsyncWrite};

type Reader = Box<dyn AsyncRead + Unpin + Send>;
type Writer = Box<dyn AsyncWrite + Unpin + Send>;

/// Standard input and output, each in the best way there is.
pub(super) fn open() -> (Reader, Writer) {
    #[cfg(unix)]
    let (reader, writer) = (unix::reader(), unix::writer());
    #[cfg(not(unix))]
    let (reader, writer) = (None::<Reader>, None::<Writer>);
    (
        reader.unwrap_or_else(|| Box::new(tokio::io::stdin())),
        writer.unwrap_or_else(|| Box::new(tokio::io::stdout())),
    )
}

#[cfg(unix)]
mod unix {
    use std::fs::{File, Metadata};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::os::unix::net::UnixStream as Socket;

    use tokio::net::UnixStream;
    use tokio::net::unix::pipe;

    use super::{Reader, Writer};

    /// A copy of the descriptor, and which file it stands for.
    fn copy(stream: &impl AsFd) -> Option<(OwnedFd, Metadata)> {
        let copy = stream.as_fd().try_clone_to_owned().ok()?;
        let metadata = File::from(copy.try_clone().ok()?).metadata().ok()?;
        Some((copy, metadata))
    }

    /// Whether it is the file that standard error is written to. Not to block is a property of
    /// the open file, not of the descriptor: whoever writes there would lose lines.
    fn is_stderr(file: &Metadata) -> bool {
        copy(&std::io::stderr())
            .is_none_or(|(_, stderr)| (file.dev(), file.ino()) == (stderr.dev(), stderr.ino()))
    }

    pub(super) fn reader() -> Option<Reader> {
        let (stdin, kind) = copy(&std::io::stdin()).filter(|(_, kind)| !is_stderr(kind))?;
        if kind.file_type().is_fifo() {
            let pipe = pipe::Receiver::from_owned_fd(stdin).ok()?;
            return Some(Box::new(pipe));
        }
        if kind.file_type().is_socket() {
            return Some(Box::new(socket(stdin)?));
        }
        None
    }

    pub(super) fn writer() -> Option<Writer> {
        let (stdout, kind) = copy(&std::io::stdout()).filter(|(_, kind)| !is_stderr(kind))?;
        if kind.file_type().is_fifo() {
            let pipe = pipe::Sender::from_owned_fd(stdout).ok()?;
            return Some(Box::new(pipe));
        }
        if kind.file_type().is_socket() {
            return Some(Box::new(socket(stdout)?));
        }
        None
    }

    fn socket(descriptor: OwnedFd) -> Option<UnixStream> {
        let socket = Socket::from(descriptor);
        // A TCP connection has no path, and is left to the slower way.
        socket.local_addr().ok()?;
        socket.set_nonblocking(true).ok()?;
        UnixStream::from_std(socket).ok()
    }
}
