//! Many sessions that sleep: what each costs in memory, and what opening one costs.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gateway::config::Config;
use gateway::credential::{Credentials, Stores};
use gateway::intercept::{CaSettings, SessionCa};
use gateway::names::SessionId;
use gateway::session::phantom::{KeptShapes, PhantomKey};
use gateway::session::{Lifetime, Moment, Session, Sessions};

use crate::is_full;

/// Sessions of ten credentials each. The goal is 10,000 in 512 MiB.
const MOST_KIB_EACH: u64 = 512 * 1024 / 10_000;

#[test]
fn ten_thousand_sessions_of_ten_credentials_fit_into_512_mib() {
    let count = if is_full() { 10_000 } else { 1_000 };
    let mut text = String::new();
    for n in 0..10 {
        let _ = write!(
            text,
            "[[credential]]\nname = \"c{n}\"\nfrom = \"env:C{n}\"\norigins = [\"https://c{n}.test\"]\n\
             places = [\"header:authorization:Bearer\"]\nshape = \"ghp_[30 alnum][6 crc32]\"\n"
        );
    }
    let config = Config::from_str(&text, Path::new("/nowhere/gateway.toml")).unwrap();
    let stored = config.credentials.iter();
    let stored: Vec<_> = stored.flat_map(|one| one.stored().unwrap()).collect();
    let credentials = Credentials::new(stored, &Stores::new([])).unwrap();
    let sessions = Sessions::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (before, began) = (resident_kib(), Instant::now());
    let cas: Vec<Arc<SessionCa>> = (0..count)
        .map(|n| {
            let id = SessionId::new(&format!("s{n}")).unwrap();
            let key = PhantomKey::random().unwrap();
            let mut shapes = KeptShapes::default();
            let issued = credentials.issue(&id, &key, &mut shapes, |_| true);
            let phantoms = runtime.block_on(issued).unwrap();
            let life = Lifetime::new(Moment::now(), std::time::Duration::from_secs(60));
            let ca = SessionCa::new(&id, &CaSettings::default(), Arc::new(|_| true)).unwrap();
            let session = Session::new(id, Vec::new(), phantoms, Some(life));
            sessions.enter(Arc::new(session));
            Arc::new(ca)
        })
        .collect();
    let each = began.elapsed() / count;
    let kib = (resident_kib() - before) / u64::from(count);
    println!("{count} sessions: {kib} KiB each, opened in {each:?} each");
    assert_eq!(cas.len(), count as usize);
    assert!(kib <= MOST_KIB_EACH, "{kib} KiB each");
}

/// The memory that this process uses now, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}
