//! MCP on the wire.
//!
//! What passes between a client and a server is kept as the JSON it came as: an envelope is read,
//! and `params`, `result` and whatever stands in them stay untouched. So nothing is lost between
//! two sides that know more than this crate does, and a message costs microseconds.
//!
//! The parts, in reading order:
//!
//! 1. [`Message`]: a request, a notification or a response; [`Id`], [`RpcError`].
//! 2. [`Era`] and [`version`]: the two ways MCP is spoken, and the words of each.
//! 3. [`Lines`] for stdio, [`Events`] for streamable HTTP: bytes in, messages out, within limits.
//! 4. [`Fields`]: an object whose members stay raw while one of them is changed.
//! 5. [`repeats_a_key`]: objects that two readers may read differently.
//! 6. [`headers`]: what the headers of a request repeat of it.
//! 7. [`result_in_era`], [`error_in_era`]: what one era says, in the words of the other.

mod adapt;
mod error;
mod fields;
pub mod headers;
mod id;
mod lines;
mod message;
mod repeats;
mod sse;
pub mod version;

pub use adapt::{error_in_era, result_in_era};
pub use error::{RpcError, code};
pub use fields::Fields;
pub use id::Id;
pub use lines::{Lines, TooLong};
pub use message::{Malformed, Message, NO_PARAMS, failure, notification, request, response};
pub use repeats::repeats_a_key;
pub use sse::{Event, Events, event};
pub use version::Era;
