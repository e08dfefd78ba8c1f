//! What is visible of a home directory: named sets of what programs need to run, and nothing else.
//!
//! A set contains programs, libraries and package caches. It contains no history, no credential,
//! and no settings that may hold a token. Where such files lie among its paths, they are hidden by
//! name.

use std::path::{Component, Path, PathBuf};

/// A named part of home directories.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// Its name, as `--see-home` takes it.
    pub name: &'static str,
    /// Whether it is visible by default: it merely lets programs run.
    pub unasked: bool,
    /// Its directories and files, relative to the home directory.
    pub paths: &'static [&'static str],
}

impl Set {
    fn has(&self, path: &Path) -> bool {
        self.paths.iter().any(|own| Path::new(own) == path)
    }
}

/// Returns the paths, relative to the home directory, for one item that the user asked for.
///
/// An item is a set's name, or a path below the home directory (relative, `~/…` or absolute). A
/// path that could be mistaken for a set's name is written with `./`.
///
/// # Errors
/// Returns what is wrong with it, as text that follows its name.
pub fn named(text: &str, home: &Path) -> Result<Vec<PathBuf>, &'static str> {
    if let Some(set) = SETS.iter().find(|set| set.name == text) {
        return Ok(set.paths.iter().map(PathBuf::from).collect());
    }
    let path = Path::new(
        text.strip_prefix("~/")
            .unwrap_or(if text == "~" { "" } else { text }),
    );
    let relative = match path.is_absolute() {
        true => path
            .strip_prefix(home)
            .map_err(|_| "is not below the home directory; `--see` names other paths")?,
        false => path,
    };
    let mut clean = PathBuf::new();
    for part in relative.components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err("leads out of the home directory");
            }
        }
    }
    if clean.as_os_str().is_empty() {
        return Err("is the whole home directory; name what is needed of it");
    }
    Ok(vec![clean])
}

/// The paths of the sets that are visible by default.
pub fn unasked() -> impl Iterator<Item = PathBuf> {
    SETS.iter()
        .filter(|set| set.unasked)
        .flat_map(|set| set.paths.iter().map(PathBuf::from))
}

/// The names of the sets that contain at least one of these paths.
pub fn names_of(paths: &[PathBuf]) -> impl Iterator<Item = &'static str> {
    let has = |set: &&Set| paths.iter().any(|path| set.has(path));
    SETS.iter().filter(has).map(|set| set.name)
}

/// Whether a path belongs to some set.
pub fn is_of_a_set(path: &Path) -> bool {
    SETS.iter().any(|set| set.has(path))
}

/// Every set.
pub const SETS: &[Set] = &[
    Set {
        name: "programs",
        unasked: true,
        paths: &[
            "bin",
            ".bin",
            ".local/bin",
            ".local/lib",
            ".asdf",
            ".local/share/mise/installs",
            ".local/share/mise/shims",
            ".proto/bin",
            ".proto/shims",
            ".proto/tools",
            ".local/share/aquaproj-aqua",
            ".local/share/claude/versions",
            ".local/share/cursor-agent/versions",
            ".opencode/bin",
            ".krew",
            ".nix-profile",
            ".local/state/nix/profiles",
            ".guix-profile",
        ],
    },
    Set {
        name: "rust",
        unasked: true,
        paths: &[".cargo/bin", ".cargo/env", ".cargo/registry", ".rustup"],
    },
    Set {
        name: "node",
        unasked: true,
        paths: &[
            ".nvm",
            ".volta",
            ".fnm",
            ".local/share/fnm",
            ".npm-global",
            ".npm/_cacache",
            ".npm/_npx",
            ".cache/node",
            ".cache/yarn",
            ".yarn/berry/cache",
            ".local/share/pnpm",
            ".cache/pnpm",
            ".bun/bin",
            ".bun/install",
            ".deno/bin",
            ".cache/deno",
            ".cache/ms-playwright",
            ".cache/puppeteer",
            ".cache/Cypress",
        ],
    },
    Set {
        name: "python",
        unasked: true,
        paths: &[
            ".pyenv",
            ".local/share/uv/python",
            ".local/share/uv/tools",
            ".local/pipx",
            ".local/share/pipx",
            ".local/share/virtualenvs",
            ".virtualenvs",
            ".cache/uv",
            ".cache/pip",
            ".cache/pypoetry/virtualenvs",
            ".rye/shims",
            ".rye/py",
            ".rye/tools",
            "miniconda3",
            "anaconda3",
            "miniforge3",
            "mambaforge",
            "micromamba",
            ".pixi/bin",
            ".pixi/envs",
        ],
    },
    Set {
        name: "go",
        unasked: true,
        paths: &[
            "go/bin",
            "go/pkg",
            "sdk",
            ".cache/go-build",
            ".goenv",
            ".gvm",
        ],
    },
    Set {
        name: "java",
        unasked: true,
        paths: &[
            ".sdkman/bin",
            ".sdkman/candidates",
            ".sdkman/src",
            ".jenv",
            ".jabba",
            ".m2/repository",
            ".m2/wrapper",
            ".gradle/caches",
            ".gradle/wrapper",
            ".gradle/jdks",
            ".ivy2/cache",
            ".cache/coursier",
        ],
    },
    Set {
        name: "ruby",
        unasked: true,
        paths: &[
            ".rbenv",
            ".rvm",
            ".gem/ruby",
            ".local/share/gem/ruby",
            ".bundle/cache",
        ],
    },
    Set {
        name: "php",
        unasked: true,
        paths: &[
            ".composer/vendor",
            ".config/composer/vendor",
            ".cache/composer",
        ],
    },
    Set {
        name: "dotnet",
        unasked: true,
        paths: &[
            ".dotnet/tools",
            ".dotnet/sdk",
            ".dotnet/shared",
            ".dotnet/host",
            ".nuget/packages",
        ],
    },
    Set {
        name: "haskell",
        unasked: true,
        paths: &[
            ".ghcup/bin",
            ".ghcup/ghc",
            ".cabal/bin",
            ".cabal/packages",
            ".stack/programs",
        ],
    },
    Set {
        name: "elixir",
        unasked: true,
        paths: &[
            ".mix/archives",
            ".mix/elixir",
            ".hex/packages",
            ".cache/rebar3",
        ],
    },
    // Instructions that users wrote for their agents. The agents' settings may contain tokens, and
    // their sessions contain conversations, so neither is included.
    Set {
        name: "claude",
        unasked: false,
        paths: &[
            ".claude/CLAUDE.md",
            ".claude/agents",
            ".claude/commands",
            ".claude/output-styles",
            ".claude/plugins",
            ".claude/skills",
        ],
    },
    Set {
        name: "codex",
        unasked: false,
        paths: &[
            ".codex/AGENTS.md",
            ".codex/prompts",
            ".codex/rules",
            ".codex/skills",
        ],
    },
    Set {
        name: "gemini",
        unasked: false,
        paths: &[
            ".gemini/GEMINI.md",
            ".gemini/commands",
            ".gemini/extensions",
        ],
    },
    Set {
        name: "huggingface",
        unasked: false,
        paths: &[".cache/huggingface/hub", ".cache/huggingface/datasets"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hide;

    const HOME: &str = "/home/ann";

    fn asked(text: &str) -> Result<Vec<PathBuf>, &'static str> {
        named(text, Path::new(HOME))
    }

    #[test]
    fn a_set_is_named_by_its_name_and_a_path_by_any_of_its_forms() {
        assert!(
            asked("rust")
                .unwrap()
                .contains(&PathBuf::from(".cargo/bin"))
        );
        for text in ["x/y", "./x/y", "~/x/y", "/home/ann/x/y", "x//./y"] {
            assert_eq!(asked(text).unwrap(), [PathBuf::from("x/y")], "{text}");
        }
        assert_eq!(asked("./go").unwrap(), [PathBuf::from("go")]);
    }

    #[test]
    fn what_leads_out_of_the_home_or_is_all_of_it_is_refused() {
        for text in [
            "",
            ".",
            "~",
            "~/",
            "/home/ann",
            "/home/bob/x",
            "../bob",
            "x/../../bob",
            "/etc",
        ] {
            assert!(asked(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_set_is_or_lies_in_a_credential_store() {
        for set in SETS {
            for path in set.paths.iter().map(Path::new) {
                let store = hide::IN_HOME.iter().find(|store| path.starts_with(store));
                assert!(
                    store.is_none(),
                    "{}: {} lies in {store:?}",
                    set.name,
                    path.display()
                );
                assert!(
                    path.is_relative()
                        && path
                            .components()
                            .all(|part| matches!(part, Component::Normal(_)))
                );
            }
        }
    }

    #[test]
    fn every_set_has_a_name_of_its_own_that_is_no_path() {
        let mut names: Vec<_> = SETS.iter().map(|set| set.name).collect();
        assert!(names.iter().all(|name| !name.contains(['/', '.', '~'])));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SETS.len());
    }
}
