//! The store on a real disk.
#![allow(clippy::unwrap_used)]

mod crash;
mod damage;
mod kept;
mod migrations;
mod pins;
mod sessions;
mod support;
mod usage;
mod vectors;
