//! What a preset's service is lent makes no lasting credentials there, however it is lent.

use std::fs;
use std::path::Path;

use crate::desk::Desk;

/// A request that makes a credential: the preset, its method, host and path.
#[derive(Clone)]
struct Row {
    preset: String,
    method: &'static str,
    host: String,
    path: String,
}

const OWN: &str = "own.example.com";
/// The presets that know logins alone.
const LOGINS: [(&str, &str); 2] = [("docker", "docker"), ("google", "gcloud-adc")];

fn presets() -> Vec<toml::Table> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/services");
    let files = fs::read_dir(folder).unwrap();
    let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let all = texts.map(|text| text.parse::<toml::Table>().unwrap());
    all.filter(|preset| preset.contains_key("mints")).collect()
}

pub fn name(preset: &toml::Table) -> &str {
    preset["name"].as_str().unwrap()
}

/// The texts of a list, at the first of some tables.
pub fn texts(table: &toml::Table, list: &str) -> Vec<String> {
    let found = table[list].as_array().unwrap().iter();
    found.map(|one| one.as_str().unwrap().to_owned()).collect()
}

pub fn first<'a>(preset: &'a toml::Table, of: &str) -> Option<&'a toml::Table> {
    preset.get(of)?.as_array()?.first()?.as_table()
}

/// The hosts of a preset's credential; that of the user, where it has none.
pub fn host(preset: &toml::Table) -> String {
    let own = ["credential", "login"]
        .into_iter()
        .filter_map(|of| first(preset, of));
    let public = preset.get("registry").and_then(|one| one.as_table());
    let public = public.map(|one| texts(one, "public")).unwrap_or_default();
    let mut hosts = own.flat_map(|one| texts(one, "hosts")).chain(public);
    hosts.next().unwrap_or_else(|| OWN.to_owned())
}

/// The requests of a preset, each as its service's documents write it and in its other spellings.
fn rows(preset: &toml::Table, host: &str) -> Vec<Row> {
    let slashed = preset.get("encoded_slash").and_then(|all| all.as_array());
    let mut rows = plain_rows(preset, host);
    let mut others = Vec::new();
    for row in &rows {
        let is_kept = |one: &toml::Value| one.as_str() == Some(&row.host);
        let encoded = format!("/{}", row.path[1..].replace('/', "%2F"));
        let last = row
            .path
            .rsplit_once('/')
            .filter(|(most, _)| !most.is_empty());
        let last = last.map(|(most, last)| format!("{most}%2F{last}"));
        let encoded = [Some(encoded), last].into_iter().flatten();
        let encoded = encoded.filter(|_| slashed.is_some_and(|all| all.iter().any(is_kept)));
        let ended = ["json", "xml"].map(|end| format!("{}.{end}", row.path));
        others.extend(ended.into_iter().chain(encoded).map(|path| Row {
            path,
            ..row.clone()
        }));
    }
    rows.append(&mut others);
    rows
}

fn plain_rows(preset: &toml::Table, host: &str) -> Vec<Row> {
    let row = |text: String| {
        let read = text.strip_prefix("GET ");
        let rest = read.unwrap_or(&text);
        let (named, path) = rest.split_at(rest.find('/').unwrap());
        Row {
            preset: name(preset).to_owned(),
            method: if read.is_some() { "GET" } else { "POST" },
            host: if named.is_empty() { host } else { named }.to_owned(),
            path: path.trim_end_matches('$').replace('*', "any"),
        }
    };
    texts(preset, "mints").into_iter().map(row).collect()
}

/// Sends each request inside, and returns those that no rule of their preset forbade.
fn passed(desk: &Desk, flags: &[&str], rows: &[Row]) -> Vec<String> {
    let mut script = String::new();
    for Row {
        method, host, path, ..
    } in rows
    {
        script += &format!("curl -sS -X {method} 'https://{host}{path}' 2>&1; echo\n");
    }
    desk.write("tools/ask", &format!("#!/bin/sh\n{script}"));
    let tools = desk.at("tools");
    let shown = ["-q", "--see", tools.to_str().unwrap()];
    let mut command = desk.command("one", &[&shown, flags, &["--", "ask"]].concat());
    for preset in presets() {
        let lent = first(&preset, "credential").map(|one| texts(one, "variables"));
        let variables = lent.into_iter().flatten().take(1);
        command.envs(variables.map(|name| (name, "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17aaQw")));
    }
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let answers: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(answers.len(), rows.len(), "{said}\n{told}");
    let is_refused = |row: &Row, answer: &str| {
        let rule = format!("policy `mints/{}/", row.preset);
        answer.contains("policy_forbids") && answer.contains(&rule)
    };
    let both = rows
        .iter()
        .zip(answers)
        .filter(|(row, answer)| !is_refused(row, answer));
    both.map(|(row, answer)| format!("{} {}{}: {answer}", row.method, row.host, row.path))
        .collect()
}

#[test]
fn no_flag_lends_what_makes_lasting_credentials() {
    let desk = Desk::bare();
    let all = presets();
    assert!(all.len() > 30, "{}", all.len());
    let all: Vec<_> = all.into_iter().filter(|one| host(one) != OWN).collect();
    let docker = "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"aHVib3Q6enFXQnVUU09vUmk0QTlzcA==\"}}}";
    desk.write("home/.docker/config.json", docker);
    let login = |preset: &toml::Table| {
        let mut logins = LOGINS.iter();
        let found = logins.find(|(one, _)| *one == name(preset));
        found.map(|(_, login)| *login)
    };
    let flags = all.iter().flat_map(|preset| match login(preset) {
        Some(login) => ["--login", login],
        None => ["--preset", name(preset)],
    });
    let flags: Vec<&str> = flags.collect();
    let rows: Vec<Row> = all.iter().flat_map(|one| rows(one, &host(one))).collect();
    assert_eq!(passed(&desk, &flags, &rows), [""; 0]);
}

#[test]
fn no_file_lends_what_makes_lasting_credentials_also_at_a_host_of_ones_own() {
    let desk = Desk::bare();
    let all = presets();
    let lent = all.iter().filter(|one| first(one, "credential").is_some());
    let mut text = String::from("[policy]\nfiles = [\"all.cedar\"]\n");
    let mut asked = Vec::new();
    for (nth, preset) in lent.enumerate() {
        let host = format!("n{nth}.{OWN}");
        let variable = texts(first(preset, "credential").unwrap(), "variables").remove(0);
        let name = name(preset);
        text += &format!(
            "[[credential]]\nname = \"c{nth}\"\npreset = \"{name}\"\nfrom = \"env:{variable}\"\n\
             origins = [\"https://{host}\"]\nenv = [\"{variable}\"]\n"
        );
        asked.extend(rows(preset, &host));
    }
    desk.write("home/all.toml", &text);
    desk.write("home/all.cedar", "permit(principal, action, resource);\n");
    let file = desk.at("home/all.toml").display().to_string();
    assert_eq!(passed(&desk, &["--config", &file], &asked), [""; 0]);
}

#[test]
fn no_profile_secret_or_login_lends_what_makes_lasting_credentials_but_to_a_group() {
    let desk = Desk::bare();
    let hosts =
        "github.com:\n    user: hubot\n    oauth_token: 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\n";
    desk.write("home/.config/gh/hosts.yml", hosts);
    desk.write("home/all.cedar", "permit(principal, action, resource);\n");
    let all = desk.at("home/all.cedar").display().to_string();
    let all = ["--preset", "github", "--policy", &all];
    let ways: [(&str, &[&str]); 7] = [
        ("anthropic", &["--profile", "claude"]),
        ("openai", &["--profile", "codex"]),
        ("github", &["--profile", "gh"]),
        ("github", &["--profile", "copilot"]),
        ("github", &["--secret", "GH_TOKEN@api.github.com"]),
        ("github", &["--login", "gh"]),
        ("github", &all),
    ];
    let presets = presets();
    for (service, flags) in ways {
        let preset = presets.iter().find(|one| name(one) == service).unwrap();
        assert_eq!(
            passed(&desk, flags, &plain_rows(preset, &host(preset))),
            [""; 0],
            "{flags:?}"
        );
    }
    let github = presets.iter().find(|one| name(one) == "github").unwrap();
    let rows = plain_rows(github, &host(github));
    let group = ["--preset", "github", "--group", "makes-github-credentials"];
    assert_eq!(passed(&desk, &group, &rows).len(), rows.len());
    // It is told how.
    let told = desk.agent(
        "one",
        &["--preset", "github"],
        "curl -s -X POST https://api.github.com/user/keys",
    );
    assert!(
        told.contains("`--group makes-github-credentials`"),
        "{told}"
    );
}

#[test]
fn a_services_own_other_spellings_make_no_lasting_credentials_and_what_is_beside_them_passes() {
    let desk = Desk::bare();
    let lent = [
        ("zendesk", "ZENDESK_API_TOKEN", "https://one.zendesk.com"),
        (
            "shopify",
            "SHOPIFY_ACCESS_TOKEN",
            "https://one.myshopify.com",
        ),
        ("twilio", "TWILIO_AUTH_TOKEN", "https://api.twilio.com"),
        ("gitlab", "GITLAB_TOKEN", "https://gitlab.com"),
        ("github", "GH_TOKEN", "https://api.github.com"),
    ];
    let lent = lent.map(|(preset, variable, origin)| {
        format!(
            "[[credential]]\nname = \"{preset}\"\npreset = \"{preset}\"\n\
             from = \"env:{variable}\"\norigins = [\"{origin}\"]\nenv = [\"{variable}\"]\n"
        )
    });
    let slashed = "[[origin]]\nmatch = \"https://api.github.com\"\nencoded_slash = true\n";
    let text = format!(
        "[policy]\nfiles = [\"all.cedar\"]\n{slashed}{}",
        lent.concat()
    );
    desk.write("home/all.toml", &text);
    desk.write("home/all.cedar", "permit(principal, action, resource);\n");
    let file = desk.at("home/all.toml").display().to_string();
    let row = |(preset, host, path): (&str, &str, &str)| Row {
        preset: preset.to_owned(),
        method: "POST",
        host: host.to_owned(),
        path: path.to_owned(),
    };
    let (zendesk, shop) = ("one.zendesk.com", "one.myshopify.com");
    let (twilio, gitlab, github) = ("api.twilio.com", "gitlab.com", "api.github.com");
    let made = [
        ("zendesk", zendesk, "/api/v2/oauth/tokens.json"),
        ("zendesk", zendesk, "/api/v2/oauth/clients.json"),
        ("zendesk", zendesk, "/api/v2/api_tokens.json"),
        ("shopify", shop, "/admin/storefront_access_tokens.json"),
        (
            "shopify",
            shop,
            "/admin/api/2026-01/storefront_access_tokens.xml",
        ),
        ("twilio", twilio, "/2010-04-01/Accounts"),
        ("twilio", twilio, "/2010-04-01/Accounts/"),
        ("twilio", twilio, "/2010-04-01/Accounts.json"),
        ("twilio", twilio, "/2010-04-01/Accounts/AC/Keys"),
        ("twilio", twilio, "/2010-04-01/Accounts/AC/Keys.xml"),
        ("twilio", twilio, "/2010-04-01/Accounts/AC/Keys.json"),
        ("twilio", twilio, "/2010-04-01/Accounts/AC/Tokens"),
        ("gitlab", gitlab, "/api/v4/user/keys.json"),
        ("gitlab", gitlab, "/api/v4/users%2F1%2Fkeys"),
        ("gitlab", gitlab, "/api/v4/projects/1/access_tokens.json"),
        (
            "gitlab",
            gitlab,
            "/api/v4/projects/o%2Fr/access_tokens.json",
        ),
        (
            "gitlab",
            gitlab,
            "/api/v4/projects/1/cluster_agents/2/tokens",
        ),
        ("github", github, "/user%2Fkeys"),
        ("github", github, "/user%2f%2fkeys"),
        ("github", github, "/repos/o%2Fr/keys"),
        ("github", github, "/repositories/1/keys"),
        ("github", github, "/organizations/1/actions/runners"),
    ];
    let beside = [
        ("zendesk", zendesk, "/api/v2/tickets.json"),
        ("shopify", shop, "/admin/products.json"),
        ("twilio", twilio, "/2010-04-01/Accounts/AC/Messages.json"),
        ("twilio", twilio, "/2010-04-01/Accounts/AC"),
        ("gitlab", gitlab, "/api/v4/projects/o%2Fr/issues"),
        ("github", github, "/repos/o/r/contents/src%2Fkeys"),
    ];
    let flags = ["--config", &file];
    let mut all: Vec<Row> = made.into_iter().map(row).collect();
    all.extend(beside.into_iter().map(row));
    let passed = passed(&desk, &flags, &all);
    assert_eq!(passed.len(), beside.len(), "{passed:#?}");
    for ((_, _, path), line) in beside.iter().zip(&passed) {
        assert!(line.contains(path), "{passed:#?}");
    }
}

#[test]
fn no_mutation_and_no_api_below_another_path_makes_lasting_credentials() {
    let desk = Desk::bare();
    let hosts = [
        ("gitlab", "GITLAB_TOKEN", "gitlab.com"),
        ("gitlab", "GITLAB_PRIVATE_TOKEN", "gl.example.com"),
        ("shopify", "SHOPIFY_ACCESS_TOKEN", "one.myshopify.com"),
    ];
    let lent = hosts.map(|(preset, variable, host)| {
        let name = host.replace('.', "-");
        format!(
            "[[credential]]\nname = \"{name}\"\npreset = \"{preset}\"\nfrom = \"env:{variable}\"\n\
             origins = [\"https://{host}\"]\nenv = [\"{variable}\"]\n"
        )
    });
    let text = format!("[policy]\nfiles = [\"all.cedar\"]\n{}", lent.concat());
    desk.write("home/all.toml", &text);
    desk.write("home/all.cedar", "permit(principal, action, resource);\n");
    let (api, shop) = ("/api/graphql", "/admin/api/2026-01/graphql.json");
    let asked = |(host, path, query): (&str, &str, &str)| {
        let content = format!("{{\"query\":\"{query}\"}}");
        format!(
            "curl -sS -H 'content-type: application/json' -d '{content}' 'https://{host}{path}' 2>&1; echo\n"
        )
    };
    let token = "mutation { a: personalAccessTokenCreate(input: {}) { token } }";
    let storefront = "mutation M { ...F } fragment F on Mutation { storefrontAccessTokenCreate(input: {}) { shop } }";
    let made = [
        ("gitlab.com", api, token),
        ("gl.example.com", api, token),
        ("gitlab.com", "/api/glql", token),
        ("gl.example.com", "/our/gitlab/api/graphql", token),
        // Rails takes a batch of the query for one of the content.
        (
            "gitlab.com",
            "/api/graphql?_json%5B%5D%5Bquery%5D=mutation%7Ba%7D",
            "query { currentUser { id } }",
        ),
        ("one.myshopify.com", "/admin/api/graphql.json", storefront),
        (
            "one.myshopify.com",
            "/admin/api/storefront_access_tokens.json",
            "",
        ),
        ("gl.example.com", "/gitlab/api/v4/user/keys", ""),
        ("gl.example.com", "/our/gitlab/api/v4/user/keys", ""),
        ("one.myshopify.com", shop, storefront),
    ];
    let beside = [
        ("gitlab.com", api, "query { currentUser { id } }"),
        (
            "gl.example.com",
            api,
            "mutation { createNote(input: {}) { id } }",
        ),
        ("gl.example.com", "/gitlab/api/v4/projects", ""),
        (
            "one.myshopify.com",
            shop,
            "mutation { productCreate { shop } }",
        ),
    ];
    let script: String = made.into_iter().chain(beside).map(asked).collect();
    desk.write("tools/ask", &format!("#!/bin/sh\n{script}"));
    let (file, tools) = (desk.at("home/all.toml"), desk.at("tools"));
    let flags = ["-q", "--config", file.to_str().unwrap(), "--see"];
    let mut command = desk.command(
        "one",
        &[&flags[..], &[tools.to_str().unwrap(), "--", "ask"]].concat(),
    );
    for (_, variable, _) in hosts {
        command.env(
            variable,
            format!("zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17{variable}"),
        );
    }
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(answers.len(), made.len() + beside.len(), "{said}\n{told}");
    for (nth, answer) in answers.iter().enumerate() {
        let is_mints = answer.contains("policy `mints/");
        let is_refused = is_mints
            && ["policy_forbids", "policy_error"]
                .iter()
                .any(|code| answer.contains(code));
        let is_policy = answer.contains("policy_");
        let is_right = if nth < made.len() {
            is_refused
        } else {
            !is_policy
        };
        assert!(is_right, "{nth}: {answer}");
    }
}
