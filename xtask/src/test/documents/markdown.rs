//! Markdown, as far as the documents use it: headings, tables, words of code, links.

use std::fs;

use anyhow::{Context, Result};

use crate::test::tree;
use crate::workspace::root;

/// A document or a part of one.
pub struct Document {
    /// Its path in the source tree.
    pub path: String,
    /// Its lines; those in blocks of code are marked.
    lines: Vec<(String, bool)>,
}

/// A table: its head, and what is below.
pub struct Table {
    head: Vec<String>,
    /// As many cells in each as in the head.
    pub rows: Vec<Vec<String>>,
}

impl Document {
    /// Reads one by its path in the source tree.
    pub fn read(path: &str) -> Result<Document> {
        let text = fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))?;
        Ok(Document::of(path, &text))
    }

    /// All of them.
    pub fn all() -> Result<Vec<Document>> {
        tree::files(".md")?.iter().map(|path| Document::read(path)).collect()
    }

    /// One of this text.
    pub fn of(path: &str, text: &str) -> Document {
        let mut is_fenced = false;
        let lines = text.lines().map(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_fenced ^= is_fence;
            // A line that is indented that far is code, unless it goes on with a list.
            let is_code = is_fenced || is_fence || line.starts_with("    ");
            (line.to_owned(), is_code)
        });
        Document { path: path.to_owned(), lines: lines.collect() }
    }

    /// The lines of text, without blocks of code.
    pub fn prose(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|(_, is_code)| !is_code).map(|(line, _)| line.as_str())
    }

    /// The lines in blocks of code.
    pub fn code(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|(_, is_code)| *is_code).map(|(line, _)| line.as_str())
    }

    /// From a heading to the next one of the same level or above.
    pub fn section(&self, title: &str) -> Result<Document> {
        let level = |line: &str| line.chars().take_while(|letter| *letter == '#').count();
        let is_start = |(line, is_code): &(String, bool)| {
            !is_code && level(line) > 0 && line.trim_start_matches('#').trim() == title
        };
        let start = self.lines.iter().position(is_start);
        let start = start.with_context(|| format!("{} has no section {title}", self.path))?;
        let depth = level(&self.lines[start].0);
        let rest = self.lines[start + 1..].iter();
        let lines = rest.take_while(|(line, is_code)| *is_code || !(1..=depth).contains(&level(line)));
        Ok(Document { path: self.path.clone(), lines: lines.cloned().collect() })
    }

    /// Its headings.
    pub fn headings(&self) -> Vec<String> {
        let headings = self.prose().filter(|line| line.starts_with('#'));
        headings.map(|heading| heading.trim_start_matches('#').trim().to_owned()).collect()
    }

    /// What the headings are called in links.
    pub fn anchors(&self) -> Vec<String> {
        self.headings().iter().map(|heading| anchor(heading)).collect()
    }

    /// Its tables.
    pub fn tables(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = Vec::new();
        let mut is_inside = false;
        for line in self.prose() {
            let Some(row) = cells(line) else {
                is_inside = false;
                continue;
            };
            match tables.last_mut() {
                Some(table) if is_inside => {
                    let is_rule =
                        row.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| "-:".contains(c)));
                    if !is_rule {
                        table.rows.push(row);
                    }
                }
                _ => tables.push(Table { head: row, rows: Vec::new() }),
            }
            is_inside = true;
        }
        for table in &mut tables {
            let width = table.head.len();
            table.rows.iter_mut().for_each(|row| row.resize(width, String::new()));
        }
        tables
    }

    /// What is marked as code in the text; it may go on in the next line.
    pub fn spans(&self) -> Vec<String> {
        let mut paragraphs = vec![String::new()];
        for line in self.prose() {
            if line.trim().is_empty() || cells(line).is_some() {
                paragraphs.push(String::new());
            }
            if let Some(paragraph) = paragraphs.last_mut() {
                paragraph.push_str(line);
                paragraph.push(' ');
            }
        }
        paragraphs.iter().flat_map(|paragraph| spans(paragraph)).collect()
    }

    /// Where links lead that are written here.
    pub fn links(&self) -> Vec<String> {
        // A link may be broken into two lines, between its words.
        let text: String = self.prose().flat_map(|line| [line, "\n"]).collect();
        let mut links = Vec::new();
        for part in text.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                links.push(target.to_owned());
            }
        }
        links
    }
}

impl Table {
    /// The place of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.head.iter().position(|cell| cell == name)
    }
}

/// A heading as links name it: small letters, hyphens for spaces, no other signs.
fn anchor(heading: &str) -> String {
    let letters = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
        _ => None,
    });
    letters.collect()
}

/// The cells of a line of a table.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().to_owned()).collect())
}

/// What is marked as code in a text.
pub fn spans(text: &str) -> Vec<String> {
    let parts: Vec<_> = text.split('`').collect();
    // One that does not end is none.
    let inner = parts.iter().take(parts.len() - 1).skip(1);
    inner.step_by(2).map(|part| (*part).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Top\n\n| a | b |\n|---|--:|\n| `x`, `y` | |\n\n## One `two`, three\n```\n# no heading\n```\n\
                        [l](m.md#n) and [two\nlines](o.md)\n## End\n| c |\n|-|\n";

    #[test]
    fn headings_are_named_as_links_name_them() {
        assert_eq!(Document::of("t", TEXT).anchors(), ["top", "one-two-three", "end"]);
    }

    #[test]
    fn a_section_ends_where_the_next_begins() {
        let section = Document::of("t", TEXT).section("One `two`, three").unwrap();
        assert_eq!(section.links(), ["m.md#n", "o.md"]);
        assert!(section.tables().is_empty());
        assert!(Document::of("t", TEXT).section("Two").is_err());
    }

    #[test]
    fn code_in_text_may_go_on_in_the_next_line() {
        let document = Document::of("t", "An odd ` here.\n\nA `b\nc` d.\n| `e` |\n    `f`\n");
        assert_eq!(document.spans(), ["b c", "e"]);
    }

    #[test]
    fn tables_have_a_head_and_rows() {
        let tables = Document::of("t", TEXT).tables();
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].column("b"), Some(1));
        assert_eq!(tables[0].rows, [["`x`, `y`", ""]]);
        assert_eq!(spans(&tables[0].rows[0][0]), ["x", "y"]);
    }
}
