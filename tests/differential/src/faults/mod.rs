//! Differences that are known: faults of rdma-core's C provider, each with what it looks like. Those of
//! release 44 also stand for 65, but for what [`newest`] says was put right or is new.
//!
//! An entry matches as narrowly as it can be told from the two lines that differ.

mod completions;
mod creation;
mod newest;
mod work;

use std::collections::BTreeSet;

use crate::compare::Difference;
use crate::program::{Slot, Step};

/// What a fault does to the rest of a trace.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// The lines differ in values; what follows is comparable.
    Values,
    /// The C provider has a line more.
    Extra,
    /// It has a line less.
    Missing,
    /// Nothing that follows is comparable.
    Ends,
}

/// What a verb that a provider does not have says.
const NOT_SUPPORTED: i64 = libc::EOPNOTSUPP as i64;
/// `EINVAL`.
const INVALID: i64 = libc::EINVAL as i64;

/// A known fault.
pub struct Fault {
    /// What is wrong.
    pub name: &'static str,
    /// Whether this is it.
    matches: fn(&Difference<'_>, &mut History) -> Option<Effect>,
}

/// What is to be known of the lines before.
#[derive(Debug, Default)]
pub struct History {
    /// Registrations that the C provider has given back and this project's has not yet.
    early: BTreeSet<i64>,
    /// A step, and the completions that the C provider has left for a later poll of it.
    owed: (usize, i64),
}

impl History {
    /// Whether everything has come that was to come later.
    pub fn is_settled(&self) -> bool {
        self.early.is_empty()
    }

    /// Completions that the C provider owes in that step.
    fn owed(&mut self, step: usize) -> &mut i64 {
        if self.owed.0 != step {
            self.owed = (step, 0);
        }
        &mut self.owed.1
    }
}

/// Whether the lines differ in nothing but those values, and in one of them.
fn only(difference: &Difference<'_>, names: &[&str]) -> bool {
    difference
        .ours
        .differences(&difference.c)
        .is_some_and(|found| !found.is_empty() && found.iter().all(|name| names.contains(name)))
}

/// Whether that registration is of memory of a completion queue.
fn is_of_cq(difference: &Difference<'_>, handle: i64) -> bool {
    let made = format!(" out.handle={handle} ");
    let registered = |line: &&str| line.contains(&made) && line.contains(" driver.reg_type=0x2 ");
    difference.c_before.iter().any(registered)
}

/// The step that has made the queue pair in that slot: others find the slot taken, or fail.
fn creation<'a>(difference: &Difference<'a>, slot: Slot) -> Option<&'a Step> {
    let mut running = None;
    let mut creation = None;
    for line in difference.c_before {
        if let Some(number) = line.strip_prefix("step ") {
            running = number.parse().ok().and_then(|number: usize| difference.program.get(number));
        } else if line.starts_with("create_qp made=")
            && matches!(running, Some(Step::CreateQp { qp, .. }) if *qp == slot)
        {
            creation = running;
        }
    }
    creation
}

/// All of release 44.
const FAULTS: [&[Fault]; 3] = [creation::FAULTS, work::FAULTS, completions::FAULTS];

/// All of a release.
fn all(release: u32) -> impl Iterator<Item = &'static Fault> {
    let is_newest = release > 44;
    let newest = if is_newest { newest::FAULTS } else { &[] };
    let known = FAULTS.into_iter().flatten();
    known.filter(move |fault| !is_newest || !newest::RIGHTED.contains(&fault.name)).chain(newest)
}

/// The names of all of a release.
pub fn names(release: u32) -> impl Iterator<Item = &'static str> {
    all(release).map(|fault| fault.name)
}

/// The fault that explains a difference.
pub fn explain(difference: &Difference<'_>, history: &mut History) -> Option<(&'static str, Effect)> {
    all(difference.release).find_map(|fault| Some((fault.name, (fault.matches)(difference, history)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_right_was_wrong() {
        for name in newest::RIGHTED {
            assert!(names(44).any(|known| known == *name), "{name}");
            assert!(!names(65).any(|known| known == *name), "{name}");
        }
    }
}
