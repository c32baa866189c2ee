//! The project's commands in the documents: that there are such commands, with such options, and that each
//! is named.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use clap::{Command, CommandFactory};

use super::markdown::Document;
use crate::Arguments;

/// What the commands begin with.
const START: &str = "cargo xtask ";
/// What stands for any of them.
const ANY: &str = "COMMAND";

/// Looks at every command in every document.
pub fn check() -> Result<()> {
    let known = Arguments::command();
    let (mut named, mut wrong) = (BTreeSet::new(), Vec::new());
    for document in Document::all()? {
        let lines = document.code().map(str::to_owned).collect::<Vec<_>>();
        for text in lines.iter().chain(&document.spans()) {
            for command in text.split(START).skip(1) {
                named.insert(name_of(command).to_owned());
                wrong.extend(
                    fault(&known, command)
                        .map(|fault| format!("{}: {START}{command}: {fault}", document.path)),
                );
            }
        }
    }
    let silent: Vec<_> =
        known.get_subcommands().map(Command::get_name).filter(|name| !named.contains(*name)).collect();
    ensure!(silent.is_empty(), "no document names {silent:?}");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Its first word.
fn name_of(command: &str) -> &str {
    command.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default()
}

/// What is wrong with a command, from the word behind `xtask` on.
fn fault(known: &Command, command: &str) -> Option<String> {
    // What is behind these is a program's, or explains.
    let own = command.split("-- ").next()?.split(" #").next()?;
    let words = own.split(|letter: char| letter.is_whitespace() || "[]|,;=()".contains(letter)).skip(1);
    let name = name_of(own);
    if name == ANY {
        return None;
    }
    let Some(task) = known.find_subcommand(name) else { return Some(format!("there is no command {name}")) };
    let is_option = |word: &str| {
        let options = task.get_arguments().filter_map(clap::Arg::get_long).collect::<Vec<_>>();
        options.contains(&word) || word == "help"
    };
    let unknown =
        words.filter_map(|word| word.strip_prefix("--")).find(|word| !word.is_empty() && !is_option(word));
    unknown.map(|word| format!("there is no option --{word}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_options_are_looked_up() {
        let known = Arguments::command();
        for command in [
            "build --layout N",
            "package [--layout N | --root DIR]",
            "vm -- ib_write_bw --no-such",
            "differential [-- --no-such]",
            "test speed # --not one",
            "vm --gen 2 ...",
        ] {
            assert_eq!(fault(&known, command), None, "{command}");
        }
        for command in ["biuld", "build --layuot N", "package [--rmp]", "sim --nothing -- PROGRAM"] {
            assert!(fault(&known, command).is_some(), "{command}");
        }
    }
}
