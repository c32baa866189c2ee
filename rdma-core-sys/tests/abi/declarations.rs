//! What include/provider.h declares in one layout, taken apart.

use std::env;
use std::path::Path;
use std::process::Command;

include!("../../layouts.rs");

/// One declaration.
pub enum Declaration {
    /// `struct NAME BODY`.
    Struct {
        /// Its tag.
        name: String,
        /// From brace to brace.
        body: String,
        /// Its fields; those of a union without a name are its own.
        fields: Vec<Field>,
    },
    /// An enum.
    Enum {
        /// Each constant, and the text that declares it.
        constants: Vec<(String, String)>,
    },
    /// `RESULT NAME(ARGUMENTS);`.
    Function {
        /// Its name.
        name: String,
        /// Type of its result.
        result: String,
        /// Its parameters.
        arguments: String,
    },
}

/// A field of a struct.
pub struct Field {
    /// Its name.
    pub name: String,
    /// It is a pointer to a function, of a type that says so.
    pub is_function: bool,
}

/// Every declaration of a layout.
pub fn of_layout(layout: &Layout) -> Vec<Declaration> {
    statements(&preprocessed(layout)).iter().filter_map(|statement| parse(statement)).collect()
}

/// The lines of the header itself, without those it includes.
fn preprocessed(layout: &Layout) -> String {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/provider.h");
    let output = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .arg("-E")
        .arg(format!("-DIRDMA_LAYOUT={}", layout.number))
        .arg(format!("-DIRDMA_PABI={}", layout.pabi))
        .arg(&header)
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut own = false;
    let mut text = String::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if line.starts_with("# ") {
            own = line.contains("provider.h\"");
        } else if own {
            text.push_str(line);
            text.push(' ');
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Splits at the semicolons that are not inside braces.
fn statements(text: &str) -> Vec<String> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                found.push(text[start..at].trim().to_owned());
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Takes one statement apart; `None` for those that only announce a name.
fn parse(statement: &str) -> Option<Declaration> {
    if statement.starts_with("typedef ") {
        return None;
    }
    if let Some((head, body)) = statement.split_once('{') {
        let body = body.strip_suffix('}').unwrap_or_else(|| panic!("unknown form: {statement}"));
        if head.starts_with("enum") {
            let constants = body.split(',').map(str::trim).filter(|text| !text.is_empty());
            let named =
                constants.map(|text| (text.split_whitespace().next().unwrap().to_owned(), text.to_owned()));
            return Some(Declaration::Enum { constants: named.collect() });
        }
        let name = head.trim().strip_prefix("struct ").unwrap_or_else(|| panic!("unknown form: {statement}"));
        let body_with_braces = format!("{{{body}}}");
        return Some(Declaration::Struct {
            name: name.to_owned(),
            body: body_with_braces,
            fields: fields(body),
        });
    }
    let (head, arguments) = statement.split_once('(')?;
    let arguments = arguments.strip_suffix(')').unwrap_or_else(|| panic!("unknown form: {statement}"));
    let split = head.rfind([' ', '*']).unwrap_or_else(|| panic!("unknown form: {statement}")) + 1;
    let (result, name) = head.split_at(split);
    Some(Declaration::Function {
        name: name.to_owned(),
        result: result.to_owned(),
        arguments: arguments.to_owned(),
    })
}

/// The fields between the braces of a struct.
fn fields(body: &str) -> Vec<Field> {
    statements(body).iter().flat_map(|statement| fields_of(statement)).collect()
}

/// The fields that one statement of a struct declares.
fn fields_of(statement: &str) -> Vec<Field> {
    let plain = |name: &str| Field { name: name.to_owned(), is_function: false };
    if let Some((_, rest)) = statement.split_once('{') {
        let (inner, name) = rest.rsplit_once('}').unwrap_or_else(|| panic!("unknown form: {statement}"));
        return if name.trim().is_empty() { fields(inner) } else { vec![plain(name.trim())] };
    }
    if let Some((_, rest)) = statement.split_once("(*") {
        let name = rest.split(')').next().unwrap();
        return vec![Field { name: name.to_owned(), is_function: true }];
    }
    let identifier = |text: &str| {
        let text = text.split('[').next().unwrap().trim();
        text[text.rfind([' ', '*']).map_or(0, |at| at + 1)..].to_owned()
    };
    statement.split(',').map(|declarator| plain(&identifier(declarator))).collect()
}
