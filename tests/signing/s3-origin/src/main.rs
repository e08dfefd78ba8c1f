//! An S3 server over TLS for tests of signing: [s3s](https://docs.rs/s3s) verifies the signatures,
//! [`store`] keeps the objects.
//!
//! `s3-origin SETTINGS.json`; prints `ready` when it listens and ends when its standard input does.
//!
//! What s3s 0.14 leaves to others stands in [`seal`]: that `host` and every `x-amz-*` field is
//! signed, that the scope's region is ours, and that the session token is the one that belongs to
//! the key. What it has not at all: SigV4a (refused as not implemented).

mod store;

use std::fs::File;
use std::io::{BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::host::SingleDomain;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(serde::Deserialize)]
struct Settings {
    listen: String,
    /// The endpoint's own authority, `s3.test:9000`; names below it are buckets.
    domain: String,
    region: String,
    certificate: PathBuf,
    key: PathBuf,
    directory: PathBuf,
    /// A line of JSON a request.
    log: PathBuf,
    alpn: Vec<String>,
    buckets: Vec<String>,
    access_key: String,
    secret_key: String,
    /// Empty: a key without a token, with which none may be sent.
    session_token: String,
}

struct Origin {
    settings: Settings,
    service: S3Service,
    log: Mutex<File>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let path = std::env::args().nth(1).ok_or("s3-origin SETTINGS.json")?;
    let settings: Settings = serde_json::from_reader(File::open(path)?)?;
    let mut builder = S3ServiceBuilder::new(store::Store::new(&settings.directory, &settings.buckets)?);
    builder.set_auth(SimpleAuth::from_single(
        settings.access_key.as_str(),
        settings.secret_key.as_str(),
    ));
    builder.set_host(SingleDomain::new(&settings.domain)?);
    let acceptor = tls(&settings)?;
    let listener = tokio::net::TcpListener::bind(&settings.listen).await?;
    let log = Mutex::new(File::create(&settings.log)?);
    let origin = Arc::new(Origin {
        service: builder.build(),
        settings,
        log,
    });
    println!("ready");
    std::io::stdout().flush()?;
    // The driver holds our standard input: with it gone, nobody wants this server any more.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, origin) = (acceptor.clone(), Arc::clone(&origin));
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(move |request| answer(Arc::clone(&origin), request));
            let connection = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn tls(settings: &Settings) -> Result<TlsAcceptor, Failure> {
    let certificates = rustls_pemfile::certs(&mut BufReader::new(File::open(&settings.certificate)?))
        .collect::<Result<Vec<_>, _>>()?;
    let key = rustls_pemfile::private_key(&mut BufReader::new(File::open(&settings.key)?))?
        .ok_or("no private key")?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = settings
        .alpn
        .iter()
        .map(|name| name.clone().into_bytes())
        .collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn answer(origin: Arc<Origin>, request: Request<Incoming>) -> Result<Response<Body>, Failure> {
    let mut line = described(&request);
    let broken = seal(
        &origin.settings,
        request.uri().query().unwrap_or_default(),
        request.headers(),
    )
    .err();
    let response = match broken {
        Some((code, message)) => refused(code, message)?,
        None => origin
            .service
            .call(request.map(Body::from))
            .await
            .map_err(Failure::from)?,
    };
    line["status"] = response.status().as_u16().into();
    if let Some((_, message)) = broken {
        line["refused"] = message.into();
    }
    if let Ok(mut log) = origin.log.lock() {
        writeln!(log, "{line}")?;
    }
    Ok(response)
}

fn refused(code: &str, message: &str) -> Result<Response<Body>, Failure> {
    let content = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    let response = Response::builder()
        .status(StatusCode::FORBIDDEN)
        .header("content-type", "application/xml");
    Ok(response.header("connection", "close").body(Body::from(content))?)
}

/// What a request was, for the log: by which means it was signed, never the signature.
fn described(request: &Request<Incoming>) -> serde_json::Value {
    let field = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let query = request.uri().query().unwrap_or_default();
    let signed = match (field("authorization"), query.contains("X-Amz-Signature=")) {
        (Some(value), false) => value.split(' ').next().unwrap_or_default(),
        (None, true) => "presigned",
        (None, false) => "unsigned",
        (Some(_), true) => "both",
    };
    let payload = match field("x-amz-content-sha256") {
        Some(hash) if hash.len() == 64 => "hash",
        Some(other) => other,
        None => "absent",
    };
    serde_json::json!({
        "method": request.method().as_str(),
        "target": request.uri().path(),
        "host": field("host").or(request.uri().host()),
        "version": format!("{:?}", request.version()),
        "signed": signed,
        "payload": payload,
        "trailer": field("x-amz-trailer"),
        "length": field("content-length"),
        "expect": field("expect"),
        "agent": field("user-agent"),
    })
}

type Broken = (&'static str, &'static str);

/// The rules of SigV4 that s3s does not hold by itself.
fn seal(settings: &Settings, query: &str, fields: &HeaderMap) -> Result<(), Broken> {
    let parameter = |name: &str| {
        let value = query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
        urlencoding::decode(value).ok().map(std::borrow::Cow::into_owned)
    };
    let header = fields
        .get(AUTHORIZATION)
        .map(|value| value.to_str().unwrap_or_default());
    let (signed, scope) = match (header, parameter("X-Amz-SignedHeaders")) {
        (None, None) => return Ok(()), // s3s itself refuses what is anonymous
        (Some(_), Some(_)) => return Err(("InvalidArgument", "signed in the header and in the query")),
        (Some(value), None) => {
            let part = |name: &str| {
                value
                    .split([' ', ','])
                    .find_map(|part| part.strip_prefix(name))
                    .unwrap_or_default()
                    .to_owned()
            };
            (part("SignedHeaders="), part("Credential="))
        }
        (None, Some(signed)) => (signed, parameter("X-Amz-Credential").unwrap_or_default()),
    };
    if scope.split('/').nth(2) != Some(&settings.region) {
        return Err(("AuthorizationHeaderMalformed", "the region is wrong"));
    }
    let signed: Vec<&str> = signed.split(';').collect();
    if !signed.contains(&HOST.as_str()) {
        return Err(("AccessDenied", "host is not signed"));
    }
    if fields
        .keys()
        .any(|name| name.as_str().starts_with("x-amz-") && !signed.contains(&name.as_str()))
    {
        return Err((
            "AccessDenied",
            "There were headers present in the request which were not signed",
        ));
    }
    if signed
        .iter()
        .any(|name| *name != "host" && !fields.contains_key(*name))
    {
        return Err(("AccessDenied", "a signed field is not in the request"));
    }
    let token = fields
        .get("x-amz-security-token")
        .map(|value| value.to_str().unwrap_or_default().to_owned());
    if token.or(parameter("X-Amz-Security-Token")).unwrap_or_default() != settings.session_token {
        return Err((
            "InvalidToken",
            "The provided token is malformed or otherwise invalid",
        ));
    }
    Ok(())
}
