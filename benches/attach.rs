//! What credentials cost a request: finding what it presents, and having the secret at hand.
//!
//! Compare `locate/*` with the whole budget of a request, about 15 µs on the machine of
//! docs/benchmarks.md.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use gateway::credential::{ConfiguredCredential, Credentials, SecretRef, Stores};
use gateway::message::{Authority, EncodedSlash, Origin, RequestHead, RequestTarget, Scheme};
use gateway::names::{CredentialName, SessionId};
use gateway::session::phantom::{KeptShapes, PhantomKey, Phantoms, Registry};
use gateway::session::{Binding, Bindings, Foreign, Revocations, Role, When};
use http::{HeaderMap, HeaderValue, Method, Version};

/// Never issued by anyone; the letters repeat.
const SECRETS: [&str; 5] = [
    "ghp_abcdefghijABCDEFGHIJ0123456789abcdef",
    "sk-ant-api03-abcdefghijABCDEFGHIJ0123456789abcdefghijABCDEFGHIJ0123456789AA",
    "glpat-abcdefghij0123456789",
    "AIzaabcdefghijABCDEFGHIJ0123456789abcde",
    "0123456789abcdef0123456789abcdef",
];

struct Stage {
    bindings: Arc<Bindings>,
    stores: Stores,
    phantoms: Phantoms,
    registry: Registry,
}

/// Where a secret is kept: a program prints it once, and it serves for longer than a benchmark
/// runs.
fn kept(secret: &str) -> SecretRef {
    let arguments = vec![secret.to_owned()];
    SecretRef::command("/bin/echo", arguments, Some(Duration::from_secs(3600)))
}

fn stage(count: usize) -> Stage {
    let bindings = SECRETS[..count].iter().enumerate().map(|(at, secret)| {
        let from = kept(secret);
        let binding = Binding {
            credential: CredentialName::new(&format!("c{at}")).unwrap(),
            shape: None,
            origins: vec![format!("https://api{at}.test").parse().unwrap()],
            places: vec![
                "header:authorization:Bearer".parse().unwrap(),
                "header:x-api-key".parse().unwrap(),
            ],
            methods: vec![],
            paths: vec![],
            when: When::Phantom,
            foreign: Foreign::Refuse,
            basic_user: None,
            variables: vec![],
            takes: Vec::new(),
            cookies: Vec::new(),
            claims: None,
            batches: Vec::new(),
            role: Role::Place,
            revocations: Revocations::new(),
        };
        ConfiguredCredential { binding, from }
    });
    let bindings: Vec<ConfiguredCredential> = bindings.collect();
    let stores = Stores::new(bindings.iter().map(|stored| &stored.from));
    let credentials = Credentials::new(bindings, &stores).unwrap();
    let bindings = credentials.bindings().clone();
    let session = SessionId::new("s").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (phantoms, _) = runtime
        .block_on(credentials.issue(
            &session,
            &PhantomKey::from_bytes([1; 32]),
            &mut KeptShapes::default(),
            |_| true,
        ))
        .unwrap();
    Stage {
        bindings,
        stores,
        phantoms,
        registry: Registry::default(),
    }
}

fn request(host: &str, phantom: Option<&str>) -> RequestHead {
    let mut fields = HeaderMap::new();
    for (name, value) in [
        ("accept", "application/json"),
        ("accept-encoding", "gzip, deflate, br"),
        (
            "user-agent",
            "Anthropic/Python 0.42.0 (Linux; x86_64) CPython/3.12",
        ),
        ("content-type", "application/json"),
        ("content-length", "512"),
        ("anthropic-version", "2023-06-01"),
        ("x-stainless-lang", "python"),
        ("x-stainless-runtime", "CPython"),
        ("x-stainless-retry-count", "0"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    if let Some(phantom) = phantom {
        fields.insert(
            "authorization",
            HeaderValue::from_str(&format!("Bearer {phantom}")).unwrap(),
        );
    }
    let authority = Authority::parse(host.as_bytes(), Some(443)).unwrap();
    RequestHead {
        method: Method::POST,
        origin: Origin {
            scheme: Scheme::Https,
            authority,
        },
        target: RequestTarget::parse(b"/v1/messages?beta=true", EncodedSlash::Refuse).unwrap(),
        fields,
        version: Version::HTTP_11,
    }
}

fn locate(c: &mut Criterion) {
    for count in [1, 5] {
        let stage = stage(count);
        let phantom = stage.phantoms.all()[0].reveal().to_owned();
        for (case, head) in [
            ("unmanaged", request("example.test", None)),
            ("managed_without_phantom", request("api0.test", None)),
            ("with_phantom", request("api0.test", Some(&phantom))),
        ] {
            let here = Arc::new(stage.bindings.at_origin(&head.origin));
            c.bench_function(&format!("locate/{count}_credentials/{case}"), |b| {
                b.iter(|| {
                    let (phantoms, registry) = (&stage.phantoms, &stage.registry);
                    stage
                        .bindings
                        .detect(black_box(&head), here.clone(), phantoms, registry)
                        .unwrap()
                });
            });
        }
    }
}

fn resolve(c: &mut Criterion) {
    let stage = stage(1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let source = stage.stores.source(&kept(SECRETS[0]));
    c.bench_function("resolve/from_memory", |b| {
        b.iter(|| {
            runtime
                .block_on(black_box(&source).resolve(None))
                .unwrap()
                .expires
        });
    });
}

criterion_group!(benches, locate, resolve);
criterion_main!(benches);
