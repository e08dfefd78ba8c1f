//! An origin inside the gateway process, for `demo` and `doctor`: real TLS on loopback, with its
//! own CA.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::app::reload::source::RunMode;
use crate::app::settings::resolve::ResolvedConfig;
use crate::app::settings::shell_secrets::ShellLoans;
use crate::app::{App, Code, Failure};
use crate::cli::exec::gateway_process;
use crate::cli::log;
use crate::config::Config;
use crate::launch::enroll::GatewayEnd;
use crate::message::{Host, HostPattern, OriginPattern, Scheme};
use crate::origin::OriginRule;

/// Answers a request by its head.
pub type Handler = Arc<dyn Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync>;

/// A running origin.
pub struct Embedded {
    address: SocketAddr,
    root: CertificateDer<'static>,
    host: Host,
}

impl Embedded {
    /// Serves `host` on loopback until the current runtime ends.
    ///
    /// # Errors
    /// Returns a [`Failure`] if no port or key is available.
    pub async fn serve(host: &str, answer: Handler) -> Result<Self, Failure> {
        let failed =
            |why: String| Failure::new("the embedded origin cannot be started").because(why);
        let (config, root) = certified(host).map_err(|error| failed(error.to_string()))?;
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .map_err(|error| failed(error.to_string()))?;
        let address = listener
            .local_addr()
            .map_err(|error| failed(error.to_string()))?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, acceptor.clone(), answer.clone()));
            }
        });
        let host = Host::parse(host.as_bytes()).map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            address,
            root,
            host,
        })
    }

    /// Returns the rule to reach and verify this origin. It is the same as for any origin with a
    /// private root.
    pub fn rule(&self) -> OriginRule {
        let matches = OriginPattern {
            scheme: Scheme::Https,
            hosts: HostPattern::Exact(self.host.clone()),
            port: Scheme::Https.default_port(),
        };
        OriginRule {
            roots: vec![self.root.clone()],
            replace_system_roots: true,
            connect: Some(self.address),
            ..OriginRule::of(matches)
        }
    }
}

/// Serves the sandbox of one of this program's own runs, with the text of its configuration: the
/// gateway process, together with an origin.
///
/// # Errors
/// Returns a [`Failure`] that was already sent to the launcher.
pub fn serve_sandbox(
    runtime: &Runtime,
    gateway: GatewayEnd,
    run: &str,
    configuration: &str,
    origin: Option<(&str, Handler)>,
) -> Result<Code, Failure> {
    let rules = runtime.block_on(async {
        let (host, answer) = origin?;
        Some(
            Embedded::serve(host, answer)
                .await
                .map(|origin| origin.rule()),
        )
    });
    let config = Config::from_str(configuration, Path::new(run)).map_err(Failure::from);
    let config = config.and_then(|config| Ok((config, rules.transpose()?)));
    serve_configured(runtime, gateway, run, config)
}

/// Serves the same with a configuration, and a rule for an origin.
///
/// # Errors
/// As [`serve_sandbox`].
pub fn serve_configured(
    runtime: &Runtime,
    gateway: GatewayEnd,
    run: &str,
    config: Result<(Config, Option<OriginRule>), Failure>,
) -> Result<Code, Failure> {
    let app = runtime.block_on(async {
        let (config, rule) = config?;
        let resolved = ResolvedConfig::of(&config, &ShellLoans::default())?;
        let rules = rule.into_iter().collect();
        let app = App::new(config, resolved, RunMode::Exec, rules)?;
        log::begin(&app.shared.log, run);
        Ok::<_, Failure>(app)
    });
    gateway_process::serve_on(runtime, gateway, app, |_| (), None)
}

fn certified(
    host: &str,
) -> Result<(ServerConfig, CertificateDer<'static>), Box<dyn std::error::Error>> {
    let mut root = CertificateParams::new(Vec::new())?;
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let issuer = CertifiedIssuer::self_signed(root, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &issuer)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der())?,
        )?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, issuer.der().clone()))
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, answer: Handler) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = if http2 {
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await
    } else {
        hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the embedded origin ended");
    }
}
