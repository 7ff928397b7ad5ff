//! Requests with a login: seen to if the server wants another one.

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode};

use super::Authorizer;
use super::challenge::Challenge;
use super::renew::Unfit;

/// Why a request got no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// It was not sent, or no answer came.
    Http(reqwest::Error),
    /// The server wants credentials that can't be had. It did not act on the request.
    Denied { status: StatusCode, reason: String },
}

/// What was tried for one request. Each is tried once, so none goes on for ever.
#[derive(Default)]
struct Tries {
    renewed: bool,
    reread: bool,
    logged_in: bool,
}

impl Authorizer {
    /// Sends a request with the login. If the server wants another one, that is seen to, with a
    /// person's help if need be, and the request is repeated: it was not acted on.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, SendError> {
        let (client, request) = request.build_split();
        let mut request = request.map_err(SendError::Http)?;
        let mut tries = Tries::default();
        loop {
            let again = request.try_clone();
            let used = match self.header().await {
                Ok(header) => header,
                Err(Unfit::Trouble(reason)) => {
                    return Err(SendError::Denied { status: StatusCode::UNAUTHORIZED, reason });
                }
                // The server's own word may say more of what it wants.
                Err(Unfit::Login(_)) => None,
            };
            if let Some(header) = &used {
                request.headers_mut().insert(AUTHORIZATION, header.clone());
            }
            let response = client.execute(request).await.map_err(SendError::Http)?;
            let status = response.status();
            let challenge = Challenge::of(response.headers());
            let is_refused = status == StatusCode::UNAUTHORIZED;
            let wants_more = status == StatusCode::FORBIDDEN && challenge.wants_more_scopes();
            if !is_refused && !wants_more {
                return Ok(response);
            }
            let settled = match is_refused {
                true => self.refused(&challenge, used.as_ref(), &mut tries).await,
                false => self.wants_more(&challenge, used.as_ref(), &mut tries).await,
            };
            match (settled, again) {
                (Ok(()), Some(again)) => request = again,
                (Ok(()), None) => return Ok(response),
                (Err(reason), _) => return Err(SendError::Denied { status, reason }),
            }
        }
    }

    /// Sends a request with the login as it is, renewed if that is due. Nobody is asked.
    pub(crate) async fn send_as_is(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        match self.header().await {
            Ok(Some(header)) => request.header(AUTHORIZATION, header),
            _ => request,
        }
        .send()
        .await
    }

    /// The header of the login, if there is one; renewed if that is due.
    async fn header(&self) -> Result<Option<HeaderValue>, Unfit> {
        let (header, login) = {
            let current = self.lock();
            (current.header.clone(), current.login.clone())
        };
        let Some(login) = login.filter(|login| login.is_due()) else { return Ok(header) };
        match self.renewed(header.clone()).await {
            Ok(renewed) => Ok(Some(renewed)),
            // It still holds for a moment.
            Err(Unfit::Trouble(_)) if !login.has_ended() => Ok(header),
            // The server decides whether it still holds.
            Err(Unfit::Login(_)) if login.refresh_token.is_none() => Ok(header),
            Err(unfit) => Err(unfit),
        }
    }

    /// What to do about a request that was turned away for its login.
    async fn refused(
        &self,
        challenge: &Challenge,
        used: Option<&HeaderValue>,
        tries: &mut Tries,
    ) -> Result<(), String> {
        let name = &self.0.name;
        let mut reason = match used {
            Some(_) => format!("it refuses its login: run `toolcrib login {name}`"),
            None => format!("it wants you to log in: run `toolcrib login {name}`"),
        };
        if !challenge.is_bearer {
            reason.push_str(", or set `bearer_token` or `headers`");
        }
        if !std::mem::replace(&mut tries.renewed, true) {
            match self.renewed(used.cloned()).await {
                Ok(_) => return Ok(()),
                Err(Unfit::Trouble(reason)) => return Err(reason),
                Err(Unfit::Login(why)) if used.is_some() => reason = why,
                Err(Unfit::Login(_)) => {}
            }
        }
        if tries.logged_in {
            let text =
                format!("it refuses the login that it asked for: run `toolcrib login {name}`");
            self.lock().in_vain = Some(text.clone());
            return Err(text);
        }
        tries.logged_in = true;
        self.ask(challenge, reason).await
    }

    /// What to do about a request that was turned away because the login does not allow it.
    async fn wants_more(
        &self,
        challenge: &Challenge,
        used: Option<&HeaderValue>,
        tries: &mut Tries,
    ) -> Result<(), String> {
        // Somebody may have seen to it already, here or in another program.
        if !std::mem::replace(&mut tries.reread, true) && self.reread(used).await? {
            return Ok(());
        }
        let login = self.lock().login.clone();
        let asked = login.map(|login| login.asked.clone()).unwrap_or_default();
        if challenge.scopes.is_empty() {
            return Err("its login does not allow this, and it does not say what would".to_owned());
        }
        if challenge.scopes.iter().all(|scope| asked.contains(scope)) {
            let wanted = challenge.scopes.join(" ");
            return Err(format!("its login does not allow this (`{wanted}` was asked for)"));
        }
        let more = match challenge.scopes_to_type() {
            Some(wanted) => format!(" --scope '{wanted}'"),
            None => String::new(),
        };
        let name = &self.0.name;
        let reason =
            format!("it wants more than its login allows: run `toolcrib login {name}{more}`");
        self.ask(challenge, reason).await
    }

    /// Takes over what is kept; says whether that is another login than the one that was used.
    async fn reread(&self, used: Option<&HeaderValue>) -> Result<bool, String> {
        if self.lock().header.as_ref() != used {
            return Ok(true);
        }
        let kept = self.0.vault.login().await?;
        Ok(self.adopt(kept).as_ref() != used)
    }
}
