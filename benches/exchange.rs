//! What a whole exchange costs: a client, the gateway and an origin in one thread, over loopback,
//! in clear text.
//!
//! Compare with `relay`, the same client and origin without the gateway: the difference is the
//! gateway's, with two more crossings of the loopback. `benches/audit.rs` shows the record's share.

use std::convert::Infallible;
use std::fs::Permissions;
use std::hint::black_box;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use gateway::audit::{Allowance, Durability, Log, Settings};
use gateway::credential::{Credentials, Stores};
use gateway::intercept::{CaSettings, SessionCa};
use gateway::message::Host;
use gateway::names::SessionId;
use gateway::origin::{OriginRule, OriginSettings};
use gateway::policy::{Declared, Policies, Source, generate};
use gateway::server::{
    BoundSocket, Ids, Limits, ListenerMode, ListenerSlot, SessionListener, SharedState, Snapshot,
    Worker,
};
use gateway::session::Session;
use gateway::session::phantom::Phantoms;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const HOST: &str = "origin.example.test";
const CONTENT: [u8; 1024] = [b'x'; 1024];

async fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|_| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&CONTENT))))
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    address
}

/// A gateway in front of the origin: one policy, no credential, every other part as in service.
async fn gateway(origin: SocketAddr) -> SocketAddr {
    let rule = OriginRule {
        connect: Some(origin),
        cleartext: true,
        ..OriginRule::of(format!("http://{HOST}").parse().unwrap())
    };
    let credentials = Credentials::new(Vec::new(), &Stores::new([])).unwrap();
    let session = SessionId::new("bench").unwrap();
    let snapshot = Snapshot {
        prices: Arc::new(gateway_spend::Prices::shipped()),
        logins: Vec::new(),
        policies: Policies::load(
            &[Source::new(
                "bench",
                generate::permit_host(None, HOST, Some(80)),
            )],
            Declared::default(),
        )
        .unwrap(),
        credentials,
        limits: Limits::default(),
        origins: Arc::new(OriginSettings::default().with_rules(vec![rule]).unwrap()),
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    let settings = Settings {
        rotate_bytes: 64 << 20,
        sync: Durability::Batch,
        path: folder.keep().join("audit.jsonl"),
        allowance: Allowance::default(),
    };
    let log = Log::open(&settings).unwrap();
    let shared = Arc::new(SharedState::new(snapshot, log, Ids::new().unwrap()));
    let asks = Arc::new(Session::new(
        session.clone(),
        Vec::new(),
        Phantoms::none(),
        None,
    ));
    shared.sessions.enter(asks.clone());
    let ca = SessionCa::new(&session, &CaSettings::default(), Arc::new(|_: &Host| true)).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let served = SessionListener::new(&shared, (asks, Arc::new(ca)), ListenerMode::Proxy);
    let slot = Arc::new(ListenerSlot::new(&shared, served));
    let worker = Worker::new(shared).unwrap();
    worker.listen(
        worker.take(BoundSocket::Tcp(listener), false).unwrap(),
        slot,
    );
    address
}

/// A kept connection to `address`, and one exchange after the other on it.
fn measure(criterion: &mut Criterion, name: &str, through: bool, target: &str) {
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut sender = runtime.block_on(async {
        let origin = origin().await;
        let address = if through {
            gateway(origin).await
        } else {
            origin
        };
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    });
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let request = Request::get(target)
                    .header("host", HOST)
                    .body(Empty::<Bytes>::new())
                    .unwrap();
                sender.ready().await.unwrap();
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.status(), 200);
                black_box(
                    response
                        .into_body()
                        .collect()
                        .await
                        .unwrap()
                        .to_bytes()
                        .len(),
                )
            })
        });
    });
}

fn exchange(criterion: &mut Criterion) {
    measure(criterion, "relay/none/h1/1KiB", false, "/some/path");
    measure(
        criterion,
        "exchange/h1/1KiB/no_credential",
        true,
        &format!("http://{HOST}/some/path"),
    );
}

criterion_group!(benches, exchange);
criterion_main!(benches);
