//! What a preset's named permission leaves of its service, whatever else permits it.

use std::fs;
use std::path::Path;

use crate::desk::Desk;
use crate::mints::{first, host, name, texts};

const ALL: &str = "permit(principal, action, resource);\n";
const SECRET: &str = "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17aaQw";
const UPGRADE: &str = "--http1.1 -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' \
                       -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='";

/// A request: what `curl` is told, and whether the permission leaves it.
struct Row(String, bool);

fn presets() -> Vec<toml::Table> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/services");
    let files = fs::read_dir(folder).unwrap();
    let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let all = texts.map(|text| text.parse::<toml::Table>().unwrap());
    let all = all.filter(|preset| preset.contains_key("permission"));
    all.collect()
}

fn graphql(host: &str, path: &str, document: &str) -> String {
    format!(
        "-H 'Content-Type: application/json' --data '{{\"query\":\"{document}\"}}' https://{host}{path}"
    )
}

/// The requests of a preset's `read`.
fn rows(preset: &toml::Table, host: &str) -> Vec<Row> {
    let row =
        |what: &str, path: &str, is_left| Row(format!("{what} https://{host}{path}"), is_left);
    let mut rows = vec![row("", "/x", true), row(UPGRADE, "/x", false)];
    let methods = ["POST", "PUT", "PATCH", "DELETE", "REPORT"];
    rows.extend(methods.map(|method| row(&format!("-X {method}"), "/x", false)));
    let read = first(preset, "permission").unwrap();
    assert_eq!(read["name"].as_str(), Some("read"));
    let list = |name| {
        read.get(name)
            .map(|_| texts(read, name))
            .unwrap_or_default()
    };
    // `METHOD [HOST]/PATH$`
    let parts = |text: &str| {
        let (method, rest) = text.split_once(' ').expect("reading is left to one method");
        let (at, path) = rest.split_at(rest.find('/').unwrap());
        let at = if at.is_empty() { host } else { at };
        (method.to_owned(), at.to_owned(), path.replace('*', "any"))
    };
    for text in list("leaves") {
        let (method, at, path) = parts(&text);
        let path = path
            .strip_suffix('$')
            .expect("reading is left at a path alone");
        let asks = |method: &str, more| format!("-X {method} https://{at}{path}{more}");
        rows.push(Row(asks(&method, ""), true));
        for (method, more) in [
            ("DELETE", ""),
            ("PUT", ""),
            ("POST", "/more"),
            ("POST", "%2Fmore"),
        ] {
            rows.push(Row(asks(method, more), false));
        }
    }
    for text in list("but") {
        let (method, at, path) = parts(&text);
        rows.push(Row(format!("-X {method} https://{at}{path}"), false));
        rows.push(Row(format!("-X {method} https://{at}{path}/more"), false));
    }
    let endpoints = preset.get("read").and_then(|all| all.as_array());
    for endpoint in endpoints.into_iter().flatten() {
        if endpoint["as"].as_str() != Some("graphql") {
            continue;
        }
        let path = texts(endpoint.as_table().unwrap(), "paths").remove(0);
        let path = path.replace('*', "any");
        rows.extend([
            Row(graphql(host, &path, "{ viewer { id } }"), true),
            Row(graphql(host, &path, "mutation { x { id } }"), false),
            Row(
                graphql(host, &path, "query a { b } mutation c { d }"),
                false,
            ),
            Row(graphql(host, &path, "no document"), false),
            Row(format!("https://{host}{path}?query=mutation%7Ba%7D"), false),
        ]);
    }
    rows
}

/// Sends each request inside, and checks that those alone are refused that are not left.
fn check(desk: &Desk, flags: &[&str], rows: &[Row]) {
    let asks = rows.iter();
    let script: String = asks
        .map(|Row(what, _)| {
            format!("curl -sS --path-as-is {what} 2>&1 | tail -1 | cut -c1-400; echo ==\n")
        })
        .collect();
    desk.write("tools/ask", &format!("#!/bin/sh\n{script}"));
    let tools = desk.at("tools");
    let shown = ["-q", "--see", tools.to_str().unwrap()];
    let mut command = desk.command("one", &[&shown, flags, &["--", "ask"]].concat());
    command.env("GH_TOKEN", SECRET);
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let answers: Vec<&str> = told.split("==\n").collect();
    assert_eq!(answers.len(), rows.len() + 1, "{said}\n{told}");
    for (Row(what, is_left), answer) in rows.iter().zip(&answers) {
        let refuses = [
            "`permissions/",
            "policy_error",
            "[path ",
            "\"reason\":\"path\"",
        ];
        let is_refused = refuses.iter().any(|words| answer.contains(words));
        assert!(is_refused != *is_left, "{what}: {answer}\n{said}");
    }
}

#[test]
fn reading_is_left_and_nothing_else_at_every_service_that_tells_them_apart() {
    let desk = Desk::bare();
    let all = presets();
    assert!(all.len() > 20, "{}", all.len());
    let (mut asked, mut lent) = (Vec::new(), String::new());
    for preset in &all {
        let (name, mut host) = (name(preset), host(preset));
        let own = first(preset, "credential").filter(|one| one.contains_key("your_host"));
        if let Some(credential) = own {
            host = credential["your_host"].as_str().unwrap().to_lowercase();
            let variable = texts(credential, "variables").remove(0);
            lent += &format!(
                "[[credential]]\nname = \"{name}\"\npreset = \"{name}\"\nfrom = \"env:GH_TOKEN\"\n\
                 origins = [\"https://{host}\"]\nenv = [\"{variable}\"]\n"
            );
        }
        asked.extend(rows(preset, &host));
    }
    // Things that are called like what is left, a service's other hosts, and hosts of one's own.
    let collides = [
        "-X POST https://gitlab.com/api/v4/projects/1/repository/files/git-upload-pack",
        "-X DELETE https://gitlab.com/api/v4/groups/git-upload-pack",
        "-X DELETE https://api.github.com/repos/o/git-upload-pack",
        "-X POST https://api.github.com/repos/o/git-upload-pack",
        "-X PATCH https://api.hubapi.com/crm/v3/objects/contacts/search",
        "-X POST https://hub.docker.com/token",
        "-X POST https://gist.github.com/x",
        "-X POST https://gitlab.corp.test/api/v4/projects/1/packages/generic/p/1.0/git-upload-pack",
        "-X POST https://gitlab.corp.test/relative/api/v4/projects/git-upload-pack",
        "-X POST https://gitlab.corp.test/x",
        "-X POST https://gitlab.corp.test/a/b/c/api/v4/projects/git-upload-pack",
        "https://gitlab.corp.test/api/graphql?query=mutation%7Ba%7D",
        "https://gitlab.corp.test/a/b/api/graphql?query=mutation%7Ba%7D",
    ];
    asked.extend(collides.map(|what| Row(what.to_owned(), false)));
    let fetches = "-X POST https://gitlab.corp.test/relative/o/r.git/git-upload-pack";
    asked.push(Row(fetches.to_owned(), true));
    let asks = |document| graphql("gitlab.corp.test", "/api/graphql", document);
    asked.push(Row(asks("{ viewer }"), true));
    asked.push(Row(asks("mutation { a }"), false));
    for (preset, host) in [("github", "*.github.com"), ("gitlab", "gitlab.corp.test")] {
        lent += &format!(
            "[[credential]]\nname = \"own-{preset}\"\npreset = \"{preset}\"\nfrom = \"env:GH_TOKEN\"\n\
             origins = [\"https://{host}\"]\nenv = [\"OWN_{preset}\"]\n"
        );
    }
    let names = all.iter().map(|one| format!("\"{}:read\"", name(one)));
    let names: Vec<String> = names.collect();
    let text = format!(
        "[policy]\nrules = '{}'\npresets = [{}]\n{lent}",
        ALL.trim(),
        names.join(", ")
    );
    desk.write("home/all.toml", &text);
    let file = desk.at("home/all.toml").display().to_string();
    check(&desk, &["--config", &file], &asked);
}

#[test]
fn writing_to_a_repository_is_left_and_what_decides_over_it_is_not() {
    let desk = Desk::bare();
    let api = |what: &str, path: &str| format!("{what} https://api.github.com{path}");
    let asks = |document| graphql("api.github.com", "/graphql", document);
    let rows = [
        Row(api("", "/repos/o/r/hooks"), true),
        Row(api("-X POST", "/repos/o/r/issues"), true),
        Row(api("-X POST", "/repos/o/r/issues/1/comments"), true),
        Row(api("-X PUT", "/repos/o/r/pulls/1/merge"), true),
        Row(api("-X PUT", "/repos/o/r/contents/a%20b.txt"), true),
        Row(
            api("-X POST", "/repos/o/r/actions/workflows/1/dispatches"),
            true,
        ),
        Row(
            "-X POST https://github.com/o/r.git/git-receive-pack".into(),
            true,
        ),
        Row(
            "-X POST https://github.com/o/r.git/info/lfs/objects/batch".into(),
            true,
        ),
        Row(
            asks("mutation { createIssue { x } addComment { x } }"),
            true,
        ),
        Row(asks("query { viewer { login } }"), true),
        Row(api("-X PATCH", "/repos/o/r"), false),
        Row(api("-X DELETE", "/repos/o/r"), false),
        Row(api("-X PUT", "/repos/o/r/collaborators/mallory"), false),
        Row(api("-X POST", "/repos/o/r/hooks"), false),
        Row(api("-X PUT", "/repos/o/r/branches/main/protection"), false),
        Row(api("-X PUT", "/repos/o/r/actions/secrets/A"), false),
        Row(api("-X POST", "/repos/o/r/issues%2F..%2F..%2Fhooks"), false),
        Row(api("-X POST", "/repos/o/r/issues/../hooks"), false),
        Row(api("-X POST", "/repositories/1/hooks"), false),
        Row(api("-X POST", "/user/repos"), false),
        Row("-X POST https://github.com/settings/profile".into(), false),
        Row("-X POST https://api.githubcopilot.com/mcp".into(), false),
        Row(
            "-X POST https://api.githubcopilot.com/x/y/git-receive-pack".into(),
            false,
        ),
        Row(api("-X DELETE", "/repos/o/git-receive-pack"), false),
        Row(api("-X PUT", "/repos/o/info/lfs"), false),
        Row(api("-X POST", "/repos/o/r/pulls/1/codespaces"), false),
        Row(
            api("-X PATCH", "/repos/o/r/check-suites/preferences"),
            false,
        ),
        Row(asks("mutation { addProjectV2ItemById { x } }"), false),
        Row(asks("mutation { updateBranchProtectionRule { x } }"), false),
        Row(
            asks("mutation { createIssue { x } deleteRepositoryRuleset { x } }"),
            false,
        ),
        Row(
            asks("mutation { createIssue: deleteRepositoryRuleset { x } }"),
            false,
        ),
    ];
    let file = desk.at("home/all.cedar").display().to_string();
    desk.write("home/all.cedar", ALL);
    check(
        &desk,
        &["--preset", "github:write", "--policy", &file],
        &rows,
    );
    // The narrower of two holds, whoever names them.
    let asked = |is_left| {
        let what = "-X POST https://api.github.com/repos/o/r/issues".to_owned();
        [Row(what, is_left)]
    };
    let both = ["--preset", "github", "--preset", "github:read"];
    check(&desk, &both, &asked(false));
    let both = ["--preset", "github:write", "--preset", "github:read"];
    check(&desk, &both, &asked(false));
    let group = ["--preset", "github:read", "--group", "beyond-github-read"];
    check(&desk, &group, &asked(true));
    let told = desk.agent(
        "one",
        &["--preset", "github:read"],
        "curl -s -X POST https://api.github.com/repos/o/r/issues",
    );
    assert!(told.contains("`--group beyond-github-read`"), "{told}");
}

#[test]
fn a_permission_that_there_is_not_is_told_with_those_that_there_are() {
    let desk = Desk::bare();
    let refused = |flags: &[&str]| {
        let output = desk.command("one", &[flags, &["--", "true"]].concat());
        let output = { output }.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = refused(&["--preset", "github:rad"]);
    assert!(said.contains("`github` has `read`, `write`"), "{said}");
    let said = refused(&["--preset", "openai:read"]);
    assert!(said.contains("has no named permissions"), "{said}");
    let said = refused(&["--preset", "gihub:read"]);
    assert!(said.contains("no preset has that name"), "{said}");
    desk.write(
        "home/one.toml",
        "[[credential]]\nname = \"github\"\npreset = \"github:read\"\nfrom = \"env:GH_TOKEN\"\n",
    );
    let file = desk.at("home/one.toml").display().to_string();
    let said = refused(&["--config", &file]);
    assert!(said.contains("`presets` of [policy]"), "{said}");
}
