//! AWS's published partitions, endpoints and operations, and lists made by hand, as data.
//!
//! `policies/aws/generate.py` derives endpoints and operations from botocore's service models. A
//! test reads every line of each file.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

/// One group of regions with its own accounts and its own suffixes.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) id: &'static str,
    /// The suffix of ordinary hosts, `amazonaws.com`.
    pub(super) suffix: &'static str,
    /// The suffix of hosts that also have IPv6 addresses, `api.aws`.
    pub(super) dual: &'static str,
    pub(super) regions: Vec<&'static str>,
}

/// How a host, or a stem before region and suffix, is signed, and which APIs answer there.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostRow {
    pub(super) signing: &'static str,
    /// The region to sign for, if the host does not name it.
    pub(super) region: Option<&'static str>,
    /// Names of APIs, separated by commas.
    pub(super) apis: &'static str,
}

/// One API: its name in the AWS CLI, and its operations.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) id: &'static str,
    pub(super) signing: &'static str,
    /// Either `rest`, or those of `json`, `query`, `ec2` and `rpc-v2-cbor` that it supports.
    protocols: &'static str,
    /// The text before the operation in `X-Amz-Target`, and in the path of rpc-v2-cbor.
    pub(super) target: &'static str,
    /// One line each: the name, and for REST the method and the template of the target.
    block: &'static str,
    operations: OnceLock<Vec<Operation>>,
}

/// One operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    /// How it is requested, at a REST API.
    pub(super) route: Option<OperationRoute>,
}

/// Method and target of an operation.
#[derive(Debug)]
pub(super) struct OperationRoute {
    pub(super) method: &'static str,
    /// The segments of its path: literals, `{}`, `{@}` for an account, `{+}` for several.
    pub(super) path: Vec<&'static str>,
    /// The parameters that its query must have.
    pub(super) query: Vec<(&'static str, Option<&'static str>)>,
    /// Whether S3 takes `x-amz-expected-bucket-owner` for it.
    pub(super) takes_owner: bool,
}

impl Api {
    /// One section of the table of actions: its head, and the operations below it.
    fn read((head, block): TableSection) -> Option<Api> {
        let words: Vec<&'static str> = head.split(' ').collect();
        let (id, signing, protocols, target) = match words[..] {
            [id, signing, protocols, target] => (id, signing, protocols, target),
            [id, signing, protocols] => (id, signing, protocols, "-"),
            _ => return None,
        };
        Some(Api {
            id,
            signing,
            protocols,
            target,
            block,
            operations: OnceLock::new(),
        })
    }

    pub(super) fn speaks(&self, protocol: &str) -> bool {
        self.protocols.split(',').any(|known| known == protocol)
    }

    /// The operations, sorted by name; parsed on first use.
    pub(super) fn operations(&self) -> &[Operation] {
        self.operations
            .get_or_init(|| self.block.lines().map(Operation::read).collect())
    }

    /// The operation with exactly this name.
    pub(super) fn operation(&self, name: &str) -> Option<&Operation> {
        let operations = self.operations();
        let at = operations
            .binary_search_by(|known| known.name.cmp(name))
            .ok()?;
        operations.get(at)
    }
}

impl Operation {
    fn read(line: &'static str) -> Operation {
        let words: Vec<&'static str> = line.split(' ').collect();
        match words[..] {
            [name, method, template, ..] => Operation {
                name,
                route: Some(OperationRoute::read(method, template, words.len() > 3)),
            },
            _ => Operation {
                name: line,
                route: None,
            },
        }
    }
}

impl OperationRoute {
    fn read(method: &'static str, template: &'static str, takes_owner: bool) -> OperationRoute {
        let (path, query) = template.split_once('?').unwrap_or((template, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        OperationRoute {
            method,
            path: segments(path),
            query: pairs
                .map(|pair| match pair.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (pair, None),
                })
                .collect(),
            takes_owner,
        }
    }
}

/// The segments of a path without the trailing slash, which servers accept or ignore.
pub(super) fn segments(path: &str) -> Vec<&str> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    inner.split('/').collect()
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) partitions: Vec<Partition>,
    regional: HashMap<&'static str, Vec<HostRow>>,
    exact: HashMap<&'static str, Vec<HostRow>>,
    apis: HashMap<&'static str, Api>,
}

impl Tables {
    pub(super) fn get() -> &'static Tables {
        &TABLES
    }

    /// The rows of `stem.region.suffix`; a stem with `-fips` at the end of a label means the one
    /// without it.
    pub(super) fn regional(&self, stem: &str) -> &[HostRow] {
        if let Some(rows) = self.regional.get(stem) {
            return rows;
        }
        let plain = stem
            .strip_suffix("-fips")
            .map_or_else(|| stem.replacen("-fips.", ".", 1), str::to_owned);
        self.regional.get(plain.as_str()).map_or(&[], Vec::as_slice)
    }

    /// The rows of exactly this host.
    pub(super) fn exact(&self, host: &str) -> &[HostRow] {
        self.exact.get(host).map_or(&[], Vec::as_slice)
    }

    pub(super) fn api(&self, id: &str) -> Option<&Api> {
        self.apis.get(id)
    }

    pub(super) fn apis(&self) -> impl Iterator<Item = &Api> {
        self.apis.values()
    }

    /// The partition that has this region.
    pub(super) fn partition_of(&self, region: &str) -> Option<&Partition> {
        self.partitions
            .iter()
            .find(|partition| partition.regions.contains(&region))
    }

    fn read(endpoints: &'static str, actions: &'static str) -> Tables {
        let mut tables = Tables::default();
        for line in endpoints.lines() {
            tables.add_endpoint(line);
        }
        let apis = sections(actions).filter_map(Api::read);
        tables.apis = apis.map(|api| (api.id, api)).collect();
        tables
    }

    /// Adds one line of the table of endpoints.
    fn add_endpoint(&mut self, line: &'static str) {
        let row = |signing, region, apis| HostRow {
            signing,
            region,
            apis,
        };
        let words: Vec<&'static str> = line.split(' ').collect();
        match words[..] {
            ["partition", id, suffix, dual, _, regions] => self.partitions.push(Partition {
                id,
                suffix,
                dual,
                regions: regions.split(',').collect(),
            }),
            ["regional", stem, signing, apis] => {
                let rows = self.regional.entry(stem).or_default();
                rows.push(row(signing, None, apis));
            }
            ["exact", host, signing, region, apis] => {
                let rows = self.exact.entry(host).or_default();
                rows.push(row(signing, Some(region), apis));
            }
            _ => {}
        }
    }
}

/// The text after a word in a list; `None` if the list does not have it.
pub(super) fn listed(list: &str, word: &str) -> Option<&'static str> {
    LISTS.get(&(list, word)).copied()
}

/// Whether a list has the word.
pub(super) fn is_listed(list: &str, word: &str) -> bool {
    listed(list, word).is_some()
}

/// A head after `@`, and the lines below it.
type TableSection = (&'static str, &'static str);

fn sections(text: &'static str) -> impl Iterator<Item = TableSection> {
    let sections = text.split("\n@").skip(1);
    sections.map(|section| section.split_once('\n').unwrap_or((section, "")))
}

/// The text after each word, by list and word.
static LISTS: LazyLock<HashMap<TableSection, &'static str>> = LazyLock::new(|| {
    let lists = sections(include_str!("../../../policies/aws/lists.txt"));
    let words = lists.flat_map(|(list, lines)| {
        let lines = lines
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = lines.map(|line| line.split_once(' ').unwrap_or((line, "")));
        pairs.map(move |(word, rest)| ((list, word), rest))
    });
    words.collect()
});

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    Tables::read(
        include_str!("../../../policies/aws/endpoints.txt"),
        include_str!("../../../policies/aws/actions.txt"),
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_data_is_read() {
        let endpoints = include_str!("../../../policies/aws/endpoints.txt");
        let lines = endpoints
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count();
        let tables = Tables::get();
        let rows = |map: &HashMap<&str, Vec<HostRow>>| map.values().map(Vec::len).sum::<usize>();
        assert_eq!(
            tables.partitions.len() + rows(&tables.regional) + rows(&tables.exact),
            lines
        );
        let actions = include_str!("../../../policies/aws/actions.txt");
        assert_eq!(
            tables.apis.len(),
            actions.lines().filter(|line| line.starts_with('@')).count()
        );
        let operations = actions
            .lines()
            .filter(|line| !line.starts_with(['@', '#']))
            .count();
        assert_eq!(
            tables
                .apis()
                .map(|api| api.operations().len())
                .sum::<usize>(),
            operations
        );
        for api in tables.apis() {
            // Binary search needs sorted data.
            assert!(
                api.operations()
                    .is_sorted_by_key(|operation| operation.name)
            );
            let routed = api
                .operations()
                .iter()
                .filter(|operation| operation.route.is_some());
            assert_eq!(
                routed.count(),
                if api.speaks("rest") {
                    api.operations().len()
                } else {
                    0
                }
            );
        }
        assert!(operations > 18_000);
    }

    #[test]
    fn every_listed_operation_is_one_of_the_tables() {
        let text = include_str!("../../../policies/aws/lists.txt");
        let words = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with(['#', '@']));
        assert_eq!(LISTS.len(), words.count());
        for ((list, word), rest) in LISTS.iter() {
            let operations: Vec<_> = match *list {
                "minting" | "phantoms" => rest.split(' ').map(|one| (*word, one)).collect(),
                "data" | "opening" => vec![word.split_once(':').unwrap()],
                "listings" | "own-buckets" => vec![("s3", *word)],
                _ => Vec::new(),
            };
            for (api, operation) in operations {
                let known = Tables::get()
                    .api(api)
                    .and_then(|api| api.operation(operation));
                assert!(known.is_some(), "{list}: {api}:{operation}");
            }
        }
    }

    #[test]
    fn every_api_of_an_endpoint_is_known_and_signs_as_the_endpoint_says() {
        let tables = Tables::get();
        for row in tables
            .regional
            .values()
            .chain(tables.exact.values())
            .flatten()
        {
            for id in row.apis.split(',') {
                assert!(tables.api(id).is_some(), "{id}");
            }
            if let Some(region) = row.region {
                assert!(tables.partition_of(region).is_some(), "{region}");
            }
        }
    }
}
