//! The laboratory: what users do, through the gateway and beside other proxies. docs/benchmarks.md
//! says how to run it.

mod callgrind;
mod load;
mod origin;
mod phases;
mod proxies;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use callgrind::Count;
use load::Clients;
use origin::{Origin, dialled};
use phases::{PHASES, Phase, World};
use proxies::{Failure, Proxy};
use report::{Sample, Samples};

/// The most connections that a client, one request after the other, may cost the origin.
const CONNECTIONS: u64 = 2;
/// By so much an exchange may cost more than `counts.toml` says.
const MORE: f64 = 1.05;

/// Measures the gateway, beside ref-rust, hudsucker and nginx where they are.
#[derive(Parser)]
struct Asked {
    /// The gateway; without this, the one that was built with this program.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_gateway"))]
    gateway: PathBuf,
    /// Another one to compare it with, round by round.
    #[arg(long)]
    against: Option<PathBuf>,
    /// The folder with `ref-rust` and `hudsucker-lab`; without this, the variable LABORATORY.
    #[arg(long)]
    laboratory: Option<PathBuf>,
    /// How often each phase is measured.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// The phases, with commas between.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The share of the requests that is sent.
    #[arg(long, default_value_t = 1.0)]
    share: f64,
    /// Writes docs/benchmarks.md and docs/benchmarks.svg.
    #[arg(long)]
    write: bool,
    /// Counts alone: fails if an exchange costs more than benches/lab/counts.toml says.
    #[arg(long)]
    check: bool,
    /// With --check: writes that file anew.
    #[arg(long)]
    bless: bool,
    /// With --check: prints so many functions of each phase.
    #[arg(long, default_value_t = 0)]
    functions: usize,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let asked = Asked::parse();
    // A test's program inherits 1,024 descriptors, which 1,000 sessions do not fit in.
    if let Err(why) = raise_limit() {
        eprintln!("the limit of open files stays: {why}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let (origin, folder) = (Origin::start(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let (counts, docs) = (folder.join("benches/lab/counts.toml"), folder.join("docs"));
    let outcome = local.block_on(&runtime, async {
        match asked.check || asked.bless {
            true => check(&asked, &origin, &counts).await,
            false => compare(&asked, &origin, &docs).await,
        }
    });
    if let Err(why) = &outcome {
        eprintln!("error: {why}");
    }
    if outcome.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn raise_limit() -> Result<(), Failure> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

impl Asked {
    fn is_asked(&self, phase: &Phase) -> bool {
        self.only.is_empty() || self.only.contains(&phase.name)
    }
}

/// Counts connections, instructions and allocations, and compares them with a file.
async fn check(asked: &Asked, origin: &Origin, file: &Path) -> Result<(), Failure> {
    let is_asked = |phase: &Phase| asked.is_asked(phase);
    let counts = callgrind::count(&asked.gateway, origin, is_asked, asked.functions).await?;
    let known = std::fs::read_to_string(file).unwrap_or_default();
    let mut known: BTreeMap<String, Count> = toml::from_str(&known)?;
    let mut wrong = Vec::new();
    for (name, count) in &counts {
        if count.connections > CONNECTIONS {
            wrong.push(format!(
                "{name}: {} connections to the origin, at most {CONNECTIONS}",
                count.connections
            ));
        }
        let was = known.get(name).copied().unwrap_or_default();
        let [clock, other] = count.by_clock;
        for (what, is, was, unsure) in [
            ("instructions", count.instructions, was.instructions, clock),
            ("allocations", count.allocations, was.allocations, other),
        ] {
            if is > was * MORE + unsure && !asked.bless {
                let more = (is / was - 1.0) * 100.0;
                wrong.push(format!(
                    "{name}: {is} {what} an exchange, {more:.1} % more than {was}"
                ));
            }
        }
    }
    if asked.bless {
        known.retain(|_, _| !asked.only.is_empty());
        known.extend(counts);
        let head = "# What an exchange may cost by `just counts`, and 5 % more. Written by `just counts --bless`.\n";
        std::fs::write(file, head.to_owned() + &toml::to_string(&known)?)?;
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let wrong = wrong.join("\n");
    Err(format!("what an exchange costs has grown:\n{wrong}\nby function: just counts --functions 40; if it is meant: just counts --bless").into())
}

/// Measures all phases in turn, and prints the table.
async fn compare(asked: &Asked, origin: &Origin, docs: &Path) -> Result<(), Failure> {
    let mut proxies = Vec::new();
    for (name, program) in [
        ("gateway", Some(&asked.gateway)),
        ("against", asked.against.as_ref()),
    ] {
        let Some(program) = program.map(std::fs::canonicalize).transpose()? else {
            continue;
        };
        let start = |world| proxies::gateway("", &program, world, (2, 10_000), origin);
        let worlds = [World::Plain, World::Rules, World::Sessions];
        let processes = worlds.into_iter().map(start).collect::<Result<_, _>>()?;
        proxies.push(Proxy { name, processes });
    }
    let laboratory = asked.laboratory.clone();
    let laboratory = laboratory.or_else(|| std::env::var_os("LABORATORY").map(PathBuf::from));
    proxies.extend(proxies::peers(laboratory.as_deref(), origin));
    proxies.push(Proxy {
        name: "direct",
        processes: Vec::new(),
    });
    let mut samples = Samples::new();
    let key = |phase: &'static Phase, proxy: &Proxy| (&*phase.name, proxy.name);
    for round in 0..asked.rounds {
        let phases = PHASES.iter().filter(|phase| asked.is_asked(phase));
        for (nth, phase) in phases.enumerate() {
            for at in 0..proxies.len() {
                let proxy = &proxies[(at + round + nth) % proxies.len()];
                if (proxy.name, &*phase.domain) == ("nginx", "far") {
                    continue; // it has one origin
                }
                match measure(proxy, phase, origin, asked.share).await {
                    Ok(sample) => samples.entry(key(phase, proxy)).or_default().push(sample),
                    Err(why) if proxy.is_own() => {
                        return Err(format!("{:?}: {why}", key(phase, proxy)).into());
                    }
                    Err(why) => eprintln!("{:?}: {why}", key(phase, proxy)),
                }
            }
        }
        eprintln!("round {} of {}", round + 1, asked.rounds);
    }
    let names: Vec<_> = proxies.iter().map(|proxy| proxy.name).collect();
    let (table, picture) = (
        report::table(&samples, &names, asked.rounds),
        report::picture(&samples, &names),
    );
    println!("{table}");
    if asked.write {
        let (page, marks) = (
            docs.join("benchmarks.md"),
            ["<!-- just lab -->\n", "<!-- end -->"],
        );
        let text = std::fs::read_to_string(&page)?;
        let (before, rest) = text.split_once(marks[0]).ok_or("no mark in the page")?;
        let (_, after) = rest
            .split_once(marks[1])
            .ok_or("no second mark in the page")?;
        let shown = "![The processor's time of an exchange](benchmarks.svg)\n";
        std::fs::write(
            page,
            format!("{before}{}{table}\n{shown}{}{after}", marks[0], marks[1]),
        )?;
        std::fs::write(docs.join("benchmarks.svg"), picture)?;
    }
    Ok(())
}

/// One phase at one proxy, after a warm-up over the same connections.
async fn measure(
    proxy: &Proxy,
    phase: &'static Phase,
    origin: &Origin,
    share: f64,
) -> Result<Sample, Failure> {
    let requests = (phase.requests as f64 * share).ceil() as usize;
    let together = (phase.connections, phase.streams);
    let clients = Clients::open(
        proxy.door(phase, origin),
        phase,
        together,
        &proxy.phantom(phase),
    )
    .await?;
    clients.run(requests / 10, 1.0).await?;
    let worked = || proxy.process(phase).map_or(0.0, proxies::Process::worked);
    let (cpu, connections) = (worked(), dialled());
    let tally = clients.run(requests, 4.0).await?;
    let (cpu, dialled) = (worked() - cpu, dialled() - connections);
    let count = tally.whole.len().max(1);
    let part =
        |values: &[f64], share: f64| values.get((values.len() as f64 * share) as usize).copied();
    Ok(Sample {
        cpu: cpu / count as f64,
        first: part(&tally.first, 0.5).unwrap_or_default(),
        tail: part(&tally.whole, 0.99).unwrap_or_default(),
        count,
        dialled,
    })
}
