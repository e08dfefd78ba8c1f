//! What users do, as `phases.toml` says it.

use std::sync::LazyLock;

use serde::Deserialize;

/// The configuration that a phase needs: a policy for each phase, 10,000 rules beside those, or a
/// session for each user.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum World {
    #[default]
    Plain,
    Rules,
    Sessions,
}

/// Requests of one kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Phase {
    pub name: String,
    pub title: String,
    pub method: String,
    pub path: String,
    pub kind: String,
    pub content: String,
    pub condition: String,
    pub domain: String,
    pub two: bool,
    pub world: World,
    pub connections: usize,
    pub streams: usize,
    pub requests: usize,
    pub rate: f64,
    pub fresh: bool,
    pub target: Option<f64>,
    pub counted: usize,
}

impl Default for Phase {
    fn default() -> Self {
        Self {
            name: String::new(),
            title: String::new(),
            method: "POST".to_owned(),
            path: "/json".to_owned(),
            kind: "application/json".to_owned(),
            content: String::new(),
            condition: "context.prefixes.contains(\"/\")".to_owned(),
            domain: "one".to_owned(),
            two: false,
            world: World::Plain,
            connections: 16,
            streams: 1,
            requests: 20_000,
            rate: 0.0,
            fresh: false,
            target: None,
            counted: 0,
        }
    }
}

impl Phase {
    /// The host that it is sent to.
    pub fn host(&self) -> String {
        format!("{}.{}.test", self.name, self.domain)
    }

    /// Whether the credential goes into a field of it.
    pub fn is_lent(&self) -> bool {
        !["/token", "/place"].contains(&&*self.path)
    }

    /// What it sends, with the phantom that it presents.
    pub fn content(&self, token: &str) -> Vec<u8> {
        let mut text = self.content.replace("{token}", token);
        for (mark, unit) in [("{words ", "word "), ("{bytes ", "x")] {
            while let Some((before, rest)) = text.split_once(mark) {
                let (count, after) = rest.split_once('}').unwrap_or_default();
                let count = count.parse::<usize>().unwrap_or_default();
                text = format!("{before}{}{after}", unit.repeat(count / unit.len()));
            }
        }
        text.into()
    }
}

#[derive(Deserialize)]
struct File {
    phase: Vec<Phase>,
}

/// All of them.
pub static PHASES: LazyLock<Vec<Phase>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("phases.toml")).unwrap();
    file.phase
});
