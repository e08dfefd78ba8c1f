//! AWS Signature Version 4 by hand, for the client that signs with a phantom and for the origin
//! that verifies with the secret: written from the published description, and sharing nothing with
//! the program under test.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::canary::{hex, percent};
use super::origin::Seen;

/// An access key.
#[derive(Clone)]
pub struct Key {
    /// The access key id.
    pub id: String,
    /// The secret key.
    pub secret: String,
    /// The session token.
    pub token: Option<String>,
}

/// A request to be signed; the defaults are usual.
#[derive(Clone)]
pub struct Ask {
    /// The method.
    pub method: &'static str,
    /// The path as in the request line.
    pub path: String,
    /// The query as in the request line, without `?`.
    pub query: String,
    /// Fields besides the host and those of the signature, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
    /// The service.
    pub service: &'static str,
    /// The region.
    pub region: &'static str,
    /// What `x-amz-content-sha256` says; `None` leaves it out and signs the hash.
    pub payload: Option<String>,
    /// Seconds that the client's clock is off.
    pub skew: i64,
    /// Names that are left unsigned.
    pub unsigned: Vec<&'static str>,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            method: "GET",
            path: "/bucket/key".into(),
            query: String::new(),
            fields: Vec::new(),
            body: Vec::new(),
            service: "s3",
            region: "us-east-1",
            payload: Some(hash(b"")),
            skew: 0,
            unsigned: Vec::new(),
        }
    }
}

/// SHA-256 in hexadecimal.
pub fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// HMAC-SHA256.
pub fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// The signature of a string to sign under a scope `day/region/service/aws4_request`.
pub fn signature(secret: &str, scope: &str, text: &str) -> String {
    let mut key = format!("AWS4{secret}").into_bytes();
    for piece in scope.split('/') {
        key = mac(&key, piece);
    }
    hex(&mac(&key, text))
}

/// `20150830T123600Z`, now and this many seconds off.
pub fn stamp(skew: i64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64
        + skew;
    let at = time::OffsetDateTime::from_unix_timestamp(now).unwrap();
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    )
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn canonical_query(query: &str) -> String {
    let decode = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (
                percent(&decode(name), unreserved),
                percent(&decode(value), unreserved),
            )
        })
        .filter(|(name, _)| name != "X-Amz-Signature")
        .collect();
    pairs.sort();
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

fn canonical_path(path: &str, service: &str) -> String {
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(path).collect();
    let kept = |byte: u8| unreserved(byte) || byte == b'/';
    let once = percent(&decoded, kept);
    if service == "s3" {
        once
    } else {
        percent(once.as_bytes(), kept)
    }
}

/// The canonical request; `fields` are looked up by name.
pub fn canonical(
    method: &str,
    (path, query): (&str, &str),
    service: &str,
    signed: &[&str],
    field: impl Fn(&str) -> String,
    payload: &str,
) -> String {
    let fields: String = signed
        .iter()
        .map(|name| {
            let value = field(name);
            let value: Vec<&str> = value.split(' ').filter(|word| !word.is_empty()).collect();
            format!("{name}:{}\n", value.join(" "))
        })
        .collect();
    format!(
        "{method}\n{}\n{}\n{fields}\n{}\n{payload}",
        canonical_path(path, service),
        canonical_query(query),
        signed.join(";")
    )
}

impl Ask {
    /// The request to a host, signed with a key; `before` precedes the path.
    pub fn write(&self, host: &str, key: &Key, before: &str) -> Vec<u8> {
        self.write_with_seed(host, key, before).0
    }

    /// The same, with the signature, the time and the scope that chunks continue.
    pub fn write_with_seed(&self, host: &str, key: &Key, before: &str) -> (Vec<u8>, Seed) {
        let at = stamp(self.skew);
        let scope = format!("{}/{}/{}/aws4_request", &at[..8], self.region, self.service);
        let mut fields = self.fields.clone();
        fields.push(("host".into(), host.into()));
        fields.push(("x-amz-date".into(), at.clone()));
        if let Some(payload) = &self.payload {
            fields.push(("x-amz-content-sha256".into(), payload.clone()));
        }
        if let Some(token) = &key.token {
            fields.push(("x-amz-security-token".into(), token.clone()));
        }
        let mut signed: Vec<&str> = fields
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !self.unsigned.contains(name))
            .collect();
        signed.sort_unstable();
        let payload = self.payload.clone().unwrap_or_else(|| hash(&self.body));
        let value = |name: &str| {
            let found = fields.iter().find(|(known, _)| known == name);
            found.map_or_else(String::new, |(_, value)| value.clone())
        };
        let target = (self.path.as_str(), self.query.as_str());
        let text = canonical(self.method, target, self.service, &signed, value, &payload);
        let to_sign = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{}", hash(text.as_bytes()));
        let signature = signature(&key.secret, &scope, &to_sign);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={}, Signature={signature}",
            key.id,
            signed.join(";")
        );
        fields.push(("authorization".into(), authorization));
        if !self.body.is_empty() {
            fields.push(("content-length".into(), self.body.len().to_string()));
        }
        let query = if self.query.is_empty() {
            String::new()
        } else {
            format!("?{}", self.query)
        };
        let mut out = format!("{} {before}{}{query} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &fields {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        out.push_str("\r\n");
        let seed = Seed {
            signature,
            at,
            scope,
        };
        ([out.as_bytes(), &self.body].concat(), seed)
    }

    /// A presigned target: path and query.
    pub fn presign(&self, host: &str, key: &Key, expires: u32) -> String {
        let at = stamp(self.skew);
        let scope = format!("{}/{}/{}/aws4_request", &at[..8], self.region, self.service);
        let mut query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={at}&X-Amz-Expires={expires}&X-Amz-SignedHeaders=host",
            percent(format!("{}/{scope}", key.id).as_bytes(), unreserved)
        );
        if let Some(token) = &key.token {
            query.push_str(&format!(
                "&X-Amz-Security-Token={}",
                percent(token.as_bytes(), unreserved)
            ));
        }
        if !self.query.is_empty() {
            query = format!("{}&{query}", self.query);
        }
        let text = canonical(
            self.method,
            (&self.path, &query),
            self.service,
            &["host"],
            |_| host.to_owned(),
            "UNSIGNED-PAYLOAD",
        );
        let to_sign = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{}", hash(text.as_bytes()));
        let signature = signature(&key.secret, &scope, &to_sign);
        format!("{}?{query}&X-Amz-Signature={signature}", self.path)
    }
}

/// What the signatures of chunks continue.
pub struct Seed {
    /// The previous signature.
    pub signature: String,
    /// The time.
    pub at: String,
    /// The scope.
    pub scope: String,
}

/// aws-chunked content: chunks with their signatures, the last one empty.
pub fn chunks(pieces: &[&[u8]], secret: &str, mut seed: Seed) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces.iter().copied().chain([&b""[..]]) {
        let text = format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{}\n{}\n{}",
            seed.at,
            seed.scope,
            seed.signature,
            hash(b""),
            hash(piece)
        );
        seed.signature = signature(secret, &seed.scope, &text);
        out.extend(format!("{:x};chunk-signature={}\r\n", piece.len(), seed.signature).bytes());
        out.extend(piece);
        out.extend(b"\r\n");
    }
    out
}

/// Verifies what an origin received with the real key, as a service does.
///
/// # Errors
/// What is wrong.
pub fn judge(seen: &Seen, key: &Key) -> Result<Judged, String> {
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    let presigned = query.contains("X-Amz-Signature=");
    let parameter = |name: &str| {
        let found = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(known, _)| *known == name);
        found.map(|(_, value)| {
            percent_encoding::percent_decode_str(value)
                .decode_utf8_lossy()
                .into_owned()
        })
    };
    let once = |name: &str| match seen.all(name)[..] {
        [one] => Ok(one.to_owned()),
        _ => Err(format!("`{name}` stands {} times", seen.all(name).len())),
    };
    let (credential, signed, given, at) = if presigned {
        let take = |name: &str| parameter(name).ok_or_else(|| format!("no {name}"));
        (
            take("X-Amz-Credential")?,
            take("X-Amz-SignedHeaders")?,
            take("X-Amz-Signature")?,
            take("X-Amz-Date")?,
        )
    } else {
        let text = once("authorization")?;
        let take = |name: &str| {
            let rest = text
                .split(name)
                .nth(1)
                .ok_or_else(|| format!("no {name}"))?;
            Ok::<_, String>(rest.split([',', ' ']).next().unwrap_or_default().to_owned())
        };
        (
            take("Credential=")?,
            take("SignedHeaders=")?,
            take("Signature=")?,
            once("x-amz-date")?,
        )
    };
    let (id, scope) = credential.split_once('/').ok_or("no scope")?;
    if id != key.id {
        return Err(format!("another access key: {id}"));
    }
    let token = match presigned {
        true => parameter("X-Amz-Security-Token"),
        false => seen
            .all("x-amz-security-token")
            .first()
            .map(|token| (*token).to_owned()),
    };
    if token != key.token {
        return Err("another session token".into());
    }
    let names: Vec<&str> = signed.split(';').collect();
    for (name, _) in &seen.fields {
        if (name == "host" || name.starts_with("x-amz-")) && !names.contains(&name.as_str()) {
            return Err(format!("`{name}` is not signed"));
        }
    }
    let service = scope.split('/').nth(2).ok_or("no service")?;
    let said = seen
        .all("x-amz-content-sha256")
        .first()
        .map(|said| (*said).to_owned());
    let payload = match said {
        Some(said) => said,
        None if presigned => "UNSIGNED-PAYLOAD".into(),
        None => hash(&seen.body),
    };
    if payload.len() == 64 && payload != hash(&seen.body) {
        return Err("the content has another hash".into());
    }
    let field = |name: &str| match name {
        "host" => seen.host.clone(),
        name => seen.all(name).join(","),
    };
    let text = canonical(
        &seen.method,
        (path, query),
        service,
        &names,
        field,
        &payload,
    );
    let to_sign = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{}", hash(text.as_bytes()));
    if signature(&key.secret, scope, &to_sign) != given {
        return Err(format!("the signature does not match:\n{text}\n{to_sign}"));
    }
    let body = if payload.starts_with("STREAMING-AWS4-HMAC-SHA256-PAYLOAD") {
        let seed = Seed {
            signature: given,
            at,
            scope: scope.to_owned(),
        };
        unchunk(&seen.body, &key.secret, seed)?
    } else {
        seen.body.clone()
    };
    let expires = parameter("X-Amz-Expires").and_then(|text| text.parse().ok());
    Ok(Judged {
        body,
        signed: names.iter().map(|name| (*name).to_owned()).collect(),
        expires,
    })
}

/// A verified request.
#[derive(Debug)]
pub struct Judged {
    /// The content, out of its chunks.
    pub body: Vec<u8>,
    /// The names of the signed fields.
    pub signed: Vec<String>,
    /// The lifetime of a presigned request, in seconds.
    pub expires: Option<u32>,
}

fn unchunk(mut body: &[u8], secret: &str, mut seed: Seed) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    loop {
        let end = memchr::memmem::find(body, b"\r\n").ok_or("no line")?;
        let line = std::str::from_utf8(&body[..end]).map_err(|_| "no text")?;
        let (size, given) = line
            .split_once(";chunk-signature=")
            .ok_or("no chunk signature")?;
        let size = usize::from_str_radix(size, 16).map_err(|_| "no size")?;
        let data = body.get(end + 2..end + 2 + size).ok_or("a short chunk")?;
        let text = format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{}\n{}\n{}",
            seed.at,
            seed.scope,
            seed.signature,
            hash(b""),
            hash(data)
        );
        seed.signature = signature(secret, &seed.scope, &text);
        if seed.signature != given {
            return Err(format!(
                "the signature of the chunk at {} does not match",
                out.len()
            ));
        }
        out.extend_from_slice(data);
        body = &body[end + 2 + size + 2..];
        if size == 0 {
            return match body {
                [] => Ok(out),
                _ => Err("something follows".into()),
            };
        }
    }
}
