//! Instructions counted anew, in a document whose times stay: those take a machine without other work.

use anyhow::{Context, Result};

use super::table::{Row, Table};

/// The text with the instructions of a generation's table as `counted` has them.
pub fn recounted(text: &str, generation: u8, counted: &Table) -> Result<String> {
    let heading = format!("### GEN{generation}, beside");
    let start = text.find(&heading).with_context(|| format!("no table of GEN{generation}"))?;
    let start = start + text[start..].find("\n\n").context("a heading without a table")? + 2;
    let end = start + text[start..].find("\n### ").context("nothing behind a table")?;
    let table = Table { rows: timed(&text[start..end], generation, counted), memory: Vec::new() };
    Ok(format!("{}{}{}", &text[..start], table.markdown(generation), &text[end..]))
}

/// The rows that were counted with the times of an old table, and the old rows that have nothing but a time.
fn timed(old: &str, generation: u8, counted: &Table) -> Vec<Row> {
    let old: Vec<Vec<&str>> = old
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let time = |name: &str| old.iter().find(|cells| cells[1] == name).and_then(|cells| cells[5].parse().ok());
    let rows = counted.rows.iter().filter(|row| row.generation == generation);
    let mut rows: Vec<Row> = rows.map(|row| Row { time_ratio: time(&row.name), ..row.clone() }).collect();
    for cells in old.iter().filter(|cells| cells[2] == "-") {
        let name = cells[1].to_owned();
        rows.push(Row { time_ratio: time(&name), name, generation, ours: None, c: None });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_change_and_times_stay() {
        let row = |name: &str, ours| Row {
            name: name.to_owned(),
            generation: 2,
            ours: Some(ours),
            c: Some(100.0),
            time_ratio: None,
        };
        let head = "| row | ours | C | ours/C | time |\n|---|--:|--:|--:|--:|\n";
        let text = |figures: &str, mean: &str| {
            format!(
                "Times.\n\n### GEN2, beside rdma-core 44.0\n\n{head}{figures}| threads | - | - | - | 0.60 |\n\n\
                 Mean of ours/C: instructions {mean}, time 0.50.\n\n### GEN3, beside rdma-core 65\n\n{head}| a | 1.0 |\n"
            )
        };
        let old = text("| a | 50.0 | 100.0 | 0.50 | 0.40 |\n", "0.50");
        let counted = Table { rows: vec![row("a", 40.0)], memory: Vec::new() };
        assert_eq!(
            recounted(&old, 2, &counted).unwrap(),
            text("| a | 40.0 | 100.0 | 0.40 | 0.40 |\n", "0.40")
        );
        assert!(recounted(&old, 1, &counted).is_err());
    }
}
