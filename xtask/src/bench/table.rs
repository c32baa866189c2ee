//! What was measured, for people, for programs and for the documentation.

use std::fmt::Write;

/// A row. What a provider does not offer has no figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// As the benchmark program calls it.
    pub name: String,
    /// Generation of the device.
    pub generation: u8,
    /// Instructions per operation of this provider.
    pub ours: Option<f64>,
    /// Of the C provider.
    pub c: Option<f64>,
    /// Time of this provider as a part of the C provider's.
    pub time_ratio: Option<f64>,
}

/// What an object takes of the program's memory, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Object, and which memory.
    pub name: String,
    /// Generation of the device.
    pub generation: u8,
    /// With this provider.
    pub ours: f64,
    /// With the C provider.
    pub c: Option<f64>,
}

/// What was measured beside one C provider.
#[derive(Default)]
pub struct Table {
    /// Verbs.
    pub rows: Vec<Row>,
    /// Objects.
    pub memory: Vec<Memory>,
}

impl Table {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.memory.is_empty()
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let line = |text: &mut String, name: &str, cells: [&str; 5]| {
            let [generation, ours, c, ratio, time] = cells;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<60} {generation:>3} {ours:>9} {c:>9} {ratio:>6} {time:>6}");
        };
        if !self.rows.is_empty() {
            line(&mut text, "instructions per operation", ["gen", "ours", "C", "ours/C", "time"]);
        }
        for row in &self.rows {
            let [ours, c, ratio, time] = row.cells();
            line(&mut text, &row.name, [&row.generation.to_string(), &ours, &c, &ratio, &time]);
        }
        if !self.memory.is_empty() {
            line(&mut text, "bytes", ["gen", "ours", "C", "ours/C", ""]);
        }
        for memory in &self.memory {
            let [ours, c, ratio] = memory.cells();
            line(&mut text, &memory.name, [&memory.generation.to_string(), &ours, &c, &ratio, ""]);
        }
        for (what, mean) in self.means(|_| true) {
            let _ = writeln!(text, "mean of ours/C, {what}: {mean:.2}");
        }
        text
    }

    /// The rows of a generation in Markdown, with what they come to.
    pub fn markdown(&self, generation: u8) -> String {
        let mut text = "| row | ours | C | ours/C | time |\n|---|--:|--:|--:|--:|\n".to_owned();
        for row in self.rows.iter().filter(|row| row.generation == generation) {
            let [ours, c, ratio, time] = row.cells();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} | {ours} | {c} | {ratio} | {time} |", row.name);
        }
        let means = self.means(|row| row.generation == generation);
        let means: Vec<_> = means.iter().map(|(what, mean)| format!("{what} {mean:.2}")).collect();
        if !means.is_empty() {
            let _ = writeln!(text, "\nMean of ours/C: {}.", means.join(", "));
        }
        text
    }

    /// What objects take on a generation, in Markdown.
    pub fn memory_markdown(&self, generation: u8) -> String {
        let mut text = "| bytes | ours | C | ours/C |\n|---|--:|--:|--:|\n".to_owned();
        for memory in self.memory.iter().filter(|memory| memory.generation == generation) {
            let [ours, c, ratio] = memory.cells();
            let _ = writeln!(text, "| {} | {ours} | {c} | {ratio} |", memory.name);
        }
        text
    }

    /// For programs. Names have no characters that JSON writes otherwise than Rust.
    pub fn json(&self) -> String {
        let number = |figure: Option<f64>| figure.map_or("null".to_owned(), |figure| format!("{figure:.3}"));
        let rows = self.rows.iter().map(|row| {
            format!(
                "{{\"name\": {:?}, \"generation\": {}, \"ours_instructions\": {}, \"c_instructions\": {}, \
                 \"time_ratio\": {}}}",
                row.name,
                row.generation,
                number(row.ours),
                number(row.c),
                number(row.time_ratio)
            )
        });
        let memory = self.memory.iter().map(|memory| {
            format!(
                "{{\"name\": {:?}, \"generation\": {}, \"ours_bytes\": {:.0}, \"c_bytes\": {}}}",
                memory.name,
                memory.generation,
                memory.ours,
                memory.c.map_or("null".to_owned(), |bytes| format!("{bytes:.0}"))
            )
        });
        let list = |lines: Vec<String>| lines.join(",\n  ");
        format!(
            "{{\"rows\": [\n  {}\n], \"memory\": [\n  {}\n]}}\n",
            list(rows.collect()),
            list(memory.collect())
        )
    }

    /// Means of both ratios, over the rows that have them.
    fn means(&self, wanted: impl Fn(&Row) -> bool) -> Vec<(&'static str, f64)> {
        let mean = |ratio: fn(&Row) -> Option<f64>| {
            let ratios: Vec<f64> = self.rows.iter().filter(|row| wanted(row)).filter_map(ratio).collect();
            (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
        };
        let means = [("instructions", mean(Row::ratio)), ("time", mean(|row| row.time_ratio))];
        means.into_iter().filter_map(|(what, mean)| Some((what, mean?))).collect()
    }
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        Some(self.ours? / self.c?)
    }

    /// Instructions of both, their ratio, that of the times.
    fn cells(&self) -> [String; 4] {
        let ratios = [self.ratio(), self.time_ratio];
        let [ratio, time] = ratios.map(|ratio| shown(ratio, 2));
        [shown(self.ours, 1), shown(self.c, 1), ratio, time]
    }
}

impl Memory {
    fn cells(&self) -> [String; 3] {
        let ratio = self.c.filter(|c| *c > 0.0).map(|c| self.ours / c);
        [shown(Some(self.ours), 0), shown(self.c, 0), shown(ratio, 2)]
    }
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = |name: &str, generation, c, time_ratio| Row {
            name: name.to_owned(),
            generation,
            ours: Some(50.0),
            c,
            time_ratio,
        };
        let memory = Memory { name: "queue".to_owned(), generation: 2, ours: 10.0, c: Some(40.0) };
        Table {
            rows: vec![row("a", 2, Some(200.0), Some(0.5)), row("b", 3, None, None)],
            memory: vec![memory],
        }
    }

    #[test]
    fn a_figure_that_there_is_not_is_a_dash_or_null() {
        let text = table().text();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a", "2", "50.0", "200.0", "0.25", "0.50"]);
        assert_eq!(lines[2], ["b", "3", "50.0", "-", "-", "-"]);
        assert_eq!(lines[4], ["queue", "2", "10", "40", "0.25"]);
        let json = table().json();
        assert!(json.contains(r#""ours_instructions": 50.000, "c_instructions": null, "time_ratio": null"#));
        assert!(json.contains(r#""ours_bytes": 10, "c_bytes": 40"#));
    }

    #[test]
    fn means_leave_out_what_there_is_not() {
        let end = "mean of ours/C, instructions: 0.25\nmean of ours/C, time: 0.50\n";
        assert!(table().text().ends_with(end));
    }

    #[test]
    fn the_documentation_has_a_table_for_each_generation() {
        let text = table().markdown(2);
        assert!(text.ends_with(
            "| a | 50.0 | 200.0 | 0.25 | 0.50 |\n\nMean of ours/C: instructions 0.25, time 0.50.\n"
        ));
        assert!(table().markdown(3).ends_with("|\n| b | 50.0 | - | - | - |\n"));
    }
}
