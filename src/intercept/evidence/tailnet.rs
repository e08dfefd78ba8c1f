//! `tailnet`: the node that has a client's address, according to this machine's tailscaled.
//!
//! Requests and responses are those of its LocalAPI (ipn/localapi and client/tailscale/apitype in
//! its source). A node has a user, or tags and no user.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_names::{SessionId, User};
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::caller::{Caller, CallerRefused};
use crate::client_stream::ClientStream;
use crate::destination::is_of_this_machine;

/// Where tailscaled serves its LocalAPI.
pub const TAILNET_SOCKET: &str = "/var/run/tailscale/tailscaled.sock";
/// The host name that its clients use.
const HOST_NAME: &str = "local-tailscaled.sock";
/// The login name of all tagged nodes, which is no user.
const TAGGED: &str = "tagged-devices";

/// How often an address with connections is looked up again, so that they are cut within 10 s of a
/// change: by the lookup, and a sweep of the watchdog.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a response counts while lookups fail.
const COUNTS: Duration = Duration::from_secs(30);
/// How long a lookup may take.
const WITHIN: Duration = Duration::from_secs(2);
/// The longest response, in bytes.
const LONGEST: usize = 256 << 10;
/// How many lookups run at a time. Further ones wait.
const OPEN: usize = 64;

/// The tailnet that this machine is a node of.
pub struct Tailnet {
    socket: PathBuf,
    /// The application capability whose values name groups.
    capability: Option<String>,
    /// How often an address is looked up again, and how long a response counts without another.
    again: Duration,
    counts: Duration,
    open: Semaphore,
    /// The callers at the addresses that have connections.
    known: Mutex<HashMap<IpAddr, Arc<Caller>>>,
}

/// Why an address has no caller.
#[derive(Debug)]
enum NoCaller {
    /// tailscaled did not respond usefully.
    Away(String),
    /// tailscaled identified the address, and its node is refused.
    Refused(CallerRefused),
}

impl Tailnet {
    /// Uses the tailscaled at a socket. The values of a `capability` name groups.
    #[must_use]
    pub fn new(socket: PathBuf, capability: Option<String>) -> Self {
        Self {
            socket,
            capability,
            again: AGAIN,
            counts: COUNTS,
            open: Semaphore::new(OPEN),
            known: Mutex::default(),
        }
    }

    /// Returns the path of tailscaled's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Checks that callers could be identified now.
    ///
    /// # Errors
    /// Why they could not.
    pub async fn works(&self) -> Result<(), String> {
        self.own().await.map(drop)
    }

    /// Returns the addresses of this machine in the tailnet, if it is connected.
    async fn own(&self) -> Result<Vec<IpAddr>, String> {
        let answer = self.ask("/localapi/v0/status?peers=false").await?;
        let status = answer.and_then(|text| serde_json::from_slice::<TailnetStatus>(&text).ok());
        match status {
            None => Err(UNREADABLE.to_owned()),
            Some(status) if status.backend_state != "Running" => {
                let state = status.backend_state.escape_debug();
                Err(format!("tailscaled is not connected: its state is {state}"))
            }
            Some(status) if status.tun == Some(false) => Err(USERSPACE.to_owned()),
            Some(status) => Ok(status.tailscale_ips.unwrap_or_default()),
        }
    }

    /// Returns the caller of a TCP connection.
    pub(super) async fn caller(
        self: &Arc<Self>,
        stream: &ClientStream,
    ) -> Result<Arc<Caller>, CallerRefused> {
        let Some(from) = stream.peer_addr() else {
            return Err(CallerRefused::of(None, ""));
        };
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        // Any user of this machine can use the loopback and the machine's own addresses.
        if from.ip().is_loopback() {
            return Err(CallerRefused::of(None, USERSPACE));
        }
        if is_of_this_machine(from.ip()) {
            return Err(CallerRefused::of(None, "it connects from this machine"));
        }
        let own = self.own().await;
        let own = own.map_err(|why| CallerRefused::of(None, why))?;
        // The gateway may be in another network namespace than tailscaled.
        if own.contains(&from.ip()) {
            return Err(CallerRefused::of(None, "it connects from this machine"));
        }
        let to = stream.local_addr().map(|to| to.ip().to_canonical());
        if to.is_none_or(|to| !own.contains(&to)) {
            let cause = "it was made to another address than this machine's in the tailnet";
            return Err(CallerRefused::of(None, cause));
        }
        match self.whois(from).await {
            Ok(caller) => Ok(self.share(from, caller)),
            Err(NoCaller::Away(why)) => Err(CallerRefused::of(None, why)),
            Err(NoCaller::Refused(refused)) => Err(refused),
        }
    }

    /// Returns the one caller of all connections from an address. Ends a different earlier caller.
    fn share(self: &Arc<Self>, from: SocketAddr, caller: Caller) -> Arc<Caller> {
        let mut known = self.known.lock();
        if let Some(before) = known.get(&from.ip()) {
            if is_same(before, &caller) {
                return before.clone();
            }
            before.end();
        }
        let caller = Arc::new(caller);
        known.insert(from.ip(), caller.clone());
        tokio::spawn(self.clone().follow(from, caller.clone()));
        caller
    }

    /// Looks a caller up again while it has connections, and ends it once the node is another.
    async fn follow(self: Arc<Self>, from: SocketAddr, caller: Arc<Caller>) {
        let mut answered = Instant::now();
        loop {
            tokio::time::sleep(self.again).await;
            if self.forget(from.ip(), &caller, false) {
                return;
            }
            match self.whois_now(from).await {
                Ok(now) if is_same(&now, &caller) => answered = Instant::now(),
                Err(NoCaller::Away(_)) if answered.elapsed() + self.again < self.counts => {}
                _ => break,
            }
        }
        caller.end();
        self.forget(from.ip(), &caller, true);
    }

    /// Forgets a caller without connections, or in any case. Returns whether none are left.
    fn forget(&self, address: IpAddr, caller: &Arc<Caller>, in_any_case: bool) -> bool {
        let mut known = self.known.lock();
        let is_known = known
            .get(&address)
            .is_some_and(|one| Arc::ptr_eq(one, caller));
        // This task holds one reference, and the map another; only callers in the map get more.
        let is_left = Arc::strong_count(caller) == 1 + usize::from(is_known);
        if is_known && (is_left || in_any_case) {
            known.remove(&address);
        }
        is_left
    }

    /// Looks up an address again, if this machine is connected.
    async fn whois_now(&self, from: SocketAddr) -> Result<Caller, NoCaller> {
        self.own().await.map_err(NoCaller::Away)?;
        self.whois(from).await
    }

    /// Looks up the node that has an address and port now.
    async fn whois(&self, from: SocketAddr) -> Result<Caller, NoCaller> {
        let address = from.to_string();
        let address = utf8_percent_encode(&address, NON_ALPHANUMERIC);
        let what = format!("/localapi/v0/whois?proto=tcp&addr={address}");
        let Some(text) = self.ask(&what).await.map_err(NoCaller::Away)? else {
            let cause = "no node of the tailnet has its address";
            return Err(NoCaller::Refused(CallerRefused::of(None, cause)));
        };
        let answer: WhoisAnswer =
            serde_json::from_slice(&text).map_err(|_| NoCaller::Away(UNREADABLE.to_owned()))?;
        let now = OffsetDateTime::now_utc();
        self.read(answer, from.ip(), now).map_err(NoCaller::Refused)
    }

    /// Judges the response for an address.
    fn read(
        &self,
        answer: WhoisAnswer,
        address: IpAddr,
        now: OffsetDateTime,
    ) -> Result<Caller, CallerRefused> {
        let (node, login) = (&answer.node, &answer.user_profile.login_name);
        let id = node.stable_id.escape_debug().to_string();
        let tags = node.tags.as_deref().unwrap_or_default();
        let is_user = tags.is_empty() && login != TAGGED && !login.contains(':');
        let user = is_user.then(|| User::new(login)).flatten();
        let refused = |why: &str| {
            let cause = format!("the node {id} of the tailnet {why}");
            // Without the user: the record of a refusal names none.
            Err(CallerRefused::of(None, cause))
        };
        if node.sharer != 0 || node.hostinfo.as_ref().is_some_and(|host| host.sharee_node) {
            return refused("is shared in from another one");
        }
        if node.is_wire_guard_only {
            return refused("runs no tailscaled");
        }
        let is_own = |own: &String| own.parse() == Ok(IpNet::from(address));
        if !node.addresses.iter().flatten().any(is_own) {
            return refused("has not the client's address: it routes for others");
        }
        let end = node.key_expires();
        if node.expired || end.is_none_or(|end| end.is_some_and(|end| end <= now)) {
            return refused("has a key that has expired");
        }
        let groups = tags
            .iter()
            .map(|tag| tag.strip_prefix("tag:").filter(|tag| is_plain(tag)));
        let tags: Option<Vec<_>> = groups.map(|tag| Some(format!("tag:{}", tag?))).collect();
        let (Some(tags), true) = (tags, is_plain(&node.stable_id)) else {
            return refused("has a tag or an id that is no name");
        };
        if user.is_none() && tags.is_empty() {
            return refused("has neither tags nor a user whose login name can be one");
        }
        let Some(granted) = self.granted(&answer) else {
            return refused(
                "has a value of `capability` that is not `{\"groups\": [\"NAME\", …]}`",
            );
        };
        let mut groups: Vec<Arc<str>> = tags.into_iter().chain(granted).map(Arc::from).collect();
        groups.push(format!("node:{}", node.stable_id).into());
        groups.sort_unstable();
        groups.dedup();
        Ok(Caller {
            user,
            groups,
            ..Caller::default()
        })
    }

    /// Returns the groups that the capability names; `None` if one of its values names none.
    fn granted(&self, answer: &WhoisAnswer) -> Option<Vec<String>> {
        let named = || {
            answer
                .cap_map
                .as_ref()?
                .get(self.capability.as_ref()?)?
                .as_ref()
        };
        let mut groups = Vec::new();
        for value in named().into_iter().flatten() {
            let value = GrantedGroups::deserialize(value).ok()?;
            groups.extend(value.groups);
        }
        groups.iter().all(|group| is_plain(group)).then_some(groups)
    }

    /// Returns the content at a path of LocalAPI; `None` if there is none.
    async fn ask(&self, what: &str) -> Result<Option<Bytes>, String> {
        let answered = tokio::time::timeout(WITHIN, self.get(what)).await;
        let answered = answered.unwrap_or_else(|_| Err("it takes too long".into()));
        let why = match answered {
            Ok((StatusCode::OK, text)) => return Ok(Some(text)),
            Ok((StatusCode::NOT_FOUND, _)) => return Ok(None),
            Ok((status, _)) => format!("its status is {status}"),
            Err(error) => error.to_string(),
        };
        Err(format!("tailscaled gives no answer: {why}"))
    }

    async fn get(&self, what: &str) -> Result<(StatusCode, Bytes), Box<dyn Error + Send + Sync>> {
        let _place = self.open.acquire().await?;
        let stream = UnixStream::connect(&self.socket).await?;
        let whose = stream.peer_cred()?.uid();
        if whose != 0 && whose != rustix::process::geteuid().as_raw() {
            return Err("its socket is another user's".into());
        }
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get(what).header(HOST, HOST_NAME);
        let request = request.body(Empty::<Bytes>::new())?;
        let mut answer = pin!(async move {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let content = Limited::new(answer.into_body(), LONGEST).collect();
            Ok((status, content.await?.to_bytes()))
        });
        tokio::select! {
            answer = &mut answer => answer,
            // The connection has ended, and the response is complete or has the error.
            _ = connection => answer.await,
        }
    }
}

const UNREADABLE: &str = "the answer of tailscaled cannot be read";
const USERSPACE: &str = "with userspace networking, every node of the tailnet comes from loopback, \
    as every user of this machine does";

/// Whether two responses show the same caller.
fn is_same(one: &Caller, other: &Caller) -> bool {
    (&one.user, &one.groups) == (&other.user, &other.groups)
}

/// Whether a text is a name without the prefix of any evidence: not `tag:ci` or `uid:0`.
fn is_plain(text: &str) -> bool {
    !text.contains(':') && SessionId::new(text).is_ok()
}

/// Two are equal if they ask the same tailscaled in the same way.
impl PartialEq for Tailnet {
    fn eq(&self, other: &Self) -> bool {
        (&self.socket, &self.capability) == (&other.socket, &other.capability)
    }
}

impl Eq for Tailnet {}

impl fmt::Debug for Tailnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tailnet").field(&self.socket).finish()
    }
}

/// `ipnstate.Status`, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TailnetStatus {
    backend_state: String,
    /// Whether the tailnet is an interface of the system.
    #[serde(rename = "TUN")]
    tun: Option<bool>,
    #[serde(rename = "TailscaleIPs")]
    tailscale_ips: Option<Vec<IpAddr>>,
}

/// `apitype.WhoIsResponse`, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WhoisAnswer {
    node: TailnetNode,
    user_profile: TailnetUser,
    cap_map: Option<HashMap<String, Option<Vec<Value>>>>,
}

/// `tailcfg.Node`, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TailnetNode {
    #[serde(rename = "StableID")]
    stable_id: String,
    #[serde(default)]
    sharer: i64,
    key_expiry: Option<String>,
    #[serde(default)]
    expired: bool,
    addresses: Option<Vec<String>>,
    tags: Option<Vec<String>>,
    hostinfo: Option<TailnetHost>,
    #[serde(default)]
    is_wire_guard_only: bool,
}

impl TailnetNode {
    /// Returns when the node's key expires, if ever. `None` if that cannot be read.
    fn key_expires(&self) -> Option<Option<OffsetDateTime>> {
        // Go's zero time is in the year 1, or left out.
        let Some(end) = &self.key_expiry else {
            return Some(None);
        };
        let end = OffsetDateTime::parse(end, &Rfc3339).ok()?;
        Some((end.year() > 1).then_some(end))
    }
}

/// `tailcfg.Hostinfo`, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TailnetHost {
    #[serde(default)]
    sharee_node: bool,
}

/// `tailcfg.UserProfile`, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TailnetUser {
    login_name: String,
}

/// A value of the capability.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantedGroups {
    groups: Vec<String>,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn tailnet() -> Tailnet {
        let capability = "example.com/cap/gateway".to_owned();
        Tailnet::new("/nowhere/tailscaled.sock".into(), Some(capability))
    }

    /// A response, changed at these places.
    fn answer(change: &Value) -> Value {
        let mut answer = json!({
            "Node": {
                "ID": 7, "StableID": "n7CNTRL", "Name": "one.tail.ts.net.", "User": 9,
                "KeyExpiry": "2036-06-01T00:00:00Z", "Hostinfo": {"OS": "linux"},
                "Addresses": ["100.64.0.7/32", "fd7a:115c:a1e0::7/128"],
                "AllowedIPs": ["100.64.0.7/32", "10.0.0.0/8"],
            },
            "UserProfile": {"ID": 9, "LoginName": "alice@example.com", "Roles": []},
            "CapMap": null,
        });
        for (at, value) in change.as_object().unwrap() {
            match at.split_once('/') {
                None => answer[at] = value.clone(),
                Some((table, key)) => answer[table][key] = value.clone(),
            }
        }
        answer
    }

    /// The result of reading a response: the user and the groups, or the cause.
    fn read(change: &Value) -> String {
        let now = OffsetDateTime::parse("2036-05-31T00:00:00Z", &Rfc3339).unwrap();
        let read = tailnet().read(
            WhoisAnswer::deserialize(answer(change)).unwrap(),
            "100.64.0.7".parse().unwrap(),
            now,
        );
        match read {
            Ok(caller) => {
                let user = caller.user.as_ref().map_or("nobody", User::as_str);
                format!("{user} {}", caller.groups.join(" "))
            }
            Err(refused) => refused.cause,
        }
    }

    #[test]
    fn a_node_has_a_user_or_tags_and_the_groups_that_its_capability_names() {
        let cap = |value: Value| json!({"CapMap": {"example.com/cap/gateway": value}});
        let tagged = |tags: Value| json!({"Node/Tags": tags, "UserProfile/LoginName": TAGGED});
        for (change, is) in [
            (json!({}), "alice@example.com node:n7CNTRL"),
            (
                json!({"CapMap": {"other": [{"groups": ["x"]}]}}),
                "alice@example.com node:n7CNTRL",
            ),
            (
                cap(json!([{"groups": ["ops", "ci"]}, {"groups": ["ci"]}])),
                "alice@example.com ci node:n7CNTRL ops",
            ),
            (cap(Value::Null), "alice@example.com node:n7CNTRL"),
            (
                tagged(json!(["tag:ci", "tag:b-2"])),
                "nobody node:n7CNTRL tag:b-2 tag:ci",
            ),
            // The user who tagged a node is not its caller.
            (
                json!({"Node/Tags": ["tag:ci"]}),
                "nobody node:n7CNTRL tag:ci",
            ),
            (
                json!({"Node/KeyExpiry": "0001-01-01T00:00:00Z"}),
                "alice@example.com node:n7CNTRL",
            ),
            // A newer tailscaled leaves out the field.
            (
                json!({"Node/KeyExpiry": null}),
                "alice@example.com node:n7CNTRL",
            ),
            // The user is missing, or is spelled like other evidence.
            (tagged(Value::Null), "has neither tags nor a user"),
            (
                json!({"UserProfile/LoginName": "uid:0"}),
                "has neither tags nor a user",
            ),
            (
                json!({"UserProfile/LoginName": ""}),
                "has neither tags nor a user",
            ),
            (tagged(json!(["tag:a:b"])), "is no name"),
            (tagged(json!(["gid:0"])), "is no name"),
            (json!({"Node/StableID": "a b"}), "is no name"),
            (
                cap(json!([{"groups": ["tag:ci"]}])),
                "has a value of `capability`",
            ),
            (
                cap(json!([{"groups": ["node:x"]}])),
                "has a value of `capability`",
            ),
            (
                cap(json!([{"groups": ["a"], "users": []}])),
                "has a value of `capability`",
            ),
            (cap(json!(["ci"])), "has a value of `capability`"),
            (json!({"Node/Sharer": 12}), "is shared in"),
            (
                json!({"Node/Hostinfo": {"ShareeNode": true}}),
                "is shared in",
            ),
            (json!({"Node/IsWireGuardOnly": true}), "runs no tailscaled"),
            (json!({"Node/Expired": true}), "has a key that has expired"),
            (
                json!({"Node/KeyExpiry": "2036-05-31T00:00:00Z"}),
                "has a key that has expired",
            ),
            (
                json!({"Node/KeyExpiry": "soon"}),
                "has a key that has expired",
            ),
            // A subnet router, which gets the lookups for the hosts behind it, but is not them.
            (
                json!({"Node/Addresses": ["100.64.0.8/32"]}),
                "has not the client's address",
            ),
            (
                json!({"Node/Addresses": ["100.64.0.0/24"]}),
                "has not the client's address",
            ),
            (
                json!({"Node/Addresses": null}),
                "has not the client's address",
            ),
        ] {
            let found = read(&change);
            assert!(found.contains(is), "{change}: {found}");
        }
    }

    #[tokio::test]
    async fn an_answer_counts_for_a_while_and_is_asked_for_as_long_as_there_are_connections() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("tailscaled.sock");
        let tailnet = Arc::new(Tailnet {
            again: Duration::from_millis(40),
            counts: Duration::from_millis(400),
            ..Tailnet::new(socket.clone(), None)
        });
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = asked.clone();
        let daemon = tokio::spawn(async move {
            let mut both = answer(&json!({}));
            both["BackendState"] = json!("Running");
            let text = both.to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all((head.clone() + &text).as_bytes()).await;
            }
        });
        let from: SocketAddr = "100.64.0.7:4000".parse().unwrap();
        let connect = async || tailnet.share(from, tailnet.whois(from).await.unwrap());
        let until = async |is_so: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !is_so() {
                assert!(began.elapsed() < Duration::from_secs(10));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            began.elapsed()
        };
        let (one, other) = (connect().await, connect().await);
        assert!(Arc::ptr_eq(&one, &other));
        until(&|| asked.load(Ordering::Relaxed) >= 4).await;
        assert!(!one.is_over());
        // Without connections, the lookups end.
        drop((one, other));
        until(&|| tailnet.known.lock().is_empty()).await;
        let one = connect().await;
        daemon.abort();
        let lasted = until(&|| one.is_over()).await;
        assert!(lasted > Duration::from_millis(200), "{lasted:?}");
        until(&|| tailnet.known.lock().is_empty()).await;
    }
}
