//! Rust sources as the documents are compared with them: their tokens, without tests.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::workspace::root;

/// A token. Brackets are tokens of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A name or keyword.
    Name(String),
    /// A string of any kind, as the program has it.
    Text(String),
    /// Punctuation, or a bracket of any form: `(` or `)`.
    Sign(char),
    /// Another literal.
    Value,
    /// An attribute, as it is written.
    Attribute(String),
}

impl Token {
    /// Whether it is this name.
    pub fn is(&self, name: &str) -> bool {
        matches!(self, Token::Name(own) if own == name)
    }
}

/// The tokens of every file of a folder and those below it, with the file's path in the source tree.
pub fn of_folder(folder: &str) -> Result<Vec<(String, Vec<Token>)>> {
    let mut files = Vec::new();
    collect(&root().join(folder), &mut files)?;
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<(String, Vec<Token>)>) -> Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            // Unit tests that take several files.
            if name == "tests" {
                continue;
            }
            collect(&path, files)?;
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let text = fs::read_to_string(&path)?;
            let place = path.strip_prefix(root())?.display().to_string();
            files.push((place.clone(), tokens(&text).with_context(|| format!("in {place}"))?));
        }
    }
    Ok(())
}

/// The tokens of a file.
pub fn tokens(text: &str) -> Result<Vec<Token>> {
    let stream: TokenStream = text.parse().map_err(|error| anyhow!("not Rust: {error}"))?;
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    Ok(tokens)
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Punct(sign) if sign.as_char() == '#' => {
                // `#![...]` is about the whole, `#[...]` about what follows.
                let is_inner = trees.next_if(|next| is_sign(next, '!')).is_some();
                let attribute = trees.next().map(|tree| tree.to_string()).unwrap_or_default();
                let is_test = attribute.replace(' ', "").starts_with("[cfg(test)");
                if is_test && !is_inner {
                    // The item ends with its body or a semicolon.
                    let _ = trees.find(|tree| is_body(tree) || is_sign(tree, ';'));
                } else {
                    tokens.push(Token::Attribute(attribute));
                }
            }
            TokenTree::Punct(sign) => tokens.push(Token::Sign(sign.as_char())),
            TokenTree::Ident(name) => tokens.push(Token::Name(name.to_string())),
            TokenTree::Literal(literal) => {
                tokens.push(text_of(&literal.to_string()).map_or(Token::Value, Token::Text));
            }
            TokenTree::Group(group) => {
                tokens.push(Token::Sign('('));
                flatten(group.stream(), tokens);
                tokens.push(Token::Sign(')'));
            }
        }
    }
}

fn is_sign(tree: &TokenTree, sign: char) -> bool {
    matches!(tree, TokenTree::Punct(own) if own.as_char() == sign)
}

fn is_body(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// What a literal as it is written says, if it is a string of bytes or characters.
fn text_of(literal: &str) -> Option<String> {
    let start = literal.find('"')?;
    if literal.starts_with('\'') || literal.starts_with("b'") {
        return None;
    }
    let body = &literal[start + 1..literal.rfind('"')?];
    let mut text = String::new();
    let mut letters = body.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' || literal[..start].contains('r') {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => text.push('\n'),
            Some('0') => text.push('\0'),
            // A line that goes on in the next.
            Some('\n') => while letters.next_if(|letter| letter.is_whitespace()).is_some() {},
            Some(other) => text.push(other),
            None => {}
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        let text = |token| match token {
            Token::Text(text) => Some(text),
            _ => None,
        };
        tokens(source).unwrap().into_iter().filter_map(text).collect()
    }

    #[test]
    fn texts_are_those_of_the_program() {
        let source = r##"
            //! "a comment"
            /// "another"
            #[doc = "an attribute"]
            fn f() { say!("one \"two\"\n", c"three", 'c', '"', r#"f\our"#, "fi\
                           ve", 6); }
        "##;
        assert_eq!(texts(source), ["one \"two\"\n", "three", "f\\our", "five"]);
    }

    #[test]
    fn tests_are_no_part_of_it() {
        let source = r#"
            #[cfg(test)] use a::b;
            fn f() { say("seen") }
            #[cfg(test)] mod tests { fn g() { say("not seen") } }
            fn h() { say("seen too") }
        "#;
        assert_eq!(texts(source), ["seen", "seen too"]);
    }
}
