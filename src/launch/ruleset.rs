//! The nf_tables rules of the sandbox.
//!
//! One table `gw` of family inet. Loopback destinations are left alone, so the command's own
//! servers on 127.0.0.1 and ::1 work. So is port 53 of every address: each address is local, so the
//! gateway's DNS listeners get these packets. One batch installs everything or nothing.

use std::io;

use super::sidecar::nft::{self, Chain, Expr, FAMILIES, Hook, Op, Table};
use crate::enroll::Capture;

/// Installs the rules into the caller's network namespace.
///
/// # Errors
/// The kernel's errno: `ENOENT` if an expression (TPROXY) is not built in, `EPERM` without
/// `CAP_NET_ADMIN`.
pub fn install(capture: Capture, tcp_port: u16) -> io::Result<()> {
    let captures = match capture {
        Capture::Tproxy => Chain::new(
            "pre",
            "filter",
            (Hook::Prerouting, -150),
            taken(|family| vec![nft::tproxy(family, tcp_port), nft::accept()]),
        ),
        Capture::Redirect => Chain::new(
            "out",
            "nat",
            (Hook::Output, -100),
            taken(|_| vec![nft::redirect(tcp_port)]),
        ),
    };
    let table = Table {
        name: "gw".to_owned(),
        chains: vec![captures, refuse_the_rest()],
    };
    table.created().commit(Some(nft::NETFILTER))
}

/// Returns the rules for captured packets: TCP of either family, except DNS and loopback traffic.
fn taken(so: impl Fn(i32) -> Vec<Expr>) -> Vec<Vec<Expr>> {
    let rule = |family| {
        let mut rule = vec![
            nft::family(family),
            nft::protocol(Op::Equal, libc::IPPROTO_TCP),
            nft::to_port(Op::Different, DNS_PORT),
            nft::not_to_loopback(family),
        ];
        rule.extend(so(family));
        rule
    };
    FAMILIES.map(rule).to_vec()
}

/// Rejects at once, with an error, packets that the gateway does not serve: UDP except DNS (so that
/// QUIC falls back), and transport protocols other than TCP, UDP and ICMP.
fn refuse_the_rest() -> Chain {
    let udp = |family| {
        vec![
            nft::family(family),
            nft::protocol(Op::Equal, libc::IPPROTO_UDP),
            nft::to_port(Op::Different, DNS_PORT),
            // Responses from the gateway's own socket come from port 53.
            nft::not_from_port(DNS_PORT),
            nft::not_to_loopback(family),
            nft::reject(),
        ]
    };
    let known = [
        libc::IPPROTO_TCP,
        libc::IPPROTO_UDP,
        libc::IPPROTO_ICMP,
        libc::IPPROTO_ICMPV6,
    ];
    let mut other = known.map(|one| nft::protocol(Op::Different, one)).to_vec();
    other.push(nft::reject());
    let mut rules = FAMILIES.map(udp).to_vec();
    rules.push(other);
    Chain::new("flt", "filter", (Hook::Output, 0), rules)
}

const DNS_PORT: u16 = 53;
