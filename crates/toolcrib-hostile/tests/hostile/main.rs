//! Every fault does what its flag says: the command is run and spoken to byte by byte.
#![allow(clippy::unwrap_used)]

mod answers;
mod behaves;
mod catalogue;
mod exits;
mod limits;
mod lists;
mod noise;
mod processes;
mod raw;
mod silence;
mod unasked;
mod web;
mod web_faults;
