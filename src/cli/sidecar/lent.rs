//! The environment of a sidecar's command: the proxy, the CA, phantoms. The gateway returns it to
//! its caller.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::uplink::Uplink;
use crate::app::client_environment::{proxy_variables, variables, write_trust};
use crate::intercept::GATEWAY_NAME;
use crate::names::hex;
use crate::server::{ClientEnvironment, ClientProxy};

/// The variables of the command, and the folder with its CA, which is removed on drop.
pub(super) struct LentVariables {
    pub(super) variables: BTreeMap<String, String>,
    folder: Option<PathBuf>,
}

impl Drop for LentVariables {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl LentVariables {
    /// Asks the gateway for the environment of a command with the proxy here. If that fails,
    /// returns the proxy's variables alone, and the reason.
    pub(super) async fn ask(way: &Uplink, at: SocketAddr) -> (Self, Option<String>) {
        let mut lent = Self {
            variables: proxy_variables(&at.to_string(), false).collect(),
            folder: None,
        };
        let told = timeout(ANSWERED_WITHIN, needs(way)).await;
        let made = match told.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
            Ok(needs) => lent.add(needs, at).map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        (lent, made.err())
    }

    fn add(&mut self, needs: ClientEnvironment, at: SocketAddr) -> std::io::Result<()> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let folder = std::env::temp_dir().join(format!("gateway-{}", hex(&random)));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let folder = self.folder.insert(folder);
        let mut files = write_trust(folder, folder, &needs.certificate)?;
        // Java prints that it read its variable, so this is set only for an installed Java.
        files.java = files.java.filter(|_| is_found("java"));
        let proxy = ClientProxy {
            is_in_tls: false,
            at: Some(at.to_string()),
            user: None,
        };
        let proxy = Some(proxy);
        self.variables = variables(&ClientEnvironment { proxy, ..needs }, &files);
        Ok(())
    }
}

/// Returns the environment on the gateway's own page for this caller.
async fn needs(way: &Uplink) -> Result<ClientEnvironment, String> {
    let opened = way.open(&[]).await.ok_or("there is no way to it")?;
    let unread = |error: &dyn std::error::Error| error.to_string();
    let shaken = handshake(TokioIo::new(opened)).await;
    let (mut requests, connection) = shaken.map_err(|error| unread(&error))?;
    let serving = tokio::task::spawn_local(connection);
    let asked = Request::get(format!("http://{GATEWAY_NAME}/env"))
        .header(HOST, GATEWAY_NAME)
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new());
    let asked = asked.map_err(|error| unread(&error))?;
    let answer = requests.send_request(asked).await;
    let answer = answer.map_err(|error| unread(&error))?;
    let status = answer.status();
    let content = Limited::new(answer.into_body(), MOST_CONTENT)
        .collect()
        .await;
    serving.abort();
    match status {
        StatusCode::OK => {
            let content = content.map_err(|error| error.to_string())?.to_bytes();
            serde_json::from_slice(&content).map_err(|error| unread(&error))
        }
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            Err("it asks for what the command itself presents (407)".to_owned())
        }
        status => Err(format!("it answers {status}")),
    }
}

/// Whether a program of this name is found.
fn is_found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
const MOST_CONTENT: usize = 4 << 20;
