//! Objects in files, their names in memory: any key is a key, also `a//b`, `../x` and what no file
//! system takes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, TrailingHeaders, s3_error};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

/// How much is read from or written to a file at once.
const PIECE: usize = 256 << 10;

/// A file that goes when nobody has it.
struct Segment {
    path: PathBuf,
    size: u64,
}

impl Drop for Segment {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// An object is the files of its parts, which a copy shares.
#[derive(Clone)]
struct Object {
    segments: Vec<Arc<Segment>>,
    etag: String,
    modified: SystemTime,
    content_type: Option<String>,
    content_encoding: Option<String>,
    metadata: Option<Metadata>,
    checksum: Checksum,
}

impl Object {
    fn size(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }
}

struct Upload {
    bucket: String,
    key: String,
    object: Object,
    parts: BTreeMap<i32, (Arc<Segment>, [u8; 16])>,
}

#[derive(Default)]
struct State {
    buckets: BTreeMap<String, BTreeMap<String, Object>>,
    uploads: BTreeMap<String, Upload>,
}

impl State {
    fn bucket(&mut self, name: &str) -> S3Result<&mut BTreeMap<String, Object>> {
        self.buckets.get_mut(name).ok_or_else(|| s3_error!(NoSuchBucket))
    }

    fn object(&mut self, bucket: &str, key: &str) -> S3Result<Object> {
        self.bucket(bucket)?
            .get(key)
            .cloned()
            .ok_or_else(|| s3_error!(NoSuchKey))
    }

    fn upload(&mut self, id: &str, bucket: &str, key: &str) -> S3Result<&mut Upload> {
        let upload = self
            .uploads
            .get_mut(id)
            .filter(|upload| upload.bucket == bucket && upload.key == key);
        upload.ok_or_else(|| s3_error!(NoSuchUpload))
    }
}

pub(crate) struct Store {
    directory: PathBuf,
    next: AtomicU64,
    state: Mutex<State>,
}

/// What content must be besides signed: the digests that the request announced, in its head or in
/// its trailer.
#[derive(Default)]
struct Announced {
    md5: Option<String>,
    checksum: Checksum,
    trailers: Option<TrailingHeaders>,
}

impl Store {
    pub(crate) fn new(directory: &Path, buckets: &[String]) -> std::io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let buckets = buckets
            .iter()
            .map(|name| (name.clone(), BTreeMap::new()))
            .collect();
        let state = Mutex::new(State {
            buckets,
            ..State::default()
        });
        Ok(Self {
            directory: directory.to_owned(),
            next: AtomicU64::new(0),
            state,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Content into a file; nothing of it stays when its signature, its length or a digest is
    /// wrong.
    async fn receive(
        &self,
        body: Option<StreamingBlob>,
        announced: Announced,
    ) -> S3Result<(Segment, [u8; 16], Checksum)> {
        let path = self
            .directory
            .join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        let mut segment = Segment { path, size: 0 };
        let mut file = tokio::fs::File::create(&segment.path).await.map_err(internal)?;
        file.set_max_buf_size(PIECE);
        let (mut md5, mut hasher) = (Md5::new(), hasher(&announced));
        let mut body = body.ok_or_else(|| s3_error!(IncompleteBody))?;
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| s3_error!(SignatureDoesNotMatch, "{error}"))?;
            md5.update(&piece);
            hasher.update(&piece);
            segment.size += piece.len() as u64;
            file.write_all(&piece).await.map_err(internal)?;
        }
        file.flush().await.map_err(internal)?;
        let (md5, checksum) = (md5.finalize(), hasher.finalize());
        let mut wanted = announced.checksum;
        if let Some(trailers) = announced.trailers.and_then(|trailers| trailers.take()) {
            let of = |name: &str| {
                trailers
                    .get(name)
                    .and_then(|value| value.to_str().ok())
                    .map(str::to_owned)
            };
            wanted.checksum_crc32 = of("x-amz-checksum-crc32").or(wanted.checksum_crc32);
            wanted.checksum_crc32c = of("x-amz-checksum-crc32c").or(wanted.checksum_crc32c);
            wanted.checksum_crc64nvme = of("x-amz-checksum-crc64nvme").or(wanted.checksum_crc64nvme);
            wanted.checksum_sha1 = of("x-amz-checksum-sha1").or(wanted.checksum_sha1);
            wanted.checksum_sha256 = of("x-amz-checksum-sha256").or(wanted.checksum_sha256);
        }
        if announced.md5.is_some_and(|wanted| wanted != base64(&md5)) || !as_announced(&wanted, &checksum) {
            return Err(s3_error!(
                BadDigest,
                "a digest that the request announced is not that of its content"
            ));
        }
        Ok((segment, md5, wanted))
    }
}

/// Every digest is computed: which of them a trailer will name is known only at its end.
fn hasher(announced: &Announced) -> ChecksumHasher {
    let wanted = &announced.checksum;
    let trailed = announced.trailers.is_some();
    ChecksumHasher {
        crc32: (trailed || wanted.checksum_crc32.is_some()).then(Default::default),
        crc32c: (trailed || wanted.checksum_crc32c.is_some()).then(Default::default),
        crc64nvme: (trailed || wanted.checksum_crc64nvme.is_some()).then(Default::default),
        sha1: (trailed || wanted.checksum_sha1.is_some()).then(Default::default),
        sha256: (trailed || wanted.checksum_sha256.is_some()).then(Default::default),
    }
}

fn as_announced(wanted: &Checksum, found: &Checksum) -> bool {
    let same = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
    same(&wanted.checksum_crc32, &found.checksum_crc32)
        && same(&wanted.checksum_crc32c, &found.checksum_crc32c)
        && same(&wanted.checksum_crc64nvme, &found.checksum_crc64nvme)
        && same(&wanted.checksum_sha1, &found.checksum_sha1)
        && same(&wanted.checksum_sha256, &found.checksum_sha256)
}

fn internal(error: std::io::Error) -> S3Error {
    s3_error!(error, InternalError)
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word =
            three.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * at) & 63) as usize] as char;
            text.push(if at <= three.len() { digit } else { '=' });
        }
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of `range`, piece by piece from the files that have them.
fn read(
    segments: Vec<Arc<Segment>>,
    range: std::ops::Range<u64>,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    let mut begin = 0;
    let mut wanted = Vec::new();
    for segment in segments {
        let end = begin + segment.size;
        let (from, to) = (range.start.max(begin), range.end.min(end));
        if from < to {
            wanted.push((segment, from - begin, to - from));
        }
        begin = end;
    }
    stream::iter(wanted).flat_map(|(segment, from, left)| {
        stream::try_unfold((segment, None, left), move |(segment, file, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            let mut file = match file {
                Some(file) => file,
                None => {
                    let mut file = tokio::fs::File::open(&segment.path).await?;
                    file.seek(std::io::SeekFrom::Start(from)).await?;
                    file
                }
            };
            let size = left.min(PIECE as u64);
            let mut piece = vec![0; size as usize];
            file.read_exact(&mut piece).await?;
            Ok(Some((Bytes::from(piece), (segment, Some(file), left - size))))
        })
    })
}

/// As a list's `encoding-type=url` asks for.
fn encoded(text: &str, how: Option<&EncodingType>) -> String {
    match how {
        Some(_) => urlencoding::encode(text).replace("%2F", "/"),
        None => text.to_owned(),
    }
}

struct Page {
    objects: Vec<s3s::dto::Object>,
    prefixes: Vec<CommonPrefix>,
    /// The last name of the page, where there are more.
    next: Option<String>,
}

/// A page of a bucket in order: the keys below `prefix` and after `after`, those with the delimiter
/// in what remains as one.
fn page(
    objects: &BTreeMap<String, Object>,
    prefix: &str,
    delimiter: Option<&str>,
    after: &str,
    max: usize,
    how: Option<&EncodingType>,
) -> Page {
    let mut page = Page {
        objects: Vec::new(),
        prefixes: Vec::new(),
        next: None,
    };
    let mut seen = BTreeSet::new();
    let mut last = String::new();
    for (key, object) in objects.iter().filter(|(key, _)| key.starts_with(prefix)) {
        let cut = delimiter.and_then(|delimiter| {
            key[prefix.len()..]
                .find(delimiter)
                .map(|at| prefix.len() + at + delimiter.len())
        });
        let name = &key[..cut.unwrap_or(key.len())];
        if (!after.is_empty() && name <= after) || seen.contains(name) {
            continue;
        }
        if page.objects.len() + page.prefixes.len() == max {
            page.next = Some(last);
            break;
        }
        last = name.to_owned();
        if cut.is_some() {
            seen.insert(name.to_owned());
            page.prefixes.push(CommonPrefix {
                prefix: Some(encoded(name, how)),
            });
            continue;
        }
        page.objects.push(s3s::dto::Object {
            key: Some(encoded(name, how)),
            size: Some(object.size() as i64),
            e_tag: Some(ETag::Strong(object.etag.clone())),
            last_modified: Some(object.modified.into()),
            ..Default::default()
        });
    }
    page
}

fn source(of: &CopySource) -> S3Result<(&str, &str)> {
    match of {
        CopySource::Bucket { bucket, key, .. } => Ok((bucket, key)),
        _ => Err(s3_error!(NotImplemented)),
    }
}

macro_rules! announced {
    ($request:ident) => {
        Announced {
            md5: $request.input.content_md5.take(),
            checksum: Checksum {
                checksum_crc32: $request.input.checksum_crc32.take(),
                checksum_crc32c: $request.input.checksum_crc32c.take(),
                checksum_crc64nvme: $request.input.checksum_crc64nvme.take(),
                checksum_sha1: $request.input.checksum_sha1.take(),
                checksum_sha256: $request.input.checksum_sha256.take(),
                ..Checksum::default()
            },
            trailers: $request.trailing_headers.take(),
        }
    };
}

#[async_trait::async_trait]
impl S3 for Store {
    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        self.state().buckets.entry(request.input.bucket).or_default();
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.state().bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.state().bucket(&request.input.bucket)?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
        let of = |name: &String| Bucket {
            name: Some(name.clone()),
            creation_date: Some(SystemTime::now().into()),
            ..Default::default()
        };
        let buckets = Some(self.state().buckets.keys().map(of).collect());
        Ok(S3Response::new(ListBucketsOutput {
            buckets,
            ..Default::default()
        }))
    }

    async fn put_object(
        &self,
        mut request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        self.state().bucket(&request.input.bucket)?;
        let announced = announced!(request);
        let (segment, md5, checksum) = self.receive(request.input.body.take(), announced).await?;
        let input = request.input;
        let etag = hex(&md5);
        let object = Object {
            segments: vec![Arc::new(segment)],
            etag: etag.clone(),
            modified: SystemTime::now(),
            content_type: input.content_type,
            content_encoding: input.content_encoding,
            metadata: input.metadata,
            checksum: checksum.clone(),
        };
        self.state().bucket(&input.bucket)?.insert(input.key, object);
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(ETag::Strong(etag)),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            ..Default::default()
        }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let object = self.state().object(&input.bucket, &input.key)?;
        let size = object.size();
        let range = input.range.map_or(Ok(0..size), |range| range.check(size))?;
        let part = input
            .range
            .is_some()
            .then(|| format!("bytes {}-{}/{size}", range.start, range.end - 1));
        // A digest of the whole says nothing of a part of it.
        let checksum = if part.is_some() {
            Checksum::default()
        } else {
            object.checksum
        };
        let body = stream::iter([Ok(Bytes::new())]).chain(read(object.segments, range.clone()));
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            body: Some(StreamingBlob::wrap(SyncStream(Mutex::new(Box::pin(body))))),
            content_length: Some((range.end - range.start) as i64),
            content_range: part,
            content_type: object.content_type,
            content_encoding: object.content_encoding,
            metadata: object.metadata,
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(object.modified.into()),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            ..Default::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let object = self.state().object(&request.input.bucket, &request.input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(object.size() as i64),
            content_type: object.content_type,
            metadata: object.metadata,
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(object.modified.into()),
            ..Default::default()
        }))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.state()
            .bucket(&request.input.bucket)?
            .remove(&request.input.key);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let mut state = self.state();
        let bucket = state.bucket(&request.input.bucket)?;
        let mut deleted = Vec::new();
        for object in request.input.delete.objects {
            bucket.remove(&object.key);
            deleted.push(DeletedObject {
                key: Some(object.key),
                ..Default::default()
            });
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(deleted),
            ..Default::default()
        }))
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let input = request.input;
        let (bucket, key) = source(&input.copy_source)?;
        let mut state = self.state();
        let object = Object {
            modified: SystemTime::now(),
            ..state.object(bucket, key)?
        };
        let result = CopyObjectResult {
            e_tag: Some(ETag::Strong(object.etag.clone())),
            last_modified: Some(object.modified.into()),
            ..Default::default()
        };
        state.bucket(&input.bucket)?.insert(input.key, object);
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(result),
            ..Default::default()
        }))
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let input = request.input;
        let max = input.max_keys.unwrap_or(1000).clamp(0, 1000);
        let (prefix, marker) = (input.prefix.unwrap_or_default(), input.marker.unwrap_or_default());
        let page = page(
            self.state().bucket(&input.bucket)?,
            &prefix,
            input.delimiter.as_deref(),
            &marker,
            max as usize,
            input.encoding_type.as_ref(),
        );
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(encoded(&prefix, input.encoding_type.as_ref())),
            max_keys: Some(max),
            is_truncated: Some(page.next.is_some()),
            next_marker: page.next.map(|next| encoded(&next, input.encoding_type.as_ref())),
            contents: Some(page.objects),
            common_prefixes: Some(page.prefixes),
            delimiter: input.delimiter,
            encoding_type: input.encoding_type,
            ..Default::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let max = input.max_keys.unwrap_or(1000).clamp(0, 1000);
        let prefix = input.prefix.unwrap_or_default();
        let after = input
            .continuation_token
            .clone()
            .or(input.start_after)
            .unwrap_or_default();
        let page = page(
            self.state().bucket(&input.bucket)?,
            &prefix,
            input.delimiter.as_deref(),
            &after,
            max as usize,
            input.encoding_type.as_ref(),
        );
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(encoded(&prefix, input.encoding_type.as_ref())),
            max_keys: Some(max),
            key_count: Some((page.objects.len() + page.prefixes.len()) as i32),
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next,
            continuation_token: input.continuation_token,
            contents: Some(page.objects),
            common_prefixes: Some(page.prefixes),
            delimiter: input.delimiter,
            encoding_type: input.encoding_type,
            ..Default::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = request.input;
        // With what a query must encode, as real ids have.
        let id = format!(
            "upload/{}+{}=",
            self.next.fetch_add(1, Ordering::Relaxed),
            input.key.len()
        );
        let object = Object {
            segments: Vec::new(),
            etag: String::new(),
            modified: SystemTime::now(),
            content_type: input.content_type,
            content_encoding: input.content_encoding,
            metadata: input.metadata,
            checksum: Checksum::default(),
        };
        let mut state = self.state();
        state.bucket(&input.bucket)?;
        let upload = Upload {
            bucket: input.bucket.clone(),
            key: input.key.clone(),
            object,
            parts: BTreeMap::new(),
        };
        state.uploads.insert(id.clone(), upload);
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: input.checksum_type,
            ..Default::default()
        }))
    }

    async fn upload_part(
        &self,
        mut request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        self.state().upload(
            &request.input.upload_id,
            &request.input.bucket,
            &request.input.key,
        )?;
        let announced = announced!(request);
        let (segment, md5, checksum) = self.receive(request.input.body.take(), announced).await?;
        let input = request.input;
        self.state()
            .upload(&input.upload_id, &input.bucket, &input.key)?
            .parts
            .insert(input.part_number, (Arc::new(segment), md5));
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(ETag::Strong(hex(&md5))),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            ..Default::default()
        }))
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let input = request.input;
        let (bucket, key) = source(&input.copy_source)?;
        let object = self.state().object(bucket, key)?;
        let range = match &input.copy_source_range {
            Some(range) => Range::parse(range)
                .map_err(|_| s3_error!(InvalidArgument))?
                .check(object.size())?,
            None => 0..object.size(),
        };
        let body = StreamingBlob::wrap(SyncStream(Mutex::new(Box::pin(read(object.segments, range)))));
        let (segment, md5, _) = self.receive(Some(body), Announced::default()).await?;
        self.state()
            .upload(&input.upload_id, &input.bucket, &input.key)?
            .parts
            .insert(input.part_number, (Arc::new(segment), md5));
        let result = CopyPartResult {
            e_tag: Some(ETag::Strong(hex(&md5))),
            last_modified: Some(SystemTime::now().into()),
            ..Default::default()
        };
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(result),
            ..Default::default()
        }))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = request.input;
        let mut state = self.state();
        let upload = state.upload(&input.upload_id, &input.bucket, &input.key)?;
        let mut object = upload.object.clone();
        let mut digests = Md5::new();
        for part in input
            .multipart_upload
            .and_then(|upload| upload.parts)
            .unwrap_or_default()
        {
            let number = part.part_number.ok_or_else(|| s3_error!(InvalidPart))?;
            let (segment, md5) = upload.parts.get(&number).ok_or_else(|| s3_error!(InvalidPart))?;
            if part.e_tag.is_none_or(|etag| etag.value() != hex(md5)) {
                return Err(s3_error!(InvalidPart));
            }
            digests.update(md5);
            object.segments.push(Arc::clone(segment));
        }
        object.etag = format!("{}-{}", hex(&digests.finalize()), object.segments.len());
        object.modified = SystemTime::now();
        let etag = object.etag.clone();
        state.uploads.remove(&input.upload_id);
        state.bucket(&input.bucket)?.insert(input.key.clone(), object);
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag)),
            ..Default::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = request.input;
        let mut state = self.state();
        state.upload(&input.upload_id, &input.bucket, &input.key)?;
        state.uploads.remove(&input.upload_id);
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        let input = request.input;
        let mut state = self.state();
        let upload = state.upload(&input.upload_id, &input.bucket, &input.key)?;
        let of = |(number, (segment, md5)): (&i32, &(Arc<Segment>, [u8; 16]))| Part {
            part_number: Some(*number),
            size: Some(segment.size as i64),
            e_tag: Some(ETag::Strong(hex(md5))),
            ..Default::default()
        };
        let parts = Some(upload.parts.iter().map(of).collect());
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            parts,
            ..Default::default()
        }))
    }
}

type Pieces = std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, std::io::Error>> + Send>>;

/// s3s wants its streams `Sync`, which the futures of `tokio::fs` are not.
struct SyncStream(Mutex<Pieces>);

impl Stream for SyncStream {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .poll_next(context)
    }
}
