//! What only HTTP can get wrong.

use toolcrib_wire::{RpcError, code, failure};

use super::Strike;
use crate::catalog::Kind;
use crate::http::NO_SESSION;
use crate::script::{Act, Script};

pub(super) fn bend(strike: &Strike<'_>, script: &mut Script) {
    let chosen = strike.chosen;
    match chosen.fault.kind {
        Kind::HttpStatus => {
            script.head.status = u16::try_from(chosen.number).ok();
            script.head.content_type = Some("text/plain".to_owned());
            script.instead(Act::Noise(b"It failed, as it was told to\n".to_vec()));
        }
        Kind::HttpRedirect => {
            script.head.status = Some(307);
            script.head.location = Some(chosen.text.clone());
            script.instead(Act::Noise(Vec::new()));
        }
        Kind::HttpWrongType => script.head.content_type = Some(chosen.text.clone()),
        Kind::HttpDrop => {
            script.change(Act::Half);
            script.after(Act::Break);
        }
        Kind::HttpStall => {
            script.change(Act::Half);
            script.after(Act::Never);
        }
        Kind::HttpForgetSession => {
            script.head.status = Some(404);
            script.head.forgets = true;
            let error = RpcError::new(code::INVALID_REQUEST, NO_SESSION);
            script.instead(Act::Say(failure(None, &error)));
        }
        _ => {}
    }
}
