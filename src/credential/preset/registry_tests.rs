//! Registries in the user's own files, and their mapping into the sandbox.

use std::collections::BTreeMap;

use super::{PackageRegistry, RegistryDoubt, RegistryMapping, UserConfig, all, named};

struct Machine {
    root: tempfile::TempDir,
    variables: BTreeMap<String, String>,
}

impl Machine {
    fn with(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables = variables.iter().map(own).collect();
        Self { root, variables }
    }

    fn mapping(&self, preset: &str) -> Result<RegistryMapping, RegistryDoubt> {
        let [home, system] = ["home", "system"].map(|name| self.root.path().join(name));
        registry(preset).mapping(&UserConfig::below(&home, &system, self.variables.clone()))
    }
}

fn registry(preset: &str) -> &'static PackageRegistry {
    named(preset).unwrap().registry.as_ref().unwrap()
}

/// Returns the mapping of some files, and checks that it holds no credential from them.
#[track_caller]
fn found(preset: &str, files: &[(&str, &str)], variables: &[(&str, &str)]) -> RegistryMapping {
    let found = Machine::with(files, variables).mapping(preset).unwrap();
    assert!(!format!("{found:?}").contains("CANARY"), "{found:?}");
    found
}

fn origins(found: &RegistryMapping) -> Vec<String> {
    found.origins.iter().map(ToString::to_string).collect()
}

#[test]
fn without_files_of_ones_own_the_public_registry_is_asked() {
    for preset in all().filter(|preset| preset.registry.is_some()) {
        let found = found(&preset.name, &[], &[]);
        assert_eq!(found, RegistryMapping::default(), "{}", preset.name);
    }
}

#[test]
fn scopes_of_npm_are_told_by_a_file() {
    let npmrc = "; comment\nregistry = \"https://npm.example/path/\" ; note\n\
                 @corp:registry=https://u:CANARY@corp.example:8443/?t=CANARY\n\
                 //npm.example/:_authToken=CANARY\n_auth=CANARY\nemail = a@b.example\n";
    let system = "registry=https://overridden.example/\n@far:registry=http://clear.example/\n";
    let files = [("home/.npmrc", npmrc), ("system/etc/npmrc", system)];
    let found = found(
        "npm",
        &files,
        &[("npm_config_@env:registry", "https://env.example/")],
    );
    let hosts = [
        "overridden.example",
        "npm.example",
        "corp.example:8443",
        "env.example",
    ];
    assert_eq!(origins(&found), hosts.map(|host| format!("https://{host}")));
    assert_eq!(
        found.variables["npm_config_registry"],
        "https://npm.example/path/"
    );
    let told = "registry=https://npm.example/path/\n@corp:registry=https://corp.example:8443/\n\
                @env:registry=https://env.example/\n@far:registry=http://clear.example/\n";
    assert_eq!(found.files[std::path::Path::new(".npmrc")], told);
    assert!(found.replaces_public);
}

#[test]
fn a_scope_alone_leaves_the_public_registry_in_its_place() {
    for files in [
        [("home/.npmrc", "@corp:registry=https://corp.example/\n")],
        [(
            "home/.npmrc",
            "@c:registry=https://corp.example/\nregistry=https://registry.npmjs.org/\n",
        )],
    ] {
        let found = found("npm", &files, &[]);
        assert!(!found.replaces_public, "{files:?}");
        assert!(origins(&found).contains(&"https://corp.example".to_owned()));
        let told = found.files.values().next().unwrap();
        assert!(told.contains("https://corp.example/"), "{told}");
    }
}

#[test]
fn indexes_of_pip_and_uv_are_told_by_variables() {
    let pip = "[global]\nindex-url = https://user:CANARY@index.example/simple\nextra_index_url =\n    \
               https://one.example/simple\n    https://CANARY@two.example/simple\n";
    let pypirc = "[corp]\nrepository: https://upload.example/legacy/\npassword = CANARY\n";
    let uv = "[[index]]\nname = \"x\"\nurl = \"https://CANARY@uv.example/simple\"\n";
    let files = [
        ("home/.config/pip/pip.conf", pip),
        ("home/.pypirc", pypirc),
        ("home/.config/uv/uv.toml", uv),
    ];
    let found = found("pypi", &files, &[]);
    let hosts = ["index", "one", "two", "upload", "uv"];
    assert_eq!(
        origins(&found),
        hosts.map(|host| format!("https://{host}.example"))
    );
    for (name, value) in [
        ("PIP_INDEX_URL", "https://index.example/simple"),
        ("UV_DEFAULT_INDEX", "https://index.example/simple"),
        (
            "PIP_EXTRA_INDEX_URL",
            "https://one.example/simple https://two.example/simple",
        ),
        ("UV_INDEX", "x=https://uv.example/simple"),
    ] {
        assert_eq!(found.variables[name], value);
    }
    assert!(found.replaces_public);
}

#[test]
fn a_variable_stands_above_files_and_loses_its_credential() {
    let files = [(
        "home/.pip/pip.conf",
        "[global]\nindex-url = https://file.example/\n",
    )];
    let variable = [("PIP_INDEX_URL", "https://CANARY@pypi.org/simple")];
    let found = found("pypi", &files, &variable);
    assert_eq!(found.variables["PIP_INDEX_URL"], "https://pypi.org/simple");
}

#[test]
fn cargo_gets_its_sources_and_registries_by_a_file() {
    let config = "[source.crates-io]\nreplace-with = \"m\"\n\
                  [source.m]\nregistry = \"sparse+https://m.example/index/\"\n\
                  [registries.corp]\nindex = \"https://u:CANARY@corp.example/git\"\ntoken = \"CANARY\"\n\
                  [registries.ssh]\nindex = \"ssh://git@corp.example/x\"\n\
                  [registry]\ntoken = \"CANARY\"\ndefault = \"corp\"\n[build]\njobs = 1\n";
    let variable = [("CARGO_REGISTRIES_X_INDEX", "sparse+https://x.example/")];
    let found = found("crates", &[("home/.cargo/config.toml", config)], &variable);
    let hosts = ["x", "m", "corp"].map(|host| format!("https://{host}.example"));
    assert_eq!(origins(&found), hosts);
    assert!(found.replaces_public);
    let told = &found.files[std::path::Path::new(".cargo/config.toml")];
    for part in [
        "sparse+https://m.example/index/",
        "replace-with = \"m\"",
        "default = \"corp\"",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!told.contains("jobs"), "{told}");
}

#[test]
fn go_is_told_what_its_files_say() {
    let env = "GOPROXY=https://u:CANARY@go.example,direct\nGOPRIVATE=corp.example/*\nGOFLAGS=-x\n";
    let go = found("go", &[("home/.config/go/env", env)], &[]);
    assert!(go.replaces_public);
    assert_eq!(go.variables["GOPROXY"], "https://go.example,direct");
    assert_eq!(go.variables["GOPRIVATE"], "corp.example/*");
    assert_eq!(go.variables.len(), 2);
    let both = [(
        "GOPROXY",
        "https://go.example,https://proxy.golang.org,direct",
    )];
    assert!(!found("go", &[], &both).replaces_public);
}

#[test]
fn where_a_client_cannot_be_told_the_public_registry_is_not_asked() {
    let config =
        "[source.crates-io]\nreplace-with = \"m\"\n[source.m]\nregistry = \"https://m.example/\"\n";
    let machine = Machine::with(&[("cargo/config.toml", config)], &[]);
    let elsewhere = machine.root.path().join("cargo").display().to_string();
    let variables = [("CARGO_HOME".to_owned(), elsewhere)].into();
    let machine = Machine {
        variables,
        ..machine
    };
    let found = machine.mapping("crates").unwrap();
    assert_eq!(origins(&found), ["https://m.example"]);
    assert!(found.replaces_public && found.files.is_empty());
    let file = machine.root.path().join("cargo/config.toml");
    assert_eq!(found.untold, Some(file));
}

#[test]
fn a_setting_that_cannot_be_read_is_a_doubt_that_names_its_place_alone() {
    for (preset, path, text, place) in [
        (
            "npm",
            "home/.npmrc",
            "a=b\n@corp:registry=CANARY\n",
            ".npmrc`, line 2: ",
        ),
        (
            "npm",
            "home/.npmrc",
            "registry=https://${CANARY}/\n",
            "names a variable",
        ),
        (
            "npm",
            "home/.npmrc",
            "registry=https://npm.example/npm_CANARY0123456789abcd/\n",
            "line 1",
        ),
        (
            "npm",
            "home/.npmrc",
            "registry=https://npm.example/CANARY0123456789/npm/\n",
            "line 1",
        ),
        (
            "pypi",
            "home/.config/uv/uv.toml",
            "x = 1\nindex-url = CANARY\n",
            "uv.toml`, line 2: ",
        ),
        (
            "crates",
            "home/.cargo/config.toml",
            "[registry\ntoken = \"CANARY\"\n",
            "line 1",
        ),
    ] {
        let doubt = Machine::with(&[(path, text)], &[])
            .mapping(preset)
            .unwrap_err();
        let said = doubt.to_string();
        assert!(said.contains(place) && !said.contains("CANARY"), "{said}");
    }
    let latin = Machine::with(&[("home/.npmrc", "")], &[]);
    std::fs::write(latin.root.path().join("home/.npmrc"), b"registry=\xff\n").unwrap();
    assert!(latin.mapping("npm").is_err());
}
