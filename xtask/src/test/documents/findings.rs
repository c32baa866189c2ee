//! What `irdma-check` can find: in its sources, in its manual page, in the documents.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use super::manuals::Manual;
use super::markdown::{Document, spans};
use super::sources::{self, Token};

/// Whether all three name the same.
pub fn check() -> Result<()> {
    let mut named = BTreeSet::new();
    for (_, tokens) in sources::of_folder("check/src")? {
        named.extend(kinds(&tokens));
    }
    ensure!(!named.is_empty(), "the sources of irdma-check name no finding");
    let document = Document::read("docs/troubleshooting.md")?;
    let tables = document.tables();
    let table = tables.iter().find(|table| table.column("finding") == Some(0));
    let table = table.context("docs/troubleshooting.md has no table of findings")?;
    let explained = table.rows.iter().flat_map(|row| spans(&row[0])).collect();
    same("docs/troubleshooting.md", &named, &explained)?;
    let manual = Manual::read("packaging/irdma-check.1")?;
    same("packaging/irdma-check.1", &named, &manual.tags("WHAT CAN BE WRONG"))
}

/// The first argument of each `.add("kind", ...)`.
fn kinds(tokens: &[Token]) -> Vec<String> {
    let kind = |window: &[Token]| match window {
        [Token::Sign('.'), Token::Name(name), Token::Sign('('), Token::Text(kind)] if name == "add" => {
            Some(kind.clone())
        }
        _ => None,
    };
    tokens.windows(4).filter_map(kind).collect()
}

/// Whether a document names just those.
pub fn same(place: &str, there: &BTreeSet<String>, said: &BTreeSet<String>) -> Result<()> {
    let missing: Vec<_> = there.difference(said).collect();
    ensure!(missing.is_empty(), "{place} does not explain {missing:?}");
    let old: Vec<_> = said.difference(there).collect();
    ensure!(old.is_empty(), "{place} explains {old:?}, which there is not");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_that_are_added() {
        let source = r#"fn f() { self.add("one", None, "a text"); findings.add("two", b(), c); map.insert("three"); }"#;
        assert_eq!(kinds(&sources::tokens(source).unwrap()), ["one", "two"]);
    }

    #[test]
    fn a_difference_on_either_side_is_one() {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        assert!(same("here", &set(&["a", "b"]), &set(&["b", "a"])).is_ok());
        assert!(same("here", &set(&["a", "b"]), &set(&["a"])).is_err());
        assert!(same("here", &set(&["a"]), &set(&["a", "b"])).is_err());
    }
}
