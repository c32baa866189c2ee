//! Objects by number, numbered in turn.
//!
//! A number comes back into use only after all others have had their turn, so a
//! stale number in a ring or a doorbell finds nothing rather than a stranger.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::spec::EngineError;

/// Objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: BTreeMap<u32, T>,
    numbers: RangeInclusive<u32>,
    next: u32,
}

impl<T> Table<T> {
    /// A table that gives out `numbers`, the first being `first` (taken into the range).
    pub(crate) fn new(numbers: RangeInclusive<u32>, first: u32) -> Self {
        let next = first.clamp(*numbers.start(), *numbers.end());
        Self { entries: BTreeMap::new(), numbers, next }
    }

    /// Adds an object and names it.
    pub(crate) fn insert(&mut self, value: T) -> Result<u32, EngineError> {
        self.insert_with(|_| value)
    }

    /// Adds what `make` makes of its number.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Result<u32, EngineError> {
        let room = u64::from(*self.numbers.end()) - u64::from(*self.numbers.start()) + 1;
        if self.entries.len() as u64 >= room {
            return Err(EngineError::Exhausted);
        }
        while self.entries.contains_key(&self.next) {
            self.step();
        }
        let number = self.next;
        self.entries.insert(number, make(number));
        self.step();
        Ok(number)
    }

    fn step(&mut self) {
        self.next = if self.next >= *self.numbers.end() { *self.numbers.start() } else { self.next + 1 };
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.entries.contains_key(&number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.entries.remove(&number)
    }

    /// The smallest number in use that is not below `from`.
    pub(crate) fn next_from(&self, from: u32) -> Option<u32> {
        self.entries.range(from..).next().map(|(&number, _)| number)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_not_reused_before_their_turn() {
        let mut table = Table::new(1..=3, 2);
        assert_eq!(table.insert('a'), Ok(2));
        table.remove(2);
        assert_eq!(table.insert('b'), Ok(3));
        assert_eq!(table.insert('c'), Ok(1));
        assert_eq!(table.insert('d'), Ok(2));
        assert_eq!(table.insert('e'), Err(EngineError::Exhausted));
        assert_eq!(table.get(3), Some(&'b'));
        assert_eq!(table.next_from(2), Some(2));
    }
}
