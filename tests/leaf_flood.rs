//! A million host names in one session: bounded memory, bounded minting. Alone in its process, so
//! that RSS means something.

use std::sync::Arc;
use std::time::Instant;

use gateway::intercept::{AddressPool, CaSettings, SessionCa};
use gateway::message::Host;
use gateway::names::SessionId;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_million_names_neither_fill_memory_nor_burn_the_processor() {
    // Those that some policy reaches, then those that are only refused.
    for is_reached in [true, false] {
        flood(is_reached);
    }
}

fn flood(is_reached: bool) {
    let settings = CaSettings::default();
    let ca = SessionCa::new(
        &SessionId::new("s-flood").unwrap(),
        &settings,
        Arc::new(move |host| is_reached || host.as_str() == "reached.test"),
    )
    .unwrap();
    // Each kind of allocation once, before the measure.
    let (mut pool, mut given) = (AddressPool::default(), 0);
    for n in 0..64 {
        let host = Host::parse(format!("warm-{n}.test").as_bytes()).unwrap();
        let _ = ca.leaf(&host);
        given += usize::from(pool.addresses(&host).is_some());
    }
    let (before, start) = (resident_bytes(), Instant::now());
    let mut minted = 0;
    for n in 0..1_000_000_u32 {
        // Those that are kept are as long as names get, so that the bound holds for the worst of
        // them.
        let name = match n {
            ..20_000 => format!(
                "{}.{}.{}.{n:07}.test",
                "a".repeat(63),
                "b".repeat(63),
                "c".repeat(63)
            ),
            _ => format!("{n}.test"),
        };
        let host = Host::parse(name.as_bytes()).unwrap();
        minted += u64::from(ca.leaf(&host).is_ok());
        given += usize::from(pool.addresses(&host).is_some());
    }
    let seconds = start.elapsed().as_secs_f64();
    let grown = resident_bytes().saturating_sub(before);
    println!(
        "grown {} KiB, minted {minted}, {seconds:.2} µs a name",
        grown / 1024
    );

    let allowance =
        f64::from(settings.mint_burst) + f64::from(settings.mint_per_second) * seconds + 1.0;
    assert!(minted as f64 <= allowance, "{minted} leaves in {seconds} s");
    assert!(ca.leaves().0 <= settings.leaves_kept);
    assert_eq!(given, 16_384);
    assert!(grown < 24 << 20, "{grown} bytes");
    // The session goes on: what is kept is served, the bucket refills, and refusals use up nothing
    // of what is reached.
    let next = if is_reached {
        "warm-63.test"
    } else {
        "reached.test"
    };
    assert!(ca.leaf(&Host::parse(next.as_bytes()).unwrap()).is_ok());
}

#[test]
fn the_store_of_leaves_is_bounded_when_minting_is_not() {
    let settings = CaSettings {
        mint_burst: u32::MAX,
        leaves_kept: 256,
        ..CaSettings::default()
    };
    let ca = SessionCa::new(
        &SessionId::new("s-flood-2").unwrap(),
        &settings,
        Arc::new(|_| true),
    )
    .unwrap();
    for n in 0..5_000 {
        ca.leaf(&Host::parse(format!("h{n}.test").as_bytes()).unwrap())
            .unwrap();
    }
    assert_eq!(ca.leaves(), (256, 5_000));
}
