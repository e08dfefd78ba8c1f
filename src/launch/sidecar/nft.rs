//! Rules of nf_tables: each part of a rule as a netlink message of the kernel, and as text for
//! `nft`.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::netlink::{self, ACK, APPEND, Batch, CREATE, NFTA_LIST_ELEM, REQUEST, attributes};

/// One table of family inet, which is installed, replaced or removed as a whole.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) chains: Vec<Chain>,
}

/// A base chain, which accepts packets that no rule decides.
pub(crate) struct Chain {
    name: &'static str,
    kind: &'static str,
    hook: Hook,
    priority: i32,
    rules: Vec<Vec<Expr>>,
}

impl Chain {
    /// Creates a chain at a hook, with its priority there.
    pub(crate) fn new(
        name: &'static str,
        kind: &'static str,
        (hook, priority): (Hook, i32),
        rules: Vec<Vec<Expr>>,
    ) -> Self {
        Self {
            name,
            kind,
            hook,
            priority,
            rules,
        }
    }
}

/// Where a chain sees packets.
#[derive(Clone, Copy)]
pub(crate) enum Hook {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
}

/// A part of a rule: a test that the packet must pass, or a statement.
#[derive(Clone)]
pub(crate) struct Expr {
    text: String,
    expressions: Batch,
}

impl Table {
    /// Returns the messages that create the table.
    pub(crate) fn created(&self) -> Batch {
        transaction(|n| self.add(n))
    }

    /// Returns the messages that create the table, and replace one of the same name.
    pub(crate) fn replaced(&self) -> Batch {
        transaction(|n| {
            self.clear(n);
            self.add(n);
        })
    }

    /// Returns the messages that remove the table, if it exists.
    pub(crate) fn removed(&self) -> Batch {
        transaction(|n| self.clear(n))
    }

    /// Returns the input with which `nft -f` does the same as [`Table::replaced`].
    pub(crate) fn text(&self) -> String {
        let name = &self.name;
        let mut text =
            format!("table inet {name}\ndelete table inet {name}\ntable inet {name} {{\n");
        for chain in &self.chains {
            let hook = match chain.hook {
                Hook::Prerouting => "prerouting",
                Hook::Input => "input",
                Hook::Forward => "forward",
                Hook::Output => "output",
                Hook::Postrouting => "postrouting",
            };
            let (name, kind, priority) = (chain.name, chain.kind, chain.priority);
            let _ = writeln!(
                text,
                "\tchain {name} {{\n\t\ttype {kind} hook {hook} priority {priority}; policy accept;"
            );
            for rule in &chain.rules {
                let parts: Vec<&str> = rule.iter().map(|part| &part.text[..]).collect();
                let _ = writeln!(text, "\t\t{}", parts.join(" "));
            }
            text.push_str("\t}\n");
        }
        text + "}\n"
    }

    /// Whether the kernel has exactly these chains and rules.
    ///
    /// # Errors
    /// The kernel's errno.
    pub(crate) fn is_installed(&self) -> std::io::Result<bool> {
        let is_own = |body: &&Vec<u8>| of_table(body) == Some(self.name.as_bytes());
        let tables = netlink::dump(Some(NETFILTER), NFT_GETTABLE, &INET)?;
        if tables.iter().filter(is_own).any(|body| is_dormant(body)) {
            return Ok(false);
        }
        let wanted = self.created();
        for (kind, asked) in [(NFT_NEWCHAIN, NFT_GETCHAIN), (NFT_NEWRULE, NFT_GETRULE)] {
            let found = netlink::dump(Some(NETFILTER), asked, &INET)?;
            let found: Vec<_> = found.iter().filter(is_own).collect();
            let wanted = wanted.bodies(kind, INET.len());
            let mut pairs = wanted.iter().zip(&found);
            if wanted.len() != found.len() || !pairs.all(|(one, other)| netlink::holds(other, one))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn clear(&self, n: &mut Batch) {
        // The table may be missing, and its removal would then be an error.
        n.message(NFT_NEWTABLE, ACK | CREATE, &INET, |n| n.text(1, &self.name));
        n.message(NFT_DELTABLE, ACK, &INET, |n| n.text(1, &self.name));
    }

    fn add(&self, n: &mut Batch) {
        n.message(NFT_NEWTABLE, ACK | CREATE, &INET, |n| n.text(1, &self.name));
        for chain in &self.chains {
            n.message(NFT_NEWCHAIN, ACK | CREATE, &INET, |n| {
                n.text(1, &self.name);
                n.text(3, chain.name);
                n.nest(4, |n| {
                    n.be32(1, chain.hook as u32);
                    n.be32(2, chain.priority as u32);
                });
                n.be32(5, NF_ACCEPT);
                n.text(7, chain.kind);
            });
            for rule in &chain.rules {
                n.message(NFT_NEWRULE, ACK | CREATE | APPEND, &INET, |n| {
                    n.text(1, &self.name);
                    n.text(2, chain.name);
                    n.nest(4, |n| {
                        rule.iter().for_each(|part| n.extend(&part.expressions))
                    });
                });
            }
        }
    }
}

fn transaction(body: impl FnOnce(&mut Batch)) -> Batch {
    let mut all = Batch::default();
    all.message(NFNL_MSG_BATCH_BEGIN, REQUEST, &BATCH, |_| {});
    body(&mut all);
    all.message(NFNL_MSG_BATCH_END, REQUEST, &BATCH, |_| {});
    all
}

/// Whether a table is dormant: it has its rules, but they have no effect.
fn is_dormant(table: &[u8]) -> bool {
    let flags = attributes(table).find(|(kind, _)| *kind == NFTA_TABLE_FLAGS);
    let flags = flags.and_then(|(_, data)| data.first_chunk());
    flags.is_some_and(|flags| u32::from_be_bytes(*flags) & NFT_TABLE_F_DORMANT != 0)
}

/// Returns the table of a chain or a rule, or a table's own name.
fn of_table(body: &[u8]) -> Option<&[u8]> {
    let (_, name) = attributes(body).find(|(kind, _)| *kind == 1)?;
    name.strip_suffix(&[0])
}

impl Expr {
    fn new(text: impl Into<String>, write: impl FnOnce(&mut Batch)) -> Self {
        let mut expressions = Batch::default();
        write(&mut expressions);
        Self {
            text: text.into(),
            expressions,
        }
    }
}

/// Whether a test requires this value, or any other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Equal = 0,
    Different = 1,
}

impl Op {
    fn text(self) -> &'static str {
        match self {
            Self::Equal => "",
            Self::Different => "!= ",
        }
    }
}

/// Tests for IPv4 or IPv6.
pub(crate) fn family(family: i32) -> Expr {
    let name = if family == libc::AF_INET {
        "ipv4"
    } else {
        "ipv6"
    };
    let data = [family as u8];
    Expr::new(format!("meta nfproto {name}"), |n| {
        meta(n, META_NFPROTO, Op::Equal, &data)
    })
}

/// Tests the transport protocol.
pub(crate) fn protocol(is: Op, protocol: i32) -> Expr {
    let text = format!("meta l4proto {}{protocol}", is.text());
    Expr::new(text, |n| meta(n, META_L4PROTO, is, &[protocol as u8]))
}

/// Tests the user whose socket sends. A packet without a socket passes neither test.
pub(crate) fn user(is: Op, uid: u32) -> Expr {
    let data = uid.to_ne_bytes();
    Expr::new(format!("meta skuid {}{uid}", is.text()), |n| {
        meta(n, META_SKUID, is, &data)
    })
}

/// Tests the interface through which a packet arrived.
pub(crate) fn comes_in_by(name: &str) -> Expr {
    Expr::new(format!("iifname \"{name}\""), |n| {
        meta(n, META_IIFNAME, Op::Equal, &interface(name));
    })
}

/// Tests the interface through which a packet leaves.
pub(crate) fn goes_out_by(is: Op, name: &str) -> Expr {
    Expr::new(format!("oifname {}\"{name}\"", is.text()), |n| {
        meta(n, META_OIFNAME, is, &interface(name));
    })
}

fn interface(name: &str) -> [u8; 16] {
    let mut data = [0; 16];
    let length = name.len().min(15);
    data[..length].copy_from_slice(&name.as_bytes()[..length]);
    data
}

/// Tests the mark of the packet.
pub(crate) fn mark(mark: u32) -> Expr {
    let data = mark.to_ne_bytes();
    Expr::new(format!("meta mark {mark}"), |n| {
        meta(n, META_MARK, Op::Equal, &data)
    })
}

/// Marks the packet.
pub(crate) fn set_mark(mark: u32) -> Expr {
    Expr::new(format!("meta mark set {mark}"), |n| {
        load(n, &mark.to_ne_bytes());
        expression(n, "meta", |n| {
            n.be32(2, META_MARK);
            n.be32(3, REGISTER);
        });
    })
}

/// Tests the mark of the connection.
pub(crate) fn connection_mark(mark: u32) -> Expr {
    Expr::new(format!("ct mark {mark}"), |n| {
        connection(n, CT_MARK);
        compare(n, Op::Equal, &mark.to_ne_bytes());
    })
}

/// Marks the connection.
pub(crate) fn set_connection_mark(mark: u32) -> Expr {
    Expr::new(format!("ct mark set {mark}"), |n| {
        load(n, &mark.to_ne_bytes());
        expression(n, "ct", |n| {
            n.be32(2, CT_MARK);
            n.be32(4, REGISTER);
        });
    })
}

/// Tests for a connection whose destination was translated.
pub(crate) fn redirected() -> Expr {
    Expr::new("ct status dnat", |n| {
        connection(n, CT_STATUS);
        bitwise(n, &IPS_DST_NAT.to_ne_bytes());
        compare(n, Op::Different, &[0; 4]);
    })
}

/// Tests the destination's port. TCP and UDP have it at the same place.
pub(crate) fn to_port(is: Op, port: u16) -> Expr {
    Expr::new(format!("th dport {}{port}", is.text()), |n| {
        payload(n, TRANSPORT_HEADER, 2, 2);
        compare(n, is, &port.to_be_bytes());
    })
}

/// Tests for a source port other than this.
pub(crate) fn not_from_port(port: u16) -> Expr {
    Expr::new(format!("th sport != {port}"), |n| {
        payload(n, TRANSPORT_HEADER, 0, 2);
        compare(n, Op::Different, &port.to_be_bytes());
    })
}

/// Tests for a packet other than the first of a TCP connection.
pub(crate) fn not_opening() -> Expr {
    Expr::new("tcp flags & (syn | ack) != syn", |n| {
        payload(n, TRANSPORT_HEADER, 13, 1);
        bitwise(n, &[TCP_SYN | TCP_ACK]);
        compare(n, Op::Different, &[TCP_SYN]);
    })
}

/// Tests the type of an ICMPv6 message.
pub(crate) fn icmpv6(kind: u8) -> Expr {
    Expr::new(format!("icmpv6 type {kind}"), |n| {
        payload(n, TRANSPORT_HEADER, 0, 1);
        compare(n, Op::Equal, &[kind]);
    })
}

/// Tests for an IPv4 destination.
pub(crate) fn to_address(address: Ipv4Addr) -> Expr {
    Expr::new(format!("ip daddr {address}"), |n| {
        payload(n, NETWORK_HEADER, 16, 4);
        compare(n, Op::Equal, &address.octets());
    })
}

/// Tests for a destination that is not a loopback address.
pub(crate) fn not_to_loopback(family: i32) -> Expr {
    if family == libc::AF_INET6 {
        return Expr::new("ip6 daddr != ::1", |n| {
            payload(n, NETWORK_HEADER, 24, 16);
            compare(n, Op::Different, &std::net::Ipv6Addr::LOCALHOST.octets());
        });
    }
    Expr::new("ip daddr != 127.0.0.0/8", |n| {
        payload(n, NETWORK_HEADER, 16, 4);
        bitwise(n, &[255, 0, 0, 0]);
        compare(n, Op::Different, &[127, 0, 0, 0]);
    })
}

/// Tests for a source to which no route leads through the interface of the packet's arrival.
pub(crate) fn not_routed_back() -> Expr {
    Expr::new("fib saddr . iif oif missing", |n| {
        expression(n, "fib", |n| {
            n.be32(1, REGISTER);
            n.be32(2, NFT_FIB_RESULT_OIF);
            n.be32(3, NFTA_FIB_F_SADDR | NFTA_FIB_F_IIF | NFTA_FIB_F_PRESENT);
        });
        compare(n, Op::Equal, &[0; 4]);
    })
}

/// Tests for packets beyond this many a second, with bursts of a tenth of that.
pub(crate) fn more_than(packets: u32) -> Expr {
    let burst = packets / 10;
    let text = format!("limit rate over {packets}/second burst {burst} packets");
    Expr::new(text, |n| {
        expression(n, "limit", |n| {
            n.attribute(1, &u64::from(packets).to_be_bytes());
            n.attribute(2, &1_u64.to_be_bytes());
            n.be32(3, burst);
            n.be32(4, NFT_LIMIT_PKTS);
            n.be32(5, NFT_LIMIT_F_INV);
        });
    })
}

/// Redirects the connection to a port of this machine.
pub(crate) fn redirect(port: u16) -> Expr {
    Expr::new(format!("redirect to :{port}"), |n| {
        load(n, &port.to_be_bytes());
        expression(n, "redir", |n| {
            n.be32(1, REGISTER);
            n.be32(2, REGISTER);
        });
    })
}

/// Gives the packet to the transparent socket on a port. Needs neither address nor mark: the
/// destination stays as it is.
pub(crate) fn tproxy(family: i32, port: u16) -> Expr {
    let name = if family == libc::AF_INET { "ip" } else { "ip6" };
    Expr::new(format!("tproxy {name} to :{port}"), |n| {
        load(n, &port.to_be_bytes());
        expression(n, "tproxy", |n| {
            n.be32(1, family as u32);
            n.be32(3, REGISTER);
        });
    })
}

pub(crate) fn accept() -> Expr {
    verdict("accept", NF_ACCEPT)
}

/// Drops the packet. A packet with its final route cannot be refused.
pub(crate) fn drop() -> Expr {
    verdict("drop", NF_DROP)
}

fn verdict(text: &str, code: u32) -> Expr {
    Expr::new(text, |n| {
        expression(n, "immediate", |n| {
            n.be32(1, VERDICT_REGISTER);
            n.nest(2, |n| n.nest(2, |n| n.be32(1, code)));
        });
    })
}

/// Refuses the packet as if no process used the port.
pub(crate) fn reject() -> Expr {
    Expr::new("reject with icmpx port-unreachable", |n| {
        expression(n, "reject", |n| {
            n.be32(1, NFT_REJECT_ICMPX_UNREACH);
            n.attribute(2, &[NFT_REJECT_ICMPX_PORT_UNREACH]);
        });
    })
}

/// Resets the connection. Only for TCP.
pub(crate) fn reset() -> Expr {
    Expr::new("reject with tcp reset", |n| {
        expression(n, "reject", |n| n.be32(1, NFT_REJECT_TCP_RST));
    })
}

fn expression(n: &mut Batch, name: &str, body: impl FnOnce(&mut Batch)) {
    n.nest(NFTA_LIST_ELEM, |n| {
        n.text(1, name);
        n.nest(2, body);
    });
}

fn meta(n: &mut Batch, key: u32, is: Op, data: &[u8]) {
    expression(n, "meta", |n| {
        n.be32(1, REGISTER);
        n.be32(2, key);
    });
    compare(n, is, data);
}

fn connection(n: &mut Batch, key: u32) {
    expression(n, "ct", |n| {
        n.be32(1, REGISTER);
        n.be32(2, key);
    });
}

fn payload(n: &mut Batch, base: u32, offset: u32, length: u32) {
    expression(n, "payload", |n| {
        n.be32(1, REGISTER);
        n.be32(2, base);
        n.be32(3, offset);
        n.be32(4, length);
    });
}

/// Keeps only these bits.
fn bitwise(n: &mut Batch, mask: &[u8]) {
    expression(n, "bitwise", |n| {
        n.be32(1, REGISTER);
        n.be32(2, REGISTER);
        n.be32(3, mask.len() as u32);
        n.nest(4, |n| n.attribute(1, mask));
        n.nest(5, |n| n.attribute(1, &vec![0; mask.len()]));
    });
}

fn compare(n: &mut Batch, is: Op, data: &[u8]) {
    expression(n, "cmp", |n| {
        n.be32(1, REGISTER);
        n.be32(2, is as u32);
        n.nest(3, |n| n.attribute(1, data));
    });
}

fn load(n: &mut Batch, data: &[u8]) {
    expression(n, "immediate", |n| {
        n.be32(1, REGISTER);
        n.nest(2, |n| n.attribute(1, data));
    });
}

/// The netlink protocol of nf_tables.
pub(crate) const NETFILTER: rustix::net::Protocol = rustix::net::netlink::NETFILTER;
/// Both families of addresses.
pub(crate) const FAMILIES: [i32; 2] = [libc::AF_INET, libc::AF_INET6];
// struct nfgenmsg: family, version, resource id in network order
const INET: [u8; 4] = [1, 0, 0, 0];
const BATCH: [u8; 4] = [0, 0, 0, 10];
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFT_NEWTABLE: u16 = 10 << 8;
const NFT_GETTABLE: u16 = (10 << 8) | 1;
const NFT_DELTABLE: u16 = (10 << 8) | 2;
const NFT_NEWCHAIN: u16 = (10 << 8) | 3;
const NFT_GETCHAIN: u16 = (10 << 8) | 4;
const NFT_NEWRULE: u16 = (10 << 8) | 6;
const NFT_GETRULE: u16 = (10 << 8) | 7;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFT_TABLE_F_DORMANT: u32 = 1;
const META_MARK: u32 = 3;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_SKUID: u32 = 10;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const CT_STATUS: u32 = 2;
const CT_MARK: u32 = 3;
const IPS_DST_NAT: u32 = 1 << 5;
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const VERDICT_REGISTER: u32 = 0;
const REGISTER: u32 = 1;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const NFT_FIB_RESULT_OIF: u32 = 1;
const NFTA_FIB_F_SADDR: u32 = 1 << 0;
const NFTA_FIB_F_IIF: u32 = 1 << 3;
const NFTA_FIB_F_PRESENT: u32 = 1 << 5;
const NFT_LIMIT_PKTS: u32 = 0;
const NFT_LIMIT_F_INV: u32 = 1;
const NFT_REJECT_TCP_RST: u32 = 1;
const NFT_REJECT_ICMPX_UNREACH: u32 = 2;
const NFT_REJECT_ICMPX_PORT_UNREACH: u8 = 1;
