//! Watches the files that a configuration is made of, as they were when it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use gateway_config::Config;
use gateway_files::{self as files, Consent};

/// The files to watch: those of configurations, and further ones.
pub struct WatchList {
    configs: Vec<Arc<Config>>,
    named: BTreeSet<PathBuf>,
}

impl WatchList {
    pub(crate) fn new(configs: Vec<Arc<Config>>, named: BTreeSet<PathBuf>) -> Self {
        Self { configs, named }
    }

    /// Looks at the files now.
    pub fn look(&self) -> FileStates {
        let decisions = Consent::all().unwrap_or_default();
        let look = |path: PathBuf| {
            let about = std::fs::metadata(&path).ok();
            let identity = about.map(|about| {
                let written = (about.mtime(), about.mtime_nsec());
                let changed = (about.ctime(), about.ctime_nsec());
                (about.dev(), about.ino(), about.size(), written, changed)
            });
            let decision = decisions.get(&files::real(&path)).cloned();
            (path, (identity, decision))
        };
        FileStates(self.names().map(look).collect())
    }

    fn names(&self) -> impl Iterator<Item = PathBuf> {
        let configs = self.configs.iter().flat_map(|config| config.input_files());
        configs.chain(self.named.iter().cloned())
    }
}

/// The files of a configuration, each with its identity and a person's decision about it. Two
/// values are equal if no file was written, replaced, added, removed or decided about in between.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct FileStates(BTreeMap<PathBuf, (Option<FileIdentity>, Option<Consent>)>);

/// The attributes that change when a file is written or replaced, by whatever path: device, inode,
/// size, and the times of its content and of its inode.
///
/// Links are followed, as Kubernetes replaces the link to a folder of mounted files.
type FileIdentity = (u64, u64, u64, (i64, i64), (i64, i64));

impl FileStates {
    /// Takes over what an earlier look found.
    pub fn keep(&mut self, earlier: Self) {
        self.0.extend(earlier.0);
    }

    /// Forgets the files that are not watched any more.
    pub fn only(&mut self, watched: &WatchList) {
        let names: BTreeSet<PathBuf> = watched.names().collect();
        self.0.retain(|path, _| names.contains(path));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn look(config: &Arc<Config>) -> FileStates {
        WatchList::new(vec![config.clone()], BTreeSet::new()).look()
    }

    #[test]
    fn a_written_a_replaced_and_an_added_file_are_seen_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.cedar"), "").unwrap();
        let text = "[policy]\nfiles = [\"*.cedar\"]\n";
        fs::write(at("gateway.toml"), text).unwrap();
        let config = Arc::new(Config::load(&at("gateway.toml")).unwrap());
        let first = look(&config);
        fs::write(at("other"), "").unwrap();
        assert!(first == look(&config));
        fs::write(at("a.cedar"), "// one").unwrap();
        let second = look(&config);
        assert!(first != second);
        fs::write(at("new"), "// two").unwrap();
        fs::rename(at("new"), at("a.cedar")).unwrap();
        let third = look(&config);
        assert!(second != third);
        fs::write(at("b.cedar"), "").unwrap();
        let fourth = look(&config);
        assert!(third != fourth);
        fs::remove_file(at("gateway.toml")).unwrap();
        assert!(fourth != look(&config));
    }

    #[test]
    fn the_link_of_a_mounted_folder_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for version in ["one", "two"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("gateway.toml"), "").unwrap();
        }
        std::os::unix::fs::symlink("one", at("..data")).unwrap();
        std::os::unix::fs::symlink("..data/gateway.toml", at("gateway.toml")).unwrap();
        let config = Arc::new(Config::load(&at("gateway.toml")).unwrap());
        let before = look(&config);
        std::os::unix::fs::symlink("two", at("..next")).unwrap();
        fs::rename(at("..next"), at("..data")).unwrap();
        assert!(before != look(&config));
    }
}
