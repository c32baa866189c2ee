//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValue;
use clap::{Args, Parser, Subcommand, ValueEnum};
use irdma_engine::spec::Generation;
use irdma_sim_protocol::Mode;

use crate::isolation::Isolation;
use crate::options::{DeviceOptions, Kernel, Transport, feature};
use crate::plugin::Provider;
use crate::run::{self, Program};
use crate::runtime::Name;
use crate::{client, fabric};

/// Runs programs on a software irdma RDMA device, without hardware, drivers or privileges.
///
/// Exit codes: the program's own, 128 plus the signal that killed it, 127 if it is not found,
/// 2 for a wrong command line, 1 for everything else.
#[derive(Parser)]
#[command(name = "irdma-sim", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program on a device of its own, or on one that was started
    Run(RunArguments),
    /// Start a device that several programs meet on
    Start(StartArguments),
    /// End a device; programs on it see it removed
    Stop {
        /// Its name
        name: Name,
    },
    /// Send a control command to a device, such as `help`
    Ctl {
        /// Its name; a program's own device is called $IRDMA_SIM_FABRIC
        name: Name,
        /// The command, in one or several words
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// List the devices that are running
    List,
}

#[derive(Args)]
struct RunArguments {
    #[command(flatten)]
    device: DeviceArguments,
    /// Whose provider the program loads
    #[arg(long, value_enum, default_value_t = Provider::Ours)]
    provider: Provider,
    /// Our provider's libirdma-rdmavNN.so, or its folder [default: where `cargo xtask build` leaves it]
    #[arg(long, env = "IRDMA_PLUGIN", value_name = "PATH")]
    plugin: Option<PathBuf>,
    /// A device that `irdma-sim start` started
    #[arg(long, value_name = "NAME", conflicts_with_all = ["gen", "transport", "mode", "kernel", "without", "legacy", "push", "push_offset", "seed"])]
    fabric: Option<Name>,
    /// How the device's files are shown to the program
    #[arg(long, value_enum, default_value_t = Isolation::Auto)]
    isolation: Isolation,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Args)]
struct StartArguments {
    /// Its name: letters, digits, '-', '_' and '.'
    name: Name,
    #[command(flatten)]
    device: DeviceArguments,
    /// Stay in the foreground; a line is printed when the device is ready
    #[arg(long)]
    foreground: bool,
}

#[derive(Args)]
struct DeviceArguments {
    /// Generation of the device
    #[arg(long, value_enum, default_value = "2")]
    r#gen: GenerationValue,
    /// Wire protocol of the port [default: what the generation speaks first]
    #[arg(long, value_enum)]
    transport: Option<TransportValue>,
    /// How doorbells reach the device
    #[arg(long, value_enum, default_value = "trap")]
    mode: ModeValue,
    /// Kernel release whose behaviour the device shows
    #[arg(long, value_enum, default_value = "7.2")]
    kernel: KernelValue,
    /// Features that the device does not offer, though its generation has them
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FEATURE")]
    without: Vec<FeatureValue>,
    /// The old i40iw kernel, which reports no limits (generation 1); the newest ABI version it speaks
    #[arg(long, value_name = "ABI", num_args = 0..=1, require_equals = true, default_missing_value = "5",
        value_parser = clap::value_parser!(u8).range(4..=5))]
    legacy: Option<u8>,
    /// Push pages that queue pairs can have, as drivers do that offer push mode (generations 2 and 3)
    #[arg(long, default_value_t = 0, value_name = "PAGES")]
    push: u32,
    /// Byte of its push page that is a queue pair's, a multiple of 256
    #[arg(long, default_value_t = 0, value_name = "BYTES", requires = "push")]
    push_offset: u16,
    /// Seed of what the device chooses at random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl DeviceArguments {
    fn options(&self) -> DeviceOptions {
        let generation = self.r#gen.0;
        let first = if generation == Generation::Gen1 { Transport::Iwarp } else { Transport::Roce };
        DeviceOptions {
            generation,
            transport: self.transport.map_or(first, |transport| transport.0),
            mode: self.mode.0,
            kernel: self.kernel.0,
            withheld: self.without.iter().fold(0, |all, feature| all | feature.flag()),
            legacy: self.legacy,
            push_pages: self.push,
            push_offset: self.push_offset,
            seed: self.seed,
        }
    }
}

/// Gives a foreign enum the names it has on the command line.
macro_rules! values {
    ($wrapper:ident($inner:ty): $($value:path => $name:literal, $help:literal;)*) => {
        #[derive(Clone, Copy)]
        struct $wrapper($inner);

        impl ValueEnum for $wrapper {
            fn value_variants<'a>() -> &'a [Self] {
                &[$($wrapper($value)),*]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(match self.0 {
                    $($value => PossibleValue::new($name).help($help),)*
                })
            }
        }
    };
}

values! { GenerationValue(Generation):
    Generation::Gen1 => "1", "X722, iWARP";
    Generation::Gen2 => "2", "E810 family, RoCEv2 and iWARP";
    Generation::Gen3 => "3", "E2000 and later, RoCEv2";
}

values! { TransportValue(Transport):
    Transport::Roce => "roce", "RoCEv2";
    Transport::Iwarp => "iwarp", "iWARP; modify to RTS connects here, which kernels leave to rdma_cm";
}

/// Features that can be left out.
#[derive(Clone, Copy, ValueEnum)]
enum FeatureValue {
    /// The device tells when an iWARP connection is ready
    RtsAe,
    /// Completion queues can be resized
    CqResize,
    /// Completion entries have 64 bytes
    #[value(name = "64-byte-cqe")]
    WideCqe,
    /// Atomic operations
    Atomics,
    /// Shared receive queues
    Srq,
    /// Completions carry the device's time
    Timestamps,
}

impl FeatureValue {
    /// Its flag, as the kernel reports it.
    fn flag(self) -> u64 {
        match self {
            FeatureValue::RtsAe => feature::RTS_AE,
            FeatureValue::CqResize => feature::CQ_RESIZE,
            FeatureValue::WideCqe => feature::CQE_64_BYTE,
            FeatureValue::Atomics => feature::ATOMIC_OPS,
            FeatureValue::Srq => feature::SRQ,
            FeatureValue::Timestamps => feature::CQE_TIMESTAMPING,
        }
    }
}

values! { ModeValue(Mode):
    Mode::Trap => "trap", "A store to the doorbell page is caught and served at once (x86-64 only)";
    Mode::Poll => "poll", "The device polls the doorbell page: takes a core";
    Mode::Step => "step", "The device works only when told to, for measurements";
}

values! { KernelValue(Kernel):
    Kernel::V6_1 => "6.1", "Debian 12";
    Kernel::V6_12 => "6.12", "Debian 13";
    Kernel::V7_2 => "7.2", "The newest known";
}

/// Does what the command line says.
pub fn execute() -> Result<ExitCode> {
    match CommandLine::parse().command {
        Command::Run(arguments) => {
            let program = Program {
                arguments: arguments.program,
                provider: arguments.provider,
                plugin: arguments.plugin,
                isolation: arguments.isolation,
            };
            match arguments.fabric {
                Some(name) => run::on_fabric(&name, &program),
                None => run::on_own_device(arguments.device.options(), &program),
            }
        }
        Command::Start(StartArguments { name, device, foreground }) => {
            name.refuse_reserved()?;
            if foreground {
                fabric::serve(&name, device.options())?;
            } else {
                fabric::start(&name, device.options())?;
                println!("device {name} is ready: irdma-sim run --fabric {name} -- PROGRAM");
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Stop { name } => {
            fabric::stop(&name)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Ctl { name, command } => {
            print!("{}", client::Client::connect(&name)?.control(&command.join(" "))?);
            Ok(ExitCode::SUCCESS)
        }
        Command::List => {
            for device in fabric::list()? {
                println!("{device}");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(arguments: &[&str]) -> Result<CommandLine, clap::Error> {
        CommandLine::try_parse_from([&["irdma-sim"], arguments].concat())
    }

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn options_behind_the_program_are_the_programs() {
        let Command::Run(run) = parse(&["run", "--gen", "3", "--", "prog", "--gen", "x"]).unwrap().command
        else {
            panic!("not a run");
        };
        assert_eq!(run.device.options().generation, Generation::Gen3);
        assert_eq!(run.program, ["prog", "--gen", "x"]);
    }

    #[test]
    fn nonsense_is_refused() {
        let refused: [&[&str]; 8] = [
            &[],
            &["run"],
            &["run", "--gen", "4", "--", "prog"],
            &["run", "--mode", "fast", "--", "prog"],
            &["run", "--kernel", "5.4", "--", "prog"],
            &["run", "--fabric", "../x", "--", "prog"],
            &["run", "--fabric", "x", "--mode", "poll", "--", "prog"],
            &["start"],
        ];
        for arguments in refused {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
    }
}
