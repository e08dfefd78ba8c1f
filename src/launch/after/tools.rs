//! One table of the files that tools outside run, or obey, without being given their names.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

/// Returns the tool that reads a file of this name.
pub fn file(name: &OsStr) -> Option<&'static str> {
    let name = name.as_bytes();
    let ends = |(ending, _): &&(&str, _)| name.ends_with(ending.as_bytes());
    let whole = BY_NAME.get(&name.to_ascii_lowercase()).copied();
    whole.or_else(|| Some(ENDINGS.iter().find(ends)?.1))
}

/// Returns the tool that reads everything in a folder of this name.
pub fn folder(name: &OsStr) -> Option<&'static str> {
    // Most folders belong to no tool; those that do start with a dot.
    if !name.as_bytes().starts_with(b".") {
        return None;
    }
    let is_it = |(folder, _): &&(&str, _)| name.eq_ignore_ascii_case(folder);
    Some(FOLDERS.iter().find(is_it)?.1)
}

static BY_NAME: LazyLock<HashMap<Vec<u8>, &'static str>> = LazyLock::new(|| {
    let lower =
        |(name, tool): &(&str, &'static str)| (name.to_ascii_lowercase().into_bytes(), *tool);
    FILES.iter().map(lower).collect()
});

const ENDINGS: &[(&str, &str)] = &[
    (".code-workspace", "VS Code"),
    (".sublime-project", "Sublime Text"),
    (".iml", "IntelliJ"),
    (".pth", "Python"),
    (".gemspec", "bundler"),
    (".gradle", "gradle"),
    (".gradle.kts", "gradle"),
    (".csproj", "MSBuild"),
    (".fsproj", "MSBuild"),
    (".mk", "make"),
    (".dockerfile", "docker"),
];

/// Whole file names. Case is ignored.
const FILES: &[(&str, &str)] = &[
    // git and what hooks into it
    (".gitmodules", "git"),
    (".gitattributes", "git"),
    (".gitconfig", "git"),
    (".lfsconfig", "git-lfs"),
    (".pre-commit-config.yaml", "pre-commit"),
    (".pre-commit-config.yml", "pre-commit"),
    (".pre-commit-hooks.yaml", "pre-commit"),
    ("lefthook.yml", "lefthook"),
    ("lefthook.yaml", "lefthook"),
    ("lefthook.toml", "lefthook"),
    ("lefthook-local.yml", "lefthook"),
    (".huskyrc", "husky"),
    (".lintstagedrc", "lint-staged"),
    (".lintstagedrc.json", "lint-staged"),
    // shells and version managers
    (".envrc", "direnv"),
    (".env", "dotenv"),
    (".autoenv", "autoenv"),
    (".autoenv.zsh", "autoenv"),
    (".in", "autoenv"),
    (".tool-versions", "asdf"),
    ("mise.toml", "mise"),
    (".mise.toml", "mise"),
    ("mise.local.toml", "mise"),
    (".rtx.toml", "mise"),
    (".bashrc", "bash"),
    (".bash_profile", "bash"),
    (".profile", "shell"),
    (".zshrc", "zsh"),
    (".zshenv", "zsh"),
    ("shell.nix", "nix"),
    ("default.nix", "nix"),
    ("flake.nix", "nix"),
    ("devbox.json", "devbox"),
    ("devenv.nix", "devenv"),
    // editors
    (".exrc", "vim"),
    (".vimrc", "vim"),
    (".nvimrc", "nvim"),
    (".nvim.lua", "nvim"),
    (".lvimrc", "vim"),
    (".dir-locals.el", "emacs"),
    (".dir-locals-2.el", "emacs"),
    (".gdbinit", "gdb"),
    (".lldbinit", "lldb"),
    // package managers and builds
    ("package.json", "npm"),
    (".npmrc", "npm"),
    (".pnpmfile.cjs", "pnpm"),
    ("pnpm-workspace.yaml", "pnpm"),
    (".yarnrc", "yarn"),
    (".yarnrc.yml", "yarn"),
    ("bunfig.toml", "bun"),
    ("deno.json", "deno"),
    ("deno.jsonc", "deno"),
    ("binding.gyp", "node-gyp"),
    ("pyproject.toml", "Python"),
    ("setup.py", "Python"),
    ("setup.cfg", "Python"),
    ("conftest.py", "pytest"),
    ("pytest.ini", "pytest"),
    ("tox.ini", "tox"),
    ("noxfile.py", "nox"),
    ("sitecustomize.py", "Python"),
    ("usercustomize.py", "Python"),
    (".pythonrc", "Python"),
    ("manage.py", "Django"),
    ("Cargo.toml", "cargo"),
    ("build.rs", "cargo"),
    ("rust-toolchain", "rustup"),
    ("rust-toolchain.toml", "rustup"),
    ("go.mod", "go"),
    ("go.work", "go"),
    ("Gemfile", "bundler"),
    ("Rakefile", "rake"),
    (".irbrc", "irb"),
    (".pryrc", "pry"),
    ("composer.json", "composer"),
    ("pom.xml", "maven"),
    ("mvnw", "maven"),
    ("gradlew", "gradle"),
    ("gradle.properties", "gradle"),
    ("gradle-wrapper.properties", "gradle"),
    ("build.sbt", "sbt"),
    ("mix.exs", "mix"),
    ("Package.swift", "swift"),
    ("Podfile", "CocoaPods"),
    ("Directory.Build.props", "MSBuild"),
    ("Directory.Build.targets", "MSBuild"),
    ("nuget.config", "NuGet"),
    ("CMakeLists.txt", "cmake"),
    ("CMakePresets.json", "cmake"),
    ("meson.build", "meson"),
    ("configure", "configure"),
    ("WORKSPACE", "bazel"),
    ("MODULE.bazel", "bazel"),
    (".bazelrc", "bazel"),
    ("BUILD.bazel", "bazel"),
    // task runners
    ("Makefile", "make"),
    ("GNUmakefile", "make"),
    ("justfile", "just"),
    (".justfile", "just"),
    ("Taskfile.yml", "task"),
    ("Taskfile.yaml", "task"),
    ("Procfile", "foreman"),
    ("Vagrantfile", "vagrant"),
    ("Dockerfile", "docker"),
    ("Containerfile", "podman"),
    ("compose.yml", "docker"),
    ("compose.yaml", "docker"),
    ("docker-compose.yml", "docker"),
    ("docker-compose.yaml", "docker"),
    (".devcontainer.json", "devcontainer"),
    ("Tiltfile", "tilt"),
    ("skaffold.yaml", "skaffold"),
    ("gruntfile.js", "grunt"),
    ("gulpfile.js", "gulp"),
    // tools that run their own settings as programs
    (".eslintrc.js", "eslint"),
    (".eslintrc.cjs", "eslint"),
    ("eslint.config.js", "eslint"),
    ("eslint.config.mjs", "eslint"),
    ("eslint.config.cjs", "eslint"),
    (".prettierrc.js", "prettier"),
    (".prettierrc.cjs", "prettier"),
    ("prettier.config.js", "prettier"),
    ("vite.config.js", "vite"),
    ("vite.config.ts", "vite"),
    ("vitest.config.js", "vitest"),
    ("vitest.config.ts", "vitest"),
    ("jest.config.js", "jest"),
    ("jest.config.ts", "jest"),
    ("webpack.config.js", "webpack"),
    ("rollup.config.js", "rollup"),
    ("babel.config.js", "babel"),
    ("tailwind.config.js", "tailwind"),
    ("tailwind.config.ts", "tailwind"),
    ("next.config.js", "next"),
    ("next.config.mjs", "next"),
    ("next.config.ts", "next"),
    (".rubocop.yml", "rubocop"),
    (".terraformrc", "terraform"),
    ("ansible.cfg", "ansible"),
    // build services
    (".gitlab-ci.yml", "GitLab CI"),
    ("Jenkinsfile", "Jenkins"),
    (".travis.yml", "Travis CI"),
    ("azure-pipelines.yml", "Azure Pipelines"),
    ("bitbucket-pipelines.yml", "Bitbucket Pipelines"),
    (".drone.yml", "Drone"),
    ("cloudbuild.yaml", "Cloud Build"),
    // what agents obey
    ("CLAUDE.md", "Claude Code"),
    ("CLAUDE.local.md", "Claude Code"),
    ("AGENTS.md", "coding agents"),
    ("AGENTS.override.md", "coding agents"),
    ("GEMINI.md", "Gemini CLI"),
    (".mcp.json", "coding agents"),
    ("mcp.json", "coding agents"),
    (".cursorrules", "Cursor"),
    (".windsurfrules", "Windsurf"),
    (".clinerules", "Cline"),
    (".goosehints", "Goose"),
    (".aider.conf.yml", "aider"),
    ("opencode.json", "opencode"),
    // this program
    ("gateway.toml", "gateway"),
];

/// Folders in which every file counts. Case is ignored.
const FOLDERS: &[(&str, &str)] = &[
    (".githooks", "git"),
    (".husky", "husky"),
    (".vscode", "VS Code"),
    (".idea", "IntelliJ"),
    (".fleet", "Fleet"),
    (".zed", "Zed"),
    (".vim", "vim"),
    (".nvim", "nvim"),
    (".devcontainer", "devcontainer"),
    (".cargo", "cargo"),
    (".mvn", "maven"),
    (".yarn", "yarn"),
    (".bundle", "bundler"),
    (".config", "tools"),
    (".mise", "mise"),
    (".ipython", "IPython"),
    (".github", "GitHub Actions"),
    (".gitea", "Gitea Actions"),
    (".forgejo", "Forgejo Actions"),
    (".circleci", "CircleCI"),
    (".buildkite", "Buildkite"),
    (".claude", "Claude Code"),
    (".cursor", "Cursor"),
    (".codex", "Codex"),
    (".gemini", "Gemini CLI"),
    (".windsurf", "Windsurf"),
    (".clinerules", "Cline"),
    (".roo", "Roo Code"),
    (".continue", "Continue"),
    (".amazonq", "Amazon Q"),
    (".opencode", "opencode"),
    (".kiro", "Kiro"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case_and_by_their_endings() {
        for (name, tool) in [
            ("makefile", "make"),
            ("package.json", "npm"),
            ("app.gradle.kts", "gradle"),
            ("claude.md", "Claude Code"),
        ] {
            assert_eq!(file(OsStr::new(name)), Some(tool), "{name}");
        }
        assert_eq!(file(OsStr::new("main.c")), None);
        assert_eq!(folder(OsStr::new(".VSCode")), Some("VS Code"));
        assert_eq!(folder(OsStr::new("src")), None);
    }
}
