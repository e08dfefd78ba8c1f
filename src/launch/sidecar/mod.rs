//! Capture for a sandbox that another program made: the rules that bring its connections to a
//! gateway, and refuse all other traffic at once, also while no gateway listens.
//!
//! One table of nf_tables, replaced in one transaction. Where TPROXY captures packets that are not
//! for this machine, routes make them local. Table, routes and marks contain the number of the
//! gateway's port, so that the rules for several gateways do not collide.

pub(crate) mod nft;
mod route;

use std::io;
use std::iter::once;
use std::net::Ipv4Addr;

use self::nft::{Chain, Expr, FAMILIES, Hook, Op, Table};
use self::route::{Route, Selector};

/// The traffic to capture, and its destination.
#[derive(Debug, Clone)]
pub struct SidecarRules {
    /// How connections are captured.
    pub mode: SidecarMode,
    /// The port of the gateway's `transparent` listener.
    pub port: u16,
    /// The port of its `dns` listener. Without one, DNS is refused.
    pub dns_port: Option<u16>,
    /// The user that the gateway runs as. Not for [`SidecarMode::Router`].
    pub exempt_uid: u32,
    /// The interfaces that lead to sandboxes, for [`SidecarMode::Router`].
    pub interfaces: Vec<String>,
}

/// How connections are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SidecarMode {
    /// The connections of all users but one in this network namespace, by REDIRECT.
    Redirect,
    /// The connections of all users but one in this network namespace, by TPROXY.
    Tproxy,
    /// The connections that arrive through an interface, by TPROXY.
    Router,
}

impl SidecarMode {
    /// Every mode, with its name.
    pub const WORDS: [(&str, Self); 3] = [
        ("redirect", Self::Redirect),
        ("tproxy", Self::Tproxy),
        ("router", Self::Router),
    ];
}

impl SidecarRules {
    /// Installs the rules, and replaces those of the same port.
    ///
    /// # Errors
    /// The kernel's errno. The rules are then unchanged.
    pub fn apply(&self) -> io::Result<()> {
        let mut added = Vec::new();
        let routes = self.routes().into_iter().try_for_each(|route| {
            if route.add()? {
                added.push(route);
            }
            Ok(())
        });
        let done = routes.and_then(|()| self.table().replaced().commit(Some(nft::NETFILTER)));
        if done.is_err() {
            added
                .iter()
                .rev()
                .for_each(|route: &Route| drop(route.remove()));
        }
        done
    }

    /// Removes the rules. It is no error if there are none.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn remove(&self) -> io::Result<()> {
        self.table().removed().commit(Some(nft::NETFILTER))?;
        self.routes().iter().rev().try_for_each(Route::remove)
    }

    /// Whether the kernel has exactly these rules.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn is_applied(&self) -> io::Result<bool> {
        for route in self.routes() {
            if !route.is_there()? {
                return Ok(false);
            }
        }
        self.table().is_installed()
    }

    /// Returns the input of `nft -f`, with the commands for the routes in comments.
    #[must_use]
    pub fn text(&self) -> String {
        let routes = self.routes().into_iter();
        let routes: String = routes
            .map(|route| format!("# {}\n", route.text()))
            .collect();
        routes + &self.table().text()
    }

    fn table(&self) -> Table {
        let chains = match self.mode {
            SidecarMode::Redirect => vec![
                self.redirected(),
                self.refused(),
                self.left(),
                self.guarded(),
            ],
            SidecarMode::Tproxy => vec![
                self.marked(),
                self.taken_by_mark(),
                self.redirected(),
                self.refused(),
                self.left(),
                self.guarded(),
            ],
            SidecarMode::Router => vec![
                self.taken_by_interface(),
                self.names_by_interface(),
                self.forwarded(),
                self.guarded(),
            ],
        };
        Table {
            name: format!("gateway_{}", self.port),
            chains,
        }
    }

    fn mark(&self) -> u32 {
        u32::from(self.port)
    }

    /// Returns the port for DNS. Without a DNS listener, no process answers there.
    fn names_port(&self) -> u16 {
        self.dns_port.unwrap_or(self.port)
    }

    /// Redirects DNS to the gateway, also for a server on this machine, and all TCP with REDIRECT.
    /// Precedes a container engine's own rules for its DNS server.
    fn redirected(&self) -> Chain {
        let names = PROTOCOLS.map(|one| [to_names(one), vec![nft::redirect(self.names_port())]]);
        let mut rules = vec![vec![self.exempt(), nft::accept()]];
        rules.extend(names.map(|parts| parts.concat()));
        if self.mode == SidecarMode::Redirect {
            rules.push(vec![stays(), nft::accept()]);
            rules.push(vec![tcp(), nft::redirect(self.port)]);
        }
        Chain::new("redirected", "nat", (Hook::Output, -101), rules)
    }

    /// Marks TCP for TPROXY, so that its route leads back into this machine.
    fn marked(&self) -> Chain {
        let rules = vec![
            vec![stays(), nft::accept()],
            self.own_connection(),
            vec![self.exempt(), nft::accept()],
            vec![
                tcp(),
                nft::to_port(Op::Different, DNS_PORT),
                nft::set_mark(self.mark()),
            ],
        ];
        Chain::new("marked", "route", (Hook::Output, -150), rules)
    }

    fn taken_by_mark(&self) -> Chain {
        self.taken(vec![self.taken_of(&nft::mark(self.mark()))])
    }

    fn taken_by_interface(&self) -> Chain {
        let of = |name: &String| {
            let comes = nft::comes_in_by(name);
            let neighbours = NEIGHBOURS.map(|kind| vec![icmpv6(), nft::icmpv6(kind)]);
            let names = PROTOCOLS.map(to_names);
            let many = vec![nft::more_than(MOST_QUESTIONS)];
            // Packets with responses by another route, and floods that starve other clients.
            let lost = [
                vec![nft::not_routed_back()],
                [to_names(libc::IPPROTO_UDP), many].concat(),
            ];
            let rule =
                |parts: Vec<Expr>, verdict| [vec![comes.clone()], parts, vec![verdict]].concat();
            let passes = |parts| rule(parts, nft::accept());
            let mut rules: Vec<_> = neighbours.into_iter().map(passes).collect();
            rules.extend(lost.map(|parts| rule(parts, nft::drop())));
            rules.extend(names.map(passes));
            rules.extend(self.taken_of(&comes));
            rules.push(vec![comes, nft::reject()]);
            rules
        };
        self.taken(self.interfaces.iter().map(of).collect())
    }

    fn taken(&self, rules: Vec<Vec<Vec<Expr>>>) -> Chain {
        Chain::new("taken", "filter", (Hook::Prerouting, -150), rules.concat())
    }

    /// Gives TCP to the gateway, or resets it if the gateway does not listen.
    fn taken_of(&self, what: &Expr) -> Vec<Vec<Expr>> {
        let takes = |family| {
            let to_gateway = nft::tproxy(family, self.port);
            vec![
                what.clone(),
                nft::family(family),
                tcp(),
                to_gateway,
                nft::set_mark(self.mark()),
                nft::accept(),
            ]
        };
        let takes = FAMILIES.map(takes).into_iter();
        takes
            .chain(once(vec![what.clone(), tcp(), nft::reset()]))
            .collect()
    }

    fn names_by_interface(&self) -> Chain {
        let of = |name: &String| {
            let comes = nft::comes_in_by(name);
            let to_gateway = nft::redirect(self.names_port());
            PROTOCOLS
                .map(|one| [vec![comes.clone()], to_names(one), vec![to_gateway.clone()]].concat())
        };
        Chain::new(
            "names",
            "nat",
            (Hook::Prerouting, -101),
            self.interfaces.iter().flat_map(of).collect(),
        )
    }

    /// Passes the rest that the gateway has to send on a connection that it closed, which then
    /// belongs to no user. Another user could open a connection between the same ports soon after,
    /// so the first packet does not pass by its mark.
    fn own_connection(&self) -> Vec<Expr> {
        let own = nft::connection_mark(self.mark());
        vec![tcp(), nft::not_opening(), own, nft::accept()]
    }

    /// Refuses at once packets that are neither captured, the gateway's own, nor for this machine.
    fn refused(&self) -> Chain {
        let mark = self.mark();
        let marks = vec![
            tcp(),
            self.exempt(),
            nft::set_connection_mark(mark),
            nft::accept(),
        ];
        let mut rules = vec![
            vec![
                nft::family(libc::AF_INET),
                nft::to_address(ENGINE_RESOLVER),
                nft::user(Op::Different, self.exempt_uid),
                nft::reject(),
            ],
            vec![stays(), nft::accept()],
            self.own_connection(),
            marks,
            vec![self.exempt(), nft::accept()],
        ];
        // A redirected packet still has the interface by which it would have left.
        let captured = |one, port| {
            let to = nft::to_port(Op::Equal, port);
            vec![
                nft::protocol(Op::Equal, one),
                nft::redirected(),
                to,
                nft::accept(),
            ]
        };
        rules.push(match self.mode {
            SidecarMode::Tproxy => vec![nft::mark(mark), nft::accept()],
            _ => captured(libc::IPPROTO_TCP, self.port),
        });
        rules.extend(PROTOCOLS.map(|one| captured(one, self.names_port())));
        rules.extend(NEIGHBOURS.map(|kind| vec![icmpv6(), nft::icmpv6(kind), nft::accept()]));
        rules.push(vec![tcp(), nft::reset()]);
        rules.push(vec![nft::reject()]);
        Chain::new("refused", "filter", (Hook::Output, 0), rules)
    }

    /// Drops packets that leave nevertheless: a socket bound to an interface keeps it, whatever the
    /// route is, and other tables translate packets that were to stay.
    fn left(&self) -> Chain {
        let others = vec![
            nft::goes_out_by(Op::Different, LOOPBACK),
            nft::user(Op::Different, self.exempt_uid),
            nft::drop(),
        ];
        Chain::new("left", "filter", (Hook::Postrouting, 0), vec![others])
    }

    /// Refuses to forward packets that no route brought to the gateway.
    fn forwarded(&self) -> Chain {
        let refuse = |name: &String| vec![nft::comes_in_by(name), nft::reject()];
        let rules = self.interfaces.iter().map(refuse).collect();
        Chain::new("forwarded", "filter", (Hook::Forward, 0), rules)
    }

    /// Keeps strangers from the gateway's ports, which are for captured connections, and sandboxes
    /// from every other port, also if a part of the rules is missing.
    fn guarded(&self) -> Chain {
        let mut rules = Vec::new();
        // A packet from this machine to an interface's address arrives through it, for the kernel.
        for port in once(self.port).chain(self.dns_port) {
            if self.mode == SidecarMode::Router {
                let refuse = |one| {
                    let own = [nft::comes_in_by(LOOPBACK), nft::protocol(Op::Equal, one)];
                    let to = [nft::to_port(Op::Equal, port), nft::reject()];
                    [own, to].concat()
                };
                rules.extend(PROTOCOLS.map(refuse));
            }
        }
        rules.push(vec![nft::comes_in_by(LOOPBACK), nft::accept()]);
        for name in &self.interfaces {
            let names = |one| {
                let to = nft::to_port(Op::Equal, self.names_port());
                vec![nft::protocol(Op::Equal, one), to, nft::accept()]
            };
            let neighbours = |kind| vec![icmpv6(), nft::icmpv6(kind), nft::accept()];
            let captured = once(vec![nft::mark(self.mark()), nft::accept()]);
            let passed = captured.chain(PROTOCOLS.map(names));
            let passed = passed.chain(NEIGHBOURS.map(neighbours));
            let refused = [vec![tcp(), nft::reset()], vec![nft::reject()]];
            let comes = nft::comes_in_by(name);
            rules.extend(
                passed
                    .chain(refused)
                    .map(|rule| [vec![comes.clone()], rule].concat()),
            );
        }
        for port in once(self.port).chain(self.dns_port) {
            let lose = |one| {
                let to = nft::to_port(Op::Equal, port);
                vec![nft::protocol(Op::Equal, one), to, nft::drop()]
            };
            rules.extend(PROTOCOLS.map(lose));
        }
        Chain::new("guarded", "filter", (Hook::Input, 0), rules)
    }

    fn exempt(&self) -> Expr {
        nft::user(Op::Equal, self.exempt_uid)
    }

    fn routes(&self) -> Vec<Route> {
        let routes = |selector: Option<Selector>| {
            FAMILIES.map(|family| Route {
                family: family as u8,
                table: self.mark(),
                selector: selector.clone(),
            })
        };
        let selectors: Vec<_> = match self.mode {
            SidecarMode::Redirect => return Vec::new(),
            SidecarMode::Tproxy => vec![Selector::Mark(self.mark())],
            SidecarMode::Router => self
                .interfaces
                .iter()
                .cloned()
                .map(Selector::Interface)
                .collect(),
        };
        let selectors = selectors.into_iter().map(Some);
        once(None).chain(selectors).flat_map(routes).collect()
    }
}

fn tcp() -> Expr {
    nft::protocol(Op::Equal, libc::IPPROTO_TCP)
}

fn stays() -> Expr {
    nft::goes_out_by(Op::Equal, LOOPBACK)
}

fn icmpv6() -> Expr {
    nft::protocol(Op::Equal, libc::IPPROTO_ICMPV6)
}

fn to_names(protocol: i32) -> Vec<Expr> {
    vec![
        nft::protocol(Op::Equal, protocol),
        nft::to_port(Op::Equal, DNS_PORT),
    ]
}

const LOOPBACK: &str = "lo";
/// Docker's DNS server in a container's network. It also answers at a port that only its own rules
/// name, and sends its queries from the host's network.
const ENGINE_RESOLVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
const DNS_PORT: u16 = 53;
/// How many DNS packets a second an interface may bring: a quarter of a session's rate, so that the
/// packets of several interfaces fit into the queue that they share.
const MOST_QUESTIONS: u32 = 500;
const PROTOCOLS: [i32; 2] = [libc::IPPROTO_TCP, libc::IPPROTO_UDP];
/// Router solicitation, and neighbour solicitation and advertisement (RFC 4861 §4).
const NEIGHBOURS: [u8; 3] = [133, 135, 136];
