//! An answer in pieces.

use toolcrib_wire::{Events, Lines};

use crate::provider::ProviderError;
use crate::providers::body::{LARGEST, too_long};

/// How the pieces of an answer are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::providers) enum Framing {
    /// Server-sent events.
    Events,
    /// A line of JSON each.
    Lines,
}

/// Bytes in, pieces of an answer out.
pub(super) enum Cutter {
    Events(Events),
    Lines(Lines),
}

impl Cutter {
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Events => Self::Events(Events::new(LARGEST)),
            Framing::Lines => Self::Lines(Lines::new(LARGEST)),
        }
    }

    pub(super) fn push(&mut self, bytes: impl AsRef<[u8]>) {
        match self {
            Self::Events(events) => events.push(bytes.as_ref()),
            Self::Lines(lines) => lines.push(bytes.as_ref()),
        }
    }

    /// Nothing comes after this. Some servers leave the last line's end out.
    pub(super) fn close(&mut self) {
        self.push(b"\n\n");
    }

    pub(super) fn next(&mut self) -> Option<Result<String, ProviderError>> {
        let piece = match self {
            Self::Events(events) => loop {
                match events.next()? {
                    // It only said where to resume from.
                    Ok(event) if event.data.is_empty() => {}
                    event => break event.map(|event| event.data),
                }
            },
            Self::Lines(lines) => lines.next()?,
        };
        Some(piece.map_err(|_| too_long()))
    }
}
