//! Connects to a host or an address: resolves, vets once, and dials only vetted addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use gateway_message::Authority;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::Error;
use super::race::{RESOLUTION_DELAY, Race};
use super::resolve::{Family, Resolve};

/// Connects to a host whose addresses are public or within the exceptions.
///
/// # Errors
/// [`Error`] by cause. No prohibited address was dialled.
pub(super) async fn to_authority(
    Authority { host, port }: &Authority,
    exceptions: &[IpNet],
    resolver: &dyn Resolve,
    limit: Duration,
) -> Result<TcpStream, Error> {
    let race = Race::new(*port, exceptions, limit);
    match host.ip() {
        Some(address) => to_address(race, address).await,
        None => to_name(race, host.as_str(), resolver).await,
    }
}

/// Connects to one address, if the exceptions of the race allow it.
///
/// # Errors
/// As [`to_authority`].
pub(super) async fn to_address(mut race: Race<'_>, address: IpAddr) -> Result<TcpStream, Error> {
    race.found(Ok(vec![address]), false);
    while !race.is_idle() {
        if let Some(end) = race.step().await {
            return end;
        }
    }
    Err(race.error())
}

/// Queries both families at once, and connects while the later answer is still outstanding.
async fn to_name(
    mut race: Race<'_>,
    name: &str,
    resolver: &dyn Resolve,
) -> Result<TcpStream, Error> {
    let began = Instant::now();
    let mut six = resolver.resolve(name, Family::V6);
    let mut four = resolver.resolve(name, Family::V4);
    let (mut six_due, mut four_due) = (true, true);
    let mut failed_at = None;
    while six_due || four_due || !race.is_idle() {
        // Every address of one family failed. The answer for the other is awaited only briefly.
        let all_failed = race.is_idle() && race.has_failed();
        let give_up = all_failed.then(|| *failed_at.get_or_insert_with(Instant::now) + LAST_WAIT);
        tokio::select! {
            biased;
            () = sleep_until(give_up.unwrap_or(began)), if all_failed => {
                for (family, due) in [(Family::V6, six_due), (Family::V4, four_due)] {
                    if due {
                        resolver.was_late(name, family);
                    }
                }
                break;
            }
            found = &mut six, if six_due => {
                six_due = false;
                race.found(found, four_due);
            }
            found = &mut four, if four_due => {
                four_due = false;
                race.found(found, six_due);
            }
            end = race.step() => {
                let Some(end) = end else { continue };
                // The next connection need not wait for a family that no server answers for.
                if end.is_ok() && six_due && began.elapsed() >= RESOLUTION_DELAY {
                    resolver.was_late(name, Family::V6);
                }
                return end;
            }
        }
    }
    Err(race.error())
}

/// Every network, for servers that the operator names. Metadata services stay prohibited.
pub(super) fn anywhere() -> [IpNet; 2] {
    let v4 = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0);
    let v6 = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0);
    [v4.into(), v6.into()]
}

/// How long to wait for the answer for one family when every address of the other has failed.
const LAST_WAIT: Duration = Duration::from_secs(1);
