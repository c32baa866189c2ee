//! The lines that the provider writes, as its sources have them, and as the documents explain them.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::markdown::{Document, spans};
use super::sources::{self, Token};

/// Where the lines are explained.
const DOCUMENT: &str = "docs/troubleshooting.md";
/// The part of it that explains nothing else.
const SECTION: &str = "Log lines";
/// What begins every line; the rest is what the documents name.
const PREFIXES: &[&str] = &["%s: irdma: ", "libirdma: "];
/// Macros whose texts the provider does not write.
const SILENT: &[&str] = &["asm", "global_asm", "panic"];
/// How far in front of a text its level or errno may stand, in tokens: in the same call.
const CLOSE: usize = 10;

/// What varies in a line.
const VARIABLE: char = '*';

/// A line's level and errno, as the document writes them.
type Weight = (&'static str, &'static str);

/// A line of the provider, or what stands for a part of one.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    /// With [`VARIABLE`] for what varies.
    pattern: String,
    /// Its level and the errno that the verb returns, where the line is written by a call that names them.
    weight: Option<Weight>,
    place: String,
}

/// What a document says of a line.
struct Entry {
    line: String,
    weight: Option<(String, String)>,
}

/// Whether each line is explained, and only those are, with their levels and errnos.
pub fn check() -> Result<()> {
    let mut lines = Vec::new();
    for folder in ["src", "providers/irdma/src/limits"] {
        for (place, tokens) in sources::of_folder(folder)? {
            lines.extend(lines_of(&place, &tokens));
        }
    }
    let lines = without_objects(lines);
    let wrong = compare(&lines, &entries(&Document::read(DOCUMENT)?)?);
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

/// Every text of several words that is not said to nobody.
fn lines_of(place: &str, tokens: &[Token]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let Token::Text(text) = token else { continue };
        let pattern = pattern(text);
        let is_whole = pattern == VARIABLE.to_string();
        if !text.contains(' ') || is_whole || is_silent(&tokens[..index]) {
            continue;
        }
        let is_format = tokens[..index].iter().rev().nth(2).is_some_and(|token| token.is("format_args"));
        let weight = if is_format { weight(tokens, index) } else { None };
        lines.push(Line { pattern, weight, place: place.to_owned() });
    }
    lines
}

/// Without those that only say what a line is about, in front of its colon.
fn without_objects(lines: Vec<Line>) -> Vec<Line> {
    let starts: BTreeSet<_> =
        lines.iter().filter_map(|line| Some(line.pattern.split_once(':')?.0.to_owned())).collect();
    lines.into_iter().filter(|line| !starts.contains(&line.pattern)).collect()
}

/// Whether the innermost bracket that is open behind these tokens is that of a macro which writes nothing.
fn is_silent(before: &[Token]) -> bool {
    let mut closed = 0;
    for (index, token) in before.iter().enumerate().rev() {
        match token {
            Token::Sign(')') => closed += 1,
            Token::Sign('(') if closed > 0 => closed -= 1,
            Token::Sign('(') => {
                let name = before[..index].iter().rev().find(|token| **token != Token::Sign('!'));
                return SILENT.iter().any(|silent| name.is_some_and(|name| name.is(silent)));
            }
            _ => {}
        }
    }
    false
}

/// A format of Rust or C with [`VARIABLE`] for each argument, without what begins every line.
fn pattern(text: &str) -> String {
    let text = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text).trim();
    let (mut pattern, mut letters) = (String::new(), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '{' => {
                let _ = letters.find(|letter| *letter == '}');
                pattern.push(VARIABLE);
            }
            '%' => {
                // A length, then the conversion.
                let _ = letters.find(|letter| *letter != 'l');
                pattern.push(VARIABLE);
            }
            letter => pattern.push(letter),
        }
    }
    pattern.replace("0x*", "*")
}

/// Level and errno of the line whose text is at `index`: those close in front of it, else the next.
fn weight(tokens: &[Token], index: usize) -> Option<Weight> {
    let (before, behind) = tokens.split_at(index);
    let names = |at: usize| match tokens.get(at..at + 4) {
        Some([Token::Name(kind), Token::Sign(':'), Token::Sign(':'), Token::Name(name)]) => {
            Some((kind.as_str(), name.as_str()))
        }
        _ => None,
    };
    let is_weight = |kind: &str| kind == "Level" || kind == "Errno";
    let close = (index.saturating_sub(CLOSE)..index).rev().filter_map(names);
    let next = (index..index + behind.len()).filter_map(names);
    if before.iter().rev().take(CLOSE).any(|token| token.is("standard_error")) {
        return Some(("always", "-"));
    }
    let (kind, name) = close.chain(next.clone()).find(|(kind, _)| is_weight(kind))?;
    let errno = |name: &str| {
        Some(match name {
            "INVALID" => "EINVAL",
            "NO_MEMORY" => "ENOMEM",
            "BUSY" => "EBUSY",
            "NOT_PERMITTED" => "EPERM",
            "NOT_SUPPORTED" => "EOPNOTSUPP",
            "PROTOCOL" => "EPROTO",
            "INTERNAL" => "ENOTRECOVERABLE",
            _ => return None,
        })
    };
    match (kind, name) {
        ("Level", "Debug") => Some(("4", "-")),
        ("Level", "Warning") => Some(("2", "-")),
        ("Level", _) => {
            let (_, name) = next.clone().find(|(kind, _)| *kind == "Errno")?;
            Some(("1", errno(name)?))
        }
        (_, name) => Some(("1", errno(name)?)),
    }
}

/// The lines in the first column of the section's tables; where there are such columns, what is in
/// `level` and `errno`.
fn entries(document: &Document) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for table in document.section(SECTION)?.tables() {
        let (level, errno) = (table.column("level"), table.column("errno"));
        for row in &table.rows {
            let weight = level.zip(errno).map(|(level, errno)| {
                let cell = |column: usize| row[column].replace('`', "");
                (cell(level), cell(errno))
            });
            for line in spans(&row[0]) {
                let line =
                    PREFIXES.iter().find_map(|prefix| line.strip_prefix(prefix)).unwrap_or(&line).to_owned();
                entries.push(Entry { line, weight: weight.clone() });
            }
        }
    }
    Ok(entries)
}

/// What is missing on either side, and which levels and errnos are wrong.
fn compare(lines: &[Line], entries: &[Entry]) -> Vec<String> {
    let mut wrong = BTreeSet::new();
    for line in lines {
        let Line { pattern, place, .. } = line;
        let mut found = entries.iter().filter(|entry| says(pattern, &entry.line)).peekable();
        if found.peek().is_none() {
            wrong.insert(format!("{DOCUMENT} has no line for {place}: {pattern}"));
        }
        for entry in found {
            let (Some((level, errno)), Some(said)) = (&line.weight, &entry.weight) else { continue };
            if (*level, *errno) != (&said.0, &said.1) {
                let line = &entry.line;
                wrong.insert(format!("{DOCUMENT}, {line}: {said:?}, by {place} level {level}, {errno}"));
            }
        }
    }
    for Entry { line, .. } in entries {
        if !lines.iter().any(|Line { pattern, .. }| says(pattern, line)) {
            wrong.insert(format!("{DOCUMENT} has a line that the provider does not write: {line}"));
        }
    }
    wrong.into_iter().collect()
}

/// Whether `line` is the pattern with a number, or a word in capitals, for each thing that varies.
fn says(pattern: &str, line: &str) -> bool {
    let mut pieces = pattern.split(VARIABLE);
    let Some(mut rest) = line.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    for piece in pieces {
        let is_part = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
        let word = rest.trim_start_matches(is_part);
        if word.len() == rest.len() {
            return false;
        }
        let Some(behind) = word.strip_prefix(piece) else { return false };
        rest = behind;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        fn f() {
            let why = format_args!("CQ: {asked} of {most:#x}");
            return refused(Errno::INVALID, why);
            refused(Errno::NOT_SUPPORTED, format_args!("CQ: cannot"));
            log::line(context, Level::Warning, format_args!("CQ: odd"));
            log::line(context, Level::Error, format_args!("CQ: new {size}")); Err(Errno::PROTOCOL)
            say(text!("%lld bytes, limit 0x%llx"), c"%s: irdma: %s\n", panic!("never said"));
        }
    "#;

    fn lines() -> Vec<Line> {
        lines_of("src/f.rs", &sources::tokens(SOURCE).unwrap())
    }

    fn entry(line: &str, weight: Option<(&str, &str)>) -> Entry {
        let weight = weight.map(|(level, errno)| (level.to_owned(), errno.to_owned()));
        Entry { line: line.to_owned(), weight }
    }

    fn right() -> Vec<Entry> {
        vec![
            entry("CQ: N of X", Some(("1", "EINVAL"))),
            entry("CQ: cannot", Some(("1", "EOPNOTSUPP"))),
            entry("CQ: odd", Some(("2", "-"))),
            entry("CQ: new 5", Some(("1", "EPROTO"))),
            entry("N bytes, limit M", None),
        ]
    }

    #[test]
    fn lines_are_taken_from_sources() {
        let patterns: Vec<_> = lines().into_iter().map(|line| line.pattern).collect();
        assert_eq!(patterns, ["CQ: * of *", "CQ: cannot", "CQ: odd", "CQ: new *", "* bytes, limit *"]);
    }

    #[test]
    fn what_a_line_is_about_is_none() {
        let source =
            r#"fn f() { say("thread domain"); say("thread domain: no {what}"); say("some domain") }"#;
        let lines = without_objects(lines_of("src/f.rs", &sources::tokens(source).unwrap()));
        let patterns: Vec<_> = lines.into_iter().map(|line| line.pattern).collect();
        assert_eq!(patterns, ["thread domain: no *", "some domain"]);
    }

    #[test]
    fn a_whole_document_has_nothing_wrong() {
        assert_eq!(compare(&lines(), &right()), Vec::<String>::new());
    }

    #[test]
    fn missing_and_old_lines_and_wrong_weights_are_found() {
        let mut missing = right();
        missing.remove(2);
        assert_eq!(compare(&lines(), &missing), [format!("{DOCUMENT} has no line for src/f.rs: CQ: odd")]);
        let mut old = right();
        old.push(entry("CQ: N of old", None));
        assert_eq!(compare(&lines(), &old).len(), 1);
        let mut heavy = right();
        heavy[3] = entry("CQ: new N", Some(("1", "EINVAL")));
        assert_eq!(compare(&lines(), &heavy).len(), 1);
    }

    #[test]
    fn what_varies_is_a_number_or_capitals() {
        assert!(says("*: * more", "QP: 5 more"));
        assert!(!says("*: * more", "QP: five more"));
        assert!(!says("*: *", "QP: N more"));
        assert!(!says("* more", " more"));
    }
}
