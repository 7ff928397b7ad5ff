//! Each preset replays the example of the documentation it follows, end to end. The shapes of
//! results are frozen in `tests/golden/`.

#[path = "../support/mod.rs"]
mod support;

mod crib;
mod exact;
mod groups;
mod lazy;
mod regex;
mod stubs;
