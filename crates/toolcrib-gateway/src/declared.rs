//! What an endpoint says it can do.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_runtime::Offers;
use toolcrib_wire::{Era, Fields};

use crate::client::Client;
use crate::offers::Offering;
use crate::{Endpoint, Gateway};

/// Calls that go on after they have been answered, as the stateless era has them.
const TASKS: &str = "io.modelcontextprotocol/tasks";

impl Gateway {
    /// What a client may use: at one server's endpoint all that the server can do, at the others
    /// what any server can. Of a server of which nothing is known yet anything is expected.
    pub(crate) fn capabilities(&self, client: &Client, era: Era) -> Box<RawValue> {
        match &client.endpoint {
            Endpoint::Server(server) => match self.offers_of(&client.seat, server) {
                Some(offers) => own(&offers, era),
                None => any_of(&[]),
            },
            _ => any_of(self.table(&client.seat).servers()),
        }
    }
}

/// What one server can do, as far as it reaches a client of this era.
pub(crate) fn own(offers: &Offers, era: Era) -> Box<RawValue> {
    let Some(declared) = &offers.capabilities else { return everything() };
    let mut fields = Fields::parse(declared.get()).unwrap_or_default();
    let tools = fields.get("tools").map(ToOwned::to_owned);
    let tools = tools.as_ref().and_then(|raw| Fields::parse(raw.get()));
    let mut tools = tools.unwrap_or_default();
    // The gateway sees for itself when they change.
    tools.set("listChanged", &true);
    fields.set("tools", &tools);
    // Tasks of one era are not those of the other.
    if era == Era::Stateless {
        fields.remove("tasks");
    }
    if era == Era::Sessions || offers.eras.stateless != Some(true) {
        let extensions = fields.get("extensions").map(ToOwned::to_owned);
        let extensions = extensions.as_ref().and_then(|raw| Fields::parse(raw.get()));
        if let Some(mut extensions) = extensions
            && extensions.remove(TASKS).is_some()
        {
            fields.set("extensions", &extensions);
        }
    }
    fields.to_raw()
}

/// What any of several servers can do. It is the same for the same servers, running or not.
fn any_of(servers: &[Offering]) -> Box<RawValue> {
    let known = servers.iter().map(|server| server.offers.capabilities.as_ref());
    let Some(known) = known.collect::<Option<Vec<_>>>() else { return everything() };
    let known: Vec<Fields<'_>> = known.iter().filter_map(|it| Fields::parse(it.get())).collect();
    let has = |name: &str| known.iter().any(|declared| declared.get(name).is_some());
    let can_follow = known.iter().any(|declared| {
        let resources = declared.get("resources").and_then(|raw| Fields::parse(raw.get()));
        resources.is_some_and(|resources| resources.read("subscribe") == Some(true))
    });
    let changes = json!({"listChanged": true});
    let mut fields = Fields::default();
    fields.set("tools", &changes);
    if has("resources") {
        let followed = json!({"subscribe": true, "listChanged": true});
        fields.set("resources", if can_follow { &followed } else { &changes });
    }
    if has("prompts") {
        fields.set("prompts", &changes);
    }
    for name in ["completions", "logging"] {
        if has(name) {
            fields.set(name, &json!({}));
        }
    }
    fields.to_raw()
}

fn everything() -> Box<RawValue> {
    let all = json!({
        "tools": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "prompts": {"listChanged": true},
        "completions": {},
        "logging": {},
    });
    to_raw_value(&all).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use toolcrib_runtime::Eras;

    #[test]
    fn tasks_are_declared_where_they_reach_the_client() {
        let declared = r#"{"x":1.50,"tasks":{"list":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"y":{}}}"#;
        let capabilities = RawValue::from_string(declared.to_owned()).ok().map(Into::into);
        let own = |era, stateless| {
            let eras = Eras { sessions: Some(true), stateless };
            own(&Offers { capabilities: capabilities.clone(), eras, ..Offers::default() }, era)
        };
        let (old, new) = (own(Era::Sessions, Some(true)), own(Era::Stateless, Some(true)));
        assert_eq!(
            old.get(),
            r#"{"x":1.50,"tasks":{"list":{}},"extensions":{"y":{}},"tools":{"listChanged":true}}"#
        );
        assert_eq!(
            new.get(),
            r#"{"x":1.50,"extensions":{"io.modelcontextprotocol/tasks":{},"y":{}},"tools":{"listChanged":true}}"#
        );
        let unsure: Value = serde_json::from_str(own(Era::Stateless, None).get()).unwrap();
        assert_eq!(unsure["extensions"], json!({"y": {}}));
    }
}
