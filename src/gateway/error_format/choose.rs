//! Chooses the format of an error answer: by the host, then by what the request says of its client.

use super::{Asked, AwsProtocol, ErrorFormat};
use crate::message::EncodedSlash;

impl ErrorFormat {
    /// Chooses the format for a request. `signed_paths` is how its origin reads the path of a signed
    /// request, if a credential signs for it.
    pub(in crate::gateway) fn of(signed_paths: Option<EncodedSlash>, asked: &Asked<'_>) -> Self {
        if let Some(paths) = signed_paths {
            return Self::Aws(AwsProtocol::of(paths == EncodedSlash::Key, asked));
        }
        grpc(asked)
            .or_else(|| is_git(asked).then_some(Self::Text))
            .or_else(|| of_host(asked))
            .or_else(|| of_interface(asked))
            .or_else(|| of_client(asked))
            .unwrap_or_default()
    }
}

/// gRPC over HTTP/2: `application/grpc`, alone or with `+proto` and the like.
fn grpc(asked: &Asked<'_>) -> Option<ErrorFormat> {
    let kind = asked.field("content-type");
    let is_web = kind.starts_with(b"application/grpc-web");
    match kind.starts_with(b"application/grpc") {
        true if is_web => Some(ErrorFormat::Grpc("application/grpc-web+proto")),
        true => Some(ErrorFormat::Grpc("application/grpc")),
        false => None,
    }
}

/// git's own protocol. Git LFS has another one, in JSON.
fn is_git(asked: &Asked<'_>) -> bool {
    asked.path.ends_with("/info/refs") && asked.has_parameter("service")
        || asked
            .field("content-type")
            .starts_with(b"application/x-git-")
}

/// The services that are known by their hosts.
fn of_host(asked: &Asked<'_>) -> Option<ErrorFormat> {
    let host = asked.host;
    if host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn") {
        let objects = host
            .split('.')
            .any(|label| label == "s3" || label.starts_with("s3-"));
        let control = host.contains("s3-control");
        return Some(ErrorFormat::Aws(AwsProtocol::of(
            objects && !control,
            asked,
        )));
    }
    if host == "api.github.com" && asked.path == "/graphql" {
        return Some(ErrorFormat::GraphQl);
    }
    let known = HOSTS.iter().find(|(name, _)| match name.strip_prefix('*') {
        Some(below) => host.ends_with(below),
        None => host == *name,
    });
    known.map(|(_, format)| *format)
}

/// The interfaces that many hosts have, by a field or a path of their own.
fn of_interface(asked: &Asked<'_>) -> Option<ErrorFormat> {
    let path = asked.path;
    let ends = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
    let has = |name: &str| asked.fields.contains_key(name);
    let kind = asked.field("content-type");
    let lfs = |value: Vec<u8>| value.starts_with(b"application/vnd.git-lfs");
    match () {
        () if has("anthropic-version") => Some(ErrorFormat::Anthropic),
        () if has("x-goog-api-client") || has("x-goog-api-key") => Some(ErrorFormat::Google),
        () if has("x-stainless-lang") => Some(ErrorFormat::OpenAi),
        () if ends(&["/chat/completions", "/responses", "/embeddings"]) => {
            Some(ErrorFormat::OpenAi)
        }
        () if ends(&["/graphql"]) || kind.starts_with(b"application/graphql") => {
            Some(ErrorFormat::GraphQl)
        }
        () if lfs(asked.field("accept")) || lfs(kind) => Some(ErrorFormat::GitHub),
        () if path == "/v2/" || path.starts_with("/v2/") && is_of_containers(asked) => {
            Some(ErrorFormat::Oci)
        }
        // A proxy of Go modules: `go` shows a text.
        () if path.contains("/@v/") || path.ends_with("/@latest") => Some(ErrorFormat::Text),
        () => None,
    }
}

fn is_of_containers(asked: &Asked<'_>) -> bool {
    let agent = asked.field("user-agent");
    let known: [&[u8]; 6] = [
        b"docker/",
        b"containers/",
        b"containerd/",
        b"buildah/",
        b"skopeo/",
        b"podman/",
    ];
    known.iter().any(|name| agent.starts_with(name))
}

/// Clients that show one format alone, and browsers.
fn of_client(asked: &Asked<'_>) -> Option<ErrorFormat> {
    let agent = asked.field("user-agent");
    let is = |names: &[&[u8]]| names.iter().any(|name| agent.starts_with(name));
    if is(&[b"npm/", b"pnpm/", b"yarn/", b"bun/"]) {
        return Some(ErrorFormat::Npm);
    }
    let is_page = asked.field("accept").starts_with(b"text/html");
    (is_page || is(&[b"cargo"])).then_some(ErrorFormat::Text)
}

/// Hosts of services whose clients show an error of one form. `*` stands for what is before.
const HOSTS: [(&str, ErrorFormat); 10] = [
    ("api.openai.com", ErrorFormat::OpenAi),
    ("*.openai.azure.com", ErrorFormat::OpenAi),
    ("api.anthropic.com", ErrorFormat::Anthropic),
    ("*.googleapis.com", ErrorFormat::Google),
    ("api.github.com", ErrorFormat::GitHub),
    ("uploads.github.com", ErrorFormat::GitHub),
    ("api.stripe.com", ErrorFormat::Stripe),
    ("files.stripe.com", ErrorFormat::Stripe),
    ("registry.npmjs.org", ErrorFormat::Npm),
    ("registry-1.docker.io", ErrorFormat::Oci),
];

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, Method};

    use super::*;

    fn of(host: &str, target: &str, fields: &[(&'static str, &'static str)]) -> ErrorFormat {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = fields.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let fields: HeaderMap = pairs.collect();
        let asked = Asked {
            method: &Method::GET,
            host,
            path,
            query,
            fields: &fields,
        };
        ErrorFormat::of(None, &asked)
    }

    #[test]
    fn each_client_gets_the_form_that_it_shows() {
        for (host, target, fields, format) in [
            ("x.test", "/", &[][..], ErrorFormat::Gateway),
            ("api.openai.com", "/v1/models", &[], ErrorFormat::OpenAi),
            ("llm.test", "/v1/chat/completions", &[], ErrorFormat::OpenAi),
            (
                "llm.test",
                "/v1/messages",
                &[("anthropic-version", "2023-06-01")],
                ErrorFormat::Anthropic,
            ),
            ("storage.googleapis.com", "/b", &[], ErrorFormat::Google),
            ("googleapis.com.evil.test", "/b", &[], ErrorFormat::Gateway),
            ("api.github.com", "/user", &[], ErrorFormat::GitHub),
            ("api.github.com", "/graphql", &[], ErrorFormat::GraphQl),
            ("api.stripe.com", "/v1/charges", &[], ErrorFormat::Stripe),
            (
                "github.com",
                "/a/b.git/info/refs?service=git-upload-pack",
                &[],
                ErrorFormat::Text,
            ),
            (
                "github.com",
                "/a/b.git/info/refs",
                &[],
                ErrorFormat::Gateway,
            ),
            ("r.test", "/v2/", &[], ErrorFormat::Oci),
            ("r.test", "/v2/users", &[], ErrorFormat::Gateway),
            (
                "n.test",
                "/left-pad",
                &[("user-agent", "npm/10.2 node/v20")],
                ErrorFormat::Npm,
            ),
            ("p.test", "/example.com/m/@v/list", &[], ErrorFormat::Text),
            (
                "w.test",
                "/",
                &[("accept", "text/html,*/*")],
                ErrorFormat::Text,
            ),
            (
                "g.test",
                "/pkg.Service/Method",
                &[("content-type", "application/grpc+proto")],
                ErrorFormat::Grpc("application/grpc"),
            ),
            (
                "bucket.s3.eu-central-1.amazonaws.com",
                "/k",
                &[],
                ErrorFormat::Aws(AwsProtocol::S3),
            ),
            (
                "dynamodb.eu-central-1.amazonaws.com",
                "/",
                &[("x-amz-target", "DynamoDB_20120810.GetItem")],
                ErrorFormat::Aws(AwsProtocol::Json),
            ),
        ] {
            assert_eq!(of(host, target, fields), format, "{host}{target}");
        }
    }
}
