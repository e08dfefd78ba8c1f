//! Chooses the format of an error response: by host, then by what the request says of its client.

use gateway_message::EncodedSlash;
use http::HeaderMap;

use super::aws::AwsProtocol;
use super::details::FailedRequest;
use super::format::ErrorFormat;

impl ErrorFormat {
    /// Chooses the format for a request. `signed_paths` is how its origin reads the path of a
    /// signed request, if a credential signs for it.
    pub(crate) fn of(signed_paths: Option<EncodedSlash>, asked: &FailedRequest<'_>) -> Self {
        if let Some(paths) = signed_paths {
            return Self::Aws(AwsProtocol::of(paths == EncodedSlash::Key, asked));
        }
        let client = ClientFields::read(asked.fields);
        grpc(&client)
            .or_else(|| is_git(asked, &client).then_some(Self::Text))
            .or_else(|| of_host(asked))
            .or_else(|| of_interface(asked, &client))
            .or_else(|| of_client(&client))
            .unwrap_or_default()
    }
}

/// The fields that tell clients apart.
#[derive(Default)]
struct ClientFields<'a> {
    kind: &'a [u8],
    accept: &'a [u8],
    agent: &'a [u8],
    /// The format that a field set by the service's own libraries implies.
    library: Option<ErrorFormat>,
}

impl<'a> ClientFields<'a> {
    /// Reads the fields once: this is done for every request.
    fn read(fields: &'a HeaderMap) -> Self {
        let mut read = Self::default();
        for (name, value) in fields {
            let value = value.as_bytes();
            match name.as_str() {
                "content-type" => read.kind = value,
                "accept" => read.accept = value,
                "user-agent" => read.agent = value,
                "anthropic-version" => read.library = Some(ErrorFormat::Anthropic),
                "x-goog-api-client" | "x-goog-api-key" => read.library = Some(ErrorFormat::Google),
                "x-stainless-lang" if read.library.is_none() => {
                    read.library = Some(ErrorFormat::OpenAi);
                }
                _ => {}
            }
        }
        read
    }
}

/// Whether a value begins with a word, ignoring case.
fn begins(value: &[u8], word: &[u8]) -> bool {
    let begin = value.get(..word.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(word))
}

/// gRPC over HTTP/2: `application/grpc`, alone or with `+proto` and the like.
fn grpc(client: &ClientFields<'_>) -> Option<ErrorFormat> {
    let is_web = begins(client.kind, b"application/grpc-web");
    match begins(client.kind, b"application/grpc") {
        true if is_web => Some(ErrorFormat::Grpc("application/grpc-web+proto")),
        true => Some(ErrorFormat::Grpc("application/grpc")),
        false => None,
    }
}

/// git's own protocol. Git LFS has another one, in JSON.
fn is_git(asked: &FailedRequest<'_>, client: &ClientFields<'_>) -> bool {
    asked.path.ends_with("/info/refs") && asked.has_parameter("service")
        || begins(client.kind, b"application/x-git-")
}

/// Chooses by the hosts of known services.
fn of_host(asked: &FailedRequest<'_>) -> Option<ErrorFormat> {
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

/// Chooses by the interfaces that many hosts have, each with a field or a path of its own.
fn of_interface(asked: &FailedRequest<'_>, client: &ClientFields<'_>) -> Option<ErrorFormat> {
    let path = asked.path;
    let ends = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
    let lfs = |value| begins(value, b"application/vnd.git-lfs");
    match () {
        () if client.library.is_some() => client.library,
        () if ends(&["/chat/completions", "/responses", "/embeddings"]) => {
            Some(ErrorFormat::OpenAi)
        }
        () if ends(&["/graphql"]) || begins(client.kind, b"application/graphql") => {
            Some(ErrorFormat::GraphQl)
        }
        () if lfs(client.accept) || lfs(client.kind) => Some(ErrorFormat::GitHub),
        () if path == "/v2/" || path.starts_with("/v2/") && is_of_containers(client) => {
            Some(ErrorFormat::Oci)
        }
        // A proxy of Go modules: `go` shows a text. Few paths have an `@`, which is found faster.
        () if path.contains('@') && (path.contains("/@v/") || path.ends_with("/@latest")) => {
            Some(ErrorFormat::Text)
        }
        () => None,
    }
}

fn is_of_containers(client: &ClientFields<'_>) -> bool {
    let known: [&[u8]; 6] = [
        b"docker/",
        b"containers/",
        b"containerd/",
        b"buildah/",
        b"skopeo/",
        b"podman/",
    ];
    known.iter().any(|name| begins(client.agent, name))
}

/// Chooses by clients that show one format alone, and by browsers.
fn of_client(client: &ClientFields<'_>) -> Option<ErrorFormat> {
    let is = |names: &[&[u8]]| names.iter().any(|name| begins(client.agent, name));
    if is(&[b"npm/", b"pnpm/", b"yarn/", b"bun/"]) {
        return Some(ErrorFormat::Npm);
    }
    let is_page = begins(client.accept, b"text/html");
    (is_page || is(&[b"cargo"])).then_some(ErrorFormat::Text)
}

/// Hosts whose clients expect errors in one format. `*` stands for any prefix.
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
    use http::{HeaderName, HeaderValue, Method};

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
        let asked = FailedRequest {
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
