//! Objects by function and number.
//!
//! Whoever creates an object names its number, or has the table choose: in turn, over all
//! functions. A chosen number comes back into use only after all others have had their turn,
//! so a stale number in a ring or a doorbell finds nothing rather than a stranger.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::RangeInclusive;

use crate::spec::{EngineError, FunctionId, Id};

/// Objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: BTreeMap<Id, T>,
    numbers: RangeInclusive<u32>,
    next: u32,
}

impl<T> Table<T> {
    /// A table that chooses from `numbers`, the first being `first` (taken into the range).
    pub(crate) fn new(numbers: RangeInclusive<u32>, first: u32) -> Self {
        let next = first.clamp(*numbers.start(), *numbers.end());
        Self { entries: BTreeMap::new(), numbers, next }
    }

    /// Adds an object of `function` under `number`, or under one of the table's choice, and
    /// names it.
    pub(crate) fn insert(
        &mut self,
        function: FunctionId,
        number: Option<u32>,
        value: T,
    ) -> Result<Id, EngineError> {
        self.insert_with(function, number, |_| value)
    }

    /// Adds what `make` makes of its name.
    pub(crate) fn insert_with(
        &mut self,
        function: FunctionId,
        number: Option<u32>,
        make: impl FnOnce(Id) -> T,
    ) -> Result<Id, EngineError> {
        let id = match number {
            Some(number) => Id { function, number },
            None => self.choose(function)?,
        };
        if self.entries.contains_key(&id) {
            return Err(EngineError::Taken);
        }
        self.entries.insert(id, make(id));
        Ok(id)
    }

    fn choose(&mut self, function: FunctionId) -> Result<Id, EngineError> {
        let room = u64::from(*self.numbers.end()) - u64::from(*self.numbers.start()) + 1;
        if self.entries.len() as u64 >= room {
            return Err(EngineError::Exhausted);
        }
        loop {
            let id = Id { function, number: self.next };
            self.next = if self.next >= *self.numbers.end() { *self.numbers.start() } else { self.next + 1 };
            if !self.entries.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    pub(crate) fn contains(&self, id: Id) -> bool {
        self.entries.contains_key(&id)
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        self.entries.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.entries.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        self.entries.remove(&id)
    }

    /// Takes away all objects of a function.
    pub(crate) fn clear(&mut self, function: FunctionId) {
        self.entries.retain(|id, _| id.function != function);
    }

    /// The first object in use, or the one that follows `id`.
    pub(crate) fn next_after(&self, id: Option<Id>) -> Option<Id> {
        let start = id.map_or(Unbounded, Excluded);
        self.entries.range((start, Unbounded)).next().map(|(&id, _)| id)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(function: FunctionId, number: u32) -> Id {
        Id { function, number }
    }

    #[test]
    fn numbers_are_not_reused_before_their_turn() {
        let mut table = Table::new(1..=3, 2);
        assert_eq!(table.insert(0, None, 'a'), Ok(of(0, 2)));
        table.remove(of(0, 2));
        assert_eq!(table.insert(0, None, 'b'), Ok(of(0, 3)));
        assert_eq!(table.insert(0, None, 'c'), Ok(of(0, 1)));
        assert_eq!(table.insert(0, None, 'd'), Ok(of(0, 2)));
        assert_eq!(table.insert(0, None, 'e'), Err(EngineError::Exhausted));
        assert_eq!(table.get(of(0, 3)), Some(&'b'));
        assert_eq!(table.next_after(Some(of(0, 1))), Some(of(0, 2)));
        assert_eq!(table.next_after(Some(of(0, 3))), None);
    }

    #[test]
    fn functions_number_their_own_objects() {
        let mut table = Table::new(1..=9, 1);
        assert_eq!(table.insert(0, Some(100), 'a'), Ok(of(0, 100)));
        assert_eq!(table.insert(1, Some(100), 'b'), Ok(of(1, 100)));
        assert_eq!(table.insert(1, Some(100), 'c'), Err(EngineError::Taken));
        table.clear(1);
        assert_eq!(table.get(of(1, 100)), None);
        assert_eq!(table.get(of(0, 100)), Some(&'a'));
    }
}
