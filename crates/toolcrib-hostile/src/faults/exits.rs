//! The process ends when it should not.

use super::Strike;
use crate::catalog::Kind;
use crate::script::{Act, Script};
use crate::server::Server;

pub(super) fn bend(strike: &Strike<'_>, script: &mut Script) {
    let exit = Act::Exit(strike.chosen.number);
    match strike.chosen.fault.kind {
        Kind::ExitAfterHandshake => script.after(exit),
        Kind::KilledAtCall => script.instead(Act::Kill),
        Kind::DieMidAnswer => {
            script.change(Act::Half);
            script.after(Act::Kill);
        }
        _ => script.instead(exit),
    }
}

pub(super) fn at_start(server: &Server) {
    if let Some(chosen) = server.chosen(Kind::ExitAtStart)
        && server.ledger.strike(chosen.fault).is_some()
    {
        std::process::exit(i32::try_from(chosen.number).unwrap_or(1));
    }
}
