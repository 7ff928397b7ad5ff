//! No answer comes, or not in time, or nobody reads the question.

use std::time::Duration;

use super::Strike;
use crate::catalog::Kind;
use crate::script::{Act, Script};
use crate::server::Server;

pub(super) fn bend(strike: &Strike<'_>, script: &mut Script) {
    match strike.chosen.fault.kind {
        Kind::SlowAnswers => script.before(Act::Wait(Duration::from_millis(strike.chosen.number))),
        Kind::StopReading => strike.server.stop_reading(),
        _ => script.instead(Act::Never),
    }
}

pub(super) fn at_start(server: &Server) {
    if server.strikes(Kind::NeverRead) {
        server.stop_reading();
    }
}
