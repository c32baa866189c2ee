//! The command line.

use std::path::PathBuf;

use irdma_engine::spec::Generation;

/// How it is called.
pub const USAGE: &str = "usage: irdma-vfio --gen 3|2 --socket PATH [--socket PATH ...]";
/// Most functions of a NIC.
const MOST_FUNCTIONS: usize = 8;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Which NIC.
    pub generation: Generation,
    /// One socket for each function.
    pub sockets: Vec<PathBuf>,
}

impl Options {
    /// From the arguments behind the program's name.
    ///
    /// # Errors
    /// What is wrong with them, in one line.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut generation = None;
        let mut sockets = Vec::new();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value; {USAGE}"));
            match argument.as_str() {
                "--gen" => {
                    generation = Some(match value()?.as_str() {
                        "2" => Generation::Gen2,
                        "3" => Generation::Gen3,
                        other => return Err(format!("there is no generation {other}; {USAGE}")),
                    });
                }
                "--socket" => sockets.push(PathBuf::from(value()?)),
                other => return Err(format!("unknown argument {other}; {USAGE}")),
            }
        }
        let generation = generation.ok_or_else(|| format!("--gen is missing; {USAGE}"))?;
        if sockets.is_empty() || sockets.len() > MOST_FUNCTIONS {
            return Err(format!("one to {MOST_FUNCTIONS} times --socket; {USAGE}"));
        }
        Ok(Self { generation, sockets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn one_socket_for_each_function() {
        let options = parse("--gen 3 --socket a --socket b").expect("options");
        assert_eq!(options.generation, Generation::Gen3);
        assert_eq!(options.sockets, [PathBuf::from("a"), PathBuf::from("b")]);
    }

    #[test]
    fn nonsense_is_refused_with_a_line() {
        for line in ["", "--gen", "--gen 4 --socket a", "--gen 3", "--socket a", "--gen 2 --socket", "x"] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(USAGE) && error.lines().count() == 1, "{error}");
        }
        assert!(parse(&format!("--gen 3 {}", "--socket a ".repeat(9))).is_err());
    }
}
