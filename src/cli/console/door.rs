//! Who may use the page: whoever has the one-time link, from then on by a cookie; and only the page
//! itself may post.

use std::time::Duration;

use http::header::{CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::app::Failure;

/// The one way in.
pub(super) struct Door {
    /// The host and port of the page, which no other page has: a name of its own, so that its
    /// cookie goes to nothing else on this machine.
    host: String,
    link: Mutex<LinkState>,
    token: String,
    cookie: String,
}

/// What became of the link.
enum LinkState {
    Until(Instant),
    Used,
}

/// Why a call is refused, in words for the page.
pub(super) type Refused = (StatusCode, &'static str);

impl Door {
    pub(super) fn new(port: u16) -> Result<Self, Failure> {
        let name = &random()?[..12];
        Ok(Self {
            host: format!("gateway-{name}.localhost:{port}"),
            link: Mutex::new(LinkState::Until(Instant::now() + OPENED_WITHIN)),
            token: random()?,
            cookie: random()?,
        })
    }

    /// Returns the link. Its token is in the fragment, which no browser sends or logs.
    pub(super) fn link(&self) -> String {
        format!("http://{}/#{}", self.host, self.token)
    }

    /// Waits until the link is too old to be used.
    pub(super) async fn unopened(&self) {
        let LinkState::Until(until) = *self.link.lock() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(until).await;
        if matches!(*self.link.lock(), LinkState::Used) {
            std::future::pending().await
        }
    }

    /// Uses the link up, and returns the cookie's field.
    pub(super) fn open(&self, token: &str) -> Result<HeaderValue, Refused> {
        if !is_same(token, &self.token) {
            return Err((StatusCode::FORBIDDEN, "This is not the link of this page."));
        }
        match std::mem::replace(&mut *self.link.lock(), LinkState::Used) {
            LinkState::Used => Err((StatusCode::GONE, USED)),
            LinkState::Until(until) if until <= Instant::now() => {
                Err((StatusCode::GONE, "This link is too old."))
            }
            LinkState::Until(_) => {
                let field = format!("{NAME}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie);
                HeaderValue::try_from(field)
                    .map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "No cookie can be made."))
            }
        }
    }

    /// Refuses a call that names another host, as one does whose name was bound to this address
    /// (DNS rebinding), and a post of another page.
    pub(super) fn vet(&self, method: &Method, to: &Uri, fields: &HeaderMap) -> Result<(), Refused> {
        let mut hosts = fields.get_all(HOST).iter();
        let (host, further) = (hosts.next(), hosts.next());
        let is_ours = host.is_some_and(|host| host.as_bytes() == self.host.as_bytes());
        if !is_ours || further.is_some() || to.authority().is_some() {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "The host is not this page's.",
            ));
        }
        if matches!(*method, Method::GET | Method::HEAD) {
            return Ok(());
        }
        let mut origins = fields.get_all(ORIGIN).iter();
        let origin = format!("http://{}", self.host);
        let is_own = origins
            .next()
            .is_some_and(|one| one.as_bytes() == origin.as_bytes());
        if !is_own || origins.next().is_some() {
            return Err((
                StatusCode::FORBIDDEN,
                "Only this page itself may post here.",
            ));
        }
        let is_form = fields.get(CONTENT_TYPE).is_some_and(|kind| {
            kind.as_bytes()
                .starts_with(b"application/x-www-form-urlencoded")
        });
        if is_form && *method == Method::POST {
            Ok(())
        } else {
            Err((StatusCode::BAD_REQUEST, "The content is no form."))
        }
    }

    /// Whether a call has the cookie.
    pub(super) fn knows(&self, fields: &HeaderMap) -> bool {
        let all = fields.get_all(COOKIE).iter();
        let all = all.filter_map(|field| field.to_str().ok());
        let mut pairs = all.flat_map(|field| field.split("; "));
        pairs.any(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or_default();
            name == NAME && is_same(value, &self.cookie)
        })
    }
}

/// Compares by hashes, so that the time says nothing of the texts.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

/// Returns 256 random bits.
pub(super) fn random() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(Failure::no_randomness)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

const NAME: &str = "gateway-console";
const OPENED_WITHIN: Duration = Duration::from_secs(300);
const USED: &str = "This link was used already, and works once. If it was not you who used it, end \
    the page: Ctrl-C where `gateway console` runs. Start it again for another link.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_works_once_and_only_its_cookie_opens_the_page() {
        let door = Door::new(4000).unwrap();
        let token = door.link().rsplit_once('#').unwrap().1.to_owned();
        assert_eq!(door.open("0").unwrap_err().0, StatusCode::FORBIDDEN);
        let cookie = door.open(&token).unwrap();
        assert_eq!(door.open(&token).unwrap_err(), (StatusCode::GONE, USED));
        let mut fields = HeaderMap::new();
        assert!(!door.knows(&fields));
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        fields.insert(COOKIE, format!("other=1; {pair}").parse().unwrap());
        assert!(door.knows(&fields));
        fields.insert(COOKIE, format!("{pair}0").parse().unwrap());
        assert!(!door.knows(&fields));
    }

    #[tokio::test]
    async fn a_link_that_is_too_old_opens_nothing_and_ends_the_command() {
        let door = Door::new(4000).unwrap();
        *door.link.lock() = LinkState::Until(Instant::now());
        door.unopened().await;
        assert_eq!(door.open(&door.token).unwrap_err().0, StatusCode::GONE);
    }

    #[test]
    fn another_host_and_another_pages_post_are_refused() {
        let door = Door::new(4000).unwrap();
        let own = format!("http://{}", door.host);
        let vetted = |method: Method, host: &str, origin: Option<&str>, to: &str| {
            let mut fields = HeaderMap::new();
            fields.insert(HOST, host.parse().unwrap());
            fields.insert(
                CONTENT_TYPE,
                "application/x-www-form-urlencoded".parse().unwrap(),
            );
            if let Some(origin) = origin {
                fields.insert(ORIGIN, origin.parse().unwrap());
            }
            let vetted = door.vet(&method, &to.parse().unwrap(), &fields);
            vetted.map_err(|(status, _)| status.as_u16())
        };
        assert_eq!(vetted(Method::GET, &door.host, None, "/"), Ok(()));
        assert_eq!(
            vetted(Method::POST, &door.host, Some(&own), "/open"),
            Ok(())
        );
        for host in ["127.0.0.1:4000", "localhost:4000", "evil.test:4000", ""] {
            assert_eq!(vetted(Method::GET, host, None, "/"), Err(421), "{host}");
        }
        let absolute = format!("{own}/");
        assert_eq!(vetted(Method::GET, &door.host, None, &absolute), Err(421));
        for origin in [None, Some("null"), Some("http://localhost:4000")] {
            let posted = vetted(Method::POST, &door.host, origin, "/open");
            assert_eq!(posted, Err(403), "{origin:?}");
        }
        assert_eq!(vetted(Method::PUT, &door.host, Some(&own), "/"), Err(400));
    }
}
