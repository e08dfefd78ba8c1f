//! Routes that bring packets for other machines to this one, as TPROXY needs them.

use std::io;

use crate::netlink::{self, ACK, Batch, CREATE, EXCL};

/// A route that makes every destination local, in a table of its own; or the rule by which packets
/// use that table.
pub(super) struct Route {
    pub(super) family: u8,
    pub(super) table: u32,
    pub(super) selector: Option<Selector>,
}

/// The packets that use the table.
#[derive(Clone)]
pub(super) enum Selector {
    Mark(u32),
    Interface(String),
}

impl Route {
    /// Adds the route. Returns whether it was missing.
    pub(super) fn add(&self) -> io::Result<bool> {
        self.change(ACK | CREATE | EXCL, 0, &[libc::EEXIST])
    }

    /// Removes the route, also if another program added it again.
    pub(super) fn remove(&self) -> io::Result<()> {
        // A table without routes may not exist either.
        while self.change(ACK, 1, &[libc::ESRCH, libc::ENOENT])? {}
        Ok(())
    }

    /// Adds or removes the route. Returns whether that changed anything: with one of these errnos
    /// it is so already, and a kernel without IPv6 has no such route.
    fn change(&self, flags: u16, operation: u16, is_so: &[i32]) -> io::Result<bool> {
        let mut header = self.header();
        if operation > 0 {
            // Whichever program added it.
            header[5] = 0;
        }
        let mut batch = Batch::default();
        let kind = self.kind() + operation;
        batch.message(kind, flags, &header, |n| self.body(n));
        match batch
            .commit(None)
            .map_err(|error| (error.raw_os_error(), error))
        {
            Err((Some(errno), _)) if is_so.contains(&errno) || self.is_no_family(errno) => {
                Ok(false)
            }
            outcome => outcome.map(|()| true).map_err(|(_, error)| error),
        }
    }

    /// Whether the kernel has the route.
    pub(super) fn is_there(&self) -> io::Result<bool> {
        let mut wanted = Batch::default();
        self.body(&mut wanted);
        let mut header = [0; 12];
        header[0] = self.family;
        match netlink::dump(None, self.kind() + 2, &header) {
            Ok(found) => Ok(found.iter().any(|one| netlink::holds(one, wanted.bytes()))),
            Err(error)
                if error
                    .raw_os_error()
                    .is_some_and(|errno| self.is_no_family(errno)) =>
            {
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn is_no_family(&self, errno: i32) -> bool {
        let refusals = [libc::EAFNOSUPPORT, libc::EOPNOTSUPP];
        i32::from(self.family) == libc::AF_INET6 && refusals.contains(&errno)
    }

    fn kind(&self) -> u16 {
        match self.selector {
            None => libc::RTM_NEWROUTE,
            Some(_) => libc::RTM_NEWRULE,
        }
    }

    /// Returns the `struct rtmsg` or `struct fib_rule_hdr`, which have the same layout.
    fn header(&self) -> [u8; 12] {
        let mut header = [0; 12];
        header[0] = self.family;
        match self.selector {
            None => {
                let (scope, kind) = (libc::RT_SCOPE_HOST, libc::RTN_LOCAL);
                header[5..8].copy_from_slice(&[libc::RTPROT_STATIC, scope, kind]);
            }
            Some(_) => header[7] = FR_ACT_TO_TBL,
        }
        header
    }

    fn body(&self, n: &mut Batch) {
        match &self.selector {
            None => n.attribute(libc::RTA_OIF, &LOOPBACK_INDEX.to_ne_bytes()),
            Some(selector) => {
                n.attribute(FRA_PRIORITY, &PRIORITY.to_ne_bytes());
                match selector {
                    Selector::Interface(name) => n.text(FRA_IIFNAME, name),
                    Selector::Mark(mark) => n.attribute(FRA_FWMARK, &mark.to_ne_bytes()),
                }
            }
        }
        // RTA_TABLE has the same number.
        n.attribute(FRA_TABLE, &self.table.to_ne_bytes());
    }

    /// Returns the command that adds the route.
    pub(super) fn text(&self) -> String {
        let (table, family) = (self.table, i32::from(self.family));
        let ip = if family == libc::AF_INET6 {
            "ip -6"
        } else {
            "ip"
        };
        match &self.selector {
            None => format!("{ip} route add local default dev lo table {table}"),
            Some(Selector::Interface(name)) => {
                format!("{ip} rule add pref {PRIORITY} iif {name} lookup {table}")
            }
            Some(Selector::Mark(mark)) => {
                format!("{ip} rule add pref {PRIORITY} fwmark {mark} lookup {table}")
            }
        }
    }
}

const LOOPBACK_INDEX: u32 = 1;
/// After the table `local`, before `main`.
const PRIORITY: u32 = 100;
const FR_ACT_TO_TBL: u8 = 1;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
