//! The nf_tables rules of the sandbox, as the kernel's netlink messages.
//!
//! One table `gw` of family inet. Loopback destinations are left alone, so the command's own
//! servers on 127.0.0.1 and ::1 work. So is port 53 of every address: each address is local, so the
//! gateway's DNS listeners get what goes there. One batch installs everything or nothing.

use std::io;

use super::netlink::{ACK, APPEND, Batch, CREATE, REQUEST};
use crate::enroll::Capture;

/// Installs the rules into the caller's network namespace.
///
/// # Errors
/// The kernel's errno: `ENOENT` if an expression (TPROXY) is not built in, `EPERM` without
/// `CAP_NET_ADMIN`.
pub fn install(capture: Capture, tcp_port: u16) -> io::Result<()> {
    let mut batch = Batch::default();
    let n = &mut batch;
    n.message(NFNL_MSG_BATCH_BEGIN, REQUEST, &BATCH, |_| {});
    n.message(NFT_NEWTABLE, ACK | CREATE, &INET, |n| {
        n.text(NFTA_TABLE_NAME, TABLE)
    });
    match capture {
        Capture::Tproxy => tproxy(n, tcp_port),
        Capture::Redirect => redirect(n, tcp_port),
    }
    refuse_the_rest(n);
    n.message(NFNL_MSG_BATCH_END, REQUEST, &BATCH, |_| {});
    n.commit(Some(rustix::net::netlink::NETFILTER))
}

fn tproxy(n: &mut Batch, tcp_port: u16) {
    chain(n, "pre", "filter", Hook::Prerouting, -150);
    for family in FAMILIES {
        rule(n, "pre", |n| {
            taken(n, family, tcp_port);
            // No address and no mark: the destination stays, and is already local.
            expression(n, "tproxy", |n| {
                n.be32(1, family as u32);
                n.be32(3, REGISTER);
            });
            accept(n);
        });
    }
}

fn redirect(n: &mut Batch, tcp_port: u16) {
    chain(n, "out", "nat", Hook::Output, -100);
    for family in FAMILIES {
        rule(n, "out", |n| {
            taken(n, family, tcp_port);
            expression(n, "redir", |n| {
                n.be32(1, REGISTER);
                n.be32(2, REGISTER);
            });
        });
    }
}

/// Rejects at once, with an error, what the gateway does not serve: UDP except DNS (so that QUIC
/// falls back), and transport protocols other than TCP, UDP and ICMP.
fn refuse_the_rest(n: &mut Batch) {
    chain(n, "flt", "filter", Hook::Output, 0);
    for family in FAMILIES {
        rule(n, "flt", |n| {
            meta(n, META_NFPROTO, EQUAL, family);
            meta(n, META_L4PROTO, EQUAL, libc::IPPROTO_UDP);
            not_to_dns(n);
            // Answers from the gateway's own socket come from port 53.
            payload(n, TRANSPORT_HEADER, 0, 2);
            compare(n, DIFFERENT, &DNS_PORT.to_be_bytes());
            not_to_loopback(n, family);
            reject(n);
        });
    }
    rule(n, "flt", |n| {
        for protocol in [
            libc::IPPROTO_TCP,
            libc::IPPROTO_UDP,
            libc::IPPROTO_ICMP,
            libc::IPPROTO_ICMPV6,
        ] {
            meta(n, META_L4PROTO, DIFFERENT, protocol);
        }
        reject(n);
    });
}

enum Hook {
    Prerouting = 0,
    Output = 3,
}

fn chain(n: &mut Batch, name: &str, kind: &str, hook: Hook, priority: i32) {
    n.message(NFT_NEWCHAIN, ACK | CREATE, &INET, |n| {
        n.text(1, TABLE);
        n.text(3, name);
        n.nest(4, |n| {
            n.be32(1, hook as u32);
            n.be32(2, priority as u32);
        });
        n.be32(5, NF_ACCEPT);
        n.text(7, kind);
    });
}

fn rule(n: &mut Batch, chain: &str, body: impl FnOnce(&mut Batch)) {
    n.message(NFT_NEWRULE, ACK | CREATE | APPEND, &INET, |n| {
        n.text(1, TABLE);
        n.text(2, chain);
        n.nest(4, body);
    });
}

fn expression(n: &mut Batch, name: &str, body: impl FnOnce(&mut Batch)) {
    n.nest(1, |n| {
        n.text(1, name);
        n.nest(2, body);
    });
}

/// Goes on only if a number of one byte that belongs to the packet compares like that.
fn meta(n: &mut Batch, key: u32, operation: u32, value: i32) {
    expression(n, "meta", |n| {
        n.be32(1, REGISTER);
        n.be32(2, key);
    });
    compare(n, operation, &[value as u8]);
}

fn payload(n: &mut Batch, base: u32, offset: u32, length: u32) {
    expression(n, "payload", |n| {
        n.be32(1, REGISTER);
        n.be32(2, base);
        n.be32(3, offset);
        n.be32(4, length);
    });
}

fn compare(n: &mut Batch, operation: u32, data: &[u8]) {
    expression(n, "cmp", |n| {
        n.be32(1, REGISTER);
        n.be32(2, operation);
        n.nest(3, |n| n.attribute(1, data));
    });
}

/// Goes on only with what the gateway takes: TCP of this family, but DNS and what stays on the
/// loopback. Loads the port that takes it.
fn taken(n: &mut Batch, family: i32, tcp_port: u16) {
    meta(n, META_NFPROTO, EQUAL, family);
    meta(n, META_L4PROTO, EQUAL, libc::IPPROTO_TCP);
    not_to_dns(n);
    not_to_loopback(n, family);
    load(n, &tcp_port.to_be_bytes());
}

/// TCP and UDP have the destination port at the same place.
fn not_to_dns(n: &mut Batch) {
    payload(n, TRANSPORT_HEADER, 2, 2);
    compare(n, DIFFERENT, &DNS_PORT.to_be_bytes());
}

fn not_to_loopback(n: &mut Batch, family: i32) {
    if family == libc::AF_INET6 {
        payload(n, NETWORK_HEADER, 24, 16);
        return compare(n, DIFFERENT, &std::net::Ipv6Addr::LOCALHOST.octets());
    }
    payload(n, NETWORK_HEADER, 16, 4);
    expression(n, "bitwise", |n| {
        n.be32(1, REGISTER);
        n.be32(2, REGISTER);
        n.be32(3, 4);
        n.nest(4, |n| n.attribute(1, &[255, 0, 0, 0]));
        n.nest(5, |n| n.attribute(1, &[0; 4]));
    });
    compare(n, DIFFERENT, &[127, 0, 0, 0]);
}

fn load(n: &mut Batch, data: &[u8]) {
    expression(n, "immediate", |n| {
        n.be32(1, REGISTER);
        n.nest(2, |n| n.attribute(1, data));
    });
}

fn accept(n: &mut Batch) {
    expression(n, "immediate", |n| {
        n.be32(1, VERDICT_REGISTER);
        n.nest(2, |n| n.nest(2, |n| n.be32(1, NF_ACCEPT)));
    });
}

fn reject(n: &mut Batch) {
    expression(n, "reject", |n| {
        n.be32(1, NFT_REJECT_ICMPX_UNREACH);
        n.attribute(2, &[NFT_REJECT_ICMPX_PORT_UNREACH]);
    });
}

const TABLE: &str = "gw";
const FAMILIES: [i32; 2] = [libc::AF_INET, libc::AF_INET6];
const DNS_PORT: u16 = 53;
// struct nfgenmsg: family, version, resource id in network order
const INET: [u8; 4] = [1, 0, 0, 0];
const BATCH: [u8; 4] = [0, 0, 0, 10];
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFT_NEWTABLE: u16 = 10 << 8;
const NFT_NEWCHAIN: u16 = (10 << 8) | 3;
const NFT_NEWRULE: u16 = (10 << 8) | 6;
const NFTA_TABLE_NAME: u16 = 1;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const VERDICT_REGISTER: u32 = 0;
const REGISTER: u32 = 1;
const NF_ACCEPT: u32 = 1;
const NFT_REJECT_ICMPX_UNREACH: u32 = 2;
const NFT_REJECT_ICMPX_PORT_UNREACH: u8 = 1;
