//! Variables of the environment: those that the sources look at, and those that the documents name.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::findings::same;
use super::manuals::Manual;
use super::markdown::{Document, spans};
use super::sources::{self, Token};
use crate::test::tree;

/// What they begin with.
const PREFIX: &str = "IRDMA_";
/// Names of the kernel's that look the same.
const KERNELS: &[&str] = &["IRDMA_ATOMICS_ALLOWED_BIT"];
/// Between the parts of the project: a person does not set them.
const INTERNAL: &[&str] = &["IRDMA_LAYOUT", "IRDMA_RDMA_CORE_ROOT"];

/// Whether the provider's are in its manual page and in the table of `docs/tuning.md`, and all that a
/// person may set in a document.
pub fn check() -> Result<()> {
    let providers = variables("src")?;
    ensure!(!providers.is_empty(), "the provider looks at no variable");
    let mut said = Manual::read("packaging/irdma-provider.7")?.tags("ENVIRONMENT");
    said.retain(|word| word.starts_with(PREFIX));
    same("packaging/irdma-provider.7", &providers, &said)?;
    let table = Document::read("docs/tuning.md")?.section("Environment")?.tables().remove(0);
    let said = table.rows.iter().flat_map(|row| spans(&row[0])).collect();
    same("docs/tuning.md", &providers, &said)?;

    let mut all = BTreeSet::new();
    for folder in ["src", "check", "sim", "rdma-core-sys", "tests", "benches", "xtask", "vm", "providers"] {
        all.extend(variables(folder)?);
    }
    all.retain(|name| !INTERNAL.contains(&name.as_str()));
    let mut said = BTreeSet::new();
    for path in tree::files(".md")? {
        let document = Document::read(&path)?;
        said.extend(document.prose().chain(document.code()).flat_map(named));
    }
    said.retain(|name| !KERNELS.contains(&name.as_str()));
    same("one of the documents", &all, &said)
}

/// The variables that a folder's sources look at: texts that are a name and nothing else, and what
/// options may be given by.
fn variables(folder: &str) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (_, tokens) in sources::of_folder(folder)? {
        names.extend(tokens.iter().flat_map(looked_at));
    }
    names.retain(|name| !KERNELS.contains(&name.as_str()));
    Ok(names)
}

fn looked_at(token: &Token) -> Vec<String> {
    match token {
        Token::Text(text) if *text != PREFIX && named(text) == [text.as_str()] => named(text),
        Token::Attribute(text) if text.contains("env =") && !text.starts_with("[doc") => named(text),
        _ => Vec::new(),
    }
}

/// The names of variables in a text.
fn named(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
    words.filter(|word| word.starts_with(PREFIX)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_text() {
        assert_eq!(named("`IRDMA_ONE=1 IRDMA_TWO` and XIRDMA_THREE"), ["IRDMA_ONE", "IRDMA_TWO"]);
    }

    #[test]
    fn sources_look_at_names_alone_and_at_those_of_options() {
        let source = r#"
            #[arg(long, env = "IRDMA_OF_AN_OPTION")] struct O;
            #[doc = "says env = IRDMA_SAID"] struct D;
            fn f() { get("IRDMA_ALONE"); say("set IRDMA_TOLD to 1") }
        "#;
        let tokens = sources::tokens(source).unwrap();
        let names: Vec<_> = tokens.iter().flat_map(looked_at).collect();
        assert_eq!(names, ["IRDMA_OF_AN_OPTION", "IRDMA_ALONE"]);
    }
}
