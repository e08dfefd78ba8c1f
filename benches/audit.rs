//! What one record costs: to be compared with a bare `write(2)` of as many bytes on the same file
//! system.

use std::fs::{File, Permissions};
use std::hint::black_box;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use gateway::audit::{
    AuditDecision, Durability, Length, Log, Phase, Redact, Settings, Text, Trail,
};
use gateway::names::{CredentialName, ExchangeId, PolicyId, SessionId};
use memchr::memmem::Finder;

struct Fixed {
    session: SessionId,
    policies: Arc<[PolicyId]>,
    credential: CredentialName,
    conceal: Arc<dyn Redact>,
}

/// Looks for three phantoms, as a session does.
struct Three([Finder<'static>; 3]);

impl Redact for Three {
    fn redact(&self, text: &[u8], places: &mut Vec<Range<usize>>) {
        for finder in &self.0 {
            places.extend(
                finder
                    .find_iter(text)
                    .map(|at| at..at + finder.needle().len()),
            );
        }
    }
}

/// A typical exchange: allowed, one credential, all phases.
fn fill(trail: &mut Trail, fixed: &Fixed) {
    trail.session(&fixed.session, Arc::clone(&fixed.conceal));
    trail.protocol(http::Version::HTTP_11);
    trail.method("GET");
    trail.scheme("https");
    trail.authority("api.github.com", 443);
    trail.path("/repos/owner/name/issues");
    trail.query("state=open&per_page=50");
    trail.reach(Phase::Identify);
    trail.reach(Phase::Authorize);
    trail.decide(AuditDecision::Allow, &fixed.policies, 3);
    trail.lend(&fixed.credential, &Text::new("field authorization"));
    trail.reserve().expect("room");
    trail.reach(Phase::Open);
    trail.dialled(([192, 0, 2, 1], 443).into(), http::Version::HTTP_11);
    trail.reach(Phase::Attach);
    trail.origin_answered(200);
}

fn exchange(log: &Log, fixed: &Fixed, runtime: &tokio::runtime::Runtime) {
    let mut trail = Trail::begin(
        log,
        black_box(ExchangeId::from_bytes([7; 10])),
        "transparent",
    );
    fill(&mut trail, fixed);
    runtime
        .block_on(trail.answer(black_box(200), Length::Known(0)))
        .expect("room");
}

fn record(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let fixed = Fixed {
        session: SessionId::new("session-1").expect("a name"),
        policies: Arc::from([PolicyId::new("github-read").expect("a name")]),
        credential: CredentialName::new("github").expect("a name"),
        conceal: Arc::new(Three(
            [
                b"ghp_phantomphantom",
                b"sk-phantomphantom!",
                b"xoxb-phantom-phant",
            ]
            .map(Finder::new),
        )),
    };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("ours");
    let settings = Settings {
        rotate_bytes: 64 << 20,
        sync: Durability::Batch,
        path: folder.path().join("audit.jsonl"),
        allowance: gateway::audit::Allowance::default(),
    };
    let log = Log::open(&settings).expect("a log");
    criterion.bench_function("audit/record/file", |bencher| {
        bencher.iter(|| exchange(&log, &fixed, &runtime))
    });
    let mut bare = File::options()
        .append(true)
        .create(true)
        .open(folder.path().join("bare"))
        .expect("a file");
    let line = std::fs::read_to_string(&settings.path).expect("ASCII");
    let line = line.lines().last().expect("records").as_bytes().to_vec();
    println!("a record has {} bytes", line.len());
    criterion.bench_function("audit/bare_write/file", |bencher| {
        bencher.iter(|| bare.write_all(black_box(&line)).expect("room"));
    });
}

criterion_group!(benches, record);
criterion_main!(benches);
