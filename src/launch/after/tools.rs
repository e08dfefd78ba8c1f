//! Which files tools outside run, or obey, without being given their names.
//!
//! No list of names is complete. So a file counts in any case if its name, or that of a folder
//! around it, begins with a dot ([`super::survey::Reader::Unknown`]).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

/// Returns the tool that reads a file of this name.
pub fn file(name: &OsStr) -> Option<&'static str> {
    let name = name.as_bytes().to_ascii_lowercase();
    let fits = |(beginning, ending, _): &&(&str, &str, _)| {
        name.starts_with(beginning.as_bytes()) && name.ends_with(ending.as_bytes())
    };
    let whole = BY_NAME.get(&name).copied();
    let dots = memchr::memchr_iter(b'.', &name);
    let by_ending = || {
        dots.clone()
            .find_map(|at| BY_ENDING.get(&name[at..]).copied())
    };
    let by_both = || Some(PATTERNS.iter().find(fits)?.2);
    whole.or_else(by_ending).or_else(by_both)
}

/// Returns the tool that reads everything in a folder of this name.
pub fn folder(name: &OsStr) -> Option<&'static str> {
    let name = name.as_bytes().to_ascii_lowercase();
    let is_package = PACKAGES
        .iter()
        .any(|ending| name.ends_with(ending.as_bytes()));
    let whole = FOLDERS_BY_NAME.get(&name).copied();
    whole.or(is_package.then_some("Xcode"))
}

static BY_NAME: LazyLock<HashMap<Vec<u8>, &'static str>> = LazyLock::new(|| by_name(FILES));
static BY_ENDING: LazyLock<HashMap<&[u8], &'static str>> = LazyLock::new(|| {
    let endings = ENDINGS.iter();
    endings
        .map(|(ending, tool)| (ending.as_bytes(), *tool))
        .collect()
});
static FOLDERS_BY_NAME: LazyLock<HashMap<Vec<u8>, &'static str>> =
    LazyLock::new(|| by_name(FOLDERS));

fn by_name(tools: &[(&'static str, &[&str])]) -> HashMap<Vec<u8>, &'static str> {
    let names = tools
        .iter()
        .flat_map(|(tool, names)| names.iter().map(move |name| (name, tool)));
    names
        .map(|(name, tool)| (name.to_ascii_lowercase().into_bytes(), *tool))
        .collect()
}

/// Endings of names, in lower case and from a dot on, each with the tool.
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
    (".sublime-workspace", "Sublime Text"),
    (".sublime-build", "Sublime Text"),
    (".rproj", "RStudio"),
    (".cabal", "cabal"),
    (".opam", "opam"),
    (".rockspec", "LuaRocks"),
    (".podspec", "CocoaPods"),
    (".nimble", "nimble"),
    (".cmake", "cmake"),
    (".bzl", "bazel"),
    (".bazel", "bazel"),
    (".sbt", "sbt"),
    (".tf", "terraform"),
    (".tf.json", "terraform"),
    (".sln", "MSBuild"),
    (".slnx", "MSBuild"),
    (".vbproj", "MSBuild"),
    (".vcxproj", "MSBuild"),
    (".props", "MSBuild"),
    (".targets", "MSBuild"),
    (".launch", "Eclipse"),
    (".pbxproj", "Xcode"),
    (".xcscheme", "Xcode"),
    (".pro", "qmake"),
    (".el.gz", "emacs"),
    (".config.js", "JavaScript tools"),
    (".config.cjs", "JavaScript tools"),
    (".config.mjs", "JavaScript tools"),
    (".config.ts", "JavaScript tools"),
    (".config.mts", "JavaScript tools"),
    (".config.cts", "JavaScript tools"),
    (".config.json", "JavaScript tools"),
    (".workspace.ts", "JavaScript tools"),
];

/// Beginnings and endings of names, in lower case, each with the tool.
const PATTERNS: &[(&str, &str, &str)] = &[
    ("makefile", "", "make"),
    ("dockerfile", "", "docker"),
    ("containerfile", "", "podman"),
    ("docker-compose", ".yml", "docker"),
    ("docker-compose", ".yaml", "docker"),
    ("compose", ".yml", "docker"),
    ("compose", ".yaml", "docker"),
    ("taskfile", ".yml", "task"),
    ("taskfile", ".yaml", "task"),
    ("mise", ".toml", "mise"),
    ("lefthook", ".yml", "lefthook"),
    ("lefthook", ".yaml", "lefthook"),
    ("lefthook", ".toml", "lefthook"),
    ("requirements", ".txt", "pip"),
    ("tsconfig", ".json", "TypeScript"),
    (".eslintrc", "", "eslint"),
    (".prettierrc", "", "prettier"),
    (".lintstagedrc", "", "lint-staged"),
    (".huskyrc", "", "husky"),
    (".env", "", "dotenv"),
    (".babelrc", "", "babel"),
    (".commitlintrc", "", "commitlint"),
    (".stylelintrc", "", "stylelint"),
    (".releaserc", "", "semantic-release"),
    (".golangci", "", "golangci-lint"),
    (".pre-commit", ".yaml", "pre-commit"),
];

/// Endings of folders in which every file counts.
const PACKAGES: &[&str] = &[".xcodeproj", ".xcworkspace"];

/// Tools, each with whole names of files. Case is ignored.
const FILES: &[(&str, &[&str])] = &[
    ("aider", &[".aider.conf.yml", ".aider.model.settings.yml"]),
    ("ansible", &["ansible.cfg"]),
    ("ant", &["build.xml"]),
    ("Apache", &[".htaccess"]),
    ("AppVeyor", &["appveyor.yml", ".appveyor.yml"]),
    ("asdf", &[".tool-versions"]),
    ("autoenv", &[".autoenv", ".autoenv.zsh", ".in"]),
    ("autotools", &["configure.ac"]),
    ("Azure Pipelines", &["azure-pipelines.yml"]),
    ("bash", &[".bashrc", ".bash_profile", ".bash_aliases"]),
    (
        "bazel",
        &[
            "WORKSPACE",
            "MODULE.bazel",
            ".bazelrc",
            "BUILD.bazel",
            "WORKSPACE.bazel",
            "WORKSPACE.bzlmod",
            "BUILD",
            ".bazeliskrc",
            ".bazelversion",
        ],
    ),
    ("Bitbucket Pipelines", &["bitbucket-pipelines.yml"]),
    ("Buck", &[".buckconfig", "BUCK"]),
    ("Buildbot", &["buildout.cfg"]),
    ("bun", &["bunfig.toml", "bun.lock", "bun.lockb"]),
    ("bundler", &["Gemfile", "Gemfile.lock", "gems.rb"]),
    ("CaptainHook", &["captainhook.json", ".captainhook.json"]),
    ("cargo", &["Cargo.toml", "build.rs", "Cargo.lock"]),
    ("CDK", &["cdk.json"]),
    ("Cirrus", &[".cirrus.yml"]),
    (
        "clangd",
        &[".clangd", "compile_commands.json", "compile_flags.txt"],
    ),
    ("Claude Code", &["CLAUDE.md", "CLAUDE.local.md"]),
    ("Cline", &[".clinerules"]),
    ("Clojure", &["project.clj", "deps.edn"]),
    ("Cloud Build", &["cloudbuild.yaml"]),
    (
        "cmake",
        &[
            "CMakeLists.txt",
            "CMakePresets.json",
            "CMakeUserPresets.json",
        ],
    ),
    ("CocoaPods", &["Podfile"]),
    ("CodeBuild", &["buildspec.yml"]),
    (
        "a coding agent",
        &[
            "AGENTS.md",
            "AGENTS.override.md",
            ".mcp.json",
            "mcp.json",
            "AGENT.md",
            "SKILL.md",
            ".rules",
        ],
    ),
    ("composer", &["composer.json", "composer.lock"]),
    ("Conan", &["conanfile.py", "conanfile.txt"]),
    ("configure", &["configure"]),
    ("coverage", &[".coveragerc"]),
    ("cross", &["Cross.toml"]),
    ("Crush", &["crush.json", ".crush.json", "CRUSH.md"]),
    ("curl", &[".curlrc"]),
    ("Cursor", &[".cursorrules"]),
    ("deno", &["deno.json", "deno.jsonc"]),
    ("devbox", &["devbox.json"]),
    ("devcontainer", &[".devcontainer.json"]),
    ("devenv", &["devenv.nix"]),
    ("devfile", &["devfile.yaml"]),
    ("direnv", &[".envrc"]),
    ("Django", &["manage.py"]),
    ("doit", &["dodo.py"]),
    ("dotenv", &[".env"]),
    ("Drone", &[".drone.yml"]),
    ("dub", &["dub.json", "dub.sdl"]),
    ("dune", &["dune", "dune-project"]),
    ("earthly", &["Earthfile"]),
    ("Eclipse", &[".project", ".classpath"]),
    (
        "emacs",
        &[".dir-locals.el", ".dir-locals-2.el", ".projectile"],
    ),
    ("fabric", &["fabfile.py"]),
    ("Firebase", &["firebase.json"]),
    ("flake8", &[".flake8"]),
    ("foreman", &["Procfile"]),
    ("Fossil", &[".fslckout", "_FOSSIL_"]),
    ("gateway", &["gateway.toml"]),
    ("gdb", &[".gdbinit", ".gdbinit.py"]),
    ("Gemini CLI", &["GEMINI.md"]),
    ("GHC", &[".ghci", "hie.yaml", "Setup.hs"]),
    (
        "git",
        &[
            ".gitmodules",
            ".gitattributes",
            ".gitconfig",
            ".git-blame-ignore-revs",
        ],
    ),
    ("git-lfs", &[".lfsconfig"]),
    ("GitLab CI", &[".gitlab-ci.yml"]),
    ("Gitpod", &[".gitpod.yml"]),
    ("go", &["go.mod", "go.work", "go.sum"]),
    ("Goose", &[".goosehints"]),
    (
        "gradle",
        &[
            "gradlew",
            "gradle.properties",
            "gradle-wrapper.properties",
            "gradle-wrapper.jar",
            "gradlew.bat",
        ],
    ),
    ("grunt", &["gruntfile.js"]),
    ("guard", &["Guardfile"]),
    ("gulp", &["gulpfile.js"]),
    ("hatch", &["hatch.toml"]),
    ("hivemind", &["Procfile.dev"]),
    ("invoke", &["tasks.py"]),
    ("irb", &[".irbrc"]),
    ("Jenkins", &["Jenkinsfile"]),
    ("jenv", &[".java-version"]),
    (
        "Jupyter",
        &["jupyter_notebook_config.py", "jupyter_server_config.py"],
    ),
    ("just", &["justfile", ".justfile"]),
    ("karma", &["karma.conf.js"]),
    ("kate", &[".kateproject"]),
    ("Kilo Code", &[".kilocodemodes"]),
    ("lerna", &["lerna.json"]),
    ("lldb", &[".lldbinit"]),
    ("Lua", &[".luacheckrc", ".luarc.json", ".lite_project.lua"]),
    ("mage", &["magefile.go"]),
    ("make", &["GNUmakefile"]),
    (
        "maven",
        &["pom.xml", "mvnw", "mvnw.cmd", "maven-wrapper.jar"],
    ),
    ("meson", &["meson.build"]),
    ("mill", &["build.sc", "build.mill"]),
    ("mise", &[".mise.toml", ".rtx.toml", ".mise.local.toml"]),
    ("mix", &["mix.exs", ".iex.exs", ".formatter.exs"]),
    ("mocha", &[".mocharc.js", ".mocharc.cjs", ".mocharc.json"]),
    (
        "MSBuild",
        &[
            "Directory.Build.props",
            "Directory.Build.targets",
            "global.json",
        ],
    ),
    ("mypy", &["mypy.ini", ".mypy.ini"]),
    ("nano", &[".nanorc"]),
    ("Netlify", &["netlify.toml"]),
    ("netrc", &[".netrc"]),
    ("nim", &["config.nims"]),
    ("ninja", &["build.ninja"]),
    ("nix", &["shell.nix", "default.nix", "flake.nix"]),
    ("node-gyp", &["binding.gyp"]),
    ("nox", &["noxfile.py"]),
    (
        "npm",
        &[
            "package.json",
            ".npmrc",
            "package-lock.json",
            "npm-shrinkwrap.json",
            "package.json5",
            "package.yaml",
        ],
    ),
    ("NuGet", &["nuget.config"]),
    ("nvim", &[".nvimrc", ".nvim.lua"]),
    ("nvm", &[".nvmrc", ".node-version"]),
    ("nx", &["nx.json"]),
    ("OCaml", &[".ocamlinit"]),
    ("Octave", &[".octaverc", "startup.m"]),
    ("opencode", &["opencode.json", "opencode.jsonc"]),
    ("overcommit", &[".overcommit.yml"]),
    ("pdb", &[".pdbrc"]),
    ("Perl", &[".proverc", "Build.PL", "cpanfile"]),
    ("PHP", &[".user.ini", ".php-cs-fixer.php"]),
    ("PHPUnit", &["phpunit.xml", "phpunit.xml.dist"]),
    ("pipenv", &["Pipfile"]),
    ("pixi", &["pixi.toml"]),
    (
        "pnpm",
        &[
            ".pnpmfile.cjs",
            "pnpm-workspace.yaml",
            ".pnpmfile.mjs",
            "pnpm-lock.yaml",
        ],
    ),
    ("poetry", &["poetry.lock"]),
    (
        "pre-commit",
        &[
            ".pre-commit-config.yaml",
            ".pre-commit-config.yml",
            ".pre-commit-hooks.yaml",
        ],
    ),
    ("proto", &[".prototools"]),
    ("pry", &[".pryrc"]),
    ("Pulumi", &["Pulumi.yaml"]),
    ("pyenv", &[".python-version"]),
    ("pylint", &[".pylintrc", "pylintrc"]),
    ("pytest", &["conftest.py", "pytest.ini"]),
    (
        "Python",
        &[
            "pyproject.toml",
            "setup.py",
            "setup.cfg",
            "sitecustomize.py",
            "usercustomize.py",
            ".pythonrc",
        ],
    ),
    ("Qwen Code", &["QWEN.md"]),
    ("R", &[".Rprofile", ".Renviron", ".RData"]),
    ("rake", &["Rakefile"]),
    ("rbenv", &[".ruby-version"]),
    ("rdbg", &[".rdbgrc", ".byebugrc"]),
    ("readline", &[".inputrc"]),
    ("rebar", &["rebar.config", "rebar.config.script"]),
    ("Replit", &[".replit"]),
    ("Roo Code", &[".roomodes", ".roorules"]),
    ("rspec", &[".rspec"]),
    ("rubocop", &[".rubocop.yml"]),
    ("ruff", &["ruff.toml", ".ruff.toml"]),
    ("rust-analyzer", &["rust-analyzer.toml"]),
    ("rustup", &["rust-toolchain", "rust-toolchain.toml"]),
    ("sbt", &["build.sbt", "plugins.sbt"]),
    ("SCons", &["SConstruct", "SConscript"]),
    ("screen", &[".screenrc"]),
    ("SDKMAN", &[".sdkmanrc"]),
    ("serverless", &["serverless.yml"]),
    ("shards", &["shard.yml"]),
    ("shell", &[".profile"]),
    (
        "simple-git-hooks",
        &[".simple-git-hooks.json", ".simple-git-hooks.js"],
    ),
    ("skaffold", &["skaffold.yaml"]),
    ("stack", &["stack.yaml"]),
    ("swift", &["Package.swift"]),
    ("terraform", &[".terraformrc"]),
    ("terragrunt", &["terragrunt.hcl"]),
    ("thor", &["Thorfile"]),
    ("tilt", &["Tiltfile"]),
    ("tmux", &[".tmux.conf"]),
    ("tmuxinator", &[".tmuxinator.yml"]),
    ("tox", &["tox.ini"]),
    ("Travis CI", &[".travis.yml"]),
    ("turbo", &["turbo.json"]),
    ("TypeScript", &["jsconfig.json"]),
    ("uv", &["uv.toml", "uv.lock"]),
    ("vagrant", &["Vagrantfile"]),
    ("valgrind", &[".valgrindrc"]),
    ("Vercel", &["vercel.json"]),
    ("vim", &[".exrc", ".vimrc", ".lvimrc"]),
    ("waf", &["wscript"]),
    ("Warp", &["WARP.md"]),
    ("wget", &[".wgetrc"]),
    ("Windsurf", &[".windsurfrules"]),
    ("Woodpecker", &[".woodpecker.yml"]),
    (
        "Wrangler",
        &["wrangler.toml", "wrangler.json", "wrangler.jsonc"],
    ),
    (
        "yarn",
        &[
            ".yarnrc",
            ".yarnrc.yml",
            "yarn.lock",
            ".pnp.cjs",
            ".pnp.loader.mjs",
        ],
    ),
    ("YouCompleteMe", &[".ycm_extra_conf.py"]),
    ("zig", &["build.zig", "build.zig.zon"]),
    ("zsh", &[".zshrc", ".zshenv", ".zprofile", ".zlogin"]),
];

/// Tools, each with folders in which every file counts. Case is ignored.
const FOLDERS: &[(&str, &[&str])] = &[
    ("Amazon Q", &[".amazonq"]),
    ("Amp", &[".amp"]),
    ("Augment", &[".augment"]),
    ("AWS", &[".aws"]),
    ("Bazaar", &[".bzr"]),
    ("Buildkite", &[".buildkite"]),
    ("bundler", &[".bundle"]),
    ("cargo", &[".cargo"]),
    ("CircleCI", &[".circleci"]),
    ("Claude Code", &[".claude", ".claude-plugin"]),
    ("Cline", &[".clinerules"]),
    ("CodeSandbox", &[".codesandbox"]),
    ("Codex", &[".codex"]),
    ("a coding agent", &[".agents", ".agent", ".mcp"]),
    ("Continue", &[".continue"]),
    ("Cursor", &[".cursor"]),
    ("Darcs", &["_darcs"]),
    ("devcontainer", &[".devcontainer"]),
    ("direnv", &[".direnv"]),
    ("Eclipse", &[".externalToolBuilders"]),
    ("emacs", &[".emacs.d"]),
    ("Factory", &[".factory"]),
    ("Fleet", &[".fleet"]),
    ("Forgejo Actions", &[".forgejo"]),
    ("Gemini CLI", &[".gemini"]),
    ("git", &[".githooks", ".hooks"]),
    ("Gitea Actions", &[".gitea"]),
    ("GitHub Actions", &[".github"]),
    ("Goose", &[".goose"]),
    ("Helix", &[".helix"]),
    ("husky", &[".husky"]),
    ("IDX", &[".idx"]),
    ("IntelliJ", &[".idea"]),
    ("IPython", &[".ipython"]),
    ("Jujutsu", &[".jj"]),
    ("Junie", &[".junie"]),
    ("Kiro", &[".kiro"]),
    ("kubectl", &[".kube"]),
    ("maven", &[".mvn"]),
    ("Mercurial", &[".hg"]),
    ("mise", &[".mise", "mise"]),
    ("nvim", &[".nvim"]),
    ("opencode", &[".opencode"]),
    ("OpenHands", &[".openhands"]),
    ("overcommit", &[".overcommit"]),
    ("pi", &[".pi"]),
    ("Pijul", &[".pijul"]),
    ("Qwen Code", &[".qwen"]),
    ("Roo Code", &[".roo"]),
    ("Sapling", &[".sl"]),
    ("Semaphore", &[".semaphore"]),
    ("Subversion", &[".svn"]),
    ("TeamCity", &[".teamcity"]),
    ("Tekton", &[".tekton"]),
    ("terraform", &[".terraform"]),
    ("tools", &[".config"]),
    ("Trae", &[".trae"]),
    ("vim", &[".vim"]),
    ("VS Code", &[".vscode"]),
    ("Windsurf", &[".windsurf"]),
    ("Woodpecker", &[".woodpecker"]),
    ("yarn", &[".yarn"]),
    ("Zed", &[".zed"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case_and_by_their_parts() {
        for (name, tool) in [
            ("makefile", "make"),
            ("package.json", "npm"),
            ("app.gradle.kts", "gradle"),
            ("claude.md", "Claude Code"),
            ("astro.config.mts", "JavaScript tools"),
            ("docker-compose.override.yml", "docker"),
            ("App.vbproj", "MSBuild"),
        ] {
            assert_eq!(file(OsStr::new(name)), Some(tool), "{name}");
        }
        for name in ["main.c", "config.js", "src", "provide.rs"] {
            assert_eq!(file(OsStr::new(name)), None, "{name}");
        }
        for (name, tool) in [
            (".VSCode", "VS Code"),
            (".hg", "Mercurial"),
            ("_darcs", "Darcs"),
            ("App.xcodeproj", "Xcode"),
        ] {
            assert_eq!(folder(OsStr::new(name)), Some(tool), "{name}");
        }
        assert_eq!(folder(OsStr::new("src")), None);
    }
}
