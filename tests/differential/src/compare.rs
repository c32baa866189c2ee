//! Two traces of one program, line by line.

use std::collections::BTreeMap;

use crate::execute::LEFT_OPEN;
use crate::faults::{self, Effect, History};
use crate::program::{Program, Step};

/// A line of a trace in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its first word.
    pub kind: &'a str,
    values: Vec<(&'a str, &'a str)>,
    /// All of it.
    pub line: &'a str,
}

impl<'a> Event<'a> {
    /// Takes a line apart.
    pub fn parse(line: &'a str) -> Event<'a> {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        Event { kind, values: words.filter_map(|word| word.split_once('=')).collect(), line }
    }

    /// The value of that name, or nothing.
    pub fn text(&self, name: &str) -> &'a str {
        self.values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The number of that name.
    pub fn number(&self, name: &str) -> Option<i64> {
        let text = self.text(name);
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(|number| number as i64),
            None => text.parse().ok(),
        }
    }

    /// Whether it is an ioctl of that name.
    pub fn is_ioctl(&self, name: &str) -> bool {
        self.kind == "ioctl" && self.text("name") == name
    }

    /// Whether every value but those named is among the other's.
    pub fn values_are_among(&self, other: &Event<'a>, but: &[&str]) -> bool {
        self.values.iter().all(|value| but.contains(&value.0) || other.values.contains(value))
    }

    /// Names of the values in which two lines of the same kind differ; `None` if it is not just values.
    pub fn differences(&self, other: &Event<'a>) -> Option<Vec<&'a str>> {
        let alike = self.kind == other.kind
            && self.values.len() == other.values.len()
            && self.values.iter().zip(&other.values).all(|(one, two)| one.0 == two.0);
        let differing = self.values.iter().zip(&other.values).filter(|(one, two)| one.1 != two.1);
        alike.then(|| differing.map(|(one, _)| one.0).collect())
    }
}

/// Where two traces part.
#[derive(Debug)]
pub struct Difference<'a> {
    /// All steps.
    pub program: &'a Program,
    /// The step that is being run; the number of steps at the end, when all is destroyed.
    pub step: usize,
    /// Of the device.
    pub generation: u8,
    /// Of rdma-core, whose C provider it is.
    pub release: u32,
    /// What this project's provider did, and what the C provider.
    pub ours: Event<'a>,
    /// The same.
    pub c: Event<'a>,
    /// What this project's provider did before in this step.
    pub before: &'a [&'a str],
    /// What it did after.
    pub after: &'a [&'a str],
    /// All that the C provider did, this line left out.
    pub c_before: &'a [&'a str],
    /// What it did after.
    pub c_after: &'a [&'a str],
}

impl<'a> Difference<'a> {
    /// The same with another line of the C provider.
    pub fn with_c<'b>(&self, line: &'b str) -> Difference<'b>
    where
        'a: 'b,
    {
        let Difference { program, step, generation, release, before, after, c_before, c_after, .. } = *self;
        Difference {
            program,
            step,
            generation,
            release,
            ours: self.ours.clone(),
            c: Event::parse(line),
            before,
            after,
            c_before,
            c_after,
        }
    }

    /// The step that is being run, if it is one of the program's.
    pub fn step(&self) -> Option<&Step> {
        self.program.get(self.step)
    }

    /// What kind of difference it is, so that a shorter program can be seen to show the same one.
    pub fn signature(&self) -> String {
        let names = self.ours.differences(&self.c).unwrap_or_default();
        let detail = |event: &Event<'_>| format!("{} {}", event.kind, event.text("name"));
        format!("{}|{}|{}", detail(&self.ours), detail(&self.c), names.join(","))
    }
}

/// How a comparison ended.
#[derive(Debug)]
pub enum Outcome {
    /// Equal, but for faults of the C provider.
    Equal,
    /// From a fault of the C provider on the rest cannot be compared.
    Cut,
    /// Not equal.
    Different {
        /// What kind of difference.
        signature: String,
        /// For people.
        report: String,
    },
}

/// Compares, on a device of that generation and with the C provider of that release, and counts the faults
/// that were met.
pub fn compare(
    program: &Program,
    (generation, release): (u8, u32),
    [ours, c]: [&str; 2],
    met: &mut BTreeMap<&'static str, u64>,
) -> Outcome {
    if ours == c && !ours.contains("died") && !ours.contains(LEFT_OPEN) {
        return Outcome::Equal;
    }
    let split = |text| str::lines(text).collect::<Vec<_>>();
    let lines = [split(ours), split(c)];
    let mut at = [0, 0];
    let (mut step, mut step_began) = (0, 0);
    let mut history = History::default();
    loop {
        let event =
            |side: usize| lines[side].get(at[side]).map(|line| Event::parse(line)).unwrap_or_default();
        let (ours, c) = (event(0), event(1));
        if ours.kind == "step" && ours.line == c.line {
            step = ours.line["step ".len()..].parse().unwrap_or(program.len());
            step_began = at[0];
        }
        if ours.line == c.line {
            if ours.line.is_empty() {
                // What is still in use at the end is left to the kernel.
                let in_use =
                    lines[0][step_began..].iter().any(|line| line.starts_with("destroy_cq result=16"));
                return if in_use || history.is_settled() { Outcome::Equal } else { unsettled(&history) };
            }
            if !["died", "hung", LEFT_OPEN].contains(&ours.kind) {
                at = [at[0] + 1, at[1] + 1];
                continue;
            }
        }
        let before = &lines[0][step_began..at[0].min(lines[0].len()).max(step_began)];
        let after = lines[0].get(at[0] + 1..).unwrap_or_default();
        let (c_before, rest) = lines[1].split_at(at[1].min(lines[1].len()));
        let c_after = rest.get(1..).unwrap_or_default();
        let difference =
            Difference { program, step, generation, release, ours, c, before, after, c_before, c_after };
        let Some((name, effect)) = faults::explain(&difference, &mut history) else {
            return Outcome::Different {
                signature: difference.signature(),
                report: report(&difference, &lines, at),
            };
        };
        *met.entry(name).or_default() += 1;
        match effect {
            Effect::Values => at = [at[0] + 1, at[1] + 1],
            Effect::Extra => at[1] += 1,
            Effect::Missing => at[0] += 1,
            Effect::Ends => return Outcome::Cut,
        }
    }
}

/// Something that this project's provider was to do later has not come.
fn unsettled(history: &History) -> Outcome {
    let report = format!("not done until the end: {history:?}\n");
    Outcome::Different { signature: "unsettled".to_owned(), report }
}

/// Lines before the difference that are shown.
const BEFORE: usize = 8;
/// Lines from it on.
const BEHIND: usize = 6;

fn report(difference: &Difference<'_>, lines: &[Vec<&str>; 2], at: [usize; 2]) -> String {
    let mut text = match difference.step() {
        Some(step) => format!("step {}: {step:?}\n", difference.step),
        None => "the end, where all is destroyed\n".to_owned(),
    };
    if let Some(names) = difference.ours.differences(&difference.c) {
        text += &format!("values that differ: {}\n", names.join(", "));
    }
    for (name, (lines, at)) in ["ours", "C"].iter().zip(lines.iter().zip(at)) {
        text += &format!("  {name}:\n");
        for (number, line) in lines.iter().enumerate().skip(at.saturating_sub(BEFORE)).take(BEFORE + BEHIND) {
            let mark = if number == at { '>' } else { ' ' };
            text += &format!("  {mark} {line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(program: &Program, ours: &str, c: &str) -> Outcome {
        compare(program, (2, 44), [ours, c], &mut BTreeMap::new())
    }

    fn is_different(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Different { .. })
    }

    #[test]
    fn equal_traces_are_equal_and_others_are_not() {
        let program = vec![Step::Run { times: 1 }];
        let trace = "step 0\narena digest=0x1\nstep end\nclose_device result=0\n";
        assert!(matches!(outcome(&program, trace, trace), Outcome::Equal));
        for changed in ["arena digest=0x2\n", "", "arena digest=0x1\nextra line=1\n"] {
            let other = trace.replace("arena digest=0x1\n", changed);
            assert!(is_different(&outcome(&program, trace, &other)), "{other}");
            assert!(is_different(&outcome(&program, &other, trace)), "{other}");
        }
    }

    #[test]
    fn a_crash_is_a_difference_even_if_both_crash() {
        let trace = "step 0\ndied code=139\n";
        assert!(is_different(&outcome(&vec![Step::Run { times: 1 }], trace, trace)));
    }

    #[test]
    fn only_the_c_provider_may_leave_the_device_open() {
        let closed = "step 0\nclose_device result=0\n";
        let left_open = &format!("{closed}{LEFT_OPEN}\n");
        let program = vec![Step::Run { times: 1 }];
        assert!(matches!(outcome(&program, closed, left_open), Outcome::Equal));
        assert!(is_different(&outcome(&program, left_open, closed)));
        // Whatever the C provider does.
        let both = outcome(&program, left_open, left_open);
        assert!(is_different(&both), "{both:?}");
    }

    #[test]
    fn a_fault_explains_what_it_looks_like_and_no_more() {
        let program = vec![Step::Poll { cq: 0, count: 1 }];
        let wc = |opcode: u32, error: &str, rest: &str| {
            format!(
                "step 0\nwc wr_id=1000 status=0 opcode={opcode} vendor_err={error} byte_len=8 imm={rest} \
                 flags=0x0 pkey_index=0x0 slid=0x0 sl=0x0 path_bits=0x0\n"
            )
        };
        let ours = wc(0, "0x0", "0x0");
        assert!(matches!(outcome(&program, &ours, &wc(0, "0xa5a5a5a5", "0xa5a5a5a5")), Outcome::Equal));
        assert!(is_different(&outcome(&program, &ours, &wc(0, "0x1", "0xa5a5a5a5"))));
        assert!(is_different(&outcome(&program, &ours, &wc(1, "0xa5a5a5a5", "0xa5a5a5a5"))));
        // The other way round it is a fault of ours.
        assert!(is_different(&outcome(&program, &wc(0, "0xa5a5a5a5", "0x0"), &ours)));
    }

    const RING: &str =
        "ioctl name=reg_mr driver.reg_type=0x2 driver.cq_pages=0x1 out.handle=2 out.lkey=0x0 result=0\n";

    #[test]
    fn a_completion_may_only_be_lost_with_a_ring_that_is_given_back() {
        let program = vec![Step::Poll { cq: 0, count: 1 }];
        let ours = format!("{RING}step 0\npoll_cq result=1\nwc wr_id=1000 status=5 opcode=128\nstep end\n");
        let c = |before: &str| format!("{RING}step 0\n{before}poll_cq result=0\nstep end\n");
        let given_back = "ioctl name=dereg_mr 0=2 result=0\n";
        assert!(matches!(outcome(&program, &ours, &c(given_back)), Outcome::Cut));
        assert!(is_different(&outcome(&program, &ours, &c(""))));
        assert!(is_different(&outcome(&program, &c(""), &ours)), "ours loses it");
        // What is flushed may also come by a later completion; what has succeeded may not.
        let both = |first: &str, last: &str, error: &str| {
            let wc = |id: &str| format!("wc wr_id={id} vendor_err={error} opcode=128\n");
            format!("{}{}", wc(first), wc(last))
        };
        for (error, is_known) in [("0x10001", true), ("0x0", false)] {
            let ours = format!("{RING}step 0\npoll_cq result=2\n{}", both("1000", "1001", error));
            let c = format!("{RING}step 0\n{given_back}poll_cq result=2\n{}", both("1001", "1000", error));
            assert_eq!(matches!(outcome(&program, &ours, &c), Outcome::Cut), is_known);
        }
    }

    #[test]
    fn a_lap_may_only_begin_otherwise_in_the_last_slot() {
        let program = vec![Step::Poll { cq: 0, count: 1 }];
        let trace = |from: u32, to: u32| {
            format!(
                "ioctl name=create_cq 1.cqe=0x4 1001.cq_id=0x1 result=0\nshadow cq=1 word=0 value={from:#x}\n\
                 step 0\npoll_cq result=0\nshadow cq=1 word=0 value={to:#x}\n"
            )
        };
        assert!(matches!(outcome(&program, &trace(3, 0), &trace(3, 3)), Outcome::Cut));
        assert!(is_different(&outcome(&program, &trace(2, 0), &trace(2, 3))));
        assert!(is_different(&outcome(&program, &trace(3, 3), &trace(3, 0))));
    }

    #[test]
    fn what_was_to_come_later_has_to_come() {
        let program = vec![Step::Poll { cq: 0, count: 1 }];
        let given_back = "ioctl name=dereg_mr 0=2 result=0\n";
        let ours = format!("{RING}step 0\npoll_cq result=0\nstep end\n{given_back}");
        let c = format!("{RING}step 0\n{given_back}poll_cq result=0\nstep end\n");
        assert!(matches!(outcome(&program, &ours, &c), Outcome::Equal));
        let never = ours.replace(given_back, "");
        assert!(is_different(&outcome(&program, &never, &c)));
    }
}
