//! The tests in the guest, as data: a table per kind, in files of their own.

mod connections;
mod fabric;
mod faults;
mod perftest;
mod pingpong;
mod tools;

use std::fmt;

/// A test.
pub struct Test {
    /// What it is called within its group.
    pub name: &'static str,
    /// What is run. Commands are for the guest's shell, with the variables that `vm/guest/network` writes,
    /// and `SERVER`, the address of the guest that servers run in.
    pub what: What,
    /// Seconds that it may take.
    pub limit: u32,
    /// Whether it is in the short list.
    pub is_short: bool,
    /// The only generation that it is for.
    pub only: Option<u32>,
    /// Why it fails with the C provider, if that is known.
    pub c_fault: Option<&'static str>,
    /// Functions of the kernel that are known to warn.
    pub warnings: &'static [&'static str],
}

/// What a test runs.
pub enum What {
    /// A command; exit code 77 is a skip, its last line the reason.
    Alone(&'static str),
    /// Two commands that must both succeed, the second one in the other guest if there is one.
    Pair {
        /// Begins.
        server: &'static str,
        /// Starts when the server can be reached.
        client: &'static str,
        /// How that is told.
        listens: Listens,
    },
}

/// Where a server waits for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listens {
    /// At a TCP port.
    Tcp(u16),
    /// At a port of the connection manager.
    Connections(u16),
    /// Nowhere: the client waits for it.
    Nowhere,
}

/// Tests that belong together.
pub struct Group {
    /// Their common name.
    pub name: &'static str,
    /// The table.
    pub tests: Vec<Test>,
}

/// What goes wrong on purpose: after all others, since it takes the device away.
pub fn faults() -> Group {
    Group { name: "faults", tests: faults::tests() }
}

/// All other tests.
pub fn groups() -> Vec<Group> {
    let group = |name, tests| Group { name, tests };
    vec![
        group("tools", tools::tests()),
        group("pingpong", pingpong::tests()),
        group("perftest", perftest::tests()),
        group("connections", connections::tests()),
        group("ucx", fabric::ucx()),
        group("libfabric", fabric::libfabric()),
        group("mpi", fabric::mpi()),
    ]
}

impl Test {
    fn new(name: &'static str, what: What) -> Test {
        Test { name, what, limit: 30, is_short: false, only: None, c_fault: None, warnings: &[] }
    }

    /// One command.
    fn alone(name: &'static str, command: &'static str) -> Test {
        Test::new(name, What::Alone(command))
    }

    /// A server and its client.
    fn pair(name: &'static str, listens: Listens, server: &'static str, client: &'static str) -> Test {
        Test::new(name, What::Pair { server, client, listens })
    }

    /// In the short list too.
    fn short(self) -> Test {
        Test { is_short: true, ..self }
    }

    /// May take so many seconds.
    fn within(self, limit: u32) -> Test {
        Test { limit, ..self }
    }

    /// Fails with the C provider, for this reason.
    fn c_fails(self, reason: &'static str) -> Test {
        Test { c_fault: Some(reason), ..self }
    }

    /// The kernel warns in these functions, for no fault of the provider's or the device's.
    fn warns(self, warnings: &'static [&'static str]) -> Test {
        Test { warnings, ..self }
    }

    /// For one generation.
    fn only_on(self, generation: u32) -> Test {
        Test { only: Some(generation), ..self }
    }
}

impl Outcome {
    /// What came of a test that is known to fail: failing is no news, anything else is.
    pub fn of_known_fault(self, fault: &str) -> Outcome {
        match self {
            Outcome::Failed(_) => Outcome::Skipped(format!("fails, as known: {fault}")),
            Outcome::Passed => Outcome::Failed(format!("passes, although the list says: {fault}")),
            Outcome::Skipped(reason) => Outcome::Skipped(reason),
        }
    }
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Passed,
    /// It could not be made, for this reason.
    Skipped(String),
    /// It failed, like this.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => formatter.write_str("ok"),
            Outcome::Skipped(reason) => write!(formatter, "skipped: {reason}"),
            Outcome::Failed(reason) => write!(formatter, "FAILED: {reason}"),
        }
    }
}
