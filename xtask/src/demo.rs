//! `cargo xtask demo`: the distribution's own programs on the provider, as a person would run them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::plugin::{self, Plugin};
use crate::process::{self, Finished, Running};
use crate::sim::{Device, Provider, Simulator};
use crate::workspace::target;

/// Longest time one program may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What is shown, and how.
#[derive(clap::Args)]
pub struct Options {
    /// Generation of the software device, 2 or 3: the programs that are shown do not work over iWARP
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=3))]
    r#gen: u32,
    /// Whose provider the programs load
    #[arg(long, default_value_t = Provider::Ours)]
    provider: Provider,
    /// Fewer iterations and a shorter listing
    #[arg(long)]
    quick: bool,
}

/// Programs of two processes: what each shows, the command and how much of it counts in a quick run.
const PAIRS: &[(&str, &str, u32)] = &[
    (
        "Messages there and back over a reliable connection, every byte checked",
        "ibv_rc_pingpong -g 0 -c",
        1000,
    ),
    ("Datagrams there and back, every byte checked", "ibv_ud_pingpong -g 0 -c", 1000),
    ("Bandwidth of RDMA writes of 64 KiB", "ib_write_bw -F -s 65536", 5000),
    ("Latency of sends, 8 bytes, inline in the work request", "ib_send_lat -F -s 8 -I 64", 1000),
    ("Bandwidth of RDMA reads of 64 KiB", "ib_read_bw -F -s 65536", 1000),
];

/// Builds and shows; fails at the first program that does.
pub fn run(options: Options) -> Result<ExitCode> {
    let started = Instant::now();
    packages::install(packages::BUILD.iter().chain(packages::DEMO))?;
    process::adopt_orphans()?;
    let logs = target().join("demo-logs");

    println!("Building the provider and the software device ...");
    let result = match card() {
        Some(card) => {
            let plugin = plugin::build(None)?;
            tell(options.provider, &plugin);
            println!("Device:   {card}, a card of this machine");
            show(&Place::Card { name: card, driver: plugin.driver() }, &options, &logs)
        }
        None => {
            let simulator = Simulator::build()?;
            let generation = options.r#gen.to_string();
            let name = format!("demo-{}", std::process::id());
            let device = simulator.start(&name, &["--gen", &generation], &logs.join("device"))?;
            tell(options.provider, simulator.plugin());
            println!(
                "Device:   the software device, generation {generation} (this machine has no irdma card that speaks RoCE)"
            );
            show(&Place::Device(device), &options, &logs)
        }
    };
    let left = process::kill_left_over(Duration::from_secs(3));
    result?;
    if !left.is_empty() {
        bail!("left processes behind: {}", left.join(", "));
    }
    println!("\nAll of it worked, in {:.0} s. Next: cargo xtask test", started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

/// Says whose provider is shown.
fn tell(provider: Provider, plugin: &Plugin) {
    match provider {
        Provider::Ours => {
            let releases = format!("rdma-core {} to {}", plugin.layout.first, plugin.layout.last);
            println!("Provider: {} (for {releases})", plugin.library.display());
        }
        Provider::C => println!("Provider: the distribution's, in C, for comparison"),
    }
}

/// The first device of this machine that the kernel's irdma driver serves over RoCE: over iWARP programs
/// take a connection manager, which these are run without.
fn card() -> Option<String> {
    fs::read_dir("/sys/class/infiniband").ok()?.flatten().find_map(|entry| {
        let driver = fs::read_link(entry.path().join("device/driver")).ok()?;
        let is_iwarp =
            fs::read_to_string(entry.path().join("node_type")).is_ok_and(|kind| kind.starts_with('4'));
        (driver.file_name()? == "irdma" && !is_iwarp).then(|| entry.file_name().into_string().ok())?
    })
}

/// Where the programs run.
enum Place<'simulator> {
    Card { name: String, driver: PathBuf },
    Device(Device<'simulator>),
}

impl Place<'_> {
    /// A program there, with the provider that is to be shown.
    fn program(&self, provider: Provider, words: &[&str]) -> Command {
        let mut command = match self {
            Place::Device(device) => device.program(provider, words[0]),
            Place::Card { driver, .. } => {
                let mut command = Command::new(words[0]);
                if provider == Provider::Ours {
                    command.env("RDMAV_DRIVERS", driver);
                }
                command
            }
        };
        command.args(&words[1..]);
        if let Place::Card { name, .. } = self {
            command.args(["-d", name]);
        }
        command
    }
}

fn show(place: &Place, options: &Options, logs: &Path) -> Result<()> {
    let devinfo: &[&str] = if options.quick { &["ibv_devinfo"] } else { &["ibv_devinfo", "-v"] };
    heading("What the device says of itself");
    println!("$ {}", devinfo.join(" "));
    let finished = process::run(&mut place.program(options.provider, devinfo), &logs.join("devinfo"), LIMIT)?;
    require(&finished)?;
    print_indented("", &finished.output);

    for (title, command, iterations) in PAIRS {
        heading(title);
        let iterations = if options.quick { iterations / 10 } else { *iterations };
        pair(place, options.provider, &format!("{command} -n {iterations}"), logs)?;
    }
    Ok(())
}

/// Runs both sides and shows what each printed and which provider it had loaded.
fn pair(place: &Place, provider: Provider, command: &str, logs: &Path) -> Result<()> {
    let port = process::free_port()?;
    let port_text = port.to_string();
    let mut words: Vec<&str> = command.split_whitespace().collect();
    let name = words[0];
    println!("server $ {command}\nclient $ {command} 127.0.0.1");
    words.extend(["-p", &port_text]);

    let mut server =
        Running::start(&mut place.program(provider, &words), &logs.join(format!("{name}-server")))?;
    let ready =
        process::wait_until(LIMIT, || process::listens(port) || !matches!(server.has_ended(), Ok(false)));
    if !ready || server.has_ended()? {
        bail!("the server does not start:\n{}", server.output());
    }
    let loaded = process::loaded_provider(server.pid()).context("the server has loaded no irdma provider")?;

    let mut client = place.program(provider, &words);
    client.arg("127.0.0.1");
    let client = process::run(&mut client, &logs.join(format!("{name}-client")), LIMIT)?;
    let server = server.wait(LIMIT)?;
    println!("loaded   {} (the server's /proc/PID/maps)", loaded.display());
    print_indented("server", &essence(&server.output));
    print_indented("client", &essence(&client.output));
    require(&client)?;
    require(&server)
}

/// Who talks to whom, and the results: without ornament and repetition of the parameters.
fn essence(output: &str) -> String {
    let is_essential = |line: &&str| {
        let line = line.trim_start();
        line.starts_with(|letter: char| letter.is_ascii_digit())
            || ["local address", "remote address", "#bytes"].iter().any(|start| line.starts_with(start))
    };
    output.lines().filter(is_essential).map(|line| format!("{}\n", line.trim())).collect()
}

fn print_indented(label: &str, text: &str) {
    for line in text.lines() {
        println!("{label:<6} | {line}");
    }
}

fn heading(title: &str) {
    println!("\n── {title} ──");
}

fn require(finished: &Finished) -> Result<()> {
    if !finished.succeeded() {
        bail!("{}", finished.explain());
    }
    Ok(())
}
