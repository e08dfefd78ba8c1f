//! The AWS SDK for Rust: S3, DynamoDB, STS. A line for each operation: `ok NAME`, or `FAIL NAME:
//! why`.

use std::env::var;
use std::error::Error;
use std::fmt::Debug;
use std::process::{Command, ExitCode};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_s3::Client;
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::presigning::{PresignedRequest, PresigningConfig};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart, Delete, ObjectIdentifier,
};
use aws_smithy_http_client::{Builder, Connector, proxy::ProxyConfig, tls};

type Tried = Result<(), Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The SDK's own client with ring; it goes by the environment's proxy where a program says so.
    let http = Builder::new().build_with_connector_fn(|settings, _| {
        let mut connector = Connector::builder()
            .proxy_config(ProxyConfig::from_env())
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring));
        connector.set_connector_settings(settings.cloned());
        connector.build()
    });
    let settings = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .retry_config(RetryConfig::disabled())
        .load()
        .await;
    let config = aws_sdk_s3::config::Builder::from(&settings).force_path_style(true);
    let world = World {
        s3: Client::from_conf(config.clone().build()),
        elsewhere: Client::from_conf(config.region(Region::new("eu-west-1")).build()),
        bucket: told("SIGNING_BUCKET"),
        settings,
    };
    let mut failed = false;
    for name in OPERATIONS {
        let chosen = told("SIGNING_OPERATIONS");
        if !chosen.is_empty() && !chosen.split(',').any(|one| one == name) {
            continue;
        }
        match world.run(name).await {
            Ok(()) => println!("ok {name}"),
            Err(error) => {
                failed = true;
                let mut text = error.to_string();
                let mut source = error.source();
                while let Some(error) = source {
                    text += &format!(": {error}");
                    source = error.source();
                }
                println!(
                    "FAIL {name}: {}",
                    text.split_whitespace().collect::<Vec<_>>().join(" ")
                );
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

const OPERATIONS: [&str; 17] = [
    "put",
    "get",
    "range",
    "head",
    "list",
    "copy",
    "delete",
    "multipart",
    "keys",
    "checksums",
    "virtual host",
    "presigned get",
    "presigned put",
    "dynamodb",
    "sts",
    "service error",
    "refusal",
];

struct World {
    s3: Client,
    /// Signs for another region than the gateway lends its key to.
    elsewhere: Client,
    bucket: String,
    settings: SdkConfig,
}

impl World {
    async fn run(&self, name: &str) -> Tried {
        match name {
            "put" => self.put("put", b"hello".to_vec()).await,
            "get" => self.back("put", b"hello").await,
            "range" => {
                let asked = self.s3.get_object().bucket(&self.bucket).key(key("put"));
                let found = asked.range("bytes=1-3").send().await?;
                same(&found.body.collect().await?.to_vec(), b"ell")
            }
            "head" => {
                let asked = self.s3.head_object().bucket(&self.bucket).key(key("put"));
                same(&asked.send().await?.content_length(), &Some(5))
            }
            "list" => self.list().await,
            "copy" => self.copy().await,
            "delete" => self.delete().await,
            "multipart" => self.multipart().await,
            "keys" => self.keys().await,
            "checksums" => self.checksums().await,
            "virtual host" => {
                let by_host = Client::new(&self.settings);
                let asked = by_host.get_object().bucket(&self.bucket).key(key("put"));
                same(&asked.send().await?.body.collect().await?.to_vec(), b"hello")
            }
            "presigned get" => {
                let asked = self.s3.get_object().bucket(&self.bucket).key(key("put"));
                let signed = asked.presigned(soon()?).await?;
                same(&by_url(&signed, &[])?, b"hello")
            }
            "presigned put" => {
                let asked = self.s3.put_object().bucket(&self.bucket).key(key("by url"));
                by_url(&asked.presigned(soon()?).await?, &["-d", "put by url"])?;
                self.back("by url", b"put by url").await
            }
            "dynamodb" => self.dynamodb().await,
            "sts" => {
                let client = aws_sdk_sts::Client::new(&self.settings);
                let found = client.get_caller_identity().send().await?;
                same(&found.account(), &Some("123456789012"))
            }
            "service error" => {
                let client = aws_sdk_dynamodb::Client::new(&self.settings);
                let told = client.delete_table().table_name("judges").send().await;
                same(
                    &told
                        .err()
                        .and_then(|error| Some(error.code()?.to_owned()))
                        .as_deref(),
                    &Some("ResourceNotFoundException"),
                )
            }
            "refusal" => self.refusal().await,
            _ => Err("unknown".into()),
        }
    }

    async fn put(&self, name: &str, content: Vec<u8>) -> Tried {
        let asked = self.s3.put_object().bucket(&self.bucket).key(key(name));
        asked.body(ByteStream::from(content)).send().await?;
        Ok(())
    }

    async fn back(&self, name: &str, wanted: &[u8]) -> Tried {
        let asked = self.s3.get_object().bucket(&self.bucket).key(key(name));
        same(&asked.send().await?.body.collect().await?.to_vec(), wanted)
    }

    async fn list(&self) -> Tried {
        for name in ["list/a", "list/b/1", "list/b/2"] {
            self.put(name, Vec::new()).await?;
        }
        let asked = self
            .s3
            .list_objects_v2()
            .bucket(&self.bucket)
            .prefix(key("list/"));
        let mut pages = asked.into_paginator().page_size(2).send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            found.extend(
                page?
                    .contents()
                    .iter()
                    .filter_map(|item| Some(item.key()?.to_owned())),
            );
        }
        same(&found, &["list/a", "list/b/1", "list/b/2"].map(key).to_vec())
    }

    async fn copy(&self) -> Tried {
        self.put("from", b"copied".to_vec()).await?;
        let asked = self.s3.copy_object().bucket(&self.bucket).key(key("to"));
        let from = format!("{}/{}", self.bucket, key("from"));
        asked.copy_source(from).send().await?;
        self.back("to", b"copied").await
    }

    async fn delete(&self) -> Tried {
        let asked = self.s3.delete_object().bucket(&self.bucket).key(key("to"));
        asked.send().await?;
        let one = ObjectIdentifier::builder().key(key("from")).build()?;
        let all = Delete::builder().objects(one).build()?;
        self.s3
            .delete_objects()
            .bucket(&self.bucket)
            .delete(all)
            .send()
            .await?;
        match self.back("from", b"").await {
            Ok(()) => Err("what was deleted is there".into()),
            Err(_) => Ok(()),
        }
    }

    async fn multipart(&self) -> Tried {
        let whole: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
        let name = key("large");
        let begun = self
            .s3
            .create_multipart_upload()
            .bucket(&self.bucket)
            .key(&name)
            .send()
            .await?;
        let id = begun.upload_id().ok_or("no upload")?;
        let mut parts = CompletedMultipartUpload::builder();
        for (number, piece) in (1..).zip(whole.chunks(6 << 20)) {
            let asked = self
                .s3
                .upload_part()
                .bucket(&self.bucket)
                .key(&name)
                .upload_id(id);
            let body = ByteStream::from(piece.to_vec());
            let done = asked.part_number(number).body(body).send().await?;
            let part = CompletedPart::builder().part_number(number);
            let part = part.set_e_tag(done.e_tag().map(str::to_owned));
            parts = parts.parts(
                part.set_checksum_crc32(done.checksum_crc32().map(str::to_owned))
                    .build(),
            );
        }
        let asked = self
            .s3
            .complete_multipart_upload()
            .bucket(&self.bucket)
            .key(&name);
        asked.upload_id(id).multipart_upload(parts.build()).send().await?;
        self.back("large", &whole).await
    }

    async fn keys(&self) -> Tried {
        for name in [
            "plain",
            "with space",
            "plus+sign",
            "per%cent",
            "per%20cent",
            "slash%2Fencoded",
            "ünïcode/日本語/😀",
            "a//b",
            "/leading",
            "trailing/",
            "...",
            "semi;colon:at@eq=and&",
            "quote'\"star*()!~$,",
            "[]{}|^`<>#?\\",
        ] {
            self.put(name, name.into()).await?;
            self.back(name, name.as_bytes()).await?;
        }
        Ok(())
    }

    /// A file streams: its checksum follows it as a trailer.
    async fn checksums(&self) -> Tried {
        let file = std::env::temp_dir().join(format!("aws-rust-{}", std::process::id()));
        std::fs::write(&file, [7; 300_000])?;
        for algorithm in ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"] {
            let asked = self.s3.put_object().bucket(&self.bucket).key(key("sum"));
            let asked = asked.checksum_algorithm(ChecksumAlgorithm::from(algorithm));
            asked.body(ByteStream::from_path(&file).await?).send().await?;
            self.back("sum", &[7; 300_000]).await?;
        }
        Ok(std::fs::remove_file(&file)?)
    }

    async fn dynamodb(&self) -> Tried {
        let client = aws_sdk_dynamodb::Client::new(&self.settings);
        let id = AttributeValue::S("rust ü".into());
        client
            .put_item()
            .table_name("judges")
            .item("id", id.clone())
            .send()
            .await?;
        let found = client
            .get_item()
            .table_name("judges")
            .key("id", id.clone())
            .send()
            .await?;
        same(&found.item().and_then(|item| item.get("id")), &Some(&id))
    }

    /// What the gateway refuses by itself, as this SDK tells it; straight at the origin it is no
    /// refusal.
    async fn refusal(&self) -> Tried {
        if var("SIGNING_DIRECT").is_ok() {
            return self.back("put", b"hello").await;
        }
        let told = self.elsewhere.get_object().bucket(&self.bucket).key(key("put"));
        let error = told.send().await.err().ok_or("no error")?;
        let why = error.message().unwrap_or_default().contains("gateway why ");
        same(&(error.code(), why), &(Some("AccessDenied"), true))
    }
}

fn told(name: &str) -> String {
    var(name).unwrap_or_default()
}

fn key(name: &str) -> String {
    format!("{}/{name}", told("SIGNING_CLIENT"))
}

fn soon() -> Result<PresigningConfig, Box<dyn Error>> {
    Ok(PresigningConfig::expires_in(Duration::from_secs(300))?)
}

/// As whoever was given the URL: by curl.
fn by_url(signed: &PresignedRequest, more: &[&str]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut curl = Command::new("curl");
    curl.args([
        "-sSf",
        "--max-time",
        "30",
        "-X",
        signed.method(),
        "-H",
        "content-type:",
    ])
    .args(more);
    for (name, value) in signed.headers() {
        curl.arg("-H").arg(format!("{name}: {value}"));
    }
    let done = curl.arg(signed.uri()).output()?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => Err(String::from_utf8_lossy(&done.stderr).into()),
    }
}

fn same<T: PartialEq<W> + Debug + ?Sized, W: Debug + ?Sized>(found: &T, wanted: &W) -> Tried {
    if found == wanted {
        return Ok(());
    }
    let cut = |text: String| text.chars().take(200).collect::<String>();
    Err(format!(
        "{} instead of {}",
        cut(format!("{found:?}")),
        cut(format!("{wanted:?}"))
    )
    .into())
}
