//! Looks up a host that an operator names, to see whether the gateway may dial its addresses.

use std::net::IpAddr;
use std::time::Duration;

use gateway_message::{Authority, Origin};
use gateway_names::ReasonCode;
use gateway_origin::OriginSettings;
use gateway_origin::resolve::{Family, Resolve as _, StubResolver};
use gateway_origin::vet::vet;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Returns the first address of a host and why it is prohibited, if all of them are. A failed or
/// slow lookup proves nothing: each request is judged anyway. Blocks its thread.
pub(super) fn prohibited(
    settings: &OriginSettings,
    origin: &Origin,
) -> Option<(IpAddr, ReasonCode)> {
    let rule = settings.rule(origin);
    if origin.authority.host.ip().is_some() || rule.is_some_and(|rule| rule.connect.is_some()) {
        return None;
    }
    let resolver = StubResolver::new(&settings.resolver).ok()?;
    let Authority { host, port } = &origin.authority;
    let both = async {
        let of = |family| resolver.resolve(host.as_str(), family);
        tokio::join!(of(Family::V4), of(Family::V6))
    };
    let (four, six) = Handle::current().block_on(timeout(WITHIN, both)).ok()?;
    let found: Vec<IpAddr> = [four, six].into_iter().flatten().flatten().collect();
    let exceptions = rule.map_or(&[][..], |rule| &rule.addresses);
    let refused = |ip: &IpAddr| vet(*ip, *port, exceptions).err();
    let first = *found.first()?;
    let reason = refused(&first)?.reason();
    let all = found.iter().all(|ip| refused(ip).is_some());
    all.then_some((first, reason))
}

const WITHIN: Duration = Duration::from_secs(3);
