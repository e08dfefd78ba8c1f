//! The table of facts: everything a policy can read from a request, one row per fact. The enum, the
//! schema, the context and the table in docs/policy.md are generated from it. The source of a fact
//! is in `question.rs`.

use std::cell::OnceCell;
use std::time::UNIX_EPOCH;

use cedar_policy::{EntityUid, RestrictedExpression as Value};
use gateway_body::fact::FactType;
use gateway_message::Scheme;

use super::fault::FactFault;
use super::multimap::{Fields, Query, content_type};
use super::path::{any_segments, depth, prefixes, segments};
use super::question::{Facts, Input, LendQuestion};
use super::value::{text, texts};

/// The type of a fact in Cedar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CedarType {
    String,
    Strings,
    Long,
    Bool,
    Datetime,
    Host,
    /// A record of the facts that the configuration declares.
    Content,
}

impl From<FactType> for CedarType {
    fn from(kind: FactType) -> Self {
        match kind {
            FactType::Long => Self::Long,
            FactType::String => Self::String,
            FactType::Bool => Self::Bool,
            FactType::Strings => Self::Strings,
        }
    }
}

/// What a fact describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// Every request that the session makes to the host.
    Any,
    /// This request only: it differs between requests to one host, and between requests of a batch.
    One,
    /// The use of a credential.
    Lend,
    /// The signature of a commit.
    Sign,
}

/// A row of the table.
pub(super) struct FactRow {
    pub fact: Fact,
    /// Its name in the context. `query.any` is the attribute `any` of the record `query`.
    pub name: &'static str,
    pub kind: CedarType,
    pub scope: Scope,
    pub input: Input,
    /// Its description in docs/policy.md.
    pub about: &'static str,
    value: fn(&FactReader<'_>) -> Result<Value, FactFault>,
}

macro_rules! facts {
    ($($fact:ident $name:literal $kind:ident $scope:ident $input:ident $about:literal $value:expr;)*) => {
        /// One fact that a policy can read.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(super) enum Fact { $($fact),* }

        /// Every fact.
        pub(super) const FACTS: &[FactRow] = &[$(FactRow {
            fact: Fact::$fact,
            name: $name,
            kind: CedarType::$kind,
            scope: Scope::$scope,
            input: Input::$input,
            about: $about,
            value: $value,
        }),*];
    };
}

facts! {
    Session "session" String Any Session
        "the session's id"
        |of| Ok(text(of.facts.session.as_str()));
    Groups "groups" Strings Any Groups
        "the names of its groups; `principal in Gateway::Group::\"…\"` is usually better"
        |of| Ok(texts(of.facts.groups));
    Labels "labels" Strings Any Labels
        "the labels that its requests gave the session: those of the permits that allowed them (`@label(\"…\")`)"
        |of| Ok(texts(of.facts.labels));
    Entry "entry" String Any Entry
        "how it came in: `transparent`, `tls`, `connect`, `forward`, `socks` or `base`"
        |of| Ok(text(of.facts.entry));
    Now "now" Datetime Any Clock
        "when it is judged, UTC: `context.now < datetime(\"2026-12-31\")`, `context.now.toTime() >= duration(\"6h\")`"
        now;
    Scheme "scheme" String Any Scheme
        "`http` or `https`"
        |of| Ok(text(of.facts.scheme.as_str()));
    Secure "secure" Bool Any Scheme
        "the origin is reached over TLS"
        |of| Ok(Value::new_bool(of.facts.scheme == Scheme::Https));
    Host "host" String Any Question
        "the host's name, for `like`; `resource in Gateway::Domain::\"…\"` is usually better"
        |of| Ok(text(of.facts.host.as_str()));
    Port "port" Long Any Port
        "the origin's port. A host is permitted on every port unless a policy says otherwise"
        |of| Ok(Value::new_long(of.facts.port.into()));
    Method "method" String One Method
        "as sent"
        |of| Ok(text(of.facts.method));
    Path "path" String One Path
        "canonical and percent-encoded, without the query"
        |of| Ok(text(of.facts.target.path()));
    Prefixes "prefixes" Strings One Path
        "every part of the path that ends with a whole segment: of `/repos/o/r`, `/`, `/repos`, `/repos/o`, `/repos/o/r`"
        |of| Ok(texts(prefixes(of.facts.target.path())?));
    Segments "segments" Strings One Path
        "the path's segments with their places: `0:repos`, `1:o`, `2:r`"
        |of| Ok(texts(segments(of.facts.target.path())?.enumerate().map(|(place, segment)| format!("{place}:{segment}"))));
    AnySegments "anySegments" Strings One Path
        "`segments` in **any reading**, for what forbids: also with `%2F` as a slash, and each also without an ending as `.json`"
        |of| Ok(texts(any_segments(of.facts.target.path())?));
    Depth "depth" Long One Path
        "how many segments there are; a slash at the end begins none"
        |of| Ok(Value::new_long(i64::try_from(depth(of.facts.target.path())?).map_err(|_| FactFault::TooManySegments)?));
    QueryAny "query.any" Strings One Query
        "`name=value` in **any reading** (below)"
        |of| Ok(texts(&of.query()?.any));
    QueryUnique "query.unique" Strings One Query
        "`name=value` for names that occur **once** and read one way"
        |of| Ok(texts(&of.query()?.unique));
    QueryNames "query.names" Strings One Query
        "the names, in any reading"
        |of| Ok(texts(&of.query()?.names));
    FieldsAny "fields.any" Strings One Fields
        "`name: value`, the name in lower case: each whole line, and each member of a comma-separated one; a name with `_` or `.` also with `-` in their place"
        |of| Ok(texts(&of.fields()?.any));
    FieldsUnique "fields.unique" Strings One Fields
        "`name: value` for names with one line"
        |of| Ok(texts(&of.fields()?.unique));
    FieldsNames "fields.names" Strings One Fields
        "the names, in lower case, in both readings"
        |of| Ok(texts(&of.fields()?.names));
    ContentType "contentType" String Any ContentType
        "the media type in lower case without parameters, or empty. Two content types are not judged"
        |of| Ok(Value::new_string(content_type(of.facts.fields)?));
    ContentLength "contentLength" Long Any ContentLength
        "in bytes; 0 without content; -1 where it is not known in advance"
        // A length beyond Cedar's largest number counts as that number.
        |of| Ok(Value::new_long(of.facts.content_length.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX))));
    Content "content" Content One Content
        "what `[[fact]]` declares of the content (below)"
        |of| of.content();
    GitRefs "git.refs" Strings One Content
        "what a push changes (below): `create`, `update`, `delete`, and each with the name of a ref: `update refs/heads/main`"
        |of| of.said("git.refs");
    GitFolders "git.folders" Strings One Content
        "the folders of these refs: `refs/heads`"
        |of| of.said("git.folders");
    GitOptions "git.options" Strings One Content
        "the push options: `ci.skip`"
        |of| of.said("git.options");
    GraphqlOperations "graphql.operations" Strings One Content
        "the operations of a GraphQL request (below): the type of each, and its type and name: `mutation`, `mutation Merge`"
        |of| of.said("graphql.operations");
    GraphqlFields "graphql.fields" Strings One Content
        "the fields of the root types that these select: `query.viewer`, `mutation.mergePullRequest`"
        |of| of.said("graphql.fields");
    McpMethods "mcp.methods" Strings One Content
        "the methods that an MCP request calls: `tools/call`, `initialize`"
        |of| of.said("mcp.methods");
    McpTools "mcp.tools" Strings One Content
        "the tools that it calls, by name"
        |of| of.said("mcp.tools");
    ModelName "model.name" String One Content
        "the model that a request asks"
        |of| of.said("model.name");
    ModelTools "model.tools" Strings One Content
        "the caller's own tools that it offers the model, by name"
        |of| of.said("model.tools");
    ModelHostedTools "model.hosted_tools" Strings One Content
        "the tools that the provider runs, by type, in lower case: `web_search`, `code_interpreter`, `mcp`; and every member of the request that is not known, by name"
        |of| of.said("model.hosted_tools");
    ModelMaxTokens "model.max_tokens" Long One Content
        "the most tokens of the answer; left out where the request says none"
        |of| of.said("model.max_tokens");
    Upgrade "upgrade" String Any Upgrade
        "empty, or the protocol to change to: `websocket`"
        |of| Ok(text(of.facts.upgrade));
    Credentials "credentials" Strings Any Credentials
        "the names of the credentials whose phantoms the request carries"
        |of| Ok(texts(of.facts.credentials.iter().map(|name| name.as_str())));
    Actions "actions" Strings One Actions
        "what a request that is signed for AWS asks for: `s3:PutObject`, and beside it `s3:PutObjectAcl` where a field asks for that (docs/config.md, `actions`); `sts:?` where a form says it, `s3:?` where no table knows it; empty without a signature"
        |of| Ok(texts(of.facts.actions));
    Credential "credential" String Lend Question
        "its name"
        |of| Ok(text(of.lend()?.0.credential.as_str()));
    Origin "origin" Host Lend Question
        "the host that would receive it"
        |of| Ok(Value::new_entity_uid(of.lend()?.1.clone()));
    Place "place" String Lend Question
        "where it would be: `header:authorization:Bearer`, `header:x-api-key`, `basic:password`, `cookie:sid`, `query:key`, `sign:sigv4`; `websocket:/d/token` of an upgrade, for its messages"
        |of| Ok(text(of.lend()?.0.place));
    Repository "repository" String Sign Question
        "the repository of the folder in which `exec` was started: `github.com/octo/hello` by its remote `origin`, else the folder's name"
        |of| Ok(text(of.facts.signs.ok_or(FactFault::Context)?.repository));
}

/// The facts made from the path.
pub(super) const OF_PATH: [Fact; 5] = {
    use Fact::{AnySegments, Depth, Path, Prefixes, Segments};
    [Path, Prefixes, Segments, AnySegments, Depth]
};

/// The facts made from the fields.
pub(super) const OF_FIELDS: [Fact; 4] = {
    use Fact::{ContentType, FieldsAny, FieldsNames, FieldsUnique};
    [FieldsAny, FieldsUnique, FieldsNames, ContentType]
};

/// Returns a set of facts as bits.
pub(super) fn bits<'a>(facts: impl IntoIterator<Item = &'a Fact>) -> u64 {
    const { assert!(FACTS.len() <= 64) };
    facts
        .into_iter()
        .fold(0, |all, fact| all | 1 << *fact as u8)
}

impl Fact {
    /// Returns the fact's row.
    pub fn row(self) -> &'static FactRow {
        &FACTS[self as usize]
    }

    /// Returns the facts with a name in the context: one fact, or all facts of a record. None if
    /// the name is unknown.
    pub fn named(name: &str) -> impl Iterator<Item = Self> {
        let is_it = move |row: &&FactRow| {
            let rest = row.name.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        FACTS.iter().filter(is_it).map(|row| row.fact)
    }

    /// Whether the fact is made from the content.
    pub fn is_of_content(self) -> bool {
        self.row().input == Input::Content
    }

    /// Returns the fact's value for one request.
    ///
    /// # Errors
    /// [`FactFault`] by cause.
    pub fn value(self, reader: &FactReader<'_>) -> Result<Value, FactFault> {
        (self.row().value)(reader)
    }
}

/// The source of the values. Query and fields are parsed once, and only if a value needs them.
pub(super) struct FactReader<'a> {
    facts: &'a Facts<'a>,
    lend: Option<(LendQuestion<'a>, &'a EntityUid)>,
    query: OnceCell<Query>,
    fields: OnceCell<Fields>,
}

impl<'a> FactReader<'a> {
    /// Reads a request, or a credential use together with the host that would receive it.
    pub fn new(facts: &'a Facts<'a>, lend: Option<(LendQuestion<'a>, &'a EntityUid)>) -> Self {
        Self {
            facts,
            lend,
            query: OnceCell::new(),
            fields: OnceCell::new(),
        }
    }

    /// Returns the path of the request.
    pub fn path(&self) -> &'a str {
        self.facts.target.path()
    }

    fn query(&self) -> Result<&Query, FactFault> {
        if let Some(known) = self.query.get() {
            return Ok(known);
        }
        let read = Query::of(self.facts.target.query().unwrap_or_default())?;
        Ok(self.query.get_or_init(|| read))
    }

    fn fields(&self) -> Result<&Fields, FactFault> {
        if let Some(known) = self.fields.get() {
            return Ok(known);
        }
        let read = Fields::of(self.facts.fields)?;
        Ok(self.fields.get_or_init(|| read))
    }

    fn content(&self) -> Result<Value, FactFault> {
        let content = self.facts.content.ok_or(FactFault::ContentUnread)?;
        Value::new_record(content.values()).map_err(|_| FactFault::Context)
    }

    /// Returns a fact of a protocol.
    fn said(&self, name: &str) -> Result<Value, FactFault> {
        let content = self.facts.content.ok_or(FactFault::ContentUnread)?;
        content.value(name).ok_or(FactFault::LeftOut)
    }

    fn lend(&self) -> Result<&(LendQuestion<'a>, &'a EntityUid), FactFault> {
        self.lend.as_ref().ok_or(FactFault::Context)
    }
}

fn now(of: &FactReader<'_>) -> Result<Value, FactFault> {
    let since = of.facts.now.duration_since(UNIX_EPOCH);
    let since = since.map_err(|_| FactFault::Clock)?;
    let seconds = i64::try_from(since.as_secs()).map_err(|_| FactFault::Clock)?;
    let at = time::OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| FactFault::Clock)?;
    if at.year() > 9999 {
        return Err(FactFault::Clock);
    }
    let (hour, minute, second) = at.to_hms();
    Ok(Value::new_datetime(format!(
        "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        since.subsec_millis()
    )))
}

#[cfg(test)]
mod tests {
    use gateway_body::read::Protocol;

    use super::*;

    #[test]
    fn every_fact_of_a_protocol_is_in_the_table_and_no_other() {
        let read: Vec<_> = Protocol::ALL.iter().flat_map(|one| one.facts()).collect();
        let rows = FACTS.iter().filter(|row| row.fact.is_of_content());
        let rows: Vec<_> = rows.map(|row| &row.name).skip(1).collect();
        assert_eq!(rows, read);
    }

    #[test]
    fn the_facts_of_the_path_and_of_the_fields_are_listed() {
        let of = |inputs: &[Input]| -> Vec<Fact> {
            let rows = FACTS.iter().filter(|row| inputs.contains(&row.input));
            rows.map(|row| row.fact).collect()
        };
        assert_eq!(of(&[Input::Path]), OF_PATH);
        assert_eq!(of(&[Input::Fields, Input::ContentType]), OF_FIELDS);
    }

    #[test]
    fn a_fact_stands_at_its_place_in_the_table() {
        for (place, row) in FACTS.iter().enumerate() {
            assert_eq!(row.fact as usize, place);
            assert_eq!(Fact::named(row.name).collect::<Vec<_>>(), [row.fact]);
        }
        assert_eq!(Fact::named("query").count(), 3);
        assert_eq!(Fact::named("quer").count(), 0);
        assert_eq!(Fact::named("users").count(), 0);
    }
}
