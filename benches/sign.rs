//! What signing costs: a request verified and signed again, and content that streams in signed
//! chunks.
//!
//! Compare `head/*` with the whole budget of a request, about 15 µs on the machine of
//! docs/benchmarks.md, and `chunks/*` with `sha256/*`: each byte must be hashed once, so that is
//! the bound.

use std::hint::black_box;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gateway::message::{Authority, EncodedSlash, Origin, RequestHead, RequestTarget, Scheme};
use gateway::sigv4::{ChunkResigner, ClientSignature, SigningParams, sign};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use sha2::{Digest as _, Sha256};

/// The secret key of AWS's examples, here what the client was given.
const PHANTOM: &[u8] = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

fn head(method: Method, host: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    RequestHead {
        method,
        origin: Origin {
            scheme: Scheme::Https,
            authority: Authority::parse(host.as_bytes(), Some(443)).unwrap(),
        },
        target: RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep).unwrap(),
        fields: map,
        version: Version::HTTP_11,
    }
}

/// Amazon S3 API Reference, "Authenticating Requests: Using the Authorization Header", GET object;
/// and a client's usual fields.
fn in_fields() -> RequestHead {
    head(
        Method::GET,
        "examplebucket.s3.amazonaws.com",
        "/test.txt",
        &[
            (
                "user-agent",
                "aws-cli/2.31.0 md/awscrt#0.27.6 ua/2.1 os/linux#6.8 md/arch#x86_64 lang/python#3.13",
            ),
            ("accept-encoding", "identity"),
            ("range", "bytes=0-9"),
            (
                "x-amz-content-sha256",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            ("x-amz-date", "20130524T000000Z"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                 SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
                 Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
        ],
    )
}

/// The same reference, "Using Query Parameters".
fn presigned() -> RequestHead {
    let target = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
        &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
        &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
        &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    head(
        Method::GET,
        "examplebucket.s3.amazonaws.com",
        target,
        &[("user-agent", "curl/8.5.0")],
    )
}

/// "get-vanilla" of AWS's signing test suite, with ECDSA.
fn asymmetric() -> RequestHead {
    head(
        Method::GET,
        "example.amazonaws.com",
        "/",
        &[
            ("x-amz-date", "20150830T123600Z"),
            ("x-amz-region-set", "us-east-1"),
            (
                "authorization",
                "AWS4-ECDSA-P256-SHA256 Credential=AKIDEXAMPLE/20150830/service/aws4_request, \
                 SignedHeaders=host;x-amz-date;x-amz-region-set, \
                 Signature=3046022100fddaaf816a31e30d04973875b13bc27b98da10907a3a1872fd5819a221334abc\
                 022100de2ee81d83b54f31efc82834de07e6cd4d5c6f25bfa08e0f29a15bb0977c343e",
            ),
        ],
    )
}

fn with(now: SystemTime) -> SigningParams<'static> {
    SigningParams {
        access_key: "AKIAREALREALREALREAL",
        secret: b"realrealrealrealrealrealrealrealrealreal",
        session_token: None,
        now,
        longest_life: Duration::from_secs(300),
        content: None,
    }
}

fn again(head: &mut RequestHead, phantom: &[u8], content: Option<&[u8; 32]>, now: SystemTime) {
    let claim = ClientSignature::read(head).unwrap().unwrap();
    let verified = claim.verify(head, phantom, content).unwrap();
    let with = SigningParams {
        content,
        ..with(now)
    };
    sign(head, &claim, verified, &with).unwrap();
}

fn heads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sign/head");
    let now = SystemTime::now();
    let empty: [u8; 32] = Sha256::digest(b"").into();
    let suite = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    type Case<'a> = (&'a str, RequestHead, &'a [u8], Option<&'a [u8; 32]>);
    let cases: [Case<'_>; 3] = [
        ("fields", in_fields(), PHANTOM, None),
        ("presigned", presigned(), PHANTOM, None),
        ("ecdsa", asymmetric(), suite, Some(&empty)),
    ];
    for (name, head, phantom, content) in cases {
        group.bench_function(format!("{name}/verify_and_resign"), |bencher| {
            bencher.iter_batched_ref(
                || head.clone(),
                |head| again(black_box(head), phantom, content, now),
                BatchSize::SmallInput,
            );
        });
    }
    let head = in_fields();
    group.bench_function("fields/read_and_verify", |bencher| {
        bencher.iter(|| {
            let claim = ClientSignature::read(black_box(&head)).unwrap().unwrap();
            claim.verify(&head, PHANTOM, None).unwrap()
        });
    });
    group.finish();
}

/// 65,536 bytes of `a` and 1,024 more: the published chunked example, at the cut that a connection
/// gives.
fn chunked() -> (RequestHead, Vec<Bytes>) {
    let head = head(
        Method::PUT,
        "s3.amazonaws.com",
        "/examplebucket/chunkObject.txt",
        &[
            ("content-encoding", "aws-chunked"),
            ("content-length", "66824"),
            ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-decoded-content-length", "66560"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                 SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;\
                 x-amz-decoded-content-length;x-amz-storage-class,\
                 Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
            ),
        ],
    );
    let mut content = Vec::new();
    for (length, signature) in [
        (
            0x10000,
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        ),
        (
            0x400,
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        ),
        (
            0,
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ),
    ] {
        content.extend_from_slice(format!("{length:x};chunk-signature={signature}\r\n").as_bytes());
        content.extend(std::iter::repeat_n(b'a', length));
        content.extend_from_slice(b"\r\n");
    }
    let content = Bytes::from(content);
    let cuts = (0..content.len()).step_by(16 * 1024);
    let pieces = cuts
        .map(|at| content.slice(at..content.len().min(at + 16 * 1024)))
        .collect();
    (head, pieces)
}

fn opened(head: &RequestHead, now: SystemTime) -> ChunkResigner {
    let mut head = head.clone();
    let claim = ClientSignature::read(&head).unwrap().unwrap();
    let verified = claim.verify(&head, PHANTOM, None).unwrap();
    let signed = sign(&mut head, &claim, verified, &with(now)).unwrap();
    signed.rechain(&head, 1 << 20).unwrap().unwrap()
}

fn chunks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sign/chunks");
    let (head, pieces) = chunked();
    let now = SystemTime::now();
    group.throughput(Throughput::Bytes(66_560));
    group.bench_function("65KiB_in_16KiB_pieces", |bencher| {
        bencher.iter_batched(
            || opened(&head, now),
            |mut rechain| {
                let mut out = Vec::new();
                for piece in &pieces {
                    rechain.push(black_box(piece.clone()), &mut out).unwrap();
                }
                rechain.finish().unwrap();
                out
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
    let mut group = criterion.benchmark_group("sign/sha256");
    let data = vec![b'a'; 65_536];
    group.throughput(Throughput::Bytes(65_536));
    group.bench_function("sha2", |bencher| {
        bencher.iter(|| Sha256::digest(black_box(&data)))
    });
    group.bench_function("aws_lc_rs", |bencher| {
        bencher.iter(|| aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, black_box(&data)));
    });
    group.finish();
}

criterion_group!(benches, heads, chunks);
criterion_main!(benches);
