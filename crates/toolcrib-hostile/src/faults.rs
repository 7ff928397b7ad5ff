//! What goes wrong: every family of faults changes what would be right.

mod answers;
mod exits;
mod lists;
mod names;
mod noise;
mod posing;
pub(crate) mod processes;
mod silence;
pub(crate) mod unasked;
mod web;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use toolcrib_wire::Era;

use crate::catalog::{Eras, Family, Fault, When};
use crate::options::Chosen;
use crate::script::Script;
use crate::server::{Page, Request, Server, Step};

/// A fault that strikes at a request.
struct Strike<'a> {
    server: &'a Server,
    request: &'a Request,
    chosen: &'a Chosen,
    /// How often it struck before.
    before: u64,
}

/// Changes what is done about a request.
pub(crate) fn bend(server: &Server, request: &Request, script: &mut Script) {
    for chosen in server.faults.iter().filter(|chosen| is_due(server, request, chosen.fault)) {
        let Some(before) = server.ledger.strike(chosen.fault) else { continue };
        let strike = Strike { server, request, chosen, before };
        match chosen.fault.family {
            Family::Silence => silence::bend(&strike, script),
            Family::Exits => exits::bend(&strike, script),
            Family::Noise => noise::bend(&strike, script),
            Family::Posing => posing::bend(&strike, script),
            Family::Answers => answers::bend(&strike, script),
            Family::Unasked => unasked::bend(&strike, script),
            Family::Processes => processes::bend(&strike, script),
            Family::Http => web::bend(&strike, script),
            Family::Lists | Family::Names => {}
        }
    }
}

/// Whether a fault concerns a request.
fn is_due(server: &Server, request: &Request, fault: &Fault) -> bool {
    let step = request.step;
    let is_of_era = match fault.eras {
        Eras::Both => true,
        Eras::Sessions => request.era == Era::Sessions,
        Eras::Stateless => request.era == Era::Stateless,
    };
    is_of_era
        && match fault.when {
            When::Initialize => step == Step::Initialize,
            When::Discover => step == Step::Discover,
            When::Handshake => matches!(step, Step::Initialize | Step::Discover),
            When::Initialized => server.is_initialized.load(Ordering::Relaxed),
            When::List => step == Step::List,
            When::Call => step == Step::Call,
            When::Answer => server.ledger.at().contains(&step),
            When::Start | When::Page | When::Listening | When::Shutdown => false,
        }
}

/// Changes a page of the list of tools.
pub(crate) fn spoil(server: &Server, cursor: &str, page: &mut Page) {
    for chosen in server.faults.iter().filter(|chosen| chosen.fault.when == When::Page) {
        match chosen.fault.family {
            Family::Names => names::spoil(server, chosen, page),
            Family::Posing => posing::spoil(server, chosen, page),
            _ => lists::spoil(server, chosen, cursor, page),
        }
    }
}

/// What goes wrong before anything is read.
pub(crate) fn at_start(server: &Arc<Server>) {
    exits::at_start(server);
    silence::at_start(server);
    processes::at_start(server);
}
