//! A session that nobody uses for a minute. This only waits, so that it runs beside the others,
//! and comes first by its name.

use std::time::Duration;

use http::StatusCode;

use crate::restarts::once;
use crate::{Setup, Stage, run};

#[test]
fn a_session_that_was_idle_for_too_long_says_so_also_after_a_restart_until_it_is_resumed() {
    let mut stage = Stage::beside_others(Setup {
        idle: "1m",
        ..Setup::default()
    });
    let said = |stage: &Stage| run(async { once(&stage.client, true).await.unwrap() });
    // A session that is used goes on.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(35));
        assert_eq!(said(&stage), StatusCode::OK);
    }
    std::thread::sleep(Duration::from_secs(64));
    for _ in 0..2 {
        assert_eq!(
            said(&stage),
            StatusCode::FORBIDDEN,
            "and a refused request is no use"
        );
    }
    let records = stage.gateway.records();
    let ended = |kind: &str| {
        let of_kind = records.iter().filter(|record| record["kind"] == kind);
        of_kind
            .filter(|one| one["reason"] == "session_ended")
            .count()
    };
    assert_eq!((ended("exchange"), ended("event")), (2, 1));
    stage.gateway.stop();
    stage.gateway.restart();
    assert_eq!(said(&stage), StatusCode::FORBIDDEN);
    assert!(
        stage
            .gateway
            .said()
            .contains("`gateway session resume agent-1`")
    );
    stage.gateway.command(&["session", "resume", "agent-1"]);
    assert_eq!(said(&stage), StatusCode::OK, "with the same phantom and CA");
    stage.gateway.stop();
    stage.gateway.restart();
    assert_eq!(said(&stage), StatusCode::OK);
    // An operator's end of one that was idle is an end.
    std::thread::sleep(Duration::from_secs(64));
    assert_eq!(said(&stage), StatusCode::FORBIDDEN);
    std::thread::sleep(Duration::from_secs(3));
    stage.gateway.command(&["session", "end", "agent-1"]);
    stage.gateway.command(&["session", "resume", "agent-1"]);
    assert_eq!(said(&stage), StatusCode::FORBIDDEN);
    stage.gateway.stop();
    stage.gateway.restart();
    stage.gateway.command(&["session", "resume", "agent-1"]);
    assert_eq!(said(&stage), StatusCode::FORBIDDEN);
}
